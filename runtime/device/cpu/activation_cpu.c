/* runtime/device/cpu/activation_cpu.c - SwiGLU forward and backward.
 *
 * GELU and its gradient are epilogues of products (linear_forward_cpu.c). With s = sigmoid(g),
 * silu(g) = g s and its slope is s (1 + g (1 - s)). Under -88 silu is 0 to every precision here, and
 * g is held there lest a large g meet what the exponential was clamped to.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

#define LEAST_GATE (-88.0f)

/* n vectors of a row from column c on; the last one may be partial. */
VEC_INLINE void swiglu(const yk_swiglu_forward_args *a, int64_t row, int64_t c, int n, yk_dtype t)
{
    int64_t cols = a->cols, gate = row * 2 * cols + c, left = cols - c;
    vecf g[VEC_GROUP], s[VEC_GROUP], up[VEC_GROUP];
    VEC_EACH(n)
    {
        int64_t j = i * VEC_LANES;
        g[i] = vec_at_least(vec_load_n(a->gate_up, gate + j, left - j, t), LEAST_GATE);
        up[i] = vec_load_n(a->gate_up, gate + cols + j, left - j, t);
        s[i] = g[i] * -VEC_LOG2_E;
    }
    vec_exp2(s, n);
    vec_one_over(s, n);
    VEC_EACH(n)
    vec_store_n(a->y, row * cols + c + i * VEC_LANES, left - i * VEC_LANES, g[i] * s[i] * up[i], t);
}

VEC_INLINE void swiglu_whole(const yk_swiglu_forward_args *a, int64_t row, yk_dtype t)
{
    int64_t c = 0;
    for (; c + VEC_GROUP * VEC_LANES <= a->cols; c += VEC_GROUP * VEC_LANES)
        swiglu(a, row, c, VEC_GROUP, t);
    for (; c < a->cols; c += VEC_LANES) swiglu(a, row, c, 1, t);
}

static void swiglu_row(const yk_swiglu_forward_args *a, int64_t row)
{
    YK_CPU_BY_DTYPE(a->dtype, swiglu_whole(a, row, T));
}

yk_status yk_cpu_swiglu_forward(yk_stream *s, const yk_swiglu_forward_args *a)
{
#pragma omp parallel for num_threads(cpu_threads(s, a->rows)) schedule(static)
    for (int64_t r = 0; r < a->rows; r++) swiglu_row(a, r);
    return YK_OK;
}

VEC_INLINE void swiglu_slope(const yk_swiglu_backward_args *a, int64_t row, int64_t c, int n,
                             yk_dtype t)
{
    int64_t cols = a->cols, gate = row * 2 * cols + c, left = cols - c;
    vecf g[VEC_GROUP], up[VEC_GROUP], dy[VEC_GROUP], e[VEC_GROUP], s[VEC_GROUP];
    VEC_EACH(n)
    {
        int64_t j = i * VEC_LANES;
        g[i] = vec_at_least(vec_load_n(a->gate_up, gate + j, left - j, t), LEAST_GATE);
        up[i] = vec_load_n(a->gate_up, gate + cols + j, left - j, t);
        dy[i] = vec_load_n(a->dy, row * cols + c + j, left - j, t);
        e[i] = g[i] * -VEC_LOG2_E;
    }
    vec_exp2(e, n);
    VEC_EACH(n) s[i] = e[i];
    vec_one_over(s, n);
    VEC_EACH(n)
    {
        int64_t j = i * VEC_LANES;
        vecf silu = g[i] * s[i], slope = vec_fma(silu, s[i] * e[i], s[i]);
        vec_store_n(a->dgate_up, gate + j, left - j, dy[i] * up[i] * slope, t);
        vec_store_n(a->dgate_up, gate + cols + j, left - j, dy[i] * silu, t);
    }
}

VEC_INLINE void swiglu_slope_whole(const yk_swiglu_backward_args *a, int64_t row, yk_dtype t)
{
    int64_t c = 0;
    for (; c + VEC_GROUP * VEC_LANES <= a->cols; c += VEC_GROUP * VEC_LANES)
        swiglu_slope(a, row, c, VEC_GROUP, t);
    for (; c < a->cols; c += VEC_LANES) swiglu_slope(a, row, c, 1, t);
}

static void swiglu_slope_row(const yk_swiglu_backward_args *a, int64_t row)
{
    YK_CPU_BY_DTYPE(a->dtype, swiglu_slope_whole(a, row, T));
}

yk_status yk_cpu_swiglu_backward(yk_stream *s, const yk_swiglu_backward_args *a)
{
#pragma omp parallel for num_threads(cpu_threads(s, a->rows)) schedule(static)
    for (int64_t r = 0; r < a->rows; r++) swiglu_slope_row(a, r);
    return YK_OK;
}
