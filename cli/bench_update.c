/* cli/bench_update.c - the operations of an update, over as many parameters as a model has, and those
 * that begin and decide it. Gradients and what the model reads are of b->dtype, master weights and
 * moments fp32 or, in a row of its own, bf16.
 */
#include <stdio.h>

#include "cli/bench.h"
#include "runtime/base/arith.h"
#include "runtime/device/ops_wire.h"

#define RANKS 8 /* whose step values are summed */

YK_BENCH_RUNNER(sum_squares)
YK_BENCH_RUNNER(adamw)
YK_BENCH_RUNNER(draw_normal)
YK_BENCH_RUNNER(cast)
YK_BENCH_RUNNER(step_begin)
YK_BENCH_RUNNER(step_finish)
YK_BENCH_RUNNER(sum_values)

static int64_t parameters(const yk_bench *b)
{
    return yk_min(yk_model_shape_count(&b->shape), INT64_C(200000000));
}

static yk_status run(yk_bench *b, const char *name, yk_bench_fn fn, const void *args,
                     int64_t args_bytes, yk_cost cost)
{
    char size[48];
    snprintf(size, sizeof size, "n=%lld", (long long)parameters(b));
    return yk_bench_run(b, name, size, fn, args, args_bytes, 1, cost);
}

static yk_status bench_adamw(yk_bench *b)
{
    int64_t n = parameters(b);
    void *grad = yk_bench_random(b, b->dtype, n), *param = yk_bench_space(b, b->dtype, n);
    float *master = yk_bench_random(b, YK_F32, n), *m = yk_bench_random(b, YK_F32, n);
    float *v = yk_bench_space(b, YK_F32, n);
    int64_t kept = b->used;
    if (v) YK_TRY(yk_zero(b->stream, v, n * 4));
    yk_adamw_args a = {.param = param,
                       .master = master,
                       .m = m,
                       .v = v,
                       .grad = grad,
                       .values = b->values,
                       .n = n,
                       .beta1 = 0.9f,
                       .beta2 = 0.95f,
                       .eps = 1e-8f,
                       .weight_decay = 0.1f,
                       .dtype = b->dtype,
                       .grad_dtype = b->dtype};
    YK_TRY(run(b, "adamw", run_adamw, &a, sizeof a, yk_adamw_cost(&a)));
    if (b->dtype != YK_BF16) return YK_OK;
    b->used = kept; /* all in bf16, and what the model reads updated in place */
    a.param = NULL;
    a.master = param;
    a.m = yk_bench_random(b, YK_BF16, n);
    if (v) YK_TRY(yk_zero(b->stream, v, n * 2)); /* halves of fp32 numbers are NaNs, too */
    a.master_dtype = a.moments_dtype = YK_BF16;
    return run(b, "adamw bf16 states", run_adamw, &a, sizeof a, yk_adamw_cost(&a));
}

static yk_status bench_passes(yk_bench *b)
{
    int64_t n = parameters(b);
    const yk_squares_run squared = {yk_bench_random(b, b->dtype, n), n};
    yk_sum_squares_args q = {.values = b->values,
                             .runs = &squared,
                             .n_runs = 1,
                             .piece = INT64_C(1) << 23,
                             .dtype = b->dtype};
    YK_TRY(run(b, "sum_squares", run_sum_squares, &q, sizeof q, yk_sum_squares_cost(&q)));
    yk_draw_normal_args w = {.dst = yk_bench_space(b, b->dtype, n),
                             .n = n,
                             .normal = {.deviation = 1},
                             .dtype = b->dtype};
    int rows = b->n_rows;
    YK_TRY(run(b, "draw_normal", run_draw_normal, &w, sizeof w, yk_draw_normal_cost(&w)));
    if (b->n_rows > rows) b->rows[rows].no_limit = true; /* arithmetic on integers */
    yk_cast_args c = {.dst = yk_bench_space(b, b->dtype, n),
                      .src = yk_bench_random(b, YK_F32, n),
                      .n = n,
                      .dst_dtype = b->dtype,
                      .src_dtype = YK_F32};
    return run(b, "cast from fp32", run_cast, &c, sizeof c, yk_cast_cost(&c));
}

/* A row of an operation on a few numbers, which is all launch. */
static yk_status bench_small(yk_bench *b, const char *name, yk_bench_fn fn, const void *args,
                             int64_t args_bytes, int64_t bytes)
{
    int rows = b->n_rows;
    yk_cost cost = {.kind = YK_COST_MEMORY, .dtype = YK_F32, .bytes = (double)bytes};
    YK_TRY(yk_bench_run(b, name, "", fn, args, args_bytes, 1, cost));
    if (b->n_rows > rows) b->rows[rows].no_limit = true;
    return YK_OK;
}

/* (n) step values as those at hand, which other rows read. */
static yk_step_values *copies(yk_bench *b, int n)
{
    int64_t bytes = (int64_t)sizeof(yk_step_values);
    yk_step_values *to = yk_bench_space(b, YK_F32, n * bytes / 4);
    for (int i = 0; to && i < n; i++)
        if (yk_copy(b->stream, to + i, b->values, bytes, YK_COPY_DEVICE) != YK_OK) return NULL;
    return to;
}

static yk_status bench_values(yk_bench *b)
{
    int64_t bytes = (int64_t)sizeof(yk_step_values);
    yk_step_begin_args begin = {.values = copies(b, 1), .lr = 1e-4f};
    YK_TRY(bench_small(b, "step_begin", run_step_begin, &begin, sizeof begin, bytes));
    yk_sum_values_args sum = {.values = copies(b, 1), .all = copies(b, RANKS), .n = RANKS};
    YK_TRY(bench_small(b, "sum_values", run_sum_values, &sum, sizeof sum, (RANKS + 1) * bytes));
    yk_step_finish_args finish = {.values = copies(b, 1),
                                  .expected_tokens = 1,
                                  .clip = 1,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .dynamic_scale = true,
                                  .scale_floor = 1,
                                  .scale_ceiling = 65536,
                                  .growth_interval = 2000};
    return bench_small(b, "step_finish", run_step_finish, &finish, sizeof finish, 2 * bytes);
}

yk_status yk_bench_update(yk_bench *b)
{
    YK_TRY(bench_adamw(b));
    YK_TRY(bench_passes(b));
    return bench_values(b);
}
