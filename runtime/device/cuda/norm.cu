/* runtime/device/cuda/norm.cu - LayerNorm and RMSNorm, forward and backward.
 *
 * A row stays in registers between its statistics and its result, so that each
 * tensor crosses memory once. Rows of up to 2048 elements (16-bit; backward,
 * where registers hold sums too, 1024) belong to one warp, which waits for
 * nobody; a lane owns up to PACKS times 16 bytes of columns. Longer ones belong
 * to a block, a thread owns 16 bytes, and U rows at a time share a barrier.
 *
 * Bytes per element, 16-bit: forward 2 read, 2 written; backward 4 read (6 with
 * `add`), 2 written. The gradients of weight and bias stay in registers while a
 * block goes through its rows; each block leaves one partial sum,
 * YK_CUDA_NORM_BLOCKS * C * 8 bytes in all, and sum_parts adds them in order.
 *
 * Rows that do not divide into 16 bytes, or are longer than a block is wide,
 * take the kernels at the end: one element an access, and a row is read again
 * for each use.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define MAX_THREADS 1024
#define WIDE_BLOCK  256 /* threads of a block of the last kernels */

/* ---- a warp a row
 * ------------------------------------------------------------------------- */

#define MAX_PACKS      8
#define MAX_PACKS_BACK 4
#define WARPS          8 /* of a block, forward */
#define WARPS_BACK     4 /* backward */

/* Blocks of the backward pass whose registers a multiprocessor holds. */
static constexpr int blocks_back(int packs)
{
    return packs <= 2 ? 4 : packs == 3 ? 3 : 2;
}

template <typename T, int V, int PACKS>
static __global__ void __launch_bounds__(WARPS * 32)
    norm_warp(T *__restrict__ y, float *mean, float *rstd, const T *__restrict__ x,
              const T *__restrict__ weight, const T *__restrict__ bias, int64_t rows, int cols,
              float eps, bool rms)
{
    int lane = threadIdx.x & 31;
    int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (row >= rows) return;
    float e[PACKS][V], per_col = 1.0f / (float)cols, mu = 0, var = 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int c = (p * 32 + lane) * V;
#pragma unroll
        for (int i = 0; i < V; i++) e[p][i] = 0;
        if (c < cols) load_floats<T, V>(x + row * cols + c, e[p]);
    }
    if (!rms) {
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int i = 0; i < V; i++) mu += e[p][i];
        mu = warp_sum(mu) * per_col;
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        bool mine = (p * 32 + lane) * V < cols;
#pragma unroll
        for (int i = 0; i < V; i++) {
            e[p][i] = mine ? e[p][i] - mu : 0.0f;
            var += e[p][i] * e[p][i];
        }
    }
    float r = 1.0f / sqrtf(warp_sum(var) * per_col + eps);
    if (lane == 0) {
        rstd[row] = r;
        if (!rms) mean[row] = mu;
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int c = (p * 32 + lane) * V;
        if (c >= cols) continue;
        float w[V], b[V] = {};
        load_floats<T, V>(weight + c, w);
        if (!rms) load_floats<T, V>(bias + c, b);
#pragma unroll
        for (int i = 0; i < V; i++) e[p][i] = e[p][i] * r * w[i] + b[i];
        store_floats<T, V>(y + row * cols + c, e[p]);
    }
}

/* Add the block's shares of dweight (or dbias), one a warp, in order of warps;
 * `sums` is the block's part of (gridDim.x,2,C). */
template <int V, int PACKS>
static __device__ inline void put_share(float *sums, const float (&share)[PACKS][V], int cols)
{
    __shared__ float of_warp[WARPS_BACK][32 * V];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < V; i++) of_warp[warp][i * 32 + lane] = share[p][i];
        __syncthreads();
        for (int k = threadIdx.x; k < 32 * V; k += WARPS_BACK * 32) {
            float sum = of_warp[0][k];
            for (int w = 1; w < WARPS_BACK; w++) sum += of_warp[w][k];
            int c = (p * 32 + k % 32) * V + k / 32;
            if (c < cols) sums[c] = sum;
        }
    }
}

/* dx may be dy or add, so none of the three is __restrict__. */
template <typename T, int V, int PACKS>
static __global__ void __launch_bounds__(WARPS_BACK * 32, blocks_back(PACKS))
    norm_warp_back(T *dx, float *parts, const T *dy, const T *add, const T *__restrict__ x,
                   const T *__restrict__ weight, const float *mean, const float *rstd, int64_t rows,
                   int cols, bool rms)
{
    int lane = threadIdx.x & 31;
    pack<T, V> packed_weight[PACKS] = {};
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if ((p * 32 + lane) * V < cols) packed_weight[p] = load<T, V>(weight + (p * 32 + lane) * V);
    float dw[PACKS][V] = {}, db[PACKS][V] = {}, per_col = 1.0f / (float)cols;
    int64_t row = (int64_t)blockIdx.x * WARPS_BACK + (threadIdx.x >> 5);
    for (; row < rows; row += (int64_t)gridDim.x * WARPS_BACK) {
        pack<T, V> packed_x[PACKS] = {}, packed_dy[PACKS] = {}, packed_add[PACKS] = {};
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int c = (p * 32 + lane) * V;
            if (c >= cols) continue;
            packed_x[p] = load<T, V>(x + row * cols + c);
            packed_dy[p] = load<T, V>(dy + row * cols + c);
            if (add) packed_add[p] = load<T, V>(add + row * cols + c);
        }
        float r = rstd[row], mu = rms ? 0.0f : mean[row], along_one = 0, along_x = 0;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float xs[V], g[V], w[V];
            unpack<T, V>(packed_x[p], xs);
            unpack<T, V>(packed_dy[p], g);
            unpack<T, V>(packed_weight[p], w);
#pragma unroll
            for (int i = 0; i < V; i++) {
                float n = (xs[i] - mu) * r;
                dw[p][i] += g[i] * n;
                db[p][i] += g[i];
                along_one += g[i] * w[i];
                along_x += g[i] * w[i] * n;
            }
        }
        along_one = rms ? 0.0f : warp_sum(along_one) * per_col;
        along_x = warp_sum(along_x) * per_col;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int c = (p * 32 + lane) * V;
            if (c >= cols) continue;
            float xs[V], g[V], w[V], out[V];
            unpack<T, V>(packed_x[p], xs);
            unpack<T, V>(packed_dy[p], g);
            unpack<T, V>(packed_weight[p], w);
            unpack<T, V>(packed_add[p], out);
#pragma unroll
            for (int i = 0; i < V; i++)
                out[i] += r * (g[i] * w[i] - along_one - (xs[i] - mu) * r * along_x);
            store_floats<T, V>(dx + row * cols + c, out);
        }
    }
    put_share<V, PACKS>(parts + (int64_t)blockIdx.x * 2 * cols, dw, cols);
    if (!rms) put_share<V, PACKS>(parts + ((int64_t)blockIdx.x * 2 + 1) * cols, db, cols);
}

/* ---- a block a row, forward
 * --------------------------------------------------------------- */

template <typename T, int V, int THREADS, int U>
static __global__ void __launch_bounds__(THREADS)
    norm_rows(T *__restrict__ y, float *mean, float *rstd, const T *__restrict__ x,
              const T *__restrict__ weight, const T *__restrict__ bias, int64_t rows, int cols,
              float eps, bool rms)
{
    __shared__ float sums[2][U][32];
    int c = threadIdx.x * V;
    bool mine = c < cols;
    float w[V] = {}, b[V] = {};
    if (mine) {
        load_floats<T, V>(weight + c, w);
        if (!rms) load_floats<T, V>(bias + c, b);
    }
    float per_col = 1.0f / (float)cols;
    int turn = 0;
    for (int64_t r0 = (int64_t)blockIdx.x * U; r0 < rows; r0 += (int64_t)gridDim.x * U) {
        float e[U][V], mu[U], var[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int i = 0; i < V; i++) e[u][i] = 0;
            if (mine && r0 + u < rows) load_floats<T, V>(x + (r0 + u) * cols + c, e[u]);
        }
        if (!rms) {
#pragma unroll
            for (int u = 0; u < U; u++) {
                mu[u] = 0;
#pragma unroll
                for (int i = 0; i < V; i++) mu[u] += e[u][i];
            }
            block_sum<float, U>(mu, sums[turn++ & 1]);
#pragma unroll
            for (int u = 0; u < U; u++) {
                mu[u] *= per_col;
#pragma unroll
                for (int i = 0; i < V; i++) e[u][i] = mine ? e[u][i] - mu[u] : 0.0f;
            }
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            var[u] = 0;
#pragma unroll
            for (int i = 0; i < V; i++) var[u] += e[u][i] * e[u][i];
        }
        block_sum<float, U>(var, sums[turn++ & 1]);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (r0 + u >= rows) break;
            float r = 1.0f / sqrtf(var[u] * per_col + eps);
            if (threadIdx.x == 0) {
                rstd[r0 + u] = r;
                if (!rms) mean[r0 + u] = mu[u];
            }
            if (!mine) continue;
#pragma unroll
            for (int i = 0; i < V; i++) e[u][i] = e[u][i] * r * w[i] + b[i];
            store_floats<T, V>(y + (r0 + u) * cols + c, e[u]);
        }
    }
}

/* ---- a block a row, backward
 * -------------------------------------------------------------- */

/* parts is (gridDim.x, 2, C) fp32: dweight and dbias of the block's rows. dx
 * may be dy or add, so none of the three is __restrict__. */
template <typename T, int V, int THREADS, int U>
static __global__ void __launch_bounds__(THREADS)
    norm_rows_back(T *dx, float *parts, const T *dy, const T *add, const T *__restrict__ x,
                   const T *__restrict__ weight, const float *mean, const float *rstd, int64_t rows,
                   int cols, bool rms)
{
    __shared__ float sums[2][2 * U][32];
    int c = threadIdx.x * V;
    bool mine = c < cols;
    pack<T, V> packed_weight = {};
    if (mine) packed_weight = load<T, V>(weight + c);
    float dw[V] = {}, db[V] = {};
    float per_col = 1.0f / (float)cols;
    int turn = 0;
    for (int64_t r0 = (int64_t)blockIdx.x * U; r0 < rows; r0 += (int64_t)gridDim.x * U) {
        pack<T, V> packed_x[U] = {}, packed_dy[U] = {}, packed_add[U] = {};
        float r[U], mu[U], s[2 * U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            bool there = r0 + u < rows;
            int64_t at = (r0 + u) * cols + c;
            if (mine && there) {
                packed_x[u] = load<T, V>(x + at);
                packed_dy[u] = load<T, V>(dy + at);
                if (add) packed_add[u] = load<T, V>(add + at);
            }
            r[u] = there ? rstd[r0 + u] : 0.0f;
            mu[u] = there && !rms ? mean[r0 + u] : 0.0f;
        }
        float w[V];
        unpack<T, V>(packed_weight, w);
#pragma unroll
        for (int u = 0; u < U; u++) {
            float xs[V], g[V];
            unpack<T, V>(packed_x[u], xs);
            unpack<T, V>(packed_dy[u], g);
            s[2 * u] = s[2 * u + 1] = 0;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float n = (xs[i] - mu[u]) * r[u];
                dw[i] += g[i] * n;
                db[i] += g[i];
                s[2 * u] += g[i] * w[i];
                s[2 * u + 1] += g[i] * w[i] * n;
            }
        }
        block_sum<float, 2 * U>(s, sums[turn++ & 1]);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (!mine || r0 + u >= rows) continue;
            float xs[V], g[V], more[V], out[V];
            unpack<T, V>(packed_x[u], xs);
            unpack<T, V>(packed_dy[u], g);
            unpack<T, V>(packed_add[u], more);
            float along_one = rms ? 0.0f : s[2 * u] * per_col, along_x = s[2 * u + 1] * per_col;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float n = (xs[i] - mu[u]) * r[u];
                out[i] = more[i] + r[u] * (g[i] * w[i] - along_one - n * along_x);
            }
            store_floats<T, V>(dx + (r0 + u) * cols + c, out);
        }
    }
    if (!mine) return;
    store_f32<V>(parts + (int64_t)blockIdx.x * 2 * cols + c, dw);
    if (!rms) store_f32<V>(parts + ((int64_t)blockIdx.x * 2 + 1) * cols + c, db);
}

/* ---- any width
 * ----------------------------------------------------------------------------
 */

template <typename T>
static __global__ void norm_any(T *y, float *mean, float *rstd, const T *x, const T *weight,
                                const T *bias, int cols, float eps, bool rms)
{
    __shared__ float sums[2][1][32];
    int64_t row = blockIdx.x;
    const T *from = x + row * cols;
    float mu[1] = {0}, var[1] = {0};
    if (!rms) {
        for (int c = threadIdx.x; c < cols; c += blockDim.x) mu[0] += to_float(from[c]);
        block_sum<float, 1>(mu, sums[0]);
        mu[0] /= (float)cols;
    }
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float d = to_float(from[c]) - mu[0];
        var[0] += d * d;
    }
    block_sum<float, 1>(var, sums[1]);
    float r = 1.0f / sqrtf(var[0] / (float)cols + eps);
    if (threadIdx.x == 0) {
        rstd[row] = r;
        if (!rms) mean[row] = mu[0];
    }
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float n = (to_float(from[c]) - mu[0]) * r * to_float(weight[c]);
        y[row * cols + c] = from_float<T>(rms ? n : n + to_float(bias[c]));
    }
}

/* A block's share of dweight and dbias first, since dx may be dy; then dx of
 * the same rows. */
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

/* ---- launchers
 * ----------------------------------------------------------------------------
 */

/* Threads of a block when a row fits into one, else 0. */
static unsigned row_threads(int64_t cols, int v)
{
    int64_t threads = div_up(cols / v, 32) * 32;
    return cols % v == 0 && threads <= MAX_THREADS ? (unsigned)threads : 0;
}

/* Packs of a lane when a row fits into a warp, else 0. */
static int warp_packs(int64_t cols, int v, int most)
{
    int64_t packs = div_up(cols, 32 * v);
    return cols % v == 0 && packs <= most ? (int)packs : 0;
}

template <typename T, int PACKS>
static cudaError_t launch_warps(const yk_norm_forward_args *a, cudaStream_t s)
{
    norm_warp<T, full_pack<T>(), PACKS><<<(unsigned)div_up(a->rows, WARPS), WARPS * 32, 0, s>>>(
        (T *)a->y, a->mean, a->rstd, (const T *)a->x, (const T *)a->weight, (const T *)a->bias,
        a->rows, (int)a->cols, a->eps, a->kind == YK_NORM_RMS);
    return cudaGetLastError();
}

/* U rows at a time in a block of up to THREADS, as many as registers hold. */
template <typename T, int THREADS, int U>
static cudaError_t launch_rows(const yk_norm_forward_args *a, unsigned threads, cudaStream_t s)
{
    unsigned blocks = (unsigned)at_most(div_up(a->rows, U), 132 * 64);
    norm_rows<T, full_pack<T>(), THREADS, U><<<blocks, threads, 0, s>>>(
        (T *)a->y, a->mean, a->rstd, (const T *)a->x, (const T *)a->weight, (const T *)a->bias,
        a->rows, (int)a->cols, a->eps, a->kind == YK_NORM_RMS);
    return cudaGetLastError();
}

cudaError_t yk_cuda_norm_forward(const yk_norm_forward_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        unsigned threads = row_threads(a->cols, full_pack<T>());
        if (threads && is_aligned(a->y) && is_aligned(a->x) && is_aligned(a->weight) &&
            is_aligned(a->bias)) {
            switch (warp_packs(a->cols, full_pack<T>(), MAX_PACKS)) {
            case 1:
                return launch_warps<T, 1>(a, s);
            case 2:
                return launch_warps<T, 2>(a, s);
            case 3:
                return launch_warps<T, 3>(a, s);
            case 4:
                return launch_warps<T, 4>(a, s);
            case 5:
                return launch_warps<T, 5>(a, s);
            case 6:
                return launch_warps<T, 6>(a, s);
            case 7:
                return launch_warps<T, 7>(a, s);
            case 8:
                return launch_warps<T, 8>(a, s);
            default:
                break;
            }
            return threads <= 512 ? launch_rows<T, 512, 4>(a, threads, s)
                                  : launch_rows<T, 1024, 2>(a, threads, s);
        }
        norm_any<T><<<(unsigned)a->rows, WIDE_BLOCK, 0, s>>>(
            (T *)a->y, a->mean, a->rstd, (const T *)a->x, (const T *)a->weight, (const T *)a->bias,
            (int)a->cols, a->eps, a->kind == YK_NORM_RMS);
        return cudaGetLastError();
    });
}

template <typename T, int PACKS>
static cudaError_t launch_warps_back(const yk_norm_backward_args *a, float *parts, unsigned blocks,
                                     cudaStream_t s)
{
    norm_warp_back<T, full_pack<T>(), PACKS><<<blocks, WARPS_BACK * 32, 0, s>>>(
        (T *)a->dx, parts, (const T *)a->dy, (const T *)a->add, (const T *)a->x,
        (const T *)a->weight, a->mean, a->rstd, a->rows, (int)a->cols, a->kind == YK_NORM_RMS);
    return cudaGetLastError();
}

template <typename T, int THREADS, int U>
static cudaError_t launch_rows_back(const yk_norm_backward_args *a, float *parts, unsigned blocks,
                                    unsigned threads, cudaStream_t s)
{
    norm_rows_back<T, full_pack<T>(), THREADS, U><<<blocks, threads, 0, s>>>(
        (T *)a->dx, parts, (const T *)a->dy, (const T *)a->add, (const T *)a->x,
        (const T *)a->weight, a->mean, a->rstd, a->rows, (int)a->cols, a->kind == YK_NORM_RMS);
    return cudaGetLastError();
}

cudaError_t yk_cuda_norm_backward(const yk_norm_backward_args *a, void *ws, cudaStream_t s)
{
    bool rms = a->kind == YK_NORM_RMS;
    float *parts = (float *)ws;
    int packs = warp_packs(a->cols, 16 / (int)yk_dtype_bytes(a->dtype), MAX_PACKS_BACK);
    int64_t most = packs ? YK_CUDA_NORM_BLOCKS / 4 * blocks_back(packs) : YK_CUDA_NORM_BLOCKS;
    unsigned blocks = (unsigned)at_most(a->rows, most);
    cudaError_t e = with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        unsigned threads = row_threads(a->cols, full_pack<T>());
        if (threads && is_aligned(a->dx) && is_aligned(a->dy) && is_aligned(a->add) &&
            is_aligned(a->x) && is_aligned(a->weight)) {
            switch (packs) {
            case 1:
                return launch_warps_back<T, 1>(a, parts, blocks, s);
            case 2:
                return launch_warps_back<T, 2>(a, parts, blocks, s);
            case 3:
                return launch_warps_back<T, 3>(a, parts, blocks, s);
            case 4:
                return launch_warps_back<T, 4>(a, parts, blocks, s);
            default:
                break;
            }
            return threads <= 512 ? launch_rows_back<T, 512, 2>(a, parts, blocks, threads, s)
                                  : launch_rows_back<T, 1024, 1>(a, parts, blocks, threads, s);
        }
        norm_any_back<T><<<blocks, WIDE_BLOCK, 0, s>>>(
            (T *)a->dx, parts, (const T *)a->dy, (const T *)a->add, (const T *)a->x,
            (const T *)a->weight, a->mean, a->rstd, a->rows, (int)a->cols, rms);
        return cudaGetLastError();
    });
    if (e != cudaSuccess) return e;
    e = yk_cuda_sum_parts(a->dweight, parts, blocks, 2 * a->cols, a->cols, a->accumulate,
                          a->grad_dtype, s);
    if (e != cudaSuccess || rms) return e;
    return yk_cuda_sum_parts(a->dbias, parts + a->cols, blocks, 2 * a->cols, a->cols, a->accumulate,
                             a->grad_dtype, s);
}
