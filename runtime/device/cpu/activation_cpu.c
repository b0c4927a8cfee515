/* runtime/device/cpu/activation_cpu.c - GELU forward, SwiGLU forward and backward.
 *
 * GELU's gradient is the epilogue of a product (linear_backward_input_cpu.c). With s = sigmoid(g),
 * silu(g) = g s and its slope is s (1 + g (1 - s)). Under -88 silu is 0 to every precision here, and
 * g is held there lest a large g meet what the exponential was clamped to.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

#define LEAST_GATE (-88.0f)

VEC_INLINE void gelu(const yk_gelu_forward_args *a, int64_t begin, int64_t end, yk_dtype t)
{
    for (int64_t i = begin; i < end; i += VEC_LANES)
        vec_store_n(a->y, i, end - i, vec_gelu(vec_load_n(a->z, i, end - i, t)), t);
}

static void gelu_chunk(const yk_gelu_forward_args *a, int64_t chunk)
{
    int64_t begin = chunk * CPU_CHUNK, end = yk_min(begin + CPU_CHUNK, a->rows * a->cols);
    YK_CPU_BY_DTYPE(a->dtype, gelu(a, begin, end, T));
}

yk_status yk_cpu_gelu_forward(yk_stream *s, const yk_gelu_forward_args *a)
{
    int64_t n_chunks = yk_div_up(a->rows * a->cols, CPU_CHUNK);
#pragma omp parallel for num_threads(cpu_threads(s, n_chunks)) schedule(static)
    for (int64_t i = 0; i < n_chunks; i++) gelu_chunk(a, i);
    return YK_OK;
}

VEC_INLINE void swiglu(const yk_swiglu_forward_args *a, int64_t row, yk_dtype t)
{
    int64_t cols = a->cols, gate = row * 2 * cols, up = gate + cols;
    for (int64_t c = 0; c < cols; c += VEC_LANES) {
        int64_t n = cols - c;
        vecf g = vec_at_least(vec_load_n(a->gate_up, gate + c, n, t), LEAST_GATE);
        vecf silu = g / (1.0f + vec_exp2(g * -VEC_LOG2_E));
        vec_store_n(a->y, row * cols + c, n, silu * vec_load_n(a->gate_up, up + c, n, t), t);
    }
}

static void swiglu_row(const yk_swiglu_forward_args *a, int64_t row)
{
    YK_CPU_BY_DTYPE(a->dtype, swiglu(a, row, T));
}

yk_status yk_cpu_swiglu_forward(yk_stream *s, const yk_swiglu_forward_args *a)
{
#pragma omp parallel for num_threads(cpu_threads(s, a->rows)) schedule(static)
    for (int64_t r = 0; r < a->rows; r++) swiglu_row(a, r);
    return YK_OK;
}

VEC_INLINE void swiglu_slope(const yk_swiglu_backward_args *a, int64_t row, yk_dtype t)
{
    int64_t cols = a->cols, gate = row * 2 * cols, up = gate + cols;
    for (int64_t c = 0; c < cols; c += VEC_LANES) {
        int64_t n = cols - c;
        vecf g = vec_at_least(vec_load_n(a->gate_up, gate + c, n, t), LEAST_GATE);
        vecf u = vec_load_n(a->gate_up, up + c, n, t), dy = vec_load_n(a->dy, row * cols + c, n, t);
        vecf e = vec_exp2(g * -VEC_LOG2_E), s = 1.0f / (1.0f + e);
        vecf slope = vec_fma(g * s, s * e, s);
        vec_store_n(a->dgate_up, gate + c, n, dy * u * slope, t);
        vec_store_n(a->dgate_up, up + c, n, dy * (g * s), t);
    }
}

static void swiglu_slope_row(const yk_swiglu_backward_args *a, int64_t row)
{
    YK_CPU_BY_DTYPE(a->dtype, swiglu_slope(a, row, T));
}

yk_status yk_cpu_swiglu_backward(yk_stream *s, const yk_swiglu_backward_args *a)
{
#pragma omp parallel for num_threads(cpu_threads(s, a->rows)) schedule(static)
    for (int64_t r = 0; r < a->rows; r++) swiglu_slope_row(a, r);
    return YK_OK;
}
