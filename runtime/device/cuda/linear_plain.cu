/* runtime/device/cuda/linear_plain.cu - a linear layer at sizes that cuBLASLt's epilogues do not
 * serve well.
 *
 * Where rows are no multiple of 16 bytes, cuBLASLt rounds a 16-bit product before it adds the bias,
 * or offers no epilogue, so that the result is rounded twice. Here everything happens in fp32 and
 * is rounded once. No model's sizes come here; speed does not matter. A block makes a tile of TILE
 * by TILE results, a thread EACH of one column, from tiles of both factors in shared memory; the
 * sum runs in order.
 */
#include "runtime/device/cuda/kernels.cuh"

#define TILE 32
#define EACH 4

/* A TILE by TILE part of a (rows,cols) matrix, in fp32; zeros outside. */
template <typename T>
static __device__ inline void load_square(float (&to)[TILE][TILE + 1], const T *from, int64_t row0,
                                          int64_t rows, int64_t col0, int64_t cols)
{
    for (int i = threadIdx.y; i < TILE; i += TILE / EACH) {
        bool there = row0 + i < rows && col0 + threadIdx.x < cols;
        to[i][threadIdx.x] = there ? to_float(from[(row0 + i) * cols + col0 + threadIdx.x]) : 0.0f;
    }
}

/* y = GELU(x w^T + bias), or without GELU + residual. */
template <typename T>
static __global__ void __launch_bounds__(TILE *TILE / EACH)
    linear_plain(T *y, T *z, const T *x, const T *w, const T *bias, const T *residual, int64_t m,
                 int64_t n, int64_t k, bool with_gelu)
{
    __shared__ float xs[TILE][TILE + 1], ws[TILE][TILE + 1];
    int64_t row0 = (int64_t)blockIdx.x * TILE, col0 = (int64_t)blockIdx.y * TILE;
    float sum[EACH] = {};
    for (int64_t k0 = 0; k0 < k; k0 += TILE) {
        load_square(xs, x, row0, m, k0, k);
        load_square(ws, w, col0, n, k0, k);
        __syncthreads();
        for (int l = 0; l < TILE; l++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
                sum[i] += xs[threadIdx.y * EACH + i][l] * ws[threadIdx.x][l];
        __syncthreads();
    }
    int64_t col = col0 + threadIdx.x;
    for (int i = 0; i < EACH; i++) {
        int64_t row = row0 + threadIdx.y * EACH + i, at = row * n + col;
        if (row >= m || col >= n) continue;
        float v = sum[i] + (bias ? to_float(bias[col]) : 0.0f);
        if (residual) v += to_float(residual[at]);
        T rounded = from_float<T>(v);
        if (z) z[at] = rounded;
        y[at] = with_gelu ? from_float<T>(gelu<T>(to_float(rounded))) : rounded;
    }
}

cudaError_t yk_cuda_linear_plain_forward(const yk_linear_forward_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        dim3 grid((unsigned)div_up(a->m, TILE), (unsigned)div_up(a->n, TILE));
        linear_plain<T><<<grid, dim3(TILE, TILE / EACH), 0, s>>>(
            (T *)a->y, (T *)a->z, (const T *)a->x, (const T *)a->w, (const T *)a->bias,
            (const T *)a->residual, a->m, a->n, a->k, a->gelu);
        return cudaGetLastError();
    });
}

/* dx = (dy w) GELU'(z). */
template <typename T>
static __global__ void __launch_bounds__(TILE *TILE / EACH)
    linear_plain_back(T *dx, const T *dy, const T *w, const T *z, int64_t m, int64_t n, int64_t k)
{
    __shared__ float dys[TILE][TILE + 1], ws[TILE][TILE + 1];
    int64_t row0 = (int64_t)blockIdx.x * TILE, col0 = (int64_t)blockIdx.y * TILE;
    float sum[EACH] = {};
    for (int64_t n0 = 0; n0 < n; n0 += TILE) {
        load_square(dys, dy, row0, m, n0, n);
        load_square(ws, w, n0, n, col0, k);
        __syncthreads();
        for (int l = 0; l < TILE; l++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
                sum[i] += dys[threadIdx.y * EACH + i][l] * ws[l][threadIdx.x];
        __syncthreads();
    }
    int64_t col = col0 + threadIdx.x;
    for (int i = 0; i < EACH; i++) {
        int64_t row = row0 + threadIdx.y * EACH + i, at = row * k + col;
        if (row < m && col < k) dx[at] = from_float<T>(sum[i] * gelu_slope<T>(to_float(z[at])));
    }
}

cudaError_t yk_cuda_linear_plain_backward(const yk_linear_backward_input_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        dim3 grid((unsigned)div_up(a->m, TILE), (unsigned)div_up(a->k, TILE));
        linear_plain_back<T><<<grid, dim3(TILE, TILE / EACH), 0, s>>>(
            (T *)a->dx, (const T *)a->dy, (const T *)a->w, (const T *)a->z, a->m, a->n, a->k);
        return cudaGetLastError();
    });
}
