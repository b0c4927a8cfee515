/* engine/feed.c - see feed.h.
 *
 * A feed that does not look ahead copies on the compute stream into the slot that was handed out
 * last, whose readers stand before the copy on that stream. One that looks ahead copies the next
 * micro-batch on the data stream into the other slot, once the work that was enqueued on that slot
 * has passed. So the two can take turns: what was fetched ahead stays where it is.
 */
#include "engine/feed.h"

#include "runtime/base/clock.h"

static int other(int slot)
{
    return (slot + 1) % YK_BATCH_SLOTS;
}

yk_status yk_feed_init(yk_feed *feed, yk_engine *engine, yk_loader *loader)
{
    *feed = (yk_feed){.engine = engine, .loader = loader};
    for (int i = 0; i < YK_BATCH_SLOTS; i++) {
        YK_TRY(yk_event_create(engine->device, &feed->copied[i]));
        YK_TRY(yk_event_create(engine->device, &feed->used[i]));
    }
    return YK_OK;
}

void yk_feed_fini(yk_feed *feed)
{
    for (int i = 0; i < YK_BATCH_SLOTS; i++) {
        yk_event_destroy(feed->copied[i]);
        yk_event_destroy(feed->used[i]);
        feed->copied[i] = feed->used[i] = NULL;
    }
}

void yk_feed_expect(yk_feed *feed, int64_t n_batches)
{
    feed->n_expected = feed->engine->data ? n_batches : 0;
}

/* Give the loader back the buffer whose copy into the slot has passed. */
static yk_status give_back(yk_feed *feed, int slot)
{
    if (!feed->held[slot]) return YK_OK;
    YK_TRY(yk_event_synchronize(feed->copied[slot]));
    yk_loader_recycle(feed->loader, feed->held[slot]);
    feed->held[slot] = NULL;
    return YK_OK;
}

/* The loader's next buffer. */
static yk_status take(yk_feed *feed, int slot, const int32_t **buffer_out)
{
    *buffer_out = feed->engine->staging[0];
    if (!feed->loader) return YK_OK; /* the same each time; of a dry device nothing is read */
    double begin = yk_clock_s();
    YK_TRY(yk_loader_next(feed->loader, &feed->held[slot]));
    feed->wait_s += yk_clock_s() - begin;
    *buffer_out = feed->held[slot];
    return YK_OK;
}

/* Fill a slot on `stream`. */
static yk_status fill(yk_feed *feed, int slot, yk_stream *stream)
{
    yk_engine *e = feed->engine;
    const int32_t *buffer;
    YK_TRY(give_back(feed, slot));
    YK_TRY(take(feed, slot, &buffer));
    YK_TRY(
        yk_copy(stream, e->slots[slot], buffer, yk_engine_batch_bytes(e), YK_COPY_HOST_TO_DEVICE));
    return yk_event_record(feed->copied[slot], stream);
}

/* Fetch the next micro-batch into the slot beside the one that is handed out. */
static yk_status look_ahead(yk_feed *feed, int slot)
{
    yk_engine *e = feed->engine;
    YK_TRY(yk_event_record(feed->used[slot], e->compute));
    YK_TRY(yk_event_wait(feed->used[slot], e->data));
    YK_TRY(fill(feed, slot, e->data));
    feed->is_ahead = true;
    return YK_OK;
}

yk_status yk_feed_next(yk_feed *feed, yk_batch *batch_out)
{
    yk_engine *e = feed->engine;
    if (feed->is_ahead) {
        e->last_slot = other(e->last_slot);
        feed->is_ahead = false;
        YK_TRY(yk_event_wait(feed->copied[e->last_slot], e->compute));
    } else {
        YK_TRY(give_back(feed, other(e->last_slot))); /* the loader wants its oldest first */
        YK_TRY(fill(feed, e->last_slot, e->compute));
    }
    *batch_out = yk_engine_batch(e, e->last_slot);
    if (feed->n_expected > 0) feed->n_expected--;
    return feed->n_expected > 0 ? look_ahead(feed, other(e->last_slot)) : YK_OK;
}
