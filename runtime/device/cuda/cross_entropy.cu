/* runtime/device/cuda/cross_entropy.cu - loss and, in place, the gradient of
 * logits; the sum of losses.
 *
 * One block a row. The row is read once: each thread keeps a running maximum
 * and sum of exponentials (Milakov and Gimelshein 2018, algorithm 3), and puts
 * its packs into shared memory as they come; what does not fit there is read
 * again, from the L2 cache if it is still there. Then the row is overwritten
 * with its gradient.
 *
 * Bytes per logit, 16-bit: 2 read, 2 written; two exponentials. A row of 50,304
 * logits fits into the 99 KiB that every GPU from sm_89 on offers; one of 152,064
 * does to two thirds on sm_90.
 */
#include "runtime/device/cuda/kernels.cuh"

#define THREADS     1024
#define LOSS_BLOCK  1024
#define LOST_SHARED 512 /* bytes of shared memory that are not the cache */

/* For logits of 16 bits the special-function unit's is exact enough, and one that
 * is too small for a normal number is zero. */
template <typename T> static __device__ inline float exp_for(float x)
{
    if constexpr (sizeof(T) == 4) return expf(x);
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}

/* Running maximum and sum of exp(x - maximum). An empty one is (-inf, 0). */
struct softmax_sum {
    float max, sum;
};

static __device__ inline softmax_sum join(softmax_sum a, softmax_sum b)
{
    softmax_sum r;
    r.max = fmaxf(a.max, b.max);
    if (r.max == -INFINITY) return a;
    r.sum = a.sum * expf(a.max - r.max) + b.sum * expf(b.max - r.max);
    return r;
}

static __device__ inline softmax_sum block_join(softmax_sum x)
{
    __shared__ softmax_sum of_warp[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n_warps = (blockDim.x + 31) >> 5;
    for (int turn = 0; turn < 2; turn++) {
#pragma unroll
        for (int d = 16; d > 0; d >>= 1) {
            softmax_sum other;
            other.max = __shfl_xor_sync(0xffffffffu, x.max, d);
            other.sum = __shfl_xor_sync(0xffffffffu, x.sum, d);
            x = (lane & d) ? join(other, x) : join(x, other); /* one order in both lanes */
        }
        if (turn) break;
        if (lane == 0) of_warp[warp] = x;
        __syncthreads();
        x = lane < n_warps ? of_warp[lane] : softmax_sum{-INFINITY, 0.0f};
    }
    return x;
}

/* Take one pack into the running sum. Columns from `vocab` on do not count. */
template <typename T, int V>
static __device__ inline void take(softmax_sum &sum, pack<T, V> packed, int col, int vocab)
{
    float e[V];
    unpack<T, V>(packed, e);
    if (col + V > vocab)
#pragma unroll
        for (int i = 0; i < V; i++)
            if (col + i >= vocab) e[i] = -INFINITY;
    float top = e[0];
#pragma unroll
    for (int i = 1; i < V; i++) top = fmaxf(top, e[i]);
    if (!(top <= sum.max)) { /* NaN too, to be seen in the loss */
        sum.sum *= exp_for<T>(sum.max - top);
        sum.max = top;
    }
    if (sum.max == -INFINITY) return;
    float more = 0;
#pragma unroll
    for (int i = 0; i < V; i++) more += exp_for<T>(e[i] - sum.max);
    sum.sum += more;
}

/* The gradient of one pack: g (softmax - onehot), per_sum being g / sum. */
template <typename T, int V>
static __device__ inline void gradient(pack<T, V> packed, float (&e)[V], int col, int vocab,
                                       int target, float max, float g, float per_sum)
{
    unpack<T, V>(packed, e);
#pragma unroll
    for (int i = 0; i < V; i++) e[i] = exp_for<T>(e[i] - max) * per_sum;
    int ahead = target - col;
    if ((unsigned)ahead < (unsigned)V)
#pragma unroll
        for (int i = 0; i < V; i++) e[i] -= i == ahead ? g : 0.0f;
    if (col + V > vocab)
#pragma unroll
        for (int i = 0; i < V; i++)
            if (col + i >= vocab) e[i] = 0;
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_row(float *losses, T *logits, const int32_t *targets,
                      const yk_step_values *values, int vocab, int stride, float scale,
                      bool backward, int cached)
{
    extern __shared__ __align__(16) unsigned char cache_bytes[];
    typedef typename pack<T, V>::word word;
    word *cache = reinterpret_cast<word *>(cache_bytes);
    int64_t row = blockIdx.x;
    int target = targets[row], n_packs = stride / V, n_used = (vocab + V - 1) / V;
    T *x = logits + row * stride;
    if (target < 0) {
        if (threadIdx.x == 0) losses[row] = 0;
        if (!backward) return;
        float zero[V] = {};
        for (int p = threadIdx.x; p < n_packs; p += blockDim.x) store_floats<T, V>(x + p * V, zero);
        return;
    }
    float target_logit = threadIdx.x == 0 ? to_float(x[target]) : 0.0f;
    softmax_sum mine = {-INFINITY, 0.0f};
#pragma unroll 4
    for (int p = threadIdx.x; p < n_used; p += blockDim.x) {
        pack<T, V> packed = load<T, V>(x + p * V);
        if (p < cached) cache[p] = packed.w;
        take<T, V>(mine, packed, p * V, vocab);
    }
    softmax_sum all = block_join(mine);
    if (threadIdx.x == 0) losses[row] = logf(all.sum) + all.max - target_logit;
    if (!backward) return;
    float g = scale * values->loss_scale, per_sum = g / all.sum;
#pragma unroll 4
    for (int p = threadIdx.x; p < n_packs; p += blockDim.x) {
        pack<T, V> packed = {};
        if (p < cached)
            packed.w = cache[p];
        else if (p < n_used)
            packed = load<T, V>(x + p * V);
        float e[V];
        gradient<T, V>(packed, e, p * V, vocab, target, all.max, g, per_sum);
        store_floats<T, V>(x + p * V, e);
    }
}

/* How many packs of a row to keep: all where they fit, else as many as do. */
static int cache_packs(const yk_cross_entropy_args *a, int v, int shared_bytes_max)
{
    if (!a->backward) return 0;
    int64_t pack_bytes = yk_dtype_bytes(a->dtype) * v;
    return (int)at_most(div_up(a->vocab, v), (shared_bytes_max - LOST_SHARED) / pack_bytes);
}

template <typename T, int V>
static cudaError_t launch_rows(const yk_cross_entropy_args *a, int shared_bytes_max, cudaStream_t s)
{
    int cached = cache_packs(a, V, shared_bytes_max);
    int64_t threads = at_most(div_up(div_up(a->stride, V), 32) * 32, THREADS);
    cross_entropy_row<T, V><<<(unsigned)a->rows, (unsigned)threads, cached * sizeof(T) * V, s>>>(
        a->losses, (T *)a->logits, a->targets, a->values, (int)a->vocab, (int)a->stride, a->scale,
        a->backward, cached);
    return cudaGetLastError();
}

cudaError_t yk_cuda_cross_entropy(const yk_cross_entropy_args *a, int shared_bytes_max,
                                  cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        bool wide = a->stride % V == 0 && is_aligned(a->logits);
        return wide ? launch_rows<T, V>(a, shared_bytes_max, s)
                    : launch_rows<T, 1>(a, shared_bytes_max, s);
    });
}

template <typename T> static cudaError_t prepare_rows(int shared_bytes_max)
{
    const cudaFuncAttribute limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    int bytes = shared_bytes_max - LOST_SHARED;
    cudaError_t e = cudaFuncSetAttribute(cross_entropy_row<T, full_pack<T>()>, limit, bytes);
    return e != cudaSuccess ? e : cudaFuncSetAttribute(cross_entropy_row<T, 1>, limit, bytes);
}

cudaError_t yk_cuda_cross_entropy_prepare(int shared_bytes_max)
{
    cudaError_t e = prepare_rows<float>(shared_bytes_max);
    if (e == cudaSuccess) e = prepare_rows<bf16>(shared_bytes_max);
    return e != cudaSuccess ? e : prepare_rows<f16>(shared_bytes_max);
}

/* ---- sum of losses
 * ------------------------------------------------------------------------ */

/* One block: thread i adds elements i, i + LOSS_BLOCK, ...; 65,536 losses are
 * half a megabyte. */
static __global__ void __launch_bounds__(LOSS_BLOCK)
    sum_losses(yk_step_values *values, const float *losses, const int32_t *targets, int64_t rows)
{
    __shared__ double sums[2][1][32];
    double loss[1] = {0}, count[1] = {0};
#pragma unroll 8
    for (int64_t r = threadIdx.x; r < rows; r += LOSS_BLOCK) {
        bool counts = targets[r] >= 0;
        loss[0] += counts ? (double)losses[r] : 0.0;
        count[0] += counts ? 1.0 : 0.0;
    }
    block_sum<double, 1>(loss, sums[0]);
    block_sum<double, 1>(count, sums[1]);
    if (threadIdx.x != 0) return;
    values->loss_sum += loss[0];
    values->n_tokens += (int64_t)count[0];
}

cudaError_t yk_cuda_loss_sum(const yk_loss_sum_args *a, cudaStream_t s)
{
    sum_losses<<<1, LOSS_BLOCK, 0, s>>>(a->values, a->losses, a->targets, a->rows);
    return cudaGetLastError();
}
