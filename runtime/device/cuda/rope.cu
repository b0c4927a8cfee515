/* runtime/device/cuda/rope.cu - rotary positions, in place on the q and k heads of packed rows, and
 * the sum of the rows.
 *
 * A thread turns V pairs, 16 bytes of the first half of a head with 16 of the second, in the same
 * columns of several rows; those of the next row and its position are on their way while it works at
 * one. Neighbouring threads cover the heads of a row, so cosines and sines come from the cache.
 * Where the sum of the rows is wanted, threads go through v's columns, too, a block goes through many
 * rows, and each thread keeps the sums of its columns in registers; a block leaves one partial sum,
 * (blocks,(H+2G)*D) fp32.
 *
 * Bytes per element of q and k, 16-bit: read 2, write 2; with the sum, v is read; about 6
 * instructions.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define THREADS 256
#define ROWS    4 /* of a thread, without sums */

/* Blocks that a multiprocessor has room for: without sums, and with them. */
#define BLOCKS     4
#define SUM_BLOCKS 3

/* (a, b) becomes (a cos - b sin, a sin + b cos). */
template <int V>
static __device__ inline void turn(float (&a)[V], float (&b)[V], const float *__restrict__ cos,
                                   const float *__restrict__ sin, float sign)
{
    float c[V], s[V];
    load_f32<V>(cos, c);
    load_f32<V>(sin, s);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float sk = s[k] * sign, turned = fmaf(a[k], c[k], -(b[k] * sk));
        b[k] = fmaf(a[k], sk, b[k] * c[k]);
        a[k] = turned;
    }
}

/* Items of a row: V columns of the first half of a head, and those of the second. */
struct items {
    int of_head, turned, all; /* turned: of q and k */
    int half;                 /* columns */
};

/* Add the sums of a block's groups of threads in order, into `part` (H+2G)*D. */
template <int V>
static __device__ inline void put_part(float *part, const float (&a)[V], const float (&b)[V],
                                       bool mine, int column, int half)
{
    __shared__ float shares[THREADS][2 * V];
    int at = threadIdx.y * blockDim.x + threadIdx.x;
    float first[V], second[V];
#pragma unroll
    for (int k = 0; k < V; k++) {
        shares[at][k] = first[k] = a[k];
        shares[at][V + k] = second[k] = b[k];
    }
    __syncthreads();
    if (threadIdx.y > 0 || !mine) return;
    for (at += blockDim.x; at < blockDim.x * blockDim.y; at += blockDim.x)
#pragma unroll
        for (int k = 0; k < V; k++) {
            first[k] += shares[at][k];
            second[k] += shares[at][V + k];
        }
    store_f32<V>(part + column, first);
    store_f32<V>(part + column + half, second);
}

template <typename T, int V, bool SUMS>
static __global__ void __launch_bounds__(THREADS, SUMS ? SUM_BLOCKS : BLOCKS)
    rotate(T *qkv, float *parts, const float *__restrict__ cos, const float *__restrict__ sin,
           const int32_t *__restrict__ positions, int rows, int width, items item, float sign)
{
    int index = blockIdx.y * blockDim.x + threadIdx.x, head = index / item.of_head;
    int i = (index - head * item.of_head) * V, column = head * 2 * item.half + i;
    bool mine = index < item.all, turns = index < item.turned;
    int stride = gridDim.x * blockDim.y, row = blockIdx.x * blockDim.y + threadIdx.y;
    float of_first[V] = {}, of_second[V] = {};
    pack<T, V> first = {}, second = {};
    int position = 0;
    auto fetch = [&](int r) {
        position = positions[r];
        first = load<T, V>(qkv + (int64_t)r * width + column);
        second = load<T, V>(qkv + (int64_t)r * width + column + item.half);
    };
    if (mine && row < rows) fetch(row);
    for (; mine && row < rows; row += stride) {
        T *at = qkv + (int64_t)row * width + column;
        int64_t angle = (int64_t)position * item.half + i;
        float a[V], b[V];
        unpack<T, V>(first, a);
        unpack<T, V>(second, b);
        if (row + stride < rows) fetch(row + stride);
        if (turns) {
            turn<V>(a, b, cos + angle, sin + angle, sign);
            store_floats<T, V>(at, a);
            store_floats<T, V>(at + item.half, b);
        }
#pragma unroll
        for (int k = 0; SUMS && k < V; k++) {
            of_first[k] += a[k];
            of_second[k] += b[k];
        }
    }
    if constexpr (SUMS)
        put_part<V>(parts + (int64_t)blockIdx.x * width, of_first, of_second, mine, column,
                    item.half);
}

/* Blocks for as many rows as there are, or with sums as many as there is room for. */
static cudaError_t row_blocks(const yk_rope_args *a, unsigned threads_y, unsigned columns_y,
                              unsigned *blocks_out)
{
    int device = 0, processors = 0;
    int64_t wanted = div_up(a->rows, (int64_t)threads_y * ROWS);
    *blocks_out = (unsigned)wanted;
    if (!a->qkv_sum) return cudaSuccess;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    int64_t most = at_most(div_up(SUM_BLOCKS * processors, columns_y), YK_CUDA_ROPE_BLOCKS);
    *blocks_out = (unsigned)at_most(wanted, most > 0 ? most : 1);
    return e;
}

template <typename T, int V>
static cudaError_t launch_rotate(const yk_rope_args *a, float *parts, cudaStream_t s)
{
    int heads = (int)(a->heads + (a->qkv_sum ? 2 : 1) * a->kv_heads);
    items item = {.half = (int)a->head_size / 2};
    item.of_head = item.half / V;
    item.turned = (int)(a->heads + a->kv_heads) * item.of_head;
    item.all = heads * item.of_head;
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_size;
    unsigned columns = (unsigned)div_up(item.all, THREADS), blocks;
    unsigned across = (unsigned)div_up(item.all, columns), down = THREADS / across;
    cudaError_t e = row_blocks(a, down, columns, &blocks);
    if (e != cudaSuccess) return e;
    auto *kernel = a->qkv_sum ? rotate<T, V, true> : rotate<T, V, false>;
    kernel<<<dim3(blocks, columns), dim3(across, down), 0, s>>>(
        (T *)a->qkv, parts, a->cos, a->sin, a->positions, (int)a->rows, (int)width, item,
        a->inverse ? -1.0f : 1.0f);
    e = cudaGetLastError();
    if (e != cudaSuccess || !a->qkv_sum) return e;
    return yk_cuda_sum_parts(a->qkv_sum, parts, blocks, width, width, a->accumulate, a->grad_dtype,
                             s);
}

cudaError_t yk_cuda_rope(const yk_rope_args *a, void *ws, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        bool wide = a->head_size % (2 * V) == 0 && is_aligned(a->qkv) && is_aligned(a->cos) &&
                    is_aligned(a->sin);
        return wide ? launch_rotate<T, V>(a, (float *)ws, s)
                    : launch_rotate<T, 1>(a, (float *)ws, s);
    });
}
