/* runtime/device/cuda/norm_forward.cu - LayerNorm and RMSNorm.
 *
 * A row belongs to one warp, which waits for nobody, and crosses memory once: a lane's packs of the
 * next two rows, or of short rows one, are on their way into its own shared memory while it works.
 * Of up to MAX_PACKS packs a lane (2048 elements of 16 bits) the row stays in registers between its
 * statistics and its result; a longer one is read again from shared memory.
 *
 * Bytes per element, 16-bit: 2 read, 2 written; about 13 instructions.
 *
 * Rows that do not divide into 16 bytes, or of which shared memory does not hold four, take the kernel at
 * the end: one element an access, and a row is read again for each use.
 */
#include "runtime/device/cuda/copy_async.cuh"
#include "runtime/device/cuda/kernels.cuh"

#define ANY_BLOCK 256 /* threads of a block of the last kernel */

/* ---- a warp a row -------------------------------------------------------------------------- */

#define MAX_PACKS 8
#define WARPS     8 /* of a block */
#define STAGES    2 /* rows of a warp on their way, at most */

#define LONG_WARPS 16 /* of a block for long rows, at most */

/* Rows of a warp on their way. So many warps have short ones that one each keeps memory busy, and
 * what is read stays together. */
template <int PACKS> static constexpr __host__ __device__ int stages_of()
{
    return PACKS < 4 ? 1 : STAGES;
}

/* Shared memory of norm_warps: weight, bias, and each warp's rows. */
template <int PACKS> static constexpr int bytes_of_warps()
{
    return (2 + WARPS * stages_of<PACKS>()) * PACKS * 512;
}

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
}

template <typename T, int V, int PACKS, bool RMS>
static __global__ void __launch_bounds__(WARPS * 32, PACKS < 8 ? 3 : 2)
    norm_warps(T *__restrict__ y, float *mean, float *rstd, const T *__restrict__ x,
               const T *__restrict__ weight, const T *__restrict__ bias, int rows, int cols,
               float per_col, float eps)
{
    extern __shared__ __align__(16) unsigned char stages[];
    constexpr int AHEAD = stages_of<PACKS>();
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, turn = 0;
    uint32_t shared = shared_address(stages) + lane * 16;
    uint32_t stage = shared + (2 + warp * AHEAD) * PACKS * 512;
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
    let_next_kernel_come();
    wait_for_kernel_before();
    fetch_columns<T, V, PACKS>(shared, weight, RMS ? nullptr : bias, cols);
    copy_commit();
#pragma unroll
    for (int i = 0; i < AHEAD; i++) fetch(row + i * stride, stage + i * PACKS * 512);
    copy_wait<AHEAD>();
    __syncthreads();
    for (; row < rows; row += stride, turn = (turn + 1) % AHEAD) {
        uint32_t at = stage + turn * PACKS * 512;
        float e[PACKS][V] = {}, mu = 0, var = 0;
        copy_wait<AHEAD - 1>();
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (mine(p)) unpack<T, V>({load_copied(at + p * 512)}, e[p]);
        fetch(row + AHEAD * stride, at);
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

/* ---- a warp a long row --------------------------------------------------------------------- */

/* Add up f(number) over a row at the shared address `at`, which is the lane's first pack. */
template <typename T, int V, typename F>
static __device__ inline float sum_of_row(uint32_t at, int cols, F f)
{
    float sum[2] = {0, 0};
#pragma unroll 4
    for (int c = (threadIdx.x & 31) * V; c < cols; c += 32 * V, at += 512) {
        float e[V];
        unpack<T, V>({load_copied(at)}, e);
#pragma unroll
        for (int i = 0; i < V; i++) sum[i & 1] += f(e[i]);
    }
    return warp_sum(sum[0] + sum[1]);
}

/* As norm_warps, but the row is read again from shared memory for each use; where a pack has had its
 * last one, that of the row after the next starts to come in. A row has `row_bytes` of shared memory. */
template <typename T, int V, bool RMS>
static __global__ void __launch_bounds__(LONG_WARPS * 32)
    norm_long(T *__restrict__ y, float *mean, float *rstd, const T *__restrict__ x,
              const T *__restrict__ weight, const T *__restrict__ bias, int rows, int cols,
              float per_col, float eps, int row_bytes)
{
    extern __shared__ __align__(16) unsigned char stages[];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, turn = 0;
    uint32_t shared = shared_address(stages), table = shared + lane * 16;
    uint32_t stage = table + (2 + warp * STAGES) * row_bytes;
    const int stride = gridDim.x * warps;
    int row = blockIdx.x * warps + warp;
    let_next_kernel_come();
    wait_for_kernel_before();
    for (int i = 0; i < STAGES; i++) {
        int64_t from = (int64_t)(row + i * stride) * cols;
        uint32_t to = stage + i * row_bytes;
        if (row + i * stride < rows)
            for (int c = lane * V; c < cols; c += 32 * V, to += 512) copy_async(to, x + from + c);
        if (i < STAGES - 1) copy_commit();
    }
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
        copy_async(shared + c * (int)sizeof(T), weight + c);
        if (!RMS) copy_async(shared + row_bytes + c * (int)sizeof(T), bias + c);
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    for (; row < rows; row += stride, turn ^= 1) {
        uint32_t at = stage + turn * row_bytes, w_at = table;
        const T *next =
            row + STAGES * stride < rows ? x + (int64_t)(row + STAGES * stride) * cols : nullptr;
        float mu = 0;
        copy_wait<STAGES - 1>();
        if (!RMS) mu = per_col * sum_of_row<T, V>(at, cols, [](float e) { return e; });
        float var =
            per_col * sum_of_row<T, V>(at, cols, [=](float e) { return (e - mu) * (e - mu); });
        float r = 1.0f / sqrtf(var + eps);
        if (lane == 0) {
            rstd[row] = r;
            if (!RMS) mean[row] = mu;
        }
#pragma unroll 4
        for (int c = lane * V; c < cols; c += 32 * V, at += 512, w_at += 512) {
            float e[V], w[V], b[V] = {};
            unpack<T, V>({load_copied(at)}, e);
            if (next) copy_async(at, next + c);
            unpack<T, V>({load_copied(w_at)}, w);
            if (!RMS) unpack<T, V>({load_copied(w_at + row_bytes)}, b);
#pragma unroll
            for (int i = 0; i < V; i++) e[i] = (e[i] - mu) * r * w[i] + b[i];
            store_floats<T, V>(y + (int64_t)row * cols + c, e);
        }
        copy_commit();
    }
}

/* ---- any width ----------------------------------------------------------------------------- */

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

/* ---- launchers ----------------------------------------------------------------------------- */

static cudaError_t count_processors(int *n_out)
{
    int device = 0;
    cudaError_t e = cudaGetDevice(&device);
    return e != cudaSuccess ? e
                            : cudaDeviceGetAttribute(n_out, cudaDevAttrMultiProcessorCount, device);
}

/* Launch as many blocks as are resident, or as many as rows need. */
template <typename K, typename... A>
static cudaError_t launch(K kernel, const yk_norm_forward_args *a, int processors, int warps,
                          size_t bytes, cudaStream_t s, A... args)
{
    int resident = 0;
    cudaError_t e =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, warps * 32, bytes);
    if (e != cudaSuccess) return e;
    int64_t most = (int64_t)processors * (resident > 0 ? resident : 1);
    unsigned blocks = (unsigned)at_most(div_up(a->rows, warps), most);
    return launch_early(kernel, dim3(blocks), dim3((unsigned)warps * 32), bytes, s, args...);
}

template <typename T, int PACKS>
static cudaError_t launch_warps(const yk_norm_forward_args *a, int packs, int processors,
                                cudaStream_t s)
{
    constexpr int V = full_pack<T>();
    if constexpr (PACKS > 1)
        if (packs < PACKS) return launch_warps<T, PACKS - 1>(a, packs, processors, s);
    size_t bytes = bytes_of_warps<PACKS>();
    auto *kernel =
        a->kind == YK_NORM_RMS ? norm_warps<T, V, PACKS, true> : norm_warps<T, V, PACKS, false>;
    return launch(kernel, a, processors, WARPS, bytes, s, (T *)a->y, a->mean, a->rstd,
                  (const T *)a->x, (const T *)a->weight, (const T *)a->bias, (int)a->rows,
                  (int)a->cols, 1.0f / (float)a->cols, a->eps);
}

/* Warps of a block for long rows: as many as have room for theirs; 0: none has. */
static int long_warps(int64_t row_bytes, int shared_bytes)
{
    return (int)at_most((shared_bytes / row_bytes - 2) / STAGES, LONG_WARPS);
}

template <typename T>
static cudaError_t launch_long(const yk_norm_forward_args *a, int row_bytes, int warps,
                               int processors, cudaStream_t s)
{
    constexpr int V = full_pack<T>();
    size_t bytes = (size_t)(2 + warps * STAGES) * row_bytes;
    auto *kernel = a->kind == YK_NORM_RMS ? norm_long<T, V, true> : norm_long<T, V, false>;
    return launch(kernel, a, processors, warps, bytes, s, (T *)a->y, a->mean, a->rstd,
                  (const T *)a->x, (const T *)a->weight, (const T *)a->bias, (int)a->rows,
                  (int)a->cols, 1.0f / (float)a->cols, a->eps, row_bytes);
}

cudaError_t yk_cuda_norm_forward(const yk_norm_forward_args *a, int shared_bytes_max,
                                 cudaStream_t s)
{
    int processors = 0;
    cudaError_t e = count_processors(&processors);
    if (e != cudaSuccess) return e;
    int64_t v = 16 / yk_dtype_bytes(a->dtype), packs = div_up(a->cols, 32 * v);
    bool wide = a->cols % v == 0 && a->rows < INT32_MAX / 4 && is_aligned(a->y) &&
                is_aligned(a->x) && is_aligned(a->weight) && is_aligned(a->bias);
    int warps = long_warps(packs * 512, shared_bytes_max);
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        if (wide && packs <= MAX_PACKS)
            return launch_warps<T, MAX_PACKS>(a, (int)packs, processors, s);
        if (wide && warps > 0) return launch_long<T>(a, (int)packs * 512, warps, processors, s);
        norm_any<T><<<(unsigned)a->rows, ANY_BLOCK, 0, s>>>(
            (T *)a->y, a->mean, a->rstd, (const T *)a->x, (const T *)a->weight, (const T *)a->bias,
            (int)a->cols, a->eps, a->kind == YK_NORM_RMS);
        return cudaGetLastError();
    });
}

/* Let the kernels for up to PACKS packs a lane have the shared memory that they take. */
template <typename T, int PACKS> static cudaError_t prepare_warps()
{
    const cudaFuncAttribute limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    constexpr int V = full_pack<T>(), bytes = bytes_of_warps<PACKS>();
    cudaError_t e = cudaFuncSetAttribute(norm_warps<T, V, PACKS, false>, limit, bytes);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(norm_warps<T, V, PACKS, true>, limit, bytes);
    if constexpr (PACKS > 1)
        if (e == cudaSuccess) e = prepare_warps<T, PACKS - 1>();
    return e;
}

template <typename T> static cudaError_t prepare_type(int shared_bytes_max)
{
    const cudaFuncAttribute limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    constexpr int V = full_pack<T>();
    cudaError_t e = prepare_warps<T, MAX_PACKS>();
    if (e == cudaSuccess) e = cudaFuncSetAttribute(norm_long<T, V, false>, limit, shared_bytes_max);
    return e != cudaSuccess ? e
                            : cudaFuncSetAttribute(norm_long<T, V, true>, limit, shared_bytes_max);
}

cudaError_t yk_cuda_norm_forward_prepare(int shared_bytes_max)
{
    cudaError_t e = prepare_type<float>(shared_bytes_max);
    if (e == cudaSuccess) e = prepare_type<bf16>(shared_bytes_max);
    return e != cudaSuccess ? e : prepare_type<f16>(shared_bytes_max);
}
