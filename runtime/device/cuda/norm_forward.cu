/* runtime/device/cuda/norm_forward.cu - LayerNorm and RMSNorm.
 *
 * A row stays in registers between its statistics and its result, so that each tensor crosses memory
 * once. Rows of up to 2048 elements (16-bit) belong to one warp, which waits for nobody: a lane owns up
 * to MAX_PACKS packs of columns, and those of the next two rows are on their way into its own shared
 * memory while it works at one. Longer ones belong to a block, a thread owns one pack, and U rows at a
 * time share a barrier.
 *
 * Bytes per element, 16-bit: 2 read, 2 written; about 13 instructions.
 *
 * Rows that do not divide into 16 bytes, or are longer than a block is wide, take the kernel at the
 * end: one element an access, and a row is read again for each use.
 */
#include "runtime/device/cuda/copy_async.cuh"
#include "runtime/device/cuda/kernels.cuh"

#define MAX_THREADS 1024
#define WIDE_BLOCK  256 /* threads of a block of the last kernel */

/* ---- a warp a row
 * ------------------------------------------------------------------------- */

#define MAX_PACKS 8
#define WARPS     8 /* of a block */
#define STAGES    2 /* rows of a warp on their way */

/* Bring weight and bias into `table`, the shared address of the lane's first pack of weight: warp w
 * fetches pack w of each lane, those of bias begin PACKS * 512 bytes on. */
template <typename T, int V, int PACKS>
static __device__ inline void fetch_columns(uint32_t table, const T *weight, const T *bias,
                                            int cols)
{
    int warp = threadIdx.x >> 5, c = threadIdx.x * V;
    if (warp < PACKS && c < cols) {
        copy_async(table + warp * 512, weight + c);
        if (bias) copy_async(table + (PACKS + warp) * 512, bias + c);
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
}

template <typename T, int V, int PACKS, bool RMS>
static __global__ void __launch_bounds__(WARPS * 32, PACKS < 8 ? 3 : 2)
    norm_warps(T *__restrict__ y, float *mean, float *rstd, const T *__restrict__ x,
               const T *__restrict__ weight, const T *__restrict__ bias, int rows, int cols,
               float eps)
{
    extern __shared__ __align__(16) unsigned char stages[];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, turn = 0;
    uint32_t shared = shared_address(stages) + lane * 16;
    uint32_t stage = shared + (2 + warp * STAGES) * PACKS * 512;
    const int stride = gridDim.x * WARPS;
    int row = blockIdx.x * WARPS + warp;
    auto mine = [&](int p) { return p < PACKS - 1 || (p * 32 + lane) * V < cols; };
    auto fetch = [&](int r, uint32_t to) {
        if (r < rows)
#pragma unroll
            for (int p = 0; p < PACKS; p++)
                if (mine(p)) copy_async(to + p * 512, x + (int64_t)r * cols + (p * 32 + lane) * V);
        copy_commit();
    };
    fetch_columns<T, V, PACKS>(shared, weight, RMS ? nullptr : bias, cols);
#pragma unroll
    for (int i = 0; i < STAGES; i++) fetch(row + i * stride, stage + i * PACKS * 512);
    for (; row < rows; row += stride, turn ^= 1) {
        uint32_t at = stage + turn * PACKS * 512;
        float e[PACKS][V] = {}, per_col = 1.0f / (float)cols, mu = 0, var = 0;
        copy_wait<STAGES - 1>();
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (mine(p)) unpack<T, V>({load_copied(at + p * 512)}, e[p]);
        fetch(row + STAGES * stride, at);
        if (!RMS) {
#pragma unroll
            for (int p = 0; p < PACKS; p++)
#pragma unroll
                for (int i = 0; i < V; i++) mu += e[p][i];
            mu = warp_sum(mu) * per_col;
        }
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int i = 0; i < V; i++) {
                if (!RMS) e[p][i] = mine(p) ? e[p][i] - mu : 0.0f;
                var += e[p][i] * e[p][i];
            }
        float r = 1.0f / sqrtf(warp_sum(var) * per_col + eps);
        if (lane == 0) {
            rstd[row] = r;
            if (!RMS) mean[row] = mu;
        }
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            float w[V], b[V] = {};
            if (!mine(p)) continue;
            unpack<T, V>({load_copied(shared + p * 512)}, w);
            if (!RMS) unpack<T, V>({load_copied(shared + (PACKS + p) * 512)}, b);
#pragma unroll
            for (int i = 0; i < V; i++) e[p][i] = e[p][i] * r * w[i] + b[i];
            store_floats<T, V>(y + (int64_t)row * cols + (p * 32 + lane) * V, e[p]);
        }
    }
}

/* ---- a block a row
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

template <typename T, int PACKS, bool RMS>
static cudaError_t launch_warps(const yk_norm_forward_args *a, cudaStream_t s)
{
    constexpr int V = full_pack<T>();
    size_t bytes = (2 + WARPS * STAGES) * PACKS * 512;
    int device = 0, processors = 0, resident = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, norm_warps<T, V, PACKS, RMS>,
                                                          WARPS * 32, bytes);
    if (e != cudaSuccess) return e;
    int64_t most = (int64_t)processors * (resident > 0 ? resident : 1);
    unsigned blocks = (unsigned)at_most(div_up(a->rows, WARPS), most);
    norm_warps<T, V, PACKS, RMS><<<blocks, WARPS * 32, bytes, s>>>(
        (T *)a->y, a->mean, a->rstd, (const T *)a->x, (const T *)a->weight, (const T *)a->bias,
        (int)a->rows, (int)a->cols, a->eps);
    return cudaGetLastError();
}

/* Call launch_warps for PACKS packs a lane. */
template <typename T, int PACKS>
static cudaError_t launch_packs(const yk_norm_forward_args *a, cudaStream_t s)
{
    return a->kind == YK_NORM_RMS ? launch_warps<T, PACKS, true>(a, s)
                                  : launch_warps<T, PACKS, false>(a, s);
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
        if (threads && a->rows < INT32_MAX / 4 && is_aligned(a->y) && is_aligned(a->x) &&
            is_aligned(a->weight) && is_aligned(a->bias)) {
            switch (warp_packs(a->cols, full_pack<T>(), MAX_PACKS)) {
            case 1:
                return launch_packs<T, 1>(a, s);
            case 2:
                return launch_packs<T, 2>(a, s);
            case 3:
                return launch_packs<T, 3>(a, s);
            case 4:
                return launch_packs<T, 4>(a, s);
            case 5:
                return launch_packs<T, 5>(a, s);
            case 6:
                return launch_packs<T, 6>(a, s);
            case 7:
                return launch_packs<T, 7>(a, s);
            case 8:
                return launch_packs<T, 8>(a, s);
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

template <typename T, int PACKS> static cudaError_t prepare_warps()
{
    const cudaFuncAttribute limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    constexpr int V = full_pack<T>(), bytes = (2 + WARPS * STAGES) * PACKS * 512;
    cudaError_t e = cudaFuncSetAttribute(norm_warps<T, V, PACKS, false>, limit, bytes);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(norm_warps<T, V, PACKS, true>, limit, bytes);
    if constexpr (PACKS > 1)
        if (e == cudaSuccess) e = prepare_warps<T, PACKS - 1>();
    return e;
}

cudaError_t yk_cuda_norm_forward_prepare(void)
{
    cudaError_t e = prepare_warps<float, MAX_PACKS>();
    if (e == cudaSuccess) e = prepare_warps<bf16, MAX_PACKS>();
    return e != cudaSuccess ? e : prepare_warps<f16, MAX_PACKS>();
}
