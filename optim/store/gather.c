/* optim/store/gather.c - parameters on their way to the model: acquire, release, publish.
 *
 * Stages 0 to 2 keep all parameters and exchange shards once, after an update. Stage 3 keeps a
 * shard and gathers a unit into a slot before it is used, on the gather stream, while units before it
 * compute: several ahead, the first ones beside the update. What a slot still holds is not gathered
 * again, so that with more slots the last blocks of the forward pass are there for the backward pass;
 * with one for every block a step gathers each block once. Parameters in host memory take the same
 * way: what this rank keeps is copied to its place in the slot, and the rest, if there is more, is
 * gathered around it. With a shelf each rank puts its shard into host memory that its node shares,
 * after an update, and all take it from there.
 */
#include "optim/store/parts.h"
#include "runtime/base/arith.h"

/* The most units that are fetched ahead: enough for a link to stay busy. A stream that is given too much
 * holds the host, which has other work to enqueue. */
#define UNITS_AHEAD 4

/* Units that may be fetched ahead of one that is acquired. */
static int n_ahead(const yk_store *st)
{
    return (int)yk_min(st->n_block_slots - 1, UNITS_AHEAD);
}

bool yk_store_uses(const yk_store *st, int unit, int owner)
{
    return unit == owner || st->units[unit].uses_also == owner;
}

yk_status yk_store_slot_take(yk_store_slots *slots, int unit, int64_t count, yk_stream *stream,
                             int *slot_out)
{
    int best = -1;
    for (int i = 0; i < slots->n_items; i++) {
        const yk_store_slot *s = &slots->items[i], *b = &slots->items[best < 0 ? 0 : best];
        if (s->held || s->count < count) continue;
        if (best < 0 || s->count < b->count || (s->count == b->count && s->used_at < b->used_at))
            best = i;
    }
    YK_CHECK(best >= 0);
    slots->items[best].unit = unit;
    slots->items[best].used_at = ++slots->clock;
    *slot_out = best;
    return yk_event_wait(slots->items[best].free, stream);
}

/* Let at least `share` of what this rank keeps of a unit be on its way to its place in the slot; the last of
 * it marks `arrived`. */
static yk_status bring_home(yk_store *st, yk_store_unit *u, double share, yk_event *arrived)
{
    yk_store_range whole = {0, u->count}, kept = u->param_range;
    void *slot = st->param_slots.items[u->param_slot].data;
    int64_t begin = u->param_back, wanted = (int64_t)(share * (double)kept.count);
    int64_t end = yk_min(yk_round_up(wanted, YK_STORE_TENSOR_ALIGN), kept.count);
    if (end <= begin) return YK_OK;
    YK_TRY(yk_copy(st->host.to_device, yk_store_at(slot, whole, kept.begin + begin, st->o.compute),
                   yk_store_at(u->param, kept, kept.begin + begin, st->o.compute),
                   (end - begin) * yk_dtype_bytes(st->o.compute), YK_COPY_HOST_TO_DEVICE));
    u->param_back = end;
    return end == kept.count ? yk_event_record(arrived, st->host.to_device) : YK_OK;
}

/* The slot of a unit's parameters. Blocks that follow each other lie in different ones, as many as there
 * are slots, and each always in the same one, which graphs point at. */
static int slot_of(const yk_store *st, int unit)
{
    int n = st->n_block_slots, last = st->o.n_units - 1;
    if (unit > 0 && unit < last) return (unit - 1) % n;
    return unit > 0 && st->units[0].n_uses > 1 ? n + 1 : n;
}

/* Give a unit its slot, for work that follows on `stream`; whoever was there must be fetched again. */
static yk_status take_place(yk_store *st, int unit, yk_stream *stream)
{
    int n = slot_of(st, unit);
    yk_store_slot *slot = &st->param_slots.items[n];
    if (slot->unit >= 0) st->units[slot->unit].param_slot = -1;
    slot->unit = unit;
    st->units[unit].param_slot = n;
    return yk_event_wait(slot->free, stream);
}

/* Let at least `share` of a unit's parameters, which come from host memory alone, be on their way. */
static yk_status fetch_home(yk_store *st, int unit, double share)
{
    yk_store_unit *u = &st->units[unit];
    if (u->param_slot < 0) {
        YK_TRY(take_place(st, unit, st->host.to_device));
        YK_TRY(yk_event_wait(u->stored, st->host.to_device));
        u->param_back = 0;
    }
    return bring_home(st, u, share, u->readable);
}

/* After work on `stream`, which may have changed them: let the parameters that this rank keeps of a unit
 * be on the shelf. */
static yk_status put(yk_store *st, int unit, yk_stream *stream)
{
    yk_store_unit *u = &st->units[unit];
    u->is_put = true;
    if (yk_store_offloads(st, YK_OFFLOAD_PARAMS)) /* they have come there on that stream */
        return yk_comm_put(st->g.shard, unit, NULL, st->host.to_host);
    YK_TRY(yk_store_follow(st, st->g.put, stream));
    YK_TRY(yk_comm_put(st->g.shard, unit, u->param, st->g.put));
    return yk_event_record(u->put, st->g.put);
}

/* Copy the shard that is on the device to its place in the slot, beside what comes from the shelf. */
static yk_status copy_own(yk_store *st, const yk_store_unit *u, yk_store_slot *slot, void *place)
{
    int64_t bytes = u->shard.count * yk_dtype_bytes(st->o.compute);
    YK_TRY(yk_event_wait(slot->free, st->g.put));
    YK_TRY(yk_copy(st->g.put, place, u->param, bytes, YK_COPY_DEVICE));
    return yk_event_record(slot->filled, st->g.put);
}

/* From the shelf: nothing of it passes through this rank's other streams. */
static yk_status fetch_from_shelf(yk_store *st, int unit)
{
    yk_store_unit *u = &st->units[unit];
    yk_store_range whole = {0, u->count};
    if (!u->is_put) YK_TRY(put(st, unit, st->g.gather));
    YK_TRY(take_place(st, unit, st->g.gather));
    yk_store_slot *slot = &st->param_slots.items[u->param_slot];
    void *own = NULL;
    if (!yk_store_offloads(st, YK_OFFLOAD_PARAMS)) {
        own = yk_store_at(slot->data, whole, u->shard.begin, st->o.compute);
        YK_TRY(copy_own(st, u, slot, own));
    }
    YK_TRY(yk_comm_take(st->g.shard, unit, slot->data, own, st->g.gather));
    if (own) YK_TRY(yk_event_wait(slot->filled, st->g.gather));
    return yk_event_record(u->readable, st->g.gather);
}

/* From this rank's memory and the others'. */
static yk_status fetch_from_ranks(yk_store *st, int unit)
{
    yk_store_unit *u = &st->units[unit];
    bool away = yk_store_offloads(st, YK_OFFLOAD_PARAMS);
    YK_TRY(take_place(st, unit, away ? st->host.to_device : st->g.gather));
    yk_store_slot *slot = &st->param_slots.items[u->param_slot];
    const void *shard = u->param;
    if (away) {
        yk_store_range whole = {0, u->count};
        u->param_back = 0;
        YK_TRY(yk_event_wait(u->stored, st->host.to_device));
        YK_TRY(bring_home(st, u, 1, slot->filled));
        YK_TRY(yk_event_wait(slot->filled, st->g.gather));
        shard = yk_store_at(slot->data, whole, u->shard.begin, st->o.compute);
    }
    YK_TRY(yk_comm_all_gather(st->g.shard, slot->data, shard, u->shard.count, st->o.compute,
                              st->g.gather));
    return yk_event_record(u->readable, st->g.gather);
}

/* Start fetching a unit's parameters, unless they are on their way or there. */
static yk_status fetch(yk_store *st, int unit)
{
    if (!yk_store_gathers(st)) return fetch_home(st, unit, 1);
    if (st->units[unit].param_slot >= 0) return YK_OK;
    return yk_store_has_shelf(st) ? fetch_from_shelf(st, unit) : fetch_from_ranks(st, unit);
}

/* Fetch everything that `unit` uses. */
static yk_status fetch_all(yk_store *st, int unit)
{
    for (int owner = 0; owner < st->o.n_units; owner++)
        if (yk_store_uses(st, unit, owner)) YK_TRY(fetch(st, owner));
    return YK_OK;
}

/* Fetch the units behind `unit` up to `last`, as far as there are slots beside its own: those of units that
 * have been released. */
static yk_status look_ahead(yk_store *st, int unit, int last)
{
    int step = last > unit ? 1 : -1;
    for (int i = 0; i < n_ahead(st) && unit != last; i++) YK_TRY(fetch_all(st, unit += step));
    return YK_OK;
}

yk_status yk_store_acquire(yk_store *st, int unit, int last, yk_stream *stream,
                           const yk_param_view **views_out)
{
    bool fetches = yk_store_fetches(st);
    if (fetches) YK_TRY(fetch_all(st, unit));
    for (int owner = 0; owner < st->o.n_units; owner++) {
        const yk_store_unit *u = &st->units[owner];
        if (!u->readable || !yk_store_uses(st, unit, owner)) continue;
        YK_TRY(yk_store_wait(st, u->readable, stream));
        if (fetches) yk_store_point_params(st, owner, st->param_slots.items[u->param_slot].data);
    }
    if (fetches && last >= 0) YK_TRY(look_ahead(st, unit, last));
    *views_out = st->views;
    return YK_OK;
}

yk_status yk_store_acquire_ahead(yk_store *st, int unit, double share)
{
    if (!yk_store_fetches(st) || yk_store_gathers(st) || share <= 0) return YK_OK;
    for (int owner = 0; owner < st->o.n_units; owner++)
        if (yk_store_uses(st, unit, owner)) YK_TRY(fetch_home(st, owner, share));
    return YK_OK;
}

yk_status yk_store_release(yk_store *st, int unit, yk_stream *stream)
{
    if (!yk_store_fetches(st)) return YK_OK;
    for (int owner = 0; owner < st->o.n_units; owner++) {
        if (!yk_store_uses(st, unit, owner)) continue;
        YK_TRY(yk_event_record(st->param_slots.items[st->units[owner].param_slot].free, stream));
    }
    return YK_OK;
}

/* Gather what the next pass begins with, beside the rest of the update. */
static yk_status fetch_early(yk_store *st, int unit)
{
    bool own_slot = unit < st->o.n_units - 1 || st->units[0].n_uses > 1;
    return unit <= n_ahead(st) + 1 && own_slot ? fetch(st, unit) : YK_OK;
}

yk_status yk_store_publish(yk_store *st, int unit, yk_stream *stream)
{
    yk_store_unit *u = &st->units[unit];
    if (yk_store_fetches(st)) u->param_slot = -1; /* what was fetched is of before the update */
    if (yk_store_has_shelf(st)) YK_TRY(put(st, unit, stream));
    if (yk_store_offloads(st, YK_OFFLOAD_PARAMS))
        return yk_store_has_shelf(st) ? fetch_early(st, unit) : YK_OK;
    if (st->n_shards == 1 || st->o.zero == 0) return YK_OK;
    YK_TRY(yk_store_follow(st, st->g.gather, stream));
    if (yk_store_gathers(st)) return fetch_early(st, unit);
    void *shard = yk_store_at(u->param, u->param_range, u->shard.begin, st->o.compute);
    YK_TRY(yk_comm_all_gather(st->g.shard, u->param, shard, u->shard.count, st->o.compute,
                              st->g.gather));
    return yk_event_record(u->readable, st->g.gather);
}
