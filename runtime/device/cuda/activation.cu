/* runtime/device/cuda/activation.cu - GELU and SwiGLU.
 *
 * A thread makes 16 bytes of output at a time. Bytes per element of output,
 * 16-bit: GELU reads 2 and writes 2 (its gradient reads 4); SwiGLU reads 4 and
 * writes 2; its gradient reads 6 and writes 4 per element of dy.
 */
#include "runtime/device/cuda/kernels.cuh"

#define THREADS 256

/* ---- GELU ---------------------------------------------------------------------------------- */

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS) gelu_all(T *y, const T *z, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i >= n) return;
    float e[V];
    load_floats<T, V>(z + i, e);
#pragma unroll
    for (int k = 0; k < V; k++) e[k] = gelu<T>(e[k]);
    store_floats<T, V>(y + i, e);
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS) gelu_back(T *dx, const T *z, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i >= n) return;
    float e[V], g[V];
    load_floats<T, V>(z + i, e);
    load_floats<T, V>(dx + i, g);
#pragma unroll
    for (int k = 0; k < V; k++) g[k] *= gelu_slope<T>(e[k]);
    store_floats<T, V>(dx + i, g);
}

static unsigned blocks_for(int64_t n, int v)
{
    return (unsigned)div_up(n, THREADS * (int64_t)v);
}

cudaError_t yk_cuda_gelu_forward(void *y, const void *z, int64_t n, yk_dtype dtype, cudaStream_t s)
{
    return with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        if (n % V == 0 && is_aligned(y) && is_aligned(z))
            gelu_all<T, V><<<blocks_for(n, V), THREADS, 0, s>>>((T *)y, (const T *)z, n);
        else
            gelu_all<T, 1><<<blocks_for(n, 1), THREADS, 0, s>>>((T *)y, (const T *)z, n);
        return cudaGetLastError();
    });
}

cudaError_t yk_cuda_gelu_backward(void *dx, const void *z, int64_t n, yk_dtype dtype,
                                  cudaStream_t s)
{
    return with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        if (n % V == 0 && is_aligned(dx) && is_aligned(z))
            gelu_back<T, V><<<blocks_for(n, V), THREADS, 0, s>>>((T *)dx, (const T *)z, n);
        else
            gelu_back<T, 1><<<blocks_for(n, 1), THREADS, 0, s>>>((T *)dx, (const T *)z, n);
        return cudaGetLastError();
    });
}

/* ---- SwiGLU -------------------------------------------------------------------------------- */

/* Rows along grid.y and grid.z, so that no thread divides by the number of columns. */
static __device__ inline int64_t block_row()
{
    return (int64_t)blockIdx.z * gridDim.y + blockIdx.y;
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    swiglu(T *y, const T *gate_up, int64_t rows, int64_t cols)
{
    int64_t row = block_row(), c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (row >= rows || c >= cols) return;
    float g[V], u[V];
    load_floats<T, V>(gate_up + row * 2 * cols + c, g);
    load_floats<T, V>(gate_up + row * 2 * cols + cols + c, u);
#pragma unroll
    for (int k = 0; k < V; k++) u[k] *= g[k] * sigmoid<T>(g[k]);
    store_floats<T, V>(y + row * cols + c, u);
}

/* dgate_up may be gate_up: each thread reads what it overwrites first. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    swiglu_back(T *dgate_up, const T *dy, const T *gate_up, int64_t rows, int64_t cols)
{
    int64_t row = block_row(), c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (row >= rows || c >= cols) return;
    int64_t gate = row * 2 * cols + c, up = gate + cols;
    float g[V], u[V], d[V];
    load_floats<T, V>(gate_up + gate, g);
    load_floats<T, V>(gate_up + up, u);
    load_floats<T, V>(dy + row * cols + c, d);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float p = sigmoid<T>(g[k]), silu = g[k] * p;
        float slope = p * (1.0f + g[k] * (1.0f - p));
        g[k] = d[k] * u[k] * slope;
        u[k] = d[k] * silu;
    }
    store_floats<T, V>(dgate_up + gate, g);
    store_floats<T, V>(dgate_up + up, u);
}

static unsigned threads_for(int64_t cols, int v)
{
    return (unsigned)at_most(div_up(div_up(cols, v), 32) * 32, THREADS);
}

static dim3 grid_for(int64_t rows, int64_t cols, int64_t block_cols)
{
    int64_t deep = div_up(rows, 32768);
    return dim3((unsigned)div_up(cols, block_cols), (unsigned)div_up(rows, deep), (unsigned)deep);
}

template <typename T, int V>
static cudaError_t launch_swiglu(const yk_swiglu_forward_args *a, cudaStream_t s)
{
    unsigned threads = threads_for(a->cols, V);
    swiglu<T, V><<<grid_for(a->rows, a->cols, threads * V), threads, 0, s>>>(
        (T *)a->y, (const T *)a->gate_up, a->rows, a->cols);
    return cudaGetLastError();
}

template <typename T, int V>
static cudaError_t launch_swiglu_back(const yk_swiglu_backward_args *a, cudaStream_t s)
{
    unsigned threads = threads_for(a->cols, V);
    swiglu_back<T, V><<<grid_for(a->rows, a->cols, threads * V), threads, 0, s>>>(
        (T *)a->dgate_up, (const T *)a->dy, (const T *)a->gate_up, a->rows, a->cols);
    return cudaGetLastError();
}

cudaError_t yk_cuda_swiglu_forward(const yk_swiglu_forward_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        bool wide = a->cols % V == 0 && is_aligned(a->y) && is_aligned(a->gate_up);
        return wide ? launch_swiglu<T, V>(a, s) : launch_swiglu<T, 1>(a, s);
    });
}

cudaError_t yk_cuda_swiglu_backward(const yk_swiglu_backward_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        bool wide = a->cols % V == 0 && is_aligned(a->dgate_up) && is_aligned(a->gate_up) &&
                    is_aligned(a->dy);
        return wide ? launch_swiglu_back<T, V>(a, s) : launch_swiglu_back<T, 1>(a, s);
    });
}
