/* runtime/device/ops_step.c - the dispatcher: operations of the optimiser's step, first weights,
 * and moving.
 *
 * As in ops.c: refuse, deal with zero elements, take workspace, call the backend.
 */
#include "runtime/device/dispatch.h"

static yk_cost moved(double bytes)
{
    return (yk_cost){.kind = YK_COST_MEMORY, .bytes = bytes};
}

/* ---- the optimiser's step ----------------------------------------------------------------- */

yk_status yk_step_begin(yk_stream *stream, const yk_step_begin_args *a)
{
    REQUIRE(a->values);
    REQUIRE_OFFERED(stream, step_begin);
    ENQUEUE(stream, step_begin, moved(sizeof *a->values), a);
}

yk_status yk_sum_squares(yk_stream *stream, const yk_sum_squares_args *a)
{
    int64_t n = 0;
    REQUIRE(a->n_runs >= 0 && a->n_runs <= YK_STEP_RUNS);
    REQUIRE(is_float(a->dtype));
    for (int i = 0; i < a->n_runs; i++) {
        REQUIRE(a->runs[i].n >= 0);
        REQUIRE(a->runs[i].x || a->runs[i].n == 0);
        n += a->runs[i].n;
    }
    if (n == 0) return YK_OK;
    REQUIRE(a->values && a->piece > 0 && a->piece % 16 == 0);
    REQUIRE_OFFERED(stream, sum_squares);
    TAKE_WORKSPACE(stream, sum_squares, a);
    ENQUEUE(stream, sum_squares, yk_sum_squares_cost(a), a, ws);
}

static bool is_decay_rate(float beta)
{
    return beta >= 0 && beta < 1;
}

yk_status yk_step_finish(yk_stream *stream, const yk_step_finish_args *a)
{
    REQUIRE(a->values);
    REQUIRE(a->expected_tokens > 0 && a->clip >= 0);
    REQUIRE(is_decay_rate(a->beta1) && is_decay_rate(a->beta2));
    REQUIRE(!a->dynamic_scale || a->growth_interval > 0);
    REQUIRE(!a->dynamic_scale || (a->scale_floor > 0 && a->scale_ceiling >= a->scale_floor));
    REQUIRE_OFFERED(stream, step_finish);
    ENQUEUE(stream, step_finish, moved(2 * sizeof *a->values), a);
}

/* What master weights and moments may be kept in. */
static bool is_state(yk_dtype t)
{
    return t == YK_F32 || t == YK_BF16;
}

/* Do runs begin at 0 and follow one another up to n? */
static bool are_runs(const yk_adamw_run *runs, int n_runs, int64_t n)
{
    for (int i = 0; i < n_runs; i++) {
        const yk_adamw_run *r = &runs[i];
        if (r->begin % 16 != 0 || r->first < 0 || r->first % 16 != 0) return false;
        if (i == 0 ? r->begin != 0 : r->begin <= runs[i - 1].begin) return false;
        if (r->begin >= n) return false;
    }
    return true;
}

yk_status yk_adamw(yk_stream *stream, const yk_adamw_args *a)
{
    REQUIRE(a->n >= 0);
    REQUIRE(is_float(a->dtype) && is_float(a->grad_dtype));
    REQUIRE(is_state(a->master_dtype) && is_state(a->moments_dtype));
    REQUIRE(a->n_runs >= 0 && a->n_runs <= YK_STEP_RUNS);
    REQUIRE(is_decay_rate(a->beta1) && is_decay_rate(a->beta2) && a->eps >= 0);
    if (a->n == 0) return YK_OK;
    REQUIRE(are_runs(a->runs, a->n_runs, a->n));
    REQUIRE(a->master && a->m && a->v && a->grad && a->values);
    REQUIRE_OFFERED(stream, adamw);
    ENQUEUE(stream, adamw, yk_adamw_cost(a), a);
}

yk_status yk_draw_normal(yk_stream *stream, const yk_draw_normal_args *a)
{
    REQUIRE(a->n >= 0 && a->first >= 0);
    REQUIRE(is_float(a->dtype));
    if (a->n == 0) return YK_OK;
    REQUIRE(a->dst);
    REQUIRE_OFFERED(stream, draw_normal);
    ENQUEUE(stream, draw_normal, yk_draw_normal_cost(a), a);
}

/* ---- moving ------------------------------------------------------------------------------- */

yk_status yk_cast(yk_stream *stream, const yk_cast_args *a)
{
    REQUIRE(a->n >= 0);
    REQUIRE(is_float(a->dst_dtype) && is_float(a->src_dtype));
    if (a->n == 0) return YK_OK;
    REQUIRE(a->dst && a->src);
    REQUIRE_OFFERED(stream, cast);
    ENQUEUE(stream, cast, yk_cast_cost(a), a);
}

yk_status yk_copy(yk_stream *stream, void *dst, const void *src, int64_t bytes, yk_copy_kind kind)
{
    REQUIRE(bytes >= 0);
    REQUIRE(kind == YK_COPY_DEVICE || kind == YK_COPY_HOST_TO_DEVICE ||
            kind == YK_COPY_DEVICE_TO_HOST);
    if (bytes == 0) return YK_OK;
    REQUIRE(dst && src);
    REQUIRE_IN_TABLE(stream, copy);
    ENQUEUE(stream, copy, moved((kind == YK_COPY_DEVICE ? 2 : 1) * (double)bytes), dst, src, bytes,
            kind);
}

yk_status yk_zero(yk_stream *stream, void *dst, int64_t bytes)
{
    REQUIRE(bytes >= 0);
    if (bytes == 0) return YK_OK;
    REQUIRE(dst);
    REQUIRE_IN_TABLE(stream, zero);
    ENQUEUE(stream, zero, moved((double)bytes), dst, bytes);
}
