/* engine/guard.c - looking at gradients on the host, a piece at a time. */
#include "engine/guard.h"

#include <math.h>

#include "runtime/base/arith.h"

#define PIECE_BYTES 65536

static yk_status look_at_param(yk_engine *e, int unit, int param, const yk_grad_view *g)
{
    _Alignas(16) char piece[PIECE_BYTES];
    int64_t count = yk_param_count(&yk_model_params(e->model)[param]),
            bytes = yk_dtype_bytes(g->dtype);
    for (int64_t at = 0; at < count; at += PIECE_BYTES / bytes) {
        int64_t n = yk_min(count - at, PIECE_BYTES / bytes);
        YK_TRY(yk_copy(e->compute, piece, (const char *)g->data + at * bytes, n * bytes,
                       YK_COPY_DEVICE_TO_HOST));
        YK_TRY(yk_stream_synchronize(e->compute));
        for (int64_t i = 0; i < n; i++) {
            if (isfinite(yk_load_f32(piece, i, g->dtype))) continue;
            *e->bad = (yk_bad_gradient){unit, param, e->bad->rank};
            return YK_OK;
        }
    }
    return YK_OK;
}

yk_status yk_guard_look(yk_engine *e, int unit, const yk_grad_view *grads)
{
    for (int p = 0; p < yk_model_n_params(e->model) && e->bad->unit < 0; p++)
        if (yk_model_params(e->model)[p].unit == unit && grads[p].data)
            YK_TRY(look_at_param(e, unit, p, &grads[p]));
    return YK_OK;
}

yk_status yk_guard_agree(yk_world *world, yk_bad_gradient *bad)
{
    if (!world) return YK_OK;
    int64_t size = yk_world_size(world), rank = yk_world_rank(world), first;
    int64_t mine = bad->unit < 0 ? 0 : (bad->unit + 1) * size + size - 1 - rank;
    YK_TRY(yk_world_max(world, mine, &first));
    if (first == 0) return YK_OK;
    yk_bad_gradient found = *bad;
    found.rank = (int)(size - 1 - first % size);
    YK_TRY(yk_world_broadcast(world, &found, sizeof found, found.rank));
    *bad = found;
    return YK_OK;
}
