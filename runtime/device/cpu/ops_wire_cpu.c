/* runtime/device/cpu/ops_wire_cpu.c - the operations of ops_wire.h: the loops of wire.h as work of a
 * stream, on its thread alone.
 *
 * A sum is formed a block at a time. What is wider than the wire is written from its end, so that
 * it may lie where a narrower part lies; what is narrower from its front.
 */
#include <string.h>

#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"
#include "runtime/device/wire.h"

#define BLOCK 1024 /* elements of a sum formed at a time */

static int exponent_of(const yk_wire_scale *s)
{
    return s->greatest ? yk_wire_scale_exponent(*s->greatest, s->n_ranks) : 0;
}

static yk_status run_greatest(void *context)
{
    const yk_greatest_args *a = context;
    *a->greatest = yk_wire_greatest(a->x, a->n, a->dtype);
    return YK_OK;
}

yk_status yk_cpu_greatest(yk_stream *s, const yk_greatest_args *a)
{
    return yk_cpu_stream_run(s, run_greatest, a, sizeof *a);
}

static yk_status run_pack(void *context)
{
    const yk_pack_args *a = context;
    int64_t flushed =
        yk_wire_pack(a->packed, a->wire, a->x, a->dtype, a->n, exponent_of(&a->scale));
    if (a->n_flushed) *a->n_flushed += flushed;
    return YK_OK;
}

yk_status yk_cpu_pack(yk_stream *s, const yk_pack_args *a)
{
    return yk_cpu_stream_run(s, run_pack, a, sizeof *a);
}

/* ---- sums --------------------------------------------------------------------------------- */

VEC_INLINE void add_part(float *sum, const void *part, int64_t n, bool first, yk_dtype t)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vecf v = vec_load_n(part, i, n - i, t);
        vec_store_f32(sum + i, first ? v : vec_load_f32(sum + i) + v);
    }
}

/* Elements begin .. begin+n-1, n <= BLOCK. */
static void sum_block(const yk_sum_parts_args *a, int64_t begin, int64_t n, int exponent)
{
    float sum[BLOCK], wire[BLOCK];
    for (int p = 0; p < a->n_parts; p++) {
        const char *part = (const char *)a->parts + p * a->stride;
        const void *from = part + begin * yk_dtype_bytes(a->wire);
        if (a->own && p == a->own_part) {
            int64_t flushed =
                yk_wire_pack(wire, a->wire, cpu_at(a->own, begin, a->dtype), a->dtype, n, exponent);
            if (a->n_flushed) *a->n_flushed += flushed;
            from = wire;
        }
        YK_CPU_BY_DTYPE(a->wire, add_part(sum, from, n, p == 0, T));
    }
    yk_wire_pack(wire, a->wire, sum, YK_F32, n, 0);
    if (a->travels)
        memcpy(cpu_at(a->sum, begin, a->wire), wire, (size_t)(n * yk_dtype_bytes(a->wire)));
    else
        yk_wire_unpack(cpu_at(a->sum, begin, a->dtype), a->dtype, wire, a->wire, n, exponent,
                       a->accumulate);
}

static yk_status run_sum_parts(void *context)
{
    const yk_sum_parts_args *a = context;
    int exponent = exponent_of(&a->scale);
    int64_t n_blocks = yk_div_up(a->n, BLOCK);
    for (int64_t i = 0; i < n_blocks; i++) {
        int64_t begin = (a->travels ? i : n_blocks - 1 - i) * BLOCK;
        sum_block(a, begin, yk_min(BLOCK, a->n - begin), exponent);
    }
    return YK_OK;
}

yk_status yk_cpu_sum_parts(yk_stream *s, const yk_sum_parts_args *a)
{
    return yk_cpu_stream_run(s, run_sum_parts, a, sizeof *a);
}

static yk_status run_sum_values(void *context)
{
    const yk_sum_values_args *a = context;
    yk_step_values *v = a->values;
    v->loss_sum = v->sum_squares = 0;
    v->n_tokens = v->non_finite = 0;
    for (int64_t i = 0; i < a->n; i++) {
        v->loss_sum += a->all[i].loss_sum;
        v->sum_squares += a->all[i].sum_squares;
        v->n_tokens += a->all[i].n_tokens;
        v->non_finite |= a->all[i].non_finite;
    }
    return YK_OK;
}

yk_status yk_cpu_sum_values(yk_stream *s, const yk_sum_values_args *a)
{
    return yk_cpu_stream_run(s, run_sum_values, a, sizeof *a);
}
