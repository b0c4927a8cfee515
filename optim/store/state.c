/* optim/store/state.c - reading and writing a store's state from outside, tensor by tensor.
 *
 * Who keeps which part is known here and nowhere else. Reading is a walk over the parts of a
 * tensor, each sent by a rank that keeps it; writing is local, since every rank brings the same
 * values. First weights are made where they are kept.
 */
#include <string.h>

#include "optim/store/parts.h"
#include "runtime/base/arith.h"
#include "runtime/base/threads.h"
#include "runtime/device/normal.h"

/* A kind of state: where it lies and what of a unit is kept. */
typedef struct place {
    void *buffer;
    yk_store_range range;
    yk_dtype dtype;
    bool host; /* in host memory */
} place;

static place param_place(const yk_store *st, const yk_store_unit *u)
{
    return (place){u->param, u->param_range, st->o.compute,
                   yk_store_offloads(st, YK_OFFLOAD_PARAMS)};
}

static yk_status find(const yk_store *st, yk_store_state state, int param, place *place_out)
{
    const yk_param *p = &st->o.params[param];
    const yk_store_unit *u = &st->units[p->unit];
    place found = {NULL, u->state_range, st->o.moments, yk_store_offloads(st, YK_OFFLOAD_MOMENTS)};
    switch (state) {
    case YK_STORE_WEIGHT:
        if (yk_store_has_master(st))
            found = (place){u->master, u->state_range, st->o.master,
                            yk_store_offloads(st, YK_OFFLOAD_MASTER)};
        else
            found = param_place(st, u);
        break;
    case YK_STORE_MOMENT1:
        found.buffer = u->m;
        break;
    case YK_STORE_MOMENT2:
        found.buffer = u->v;
        break;
    case YK_STORE_GRAD:
        found =
            (place){u->grad, u->grad_range, st->o.grads, yk_store_offloads(st, YK_OFFLOAD_GRADS)};
        /* After a sum over ranks only the shard is sure to hold it. */
        if (yk_store_is_shared(st) && st->o.zero > 0) {
            found.buffer = yk_store_at(u->grad, u->grad_range, u->shard.begin, st->o.grads);
            found.range = u->shard;
        }
        break;
    }
    if (!found.buffer) return yk_fail(YK_EINVAL, p->name, "the store does not keep this state");
    *place_out = found;
    return YK_OK;
}

static yk_store_range intersect(yk_store_range a, yk_store_range b)
{
    int64_t begin = yk_max(a.begin, b.begin);
    int64_t end = yk_min(a.begin + a.count, b.begin + b.count);
    return (yk_store_range){begin, yk_max(end - begin, 0)};
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Copy kept elements to the host as fp32. */
static yk_status read_kept(const place *from, yk_store_range range, float *values_out,
                           yk_stream *stream)
{
    const void *data = yk_store_at(from->buffer, from->range, range.begin, from->dtype);
    int64_t bytes = range.count * yk_dtype_bytes(from->dtype);
    if (from->host)
        memcpy(values_out, data, (size_t)bytes);
    else
        YK_TRY(yk_copy(stream, values_out, data, bytes, YK_COPY_DEVICE_TO_HOST));
    YK_TRY(yk_stream_synchronize(stream));
    if (from->dtype == YK_F32) return YK_OK;
    /* In place, last first: the 16-bit values fill the first half of what they become. */
    for (int64_t i = range.count - 1; i >= 0; i--) {
        uint16_t half;
        memcpy(&half, (const char *)values_out + 2 * i, 2);
        values_out[i] = yk_load_f32(&half, 0, from->dtype);
    }
    return YK_OK;
}

/* Each part comes from the first rank that keeps it; all ranks take part. */
static yk_status read_shards(yk_store *st, const place *from, yk_store_range want,
                             float *values_out, yk_stream *stream)
{
    int64_t count = from->range.count;
    for (int i = 0; i < st->n_shards; i++) {
        yk_store_range piece = intersect(want, (yk_store_range){i * count, count});
        if (piece.count == 0) continue;
        float *to = values_out + (piece.begin - want.begin);
        int root =
            st->g.replicate ? yk_world_rank_at(st->g.world, 0, i) : yk_comm_rank(st->g.all, i);
        if (yk_world_rank(st->g.world) == root) YK_TRY(read_kept(from, piece, to, stream));
        YK_TRY(yk_world_broadcast(st->g.world, to, piece.count * (int64_t)sizeof(float), root));
    }
    return YK_OK;
}

/* The elements of a parameter in its unit's layout. */
static yk_store_range elements(const yk_store *st, int param, int64_t begin, int64_t n)
{
    YK_CHECK(param >= 0 && param < st->o.n_params);
    YK_CHECK(begin >= 0 && n >= 0 && n <= yk_param_count(&st->o.params[param]) - begin);
    return (yk_store_range){st->offsets[param] + begin, n};
}

/* Work on other streams that this stream's next copy, or the host, must see. */
static yk_status wait_for_others(yk_store *st, int unit, yk_stream *stream)
{
    const yk_store_unit *u = &st->units[unit];
    if (u->readable) YK_TRY(yk_event_wait(u->readable, stream));
    if (u->reduced) YK_TRY(yk_event_wait(u->reduced, stream));
    return u->stored ? yk_event_synchronize(u->stored) : YK_OK;
}

yk_status yk_store_read(yk_store *st, yk_store_state state, int param, int64_t begin, int64_t n,
                        float *values_out, yk_stream *stream)
{
    yk_store_range want = elements(st, param, begin, n);
    int unit = st->o.params[param].unit;
    place from = {0};
    YK_TRY(find(st, state, param, &from));
    YK_TRY(wait_for_others(st, unit, stream));
    if (from.range.count == st->units[unit].count)
        return read_kept(&from, want, values_out, stream);
    return read_shards(st, &from, want, values_out, stream);
}

/* ---- writing ------------------------------------------------------------------------------ */

/* Values converted at a time: 128 KiB of stack, and few enough waits for a GPU. */
#define WRITE_CHUNK (1 << 16)

static yk_status write_converted(void *data, yk_dtype dtype, int64_t n, const float *values,
                                 yk_stream *stream)
{
    uint16_t half[WRITE_CHUNK];
    for (int64_t i = 0; i < n; i += WRITE_CHUNK) {
        int64_t count = yk_min(n - i, WRITE_CHUNK);
#pragma omp parallel for num_threads(yk_threads()) schedule(static)
        for (int64_t j = 0; j < count; j++) yk_store_f32(half, j, dtype, values[i + j]);
        YK_TRY(yk_copy(stream, (char *)data + 2 * i, half, count * 2, YK_COPY_HOST_TO_DEVICE));
        YK_TRY(yk_stream_synchronize(stream));
    }
    return YK_OK;
}

/* Write what of `want` lies in a kept range. */
static yk_status write_kept(const place *to, yk_store_range want, const float *values,
                            yk_stream *stream)
{
    yk_store_range piece = intersect(want, to->range);
    if (piece.count == 0) return YK_OK;
    const float *from = values + (piece.begin - want.begin);
    void *data = yk_store_at(to->buffer, to->range, piece.begin, to->dtype);
    if (to->host) {
#pragma omp parallel for num_threads(yk_threads()) schedule(static)
        for (int64_t i = 0; i < piece.count; i++) yk_store_f32(data, i, to->dtype, from[i]);
        return YK_OK;
    }
    if (to->dtype != YK_F32) return write_converted(data, to->dtype, piece.count, from, stream);
    YK_TRY(yk_copy(stream, data, from, piece.count * 4, YK_COPY_HOST_TO_DEVICE));
    return yk_stream_synchronize(stream);
}

/* Nothing may still be on its way from or to what is written next. */
static yk_status wait_for_host(const yk_store *st)
{
    if (st->o.offload == 0) return YK_OK;
    YK_TRY(yk_stream_synchronize(st->host.to_device));
    return yk_stream_synchronize(st->host.to_host);
}

yk_status yk_store_write(yk_store *st, yk_store_state state, int param, int64_t begin, int64_t n,
                         const float *values, yk_stream *stream)
{
    yk_store_range want = elements(st, param, begin, n);
    yk_store_unit *u = &st->units[st->o.params[param].unit];
    place to = {0};
    YK_TRY(find(st, state, param, &to));
    YK_TRY(wait_for_host(st));
    YK_TRY(write_kept(&to, want, values, stream));
    if (state != YK_STORE_WEIGHT) return YK_OK;
    u->param_slot = -1; /* what was gathered before is old */
    u->is_put = false;
    if (to.buffer == u->param) return YK_OK;
    to = param_place(st, u);
    return write_kept(&to, want, values, stream);
}

/* ---- drawing ------------------------------------------------------------------------------ */

/* Draw what of `want` lies in a kept range; the tensor begins at `tensor`. */
static yk_status draw_kept(const place *to, yk_store_range want, int64_t tensor,
                           const yk_normal *normal, yk_stream *stream)
{
    yk_store_range piece = intersect(want, to->range);
    if (piece.count == 0) return YK_OK;
    yk_draw_normal_args a = {.dst = yk_store_at(to->buffer, to->range, piece.begin, to->dtype),
                             .n = piece.count,
                             .first = piece.begin - tensor,
                             .normal = *normal,
                             .dtype = to->dtype};
    if (!to->host) return yk_draw_normal(stream, &a);
    YK_TRY(yk_stream_synchronize(stream)); /* which may have zeros on the way there */
    yk_normal_fill(&a, yk_threads());
    return YK_OK;
}

yk_status yk_store_draw(yk_store *st, int param, int64_t begin, int64_t n, const yk_normal *normal,
                        yk_stream *stream)
{
    yk_store_range want = elements(st, param, begin, n);
    yk_store_unit *u = &st->units[st->o.params[param].unit];
    place to = {0};
    YK_TRY(find(st, YK_STORE_WEIGHT, param, &to));
    YK_TRY(wait_for_host(st));
    YK_TRY(draw_kept(&to, want, st->offsets[param], normal, stream));
    u->param_slot = -1; /* what was gathered before is old */
    u->is_put = false;
    if (to.buffer == u->param) return YK_OK;
    to = param_place(st, u);
    return draw_kept(&to, want, st->offsets[param], normal, stream);
}
