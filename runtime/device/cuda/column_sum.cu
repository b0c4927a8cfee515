/* runtime/device/cuda/column_sum.cu - sums over the rows of a matrix, in a fixed order.
 *
 * Used for gradients of bias where the product's epilogue does not bring them, and to add up the
 * partial sums of other kernels. Rows are cut into parts, a block sums the columns of one part, and
 * sum_parts adds the parts: each of its threads takes every 32nd, then the 32 are added in order.
 *
 * Bytes per element: read once. There are as many blocks as run at one time, so that parts are few and
 * adding them up costs a launch and one wait for memory; and each thread has several rows on the way,
 * those beyond the end of its part counting as zeros, so that no row is waited for alone. Both kernels
 * come early.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define THREADS 512
#define BLOCKS  2  /* that run on a multiprocessor at one time */
#define ROWS    8  /* on the way to a thread of sum_part */
#define COLUMNS 16 /* of a block of sum_parts */
#define SHARES  32
#define PARTS   8 /* on the way to a thread of sum_parts */

/* parts is (gridDim.y, N). Neighbouring threads own neighbouring packs of columns; the block's row
 * groups take every `groups`-th row of the part and are added in order at the end, by a thread for
 * each column. The 4 keeps what a warp reads then in different banks. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    sum_part(float *parts, const T *__restrict__ x, int64_t m, int64_t n, int64_t part_rows)
{
    __shared__ float group_sums[V][THREADS + 4];
    int lanes = blockDim.x, group = threadIdx.y, groups = blockDim.y;
    int thread = group * lanes + threadIdx.x;
    int64_t c = ((int64_t)blockIdx.x * lanes + threadIdx.x) * V;
    let_next_kernel_come();
    wait_for_kernel_before();
    int64_t r = (int64_t)blockIdx.y * part_rows, end = r + part_rows < m ? r + part_rows : m;
    float sum[V] = {};
    for (r += group; c < n && r < end; r += ROWS * groups) {
        pack<T, V> p[ROWS] = {};
#pragma unroll
        for (int u = 0; u < ROWS; u++)
            if (r + u * groups < end) p[u] = load<T, V>(x + (r + u * groups) * n + c);
#pragma unroll
        for (int u = 0; u < ROWS; u++) {
            float e[V];
            unpack<T, V>(p[u], e);
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += e[i];
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++) group_sums[i][thread] = sum[i];
    __syncthreads();
    c = (int64_t)blockIdx.x * lanes * V + thread;
    if (thread >= lanes * V || c >= n) return;
    float total = 0;
#pragma unroll 8
    for (int g = 0; g < groups; g++) total += group_sums[thread % V][g * lanes + thread / V];
    parts[(int64_t)blockIdx.y * n + c] = total;
}

template <typename T>
static __global__ void __launch_bounds__(COLUMNS *SHARES)
    sum_parts(T *out, const float *parts, int64_t n_parts, int64_t stride, int64_t n,
              bool accumulate)
{
    __shared__ float share[SHARES][COLUMNS];
    int64_t c = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0;
    let_next_kernel_come();
    wait_for_kernel_before();
    for (int64_t p = threadIdx.y; c < n && p < n_parts; p += PARTS * SHARES) {
        float e[PARTS];
#pragma unroll
        for (int u = 0; u < PARTS; u++)
            e[u] = p + u * SHARES < n_parts ? parts[(p + u * SHARES) * stride + c] : 0;
#pragma unroll
        for (int u = 0; u < PARTS; u++) sum += e[u];
    }
    share[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || c >= n) return;
    for (int i = 1; i < SHARES; i++) sum += share[i][threadIdx.x];
    if (accumulate) sum += to_float(out[c]);
    out[c] = from_float<T>(sum);
}

cudaError_t yk_cuda_sum_parts(void *out, const float *parts, int64_t n_parts, int64_t stride,
                              int64_t n, bool accumulate, yk_dtype out_dtype, cudaStream_t s)
{
    return with_type(out_dtype, [&](auto zero) {
        using T = decltype(zero);
        return launch_early(sum_parts<T>, dim3((unsigned)div_up(n, COLUMNS)), dim3(COLUMNS, SHARES),
                            0, s, (T *)out, parts, n_parts, stride, n, accumulate);
    });
}

template <typename T, int V>
static cudaError_t launch_parts(float *parts, const void *x, int64_t m, int64_t n, int64_t n_parts,
                                cudaStream_t s)
{
    int lanes = YK_CUDA_COLUMN_SUM_COLUMNS / V;
    while (lanes > 8 && lanes / 2 * V >= n) lanes /= 2;
    dim3 threads((unsigned)lanes, (unsigned)(THREADS / lanes));
    dim3 grid((unsigned)div_up(n, lanes * V), (unsigned)n_parts);
    return launch_early(sum_part<T, V>, grid, threads, 0, s, parts, (const T *)x, m, n,
                        div_up(m, n_parts));
}

cudaError_t yk_cuda_column_sum(void *out, const void *x, int64_t m, int64_t n, bool accumulate,
                               yk_dtype dtype, yk_dtype out_dtype, void *ws, cudaStream_t s)
{
    float *parts = (float *)ws;
    int64_t n_parts = yk_cuda_column_sum_parts(m, n);
    cudaError_t e = with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        return n % V == 0 && is_aligned(x) ? launch_parts<T, V>(parts, x, m, n, n_parts, s)
                                           : launch_parts<T, 1>(parts, x, m, n, n_parts, s);
    });
    if (e != cudaSuccess) return e;
    return yk_cuda_sum_parts(out, parts, n_parts, n, n, accumulate, out_dtype, s);
}
