/* runtime/device/cuda/embed.cu - embedding, forward and backward.
 *
 * Forward is a gather: a thread makes 16 bytes of each of ROWS rows, all of which it asks for
 * before it waits for the first. Bytes per element of y, 16-bit: read 2 (the token's row; positions
 * come from the cache), write 2.
 *
 * Backward sums the rows of dy that share a token, in order of row, and those that share a
 * position. Rows are sorted by both (embed_sort.cu, which makes rows that no token names zero) and
 * cut into chunks of equal length, so that a frequent token costs no more than rare ones. A warp
 * sums the runs of a chunk in a group of columns, and the rest in the next chunk of the last of
 * them. Of runs in three chunks or more each leaves the sum of a part in fp32, and the warp that is
 * last to come adds them up in order of chunks, so that who it is makes no difference. Groups of
 * columns follow one another, and in a group chunks of tokens and of positions take turns, so that
 * dy is read once, and from the cache for the other table. While rows are sorted the first group
 * comes into the cache, unless zeros are written then. Bytes per element of dy: read 2; write the
 * rows that occur, which are read before if they accumulate.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define ROWS  4 /* of a block of the forward pass */
#define CHUNK YK_CUDA_EMBED_CHUNK
#define WARPS 4 /* of a block of the backward pass */
#define BATCH 8 /* rows of dy that a lane asks for at a time */
#define LINE  8 /* packs that belong together: 128 bytes */

#define ALL_LANES 0xffffffffu

/* ---- forward ------------------------------------------------------------------------------- */

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

/* ---- backward ------------------------------------------------------------------------------ */

/* One table, and its rows of dy sorted. */
typedef struct table {
    void *grad;                 /* (n_keys,C) */
    const int32_t *keys, *rows; /* (n) */
    float *parts; /* (chunks,2,C): of a run that began before the chunk, and of one that goes on */
    unsigned
        *arrived; /* (chunks,groups): parts that are there, of the run that begins in the chunk */
    bool accumulate;
} table;

typedef struct tables {
    table of[2];
    int n;
} tables;

/* What a warp knows of its chunk. Rows are numbered from its first on; those of the next chunk that
 * belong to a run that begins here and ends there are summed here, if it needs no third chunk. */
typedef struct chunk {
    int64_t at;       /* its number */
    int begin, end;   /* rows to sum */
    int32_t key, row; /* of row `lane`, and of the next chunk's row `lane` */
    int32_t next_key, next_row;
    int32_t first_key, last_key;
    uint64_t stops; /* bit i: row i is the last of a run, or of what is here of it */
    uint64_t whole; /* and all of the run is here */
    bool part[2]; /* the first run begins before the chunk before; the last ends behind the next */
} chunk;

/* Key i of the sorted, or -1 where there is none. */
static __device__ inline int32_t key_or_none(const table &t, int64_t i, int64_t n)
{
    return i >= 0 && i < n ? __ldg(t.keys + i) : -1;
}

static __device__ inline chunk find_runs(const table &t, int64_t at, int64_t n, int lane)
{
    chunk k = {.at = at};
    int64_t begin = at * CHUNK, end = begin + CHUNK;
    int count = (int)(n - begin < CHUNK ? n - begin : CHUNK);
    k.key = key_or_none(t, begin + lane, n);
    k.next_key = key_or_none(t, end + lane, n);
    k.row = begin + lane < n ? __ldg(t.rows + begin + lane) : 0;
    k.next_row = end + lane < n ? __ldg(t.rows + end + lane) : 0;
    int32_t before = key_or_none(t, begin - 1, n), far_after = key_or_none(t, end + CHUNK, n);
    int32_t far_before = key_or_none(t, begin - CHUNK - 1, n);
    int32_t first_before = key_or_none(t, begin - CHUNK, n);
    int32_t after = __shfl_sync(ALL_LANES, k.next_key, 0);
    int32_t beside = __shfl_down_sync(ALL_LANES, k.key, 1);
    k.first_key = __shfl_sync(ALL_LANES, k.key, 0);
    k.last_key = __shfl_sync(ALL_LANES, k.key, count - 1);
    int taken = __popc(__ballot_sync(ALL_LANES, k.next_key == k.last_key));
    unsigned stops =
        __ballot_sync(ALL_LANES, lane < count && (lane == count - 1 || beside != k.key));
    bool from_before = k.first_key == before, goes_on = k.last_key == after;
    bool through = from_before && goes_on && !(stops & (stops - 1));
    bool from_far = k.first_key == far_before && k.first_key == first_before;
    k.part[0] = from_before && (through || from_far);
    k.part[1] = goes_on && !through && taken == CHUNK && k.last_key == far_after;
    k.begin = from_before && !k.part[0] ? __ffs(stops) : 0;
    k.end = count + (goes_on && !through && !k.part[1] ? taken : 0);
    k.stops = (stops & ~(1u << (count - 1)) & ~((uint64_t(1) << k.begin) - 1)) | uint64_t(1)
                                                                                     << (k.end - 1);
    if (k.begin == k.end) k.stops = 0;
    k.whole = k.stops;
    if (k.part[0]) k.whole &= k.whole - 1;
    if (k.part[1]) k.whole &= ~(uint64_t(1) << (k.end - 1));
    return k;
}

/* How many edges in a row, from edge `edge` on by `step`, lie within the run of `key`; edge e lies
 * between chunks e - 1 and e. */
static __device__ inline int64_t edges_within(const table &t, int32_t key, int64_t edge, int step,
                                              int64_t n, int lane)
{
    for (int64_t far = 0;; far += 32) {
        int64_t e = edge + step * (far + lane);
        bool in = e > 0 && e * CHUNK < n && __ldg(t.keys + e * CHUNK - 1) == key &&
                  __ldg(t.keys + e * CHUNK) == key;
        unsigned out = ~__ballot_sync(ALL_LANES, in);
        if (out) return far + __ffs(out) - 1;
    }
}

/* The sum `f` of a whole run, and what was there or zeros, to a row. */
template <typename G, int V>
static __device__ inline void put_sum(G *to, float (&f)[V], const pack<G, V> &old)
{
    typedef typename pack<G, V>::word word;
    float was[V];
    unpack<G, V>(old, was);
#pragma unroll
    for (int i = 0; i < V; i++) f[i] += was[i];
    __stwb(reinterpret_cast<word *>(to),
           to_pack<G, V>(f).w); /* one access, which a plain one is not */
}

/* A part's sum, which another multiprocessor may have written in this launch. */
template <int V> static __device__ inline void load_part(const float *p, float (&f)[V])
{
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            float4 q = __ldcg(reinterpret_cast<const float4 *>(p + i));
            f[i] = q.x, f[i + 1] = q.y, f[i + 2] = q.z, f[i + 3] = q.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) f[i] = __ldcg(p + i);
    }
}

/* Add up the parts of a run in chunks first .. last. */
template <typename G, int V>
static __device__ inline void add_parts(const table &t, int32_t key, int64_t first, int64_t last,
                                        int64_t cols, int64_t c)
{
    G *to = (G *)t.grad + key * cols + c;
    pack<G, V> old = {};
    if (t.accumulate) old = load<G, V>(to);
    float sum[V];
    load_part<V>(t.parts + (2 * first + 1) * cols + c, sum);
    for (int64_t at = first + 1; at <= last; at += BATCH) {
        float more[BATCH][V];
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (at + u <= last) load_part<V>(t.parts + 2 * (at + u) * cols + c, more[u]);
#pragma unroll
        for (int u = 0; u < BATCH; u++) {
            if (at + u > last) break;
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += more[u][i];
        }
    }
    put_sum<G, V>(to, sum, old);
}

/* The part of a run that lies at one side of chunk k is there: if it is the last of them to come,
 * add them all up. */
template <typename G, int V>
static __device__ inline void hand_in_part(const table &t, const chunk &k, int side, int64_t n,
                                           int64_t cols, int64_t c, int lane)
{
    int32_t key = side ? k.last_key : k.first_key;
    int64_t edge = k.at + side;
    int64_t first = edge - edges_within(t, key, edge, -1, n, lane);
    int64_t last = edge + edges_within(t, key, edge, 1, n, lane) - 1;
    unsigned before = 0;
    __threadfence();
    __syncwarp();
    if (lane == 0) before = atomicAdd(t.arrived + first * gridDim.y + blockIdx.y, 1u);
    if (__shfl_sync(ALL_LANES, before, 0) != (unsigned)(last - first)) return;
    __threadfence();
    if (c < cols) add_parts<G, V>(t, key, first, last, cols, c);
}

/* The runs of chunk k in V columns of a lane, to `grad` or `parts`, whose first row is the chunk's.
 * Rows and keys are in shared memory; after the last stands a row that can be read. */
template <typename T, typename G, int V>
static __device__ inline void sum_chunk(G *grad, float *parts, const T *dy, const int32_t *rows,
                                        const int32_t *keys, const chunk &k, unsigned cols,
                                        bool accumulate)
{
    float sum[V] = {};
    bool before = k.part[0];
    for (int base = k.begin; base < k.end; base += BATCH) {
        unsigned stops = (unsigned)(k.stops >> base), whole = (unsigned)(k.whole >> base);
        pack<T, V> x[BATCH];
        pack<G, V> old[BATCH] = {};
        if (accumulate) {
#pragma unroll
            for (int u = 0; u < BATCH; u++)
                if (whole >> u & 1)
                    old[u] = load<G, V>(grad + (uint64_t)(unsigned)keys[base + u] * cols);
        }
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            x[u] = load<T, V>(dy + (uint64_t)(unsigned)rows[base + u] * cols);
#pragma unroll
        for (int u = 0; u < BATCH; u++) {
            float f[V];
            unpack<T, V>(x[u], f);
#pragma unroll
            for (int e = 0; e < V; e++) sum[e] += f[e];
            if (!(stops >> u & 1)) continue;
            if (whole >> u & 1)
                put_sum<G, V>(grad + (uint64_t)(unsigned)keys[base + u] * cols, sum, old[u]);
            else
                store_f32<V>(parts + (before ? 0 : cols), sum);
            before = false;
#pragma unroll
            for (int e = 0; e < V; e++) sum[e] = 0;
        }
    }
}

/* The lane's first column, or one behind the last: whole lines are dealt out to groups evenly, so
 * that none is narrow and takes as long as a wide one. */
template <int V> static __device__ inline int64_t column_of(int64_t cols, int lane)
{
    unsigned lines = ((unsigned)cols + LINE * V - 1) / (LINE * V);
    unsigned first = blockIdx.y * lines / gridDim.y * LINE;
    unsigned behind = (blockIdx.y + 1) * lines / gridDim.y * LINE;
    return first + lane < behind ? (int64_t)(first + lane) * V : cols;
}

/* A warp sums the runs of a chunk of a table in up to 32 V columns. */
template <typename T, typename G, int V>
static __global__ void __launch_bounds__(32 * WARPS, 4)
    sum_runs(const __grid_constant__ tables both, const T *__restrict__ dy, int64_t n, int64_t cols)
{
    __shared__ int32_t rows[WARPS][2 * CHUNK + BATCH], keys[WARPS][2 * CHUNK + BATCH];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const table &t = both.of[blockIdx.x % both.n];
    int64_t at = (int64_t)(blockIdx.x / both.n) * WARPS + warp;
    let_next_kernel_come();
    wait_for_kernel_before();
    if (at * CHUNK >= n) return;
    int64_t c = column_of<V>(cols, lane);
    chunk k = find_runs(t, at, n, lane);
    rows[warp][lane] = k.row, rows[warp][CHUNK + lane] = k.next_row;
    keys[warp][lane] = k.key, keys[warp][CHUNK + lane] = k.next_key;
    if (lane < BATCH) rows[warp][2 * CHUNK + lane] = 0;
    __syncwarp();
    if (c < cols)
        sum_chunk<T, G, V>((G *)t.grad + c, t.parts + 2 * at * cols + c, dy + c, rows[warp],
                           keys[warp], k, (unsigned)cols, t.accumulate);
    __syncwarp();
    for (int side = 0; side < 2; side++)
        if (k.part[side]) hand_in_part<G, V>(t, k, side, n, cols, c, lane);
}

template <typename T, typename G, int V>
static cudaError_t launch_backward(const yk_embed_backward_args *a, void *ws, cudaStream_t s)
{
    yk_cuda_embed_layout l = yk_cuda_embed_plan(a->rows, a->cols);
    int64_t groups = div_up(a->cols, 32 * V);
    tables both = {};
    yk_cuda_sort sorts[2] = {};
    both.n = a->dwpe ? 2 : 1;
    for (int i = 0; i < both.n; i++) {
        char *at = (char *)ws + i * l.bytes;
        void *grad = i ? a->dwpe : a->dwte;
        bool accumulate = i ? a->accumulate_wpe : a->accumulate_wte;
        sorts[i] = {.keys = i ? a->positions : a->tokens,
                    .sorted = (int32_t *)(at + l.sorted),
                    .rows = (int32_t *)(at + l.rows),
                    .list = at + l.list,
                    .counters = (unsigned *)(at + l.arrived),
                    .zero = accumulate ? NULL : grad,
                    .n_counters = l.n_chunks * groups,
                    .n_keys = i ? a->max_positions : a->vocab,
                    .row_bytes = a->cols * (int64_t)sizeof(G)};
        both.of[i] = {.grad = grad,
                      .keys = sorts[i].sorted,
                      .rows = sorts[i].rows,
                      .parts = (float *)(at + l.parts),
                      .arrived = sorts[i].counters,
                      .accumulate = accumulate};
    }
    int64_t lines = div_up(a->cols, LINE * V);
    yk_cuda_ahead ahead = {.from = a->dy,
                           .stride = a->cols * (int64_t)sizeof(T),
                           .width = lines / groups * LINE * V * (int64_t)sizeof(T)};
    cudaError_t e = yk_cuda_sort_rows(sorts, both.n, a->rows, a->accumulate_wte ? &ahead : NULL, s);
    if (e != cudaSuccess) return e;
    dim3 grid((unsigned)(both.n * div_up(l.n_chunks, WARPS)), (unsigned)groups);
    return launch_early(sum_runs<T, G, V>, grid, dim3(32 * WARPS), 0, s, both, (const T *)a->dy,
                        a->rows, a->cols);
}

cudaError_t yk_cuda_embed_backward(const yk_embed_backward_args *a, void *ws, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        return with_type(a->grad_dtype, [&](auto grad_zero) {
            using G = decltype(grad_zero);
            constexpr int V = sizeof(T) < sizeof(G) ? 16 / (int)sizeof(G) : full_pack<T>();
            bool wide = a->cols % full_pack<T>() == 0 && is_aligned(a->dwte) &&
                        is_aligned(a->dwpe) && is_aligned(a->dy);
            return wide ? launch_backward<T, G, V>(a, ws, s) : launch_backward<T, G, 1>(a, ws, s);
        });
    });
}
