/* runtime/device/cuda/step.cu - the optimiser's step: begin, sum of squares,
 * decision.
 *
 * What happens once a step is one thread's work on yk_step_values, so that the
 * host never waits to decide. Bytes per element: sum of squares reads its
 * element. Squares are added in double, which is as fast
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
