/* engine/feed.c - a ring of device slots between the loader and the pass. */
#include "engine/feed.h"

#include "runtime/base/clock.h"

yk_status yk_feed_init(yk_feed *feed, yk_engine *engine, yk_loader *loader)
{
    yk_event *copied;
    YK_TRY(yk_event_create(engine->device, &copied));
    *feed = (yk_feed){.engine = engine, .loader = loader, .copied = copied};
    return YK_OK;
}

void yk_feed_fini(yk_feed *feed)
{
    yk_event_destroy(feed->copied);
    feed->copied = NULL;
}

/* Give the loader back the buffer whose copy has passed. */
static yk_status give_back(yk_feed *feed)
{
    if (!feed->held) return YK_OK;
    YK_TRY(yk_event_synchronize(feed->copied));
    yk_loader_recycle(feed->loader, feed->held);
    feed->held = NULL;
    return YK_OK;
}

/* The loader's next buffer. */
static yk_status take(yk_feed *feed, const int32_t **buffer_out)
{
    *buffer_out = feed->engine->staging[0];
    if (!feed->loader) return YK_OK; /* a dry device: nothing is read */
    double begin = yk_clock_s();
    YK_TRY(yk_loader_next(feed->loader, &feed->held));
    feed->wait_s += yk_clock_s() - begin;
    *buffer_out = feed->held;
    return YK_OK;
}

yk_status yk_feed_next(yk_feed *feed, yk_batch *batch_out)
{
    yk_engine *e = feed->engine;
    int slot = e->next_slot;
    int64_t bytes = yk_engine_batch_bytes(e);
    YK_TRY(give_back(feed));
    const int32_t *buffer;
    YK_TRY(take(feed, &buffer));
    YK_TRY(yk_copy(e->compute, e->slots[slot], buffer, bytes, YK_COPY_HOST_TO_DEVICE));
    YK_TRY(yk_event_record(feed->copied, e->compute));
    e->next_slot = (slot + 1) % YK_BATCH_SLOTS;
    *batch_out = yk_engine_batch(e, slot);
    return YK_OK;
}
