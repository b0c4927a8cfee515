/* runtime/device/cuda/norm_backward.cu - gradients of LayerNorm and RMSNorm.
 *
 * A group of warps goes through its rows; each of its threads owns one pack of columns in all of them,
 * and so keeps their shares of dweight and dbias in registers. A row needs two sums over its columns,
 * for which the group's warps meet once. A thread's packs of the next two rows are on their way into
 * its own shared memory while it works at one, so that memory is never waited for by all. Up to 15
 * groups make a block, one block a multiprocessor; at the end they add their shares in order into one
 * partial sum a block, (blocks,2,C), and sum_shares adds those. Where the sums of the rows of dx and add
 * are wanted, too, a thread keeps its shares of these in more registers: (blocks,4,C).
 *
 * Bytes per element, 16-bit: 4 read (6 with `add`), 2 written; about 25 instructions.
 *
 * Rows that do not divide into 16 bytes, or are longer than a block is wide, take the kernel at the
 * end: one element an access, and a row is read again for each use.
 */
#include "runtime/device/cuda/copy_async.cuh"
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define THREADS    896  /* of a block, at most: 72 registers each */
#define THREADS_1  1024 /* where a group has more than half of the former */
#define THREADS_4  768  /* with four sums: 80 registers each */
#define MAX_GROUPS 15   /* barriers of a block, less the one of all */
#define STAGES     2    /* rows on their way */
#define TENSORS    3    /* x, dy, add */
#define ANY_BLOCK  256

/* ---- groups -------------------------------------------------------------------------------- */

/* Where the group's threads stand, and its part of the block. */
struct group {
    int index, threads; /* of the group in the block; a multiple of 32 */
    int rank;           /* of the thread in the group */
};

static __device__ inline void meet(const group &g)
{
    asm volatile("bar.sync %0, %1;" ::"r"(g.index + 1), "r"(g.threads) : "memory");
}

/* The group's sums of N numbers, in each of its threads. `of_warp` is (N,32), another one in the next
 * call. With two numbers, half of a warp adds up the one and half the other. */
template <int N>
static __device__ inline void group_sum(const group &g, float (&x)[N], float *of_warp)
{
    constexpr int LANES = 32 / N;
    int lane = threadIdx.x & 31, which = lane / LANES, warps = g.threads >> 5;
    float v = x[0];
    if (N == 2) {
        v = which ? x[N - 1] : x[0];
        v += __shfl_xor_sync(0xffffffffu, which ? x[0] : x[N - 1], 16);
    }
#pragma unroll
    for (int d = LANES / 2; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    if (warps > 1) {
        int i = lane % LANES, width = warps <= 4 ? 4 : warps <= 8 ? 8 : LANES;
        if (i == 0) of_warp[which * 32 + (threadIdx.x >> 5)] = v;
        meet(g);
        const float *part = of_warp + which * 32 + g.index * warps;
        i &= width - 1;
        v = i < warps ? part[i] : 0.0f;
        if (LANES < 32 && i + LANES < warps) v += part[i + LANES];
#pragma unroll
        for (int d = LANES / 2; d > 0; d >>= 1)
            if (d < width) v += __shfl_xor_sync(0xffffffffu, v, d);
    }
#pragma unroll
    for (int n = 0; n < N; n++) x[n] = N == 1 ? v : __shfl_sync(0xffffffffu, v, n * LANES);
}

/* Add the groups' shares of one sum, in order, into `sums` (C) of this block. `shares` is
 * (groups,C) in shared memory. Groups may have met unequally often before; compute-sanitizer's
 * racecheck then takes one barrier of the block for none, but not two. */
template <int V>
static __device__ inline void put_shares(float *sums, float *shares, const float (&share)[V],
                                         const group &g, int n_groups, int cols)
{
    __syncthreads();
    if (g.rank * V < cols) store_f32<V>(shares + g.index * cols + g.rank * V, share);
    __syncthreads();
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float sum = shares[c];
        for (int i = 1; i < n_groups; i++) sum += shares[i * cols + c];
        sums[c] = sum;
    }
}

/* dx may be dy or add, so none of the three is __restrict__. A thread beyond the row's last pack does
 * as the first one, with a weight of zero, and stores nothing. */
template <typename T, int V, bool RMS, bool ALL_SUMS, int MOST>
static __global__ void __launch_bounds__(MOST)
    norm_groups_back(T *dx, float *parts, const T *dy, const T *add, const T *x, const T *weight,
                     const float *mean, const float *rstd, int rows, int cols, float per_col,
                     int n_groups)
{
    extern __shared__ __align__(16) unsigned char stages[];
    __shared__ float of_warp[2][2 * 32];
    group g = {.threads = (int)blockDim.x / n_groups};
    g.index = threadIdx.x / g.threads;
    g.rank = threadIdx.x - g.index * g.threads;
    /* Where registers are scarce, weights are read in each row, from the cache. */
    constexpr bool SCARCE = ALL_SUMS || (MOST == THREADS_1 && !RMS);
    bool mine = g.rank * V < cols;
    pack<T, V> kept = {};
    if (mine && !SCARCE) kept = load<T, V>(weight + g.rank * V);
    float dw[V] = {}, db[V] = {}, of_dx[V] = {}, of_add[V] = {};
    const int step = blockDim.x * 16, stride = gridDim.x * n_groups;
    uint32_t stage = shared_address(stages) + threadIdx.x * 16;
    int row = g.index * gridDim.x + blockIdx.x, turn = 0;
    const int first = mine ? g.rank * V : 0;
    auto at = [&](int r) { return (int64_t)r * cols + first; }; /* the thread's pack of row r */
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        uint32_t to = stage + i * TENSORS * step;
        if (row + i * stride < rows) {
            copy_async(to, x + at(row + i * stride));
            copy_async(to + step, dy + at(row + i * stride));
            if (add) copy_async(to + 2 * step, add + at(row + i * stride));
        }
        copy_commit();
    }
    float r = row < rows ? rstd[row] : 0.0f, mu = !RMS && row < rows ? mean[row] : 0.0f;
    for (; row < rows; row += stride) {
        uint32_t here = stage + turn * TENSORS * step;
        float n[V], gw[V], w[V], s[RMS ? 1 : 2] = {}, next_r = 0, next_mu = 0, out[V] = {};
        bool more = row + STAGES * stride < rows;
        copy_wait<STAGES - 1>();
        unpack<T, V>({load_copied(here)}, n);
        unpack<T, V>({load_copied(here + step)}, gw);
        if (more) {
            copy_async(here, x + at(row + STAGES * stride));
            copy_async(here + step, dy + at(row + STAGES * stride));
        }
        if (row + stride < rows) {
            next_r = rstd[row + stride];
            if (!RMS) next_mu = mean[row + stride];
        }
        pack<T, V> weights = kept;
        if (mine && SCARCE) weights = load<T, V>(weight + first);
        unpack<T, V>(weights, w);
#pragma unroll
        for (int i = 0; i < V; i++) {
            n[i] = (n[i] - mu) * r;
            dw[i] += gw[i] * n[i];
            if (!RMS) db[i] += gw[i];
            gw[i] *= w[i];
            s[0] += gw[i] * n[i];
            if (!RMS) s[1] += gw[i];
        }
        group_sum<RMS ? 1 : 2>(g, s, of_warp[turn]);
        float along_x = s[0] * per_col, along_one = RMS ? 0.0f : s[1] * per_col;
        if (add) {
            unpack<T, V>({load_copied(here + 2 * step)}, out);
            if (more) copy_async(here + 2 * step, add + at(row + STAGES * stride));
        }
        copy_commit();
#pragma unroll
        for (int i = 0; i < V; i++) {
            float d = RMS ? gw[i] : gw[i] - along_one;
            if (ALL_SUMS) of_add[i] += out[i];
            out[i] += r * (d - n[i] * along_x);
            if (ALL_SUMS) of_dx[i] += out[i];
        }
        if (mine) store_floats<T, V>(dx + at(row), out);
        r = next_r;
        mu = next_mu;
        turn ^= 1;
    }
    copy_wait<0>();
    float *shares = reinterpret_cast<float *>(stages),
          *sums = parts + (int64_t)blockIdx.x * (ALL_SUMS ? 4 : 2) * cols;
    put_shares<V>(sums, shares, dw, g, n_groups, cols);
    if (!RMS) put_shares<V>(sums + cols, shares, db, g, n_groups, cols);
    if (ALL_SUMS) put_shares<V>(sums + 2 * cols, shares, of_dx, g, n_groups, cols);
    if (ALL_SUMS) put_shares<V>(sums + 3 * cols, shares, of_add, g, n_groups, cols);
}

/* ---- any width ----------------------------------------------------------------------------- */

/* A block's share of dweight and dbias first, since dx may be dy; then dx of the same rows. */
template <typename T>
static __global__ void norm_any_back(T *dx, float *parts, const T *dy, const T *add, const T *x,
                                     const T *weight, const float *mean, const float *rstd,
                                     int64_t rows, int cols, bool rms)
{
    __shared__ float sums[2][2][32];
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float dw = 0, db = 0;
        for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
            float g = to_float(dy[r * cols + c]), mu = rms ? 0.0f : mean[r];
            dw += g * (to_float(x[r * cols + c]) - mu) * rstd[r];
            db += g;
        }
        parts[(int64_t)blockIdx.x * 2 * cols + c] = dw;
        if (!rms) parts[((int64_t)blockIdx.x * 2 + 1) * cols + c] = db;
    }
    __syncthreads();
    int turn = 0;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        float s[2] = {0, 0}, mu = rms ? 0.0f : mean[r], rs = rstd[r];
        for (int c = threadIdx.x; c < cols; c += blockDim.x) {
            float gw = to_float(dy[r * cols + c]) * to_float(weight[c]);
            s[0] += gw;
            s[1] += gw * (to_float(x[r * cols + c]) - mu) * rs;
        }
        block_sum<float, 2>(s, sums[turn++ & 1]);
        float along_one = rms ? 0.0f : s[0] / (float)cols, along_x = s[1] / (float)cols;
        for (int c = threadIdx.x; c < cols; c += blockDim.x) {
            int64_t at = r * cols + c;
            float n = (to_float(x[at]) - mu) * rs, more = add ? to_float(add[at]) : 0.0f;
            float gw = to_float(dy[at]) * to_float(weight[c]);
            dx[at] = from_float<T>(more + rs * (gw - along_one - n * along_x));
        }
    }
}

/* ---- the sum of partial sums --------------------------------------------------------------- */

#define COLUMNS 32 /* of a block of sum_shares */
#define SHARES  16 /* each of which takes every 16th part */

/* Where sums go, in the order in which parts have them; NULL: nowhere. */
struct sums_to {
    void *at[4];
};

/* Each of them (+)= the sum of parts (n_parts,n_sums,C), in order of shares. */
template <typename T>
static __global__ void __launch_bounds__(COLUMNS *SHARES)
    sum_shares(sums_to to, const float *parts, int n_parts, int n_sums, int cols, bool accumulate)
{
    __shared__ float share[SHARES][COLUMNS];
    int c = blockIdx.x * COLUMNS + threadIdx.x, which = c / cols;
    void *at = which == 0 ? to.at[0] : which == 1 ? to.at[1] : which == 2 ? to.at[2] : to.at[3];
    T *out = at && which < n_sums ? (T *)at + (c - which * cols) : nullptr;
    float sum = 0;
    if (out)
#pragma unroll 12
        for (int p = threadIdx.y; p < n_parts; p += SHARES)
            sum += parts[(int64_t)p * n_sums * cols + c];
    share[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || !out) return;
    for (int i = 1; i < SHARES; i++) sum += share[i][threadIdx.x];
    if (accumulate) sum += to_float(*out);
    *out = from_float<T>(sum);
}

static cudaError_t add_parts(const yk_norm_backward_args *a, const float *parts, unsigned n_parts,
                             bool all_sums, cudaStream_t s)
{
    sums_to to = {{a->dweight, a->dbias, a->dx_sum, a->add_sum}};
    int n_sums = all_sums ? 4 : 2;
    return with_type(a->grad_dtype, [&](auto zero) {
        using G = decltype(zero);
        sum_shares<G><<<(unsigned)div_up(n_sums * a->cols, COLUMNS), dim3(COLUMNS, SHARES), 0, s>>>(
            to, parts, (int)n_parts, n_sums, (int)a->cols, a->accumulate);
        return cudaGetLastError();
    });
}

/* ---- launchers ----------------------------------------------------------------------------- */

/* Threads of a group when one pack a thread makes a row, else 0. */
static int group_threads(const yk_norm_backward_args *a)
{
    int64_t v = 16 / yk_dtype_bytes(a->dtype), threads = div_up(a->cols / v, 32) * 32;
    bool fits = a->cols % v == 0 && threads <= THREADS_1 && a->rows < INT32_MAX / 4;
    bool aligned = is_aligned(a->dx) && is_aligned(a->dy) && is_aligned(a->add) &&
                   is_aligned(a->x) && is_aligned(a->weight);
    return fits && aligned ? (int)threads : 0;
}

/* Whether the sums of dx and add are made on the way; else they are made apart. */
static bool has_all_sums(const yk_norm_backward_args *a, int threads)
{
    return (a->dx_sum || a->add_sum) && a->kind == YK_NORM_LAYER && threads > 0 &&
           threads <= THREADS_4;
}

template <typename T, bool RMS, bool ALL_SUMS, int MOST>
static cudaError_t launch_groups(const yk_norm_backward_args *a, float *parts, unsigned blocks,
                                 int threads, cudaStream_t s)
{
    int n_groups = (int)at_most(MOST / threads, MAX_GROUPS);
    unsigned all = (unsigned)(threads * n_groups);
    size_t bytes = (size_t)all * STAGES * TENSORS * 16;
    norm_groups_back<T, full_pack<T>(), RMS, ALL_SUMS, MOST>
        <<<blocks, all, bytes, s>>>((T *)a->dx, parts, (const T *)a->dy, (const T *)a->add,
                                    (const T *)a->x, (const T *)a->weight, a->mean, a->rstd,
                                    (int)a->rows, (int)a->cols, 1.0f / (float)a->cols, n_groups);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t launch_kind(const yk_norm_backward_args *a, float *parts, unsigned blocks,
                               int threads, cudaStream_t s)
{
    bool rms = a->kind == YK_NORM_RMS;
    if (has_all_sums(a, threads))
        return launch_groups<T, false, true, THREADS_4>(a, parts, blocks, threads, s);
    if (threads > THREADS / 2)
        return rms ? launch_groups<T, true, false, THREADS_1>(a, parts, blocks, threads, s)
                   : launch_groups<T, false, false, THREADS_1>(a, parts, blocks, threads, s);
    return rms ? launch_groups<T, true, false, THREADS>(a, parts, blocks, threads, s)
               : launch_groups<T, false, false, THREADS>(a, parts, blocks, threads, s);
}

/* A sum that is not made on the way: one more pass over `x`. */
static cudaError_t sum_apart(const yk_norm_backward_args *a, void *sum, const void *x, void *ws,
                             cudaStream_t s)
{
    if (!sum) return cudaSuccess;
    return yk_cuda_column_sum(sum, x, a->rows, a->cols, a->accumulate, a->dtype, a->grad_dtype, ws,
                              s);
}

static cudaError_t processors(int64_t *n_out)
{
    int device = 0, n = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    if (e == cudaSuccess) *n_out = n;
    return e;
}

cudaError_t yk_cuda_norm_backward(const yk_norm_backward_args *a, void *ws, cudaStream_t s)
{
    float *parts = (float *)ws;
    int threads = group_threads(a);
    bool all_sums = has_all_sums(a, threads);
    int64_t most = YK_CUDA_NORM_BLOCKS;
    cudaError_t e = threads ? processors(&most) : cudaSuccess;
    if (e == cudaSuccess && !all_sums) e = sum_apart(a, a->add_sum, a->add, ws, s);
    if (e != cudaSuccess) return e;
    unsigned blocks = (unsigned)at_most(a->rows, at_most(most, YK_CUDA_NORM_BLOCKS));
    e = with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        if (threads) return launch_kind<T>(a, parts, blocks, threads, s);
        norm_any_back<T><<<blocks, ANY_BLOCK, 0, s>>>(
            (T *)a->dx, parts, (const T *)a->dy, (const T *)a->add, (const T *)a->x,
            (const T *)a->weight, a->mean, a->rstd, a->rows, (int)a->cols, a->kind == YK_NORM_RMS);
        return cudaGetLastError();
    });
    if (e == cudaSuccess) e = add_parts(a, parts, blocks, all_sums, s);
    return e == cudaSuccess && !all_sums ? sum_apart(a, a->dx_sum, a->dx, ws, s) : e;
}

template <typename T, bool RMS, bool ALL_SUMS, int MOST> static cudaError_t prepare_group()
{
    return cudaFuncSetAttribute(norm_groups_back<T, full_pack<T>(), RMS, ALL_SUMS, MOST>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                MOST * STAGES * TENSORS * 16);
}

template <typename T> static cudaError_t prepare_groups()
{
    cudaError_t e = prepare_group<T, false, false, THREADS>();
    if (e == cudaSuccess) e = prepare_group<T, true, false, THREADS>();
    if (e == cudaSuccess) e = prepare_group<T, false, false, THREADS_1>();
    if (e == cudaSuccess) e = prepare_group<T, true, false, THREADS_1>();
    return e == cudaSuccess ? prepare_group<T, false, true, THREADS_4>() : e;
}

cudaError_t yk_cuda_norm_backward_prepare(void)
{
    cudaError_t e = prepare_groups<float>();
    if (e == cudaSuccess) e = prepare_groups<bf16>();
    return e != cudaSuccess ? e : prepare_groups<f16>();
}
