/* runtime/device/cpu/normal_cpu.c - normal numbers; see normal.h for the formula.
 *
 * A block at a time, in loops that the compiler turns into vectors: first all bits, then all numbers.
 */
#include "runtime/device/normal.h"

#include "runtime/device/cpu/cpu.h"

#define BLOCK 512

static void make_block(uint64_t key, uint64_t first, float mean, float deviation, float *to)
{
    uint32_t high[BLOCK], low[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        uint64_t bits = yk_normal_bits(key, first + (uint64_t)i);
        high[i] = (uint32_t)(bits >> 32);
        low[i] = (uint32_t)bits;
    }
    for (int i = 0; i < BLOCK; i++)
        to[i] = yk_normal_place(yk_normal_of(high[i], low[i]), mean, deviation);
}

/* Nothing here is a NaN. */
static void store_block(void *to, const float *from, int64_t n, yk_dtype t)
{
    if (t == YK_F32)
        memcpy(to, from, (size_t)n * sizeof *from);
    else
        for (int64_t i = 0; i < n; i++) yk_store_f32(to, i, t, from[i]);
}

static void fill_chunk(const yk_draw_normal_args *a, int64_t chunk)
{
    int64_t begin = chunk * CPU_CHUNK, end = yk_min(begin + CPU_CHUNK, a->n);
    for (int64_t i = begin; i < end; i += BLOCK) {
        float block[BLOCK];
        make_block(a->normal.key, (uint64_t)(a->first + i), a->normal.mean, a->normal.deviation,
                   block);
        store_block(cpu_at(a->dst, i, a->dtype), block, yk_min(end - i, BLOCK), a->dtype);
    }
}

void yk_normal_fill(const yk_draw_normal_args *a, int n_threads)
{
    int64_t n_chunks = yk_div_up(a->n, CPU_CHUNK);
    int n = (int)yk_max(1, yk_min(n_threads, n_chunks));
#pragma omp parallel for num_threads(n) schedule(static)
    for (int64_t i = 0; i < n_chunks; i++) fill_chunk(a, i);
}

yk_status yk_cpu_draw_normal(yk_stream *s, const yk_draw_normal_args *a)
{
    yk_normal_fill(a, cpu_threads(s, yk_div_up(a->n, CPU_CHUNK)));
    return YK_OK;
}
