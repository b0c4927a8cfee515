/* runtime/device/cuda/rope.cu - rotary positions, in place on the q and k heads
 * of packed rows.
 *
 * A thread rotates V pairs: 16 bytes of the first half of a head with 16 of the
 * second. The lanes of a warp cover several heads of one row, so cosines and
 * sines come from the cache. Bytes per element of q and k, 16-bit: read 2,
 * write 2.
 */
#include "runtime/device/cuda/kernels.cuh"

#define THREADS 256

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    rotate(T *qkv, const float *__restrict__ cos, const float *__restrict__ sin,
           const int32_t *__restrict__ positions, int64_t rows, int row_items, int head_items,
           int half, int64_t row_stride, float sign)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    int64_t table = (int64_t)positions[row] * half;
    for (int item = threadIdx.x; item < row_items; item += blockDim.x) {
        int head = item / head_items, i = (item - head * head_items) * V;
        T *first = qkv + row * row_stride + (int64_t)head * 2 * half + i, *second = first + half;
        float x[V], y[V], c[V], s[V];
        load_floats<T, V>(first, x);
        load_floats<T, V>(second, y);
        load_f32<V>(cos + table + i, c);
        load_f32<V>(sin + table + i, s);
#pragma unroll
        for (int k = 0; k < V; k++) {
            float a = x[k], b = y[k], sk = s[k] * sign;
            x[k] = a * c[k] - b * sk;
            y[k] = b * c[k] + a * sk;
        }
        store_floats<T, V>(first, x);
        store_floats<T, V>(second, y);
    }
}

template <typename T, int V> static cudaError_t launch_rotate(const yk_rope_args *a, cudaStream_t s)
{
    int half = (int)a->head_size / 2, head_items = half / V;
    int row_items = (int)(a->heads + a->kv_heads) * head_items;
    unsigned across = (unsigned)at_most(div_up(row_items, 32) * 32, THREADS);
    dim3 threads(across, THREADS / across);
    rotate<T, V><<<(unsigned)div_up(a->rows, threads.y), threads, 0, s>>>(
        (T *)a->qkv, a->cos, a->sin, a->positions, a->rows, row_items, head_items, half,
        (a->heads + 2 * a->kv_heads) * a->head_size, a->inverse ? -1.0f : 1.0f);
    return cudaGetLastError();
}

cudaError_t yk_cuda_rope(const yk_rope_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        bool wide = a->head_size % (2 * V) == 0 && is_aligned(a->qkv) && is_aligned(a->cos) &&
                    is_aligned(a->sin);
        return wide ? launch_rotate<T, V>(a, s) : launch_rotate<T, 1>(a, s);
    });
}
