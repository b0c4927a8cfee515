/* engine/feed.h - micro-batches on their way from the loader to the device.
 *
 * Model.    A feed takes the next micro-batch that the loader has filled, enqueues its copy into
 *           one of the engine's slots and hands out the batch. The loader's buffer goes back once
 *           the copy has passed. On a dry device there is no loader and nothing is read: only the
 *           copy counts.
 * Threads.  One thread at a time.
 */
#ifndef YK_ENGINE_FEED_H
#define YK_ENGINE_FEED_H

#include "engine/engine.h"
#include "runtime/data/loader.h"

typedef struct yk_feed {
    yk_engine *engine; /* borrowed */
    yk_loader *loader; /* borrowed; NULL on a dry device */
    yk_event *copied;  /* passed when `held` may go back */
    int32_t *held;     /* the loader's buffer whose copy is under way, or NULL */
    double wait_s;     /* time spent waiting for the loader since the feed was made */
} yk_feed;

/* Begin to feed `engine` from `loader`.                                                  [local] */
yk_status yk_feed_init(yk_feed *feed, yk_engine *engine, yk_loader *loader);
void yk_feed_fini(yk_feed *feed);

/* The next micro-batch, readable for work that follows on the engine's compute stream. It holds
 * until YK_BATCH_SLOTS more have been taken.
 *
 * Statuses are those of yk_loader_next(): what the data holds is checked as it is read.
 */
yk_status yk_feed_next(yk_feed *feed, yk_batch *batch_out);

#endif
