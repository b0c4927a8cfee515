/* runtime/device/cuda/cross_entropy.cu - loss and, in place, the gradient of logits.
 *
 * A block holds a row from its first use to its last: each thread owns every blockDim-th pack of
 * it, in shared memory, and where that is too small the next KEPT in registers; what is longer
 * still is read again, from the L2 cache if it is there. The first pass takes the maximum and the
 * sum of exponentials (Milakov and Gimelshein 2018, algorithm 3), the second writes gradients, and
 * where a pack has been written, the thread starts to load its pack of the block's next row into
 * the same place. So the next row arrives while this one leaves, and nobody waits for another
 * thread but in the row's one sum.
 *
 * Bytes per logit, 16-bit: 2 read, 2 written; two exponentials and about ten instructions. A row of
 * 50,304 logits takes the 99 KiB of shared memory that every GPU from sm_89 on offers, and half of
 * what sm_90 does, where two blocks share a multiprocessor; one of 152,064 takes all of it and 5
 * packs a thread.
 */
#include "runtime/device/cuda/copy_async.cuh"
#include "runtime/device/cuda/kernels.cuh"

#define THREADS     1024
#define KEPT        5   /* packs of a thread in registers */
#define ANY_THREADS 512 /* of a block of the kernel for rows without alignment */
#define LOST_SHARED 512 /* bytes of shared memory that hold no row */
#define PARTS       4   /* of the packs in shared memory: a group of copies each */

#define LOG2E 1.4426950408889634f
#define LN2   0.6931471805599453f

/* ---- exponentials -------------------------------------------------------------------------- */

/* exp(x - m) is computed from x and the shift of m. For 16-bit logits both are in units of ln 2:
 * one multiply-add and the special-function unit, where a result too small for a normal number is
 * zero. The shift's rounding moves all of a row alike, and the loss undoes it. */
template <typename T> static __device__ inline float shift_of(float m)
{
    return sizeof(T) == 4 ? m : m * LOG2E;
}

template <typename T> static __device__ inline float unshifted(float shift)
{
    return sizeof(T) == 4 ? shift : shift * LN2;
}

static __device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <typename T> static __device__ inline float exp_from(float x, float shift)
{
    if constexpr (sizeof(T) == 4) return expf(x - shift);
    return exp2_fast(fmaf(x, LOG2E, -shift));
}

/* exp(from - to) of two shifts. */
template <typename T> static __device__ inline float moved(float from, float to)
{
    return sizeof(T) == 4 ? expf(from - to) : exp2_fast(from - to);
}

/* ---- sums ---------------------------------------------------------------------------------- */

/* Sum of exp(x - maximum). An empty one has a shift below any logit's that is not -inf, and finite,
 * so that -inf has an exponential of zero. NaN stays out of the shift and shows in the sum. */
struct softmax_sum {
    float shift, sum;
};
#define EMPTY_SUM                                                                                  \
    softmax_sum                                                                                    \
    {                                                                                              \
        -1e38f, 0.0f                                                                               \
    }

template <typename T> static __device__ inline softmax_sum warp_join(softmax_sum x)
{
    float shift = x.shift;
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) shift = fmaxf(shift, __shfl_xor_sync(0xffffffffu, shift, d));
    return {shift, warp_sum(x.sum * moved<T>(x.shift, shift))};
}

/* The block's, in every thread. `of_warp` is (32), another one in the next call. */
template <typename T>
static __device__ inline softmax_sum block_join(softmax_sum x, softmax_sum *of_warp)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n_warps = (blockDim.x + 31) >> 5;
    x = warp_join<T>(x);
    if (lane == 0) of_warp[warp] = x;
    __syncthreads();
    return warp_join<T>(lane < n_warps ? of_warp[lane] : EMPTY_SUM);
}

/* Add exponentials of numbers of which `top` is the greatest. */
template <typename T, int N>
static __device__ inline void add_exponentials(softmax_sum &s, const float (&e)[N], float top)
{
    float shift = fmaxf(s.shift, shift_of<T>(top)), more[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < N; i++) more[i & 1] += exp_from<T>(e[i], shift);
    s.sum = s.sum * moved<T>(s.shift, shift) + (more[0] + more[1]);
    s.shift = shift;
}

template <typename T> struct pair_of {
    typedef __nv_bfloat162 type;
};
template <> struct pair_of<f16> {
    typedef __half2 type;
};

/* The greatest of N packs, two 16-bit numbers at a time. */
template <typename T, int V, int N>
static __device__ inline float greatest(const pack<T, V> (&packed)[N])
{
    if constexpr (sizeof(T) == 2) {
        typedef typename pair_of<T>::type pair;
        pair e[N * V / 2];
        memcpy(e, packed, sizeof packed);
        pair top = e[0];
#pragma unroll
        for (int i = 1; i < N * V / 2; i++) top = __hmax2(top, e[i]);
        return fmaxf(__low2float(top), __high2float(top));
    } else {
        float e[N * V];
        memcpy(e, packed, sizeof packed);
        float top = e[0];
#pragma unroll
        for (int i = 1; i < N * V; i++) top = fmaxf(top, e[i]);
        return top;
    }
}

template <typename T, int V, int N>
static __device__ inline void take(softmax_sum &s, const pack<T, V> (&packed)[N])
{
    float e[N * V];
#pragma unroll
    for (int n = 0; n < N; n++) {
        float of_pack[V];
        unpack<T, V>(packed[n], of_pack);
#pragma unroll
        for (int i = 0; i < V; i++) e[n * V + i] = of_pack[i];
    }
    add_exponentials<T, N * V>(s, e, greatest<T, V, N>(packed));
}

/* ---- a row --------------------------------------------------------------------------------- */

/* A thread owns packs threadIdx.x, + blockDim.x, ...: the first `slots` in shared memory, then
 * those in registers, then the rest. Columns from `vocab` on do not count. */
struct row_shape {
    int vocab;
    int whole;   /* packs of which every column counts */
    int used;    /* packs of which one does */
    int packs;   /* of a row in memory */
    int slots;   /* packs of a thread in shared memory */
    int in_part; /* slots of one part */
    int whole_slots;
};

/* What makes a logit's gradient: `target` is handled apart. */
struct row_softmax {
    float shift, per_sum; /* per_sum: the gradient's scale over the sum */
};

/* Take the thread's pack p, which may lie over the vocabulary's end. */
template <typename T, int V>
static __device__ inline void take_any(softmax_sum &s, pack<T, V> packed, int p, const row_shape &r)
{
    if (p < r.whole) {
        take<T, V, 1>(s, {packed});
    } else if (p < r.used) {
        float e[V], top = -INFINITY;
        unpack<T, V>(packed, e);
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (p * V + i >= r.vocab) e[i] = -INFINITY;
            top = fmaxf(top, e[i]);
        }
        add_exponentials<T, V>(s, e, top);
    }
}

template <typename T, int V>
static __device__ inline void gradient(float (&e)[V], pack<T, V> packed, row_softmax m)
{
    unpack<T, V>(packed, e);
#pragma unroll
    for (int i = 0; i < V; i++) e[i] = exp_from<T>(e[i], m.shift) * m.per_sum;
}

/* Write the gradient of the thread's pack p, likewise. */
template <typename T, int V>
static __device__ inline void put_any(T *x, pack<T, V> packed, int p, const row_shape &r,
                                      row_softmax m)
{
    if (p >= r.packs) return;
    float e[V];
    gradient<T, V>(e, packed, m);
    if (p >= r.whole)
#pragma unroll
        for (int i = 0; i < V; i++)
            if (p * V + i >= r.vocab) e[i] = 0;
    store_floats<T, V>(x + (int64_t)p * V, e);
}

template <typename T, int V>
static __device__ inline pack<T, V> load_any(const T *x, int p, const row_shape &r)
{
    pack<T, V> packed = {};
    if (p < r.used) packed = load<T, V>(x + (int64_t)p * V);
    return packed;
}

/* Wait for a part of the packs in shared memory. */
static __device__ inline void wait_for_part(int part)
{
    if (part == 0)
        copy_wait<PARTS - 1>();
    else if (part == 1)
        copy_wait<PARTS - 2>();
    else if (part == 2)
        copy_wait<PARTS - 3>();
    else
        copy_wait<0>();
}

/* The thread's sum over the row. `slot` is the shared address of the thread's first pack. */
template <typename T, int V, int N_KEPT>
static __device__ inline softmax_sum sum_row(const row_shape &r, const T *x, uint32_t slot,
                                             const pack<T, V> (&kept)[N_KEPT + 1])
{
    softmax_sum s = EMPTY_SUM;
    const int step = blockDim.x;
#pragma unroll
    for (int j = 0; j < N_KEPT; j++)
        take_any<T, V>(s, kept[j], (r.slots + j) * step + threadIdx.x, r);
#pragma unroll 1
    for (int part = 0; part < PARTS; part++) {
        wait_for_part(part);
        int k = part * r.in_part, end = min(k + r.in_part, r.slots),
            whole = min(end, r.whole_slots);
        uint32_t at = slot + k * step * 16;
#pragma unroll 1
        for (; k + 2 <= whole; k += 2) {
            take<T, V, 2>(s, {{load_copied(at)}, {load_copied(at + step * 16)}});
            at += 2 * step * 16;
        }
#pragma unroll 1
        for (; k < end; k++) {
            int p = k * step + threadIdx.x;
            if (p < r.used) take_any<T, V>(s, {load_copied(at)}, p, r);
            at += step * 16;
        }
    }
    if (N_KEPT)
        for (int p = (r.slots + N_KEPT) * step + threadIdx.x; p < r.used; p += step)
            take_any<T, V>(s, load<T, V>(x + (int64_t)p * V), p, r);
    return s;
}

/* Write the gradients of N packs in shared memory, blockDim apart and all of them whole, and start
 * to load `next`'s. */
template <typename T, int V, int N>
static __device__ inline void put_whole(T *x, const T *next, int p, uint32_t at, row_softmax m)
{
    const int step = blockDim.x;
    pack<T, V> packed[N];
#pragma unroll
    for (int n = 0; n < N; n++) packed[n] = {load_copied(at + n * step * 16)};
#pragma unroll
    for (int n = 0; n < N; n++) {
        float e[V];
        gradient<T, V>(e, packed[n], m);
        store_floats<T, V>(x + (int64_t)(p + n * step) * V, e);
    }
    if (!next) return;
#pragma unroll
    for (int n = 0; n < N; n++) copy_async(at + n * step * 16, next + (int64_t)(p + n * step) * V);
}

/* Write the row's gradient, and start to load `next`'s packs, if that is there, into the places that
 * have become free. */
template <typename T, int V, int N_KEPT>
static __device__ inline void put_row(const row_shape &r, T *x, row_softmax m, const T *next,
                                      uint32_t slot, pack<T, V> (&kept)[N_KEPT + 1])
{
    const int step = blockDim.x;
    if (N_KEPT)
        for (int p = (r.slots + N_KEPT) * step + threadIdx.x; p < r.packs; p += step)
            put_any<T, V>(x, load_any<T, V>(x, p, r), p, r, m);
#pragma unroll
    for (int j = 0; j < N_KEPT; j++) {
        int p = (r.slots + j) * step + threadIdx.x;
        put_any<T, V>(x, kept[j], p, r, m);
        if (next) kept[j] = load_any<T, V>(next, p, r);
    }
#pragma unroll 1
    for (int part = 0; part < PARTS; part++) {
        int k = part * r.in_part, end = min(k + r.in_part, r.slots),
            whole = min(end, r.whole_slots);
        int p = k * step + threadIdx.x;
        uint32_t at = slot + k * step * 16;
#pragma unroll 1
        for (; k + 2 <= whole; k += 2) {
            put_whole<T, V, 2>(x, next, p, at, m);
            p += 2 * step;
            at += 2 * step * 16;
        }
#pragma unroll 1
        for (; k < end; k++) {
            pack<T, V> packed = {};
            if (p < r.used) packed = {load_copied(at)};
            put_any<T, V>(x, packed, p, r, m);
            if (next && p < r.used) copy_async(at, next + (int64_t)p * V);
            p += step;
            at += step * 16;
        }
        copy_commit();
    }
}

/* Start to load a row into places that are all free. */
template <typename T, int V, int N_KEPT>
static __device__ inline void fetch_row(const row_shape &r, const T *next, uint32_t slot,
                                        pack<T, V> (&kept)[N_KEPT + 1])
{
    const int step = blockDim.x;
#pragma unroll
    for (int j = 0; j < N_KEPT; j++)
        kept[j] = load_any<T, V>(next, (r.slots + j) * step + threadIdx.x, r);
#pragma unroll 1
    for (int part = 0; part < PARTS; part++) {
        int k = part * r.in_part, end = min(k + r.in_part, r.slots);
        for (; k < end; k++) {
            int p = k * step + threadIdx.x;
            if (p < r.used) copy_async(slot + k * step * 16, next + (int64_t)p * V);
        }
        copy_commit();
    }
}

template <typename T, int V> static __device__ inline void zero_row(T *x, int packs)
{
    float zero[V] = {};
    for (int p = threadIdx.x; p < packs; p += blockDim.x)
        store_floats<T, V>(x + (int64_t)p * V, zero);
}

/* A block takes rows blockIdx.x, + gridDim.x, ...; one that is masked is never loaded. */
template <typename T, int V, int N_KEPT>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_rows(float *losses, T *logits, const int32_t *targets,
                       const yk_step_values *values, int64_t rows, int stride, float scale,
                       bool backward, row_shape r)
{
    extern __shared__ __align__(16) unsigned char row_bytes[];
    __shared__ softmax_sum of_warp[2][32];
    uint32_t slot = shared_address(row_bytes) + threadIdx.x * 16;
    pack<T, V> kept[N_KEPT + 1] = {};
    float g = backward ? scale * values->loss_scale : 0.0f;
    int64_t row = blockIdx.x;
    int target = targets[row], turn = 0;
    if (target >= 0) fetch_row<T, V, N_KEPT>(r, logits + row * stride, slot, kept);
    while (row < rows) {
        int64_t ahead = row + gridDim.x;
        int next_target = ahead < rows ? targets[ahead] : -1;
        const T *next = next_target >= 0 ? logits + ahead * stride : nullptr;
        T *x = logits + row * stride;
        if (target >= 0) {
            bool owner = target / V % blockDim.x == threadIdx.x;
            float target_logit = owner ? to_float(x[target]) : 0.0f;
            softmax_sum all = block_join<T>(sum_row<T, V, N_KEPT>(r, x, slot, kept), of_warp[turn]);
            turn ^= 1;
            row_softmax m = {all.shift, g / all.sum};
            if (owner) losses[row] = logf(all.sum) + unshifted<T>(all.shift) - target_logit;
            if (backward) {
                put_row<T, V, N_KEPT>(r, x, m, next, slot, kept);
                if (owner) /* over its pack of a moment ago */
                    x[target] = from_float<T>(exp_from<T>(target_logit, m.shift) * m.per_sum - g);
            } else if (next) {
                fetch_row<T, V, N_KEPT>(r, next, slot, kept);
            }
        } else {
            if (threadIdx.x == 0) losses[row] = 0;
            if (backward) zero_row<T, V>(x, r.packs);
            if (next) fetch_row<T, V, N_KEPT>(r, next, slot, kept);
        }
        row = ahead;
        target = next_target;
    }
}

/* ---- a row without alignment --------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(ANY_THREADS)
    cross_entropy_any(float *losses, T *logits, const int32_t *targets,
                      const yk_step_values *values, int vocab, int stride, float scale,
                      bool backward)
{
    __shared__ softmax_sum of_warp[32];
    int64_t row = blockIdx.x;
    int target = targets[row];
    T *x = logits + row * stride;
    if (target < 0) {
        if (threadIdx.x == 0) losses[row] = 0;
        if (backward) zero_row<T, 1>(x, stride);
        return;
    }
    float target_logit = threadIdx.x == 0 ? to_float(x[target]) : 0.0f;
    softmax_sum mine = EMPTY_SUM;
#pragma unroll 4
    for (int c = threadIdx.x; c < vocab; c += blockDim.x) {
        float e[1] = {to_float(x[c])};
        add_exponentials<T, 1>(mine, e, e[0]);
    }
    softmax_sum all = block_join<T>(mine, of_warp);
    if (threadIdx.x == 0) losses[row] = logf(all.sum) + unshifted<T>(all.shift) - target_logit;
    if (!backward) return;
    float g = scale * values->loss_scale, per_sum = g / all.sum;
    for (int c = threadIdx.x; c < stride; c += blockDim.x) {
        float p = c < vocab ? exp_from<T>(to_float(x[c]), all.shift) * per_sum : 0.0f;
        x[c] = from_float<T>(c == target ? p - g : p);
    }
}

/* ---- launching ----------------------------------------------------------------------------- */

/* Rows of which two fit are for blocks of half the threads, so that two share a multiprocessor. */
static unsigned threads_for(const row_shape &r, int shared_bytes_max)
{
    int64_t bytes = (int64_t)r.used * 16 + LOST_SHARED + 1024; /* CUDA takes 1 KiB a block */
    int64_t most = 2 * bytes <= shared_bytes_max ? THREADS / 2 : THREADS;
    return (unsigned)at_most(div_up(r.packs, 32) * 32, most);
}

template <typename T, int V, int N_KEPT>
static cudaError_t launch_blocks(const yk_cross_entropy_args *a, const row_shape &r,
                                 unsigned threads, size_t bytes, cudaStream_t s)
{
    int device = 0, processors = 0, resident = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &resident, cross_entropy_rows<T, V, N_KEPT>, (int)threads, bytes);
    if (e != cudaSuccess) return e;
    int64_t most = (int64_t)processors * (resident > 0 ? resident : 1);
    int64_t turns = div_up(a->rows, most); /* as many for each block, or one less */
    cross_entropy_rows<T, V, N_KEPT><<<(unsigned)div_up(a->rows, turns), threads, bytes, s>>>(
        a->losses, (T *)a->logits, a->targets, a->values, a->rows, (int)a->stride, a->scale,
        a->backward, r);
    return cudaGetLastError();
}

template <typename T, int V>
static cudaError_t launch_rows(const yk_cross_entropy_args *a, int shared_bytes_max, cudaStream_t s)
{
    row_shape r = {.vocab = (int)a->vocab,
                   .whole = (int)(a->vocab / V),
                   .used = (int)div_up(a->vocab, V),
                   .packs = (int)(a->stride / V)};
    unsigned threads = threads_for(r, shared_bytes_max);
    int64_t room = (shared_bytes_max - LOST_SHARED) / 16; /* packs */
    bool fits = r.used <= room;
    r.slots = (int)(fits ? div_up(r.packs, threads) : room / threads);
    r.in_part = (int)div_up(r.slots, PARTS);
    r.whole_slots = (int)at_most(r.whole / (int)threads, r.slots);
    size_t bytes = 16 * (size_t)(fits ? r.used : r.slots * (int)threads);
    return fits ? launch_blocks<T, V, 0>(a, r, threads, bytes, s)
                : launch_blocks<T, V, KEPT>(a, r, threads, bytes, s);
}

cudaError_t yk_cuda_cross_entropy(const yk_cross_entropy_args *a, int shared_bytes_max,
                                  cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        if (a->stride % full_pack<T>() == 0 && is_aligned(a->logits))
            return launch_rows<T, full_pack<T>()>(a, shared_bytes_max, s);
        unsigned threads = (unsigned)at_most(div_up(a->stride, 32) * 32, ANY_THREADS);
        cross_entropy_any<T><<<(unsigned)a->rows, threads, 0, s>>>(
            a->losses, (T *)a->logits, a->targets, a->values, (int)a->vocab, (int)a->stride,
            a->scale, a->backward);
        return cudaGetLastError();
    });
}

template <typename T> static cudaError_t prepare_rows(int shared_bytes_max)
{
    const cudaFuncAttribute limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    constexpr int V = full_pack<T>();
    int bytes = shared_bytes_max - LOST_SHARED;
    cudaError_t e = cudaFuncSetAttribute(cross_entropy_rows<T, V, 0>, limit, bytes);
    return e != cudaSuccess ? e
                            : cudaFuncSetAttribute(cross_entropy_rows<T, V, KEPT>, limit, bytes);
}

cudaError_t yk_cuda_cross_entropy_prepare(int shared_bytes_max)
{
    cudaError_t e = prepare_rows<float>(shared_bytes_max);
    if (e == cudaSuccess) e = prepare_rows<bf16>(shared_bytes_max);
    return e != cudaSuccess ? e : prepare_rows<f16>(shared_bytes_max);
}
