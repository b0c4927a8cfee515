/* runtime/device/cpu/rope_cpu.c - heads of q and k turned by the angle of their position, in place.
 *
 * (a, b) becomes (a cos - b sin, a sin + b cos), where a is an element of the first half of a head
 * and b its partner in the second.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

VEC_INLINE void turn_head(const yk_rope_args *a, int64_t at, const float *cos, const float *sin,
                          yk_dtype t)
{
    int64_t half = a->head_size / 2;
    for (int64_t i = 0; i < half; i += VEC_LANES) {
        int64_t n = half - i;
        vecf x = vec_load_n(a->qkv, at + i, n, t), y = vec_load_n(a->qkv, at + half + i, n, t);
        vecf c = vec_load_n(cos, i, n, YK_F32), d = vec_load_n(sin, i, n, YK_F32);
        if (a->inverse) d = -d;
        vec_store_n(a->qkv, at + i, n, vec_fma(x, c, -(y * d)), t);
        vec_store_n(a->qkv, at + half + i, n, vec_fma(x, d, y * c), t);
    }
}

static void turn_row(const yk_rope_args *a, int64_t row)
{
    int64_t half = a->head_size / 2, n_heads = a->heads + a->kv_heads;
    int64_t at = row * (a->heads + 2 * a->kv_heads) * a->head_size;
    const float *cos = a->cos + a->positions[row] * half, *sin = a->sin + a->positions[row] * half;
    for (int64_t h = 0; h < n_heads; h++)
        YK_CPU_BY_DTYPE(a->dtype, turn_head(a, at + h * a->head_size, cos, sin, T));
}

yk_status yk_cpu_rope(yk_stream *s, const yk_rope_args *a)
{
#pragma omp parallel for num_threads(cpu_threads(s, a->rows)) schedule(static)
    for (int64_t r = 0; r < a->rows; r++) turn_row(a, r);
    return YK_OK;
}
