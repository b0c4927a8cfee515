/* runtime/device/cuda/embed.cu - embedding, forward and backward.
 *
 * Forward is a gather: a thread makes 16 bytes of each of ROWS rows, all of
 * which it asks for before it waits for the first. Bytes per element of y,
 * 16-bit: read 2 (the token's row; positions come from the cache), write 2.
 *
 * Backward sums the rows of dy that share a token, in order of row. Rows are
 * sorted by token (embed_sort.cu, which makes rows that no token names zero)
 * and cut into chunks of equal length, so that a frequent token costs no more
 * than rare ones. A chunk writes the sums of runs that lie within it; a run
 * that crosses a chunk's edge leaves partial sums in fp32, which a second
 * kernel adds up in order of chunks. Bytes per element of dy: read 2; write the
 * rows that occur; edges add 8 / YK_CUDA_EMBED_CHUNK twice.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define ROWS  4 /* of a block of the forward pass */
#define CHUNK YK_CUDA_EMBED_CHUNK

/* ---- forward
 * ------------------------------------------------------------------------------
 */

template <typename T, int V>
static __global__ void __launch_bounds__(256)
    embed_rows(T *__restrict__ y, const T *__restrict__ wte, const T *__restrict__ wpe,
               const int32_t *__restrict__ tokens, const int32_t *__restrict__ positions,
               int64_t rows, int cols)
{
    int64_t first = (int64_t)blockIdx.x * ROWS;
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
        pack<T, V> token[ROWS] = {}, position[ROWS] = {};
#pragma unroll
        for (int u = 0; u < ROWS; u++)
            if (first + u < rows) {
                token[u] = load<T, V>(wte + (int64_t)tokens[first + u] * cols + c);
                if (wpe) position[u] = load<T, V>(wpe + (int64_t)positions[first + u] * cols + c);
            }
#pragma unroll
        for (int u = 0; u < ROWS; u++) {
            if (first + u >= rows) break;
            T *to = y + (first + u) * cols + c;
            if (!wpe) {
                store<T, V>(to, token[u]);
                continue;
            }
            float e[V], p[V];
            unpack<T, V>(token[u], e);
            unpack<T, V>(position[u], p);
#pragma unroll
            for (int i = 0; i < V; i++) e[i] += p[i];
            store_floats<T, V>(to, e);
        }
    }
}

template <typename T, int V>
static cudaError_t launch_embed(const yk_embed_forward_args *a, cudaStream_t s)
{
    int64_t threads = at_most(div_up(a->cols / V, 32) * 32, 256);
    if (threads < 32) threads = 32;
    embed_rows<T, V><<<(unsigned)div_up(a->rows, ROWS), (unsigned)threads, 0, s>>>(
        (T *)a->y, (const T *)a->wte, (const T *)a->wpe, a->tokens, a->positions, a->rows,
        (int)a->cols);
    return cudaGetLastError();
}

cudaError_t yk_cuda_embed_forward(const yk_embed_forward_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = full_pack<T>();
        bool wide =
            a->cols % V == 0 && is_aligned(a->y) && is_aligned(a->wte) && is_aligned(a->wpe);
        return wide ? launch_embed<T, V>(a, s) : launch_embed<T, 1>(a, s);
    });
}

/* ---- backward
 * -----------------------------------------------------------------------------
 */

/* The sum `f` of a whole run into row `key` of dw. */
template <typename G, int V>
static __device__ void put_row(G *dw, int64_t key, int64_t cols, int64_t c, float (&f)[V],
                               bool accumulate)
{
    G *to = dw + key * cols + c;
    if (accumulate) {
        float old[V];
        load_floats<G, V>(to, old);
#pragma unroll
        for (int i = 0; i < V; i++) f[i] += old[i];
    }
    store_floats<G, V>(to, f);
}

/* Sum the runs of chunk blockIdx.x. edges is (chunks,2,C) fp32: of a run that
 * began before the chunk, and of one that goes on after it and began inside. */
template <typename T, typename G, int V>
static __global__ void sum_chunks(G *dw, float *edges, const T *dy, const int32_t *keys,
                                  const int32_t *rows, int64_t n, int64_t cols, bool accumulate)
{
    __shared__ int32_t key[CHUNK + 2]; /* with the neighbours on both sides, -1
                                        where there is none */
    __shared__ int32_t row[CHUNK];
    int64_t begin = (int64_t)blockIdx.x * CHUNK;
    int count = (int)(n - begin < CHUNK ? n - begin : CHUNK);
    for (int i = threadIdx.x; i < count + 2; i += blockDim.x) {
        int64_t at = begin + i - 1;
        key[i] = at >= 0 && at < n ? keys[at] : -1;
        if (i < count) row[i] = rows[begin + i];
    }
    __syncthreads();
    int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (c >= cols) return;
    float sum[V] = {};
    int run = 0; /* where the present run begins in this chunk */
    for (int base = 0; base < count; base += 4) {
        float x[4][V];
#pragma unroll
        for (int u = 0; u < 4; u++)
            if (base + u < count) load_floats<T, V>(dy + (int64_t)row[base + u] * cols + c, x[u]);
#pragma unroll
        for (int u = 0; u < 4; u++) {
            int i = base + u;
            if (i >= count) break;
#pragma unroll
            for (int k = 0; k < V; k++) sum[k] += x[u][k];
            bool ends = key[i + 2] != key[i + 1];
            if (!ends && i + 1 < count) continue;
            bool from_before = run == 0 && key[0] == key[1];
            if (ends && !from_before) {
                put_row<G, V>(dw, key[i + 1], cols, c, sum, accumulate);
            } else {
                int side = from_before ? 0 : 1;
                store_f32<V>(edges + ((int64_t)blockIdx.x * 2 + side) * cols + c, sum);
            }
            run = i + 1;
#pragma unroll
            for (int k = 0; k < V; k++) sum[k] = 0;
        }
    }
}

/* Finish the run that begins in chunk blockIdx.x and goes on after it. */
template <typename G, int V>
static __global__ void join_chunks(G *dw, const float *edges, const int32_t *keys, int64_t n,
                                   int64_t cols, bool accumulate)
{
    int64_t begin = (int64_t)blockIdx.x * CHUNK, end = begin + CHUNK;
    if (end >= n) return;
    int32_t key = keys[end - 1];
    if (keys[end] != key) return;
    if (begin > 0 && keys[begin - 1] == key && keys[begin] == key) return; /* began before */
    int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (c >= cols) return;
    float sum[V], more[V];
    load_f32<V>(edges + ((int64_t)blockIdx.x * 2 + 1) * cols + c, sum);
    for (int64_t chunk = blockIdx.x + 1;; chunk++) {
        load_f32<V>(edges + chunk * 2 * cols + c, more);
#pragma unroll
        for (int i = 0; i < V; i++) sum[i] += more[i];
        int64_t next = (chunk + 1) * CHUNK;
        if (next >= n || keys[next] != key) break;
    }
    put_row<G, V>(dw, key, cols, c, sum, accumulate);
}

template <typename T, typename G, int V>
static cudaError_t launch_sums(const yk_embed_backward_args *a, G *dw, const int32_t *keys,
                               int64_t n_keys, bool accumulate, void *ws, cudaStream_t s)
{
    const int32_t *sorted, *rows;
    cudaError_t e = yk_cuda_sort_rows(keys, a->rows, n_keys, accumulate ? nullptr : dw,
                                      a->cols * (int64_t)sizeof(G), ws, &sorted, &rows, s);
    if (e != cudaSuccess) return e;
    float *edges = (float *)((char *)ws + yk_cuda_sort_bytes(a->rows));
    int64_t threads = at_most(div_up(div_up(a->cols, V), 32) * 32, 256);
    dim3 grid((unsigned)div_up(a->rows, CHUNK), (unsigned)div_up(a->cols, threads * V));
    sum_chunks<T, G, V><<<grid, (unsigned)threads, 0, s>>>(dw, edges, (const T *)a->dy, sorted,
                                                           rows, a->rows, a->cols, accumulate);
    join_chunks<G, V>
        <<<grid, (unsigned)threads, 0, s>>>(dw, edges, sorted, a->rows, a->cols, accumulate);
    return cudaGetLastError();
}

template <typename T, typename G>
static cudaError_t launch_backward(const yk_embed_backward_args *a, void *dw, const int32_t *keys,
                                   int64_t n_keys, bool accumulate, void *ws, cudaStream_t s)
{
    constexpr int V = sizeof(T) < sizeof(G) ? 16 / (int)sizeof(G) : full_pack<T>();
    bool wide = a->cols % full_pack<T>() == 0 && is_aligned(dw) && is_aligned(a->dy);
    return wide ? launch_sums<T, G, V>(a, (G *)dw, keys, n_keys, accumulate, ws, s)
                : launch_sums<T, G, 1>(a, (G *)dw, keys, n_keys, accumulate, ws, s);
}

cudaError_t yk_cuda_embed_backward(const yk_embed_backward_args *a, void *ws, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        return with_type(a->grad_dtype, [&](auto grad_zero) {
            using G = decltype(grad_zero);
            cudaError_t e =
                launch_backward<T, G>(a, a->dwte, a->tokens, a->vocab, a->accumulate_wte, ws, s);
            if (e != cudaSuccess || !a->dwpe) return e;
            return launch_backward<T, G>(a, a->dwpe, a->positions, a->max_positions,
                                         a->accumulate_wpe, ws, s);
        });
    });
}
