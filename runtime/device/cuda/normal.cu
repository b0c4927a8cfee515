/* runtime/device/cuda/normal.cu - normal numbers; see normal.h for the formula.
 *
 * Bytes per element: those of the result. Operations: about 60, of which two are products of 64 bits,
 * so that arithmetic and memory take about as long. A thread makes 8 neighbours, or one where the
 * result is not aligned.
 */
#include "runtime/device/normal.h"

#include "runtime/device/cuda/kernels.cuh"

#define THREADS 256
#define EACH    8

static __device__ inline float draw(const yk_normal &normal, int64_t index)
{
    uint64_t bits = yk_normal_bits(normal.key, (uint64_t)index);
    float z = yk_normal_of((uint32_t)(bits >> 32), (uint32_t)bits);
    return yk_normal_place(z, normal.mean, normal.deviation);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    draw_eight(T *dst, int64_t n, int64_t first, yk_normal normal)
{
    constexpr int V = 16 / (int)sizeof(T);
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    if (i + EACH <= n) {
#pragma unroll
        for (int k = 0; k < EACH; k += V) {
            float e[V];
#pragma unroll
            for (int j = 0; j < V; j++) e[j] = draw(normal, first + i + k + j);
            store_floats<T, V>(dst + i + k, e);
        }
    } else {
        for (; i < n; i++) dst[i] = from_float<T>(draw(normal, first + i));
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    draw_one(T *dst, int64_t n, int64_t first, yk_normal normal)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) dst[i] = from_float<T>(draw(normal, first + i));
}

cudaError_t yk_cuda_draw_normal(const yk_draw_normal_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        T *dst = (T *)a->dst;
        if (is_aligned(dst))
            draw_eight<<<(unsigned)div_up(a->n, THREADS * EACH), THREADS, 0, s>>>(
                dst, a->n, a->first, a->normal);
        else
            draw_one<<<(unsigned)div_up(a->n, THREADS), THREADS, 0, s>>>(dst, a->n, a->first,
                                                                         a->normal);
        return cudaGetLastError();
    });
}
