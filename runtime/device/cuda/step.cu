/* runtime/device/cuda/step.cu - the optimiser's step: begin, sum of squares,
 * decision, AdamW.
 *
 * What happens once a step is one thread's work on yk_step_values, so that the
 * host never waits to decide. Bytes per element: sum of squares reads its
 * element; AdamW reads grad, master, m and v and writes master, m, v and param:
 * 28 with 16-bit grad and param. Squares are added in double, which is as fast
 * as memory on sm_90 and half as fast on sm_89.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define THREADS 256

/* ---- begin
 * --------------------------------------------------------------------------------
 */

static __global__ void begin_step(yk_step_values *v, float lr)
{
    v->loss_sum = 0;
    v->sum_squares = 0;
    v->n_tokens = 0;
    v->non_finite = 0;
    v->lr = lr;
}

cudaError_t yk_cuda_step_begin(const yk_step_begin_args *a, cudaStream_t s)
{
    begin_step<<<1, 1, 0, s>>>(a->values, a->lr);
    return cudaGetLastError();
}

/* ---- sum of squares
 * ----------------------------------------------------------------------- */

/* parts (gridDim.x) double. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    square_part(double *parts, yk_step_values *values, const T *__restrict__ x, int64_t n)
{
    __shared__ double sums[1][32];
    double sum[1] = {0}, more = 0;
    bool odd = false;
    int64_t step = (int64_t)gridDim.x * THREADS * V;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
#pragma unroll 4
    for (; i + V <= n; i += step) {
        float e[V];
        load_floats<T, V>(x + i, e);
#pragma unroll
        for (int k = 0; k < V; k++) {
            double d = (double)e[k];
            odd |= !(fabsf(e[k]) <= 3.402823466e38f);
            if (k & 1)
                more += d * d;
            else
                sum[0] += d * d;
        }
    }
    for (; i < n; i++) {
        float e = to_float(x[i]);
        odd |= !(fabsf(e) <= 3.402823466e38f);
        sum[0] += (double)e * (double)e;
    }
    sum[0] += more;
    if (odd) values->non_finite = 1;
    block_sum<double, 1>(sum, sums);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum[0];
}

static __global__ void add_squares(yk_step_values *values, const double *parts, int n_parts)
{
    __shared__ double sums[1][32];
    double sum[1] = {0};
    for (int p = threadIdx.x; p < n_parts; p += THREADS) sum[0] += parts[p];
    block_sum<double, 1>(sum, sums);
    if (threadIdx.x == 0) values->sum_squares += sum[0];
}

cudaError_t yk_cuda_sum_squares(const yk_sum_squares_args *a, void *ws, cudaStream_t s)
{
    double *parts = (double *)ws;
    unsigned blocks = (unsigned)yk_cuda_sum_blocks(a->n);
    cudaError_t e = with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        const T *x = (const T *)a->x;
        if (is_aligned(x))
            square_part<T, full_pack<T>()><<<blocks, THREADS, 0, s>>>(parts, a->values, x, a->n);
        else
            square_part<T, 1><<<blocks, THREADS, 0, s>>>(parts, a->values, x, a->n);
        return cudaGetLastError();
    });
    if (e != cudaSuccess) return e;
    add_squares<<<1, THREADS, 0, s>>>(a->values, parts, (int)blocks);
    return cudaGetLastError();
}

/* ---- decision
 * -----------------------------------------------------------------------------
 */

static __global__ void finish_step(yk_step_values *v, yk_step_finish_args a)
{
    double per_scale = 1.0 / (double)v->loss_scale;
    double mean = v->n_tokens > 0 ? a.expected_tokens / (double)v->n_tokens : 1.0;
    double norm = sqrt(v->sum_squares) * mean * per_scale;
    double clip = a.clip > 0 && norm > (double)a.clip ? (double)a.clip / norm : 1.0;
    v->grad_norm = v->non_finite ? nanf("") : (float)norm;
    v->skip = v->non_finite != 0;
    if (v->skip) {
        v->grad_scale = 0;
        v->steps_skipped++;
        v->skips_in_a_row++;
        if (a.dynamic_scale) {
            v->loss_scale = fmaxf(v->loss_scale * 0.5f, a.scale_floor);
            v->good_steps = 0;
        }
        return;
    }
    v->skips_in_a_row = 0;
    v->adam_steps++;
    v->correction1 = (float)(1.0 - pow((double)a.beta1, (double)v->adam_steps));
    v->correction2 = (float)(1.0 - pow((double)a.beta2, (double)v->adam_steps));
    v->grad_scale = (float)(mean * per_scale * clip);
    if (a.dynamic_scale && ++v->good_steps >= a.growth_interval) {
        v->loss_scale = fminf(v->loss_scale * 2.0f, a.scale_ceiling);
        v->good_steps = 0;
    }
}

cudaError_t yk_cuda_step_finish(const yk_step_finish_args *a, cudaStream_t s)
{
    finish_step<<<1, 1, 0, s>>>(a->values, *a);
    return cudaGetLastError();
}

/* ---- AdamW
 * --------------------------------------------------------------------------------
 */

struct adamw_constants {
    float beta1, beta2, eps, weight_decay;
};

/* V elements at i. Four are 16 bytes of each of the three fp32 arrays. */
template <typename P, typename G, int V>
static __device__ inline void update(P *param, float *master, float *m, float *v, const G *grad,
                                     int64_t i, adamw_constants k, float grad_scale, float lr,
                                     float per_correction1, float per_correction2)
{
    float g[V], w[V], mean[V], square[V];
    load_floats<G, V>(grad + i, g);
    load_f32<V>(master + i, w);
    load_f32<V>(m + i, mean);
    load_f32<V>(v + i, square);
#pragma unroll
    for (int j = 0; j < V; j++) {
        float x = g[j] * grad_scale;
        mean[j] += (1.0f - k.beta1) * (x - mean[j]);
        square[j] += (1.0f - k.beta2) * (x * x - square[j]);
        float step = mean[j] * per_correction1 / (sqrtf(square[j] * per_correction2) + k.eps);
        w[j] -= lr * (step + k.weight_decay * w[j]);
    }
    store_f32<V>(master + i, w);
    store_f32<V>(m + i, mean);
    store_f32<V>(v + i, square);
    if (param) store_floats<P, V>(param + i, w);
}

template <typename P, typename G, int V>
static __global__ void __launch_bounds__(THREADS)
    adamw_all(P *param, float *master, float *m, float *v, const G *grad,
              const yk_step_values *values, int64_t n, adamw_constants k)
{
    if (values->skip) return;
    float lr = values->lr, grad_scale = values->grad_scale;
    float per1 = 1.0f / values->correction1, per2 = 1.0f / values->correction2;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i + V <= n)
        update<P, G, V>(param, master, m, v, grad, i, k, grad_scale, lr, per1, per2);
    else
        for (; i < n; i++)
            update<P, G, 1>(param, master, m, v, grad, i, k, grad_scale, lr, per1, per2);
}

template <typename P, typename G>
static cudaError_t launch_adamw(const yk_adamw_args *a, cudaStream_t s)
{
    adamw_constants k = {a->beta1, a->beta2, a->eps, a->weight_decay};
    P *param = (P *)a->param;
    const G *grad = (const G *)a->grad;
    if (is_aligned(param) && is_aligned(a->master) && is_aligned(a->m) && is_aligned(a->v) &&
        is_aligned(grad))
        adamw_all<P, G, 4><<<(unsigned)div_up(a->n, THREADS * 4), THREADS, 0, s>>>(
            param, a->master, a->m, a->v, grad, a->values, a->n, k);
    else
        adamw_all<P, G, 1><<<(unsigned)div_up(a->n, THREADS), THREADS, 0, s>>>(
            param, a->master, a->m, a->v, grad, a->values, a->n, k);
    return cudaGetLastError();
}

cudaError_t yk_cuda_adamw(const yk_adamw_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto param_zero) {
        return with_type(a->grad_dtype, [&](auto grad_zero) {
            return launch_adamw<decltype(param_zero), decltype(grad_zero)>(a, s);
        });
    });
}
