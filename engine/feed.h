/* engine/feed.h - micro-batches on their way from the loader to the device.
 *
 * Model.    A feed takes the next micro-batch that the loader has filled, enqueues its copy into
 *           one of the engine's slots and hands out the batch. The loader's buffer goes back once
 *           the copy has passed. On a GPU a feed that knows how many batches will be asked for looks
 *           one ahead: its copy runs on a stream of its own beside the computation, and is waited
 *           for by nobody. Without a loader nothing is read, and what lies in the engine's staging
 *           memory is copied each time.
 * Several.  One feed of an engine looks ahead; others may take turns with it.
 * Threads.  One thread at a time.
 */
#ifndef YK_ENGINE_FEED_H
#define YK_ENGINE_FEED_H

#include "engine/engine.h"
#include "runtime/data/loader.h"

typedef struct yk_feed {
    yk_engine *engine;                /* borrowed */
    yk_loader *loader;                /* borrowed; NULL: there is none */
    yk_event *copied[YK_BATCH_SLOTS]; /* passed when the slot is filled */
    yk_event *used[YK_BATCH_SLOTS];   /* and when what it held before is no longer read */
    int32_t *held[YK_BATCH_SLOTS];    /* the loader's buffer that is copied into it, or NULL */
    bool is_ahead;      /* the slot beside the last one has the next micro-batch, or will */
    int64_t n_expected; /* batches that will be asked for; looks ahead while positive */
    double wait_s;      /* time spent waiting for the loader since the feed was made */
} yk_feed;

/* Begin to feed `engine` from `loader`.                                                  [local] */
yk_status yk_feed_init(yk_feed *feed, yk_engine *engine, yk_loader *loader);
void yk_feed_fini(yk_feed *feed);

/* Look ahead, where that pays: `n_batches` will be asked for, and no more is read than that. */
void yk_feed_expect(yk_feed *feed, int64_t n_batches);

/* The next micro-batch, readable for work that follows on the engine's compute stream. It holds
 * until the next one is taken from any feed of the engine.
 *
 * Statuses are those of yk_loader_next(): what the data holds is checked as it is read.
 */
yk_status yk_feed_next(yk_feed *feed, yk_batch *batch_out);

#endif
