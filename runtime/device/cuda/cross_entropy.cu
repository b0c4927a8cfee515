/* runtime/device/cuda/cross_entropy.cu - loss and, in place, the gradient of
 * logits; the sum of losses.
 *
 * A row is read once: each thread keeps a running maximum and sum of
 * exponentials (Milakov and Gimelshein 2018, algorithm 3) of its packs, which
 * lie in shared memory from then on. Then the row is overwritten with its
 * gradient.
 *
 * Where shared memory holds two rows (50,304 logits on sm_90), a multiprocessor
 * has one block for all of its rows, and the next row comes in by asynchronous
 * copies while this one is worked at and written, so that memory never waits for
 * the exponentials. Else a block has one row; what does not fit is read again,
 * from the L2 cache if it is still there. A row of 50,304 logits fits into the 99
 * KiB that every GPU from sm_89 on offers; one of 152,064 does to two thirds on
 * sm_90.
 *
 * Bytes per logit, 16-bit: 2 read, 2 written; two exponentials.
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

/* `of_warp` is (32); two calls in a row must use different ones. */
static __device__ inline softmax_sum block_join(softmax_sum x, softmax_sum *of_warp)
{
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
    __shared__ softmax_sum of_warp[32];
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
    softmax_sum all = block_join(mine, of_warp);
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

/* ---- a block for many rows
 * ---------------------------------------------------------------- */

static __device__ inline void copy_16(void *shared, const void *global)
{
    unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

/* This thread's packs of a row into its place; one group, also where there is
 * nothing to copy. */
template <typename T, int V>
static __device__ inline void fetch_row(uint4 *place, const T *row, int n_used, bool there)
{
    if (there)
        for (int p = threadIdx.x; p < n_used; p += blockDim.x) copy_16(place + p, row + p * V);
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Rows blockIdx.x, blockIdx.x + gridDim.x, ...; two places in shared memory, of
 * n_used packs each. A thread reads the packs that it fetched itself, so only the
 * sum needs the block to meet. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_rows(float *losses, T *logits, const int32_t *targets,
                       const yk_step_values *values, int64_t rows, int vocab, int stride,
                       float scale)
{
    extern __shared__ __align__(16) unsigned char cache_bytes[];
    __shared__ softmax_sum of_warp[2][32];
    int n_packs = stride / V, n_used = (vocab + V - 1) / V, turn = 0, side = 0;
    uint4 *places = reinterpret_cast<uint4 *>(cache_bytes);
    float g = scale * values->loss_scale;
    int64_t row = blockIdx.x;
    fetch_row<T, V>(places, logits + row * stride, n_used, row < rows);
    for (; row < rows; row += gridDim.x, turn ^= 1) {
        int64_t next = row + gridDim.x;
        const uint4 *place = places + turn * n_used;
        fetch_row<T, V>(places + (turn ^ 1) * n_used, logits + next * stride, n_used, next < rows);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        int target = targets[row];
        T *x = logits + row * stride;
        if (target < 0) { /* alike in all threads */
            float zero[V] = {};
            if (threadIdx.x == 0) losses[row] = 0;
            for (int p = threadIdx.x; p < n_packs; p += blockDim.x)
                store_floats<T, V>(x + p * V, zero);
            continue;
        }
        softmax_sum mine = {-INFINITY, 0.0f};
#pragma unroll 4
        for (int p = threadIdx.x; p < n_used; p += blockDim.x)
            take<T, V>(mine, pack<T, V>{place[p]}, p * V, vocab);
        softmax_sum all = block_join(mine, of_warp[side]);
        side ^= 1;
        if (threadIdx.x == target / V % blockDim.x) {
            float e[V], target_logit = 0;
            unpack<T, V>(pack<T, V>{place[target / V]}, e);
#pragma unroll
            for (int i = 0; i < V; i++)
                if (i == target % V) target_logit = e[i];
            losses[row] = logf(all.sum) + all.max - target_logit;
        }
        float per_sum = g / all.sum;
#pragma unroll 4
        for (int p = threadIdx.x; p < n_packs; p += blockDim.x) {
            pack<T, V> packed = {};
            if (p < n_used) packed.w = place[p];
            float e[V];
            gradient<T, V>(packed, e, p * V, vocab, target, all.max, g, per_sum);
            store_floats<T, V>(x + p * V, e);
        }
    }
}

/* Threads of a block such that each has as many packs, or nearly. */
static unsigned even_threads(int64_t n_packs)
{
    int64_t each = div_up(n_packs, THREADS);
    return (unsigned)at_most(div_up(div_up(n_packs, each), 32) * 32, THREADS);
}

static int multiprocessors()
{
    int device = 0, count = 1;
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}

/* Bytes of two rows in shared memory; 0 where they do not fit. */
static int64_t pair_bytes(const yk_cross_entropy_args *a, int v, int shared_bytes_max)
{
    int64_t bytes = 2 * div_up(a->vocab, v) * 16;
    bool serves = a->backward && a->dtype != YK_F32 && a->vocab >= 8192;
    return serves && bytes <= shared_bytes_max - LOST_SHARED ? bytes : 0;
}

template <typename T, int V>
static cudaError_t launch_pairs(const yk_cross_entropy_args *a, int64_t bytes, cudaStream_t s)
{
    unsigned blocks = (unsigned)at_most(a->rows, multiprocessors());
    cross_entropy_rows<T, V><<<blocks, even_threads(div_up(a->vocab, V)), bytes, s>>>(
        a->losses, (T *)a->logits, a->targets, a->values, a->rows, (int)a->vocab, (int)a->stride,
        a->scale);
    return cudaGetLastError();
}

/* ---- launching
 * ---------------------------------------------------------------------------- */

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
        int64_t pair = wide ? pair_bytes(a, V, shared_bytes_max) : 0;
        if constexpr (sizeof(T) == 2)
            if (pair) return launch_pairs<T, V>(a, pair, s);
        return wide ? launch_rows<T, V>(a, shared_bytes_max, s)
                    : launch_rows<T, 1>(a, shared_bytes_max, s);
    });
}

template <typename T> static cudaError_t prepare_rows(int shared_bytes_max)
{
    const cudaFuncAttribute limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    int bytes = shared_bytes_max - LOST_SHARED;
    cudaError_t e = cudaFuncSetAttribute(cross_entropy_row<T, full_pack<T>()>, limit, bytes);
    if constexpr (sizeof(T) == 2)
        if (e == cudaSuccess)
            e = cudaFuncSetAttribute(cross_entropy_rows<T, full_pack<T>()>, limit, bytes);
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
