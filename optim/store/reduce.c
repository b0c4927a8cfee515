/* optim/store/reduce.c - gradients on their way from the model: grad, grad_ready, the norm.
 *
 * Reduced once a step, gradients of all micro-batches add up where the model writes them, and are
 * summed over ranks when the last micro-batch has passed a unit. Reduced at each micro-batch, the
 * model writes to a slot, and the sum over ranks is added to what this rank keeps. Either way the
 * sum starts on the reduce stream as soon as a unit is complete, while the backward pass goes on
 * below it.
 */
#include "optim/store/parts.h"
#include "runtime/base/arith.h"

void yk_store_begin(yk_store *st, int64_t n_micro)
{
    st->n_micro = n_micro;
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
    yk_store_range whole = {0, st->units[unit].count};
    int64_t element = yk_dtype_bytes(st->o.grads);
    for (int i = 0; i < st->o.n_params; i++) {
        const yk_param *p = &st->o.params[i];
        if (p->unit != unit) continue;
        int64_t end = st->offsets[i] + yk_param_count(p);
        int64_t next = yk_round_up(end, YK_STORE_TENSOR_ALIGN);
        YK_TRY(yk_zero(stream, yk_store_at(data, whole, end, st->o.grads), (next - end) * element));
    }
    int64_t used = st->units[unit].used_count;
    return yk_zero(stream, yk_store_at(data, whole, used, st->o.grads),
                   (whole.count - used) * element);
}

/* Give a unit's gradient of one micro-batch a slot to be written to. */
static yk_status take_slot(yk_store *st, int unit, yk_stream *stream)
{
    yk_store_unit *u = &st->units[unit];
    YK_TRY(yk_store_slot_take(&st->grad_slots, unit, u->count, stream, &u->grad_slot));
    yk_store_slot *slot = &st->grad_slots.items[u->grad_slot];
    slot->held = true;
    yk_store_point_grads(st, unit, slot->data);
    for (int i = 0; i < st->o.n_params; i++)
        if (st->o.params[i].unit == unit) st->grads[i].accumulate = false;
    return zero_padding(st, unit, slot->data, stream);
}

/* Make ready where the gradients of a unit's tensors go, before the first of a micro-batch. */
static yk_status make_ready(yk_store *st, int unit, yk_stream *stream)
{
    const yk_store_unit *u = &st->units[unit];
    if (!yk_store_is_shared(st) || u->uses_left < u->n_uses) return YK_OK;
    if (yk_store_reduces_each(st)) return take_slot(st, unit, stream);
    return u->micro_left == st->n_micro ? zero_padding(st, unit, u->grad, stream) : YK_OK;
}

yk_status yk_store_grad(yk_store *st, int unit, yk_stream *stream, const yk_grad_view **views_out)
{
    for (int owner = 0; owner < st->o.n_units; owner++)
        if (yk_store_uses(st, unit, owner)) YK_TRY(make_ready(st, owner, stream));
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

/* Sum the gradient that the model has written over the ranks; the whole step's. */
static yk_status reduce_step(yk_store *st, yk_store_unit *u)
{
    yk_dtype dtype = st->o.grads;
    void *shard = yk_store_at(u->grad, u->grad_range, u->shard.begin, dtype);
    if (st->o.zero == 0)
        return yk_comm_all_reduce(st->g.all, u->grad, u->count / yk_comm_size(st->g.all), dtype,
                                  st->g.reduce);
    YK_TRY(yk_comm_reduce_scatter(st->g.shard, shard, u->grad, u->shard.count, dtype, false,
                                  st->g.reduce));
    return across_nodes(st, u, shard);
}

/* Sum one micro-batch's gradient over the ranks and add it to those before it. */
static yk_status reduce_micro(yk_store *st, yk_store_unit *u, bool first, bool last)
{
    yk_dtype dtype = st->o.grads;
    yk_store_range whole = {0, u->count};
    yk_store_slot *slot = &st->grad_slots.items[u->grad_slot];
    void *kept = yk_store_at(u->grad, u->grad_range, u->shard.begin, dtype);
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
    YK_TRY(yk_event_record(slot->free, st->g.reduce));
    slot->held = false;
    u->grad_slot = -1;
    if (st->o.zero > 0 || !last) return YK_OK;
    return yk_comm_all_gather(st->g.shard, u->grad, kept, u->shard.count, dtype, st->g.reduce);
}

/* All of a micro-batch's gradient of `unit` has been enqueued on `stream`. */
static yk_status complete(yk_store *st, int unit, yk_stream *stream)
{
    yk_store_unit *u = &st->units[unit];
    bool first = u->micro_left == st->n_micro, last = --u->micro_left == 0;
    u->uses_left = u->n_uses;
    if (!yk_store_is_shared(st)) return YK_OK;
    if (!last && !yk_store_reduces_each(st)) return YK_OK;
    YK_TRY(yk_store_follow(st, st->g.reduce, stream));
    if (yk_store_reduces_each(st))
        YK_TRY(reduce_micro(st, u, first, last));
    else
        YK_TRY(reduce_step(st, u));
    return yk_event_record(u->reduced, st->g.reduce);
}

yk_status yk_store_grad_ready(yk_store *st, int unit, yk_stream *stream)
{
    for (int i = 0; i < st->o.n_params; i++) {
        const yk_param *p = &st->o.params[i];
        if (p->unit == unit || p->shared_unit == unit) st->grads[i].accumulate = true;
    }
    for (int owner = 0; owner < st->o.n_units; owner++)
        if (yk_store_uses(st, unit, owner) && --st->units[owner].uses_left == 0)
            YK_TRY(complete(st, owner, stream));
    return YK_OK;
}

yk_status yk_store_sum_squares(yk_store *st, yk_stream *stream, yk_step_values *values)
{
    for (int i = 0; i < st->o.n_units; i++) {
        const yk_store_unit *u = &st->units[i];
        if (u->reduced) YK_TRY(yk_store_wait(st, u->reduced, stream));
        YK_TRY(yk_sum_squares(
            stream, &(yk_sum_squares_args){
                        .values = values,
                        .x = yk_store_at(u->grad, u->grad_range, u->mine.begin, st->o.grads),
                        .n = u->mine.count,
                        .dtype = st->o.grads,
                    }));
    }
    if (!yk_store_is_shared(st)) return YK_OK;
    double begin = yk_stream_now(stream);
    YK_TRY(yk_comm_all_reduce_values(st->g.all, values, stream));
    st->waited_s += yk_stream_now(stream) - begin;
    return YK_OK;
}
