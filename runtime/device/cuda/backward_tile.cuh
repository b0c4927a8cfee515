/* runtime/device/cuda/backward_tile.cuh - attention backward: what a block does with a tile of queries.
 *
 * Scores and their gradients are computed transposed, keys by queries, so that they are operands of
 * the next products as they lie in registers; attention_backward.cu says in what order tiles come
 * and sums are added. Included by that file alone.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_BACKWARD_TILE_CUH
#define YK_RUNTIME_DEVICE_CUDA_BACKWARD_TILE_CUH

#include "runtime/device/cuda/sizes.h"
#include "runtime/device/cuda/turns.cuh"

typedef struct backward_shape {
    int seq_len, heads, kv_heads, group, head_size, n_tiles, rows; /* group: heads / kv_heads */
    int qkv_stride, y_stride;                                      /* elements between rows */
    int dq_places, dkv_places;
    int set_heads;          /* heads of a group that a block goes through side by side */
    int n_sets, round_sets; /* of all batches; whose blocks start together */
    float scale, scale_log2;
} backward_shape;

/* x, of which the compiler does not know that it has used it before: what follows from it is
 * computed where it is needed and takes no register until then. */
static __device__ inline int anew(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* Tile sizes. A warp owns 16 * MT keys and 1 / WD of the columns of dK and dV; for dQ, WQ warps
 * share the queries and WARPS / WQ the columns. Scores of SUB queries are in registers at a time. */
template <int DP_, int BM_, int SUB_, int MT_, int WARPS_, int WD_, int WQ_, int STAGES_,
          int BLOCKS_>
struct tiles {
    static constexpr int DP = DP_, BM = BM_, SUB = SUB_, MT = MT_, WARPS = WARPS_, WD = WD_,
                         WQ = WQ_;
    static constexpr int STAGES = STAGES_, BLOCKS = BLOCKS_, THREADS = 32 * WARPS;
    static constexpr int BN = 16 * MT * WARPS / WD; /* keys of a block */
    /* Whether, of the two warps that share a scheduler, one begins a step with dq: while it waits
     * for flags and for memory, the other multiplies. With two blocks that comes by itself. */
    static constexpr bool ALTERNATE = STAGES == 2 && BLOCKS == 1;
    static constexpr int COLS = DP / WD; /* columns of a warp's dK and dV */
    static constexpr int DQ_ROWS = BM / WQ, DQ_COLS = DP * WQ / WARPS;
    static constexpr int KEY_BYTES = BN * DP * 2, QUERY_BYTES = BM * DP * 2;
    static constexpr int DS_BYTES = BN * BM * 2;
    /* q, dy, lse2, row sums and document starts of a tile of queries */
    static constexpr int STAGE_BYTES = 2 * QUERY_BYTES + (3 * BM * 4 + 127) / 128 * 128;
    static constexpr int SHARED = 2 * KEY_BYTES + STAGES * (DS_BYTES + STAGE_BYTES);
    static_assert(BM >= 2 * WARPS, "flags are counted so in sizes.h");
};

/* What a block works at: one tile of keys, and shape.set_heads heads from `head` on. */
typedef struct block_work {
    int key_tile, batch, head;
} block_work;

/* Where it is: at a tile of queries of one of its heads. It goes from the last tile down, and at
 * each through the heads; in one register, four times the tile and how many heads are to come. */
static __device__ inline int tile_of(int at)
{
    return at >> 2;
}

static __device__ inline int member_of(int at, const backward_shape &shape)
{
    return shape.set_heads - 1 - (at & 3);
}

static __device__ inline int first_of(int tile, const backward_shape &shape)
{
    return tile * 4 + shape.set_heads - 1;
}

static __device__ inline int after(int at, const backward_shape &shape)
{
    return at & 3 ? at - 1 : first_of(tile_of(at) - 1, shape);
}

static __device__ inline int before(int at, const backward_shape &shape)
{
    return (at & 3) < shape.set_heads - 1 ? at + 1 : (tile_of(at) + 1) * 4;
}

/* The head's number in the whole batch. */
static __device__ inline int number_of_head(const block_work &work, int member,
                                            const backward_shape &shape)
{
    return anew(work.batch) * shape.heads + work.head + member;
}

/* Start copying a tile of queries into a stage. */
template <typename T, typename C>
static __device__ inline void load_queries(uint32_t stage, const T *qkv, const T *dy,
                                           const float2 *stats, const int32_t *doc_start, int at,
                                           const block_work &work, const backward_shape &shape)
{
    constexpr int LANES = tile_share<C::DP, C::THREADS>::LANES;
    int q0 = tile_of(at) * C::BM, left = shape.seq_len - q0, i = anew(threadIdx.x);
    int64_t row = (int64_t)anew(work.batch) * shape.seq_len + q0, row_of_thread = row + i / LANES;
    int col = (anew(work.head) + member_of(at, shape)) * shape.head_size + i % LANES * 8;
    load_tile<C::DP, C::BM, C::THREADS>(stage, qkv + row_of_thread * shape.qkv_stride + col,
                                        shape.qkv_stride, left, shape.head_size);
    load_tile<C::DP, C::BM, C::THREADS>(stage + C::QUERY_BYTES,
                                        dy + row_of_thread * shape.y_stride + col, shape.y_stride,
                                        left, shape.head_size);
    uint32_t rows = stage + 2 * C::QUERY_BYTES;
    if (i < C::BM / 2)
        copy_async(rows + i * 16,
                   stats + (int64_t)number_of_head(work, member_of(at, shape), shape) * shape.rows +
                       q0 + i * 2);
    if (doc_start && i < C::BM)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(rows + C::BM * 8 + i * 4),
                     "l"(doc_start + row + (i < left ? i : 0)), "r"(i < left ? 4 : 0)
                     : "memory");
}

static __device__ inline float2 shared_pair(uint32_t address)
{
    float2 r;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(r.x), "=f"(r.y) : "r"(address));
    return r;
}

static __device__ inline float4 shared_four(uint32_t address)
{
    float4 r;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w)
                 : "r"(address));
    return r;
}

/* Where the document of a stage's first query begins. */
template <typename C> static __device__ inline int first_start(uint32_t stage)
{
    return __float_as_int(shared_pair(stage + 2 * C::QUERY_BYTES + 8 * C::BM).x);
}

/* The first tile of queries that sees the block's keys. */
template <typename C> static __device__ inline int first_tile(const block_work &work)
{
    return anew(work.key_tile) * (C::BN / C::BM);
}

/* Hide scores of keys from queries that may not see them. */
template <typename C>
static __device__ inline void hide_scores(float (&s)[C::MT][C::SUB / 8][4], uint32_t starts,
                                          bool docs, int key0, int q0)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < C::SUB / 8; n++) {
        int col = n * 8 + (lane & 3) * 2;
        float2 start = docs ? shared_pair(starts + col * 4) : make_float2(0, 0);
#pragma unroll
        for (int m = 0; m < C::MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = key0 + m * 16 + (lane >> 2) + (i >> 1) * 8;
                int first = __float_as_int((i & 1) ? start.y : start.x);
                if (key > q0 + col + (i & 1) || key < first) s[m][n][i] = -INFINITY;
            }
    }
}

/* Scores of eight queries to probabilities. */
template <typename C>
static __device__ inline void to_probabilities(float (&s)[C::MT][C::SUB / 8][4], int n,
                                               uint32_t rows, float scale_log2)
{
    float4 stats = shared_four(rows + (n * 8 + (threadIdx.x & 3) * 2) * 8);
#pragma unroll
    for (int m = 0; m < C::MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[m][n][i] = exp2_fast(fmaf(s[m][n][i], scale_log2, -((i & 1) ? stats.z : stats.x)));
}

/* dS' = P' (dP' - row sum) of eight queries, in place of dP'. */
template <typename C>
static __device__ inline void to_score_gradients(float (&dp)[C::MT][C::SUB / 8][4],
                                                 const float (&p)[C::MT][C::SUB / 8][4], int n,
                                                 uint32_t rows)
{
    float4 stats = shared_four(rows + (n * 8 + (threadIdx.x & 3) * 2) * 8);
#pragma unroll
    for (int m = 0; m < C::MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[m][n][i] = p[m][n][i] * (dp[m][n][i] - ((i & 1) ? stats.w : stats.y));
}

/* Round sixteen columns, the k-th, of C fragments into A fragments. */
template <typename T, int M, int K>
static __device__ inline void to_operand(uint32_t (&a)[M][K / 16][4], const float (&c)[M][K / 8][4],
                                         int k)
{
#pragma unroll
    for (int m = 0; m < M; m++) {
        a[m][k][0] = round_pair(c[m][2 * k][0], c[m][2 * k][1], T());
        a[m][k][1] = round_pair(c[m][2 * k][2], c[m][2 * k][3], T());
        a[m][k][2] = round_pair(c[m][2 * k + 1][0], c[m][2 * k + 1][1], T());
        a[m][k][3] = round_pair(c[m][2 * k + 1][2], c[m][2 * k + 1][3], T());
    }
}

/* dS' of the warp's keys and sixteen queries into the tile that all warps read: rows are keys,
 * columns queries. */
template <typename C>
static __device__ inline void put_score_gradients(uint32_t ds_tile, int warp_key, int q0, int k,
                                                  const uint32_t (&a)[C::MT][C::SUB / 16][4])
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < C::MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = warp_key + m * 16 + (lane >> 2) + (i & 1) * 8;
            uint32_t at =
                ds_tile + chunk_offset<C::BM>(key, q0 / 8 + k * 2 + (i >> 1)) + (lane & 3) * 4;
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(a[m][k][i]) : "memory");
        }
}

/* dq += dS K over KEYS keys, for the warp's queries and columns. */
template <typename T, typename C, int KEYS>
static __device__ inline void query_gradient(float (&dq)[C::DQ_ROWS / 16][C::DQ_COLS / 8][4],
                                             uint32_t ds_lane, uint32_t k_lane, int col0)
{
    column_mover<C::DP> column(k_lane, col0);
#pragma unroll
    for (int k = 0; k < KEYS; k += 16) {
        uint32_t a[C::DQ_ROWS / 16][4];
#pragma unroll
        for (int m = 0; m < C::DQ_ROWS / 16; m++)
            load_matrix_transposed(a[m], moved<C::BM>(ds_lane, k, m * 16));
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
    }
}

/* The warp's keys by SUB queries from `sub` on of a tile: its parts of dV and dK, and dS into its
 * tile. */
template <typename T, typename C>
static __device__ inline void key_gradients(float (&dk)[C::MT][C::COLS / 8][4],
                                            float (&dv)[C::MT][C::COLS / 8][4], uint32_t stage,
                                            uint32_t k_tile, uint32_t ds_tile, int key0, int q0,
                                            int sub, bool docs, float scale_log2)
{
    int warp = anew(threadIdx.x) >> 5, warp_key = warp / C::WD * 16 * C::MT;
    int warp_col = warp % C::WD * C::COLS;
    if (key0 + warp_key >= q0 + C::BM) return; /* the diagonal hides all of the warp's keys */
    uint32_t k_lane = lane_down<C::DP>(k_tile + warp_key * C::DP * 2);
    uint32_t q_tile = stage + sub * C::DP * 2, rows = stage + 2 * C::QUERY_BYTES + sub * 8;
    float p[C::MT][C::SUB / 8][4], ds[C::MT][C::SUB / 8][4];
    multiply_tiles<T, C::DP>(p, k_lane, lane_right<C::DP>(q_tile), [](int) {});
    if (docs || key0 + warp_key + 16 * C::MT - 1 > q0 + sub)
        hide_scores<C>(p, stage + 2 * C::QUERY_BYTES + C::BM * 8 + sub * 4, docs, key0 + warp_key,
                       q0 + sub);
    multiply_tiles<T, C::DP>(ds, k_lane + C::KEY_BYTES, lane_right<C::DP>(q_tile + C::QUERY_BYTES),
                             [&](int n) { to_probabilities<C>(p, n, rows, scale_log2); });
    uint32_t operand[C::MT][C::SUB / 16][4], ds_operand[C::MT][C::SUB / 16][4];
    uint32_t lane = lane_down<C::DP>(q_tile);
    multiply_add_tile<T, C::DP, C::MT, C::COLS / 8, C::SUB>(
        dv, operand, lane + C::QUERY_BYTES, warp_col, [&](int k) {
            to_operand<T, C::MT, C::SUB>(operand, p, k);
            to_score_gradients<C>(ds, p, 2 * k, rows);
            to_score_gradients<C>(ds, p, 2 * k + 1, rows);
            to_operand<T, C::MT, C::SUB>(ds_operand, ds, k);
            if (warp_col == 0) put_score_gradients<C>(ds_tile, warp_key, sub, k, ds_operand);
        });
    multiply_add_tile<T, C::DP, C::MT, C::COLS / 8, C::SUB>(dk, ds_operand, lane, warp_col,
                                                            [](int) {});
}

#endif
