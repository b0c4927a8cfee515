/* runtime/device/cuda/attention_plain.cu - causal attention without matrix
 * instructions, for fp32 and for head sizes that the others do not take.
 *
 * A warp owns ROWS rows (queries; keys in the pass for dK and dV) and goes
 * through tiles of 32 of the other kind in shared memory, one a lane: a lane
 * makes the scores of its column, then lanes own columns of the head and take
 * each weight from the lane that has it. All in fp32, in order of position,
 * nothing shared between blocks.
 *
 * COLS is how many columns a lane owns: 4 for heads of up to 128, 8 for those of up to 256.
 *
 * Operations: forward 2 T^2 D a head, backward 7 T^2 D (scores and their
 * gradients twice). Bound by shared memory at five loads for 16
 * multiplications.
 */
#include <type_traits>

#include "runtime/device/cuda/kernels.cuh"

#define ROWS       4
#define WARPS      4
#define BLOCK_ROWS (ROWS * WARPS)
#define THREADS    (32 * WARPS)
#define LANES      32
#define BLOCKS     3 /* of a multiprocessor, at least: with more, numbers would leave registers */

typedef struct plain_shape {
    int64_t seq_len, qkv_stride, y_stride;
    int heads, kv_heads, head_size, padded; /* padded: head size rounded up to 4 */
    float scale;
} plain_shape;

/* `n_rows` rows of a head into shared memory as fp32, `pitch` floats apart; zeros past the end. As many
 * loads of a thread are under way at a time as there are registers for. */
template <int COLS, typename T>
static __device__ void load_rows(float *to, int pitch, int n_rows, const T *from, int64_t stride,
                                 int64_t row0, const plain_shape &s)
{
    constexpr int LOADS = COLS == 4 ? 4 : 2;
#pragma unroll(LOADS)
    for (int i = threadIdx.x; i < n_rows * s.padded; i += THREADS) {
        int row = i / s.padded, c = i - row * s.padded;
        bool there = row0 + row < s.seq_len && c < s.head_size;
        to[row * pitch + c] = there ? to_float(from[(row0 + row) * stride + c]) : 0.0f;
    }
}

/* dot[r] = the lane's row of `tile` with row r of `rows`. */
static __device__ inline void dot_rows(float (&dot)[ROWS], const float *tile, const float *rows,
                                       const plain_shape &s)
{
    const float *mine = tile + (threadIdx.x & 31) * (s.padded + 4);
#pragma unroll
    for (int r = 0; r < ROWS; r++) dot[r] = 0;
    for (int c = 0; c < s.padded; c += 4) {
        float4 a = *reinterpret_cast<const float4 *>(mine + c);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float4 b = *reinterpret_cast<const float4 *>(rows + r * s.padded + c);
            dot[r] += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
    }
}

/* sum[r][c] += over the tile's rows, in order: weight[r] of that row's lane times its columns. */
template <int COLS>
static __device__ inline void add_rows(float (&sum)[ROWS][COLS], const float (&weight)[ROWS],
                                       const float *tile, const plain_shape &s)
{
    int lane = threadIdx.x & 31;
    for (int k = 0; k < LANES; k++) {
        float w[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) w[r] = __shfl_sync(0xffffffffu, weight[r], k);
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            if (c * 32 >= s.padded) break;
            int at = c * 32 + lane;
            float x = at < s.padded ? tile[k * (s.padded + 4) + at] : 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; r++) sum[r][c] += w[r] * x;
        }
    }
}

template <typename T, int COLS>
static __device__ inline void put_row(T *to, const float (&sum)[COLS], float scale,
                                      const plain_shape &s)
{
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        int at = c * 32 + (threadIdx.x & 31);
        if (at < s.head_size) to[at] = from_float<T>(sum[c] * scale);
    }
}

static __device__ inline float warp_max(float x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

/* The head's q, and k of its group, in the sequence of `batch`. */
template <typename T> struct head_rows {
    const T *q, *k, *v;

    __device__ head_rows(const T *qkv, int64_t batch, int head, const plain_shape &s)
    {
        const T *rows = qkv + batch * s.seq_len * s.qkv_stride;
        int kv_head = head / (s.heads / s.kv_heads);
        q = rows + (int64_t)head * s.head_size;
        k = rows + (int64_t)(s.heads + kv_head) * s.head_size;
        v = k + (int64_t)s.kv_heads * s.head_size;
    }
};

/* ---- forward ------------------------------------------------------------------------------- */

template <typename T, int COLS>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    attend_plain(T *y, float *lse, const T *qkv, const int32_t *doc_start, int64_t n_tiles,
                 plain_shape s)
{
    extern __shared__ float4 shared[];
    int pitch = s.padded + 4, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *k_tile = (float *)shared, *v_tile = k_tile + LANES * pitch;
    float *q_rows = v_tile + LANES * pitch, *mine = q_rows + warp * ROWS * s.padded;
    int64_t q0 = blockIdx.x % n_tiles * BLOCK_ROWS, of_head = blockIdx.x / n_tiles;
    int64_t batch = of_head / s.heads, row0 = q0 + warp * ROWS;
    int head = (int)(of_head % s.heads);
    head_rows<T> from(qkv, batch, head, s);
    const int32_t *starts = doc_start ? doc_start + batch * s.seq_len : NULL;
    load_rows<COLS>(q_rows, s.padded, BLOCK_ROWS, from.q, s.qkv_stride, q0, s);
    float out[ROWS][COLS] = {}, top[ROWS], sum[ROWS];
    int64_t first[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        top[r] = -INFINITY;
        sum[r] = 0;
        first[r] = starts && row0 + r < s.seq_len ? starts[row0 + r] : 0;
    }
    int64_t key0 = starts ? starts[q0] / LANES * LANES : 0;
    for (; key0 < q0 + BLOCK_ROWS && key0 < s.seq_len; key0 += LANES) {
        __syncthreads();
        load_rows<COLS>(k_tile, pitch, LANES, from.k, s.qkv_stride, key0, s);
        load_rows<COLS>(v_tile, pitch, LANES, from.v, s.qkv_stride, key0, s);
        __syncthreads();
        float p[ROWS];
        dot_rows(p, k_tile, mine, s);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int64_t key = key0 + lane;
            float score = key <= row0 + r && key >= first[r] ? p[r] * s.scale : -INFINITY;
            float high = fmaxf(top[r], warp_max(score));
            p[r] = high == -INFINITY ? 0.0f : expf(score - high);
            float shrink = high == -INFINITY ? 1.0f : expf(top[r] - high);
            sum[r] = sum[r] * shrink + warp_sum(p[r]);
            top[r] = high;
#pragma unroll
            for (int c = 0; c < COLS; c++) out[r][c] *= shrink;
        }
        add_rows(out, p, v_tile, s);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (row0 + r >= s.seq_len) break;
        put_row(y + (batch * s.seq_len + row0 + r) * s.y_stride + (int64_t)head * s.head_size,
                out[r], 1.0f / sum[r], s);
        if (lane == 0) lse[of_head * s.seq_len + row0 + r] = top[r] + logf(sum[r]);
    }
}

/* ---- backward ------------------------------------------------------------------------------ */

/* row_sums (B,H,T): one warp a row of one head. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    sum_plain(float *row_sums, const T *dy, const T *y, int64_t n_rows, plain_shape s)
{
    int64_t item = ((int64_t)blockIdx.x * THREADS + threadIdx.x) >> 5;
    if (item >= n_rows * s.heads) return;
    int64_t row = item / s.heads, head = item % s.heads;
    int64_t at = row * s.y_stride + head * s.head_size;
    float sum = 0;
    for (int c = threadIdx.x & 31; c < s.head_size; c += 32)
        sum += to_float(dy[at + c]) * to_float(y[at + c]);
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0)
        row_sums[(row / s.seq_len * s.heads + head) * s.seq_len + row % s.seq_len] = sum;
}

template <typename T, int COLS>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    queries_plain(T *dqkv, const T *dy, const float *lse, const float *row_sums, const T *qkv,
                  const int32_t *doc_start, int64_t n_tiles, plain_shape s)
{
    extern __shared__ float4 shared[];
    int pitch = s.padded + 4, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *k_tile = (float *)shared, *v_tile = k_tile + LANES * pitch;
    float *q_rows = v_tile + LANES * pitch, *dy_rows = q_rows + BLOCK_ROWS * s.padded;
    int mine = warp * ROWS * s.padded;
    int64_t q0 = blockIdx.x % n_tiles * BLOCK_ROWS, of_head = blockIdx.x / n_tiles;
    int64_t batch = of_head / s.heads, row0 = q0 + warp * ROWS;
    int head = (int)(of_head % s.heads);
    head_rows<T> from(qkv, batch, head, s);
    const int32_t *starts = doc_start ? doc_start + batch * s.seq_len : NULL;
    load_rows<COLS>(q_rows, s.padded, BLOCK_ROWS, from.q, s.qkv_stride, q0, s);
    load_rows<COLS>(dy_rows, s.padded, BLOCK_ROWS,
                    dy + batch * s.seq_len * s.y_stride + (int64_t)head * s.head_size, s.y_stride,
                    q0, s);
    float dq[ROWS][COLS] = {}, log_sum[ROWS], row_sum[ROWS];
    int64_t first[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        bool there = row0 + r < s.seq_len;
        first[r] = starts && there ? starts[row0 + r] : 0;
        log_sum[r] = there ? lse[of_head * s.seq_len + row0 + r] : 0.0f;
        row_sum[r] = there ? row_sums[of_head * s.seq_len + row0 + r] : 0.0f;
    }
    int64_t key0 = starts ? starts[q0] / LANES * LANES : 0;
    for (; key0 < q0 + BLOCK_ROWS && key0 < s.seq_len; key0 += LANES) {
        __syncthreads();
        load_rows<COLS>(k_tile, pitch, LANES, from.k, s.qkv_stride, key0, s);
        load_rows<COLS>(v_tile, pitch, LANES, from.v, s.qkv_stride, key0, s);
        __syncthreads();
        float p[ROWS], dp[ROWS];
        dot_rows(p, k_tile, q_rows + mine, s);
        dot_rows(dp, v_tile, dy_rows + mine, s);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int64_t key = key0 + lane;
            bool seen = key <= row0 + r && key >= first[r] && row0 + r < s.seq_len;
            p[r] = seen ? expf(p[r] * s.scale - log_sum[r]) * (dp[r] - row_sum[r]) : 0.0f;
        }
        add_rows(dq, p, k_tile, s);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (row0 + r < s.seq_len)
            put_row(dqkv + (batch * s.seq_len + row0 + r) * s.qkv_stride +
                        (int64_t)head * s.head_size,
                    dq[r], s.scale, s);
}

/* dK and dV of BLOCK_ROWS keys, from all heads of the group in order. */
template <typename T, int COLS>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    keys_plain(T *dqkv, const T *dy, const float *lse, const float *row_sums, const T *qkv,
               const int32_t *doc_start, int64_t n_tiles, plain_shape s)
{
    extern __shared__ float4 shared[];
    int pitch = s.padded + 4, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float *q_tile = (float *)shared, *dy_tile = q_tile + LANES * pitch;
    float *k_rows = dy_tile + LANES * pitch, *v_rows = k_rows + BLOCK_ROWS * s.padded;
    int mine = warp * ROWS * s.padded, group = s.heads / s.kv_heads;
    int64_t key0 = blockIdx.x % n_tiles * BLOCK_ROWS, of_group = blockIdx.x / n_tiles;
    int64_t batch = of_group / s.kv_heads, row0 = key0 + warp * ROWS;
    int kv_head = (int)(of_group % s.kv_heads);
    const int32_t *starts = doc_start ? doc_start + batch * s.seq_len : NULL;
    head_rows<T> first_head(qkv, batch, kv_head * group, s);
    load_rows<COLS>(k_rows, s.padded, BLOCK_ROWS, first_head.k, s.qkv_stride, key0, s);
    load_rows<COLS>(v_rows, s.padded, BLOCK_ROWS, first_head.v, s.qkv_stride, key0, s);
    float dk[ROWS][COLS] = {}, dv[ROWS][COLS] = {};
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        head_rows<T> from(qkv, batch, head, s);
        const T *d = dy + batch * s.seq_len * s.y_stride + (int64_t)head * s.head_size;
        int64_t of_head = (batch * s.heads + head) * s.seq_len;
        for (int64_t q0 = key0 / LANES * LANES; q0 < s.seq_len; q0 += LANES) {
            if (starts && starts[q0] >= key0 + BLOCK_ROWS) break;
            __syncthreads();
            load_rows<COLS>(q_tile, pitch, LANES, from.q, s.qkv_stride, q0, s);
            load_rows<COLS>(dy_tile, pitch, LANES, d, s.y_stride, q0, s);
            __syncthreads();
            int64_t query = q0 + lane;
            bool there = query < s.seq_len;
            float log_sum = there ? lse[of_head + query] : 0.0f;
            float row_sum = there ? row_sums[of_head + query] : 0.0f;
            int64_t first = starts && there ? starts[query] : 0;
            float p[ROWS], dp[ROWS];
            dot_rows(p, q_tile, k_rows + mine, s);
            dot_rows(dp, dy_tile, v_rows + mine, s);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                bool seen = there && row0 + r <= query && row0 + r >= first;
                p[r] = seen ? expf(p[r] * s.scale - log_sum) : 0.0f;
                dp[r] = p[r] * (dp[r] - row_sum);
            }
            add_rows(dv, p, dy_tile, s);
            add_rows(dk, dp, q_tile, s);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (row0 + r >= s.seq_len) break;
        T *to = dqkv + (batch * s.seq_len + row0 + r) * s.qkv_stride +
                (int64_t)(s.heads + kv_head) * s.head_size;
        put_row(to, dk[r], s.scale, s);
        put_row(to + (int64_t)s.kv_heads * s.head_size, dv[r], 1.0f, s);
    }
}

/* ---- launchers ----------------------------------------------------------------------------- */

static plain_shape shape_of(int64_t seq_len, int64_t heads, int64_t kv_heads, int64_t head_size,
                            float scale)
{
    plain_shape s;
    s.seq_len = seq_len;
    s.qkv_stride = (heads + 2 * kv_heads) * head_size;
    s.y_stride = heads * head_size;
    s.heads = (int)heads;
    s.kv_heads = (int)kv_heads;
    s.head_size = (int)head_size;
    s.padded = (int)(div_up(head_size, 4) * 4);
    s.scale = scale;
    return s;
}

/* Two tiles of 32 rows, and `n` sets of the block's own rows. */
static int shared_bytes(int padded, int n)
{
    return (2 * LANES * (padded + 4) + n * BLOCK_ROWS * padded) * 4;
}

/* Call f with a zero of the type and with how many columns a lane owns. */
template <typename F> static cudaError_t with_columns(yk_dtype dtype, int padded, F f)
{
    return with_type(dtype, [&](auto zero) {
        return padded <= 128 ? f(zero, std::integral_constant<int, 4>())
                             : f(zero, std::integral_constant<int, 8>());
    });
}

cudaError_t yk_cuda_plain_forward(const yk_attention_forward_args *a, cudaStream_t s)
{
    plain_shape shape = shape_of(a->seq_len, a->heads, a->kv_heads, a->head_size, a->scale);
    int64_t n_tiles = div_up(a->seq_len, BLOCK_ROWS);
    return with_columns(a->dtype, shape.padded, [&](auto zero, auto columns) {
        using T = decltype(zero);
        attend_plain<T, columns.value>
            <<<(unsigned)(a->batch * a->heads * n_tiles), THREADS, shared_bytes(shape.padded, 1),
               s>>>((T *)a->y, a->lse, (const T *)a->qkv, a->doc_start, n_tiles, shape);
        return cudaGetLastError();
    });
}

cudaError_t yk_cuda_plain_backward(const yk_attention_backward_args *a, void *ws, cudaStream_t s)
{
    plain_shape shape = shape_of(a->seq_len, a->heads, a->kv_heads, a->head_size, a->scale);
    int64_t n_tiles = div_up(a->seq_len, BLOCK_ROWS), n_rows = a->batch * a->seq_len;
    int bytes = shared_bytes(shape.padded, 2);
    float *row_sums = (float *)ws;
    return with_columns(a->dtype, shape.padded, [&](auto zero, auto columns) {
        using T = decltype(zero);
        constexpr int COLS = columns.value;
        T *dqkv = (T *)a->dqkv;
        const T *dy = (const T *)a->dy, *qkv = (const T *)a->qkv;
        sum_plain<T><<<(unsigned)div_up(n_rows * a->heads, WARPS), THREADS, 0, s>>>(
            row_sums, dy, (const T *)a->y, n_rows, shape);
        queries_plain<T, COLS><<<(unsigned)(a->batch * a->heads * n_tiles), THREADS, bytes, s>>>(
            dqkv, dy, a->lse, row_sums, qkv, a->doc_start, n_tiles, shape);
        keys_plain<T, COLS><<<(unsigned)(a->batch * a->kv_heads * n_tiles), THREADS, bytes, s>>>(
            dqkv, dy, a->lse, row_sums, qkv, a->doc_start, n_tiles, shape);
        return cudaGetLastError();
    });
}

template <typename T, int COLS> static cudaError_t prepare_columns()
{
    const cudaFuncAttribute limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    int forward = shared_bytes(COLS * 32, 1), backward = shared_bytes(COLS * 32, 2);
    cudaError_t e = cudaFuncSetAttribute(attend_plain<T, COLS>, limit, forward);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(queries_plain<T, COLS>, limit, backward);
    return e != cudaSuccess ? e : cudaFuncSetAttribute(keys_plain<T, COLS>, limit, backward);
}

template <typename T> static cudaError_t prepare_type()
{
    cudaError_t e = prepare_columns<T, 4>();
    return e != cudaSuccess ? e : prepare_columns<T, 8>();
}

cudaError_t yk_cuda_plain_prepare(void)
{
    cudaError_t e = prepare_type<float>();
    if (e == cudaSuccess) e = prepare_type<bf16>();
    return e != cudaSuccess ? e : prepare_type<f16>();
}
