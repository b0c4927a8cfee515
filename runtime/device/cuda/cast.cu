/* runtime/device/cuda/cast.cu - change of storage type.
 *
 * A thread moves EACH elements, or one where pointers are not aligned: in packs of 16 bytes of the wider
 * type, a block's width apart, so that neighbouring threads fill whole sectors of both arrays, and all
 * are on their way before the first is waited for. Bytes per element: the size of the source read, that
 * of the destination written.
 */
#include "runtime/device/cuda/kernels.cuh"

#define THREADS 256
#define EACH    16

template <typename D, typename S>
static __global__ void __launch_bounds__(THREADS) cast_wide(D *dst, const S *src, int64_t n)
{
    constexpr int V = 16 / (int)(sizeof(D) < sizeof(S) ? sizeof(S) : sizeof(D)), U = EACH / V;
    int64_t i = (int64_t)blockIdx.x * THREADS * EACH + threadIdx.x * V;
    if (i + (U - 1) * THREADS * V + V <= n) {
        pack<S, V> p[U];
#pragma unroll
        for (int u = 0; u < U; u++) p[u] = load<S, V>(src + i + u * THREADS * V);
#pragma unroll
        for (int u = 0; u < U; u++) {
            float e[V];
            unpack<S, V>(p[u], e);
            store_floats<D, V>(dst + i + u * THREADS * V, e);
        }
        return;
    }
    for (int u = 0; u < U; u++, i += THREADS * V)
        for (int k = 0; k < V && i + k < n; k++) dst[i + k] = from_float<D>(to_float(src[i + k]));
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
                cast_wide<<<(unsigned)div_up(a->n, THREADS * EACH), THREADS, 0, s>>>(dst, src,
                                                                                     a->n);
            else
                cast_one<<<(unsigned)div_up(a->n, THREADS), THREADS, 0, s>>>(dst, src, a->n);
            return cudaGetLastError();
        });
    });
}
