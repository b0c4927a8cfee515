/* cli/bench_wire.c - what a sum over ranks does to its bytes: a piece of 8 Mi gradients is packed,
 * added to what came from another rank, and unpacked. Gradients are of b->dtype and fp32.
 */
#include <stdio.h>

#include "cli/bench.h"
#include "runtime/device/ops_wire.h"

#define SETS YK_BENCH_MAX_SETS
#define N    ((int64_t)8 << 20)

static yk_status run_greatest(yk_stream *s, const void *a)
{
    return yk_greatest(s, a);
}

static yk_status run_pack(yk_stream *s, const void *a)
{
    return yk_pack(s, a);
}

static yk_status run_sum_parts(yk_stream *s, const void *a)
{
    return yk_sum_parts(s, a);
}

static yk_status bench_greatest(yk_bench *b, yk_dtype t)
{
    yk_greatest_args a[SETS];
    char name[32];
    int sets = yk_bench_sets(b, N * yk_dtype_bytes(t));
    for (int i = 0; i < sets; i++)
        a[i] = (yk_greatest_args){.greatest = yk_bench_space(b, YK_F32, 1),
                                  .x = yk_bench_random(b, t, N),
                                  .n = N,
                                  .dtype = t};
    snprintf(name, sizeof name, "greatest of %s", yk_dtype_name(t));
    return yk_bench_run(b, name, "n=8Mi", run_greatest, a, sizeof *a, sets, yk_greatest_cost(a));
}

static yk_status bench_pack(yk_bench *b, yk_dtype t, yk_dtype wire)
{
    yk_pack_args a[SETS];
    char name[32];
    int sets = yk_bench_sets(b, N * (yk_dtype_bytes(t) + yk_dtype_bytes(wire)));
    for (int i = 0; i < sets; i++)
        a[i] = (yk_pack_args){.packed = yk_bench_space(b, wire, N),
                              .x = yk_bench_random(b, t, N),
                              .n = N,
                              .dtype = t,
                              .wire = wire};
    snprintf(name, sizeof name, "pack %s to %s", yk_dtype_name(t), yk_dtype_name(wire));
    return yk_bench_run(b, name, "n=8Mi", run_pack, a, sizeof *a, sets, yk_pack_cost(a));
}

/* With one part: unpack. */
static yk_status bench_sum(yk_bench *b, yk_dtype t, yk_dtype wire, int n_parts)
{
    yk_sum_parts_args a[SETS];
    char name[32];
    int64_t arrived = n_parts > 1 ? n_parts - 1 : 1;
    int sets = yk_bench_sets(b, N * (2 * yk_dtype_bytes(t) + arrived * yk_dtype_bytes(wire)));
    for (int i = 0; i < sets; i++)
        a[i] = (yk_sum_parts_args){.sum = yk_bench_space(b, t, N),
                                   .parts = yk_bench_random(b, wire, arrived * N),
                                   .own = n_parts > 1 ? yk_bench_random(b, t, N) : NULL,
                                   .stride = N * yk_dtype_bytes(wire),
                                   .n_parts = n_parts,
                                   .own_part = n_parts - 1,
                                   .n = N,
                                   .dtype = t,
                                   .wire = wire};
    if (n_parts == 1)
        snprintf(name, sizeof name, "unpack %s to %s", yk_dtype_name(wire), yk_dtype_name(t));
    else
        snprintf(name, sizeof name, "sum of %d in %s to %s", n_parts, yk_dtype_name(wire),
                 yk_dtype_name(t));
    return yk_bench_run(b, name, "n=8Mi", run_sum_parts, a, sizeof *a, sets, yk_sum_parts_cost(a));
}

static yk_status bench_gradients(yk_bench *b, yk_dtype t, yk_dtype wire)
{
    if (t != wire) YK_TRY(bench_pack(b, t, wire));
    for (int n_parts = 2; n_parts <= 4; n_parts += 2) YK_TRY(bench_sum(b, t, wire, n_parts));
    return t != wire ? bench_sum(b, t, wire, 1) : YK_OK;
}

yk_status yk_bench_wire(yk_bench *b)
{
    YK_TRY(bench_greatest(b, b->dtype));
    if (b->dtype != YK_F32) YK_TRY(bench_gradients(b, b->dtype, b->dtype));
    return bench_gradients(b, YK_F32, YK_F16);
}
