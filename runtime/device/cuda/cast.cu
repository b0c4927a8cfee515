/* runtime/device/cuda/cast.cu - change of storage type.
 *
 * A thread moves eight neighbouring elements, or one where pointers are not
 * aligned. Bytes per element: the size of the source read, that of the
 * destination written.
 */
#include "runtime/device/cuda/kernels.cuh"

#define THREADS 256
#define EACH    8

template <typename D, typename S>
static __global__ void __launch_bounds__(THREADS) cast_eight(D *dst, const S *src, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    if (i + EACH <= n) {
        constexpr int V = sizeof(D) < sizeof(S) ? 16 / (int)sizeof(S) : 16 / (int)sizeof(D);
#pragma unroll
        for (int k = 0; k < EACH; k += V) {
            float e[V];
            load_floats<S, V>(src + i + k, e);
            store_floats<D, V>(dst + i + k, e);
        }
    } else {
        for (; i < n; i++) dst[i] = from_float<D>(to_float(src[i]));
    }
}

template <typename D, typename S>
static __global__ void __launch_bounds__(THREADS) cast_one(D *dst, const S *src, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) dst[i] = from_float<D>(to_float(src[i]));
}

cudaError_t yk_cuda_cast(const yk_cast_args *a, cudaStream_t s)
{
    return with_type(a->dst_dtype, [&](auto dst_zero) {
        return with_type(a->src_dtype, [&](auto src_zero) {
            using D = decltype(dst_zero);
            using S = decltype(src_zero);
            D *dst = (D *)a->dst;
            const S *src = (const S *)a->src;
            if (is_aligned(dst) && is_aligned(src))
                cast_eight<<<(unsigned)div_up(a->n, THREADS * EACH), THREADS, 0, s>>>(dst, src,
                                                                                      a->n);
            else
                cast_one<<<(unsigned)div_up(a->n, THREADS), THREADS, 0, s>>>(dst, src, a->n);
            return cudaGetLastError();
        });
    });
}
