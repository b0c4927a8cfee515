/* runtime/device/cuda/attention_cached.cu - attention of new positions over a cache, for
 * generation.
 *
 * First the new keys and values go into the caches. Then one block a new query of one head: each
 * warp takes every WARPS-th tile of 32 keys, one a lane, with a running maximum and sum, and the
 * warps' results are joined in order. Bytes: the caches are read once per query head and position;
 * for a single position that is once, and what the time is.
 */
#include "runtime/device/cuda/kernels.cuh"

#define WARPS    4
#define THREADS  (32 * WARPS)
#define MAX_COLS 8 /* of 32: head size 256 */

typedef struct cached_shape {
    int64_t seq_len, past, capacity;
    int heads, kv_heads, head_size;
    float scale;
} cached_shape;

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    append(T *k_cache, T *v_cache, const T *qkv, int64_t n_rows, cached_shape s)
{
    int64_t row = blockIdx.x, batch = row / s.seq_len, at = s.past + row % s.seq_len;
    int64_t width = (int64_t)s.kv_heads * s.head_size, q_width = (int64_t)s.heads * s.head_size;
    const T *k = qkv + row * (q_width + 2 * width) + q_width;
    int64_t to = (batch * s.capacity + at) * width;
    for (int64_t c = threadIdx.x; c < width; c += THREADS) {
        k_cache[to + c] = k[c];
        v_cache[to + c] = k[width + c];
    }
}

/* The dot product of q, fp32 in shared memory, with a row in memory. */
template <typename T, int V>
static __device__ inline float dot_row(const float *q, const T *row, int n)
{
    float sum = 0;
    for (int c = 0; c < n; c += V) {
        float e[V];
        load_floats<T, V>(row + c, e);
#pragma unroll
        for (int i = 0; i < V; i++) sum += q[c + i] * e[i];
    }
    return sum;
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    attend_cached(T *y, const T *k_cache, const T *v_cache, const T *qkv, cached_shape s)
{
    __shared__ float q[256], outs[WARPS][256], tops[WARPS], sums[WARPS];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int64_t row = blockIdx.x / s.heads, batch = row / s.seq_len;
    int head = (int)(blockIdx.x % s.heads), kv_head = head / (s.heads / s.kv_heads);
    int64_t width = (int64_t)s.kv_heads * s.head_size, n_keys = s.past + row % s.seq_len + 1;
    const T *mine =
        qkv + row * ((int64_t)s.heads * s.head_size + 2 * width) + (int64_t)head * s.head_size;
    const T *keys = k_cache + batch * s.capacity * width + (int64_t)kv_head * s.head_size;
    const T *values = v_cache + batch * s.capacity * width + (int64_t)kv_head * s.head_size;
    for (int c = threadIdx.x; c < s.head_size; c += THREADS) q[c] = to_float(mine[c]) * s.scale;
    __syncthreads();
    float out[MAX_COLS] = {}, top = -INFINITY, sum = 0;
    for (int64_t key0 = warp * 32; key0 < n_keys; key0 += THREADS) {
        bool there = key0 + lane < n_keys;
        float score =
            there ? dot_row<T, V>(q, keys + (key0 + lane) * width, s.head_size) : -INFINITY;
        float high = score;
#pragma unroll
        for (int d = 16; d > 0; d >>= 1) high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, d));
        high = fmaxf(high, top);
        float p = expf(score - high), shrink = expf(top - high);
        sum = sum * shrink + warp_sum(p);
        top = high;
#pragma unroll
        for (int c = 0; c < MAX_COLS; c++) out[c] *= shrink;
        int n = n_keys - key0 < 32 ? (int)(n_keys - key0) : 32;
        for (int k = 0; k < n; k++) {
            float w = __shfl_sync(0xffffffffu, p, k);
            const T *value = values + (key0 + k) * width;
#pragma unroll
            for (int c = 0; c < MAX_COLS; c++)
                if (c * 32 + lane < s.head_size) out[c] += w * to_float(value[c * 32 + lane]);
        }
    }
#pragma unroll
    for (int c = 0; c < MAX_COLS; c++) outs[warp][c * 32 + lane] = out[c];
    if (lane == 0) tops[warp] = top, sums[warp] = sum;
    __syncthreads();
    float highest = tops[0], total = 0;
    for (int w = 1; w < WARPS; w++) highest = fmaxf(highest, tops[w]);
    for (int w = 0; w < WARPS; w++) total += sums[w] * expf(tops[w] - highest);
    T *to = y + row * s.heads * s.head_size + (int64_t)head * s.head_size;
    for (int c = threadIdx.x; c < s.head_size; c += THREADS) {
        float e = 0;
        for (int w = 0; w < WARPS; w++) e += outs[w][c] * expf(tops[w] - highest);
        to[c] = from_float<T>(e / total);
    }
}

cudaError_t yk_cuda_attention_cached(const yk_attention_cached_args *a, cudaStream_t s)
{
    cached_shape shape;
    shape.seq_len = a->seq_len;
    shape.past = a->past;
    shape.capacity = a->capacity;
    shape.heads = (int)a->heads;
    shape.kv_heads = (int)a->kv_heads;
    shape.head_size = (int)a->head_size;
    shape.scale = a->scale;
    int64_t n_rows = a->batch * a->seq_len;
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        T *y = (T *)a->y, *k = (T *)a->k_cache, *v = (T *)a->v_cache;
        const T *qkv = (const T *)a->qkv;
        append<T><<<(unsigned)n_rows, THREADS, 0, s>>>(k, v, qkv, n_rows, shape);
        unsigned blocks = (unsigned)(n_rows * a->heads);
        if (a->head_size % V == 0 && is_aligned(k))
            attend_cached<T, V><<<blocks, THREADS, 0, s>>>(y, k, v, qkv, shape);
        else
            attend_cached<T, 1><<<blocks, THREADS, 0, s>>>(y, k, v, qkv, shape);
        return cudaGetLastError();
    });
}
