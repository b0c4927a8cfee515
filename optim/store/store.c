/* optim/store/store.c - laying out units and taking their memory.
 *
 * Three questions are answered here for each unit and kind of state, from the stage alone: which
 * range of the flat layout is kept, which part of it this rank updates, and which part it squares.
 * All that follows is arithmetic on ranges.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "optim/store/parts.h"
#include "runtime/base/arith.h"
#include "runtime/storage/hash.h"

/* What of yk_offload is a store's. */
#define STORE_OFFLOADS                                                                             \
    (YK_OFFLOAD_MASTER | YK_OFFLOAD_MOMENTS | YK_OFFLOAD_GRADS | YK_OFFLOAD_PARAMS)

/* ---- layout ------------------------------------------------------------------------------- */

static int world_size(const yk_store *st)
{
    return st->g.all ? yk_comm_size(st->g.all) : 1;
}

/* Place the tensors of a unit that decay, or those that do not, behind what is placed. */
static void place(yk_store *st, int unit, bool decay)
{
    yk_store_unit *u = &st->units[unit];
    for (int i = 0; i < st->o.n_params; i++) {
        const yk_param *p = &st->o.params[i];
        if (p->unit != unit || p->decay != decay) continue;
        st->offsets[i] = u->count;
        st->order[u->first_tensor + u->n_tensors++] = i;
        u->count += yk_round_up(yk_param_count(p), YK_STORE_TENSOR_ALIGN);
        u->n_uses = p->shared_unit >= 0 ? 2 : (int)yk_max(u->n_uses, 1);
    }
}

/* Part `index` of `n` equal parts of a range. */
static yk_store_range part(yk_store_range range, int index, int n)
{
    int64_t count = range.count / n;
    return (yk_store_range){range.begin + index * count, count};
}

static void cut(yk_store *st, yk_store_unit *u)
{
    yk_store_range whole = {0, u->count};
    u->shard = u->mine = whole;
    if (st->n_shards > 1) u->shard = part(whole, yk_comm_index(st->g.shard), st->n_shards);
    u->mine = u->shard;
    if (st->g.replicate)
        u->mine = part(u->shard, yk_comm_index(st->g.replicate), yk_comm_size(st->g.replicate));
    bool sums_only = yk_store_reduces_each(st) && st->o.zero > 0;
    u->param_range = yk_store_gathers(st) ? u->shard : whole;
    u->state_range = st->o.zero > 0 ? u->shard : whole;
    u->grad_range = sums_only ? u->shard : whole;
    u->param_slot = u->grad_slot = -1;
}

static void lay_out(yk_store *st)
{
    for (int i = 0; i < st->o.n_units; i++) st->units[i].uses_also = -1;
    for (int i = 0; i < st->o.n_params; i++) {
        const yk_param *p = &st->o.params[i];
        if (p->shared_unit >= 0) st->units[p->shared_unit].uses_also = p->unit;
    }
    for (int i = 0; i < st->o.n_units; i++) {
        yk_store_unit *u = &st->units[i];
        if (i > 0) u->first_tensor = u[-1].first_tensor + u[-1].n_tensors;
        place(st, i, true);
        place(st, i, false);
        u->used_count = u->count;
        u->count = yk_round_up(u->count, YK_STORE_TENSOR_ALIGN * world_size(st));
        cut(st, u);
    }
}

int64_t yk_store_largest_unit(const yk_store_options *o, int world)
{
    int64_t largest = 0;
    for (int u = 0; u < o->n_units; u++) {
        int64_t count = 0;
        for (int i = 0; i < o->n_params; i++)
            if (o->params[i].unit == u)
                count += yk_round_up(yk_param_count(&o->params[i]), YK_STORE_TENSOR_ALIGN);
        largest = yk_max(largest, yk_round_up(count, (int64_t)YK_STORE_TENSOR_ALIGN * world));
    }
    return largest;
}

/* ---- memory ------------------------------------------------------------------------------- */

static yk_status push_zeroed(yk_arena *arena, const char *name, int64_t count, yk_dtype dtype,
                             yk_stream *stream, void **piece_out)
{
    int64_t bytes = count * yk_dtype_bytes(dtype);
    YK_TRY(yk_arena_push(arena, name, bytes, piece_out));
    return yk_zero(stream, *piece_out, bytes);
}

/* Push one buffer for every unit. `field` and `range` are the places of its pointer and of what it
 * holds in yk_store_unit. */
static yk_status push_buffers(yk_store *st, yk_arena *arena, yk_stream *stream, const char *name,
                              yk_dtype dtype, size_t field, size_t range)
{
    for (int i = 0; i < st->o.n_units; i++) {
        char *u = (char *)&st->units[i];
        const yk_store_range *r = (const yk_store_range *)(u + range);
        YK_TRY(push_zeroed(arena, name, r->count, dtype, stream, (void **)(u + field)));
    }
    return YK_OK;
}

#define PUSH(name, dtype, field, range)                                                            \
    push_buffers(st, arena, stream, name, dtype, offsetof(yk_store_unit, field),                   \
                 offsetof(yk_store_unit, range))

/* Where a kind of state lies. */
static yk_arena *home_of(const yk_store *st, yk_offload kind, yk_arena *device)
{
    return yk_store_offloads(st, kind) ? st->host.pinned : device;
}

/* Offloaded parameters lie on the shelf itself. */
static yk_status make_shelf(yk_store *st)
{
    int n = st->o.n_units;
    int64_t *bytes = malloc((size_t)n * sizeof *bytes);
    if (!bytes) return yk_fail(YK_ENOMEM, "store", "no memory for a table of %d units", n);
    for (int i = 0; i < n; i++) bytes[i] = st->units[i].shard.count * yk_dtype_bytes(st->o.compute);
    yk_status status = yk_comm_shelve(st->g.shard, bytes, n);
    free(bytes);
    for (int i = 0; i < n && status == YK_OK && yk_store_offloads(st, YK_OFFLOAD_PARAMS); i++)
        st->units[i].param = yk_comm_shelf_part(st->g.shard, i);
    return status;
}

static yk_status push_states(yk_store *st, yk_arena *persistent, yk_stream *stream)
{
    yk_arena *arena = home_of(st, YK_OFFLOAD_PARAMS, persistent);
    if (yk_store_has_shelf(st)) YK_TRY(make_shelf(st));
    if (!yk_store_has_shelf(st) || !yk_store_offloads(st, YK_OFFLOAD_PARAMS))
        YK_TRY(PUSH("parameters", st->o.compute, param, param_range));
    if (!st->o.train) return YK_OK;
    arena = home_of(st, YK_OFFLOAD_MASTER, persistent);
    if (yk_store_has_master(st)) YK_TRY(PUSH("master weights", st->o.master, master, state_range));
    for (int i = 0; i < st->o.n_units && !yk_store_has_master(st); i++) {
        yk_store_unit *u = &st->units[i];
        u->master = yk_store_at(u->param, u->param_range, u->state_range.begin, st->o.compute);
    }
    arena = home_of(st, YK_OFFLOAD_GRADS, persistent);
    YK_TRY(PUSH("gradients", st->o.grads, grad, grad_range));
    arena = home_of(st, YK_OFFLOAD_MOMENTS, persistent);
    YK_TRY(PUSH("first moments", st->o.moments, m, state_range));
    return PUSH("second moments", st->o.moments, v, state_range);
}

/* Is the unit used at two places of a pass, far apart? */
static bool is_tied(const yk_store *st, int unit)
{
    return st->units[unit].n_uses > 1;
}

static yk_status push_slot(yk_store_slots *slots, yk_arena *arena, const char *name, int64_t count,
                           yk_dtype dtype, yk_stream *stream)
{
    yk_store_slot *more =
        realloc(slots->items, (size_t)(slots->n_items + 1) * sizeof *slots->items);
    if (!more) return yk_fail(YK_ENOMEM, "store", "no memory for the table of places");
    slots->items = more;
    yk_store_slot *s = &slots->items[slots->n_items];
    *s = (yk_store_slot){.count = count, .unit = -1};
    YK_TRY(push_zeroed(arena, name, count, dtype, stream, &s->data));
    slots->n_items++;
    YK_TRY(yk_event_create(yk_stream_get_device(stream), &s->filled));
    return yk_event_create(yk_stream_get_device(stream), &s->free);
}

/* `n_blocks` slots for the blocks, which take turns, and one for the two ends of the model, which are
 * never there at once: the embedding is done with before the head is fetched, and the other way round in
 * the backward pass. A tied head, which is small, uses the embedding too and has its own. */
static yk_status push_slots(yk_store *st, yk_store_slots *slots, yk_arena *arena, const char *name,
                            yk_dtype dtype, int n_blocks, yk_stream *stream)
{
    int last = st->o.n_units - 1;
    int64_t block = 0;
    for (int i = 1; i < last; i++) block = yk_max(block, st->units[i].count);
    for (int i = 0; i < n_blocks; i++) YK_TRY(push_slot(slots, arena, name, block, dtype, stream));
    int64_t head = st->units[last].count, end = st->units[0].count;
    bool tied = is_tied(st, 0);
    if (!tied) end = yk_max(end, head);
    YK_TRY(push_slot(slots, arena, name, end, dtype, stream));
    return tied ? push_slot(slots, arena, name, head, dtype, stream) : YK_OK;
}

/* Gradients on the way to what is kept of them in host memory: two, of which one travels. */
static yk_status push_sum_slots(yk_store *st, yk_arena *arena, yk_stream *stream)
{
    int64_t most = 0;
    for (int i = 0; i < st->o.n_units; i++) most = yk_max(most, st->units[i].grad_range.count);
    for (int i = 0; i < 2; i++)
        YK_TRY(push_slot(&st->sum_slots, arena, "gradients of a shard", most, st->o.grads, stream));
    return YK_OK;
}

static yk_status create_events(yk_store *st, yk_device *device)
{
    YK_TRY(yk_event_create(device, &st->passed));
    for (int i = 0; i < st->o.n_units; i++) {
        YK_TRY(yk_event_create(device, &st->units[i].readable));
        YK_TRY(yk_event_create(device, &st->units[i].reduced));
        YK_TRY(yk_event_create(device, &st->units[i].stored));
        YK_TRY(yk_event_create(device, &st->units[i].put));
    }
    return YK_OK;
}

static yk_status take_memory(yk_store *st, yk_arena *arena, yk_stream *stream)
{
    YK_TRY(push_states(st, arena, stream));
    st->n_block_slots = (int)yk_max(2, yk_min(2 + st->o.kept, st->o.n_units - 2));
    if (yk_store_fetches(st))
        YK_TRY(push_slots(st, &st->param_slots, arena, "parameters of a unit", st->o.compute,
                          st->n_block_slots, stream));
    /* Offloaded, one more is on its way out while the next comes in. */
    if (yk_store_slots_grads(st))
        YK_TRY(push_slots(st, &st->grad_slots, arena, "gradients of a unit", st->o.grads,
                          yk_store_offloads(st, YK_OFFLOAD_GRADS) ? 3 : 2, stream));
    if (yk_store_reduces_each(st) && yk_store_offloads(st, YK_OFFLOAD_GRADS))
        YK_TRY(push_sum_slots(st, arena, stream));
    YK_TRY(yk_store_push_lanes(st, arena, stream));
    if (!yk_store_is_shared(st) && st->o.offload == 0) return YK_OK;
    return create_events(st, yk_stream_get_device(stream));
}

/* ---- views -------------------------------------------------------------------------------- */

void yk_store_point_params(yk_store *st, int unit, void *data)
{
    const yk_store_unit *u = &st->units[unit];
    yk_store_range whole = {0, u->count};
    for (int k = 0; k < u->n_tensors; k++) {
        int i = st->order[u->first_tensor + k];
        void *tensor = yk_store_at(data, whole, st->offsets[i], st->o.compute);
        st->views[i] = (yk_param_view){tensor, st->o.compute};
    }
}

void yk_store_point_grads(yk_store *st, int unit, void *data)
{
    const yk_store_unit *u = &st->units[unit];
    yk_store_range whole = {0, u->count};
    for (int k = 0; k < u->n_tensors; k++) {
        int i = st->order[u->first_tensor + k];
        void *tensor = yk_store_at(data, whole, st->offsets[i], st->o.grads);
        st->grads[i] = (yk_grad_view){tensor, st->o.grads, st->grads[i].accumulate};
    }
}

static void make_views(yk_store *st)
{
    for (int i = 0; i < st->o.n_units; i++) {
        if (!yk_store_fetches(st)) yk_store_point_params(st, i, st->units[i].param);
        if (st->o.train && !yk_store_slots_grads(st))
            yk_store_point_grads(st, i, st->units[i].grad);
    }
}

/* By name, so that a tensor's bits do not depend on what other tensors there are. */
static void make_keys(yk_store *st)
{
    for (int i = 0; i < st->o.n_params; i++) {
        const char *name = st->o.params[i].name;
        st->keys[i] = yk_hash64(name, (int64_t)strlen(name), (uint64_t)st->o.seed);
    }
}

/* ---- life --------------------------------------------------------------------------------- */

yk_status yk_store_create(const yk_store_options *options, yk_arena *persistent, yk_stream *stream,
                          yk_store **store_out)
{
    yk_status status = YK_ENOMEM;
    yk_store *st = calloc(1, sizeof *st);
    if (!st) goto fail_memory;
    st->o = *options;
    if (options->groups) st->g = *options->groups;
    if (options->host) st->host = *options->host;
    st->o.offload &= options->train ? STORE_OFFLOADS : YK_OFFLOAD_PARAMS;
    if (!yk_store_has_master(st)) st->o.offload &= ~YK_OFFLOAD_MASTER;
    YK_CHECK(st->o.offload == 0 || options->host);
    st->n_shards = st->g.shard ? yk_comm_size(st->g.shard) : 1;
    st->units = calloc((size_t)options->n_units, sizeof *st->units);
    st->offsets = calloc((size_t)options->n_params, sizeof *st->offsets);
    st->order = calloc((size_t)options->n_params, sizeof *st->order);
    st->views = calloc((size_t)options->n_params, sizeof *st->views);
    st->grads = calloc((size_t)options->n_params, sizeof *st->grads);
    st->keys = calloc((size_t)options->n_params, sizeof *st->keys);
    if (!st->units || !st->offsets || !st->order || !st->views || !st->grads || !st->keys)
        goto fail_memory;
    lay_out(st);
    make_keys(st);
    status = yk_timer_create(yk_stream_get_device(stream), YK_STORE_WAITS, &st->waits);
    if (status == YK_OK) status = take_memory(st, persistent, stream);
    if (status != YK_OK) goto fail;
    make_views(st);
    *store_out = st;
    return YK_OK;
fail_memory:
    yk_fail(status, "store", "no memory for the tables of %d parameters", options->n_params);
fail:
    yk_store_destroy(st);
    return status;
}

static void destroy_slots(yk_store_slots *slots)
{
    for (int i = 0; i < slots->n_items; i++) {
        yk_event_destroy(slots->items[i].free);
        yk_event_destroy(slots->items[i].filled);
    }
    free(slots->items);
}

void yk_store_destroy(yk_store *store)
{
    if (!store) return;
    for (int i = 0; store->units && i < store->o.n_units; i++) {
        yk_event_destroy(store->units[i].readable);
        yk_event_destroy(store->units[i].reduced);
        yk_event_destroy(store->units[i].stored);
        yk_event_destroy(store->units[i].put);
    }
    destroy_slots(&store->param_slots);
    destroy_slots(&store->grad_slots);
    destroy_slots(&store->sum_slots);
    yk_store_destroy_lanes(store);
    yk_timer_destroy(store->waits);
    yk_event_destroy(store->passed);
    free(store->units);
    free(store->offsets);
    free(store->order);
    free(store->views);
    free(store->grads);
    free(store->keys);
    free(store);
}

yk_status yk_store_follow(yk_store *st, yk_stream *later, yk_stream *earlier)
{
    YK_TRY(yk_event_record(st->passed, earlier));
    return yk_event_wait(st->passed, later);
}

yk_status yk_store_wait(yk_store *st, yk_event *event, yk_stream *stream)
{
    if (!yk_store_is_shared(st)) return yk_event_wait(event, stream);
    YK_TRY(yk_timer_begin(st->waits, stream));
    YK_TRY(yk_event_wait(event, stream));
    return yk_timer_end(st->waits, stream);
}

double yk_store_waited_s(const yk_store *st)
{
    return yk_timer_read(st->waits);
}
