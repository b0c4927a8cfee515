/* runtime/device/cuda/attention_backward.cu - causal attention backward with
 * matrix instructions.
 *
 * Dao 2023, algorithm 2: a block owns BN keys of one query head and goes
 * through tiles of BM queries from the diagonal up. Scores are computed
 * transposed, keys by queries, so that probabilities and their gradients are
 * operands of the next products as they lie in registers: S' = K Q'   P' =
 * exp(S' - lse)   dP' = V dy'   dS' = P' (dP' - rowsum(dy y)) dV += P' dy dK +=
 * dS' Q     dQ += dS K, for which dS' goes through shared memory Five products,
 * each once. dK and dV stay in registers. dQ gets a part from every block of
 * keys:
 *
 * Order.  Parts of one tile of queries are added in fp32, from the diagonal
 * down, one block after the other: block j waits until block j+1 has passed the
 * tile. Blocks of a head start in that order and each reaches a tile one tile
 * of keys later than the one before it, so in step they hardly wait; and a
 * block only waits for blocks with lower numbers, which start before it, so
 * they never wait for ever. The first part writes, the last one rounds into
 * dqkv, and what lies between stays in the cache: heads take turns at a few
 * places. The heads of a key-value group add up dK and dV in the same way, in
 * order of head.
 *
 * Operations: 5 T^2 D per head counting what is seen. Bytes: q, k, v, y, dy
 * read and dq, dk, dv written once; q and dy again from the cache for each
 * block of keys.
 */
#include "runtime/device/cuda/mma.cuh"
#include "runtime/device/cuda/sizes.h"

#define FINISHED 0x40000000 /* a flag's value when the last part has been added */

typedef struct backward_shape {
    int seq_len, heads, kv_heads, head_size, n_tiles, rows;
    int qkv_stride, y_stride; /* elements between rows */
    int dq_places, dkv_places;
    float scale, scale_log2;
} backward_shape;

typedef struct backward_memory {
    float *lse2, *row_sums; /* (B,H,rows): log2 of the softmax sum; rowsum(dy y) */
    float *dq, *dkv;        /* parts under way, in fragments */
    int *dq_flags;          /* (B,H,query tiles) parts added */
    int *dkv_flags;         /* (B,G,key tiles) heads added */
} backward_memory;

/* ---- row sums
 * -----------------------------------------------------------------------------
 */

/* Eight lanes a row of one head; rows past the sequence, up to whole tiles, get
 * zeros. */
template <typename T>
static __global__ void __launch_bounds__(256)
    sum_rows(backward_memory memory, const T *__restrict__ dy, const T *__restrict__ y,
             const float *__restrict__ lse, int64_t n_items, backward_shape shape)
{
    int64_t item = ((int64_t)blockIdx.x * 256 + threadIdx.x) >> 3;
    int lane = threadIdx.x & 7, head = (int)(item % shape.heads);
    int64_t batch = item / shape.heads / shape.rows;
    int t = (int)(item / shape.heads - batch * shape.rows);
    bool there = item < n_items && t < shape.seq_len;
    float sum = 0;
    if (there) {
        int64_t at = (batch * shape.seq_len + t) * shape.y_stride + head * shape.head_size;
        for (int c = lane * 8; c < shape.head_size; c += 64) {
            float a[8], b[8];
            load_floats<T, 8>(dy + at + c, a);
            load_floats<T, 8>(y + at + c, b);
#pragma unroll
            for (int i = 0; i < 8; i++) sum += a[i] * b[i];
        }
    }
#pragma unroll
    for (int d = 4; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane != 0 || item >= n_items) return;
    int64_t of_head = batch * shape.heads + head;
    memory.row_sums[of_head * shape.rows + t] = sum;
    memory.lse2[of_head * shape.rows + t] =
        there ? lse[of_head * shape.seq_len + t] * LOG2_E : 0.0f;
}

/* ---- flags
 * --------------------------------------------------------------------------------
 */

static __device__ inline int flag_read(const int *flag)
{
    int value;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

/* What the block wrote before its last barrier is seen by whoever reads
 * `value`. */
static __device__ inline void flag_write(int *flag, int value)
{
    asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

static __device__ inline void flag_wait(const int *flag, int value)
{
    while (flag_read(flag) != value) __nanosleep(64);
}

/* ---- products
 * -----------------------------------------------------------------------------
 */

template <int M, int N> static __device__ inline void clear(float (&c)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[m][n][i] = 0;
}

/* c = A B', both tiles of DP columns: rows of A by rows of B. */
template <typename T, int DP, int M, int N>
static __device__ inline void multiply_tiles(float (&c)[M][N][4], uint32_t a_lane, uint32_t b_lane)
{
    clear(c);
#pragma unroll
    for (int d = 0; d < DP; d += 16) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) load_matrix(a[m], moved<DP>(a_lane, m * 16, d));
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            load_matrix(b, moved<DP>(b_lane, n * 8, d));
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add(c[m][n], a[m], b[0], b[1], T());
                multiply_add(c[m][n + 1], a[m], b[2], b[3], T());
            }
        }
    }
}

/* c += A B, A in registers with K queries, B the columns col0.. of a tile of K
 * rows. */
template <typename T, int DP, int M, int N, int K>
static __device__ inline void multiply_add_tile(float (&c)[M][N][4],
                                                const uint32_t (&a)[M][K / 16][4], uint32_t b_lane,
                                                int col0)
{
    column_mover<DP> column(b_lane, col0);
#pragma unroll
    for (int k = 0; k < K; k += 16)
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            load_matrix_transposed(b, column.moved_by(k, n * 8));
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add(c[m][n], a[m][k / 16], b[0], b[1], T());
                multiply_add(c[m][n + 1], a[m][k / 16], b[2], b[3], T());
            }
        }
}

/* ---- parts that blocks add up in turn
 * ----------------------------------------------------- */

/* A block's fragments lie side by side: 16 bytes a thread. */
template <int THREADS, int M, int N>
static __device__ inline void part_add(float (&c)[M][N][4], const float *part)
{
    const float4 *from = reinterpret_cast<const float4 *>(part) + threadIdx.x;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            float4 old = __ldcg(from + (m * N + n) * THREADS);
            c[m][n][0] += old.x, c[m][n][1] += old.y, c[m][n][2] += old.z, c[m][n][3] += old.w;
        }
}

template <int THREADS, int M, int N>
static __device__ inline void part_put(float *part, const float (&c)[M][N][4])
{
    float4 *to = reinterpret_cast<float4 *>(part) + threadIdx.x;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
            __stcg(to + (m * N + n) * THREADS,
                   make_float4(c[m][n][0], c[m][n][1], c[m][n][2], c[m][n][3]));
}

/* Round fragments, times `scale`, into rows row0.. of `out`, columns col0..,
 * where there are such. */
template <typename T, int M, int N>
static __device__ inline void put_rows(T *out, int stride, int row0, int n_rows, int col0,
                                       int n_cols, const float (&c)[M][N][4], float scale)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = row0 + m * 16 + (lane >> 2) + h * 8;
            if (row >= n_rows) continue;
            T *to = out + (int64_t)row * stride + col0 + (lane & 3) * 2;
#pragma unroll
            for (int n = 0; n < N; n++)
                if (col0 + n * 8 < n_cols)
                    *reinterpret_cast<uint32_t *>(to + n * 8) =
                        round_pair(c[m][n][2 * h] * scale, c[m][n][2 * h + 1] * scale, T());
        }
}

/* ---- the kernel
 * ---------------------------------------------------------------------------
 */

/* Tile sizes. A warp owns 16 * MT keys and 1 / WD of the columns of dK and dV;
 * for dQ, WQ warps share the queries and WARPS / WQ the columns. */
template <int DP_, int BM_, int MT_, int WARPS_, int WD_, int WQ_, int STAGES_, int BLOCKS_>
struct tiles {
    static constexpr int DP = DP_, BM = BM_, MT = MT_, WARPS = WARPS_, WD = WD_, WQ = WQ_;
    static constexpr int STAGES = STAGES_, BLOCKS = BLOCKS_, THREADS = 32 * WARPS;
    static constexpr int BN = 16 * MT * WARPS / WD; /* keys of a block */
    static constexpr int COLS = DP / WD;            /* columns of a warp's dK and dV */
    static constexpr int DQ_ROWS = BM / WQ, DQ_COLS = DP * WQ / WARPS;
    static constexpr int KEY_BYTES = BN * DP * 2, QUERY_BYTES = BM * DP * 2;
    /* q, dy, lse2, row sums and document starts of a tile of queries */
    static constexpr int STAGE_BYTES = 2 * QUERY_BYTES + (3 * BM * 4 + 127) / 128 * 128;
    static constexpr int SHARED = 2 * KEY_BYTES + BN * BM * 2 + STAGES * STAGE_BYTES;
};

/* Start copying the tile of queries q0.. into a stage. lse2, row_sums and
 * starts are of the head's whole sequence; q and dy at the thread's begin() of
 * it. */
template <typename T, typename C>
static __device__ inline void load_queries(uint32_t stage, const T *q, const T *dy,
                                           const float *lse2, const float *row_sums,
                                           const int32_t *starts, int q0,
                                           const backward_shape &shape)
{
    int left = shape.seq_len - q0, i = threadIdx.x;
    load_tile<C::DP, C::BM, C::THREADS>(stage, q + (int64_t)q0 * shape.qkv_stride, shape.qkv_stride,
                                        left, shape.head_size);
    load_tile<C::DP, C::BM, C::THREADS>(stage + C::QUERY_BYTES, dy + (int64_t)q0 * shape.y_stride,
                                        shape.y_stride, left, shape.head_size);
    uint32_t rows = stage + 2 * C::QUERY_BYTES;
    if (i < C::BM / 4)
        copy_async(rows + i * 16, lse2 + q0 + i * 4, true);
    else if (i < C::BM / 2)
        copy_async(rows + i * 16, row_sums + q0 + i * 4 - C::BM, true);
    if (starts && i < C::BM)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(rows + C::BM * 8 + i * 4),
                     "l"(starts + (i < left ? q0 + i : 0)), "r"(i < left ? 4 : 0)
                     : "memory");
}

static __device__ inline float2 shared_pair(uint32_t address)
{
    float2 r;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(r.x), "=f"(r.y) : "r"(address));
    return r;
}

/* Scores to probabilities; what a query may not see becomes 0. */
template <typename C>
static __device__ inline void to_probabilities(float (&s)[C::MT][C::BM / 8][4], uint32_t rows,
                                               float scale_log2, bool masked, bool docs, int key0,
                                               int q0)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < C::BM / 8; n++) {
        int col = n * 8 + (lane & 3) * 2;
        float2 lse2 = shared_pair(rows + col * 4);
#pragma unroll
        for (int m = 0; m < C::MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = exp2_fast(fmaf(s[m][n][i], scale_log2, -((i & 1) ? lse2.y : lse2.x)));
        if (!masked) continue;
        float2 start = docs ? shared_pair(rows + C::BM * 8 + col * 4) : make_float2(0, 0);
#pragma unroll
        for (int m = 0; m < C::MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = key0 + m * 16 + (lane >> 2) + (i >> 1) * 8;
                int first = __float_as_int((i & 1) ? start.y : start.x);
                if (key > q0 + col + (i & 1) || key < first) s[m][n][i] = 0;
            }
    }
}

/* dS' = P' (dP' - row sum), in place of dP'. */
template <typename C>
static __device__ inline void to_score_gradients(float (&dp)[C::MT][C::BM / 8][4],
                                                 const float (&p)[C::MT][C::BM / 8][4],
                                                 uint32_t rows)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < C::BM / 8; n++) {
        float2 sum = shared_pair(rows + C::BM * 4 + (n * 8 + (lane & 3) * 2) * 4);
#pragma unroll
        for (int m = 0; m < C::MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dp[m][n][i] = p[m][n][i] * (dp[m][n][i] - ((i & 1) ? sum.y : sum.x));
    }
}

/* Round C fragments of M rows and K columns into A fragments. */
template <typename T, int M, int K>
static __device__ inline void to_operand(uint32_t (&a)[M][K / 16][4], const float (&c)[M][K / 8][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int k = 0; k < K / 16; k++) {
            a[m][k][0] = round_pair(c[m][2 * k][0], c[m][2 * k][1], T());
            a[m][k][1] = round_pair(c[m][2 * k][2], c[m][2 * k][3], T());
            a[m][k][2] = round_pair(c[m][2 * k + 1][0], c[m][2 * k + 1][1], T());
            a[m][k][3] = round_pair(c[m][2 * k + 1][2], c[m][2 * k + 1][3], T());
        }
}

/* dS' of the warp's keys into the tile that all warps read: rows are keys,
 * columns queries. */
template <typename C>
static __device__ inline void put_score_gradients(uint32_t ds_tile, int warp_key,
                                                  const uint32_t (&a)[C::MT][C::BM / 16][4])
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < C::MT; m++)
#pragma unroll
        for (int k = 0; k < C::BM / 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = warp_key + m * 16 + (lane >> 2) + (i & 1) * 8;
                uint32_t at = ds_tile + chunk_offset<C::BM>(key, k * 2 + (i >> 1)) + (lane & 3) * 4;
                asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(a[m][k][i]) : "memory");
            }
}

/* dq = dS K over the first `n_keys` keys, for the warp's queries and columns.
 */
template <typename T, typename C>
static __device__ inline void query_gradient(float (&dq)[C::DQ_ROWS / 16][C::DQ_COLS / 8][4],
                                             uint32_t ds_lane, uint32_t k_lane, int col0,
                                             int n_keys)
{
    column_mover<C::DP> column(k_lane, col0);
    clear(dq);
#pragma unroll 2
    for (int k = 0; k < n_keys; k += 16) {
        uint32_t a[C::DQ_ROWS / 16][4];
#pragma unroll
        for (int m = 0; m < C::DQ_ROWS / 16; m++)
            load_matrix_transposed(a[m], moved<C::BM>(ds_lane, 0, m * 16));
#pragma unroll
        for (int n = 0; n < C::DQ_COLS / 8; n += 2) {
            uint32_t b[4];
            load_matrix_transposed(b, column.moved_by(k, n * 8));
#pragma unroll
            for (int m = 0; m < C::DQ_ROWS / 16; m++) {
                multiply_add(dq[m][n], a[m], b[0], b[1], T());
                multiply_add(dq[m][n + 1], a[m], b[2], b[3], T());
            }
        }
        ds_lane += 16 * C::BM * 2;
    }
}

template <typename T, typename C>
static __global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    attend_back(T *dqkv, const T *dy, const T *qkv, const int32_t *doc_start,
                backward_memory memory, backward_shape shape)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    uint32_t k_tile = shared_address(shared), v_tile = k_tile + C::KEY_BYTES;
    uint32_t ds_tile = v_tile + C::KEY_BYTES, stages = ds_tile + C::BN * C::BM * 2;
    int j = shape.n_tiles - 1 - (int)(blockIdx.x % shape.n_tiles), key0 = j * C::BN;
    int of_head = (int)(blockIdx.x / shape.n_tiles); /* batch * heads + head */
    int batch = of_head / shape.heads, head = of_head - batch * shape.heads;
    int warp = threadIdx.x >> 5, warp_key = warp / C::WD * 16 * C::MT;
    int warp_col = warp % C::WD * C::COLS;
    int group = shape.heads / shape.kv_heads, kv_head = head / group;
    const int32_t *starts = doc_start ? doc_start + (int64_t)batch * shape.seq_len : NULL;

    /* The tiles of queries that see these keys. */
    int i = key0 / C::BM, i_end = (shape.seq_len + C::BM - 1) / C::BM;
    if (starts) /* documents begin in order: halve until the first tile that
                 begins too late */
        for (int low = i; low < i_end;) {
            int middle = (low + i_end) / 2;
            if (starts[middle * C::BM] < key0 + C::BN)
                low = middle + 1;
            else
                i_end = middle;
        }

    typedef tile_share<C::DP, C::THREADS> share;
    const T *q = qkv + (int64_t)batch * shape.seq_len * shape.qkv_stride + head * shape.head_size +
                 share::begin(shape.qkv_stride);
    const T *d = dy + (int64_t)batch * shape.seq_len * shape.y_stride + head * shape.head_size +
                 share::begin(shape.y_stride);
    const float *lse2 = memory.lse2 + (int64_t)of_head * shape.rows;
    const float *row_sums = memory.row_sums + (int64_t)of_head * shape.rows;
    {
        const T *k =
            q + (shape.heads - head + kv_head) * shape.head_size + (int64_t)key0 * shape.qkv_stride;
        load_tile<C::DP, C::BN, C::THREADS>(k_tile, k, shape.qkv_stride, shape.seq_len - key0,
                                            shape.head_size);
        load_tile<C::DP, C::BN, C::THREADS>(v_tile, k + shape.kv_heads * shape.head_size,
                                            shape.qkv_stride, shape.seq_len - key0,
                                            shape.head_size);
    }
    load_queries<T, C>(stages, q, d, lse2, row_sums, starts, i * C::BM, shape);
    copy_commit();

    float dk[C::MT][C::COLS / 8][4], dv[C::MT][C::COLS / 8][4];
    clear(dk);
    clear(dv);
    int *flags = memory.dq_flags + (int64_t)of_head * (shape.rows / C::BM);
    uint32_t k_lane = lane_down<C::DP>(k_tile + warp_key * C::DP * 2);
    int dq_row = warp % C::WQ * C::DQ_ROWS, dq_col = warp / C::WQ * C::DQ_COLS;
    int written = 0; /* what to write to the flag of tile i - 1; 0: nothing */
    uint32_t stage = stages;
#pragma unroll 1
    for (; i < i_end; i++) {
        int q0 = i * C::BM, turn = q0 / C::BN - j; /* parts that come before this block's */
        bool last = j == (starts ? starts[q0] / C::BN : 0);
        copy_wait<0>();
        __syncthreads(); /* the stage is there; dS is free */
        if (C::STAGES == 2 && i + 1 < i_end) {
            uint32_t next = stage == stages ? stages + C::STAGE_BYTES : stages;
            load_queries<T, C>(next, q, d, lse2, row_sums, starts, q0 + C::BM, shape);
            copy_commit();
        }
        uint32_t rows = stage + 2 * C::QUERY_BYTES;
        if (key0 + warp_key < q0 + C::BM) { /* else the diagonal hides all of the warp's keys */
            float p[C::MT][C::BM / 8][4], ds[C::MT][C::BM / 8][4];
            multiply_tiles<T, C::DP>(p, k_lane, lane_right<C::DP>(stage));
            bool masked = starts || key0 + warp_key + 16 * C::MT - 1 > q0;
            to_probabilities<C>(p, rows, shape.scale_log2, masked, starts != NULL, key0 + warp_key,
                                q0);
            multiply_tiles<T, C::DP>(ds, k_lane + C::KEY_BYTES,
                                     lane_right<C::DP>(stage + C::QUERY_BYTES));
            to_score_gradients<C>(ds, p, rows);
            uint32_t operand[C::MT][C::BM / 16][4], ds_operand[C::MT][C::BM / 16][4];
            to_operand<T, C::MT, C::BM>(ds_operand, ds);
            if (warp_col == 0) put_score_gradients<C>(ds_tile, warp_key, ds_operand);
            to_operand<T, C::MT, C::BM>(operand, p);
            uint32_t lane = lane_down<C::DP>(stage);
            multiply_add_tile<T, C::DP, C::MT, C::COLS / 8, C::BM>(dv, operand,
                                                                   lane + C::QUERY_BYTES, warp_col);
            multiply_add_tile<T, C::DP, C::MT, C::COLS / 8, C::BM>(dk, ds_operand, lane, warp_col);
        }
        if (threadIdx.x == 0) {
            if (written) flag_write(flags + i - 1, written);
            if (turn > 0)
                flag_wait(flags + i, turn);
            else if (of_head >= shape.dq_places)
                flag_wait(flags + i - (int64_t)shape.dq_places * (shape.rows / C::BM), FINISHED);
        }
        __syncthreads(); /* dS is there; q and dy are free; it is this block's turn
                      */
        if (C::STAGES == 1 && i + 1 < i_end) {
            load_queries<T, C>(stage, q, d, lse2, row_sums, starts, q0 + C::BM, shape);
            copy_commit();
        }
        float dq[C::DQ_ROWS / 16][C::DQ_COLS / 8][4];
        int seen = q0 + C::BM - key0 < C::BN ? q0 + C::BM - key0 : C::BN;
        query_gradient<T, C>(dq, moved<C::BM>(lane_right<C::BM>(ds_tile), 0, dq_row),
                             lane_down<C::DP>(k_tile), dq_col, seen);
        float *part = memory.dq + ((int64_t)(of_head % shape.dq_places) * shape.rows + q0) * C::DP;
        if (turn > 0) part_add<C::THREADS>(dq, part);
        if (last)
            put_rows(dqkv + (int64_t)batch * shape.seq_len * shape.qkv_stride +
                         head * shape.head_size,
                     shape.qkv_stride, q0 + dq_row, shape.seq_len, dq_col, shape.head_size, dq,
                     shape.scale);
        else
            part_put<C::THREADS>(part, dq);
        written = last ? FINISHED : turn + 1;
        if (C::STAGES == 2) stage = stage == stages ? stages + C::STAGE_BYTES : stages;
    }
    __syncthreads();
    if (threadIdx.x == 0 && written) flag_write(flags + i_end - 1, written);

    /* dK and dV: the heads of a group in turn. */
    int64_t of_group = (int64_t)batch * shape.kv_heads + kv_head;
    int turn = head - kv_head * group;
    bool last = turn == group - 1;
    if (group > 1) {
        constexpr int64_t size = (int64_t)C::BN * C::DP;
        int *flag = memory.dkv_flags + of_group * shape.n_tiles + j;
        float *part = memory.dkv + ((of_group % shape.dkv_places) * shape.n_tiles + j) * 2 * size;
        if (threadIdx.x == 0) {
            if (turn > 0)
                flag_wait(flag, turn);
            else if (of_group >= shape.dkv_places)
                flag_wait(flag - (int64_t)shape.dkv_places * shape.n_tiles, FINISHED);
        }
        __syncthreads();
        if (turn > 0) {
            part_add<C::THREADS>(dk, part);
            part_add<C::THREADS>(dv, part + size);
        }
        if (!last) {
            part_put<C::THREADS>(part, dk);
            part_put<C::THREADS>(part + size, dv);
        }
        __syncthreads();
        if (threadIdx.x == 0) flag_write(flag, last ? FINISHED : turn + 1);
        if (!last) return;
    }
    T *to = dqkv + (int64_t)batch * shape.seq_len * shape.qkv_stride +
            (shape.heads + kv_head) * shape.head_size;
    put_rows(to, shape.qkv_stride, key0 + warp_key, shape.seq_len, warp_col, shape.head_size, dk,
             shape.scale);
    put_rows(to + shape.kv_heads * shape.head_size, shape.qkv_stride, key0 + warp_key,
             shape.seq_len, warp_col, shape.head_size, dv, 1.0f);
}

/* ---- launchers
 * ----------------------------------------------------------------------------
 */

template <typename T, typename C> struct backward_kernel {
    static cudaError_t prepare(int shared_bytes_max)
    {
        if (C::SHARED > shared_bytes_max) return cudaErrorInvalidConfiguration;
        return cudaFuncSetAttribute(attend_back<T, C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    C::SHARED);
    }

    static cudaError_t launch(const yk_attention_backward_args *a, void *ws, cudaStream_t s)
    {
        yk_cuda_flash_layout l =
            yk_cuda_flash_plan(a->batch, a->seq_len, a->heads, a->kv_heads, a->head_size);
        char *at = (char *)ws;
        int64_t n_stats = a->batch * a->heads * l.rows;
        backward_memory memory = {(float *)(at + l.stats), (float *)(at + l.stats) + n_stats,
                                  (float *)(at + l.dq),    (float *)(at + l.dkv),
                                  (int *)(at + l.flags),   (int *)(at + l.dkv_flags)};
        backward_shape shape;
        shape.seq_len = (int)a->seq_len;
        shape.heads = (int)a->heads;
        shape.kv_heads = (int)a->kv_heads;
        shape.head_size = (int)a->head_size;
        shape.n_tiles = (int)l.n_tiles;
        shape.rows = (int)l.rows;
        shape.qkv_stride = (int)((a->heads + 2 * a->kv_heads) * a->head_size);
        shape.y_stride = (int)(a->heads * a->head_size);
        shape.dq_places = (int)l.dq_places;
        shape.dkv_places = (int)l.dkv_places;
        shape.scale = a->scale;
        shape.scale_log2 = a->scale * LOG2_E;
        cudaError_t e = cudaMemsetAsync(at + l.flags, 0, (size_t)l.flags_bytes, s);
        if (e != cudaSuccess) return e;
        int64_t n_items = a->batch * l.rows * a->heads;
        sum_rows<T><<<(unsigned)div_up(n_items, 32), 256, 0, s>>>(
            memory, (const T *)a->dy, (const T *)a->y, a->lse, n_items, shape);
        attend_back<T, C>
            <<<(unsigned)(a->batch * a->heads * l.n_tiles), C::THREADS, C::SHARED, s>>>(
                (T *)a->dqkv, (const T *)a->dy, (const T *)a->qkv, a->doc_start, memory, shape);
        return cudaGetLastError();
    }
};

/* A kernel that fits every GPU. */
template <typename T, typename C> static constexpr backward_kernel<T, C> everywhere()
{
    static_assert(C::SHARED <= SHARED_EVERYWHERE, "these tiles are for all GPUs");
    return {};
}

/* Call f with the kernel for heads padded to `padded` columns, in blocks of at
 * most `shared_bytes_max`. The number of keys a block is the same for both: the
 * workspace's layout. */
template <typename T, typename F>
static cudaError_t with_kernel(int64_t padded, int shared_bytes_max, F f)
{
    bool large = shared_bytes_max > 160 * 1024;
    switch (padded) {
    case 32:
        return f(everywhere<T, tiles<32, 32, 2, 4, 1, 2, 1, 2>>());
    case 64:
        return large ? f(backward_kernel<T, tiles<64, 32, 2, 4, 1, 1, 2, 2>>())
                     : f(everywhere<T, tiles<64, 32, 2, 4, 1, 1, 1, 2>>());
    case 96:
        return f(everywhere<T, tiles<96, 64, 1, 8, 1, 4, 1, 1>>());
    case 128:
        return large ? f(backward_kernel<T, tiles<128, 64, 1, 8, 1, 2, 2, 1>>())
                     : f(everywhere<T, tiles<128, 32, 1, 8, 1, 1, 1, 1>>());
    case 192:
        return f(everywhere<T, tiles<192, 32, 1, 8, 2, 2, 1, 1>>());
    default:
        return f(everywhere<T, tiles<256, 16, 1, 8, 2, 1, 1, 1>>());
    }
}

cudaError_t yk_cuda_flash_backward(const yk_attention_backward_args *a, int shared_bytes_max,
                                   void *ws, cudaStream_t s)
{
    auto launch = [&](auto kernel) { return kernel.launch(a, ws, s); };
    int64_t padded = yk_cuda_flash_padded(a->head_size);
    return a->dtype == YK_BF16 ? with_kernel<bf16>(padded, shared_bytes_max, launch)
                               : with_kernel<f16>(padded, shared_bytes_max, launch);
}

cudaError_t yk_cuda_flash_backward_prepare(int shared_bytes_max)
{
    static const int64_t sizes[] = {32, 64, 96, 128, 192, 256};
    auto prepare = [&](auto kernel) { return kernel.prepare(shared_bytes_max); };
    for (int64_t padded : sizes) {
        cudaError_t e = with_kernel<bf16>(padded, shared_bytes_max, prepare);
        if (e == cudaSuccess) e = with_kernel<f16>(padded, shared_bytes_max, prepare);
        if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
}
