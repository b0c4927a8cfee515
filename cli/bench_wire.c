/* cli/bench_wire.c - what a sum over ranks does to its bytes: a piece of gradients is packed, added
 * to what came from another rank, and unpacked. Gradients are of b->dtype and fp32; on a GPU there
 * are as many as in a block of some billion parameters, so that a launch is little beside them.
 */
#include <stdio.h>

#include "cli/bench.h"
#include "runtime/device/ops_wire.h"

#define SETS YK_BENCH_MAX_SETS

static int64_t numbers(const yk_bench *b)
{
    return INT64_C(1) << (yk_device_get_kind(b->device) == YK_DEVICE_CPU ? 23 : 26);
}

static yk_status run(yk_bench *b, const char *name, yk_bench_fn fn, const void *args,
                     int64_t args_bytes, int sets, yk_cost cost)
{
    char size[48];
    snprintf(size, sizeof size, "n=%lldMi", (long long)(numbers(b) >> 20));
    return yk_bench_run(b, name, size, fn, args, args_bytes, sets, cost);
}

YK_BENCH_RUNNER(greatest)
YK_BENCH_RUNNER(pack)
YK_BENCH_RUNNER(sum_parts)

static yk_status bench_greatest(yk_bench *b, yk_dtype t)
{
    yk_greatest_args a[SETS];
    int64_t n = numbers(b);
    char name[32];
    int sets = yk_bench_sets(b, n * yk_dtype_bytes(t));
    for (int i = 0; i < sets; i++)
        a[i] = (yk_greatest_args){.greatest = yk_bench_space(b, YK_F32, 1),
                                  .x = yk_bench_random(b, t, n),
                                  .n = n,
                                  .dtype = t};
    snprintf(name, sizeof name, "greatest of %s", yk_dtype_name(t));
    return run(b, name, run_greatest, a, sizeof *a, sets, yk_greatest_cost(a));
}

static yk_status bench_pack(yk_bench *b, yk_dtype t, yk_dtype wire)
{
    yk_pack_args a[SETS];
    int64_t n = numbers(b);
    char name[32];
    int sets = yk_bench_sets(b, n * (yk_dtype_bytes(t) + yk_dtype_bytes(wire)));
    for (int i = 0; i < sets; i++)
        a[i] = (yk_pack_args){.packed = yk_bench_space(b, wire, n),
                              .x = yk_bench_random(b, t, n),
                              .n = n,
                              .dtype = t,
                              .wire = wire};
    snprintf(name, sizeof name, "pack %s to %s", yk_dtype_name(t), yk_dtype_name(wire));
    return run(b, name, run_pack, a, sizeof *a, sets, yk_pack_cost(a));
}

/* With one part: unpack. */
static yk_status bench_sum(yk_bench *b, yk_dtype t, yk_dtype wire, int n_parts)
{
    yk_sum_parts_args a[SETS];
    int64_t n = numbers(b);
    char name[32];
    int64_t arrived = n_parts > 1 ? n_parts - 1 : 1;
    int sets = yk_bench_sets(b, n * (2 * yk_dtype_bytes(t) + arrived * yk_dtype_bytes(wire)));
    for (int i = 0; i < sets; i++)
        a[i] = (yk_sum_parts_args){.sum = yk_bench_space(b, t, n),
                                   .parts = yk_bench_random(b, wire, arrived * n),
                                   .own = n_parts > 1 ? yk_bench_random(b, t, n) : NULL,
                                   .stride = n * yk_dtype_bytes(wire),
                                   .n_parts = n_parts,
                                   .own_part = n_parts - 1,
                                   .n = n,
                                   .dtype = t,
                                   .wire = wire};
    if (n_parts == 1)
        snprintf(name, sizeof name, "unpack %s to %s", yk_dtype_name(wire), yk_dtype_name(t));
    else
        snprintf(name, sizeof name, "sum of %d in %s to %s", n_parts, yk_dtype_name(wire),
                 yk_dtype_name(t));
    return run(b, name, run_sum_parts, a, sizeof *a, sets, yk_sum_parts_cost(a));
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
