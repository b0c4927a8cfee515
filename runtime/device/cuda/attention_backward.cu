/* runtime/device/cuda/attention_backward.cu - causal attention backward with matrix instructions.
 *
 * Dao 2023, algorithm 2: a block owns BN keys of one query head, or of a few of a group, and goes
 * through tiles of BM queries from the sequence's end to the diagonal. Scores are computed
 * transposed, keys by queries, SUB queries at a time, so that probabilities and their gradients are
 * operands of the next products as they lie in registers:
 *     S' = K Q'    P' = exp(S' - lse)    dP' = V dy'    dS' = P' (dP' - rowsum(dy y))
 *     dV += P' dy    dK += dS' Q    dQ += dS K, for which dS' goes through shared memory
 * Five products, each once. dK and dV stay in registers. dQ of a tile comes while the next tile's
 * scores do, where shared memory holds two of each: then all warps meet once a tile.
 *
 * Order.  Parts of dQ of one tile are added in fp32, from the first keys to the diagonal, by one
 * block after the other (turns.cuh); a warp adds to what the same warp of the block before has
 * left, and waits for nobody else. The first keys, which most queries see, start first, so that all
 * blocks end at about the same time; heads go in rounds, so that blocks of a head start about as
 * far apart as they have to follow each other. The first part writes, the last one rounds into
 * dqkv, and what lies between stays in the cache: heads take turns at a few places. The heads of a
 * key-value group add up dK and dV in the same way, in order of head; since those that start
 * together also end together and wait for each other, a block goes through a few of them.
 *
 * Operations: 5 T^2 D per head counting what is seen. Bytes: q, k, v, y, dy read and dq, dk, dv
 * written once; q and dy again from the cache for each block of keys.
 */
#include "runtime/device/cuda/backward_tile.cuh"
#include "runtime/device/cuda/sizes.h"
#include "runtime/device/cuda/turns.cuh"

typedef struct backward_memory {
    float2 *stats;   /* (B,H,rows): log2 of the softmax sum; rowsum(dy y) */
    float *dq, *dkv; /* parts under way, in fragments */
    int *dq_flags;   /* (B,H,query tiles) parts added */
    int *dkv_flags;  /* (B,G,key tiles) heads added */
} backward_memory;

/* ---- row sums ------------------------------------------------------------------------------ */

/* Eight lanes a row of one head; rows past the sequence, up to whole tiles, get zeros. */
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
    float lse2 = there ? lse[of_head * shape.seq_len + t] * LOG2_E : 0.0f;
    memory.stats[of_head * shape.rows + t] = make_float2(lse2, sum);
}

/* ---- the kernel ---------------------------------------------------------------------------- */

/* Heads go in rounds; in a round the first keys, which most queries see, start first, so that at
 * the end all blocks finish at about the same time. */
static __device__ inline block_work work_of(const backward_shape &shape)
{
    int block = anew(blockIdx.x), round = block / (shape.round_sets * shape.n_tiles);
    int first = round * shape.round_sets, left = shape.n_sets - first;
    int n = left < shape.round_sets ? left : shape.round_sets;
    int at = block - first * shape.n_tiles;
    int of_head = (first + at % n) * shape.set_heads, batch = of_head / shape.heads;
    return {at / n, batch, of_head - batch * shape.heads};
}

/* The warp's flag of a tile of queries, and which flag has to have which value when it is this
 * block's turn to add to dq. */
typedef struct dq_turn {
    int *flag;
    const int *awaited;
    int value;
} dq_turn;

/* `turn` blocks come before; the first waits for the head that had its place. */
template <typename C>
static __device__ inline dq_turn turn_of(const backward_memory &memory, const block_work &work,
                                         int at, int turn, const backward_shape &shape)
{
    int tiles = shape.rows / C::BM, of_head = number_of_head(work, member_of(at, shape), shape);
    int *flag = memory.dq_flags + (of_head * tiles + tile_of(at)) * C::WARPS + (threadIdx.x >> 5);
    if (turn == 0 && of_head >= shape.dq_places)
        return {flag, flag - shape.dq_places * tiles * C::WARPS, FINISHED};
    return {flag, flag, turn};
}

/* Add the warp's part of dS K to dq of a tile of queries when it is its turn, of which `found` was
 * the flag a while ago; pass on the tile before, whose flag gets `written`. Returns what this
 * tile's flag is to get once the part is there for all to see. */
template <typename T, typename C>
static __device__ inline int add_query_gradient(T *dqkv, uint32_t k_tile, uint32_t ds_tile, int at,
                                                int turn, int found, int written,
                                                const backward_memory &memory,
                                                const block_work &work, const backward_shape &shape)
{
    dq_turn now = turn_of<C>(memory, work, at, turn, shape);
    while (found != now.value) {
        __nanosleep(32);
        found = flag_read(now.awaited);
    }
    __syncwarp();
    flag_fence();
    if (written && (threadIdx.x & 31) == 0)
        flag_write(turn_of<C>(memory, work, before(at, shape), 1, shape).flag, written);

    int place = number_of_head(work, member_of(at, shape), shape) % shape.dq_places,
        q0 = tile_of(at) * C::BM;
    float *part = memory.dq + ((int64_t)place * shape.rows + q0) * C::DP;
    float dq[C::DQ_ROWS / 16][C::DQ_COLS / 8][4], others[C::DQ_ROWS / 16][C::DQ_COLS / 8][4];
    if (turn > 0)
        part_get<C::THREADS>(others, part);
    else
        clear(others);
    clear(dq);
    int warp = anew(threadIdx.x) >> 5, key0 = anew(work.key_tile) * C::BN, seen = q0 + C::BM - key0;
    int row = warp % C::WQ * C::DQ_ROWS, col = warp / C::WQ * C::DQ_COLS;
    uint32_t ds_lane = moved<C::BM>(lane_right<C::BM>(ds_tile), 0, row);
    uint32_t k_lane = lane_down<C::DP>(k_tile);
    if (seen >= C::BN)
        query_gradient<T, C, C::BN>(dq, ds_lane, k_lane, col);
    else
        for (int key = 0; key < seen; key += C::BM)
            query_gradient<T, C, C::BM>(dq, ds_lane + key * C::BM * 2, k_lane + key * C::DP * 2,
                                        col);
    add(dq, others);
    if (q0 >= key0 + C::BN) {
        part_put<C::THREADS>(part, dq);
        return turn + 1;
    }
    put_rows(dqkv + (int64_t)anew(work.batch) * shape.seq_len * shape.qkv_stride +
                 (anew(work.head) + member_of(at, shape)) * shape.head_size,
             shape.qkv_stride, q0 + row, shape.seq_len, col, shape.head_size, dq, shape.scale);
    return FINISHED;
}

/* Add dK and dV of the heads of a group in turn, and write them where this one is the last. */
template <typename T, typename C>
static __device__ inline void add_key_gradients(T *dqkv, float (&dk)[C::MT][C::COLS / 8][4],
                                                float (&dv)[C::MT][C::COLS / 8][4],
                                                const backward_memory &memory,
                                                const backward_shape &shape)
{
    block_work work = work_of(shape);
    int group = shape.group, kv_head = work.head / group;
    int turn = work.head - kv_head * group; /* of its first head */
    bool last = turn + shape.set_heads == group;
    if (shape.set_heads < group) {
        constexpr int64_t size = (int64_t)C::BN * C::DP;
        int64_t of_group = (int64_t)work.batch * shape.kv_heads + kv_head;
        int *flag = memory.dkv_flags + of_group * shape.n_tiles + work.key_tile;
        float *part =
            memory.dkv + ((of_group % shape.dkv_places) * shape.n_tiles + work.key_tile) * 2 * size;
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
        if (threadIdx.x == 0) {
            flag_fence();
            flag_write(flag, last ? FINISHED : turn + shape.set_heads);
        }
        if (!last) return;
    }
    int warp = anew(threadIdx.x) >> 5, row = work.key_tile * C::BN + warp / C::WD * 16 * C::MT;
    int col = warp % C::WD * C::COLS;
    T *to = dqkv + (int64_t)work.batch * shape.seq_len * shape.qkv_stride +
            (shape.heads + kv_head) * shape.head_size;
    put_rows(to, shape.qkv_stride, row, shape.seq_len, col, shape.head_size, dk, shape.scale);
    put_rows(to + shape.kv_heads * shape.head_size, shape.qkv_stride, row, shape.seq_len, col,
             shape.head_size, dv, 1.0f);
}

/* The end of the tiles of queries that see any of n_keys keys from key0 on: documents begin in
 * order, so halve until the first tile that begins too late. */
template <int BM>
static __device__ inline int end_of_tiles(const int32_t *doc_start, int batch, int key0, int n_keys,
                                          int seq_len)
{
    int low = key0 / BM, end = (seq_len + BM - 1) / BM;
    if (!doc_start) return end;
    while (low < end) {
        int middle = (low + end) / 2;
        if (doc_start[(int64_t)batch * seq_len + middle * BM] < key0 + n_keys)
            low = middle + 1;
        else
            end = middle;
    }
    return end;
}

template <typename T, typename C>
static __global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    attend_back(T *dqkv, const T *dy, const T *qkv, const int32_t *doc_start,
                backward_memory memory, backward_shape shape)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    uint32_t k_tile = shared_address(shared), v_tile = k_tile + C::KEY_BYTES;
    uint32_t ds_tiles = v_tile + C::KEY_BYTES, stages = ds_tiles + C::STAGES * C::DS_BYTES;
    block_work work = work_of(shape);
    int key0 = work.key_tile * C::BN;
    int at =
        first_of(end_of_tiles<C::BM>(doc_start, work.batch, key0, C::BN, shape.seq_len) - 1, shape);
    {
        int kv_head = shape.heads + work.head / shape.group;
        const T *k = qkv + ((int64_t)work.batch * shape.seq_len + key0) * shape.qkv_stride +
                     kv_head * shape.head_size +
                     tile_share<C::DP, C::THREADS>::begin(shape.qkv_stride);
        load_tile<C::DP, C::BN, C::THREADS>(k_tile, k, shape.qkv_stride, shape.seq_len - key0,
                                            shape.head_size);
        load_tile<C::DP, C::BN, C::THREADS>(v_tile, k + shape.kv_heads * shape.head_size,
                                            shape.qkv_stride, shape.seq_len - key0,
                                            shape.head_size);
    }
    load_queries<T, C>(stages, qkv, dy, memory.stats, doc_start, at, work, shape);
    copy_commit();

    float dk[C::MT][C::COLS / 8][4], dv[C::MT][C::COLS / 8][4];
    clear(dk);
    clear(dv);
    constexpr int LAG = C::STAGES - 1; /* how many tiles dq comes later */
    int turn = -1, written = 0;        /* no dq is due; no flag is to be written */
    uint32_t odd = 0;
#pragma unroll 1
    for (;; odd ^= LAG) {
        uint32_t stage = stages + odd * C::STAGE_BYTES;
        copy_wait<0>();
        __syncthreads(); /* the stage is there; so is dS of the tile before */
        int next_at = after(anew(at), shape);
        if (LAG == 1 && tile_of(next_at) >= first_tile<C>(work)) {
            load_queries<T, C>(stages + (odd ^ 1) * C::STAGE_BYTES, qkv, dy, memory.stats,
                               doc_start, next_at, work, shape);
            copy_commit();
        }
        int found = 0, next_turn = turn;
        if (!C::ALTERNATE && (LAG == 0 || turn >= 0))
            found = flag_read(
                turn_of<C>(memory, work, LAG == 0 ? at : before(anew(at), shape), 1, shape).flag);
        bool keys = !(C::ALTERNATE && (int)threadIdx.x >= C::THREADS / 2);
#pragma unroll(C::ALTERNATE ? 1 : 2)
        for (int half = 0; half < 2; half++, keys = !keys) {
            if (keys && tile_of(at) >= first_tile<C>(work)) {
#pragma unroll 1
                for (int sub = 0; sub < C::BM; sub += C::SUB)
                    key_gradients<T, C>(dk, dv, stage, k_tile, ds_tiles + odd * C::DS_BYTES,
                                        work.key_tile * C::BN, tile_of(anew(at)) * C::BM, sub,
                                        doc_start != NULL, shape.scale_log2);
                next_turn = work.key_tile - (doc_start ? first_start<C>(stage) / C::BN : 0);
            }
            if (LAG == 0 && keys) {
                turn = next_turn;
                __syncthreads(); /* dS is there; q and dy are free */
                next_at = after(anew(at), shape);
                if (tile_of(next_at) >= first_tile<C>(work)) {
                    load_queries<T, C>(stage, qkv, dy, memory.stats, doc_start, next_at, work,
                                       shape);
                    copy_commit();
                }
            }
            if (!keys && (LAG == 0 || turn >= 0))
                written =
                    add_query_gradient<T, C>(dqkv, k_tile, ds_tiles + (odd ^ LAG) * C::DS_BYTES,
                                             LAG == 0 ? at : before(anew(at), shape), turn, found,
                                             written, memory, work, shape);
        }
        turn = next_turn;
        next_at = after(anew(at), shape);
        if (tile_of(LAG == 0 ? next_at : at) < first_tile<C>(work)) break;
        at = next_at;
    }
    __syncwarp();
    flag_fence();
    if ((threadIdx.x & 31) == 0) {
        int last = first_tile<C>(work) * 4;
        flag_write(turn_of<C>(memory, work, last, 1, shape).flag, written);
    }
    add_key_gradients<T, C>(dqkv, dk, dv, memory, shape);
}

/* ---- launchers ----------------------------------------------------------------------------- */

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
        backward_memory memory = {(float2 *)(at + l.stats), (float *)(at + l.dq),
                                  (float *)(at + l.dkv), (int *)(at + l.flags),
                                  (int *)(at + l.dkv_flags)};
        backward_shape shape;
        shape.seq_len = (int)a->seq_len;
        shape.heads = (int)a->heads;
        shape.kv_heads = (int)a->kv_heads;
        shape.group = (int)(a->heads / a->kv_heads);
        shape.head_size = (int)a->head_size;
        shape.n_tiles = (int)l.n_tiles;
        shape.rows = (int)l.rows;
        shape.qkv_stride = (int)((a->heads + 2 * a->kv_heads) * a->head_size);
        shape.y_stride = (int)(a->heads * a->head_size);
        shape.dq_places = (int)l.dq_places;
        shape.dkv_places = (int)l.dkv_places;
        shape.set_heads = (int)l.set_heads;
        shape.n_sets = (int)(a->batch * a->heads / l.set_heads);
        shape.round_sets = (int)(l.round_heads / l.set_heads);
        shape.scale = a->scale;
        shape.scale_log2 = a->scale * LOG2_E;
        cudaError_t e = cudaMemsetAsync(at + l.flags, 0, (size_t)l.flags_bytes, s);
        if (e != cudaSuccess) return e;
        int64_t n_items = a->batch * l.rows * a->heads;
        sum_rows<T><<<(unsigned)div_up(n_items, 32), 256, 0, s>>>(
            memory, (const T *)a->dy, (const T *)a->y, a->lse, n_items, shape);
        attend_back<T, C><<<(unsigned)(shape.n_sets * l.n_tiles), C::THREADS, C::SHARED, s>>>(
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

/* Call f with the kernel for heads padded to `padded` columns, in blocks of at most
 * `shared_bytes_max`. The number of keys a block is the same for both: the workspace's layout. */
template <typename T, typename F>
static cudaError_t with_kernel(int64_t padded, int shared_bytes_max, F f)
{
    bool large = shared_bytes_max > 160 * 1024;
    switch (padded) {
    case 32:
        return f(everywhere<T, tiles<32, 32, 32, 2, 4, 1, 2, 1, 2>>());
    case 64:
        return large ? f(backward_kernel<T, tiles<64, 64, 32, 2, 4, 1, 2, 2, 2>>())
                     : f(everywhere<T, tiles<64, 32, 32, 2, 4, 1, 1, 1, 2>>());
    case 96:
        return f(everywhere<T, tiles<96, 64, 64, 1, 8, 1, 4, 1, 1>>());
    case 128:
        return large ? f(backward_kernel<T, tiles<128, 64, 64, 1, 8, 1, 2, 2, 1>>())
                     : f(everywhere<T, tiles<128, 32, 32, 1, 8, 1, 1, 1, 1>>());
    case 192:
        return f(everywhere<T, tiles<192, 32, 32, 1, 8, 2, 2, 1, 1>>());
    default:
        return f(everywhere<T, tiles<256, 16, 16, 1, 8, 2, 1, 1, 1>>());
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
