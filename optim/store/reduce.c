/* optim/store/reduce.c - gradients on their way from the model: grad, grad_ready.
 *
 * Reduced once a step, gradients of all micro-batches add up where the model writes them, and are
 * summed over ranks when the last micro-batch has passed a unit. Reduced at each micro-batch, the
 * model writes to a slot, and the sum over ranks is added to what this rank keeps. Either way the
 * sum starts on the reduce stream as soon as a unit is complete, while the backward pass goes on
 * below it. Gradients in host memory take the same ways through slots: those of the micro-batches
 * before come back to the slot, one unit ahead, so that the model adds to them as it does without
 * offload, and what a rank keeps goes home from there.
 */
#include "optim/store/parts.h"
#include "runtime/base/arith.h"

void yk_store_begin(yk_store *st, int64_t n_micro, yk_step_values *values)
{
    st->n_micro = n_micro;
    st->values = values;
    for (int u = 0; u < st->o.n_units; u++) {
        st->units[u].micro_left = n_micro;
        st->units[u].uses_left = st->units[u].n_uses;
    }
    for (int i = 0; i < st->o.n_params; i++) st->grads[i].accumulate = false;
}

/* Zero what lies between a unit's tensors: a reduction or another unit's layout has left something
 * there, and padding counts in sums. */
static yk_status zero_padding(yk_store *st, int unit, void *data, yk_stream *stream)
{
    const yk_store_unit *u = &st->units[unit];
    yk_store_range whole = {0, u->count};
    int64_t element = yk_dtype_bytes(st->o.grads);
    for (int k = 0; k < u->n_tensors; k++) {
        int i = st->order[u->first_tensor + k];
        const yk_param *p = &st->o.params[i];
        int64_t end = st->offsets[i] + yk_param_count(p);
        int64_t next = yk_round_up(end, YK_STORE_TENSOR_ALIGN);
        YK_TRY(yk_zero(stream, yk_store_at(data, whole, end, st->o.grads), (next - end) * element));
    }
    int64_t used = u->used_count;
    return yk_zero(stream, yk_store_at(data, whole, used, st->o.grads),
                   (whole.count - used) * element);
}

/* Must what earlier micro-batches left in host memory be there before the model adds to it? */
static bool comes_back(const yk_store *st, const yk_store_unit *u)
{
    return yk_store_offloads(st, YK_OFFLOAD_GRADS) && !yk_store_reduces_each(st) &&
           u->micro_left < st->n_micro;
}

/* Are gradients of this micro-batch summed, so that who waits for a slot waits for ranks? */
static bool waits_for_ranks(const yk_store *st, const yk_store_unit *u)
{
    return yk_store_reduces_each(st) || (yk_store_is_shared(st) && u->micro_left == 1);
}

/* Give a unit's gradient of one micro-batch a slot, for work that follows on `stream` or, where there is
 * something to add to, for that to come. */
static yk_status take_slot(yk_store *st, int unit, yk_stream *stream)
{
    yk_store_unit *u = &st->units[unit];
    bool back = comes_back(st, u), waits = !back && waits_for_ranks(st, u);
    if (waits) YK_TRY(yk_timer_begin(st->waits, stream));
    YK_TRY(yk_store_slot_take(&st->grad_slots, unit, u->count, back ? st->host.to_device : stream,
                              &u->grad_slot));
    if (waits) YK_TRY(yk_timer_end(st->waits, stream));
    st->grad_slots.items[u->grad_slot].held = true;
    u->grad_back = 0;
    return back ? yk_event_wait(u->stored, st->host.to_device) : YK_OK;
}

/* Let at least `share` of what the slot's content is added to be on its way. */
static yk_status bring_back(yk_store *st, yk_store_unit *u, double share)
{
    yk_store_slot *slot = &st->grad_slots.items[u->grad_slot];
    yk_store_range whole = {0, u->count};
    int64_t begin = u->grad_back, wanted = (int64_t)(share * (double)u->count);
    int64_t end = yk_min(yk_round_up(wanted, YK_STORE_TENSOR_ALIGN), u->count);
    if (end <= begin) return YK_OK;
    YK_TRY(yk_copy(st->host.to_device, yk_store_at(slot->data, whole, begin, st->o.grads),
                   yk_store_at(u->grad, u->grad_range, begin, st->o.grads),
                   (end - begin) * yk_dtype_bytes(st->o.grads), YK_COPY_HOST_TO_DEVICE));
    u->grad_back = end;
    return end == u->count ? yk_event_record(slot->filled, st->host.to_device) : YK_OK;
}

/* Wait until a slot is filled, which began when it was free. */
static yk_status await_filled(yk_store *st, const yk_store_unit *u, yk_stream *stream)
{
    yk_store_slot *slot = &st->grad_slots.items[u->grad_slot];
    if (waits_for_ranks(st, u)) {
        YK_TRY(yk_timer_begin(st->waits, stream));
        YK_TRY(yk_event_wait(slot->free, stream));
        YK_TRY(yk_timer_end(st->waits, stream));
    }
    return yk_event_wait(slot->filled, stream);
}

/* Let the model write to the slot, in which there is nothing or what it adds to. */
static yk_status open_slot(yk_store *st, int unit, yk_stream *stream)
{
    yk_store_unit *u = &st->units[unit];
    bool back = comes_back(st, u);
    if (u->grad_slot < 0) YK_TRY(take_slot(st, unit, stream));
    if (back) YK_TRY(bring_back(st, u, 1));
    yk_store_slot *slot = &st->grad_slots.items[u->grad_slot];
    yk_store_point_grads(st, unit, slot->data);
    for (int k = 0; k < u->n_tensors; k++)
        st->grads[st->order[u->first_tensor + k]].accumulate = back;
    if (back) return await_filled(st, u, stream);
    return zero_padding(st, unit, slot->data, stream);
}

/* Is a micro-batch's gradient of the unit still to be begun? */
static bool is_untouched(const yk_store_unit *u)
{
    return u->uses_left == u->n_uses;
}

/* Make ready where the gradients of a unit's tensors go, before the first of a micro-batch. */
static yk_status make_ready(yk_store *st, int unit, yk_stream *stream)
{
    const yk_store_unit *u = &st->units[unit];
    if (!is_untouched(u)) return YK_OK;
    if (yk_store_slots_grads(st)) return open_slot(st, unit, stream);
    if (!yk_store_is_shared(st)) return YK_OK;
    return u->micro_left == st->n_micro ? zero_padding(st, unit, u->grad, stream) : YK_OK;
}

yk_status yk_store_grad_ahead(yk_store *st, int unit, double share)
{
    for (int owner = 0; owner < st->o.n_units && share > 0; owner++) {
        yk_store_unit *u = &st->units[owner];
        if (!yk_store_uses(st, unit, owner) || !comes_back(st, u) || !is_untouched(u)) continue;
        if (u->grad_slot < 0) YK_TRY(take_slot(st, owner, st->host.to_device));
        YK_TRY(bring_back(st, u, share));
    }
    return YK_OK;
}

yk_status yk_store_grad(yk_store *st, int unit, yk_stream *stream, const yk_grad_view **views_out)
{
    for (int owner = 0; owner < st->o.n_units; owner++)
        if (yk_store_uses(st, unit, owner)) YK_TRY(make_ready(st, owner, stream));
    if (unit > 0) YK_TRY(yk_store_grad_ahead(st, unit - 1, 1));
    *views_out = st->grads;
    return YK_OK;
}

/* Sum a shard that its node has summed over the nodes that hold the same one. */
static yk_status across_nodes(yk_store *st, const yk_store_unit *u, void *shard)
{
    if (!st->g.replicate) return YK_OK;
    int64_t count = u->shard.count / yk_comm_size(st->g.replicate);
    return yk_comm_all_reduce(st->g.replicate, shard, count, st->o.grads, st->g.reduce);
}

/* After work that `done` marks: let what is kept of a gradient go from `from`, which holds what
 * `u->grad` holds, to host memory. */
static yk_status go_home(yk_store *st, yk_store_unit *u, void *from, yk_store_range kept,
                         yk_event *done, yk_store_slot *slot)
{
    yk_dtype dtype = st->o.grads;
    YK_TRY(yk_event_wait(done, st->host.to_host));
    YK_TRY(yk_copy(st->host.to_host, yk_store_at(u->grad, u->grad_range, kept.begin, dtype),
                   yk_store_at(from, u->grad_range, kept.begin, dtype),
                   kept.count * yk_dtype_bytes(dtype), YK_COPY_DEVICE_TO_HOST));
    YK_TRY(yk_event_record(slot->free, st->host.to_host));
    return yk_event_record(u->stored, st->host.to_host);
}

static void give_up_slot(yk_store *st, yk_store_unit *u)
{
    st->grad_slots.items[u->grad_slot].held = false;
    u->grad_slot = -1;
}

/* Sum the gradient of the whole step in `buffer`, which holds the unit, over the ranks. */
static yk_status reduce_step(yk_store *st, yk_store_unit *u, void *buffer)
{
    yk_dtype dtype = st->o.grads;
    void *shard = yk_store_at(buffer, u->grad_range, u->shard.begin, dtype);
    if (st->o.zero == 0)
        return yk_comm_all_reduce(st->g.all, buffer, u->count / yk_comm_size(st->g.all), dtype,
                                  st->g.reduce);
    YK_TRY(yk_comm_reduce_scatter(st->g.shard, shard, buffer, u->shard.count, dtype, false,
                                  st->g.reduce));
    return across_nodes(st, u, shard);
}

/* Sum one micro-batch's gradient over the ranks and add it to those before it, in `sums`, which
 * holds what `u->grad` does. */
static yk_status reduce_micro(yk_store *st, yk_store_unit *u, void *sums, bool first)
{
    yk_dtype dtype = st->o.grads;
    yk_store_range whole = {0, u->count};
    yk_store_slot *slot = &st->grad_slots.items[u->grad_slot];
    void *kept = yk_store_at(sums, u->grad_range, u->shard.begin, dtype);
    if (st->g.replicate) { /* in the slot's own shard, then added by a group of one */
        void *part = yk_store_at(slot->data, whole, u->shard.begin, dtype);
        YK_TRY(yk_comm_reduce_scatter(st->g.shard, part, slot->data, u->shard.count, dtype, false,
                                      st->g.reduce));
        YK_TRY(across_nodes(st, u, part));
        YK_TRY(yk_comm_reduce_scatter(st->g.alone, kept, part, u->shard.count, dtype, !first,
                                      st->g.reduce));
    } else {
        YK_TRY(yk_comm_reduce_scatter(st->g.shard, kept, slot->data, u->shard.count, dtype, !first,
                                      st->g.reduce));
    }
    return yk_event_record(slot->free, st->g.reduce);
}

/* A place on the device for the sums so far, which come from host memory. */
static yk_status bring_sums(yk_store *st, int unit, bool first, yk_store_slot **slot_out)
{
    yk_store_unit *u = &st->units[unit];
    yk_stream *arrive = first ? st->g.reduce : st->host.to_device;
    int n;
    YK_TRY(yk_store_slot_take(&st->sum_slots, unit, u->grad_range.count, arrive, &n));
    *slot_out = &st->sum_slots.items[n];
    if (first) return YK_OK;
    yk_dtype dtype = st->o.grads;
    YK_TRY(yk_event_wait(u->stored, arrive));
    YK_TRY(yk_copy(arrive, yk_store_at((*slot_out)->data, u->grad_range, u->shard.begin, dtype),
                   yk_store_at(u->grad, u->grad_range, u->shard.begin, dtype),
                   u->shard.count * yk_dtype_bytes(dtype), YK_COPY_HOST_TO_DEVICE));
    YK_TRY(yk_event_record((*slot_out)->filled, arrive));
    return yk_event_wait((*slot_out)->filled, st->g.reduce);
}

/* Stage 0 wants the whole sum on every rank, once it is complete. */
static yk_status sum_micro(yk_store *st, int unit, bool first, bool last)
{
    yk_store_unit *u = &st->units[unit];
    bool away = yk_store_offloads(st, YK_OFFLOAD_GRADS), all = st->o.zero == 0 && last;
    yk_store_slot *slot = NULL;
    if (away) YK_TRY(bring_sums(st, unit, first, &slot));
    void *sums = away ? slot->data : u->grad;
    YK_TRY(reduce_micro(st, u, sums, first));
    give_up_slot(st, u);
    if (all)
        YK_TRY(yk_comm_all_gather(st->g.shard, sums,
                                  yk_store_at(sums, u->grad_range, u->shard.begin, st->o.grads),
                                  u->shard.count, st->o.grads, st->g.reduce));
    YK_TRY(yk_event_record(u->reduced, st->g.reduce));
    return away ? go_home(st, u, sums, all ? u->grad_range : u->shard, u->reduced, slot) : YK_OK;
}

static yk_status sum_step(yk_store *st, yk_store_unit *u)
{
    bool away = yk_store_offloads(st, YK_OFFLOAD_GRADS);
    yk_store_slot *slot = away ? &st->grad_slots.items[u->grad_slot] : NULL;
    void *buffer = away ? slot->data : u->grad;
    YK_TRY(reduce_step(st, u, buffer));
    YK_TRY(yk_event_record(u->reduced, st->g.reduce));
    if (!away) return YK_OK;
    give_up_slot(st, u);
    return go_home(st, u, buffer, st->o.zero == 0 ? u->grad_range : u->shard, u->reduced, slot);
}

/* A gradient that more will be added to, unless it is the `last`, or that no other rank has a part
 * of. */
static yk_status keep(yk_store *st, int unit, bool last, yk_stream *stream)
{
    yk_store_unit *u = &st->units[unit];
    if (!yk_store_offloads(st, YK_OFFLOAD_GRADS)) return YK_OK;
    yk_store_slot *slot = &st->grad_slots.items[u->grad_slot];
    if (last) YK_TRY(yk_store_square_leaving(st, unit, slot->data, stream));
    YK_TRY(yk_event_record(st->passed, stream));
    give_up_slot(st, u);
    return go_home(st, u, slot->data, u->grad_range, st->passed, slot);
}

/* All of a micro-batch's gradient of `unit` has been enqueued on `stream`. */
static yk_status complete(yk_store *st, int unit, yk_stream *stream)
{
    yk_store_unit *u = &st->units[unit];
    bool first = u->micro_left == st->n_micro, last = --u->micro_left == 0;
    u->uses_left = u->n_uses;
    if (!yk_store_is_shared(st)) return keep(st, unit, last, stream);
    if (!last && !yk_store_reduces_each(st)) return keep(st, unit, false, stream);
    YK_TRY(yk_store_follow(st, st->g.reduce, stream));
    return yk_store_reduces_each(st) ? sum_micro(st, unit, first, last) : sum_step(st, u);
}

/* What is written to a gradient of `owner` from now on adds to what `unit` has written. */
static void let_add(yk_store *st, int unit, int owner)
{
    const yk_store_unit *u = &st->units[owner];
    for (int k = 0; k < u->n_tensors; k++) {
        int i = st->order[u->first_tensor + k];
        const yk_param *p = &st->o.params[i];
        if (p->unit == unit || p->shared_unit == unit) st->grads[i].accumulate = true;
    }
}

yk_status yk_store_grad_ready(yk_store *st, int unit, yk_stream *stream)
{
    for (int owner = 0; owner < st->o.n_units; owner++)
        if (yk_store_uses(st, unit, owner)) let_add(st, unit, owner);
    for (int owner = 0; owner < st->o.n_units; owner++)
        if (yk_store_uses(st, unit, owner) && --st->units[owner].uses_left == 0)
            YK_TRY(complete(st, owner, stream));
    return YK_OK;
}
