/* runtime/device/cpu/move_cpu.c - cast, copy and zero. */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

#define CHUNK_BYTES (256 * 1024)

VEC_INLINE void cast_range(const yk_cast_args *a, int64_t begin, int64_t end, yk_dtype to,
                           yk_dtype from)
{
    for (int64_t i = begin; i < end; i += VEC_LANES)
        vec_store_n(a->dst, i, end - i, vec_load_n(a->src, i, end - i, from), to);
}

VEC_INLINE void cast_from(const yk_cast_args *a, int64_t begin, int64_t end, yk_dtype from)
{
    YK_CPU_BY_DTYPE(a->dst_dtype, cast_range(a, begin, end, T, from));
}

static void cast_chunk(const yk_cast_args *a, int64_t chunk)
{
    int64_t begin = chunk * CPU_CHUNK, end = yk_min(begin + CPU_CHUNK, a->n);
    YK_CPU_BY_DTYPE(a->src_dtype, cast_from(a, begin, end, T));
}

yk_status yk_cpu_cast(yk_stream *s, const yk_cast_args *a)
{
    int64_t n_chunks = yk_div_up(a->n, CPU_CHUNK);
#pragma omp parallel for num_threads(cpu_threads(s, n_chunks)) schedule(static)
    for (int64_t i = 0; i < n_chunks; i++) cast_chunk(a, i);
    return YK_OK;
}

yk_status yk_cpu_copy(yk_stream *s, void *dst, const void *src, int64_t bytes, yk_copy_kind kind)
{
    (void)kind;
    int64_t n_chunks = yk_div_up(bytes, CHUNK_BYTES);
#pragma omp parallel for num_threads(cpu_threads(s, n_chunks)) schedule(static)
    for (int64_t i = 0; i < n_chunks; i++)
        memcpy((char *)dst + i * CHUNK_BYTES, (const char *)src + i * CHUNK_BYTES,
               (size_t)yk_min(CHUNK_BYTES, bytes - i * CHUNK_BYTES));
    return YK_OK;
}

yk_status yk_cpu_zero(yk_stream *s, void *dst, int64_t bytes)
{
    int64_t n_chunks = yk_div_up(bytes, CHUNK_BYTES);
#pragma omp parallel for num_threads(cpu_threads(s, n_chunks)) schedule(static)
    for (int64_t i = 0; i < n_chunks; i++)
        memset((char *)dst + i * CHUNK_BYTES, 0,
               (size_t)yk_min(CHUNK_BYTES, bytes - i * CHUNK_BYTES));
    return YK_OK;
}
