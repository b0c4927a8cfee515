/* runtime/device/cpu/rope_cpu.c - heads of q and k turned by the angle of their position, in place.
 *
 * (a, b) becomes (a cos - b sin, a sin + b cos), where a is an element of the first half of a head
 * and b its partner in the second. The sum of all heads' rows, where it is wanted, is made on the
 * way, before rounding: over fixed chunks of rows, chunks in order.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

#define MAX_CHUNKS 64
#define CHUNK_ROWS 32 /* the least rows of a chunk */

static int64_t n_chunks(int64_t rows)
{
    return yk_max(1, yk_min(MAX_CHUNKS, rows / CHUNK_ROWS));
}

static int64_t width(const yk_rope_args *a)
{
    return (a->heads + 2 * a->kv_heads) * a->head_size;
}

/* The sums of each chunk: (n_chunks, width). */
int64_t yk_cpu_rope_bytes(const yk_rope_args *a)
{
    return a->qkv_sum ? 4 * n_chunks(a->rows) * width(a) : 0;
}

/* The first n lanes of v to sums[0 .. n-1]. */
VEC_INLINE void add_lanes(float *sums, int64_t n, vecf v)
{
    vec_store_n(sums, 0, n, v + vec_load_n(sums, 0, n, YK_F32), YK_F32);
}

VEC_INLINE void turn_head(const yk_rope_args *a, int64_t at, const float *cos, const float *sin,
                          float *sums, yk_dtype t)
{
    int64_t half = a->head_size / 2;
    for (int64_t i = 0; i < half; i += VEC_LANES) {
        int64_t n = half - i;
        vecf x = vec_load_n(a->qkv, at + i, n, t), y = vec_load_n(a->qkv, at + half + i, n, t);
        vecf c = vec_load_n(cos, i, n, YK_F32), d = vec_load_n(sin, i, n, YK_F32);
        if (a->inverse) d = -d;
        vecf first = vec_fma(x, c, -(y * d)), second = vec_fma(x, d, y * c);
        vec_store_n(a->qkv, at + i, n, first, t);
        vec_store_n(a->qkv, at + half + i, n, second, t);
        if (!sums) continue;
        add_lanes(sums + i, n, first);
        add_lanes(sums + half + i, n, second);
    }
}

/* n elements from `at` on, which stay as they are. */
VEC_INLINE void add_row(const yk_rope_args *a, int64_t at, int64_t n, float *sums, yk_dtype t)
{
    for (int64_t i = 0; i < n; i += VEC_LANES)
        add_lanes(sums + i, n - i, vec_load_n(a->qkv, at + i, n - i, t));
}

/* `sums` (width) grows by the row; NULL: not wanted. */
static void turn_row(const yk_rope_args *a, int64_t row, float *sums)
{
    int64_t half = a->head_size / 2, n_heads = a->heads + a->kv_heads, at = row * width(a);
    const float *cos = a->cos + a->positions[row] * half, *sin = a->sin + a->positions[row] * half;
    for (int64_t h = 0; h < n_heads; h++) {
        int64_t c = h * a->head_size;
        YK_CPU_BY_DTYPE(a->dtype, turn_head(a, at + c, cos, sin, sums ? sums + c : NULL, T));
    }
    int64_t v = n_heads * a->head_size;
    if (sums) YK_CPU_BY_DTYPE(a->dtype, add_row(a, at + v, width(a) - v, sums + v, T));
}

static void turn_chunk(const yk_rope_args *a, int64_t chunk, float *sums)
{
    int64_t n = n_chunks(a->rows), end = a->rows * (chunk + 1) / n;
    float *own = sums + chunk * width(a);
    memset(own, 0, (size_t)width(a) * sizeof *own);
    for (int64_t r = a->rows * chunk / n; r < end; r++) turn_row(a, r, own);
}

/* qkv_sum (+)= the chunks' sums, columns c .. c+15. */
VEC_INLINE void add_chunks(const yk_rope_args *a, const float *sums, int64_t c, yk_dtype t)
{
    int64_t step = width(a), n = step - c;
    vecf v = vec_load_n(sums, c, n, YK_F32);
    for (int64_t i = 1; i < n_chunks(a->rows); i++) v += vec_load_n(sums, i * step + c, n, YK_F32);
    if (a->accumulate) v += vec_load_n(a->qkv_sum, c, n, t);
    vec_store_n(a->qkv_sum, c, n, v, t);
}

static void turn_and_sum(yk_stream *s, const yk_rope_args *a, float *sums)
{
    int64_t n = n_chunks(a->rows);
#pragma omp parallel num_threads(cpu_threads(s, n))
    {
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < n; i++) turn_chunk(a, i, sums);
#pragma omp for schedule(static)
        for (int64_t c = 0; c < width(a); c += VEC_LANES)
            YK_CPU_BY_DTYPE(a->grad_dtype, add_chunks(a, sums, c, T));
    }
}

yk_status yk_cpu_rope(yk_stream *s, const yk_rope_args *a, void *ws)
{
    if (a->qkv_sum) {
        turn_and_sum(s, a, ws);
        return YK_OK;
    }
#pragma omp parallel for num_threads(cpu_threads(s, a->rows)) schedule(static)
    for (int64_t r = 0; r < a->rows; r++) turn_row(a, r, NULL);
    return YK_OK;
}
