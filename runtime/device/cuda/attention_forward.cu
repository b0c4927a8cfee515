/* runtime/device/cuda/attention_forward.cu - causal attention forward with matrix instructions.
 *
 * Dao 2023, algorithm 1: a block owns BM queries of one head, goes through tiles of BN keys from
 * the diagonal down, and keeps a running maximum, sum and output per query in registers; scores
 * never leave them. A warp owns 16 * MT queries, so that each key fragment read from shared memory
 * serves MT products. The next tile of keys and values is on its way while the present one is used.
 * Blocks start in rounds of heads, the longest first (rounds.h), so that all end at about one time.
 *
 * Operations: 2 T^2 D per head counting what is seen; tiles across the diagonal add up to BM / T of
 * that, less what warps skip. Bytes: q, k, v read once from memory (keys again from the cache), y
 * written once. Shared memory: BM + 4 BN rows, 48 KiB at D = 64 and 96 at 128, and where the
 * documents of BM queries begin, for which there are no registers.
 */
#include "runtime/device/cuda/mma.cuh"
#include "runtime/device/cuda/rounds.h"
#include "runtime/device/cuda/sizes.h"

typedef struct forward_shape {
    int seq_len, heads, kv_heads, head_size, n_tiles;
    int n_heads, round_heads; /* of all batches; of a round */
    int qkv_stride, y_stride; /* elements between rows */
    float scale_log2;         /* scale * log2(e) */
} forward_shape;

/* What one warp keeps of its queries: rows g and g + 8 of each of MT fragments.
 */
template <int DP, int MT> struct running {
    float out[MT][DP / 8][4];
    float base[MT][2],
        sum[MT][2]; /* about the greatest score, times scale_log2; sum of 2^(score - base) */
};

static __device__ inline int shared_int(uint32_t address)
{
    int x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(address));
    return x;
}

/* Put where the documents of BM queries begin into shared memory; of those past the sequence, where
 * the last one's does. */
template <int BM, int THREADS>
static __device__ inline void put_starts(uint32_t starts, const int32_t *doc_start, int q0,
                                         int seq_len)
{
    for (int i = threadIdx.x; i < BM; i += THREADS) {
        int row = q0 + i < seq_len ? q0 + i : seq_len - 1;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(starts + i * 4),
                     "r"(doc_start ? doc_start[row] : 0)
                     : "memory");
    }
}

/* Hide keys after the query and before its document, which for the warp's first query begins at what
 * lies at `starts`. */
template <int BN, int MT>
static __device__ inline void mask_tile(float (&scores)[MT][BN / 8][4], int row0, int key0,
                                        uint32_t starts)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int below = m * 16 + (lane >> 2) + h * 8, row = row0 + below;
            int first = shared_int(starts + below * 4);
#pragma unroll
            for (int n = 0; n < BN / 8; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int key = key0 + n * 8 + (lane & 3) * 2 + i;
                    if (key > row || key < first) scores[m][n][2 * h + i] = -INFINITY;
                }
        }
}

/* Where a row's greatest score has grown, rescale what was summed. The base may stay behind by SLACK:
 * then probabilities are up to 2^SLACK, of which 16 bits keep as many digits, and what was summed is
 * rescaled for the first tile and hardly ever after. */
#define SLACK 8.0f

template <int DP, int BN, int MT>
static __device__ inline void raise_bases(const float (&scores)[MT][BN / 8][4], running<DP, MT> &r,
                                          float scale_log2)
{
    float top[MT][2];
    bool raised = false;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float t = -INFINITY;
#pragma unroll
            for (int n = 0; n < BN / 8; n++)
                t = fmaxf(t, fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
            t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
            t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
            top[m][h] = t * scale_log2;
            raised |= top[m][h] > r.base[m][h] + SLACK;
        }
    if (!__any_sync(0xffffffffu, raised)) return;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float base = top[m][h] > r.base[m][h] + SLACK ? top[m][h] : r.base[m][h];
            float shrink = exp2_fast(r.base[m][h] - base);
            r.base[m][h] = base;
            r.sum[m][h] *= shrink;
#pragma unroll
            for (int n = 0; n < DP / 8; n++) {
                r.out[m][n][2 * h] *= shrink;
                r.out[m][n][2 * h + 1] *= shrink;
            }
        }
}

/* Turn scores into probabilities relative to the bases, and add them up. */
template <int DP, int BN, int MT>
static __device__ inline void softmax_tile(float (&scores)[MT][BN / 8][4], running<DP, MT> &r,
                                           float scale_log2)
{
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                scores[m][n][i] = exp2_fast(fmaf(scores[m][n][i], scale_log2, -r.base[m][i / 2]));
                r.sum[m][i / 2] += scores[m][n][i];
            }
}

/* out += P V. */
template <typename T, int DP, int BN, int MT>
static __device__ inline void value_tile(running<DP, MT> &r, const float (&p)[MT][BN / 8][4],
                                         uint32_t v_lane)
{
#pragma unroll
    for (int n = 0; n < BN; n += 16) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            const float(&left)[4] = p[m][n / 8], (&right)[4] = p[m][n / 8 + 1];
            a[m][0] = round_pair(left[0], left[1], T());
            a[m][1] = round_pair(left[2], left[3], T());
            a[m][2] = round_pair(right[0], right[1], T());
            a[m][3] = round_pair(right[2], right[3], T());
        }
#pragma unroll
        for (int d = 0; d < DP; d += 16) {
            uint32_t b[4];
            load_matrix_transposed(b, moved<DP>(v_lane, n, d));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply_add(r.out[m][d / 8], a[m], b[0], b[1], T());
                multiply_add(r.out[m][d / 8 + 1], a[m], b[2], b[3], T());
            }
        }
    }
}

/* Divide by the sums, write the log-sums, and put y into the warp's own rows of
 * q's tile, from where rows leave whole. */
template <typename T, int DP, int MT>
static __device__ inline void finish_rows(running<DP, MT> &r, T *y, float *lse, uint32_t q_tile,
                                          int q0, int warp_row, const forward_shape &shape)
{
    int lane = threadIdx.x & 31;
    __syncwarp(); /* all lanes have read q */
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = r.sum[m][h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            int row = warp_row + m * 16 + (lane >> 2) + h * 8;
            if ((lane & 3) == 0 && q0 + row < shape.seq_len)
                lse[q0 + row] = r.base[m][h] * LN_2 + logf(sum);
            float per_sum = 1.0f / sum;
#pragma unroll
            for (int n = 0; n < DP / 8; n++) {
                uint32_t pair =
                    round_pair(r.out[m][n][2 * h] * per_sum, r.out[m][n][2 * h + 1] * per_sum, T());
                asm volatile("st.shared.b32 [%0], %1;" ::"r"(q_tile + chunk_offset<DP>(row, n) +
                                                             (lane & 3) * 4),
                             "r"(pair)
                             : "memory");
            }
        }
    __syncwarp();
    constexpr int CHUNKS = DP / 8;
#pragma unroll 4
    for (int i = lane; i < 16 * MT * CHUNKS; i += 32) {
        int row = warp_row + i / CHUNKS, chunk = i % CHUNKS;
        if (q0 + row >= shape.seq_len || chunk * 8 >= shape.head_size) continue;
        uint4 w;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                     : "r"(q_tile + chunk_offset<DP>(row, chunk)));
        *reinterpret_cast<uint4 *>(y + (int64_t)(q0 + row) * shape.y_stride + chunk * 8) = w;
    }
}

template <typename T, int DP, int BM, int BN, int MT, int BLOCKS>
static __global__ void __launch_bounds__(BM / MT * 2, BLOCKS)
    attend(T *y, float *lse, const T *qkv, const int32_t *doc_start, forward_shape shape)
{
    constexpr int THREADS = BM / MT * 2, TILE = BN * DP * 2;
    extern __shared__ __align__(1024) unsigned char shared[];
    uint32_t q_tile = shared_address(shared), kv_tiles = q_tile + BM * DP * 2;
    yk_cuda_place place = yk_cuda_place_of((int)blockIdx.x, shape.n_tiles, shape.heads,
                                           shape.n_heads, shape.round_heads);
    int tile = place.tile, batch = place.batch, head = place.head;
    int seq_len = shape.seq_len, stride = shape.qkv_stride, cols = shape.head_size;
    int q0 = tile * BM, warp_row = (threadIdx.x >> 5) * 16 * MT;
    const T *rows =
        qkv + (int64_t)batch * seq_len * stride + tile_share<DP, THREADS>::begin(stride);
    const T *k = rows + (shape.heads + head / (shape.heads / shape.kv_heads)) * cols;
    int v_offset = shape.kv_heads * cols;
    const int32_t *starts = doc_start ? doc_start + (int64_t)batch * seq_len : NULL;

    int row0 = q0 + warp_row, row_last = row0 + 16 * MT - 1; /* the warp's queries */
    int j = ((q0 + BM < seq_len ? q0 + BM : seq_len) - 1) / BN;
    int j_first = starts ? starts[q0] / BN : 0;
    uint32_t starts_tile = kv_tiles + 4 * TILE;
    load_tile<DP, BM, THREADS>(q_tile, rows + (int64_t)q0 * stride + head * cols, stride,
                               seq_len - q0, cols);
    k += (int64_t)j * BN * stride;
    load_tile<DP, BN, THREADS>(kv_tiles, k, stride, seq_len - j * BN, cols);
    load_tile<DP, BN, THREADS>(kv_tiles + TILE, k + v_offset, stride, seq_len - j * BN, cols);
    copy_commit();
    put_starts<BM, THREADS>(starts_tile, starts, q0, seq_len);

    running<DP, MT> r;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        r.base[m][0] = r.base[m][1] = -INFINITY;
        r.sum[m][0] = r.sum[m][1] = 0;
#pragma unroll
        for (int n = 0; n < DP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) r.out[m][n][i] = 0;
    }
    uint32_t q_lane = lane_down<DP>(q_tile + warp_row * DP * 2);
#pragma unroll 1
    for (uint32_t stage = 0; j >= j_first; j--, stage ^= 2 * TILE) {
        copy_wait<0>();
        __syncthreads();
        if (j > j_first) {
            uint32_t next = kv_tiles + (stage ^ (2 * TILE));
            k -= (int64_t)BN * stride;
            load_tile<DP, BN, THREADS>(next, k, stride, BN, cols);
            load_tile<DP, BN, THREADS>(next + TILE, k + v_offset, stride, BN, cols);
            copy_commit();
        }
        int key0 = j * BN;
        uint32_t warp_starts = starts_tile + warp_row * 4;
        int first = shared_int(warp_starts);
        int first_last = shared_int(warp_starts + (16 * MT - 1) * 4);
        if (key0 > row_last || key0 + BN <= first) continue; /* nothing for this warp */
        float scores[MT][BN / 8][4];
        multiply_tiles<T, DP>(scores, q_lane, lane_right<DP>(kv_tiles + stage), [](int) {});
        if (key0 + BN - 1 > row0 || key0 < first_last)
            mask_tile<BN, MT>(scores, row0, key0, warp_starts);
        raise_bases<DP, BN, MT>(scores, r, shape.scale_log2);
        softmax_tile<DP, BN, MT>(scores, r, shape.scale_log2);
        value_tile<T, DP, BN, MT>(r, scores, lane_down<DP>(kv_tiles + stage + TILE));
    }
    if (row0 >= seq_len) return;
    finish_rows<T, DP, MT>(r, y + (int64_t)batch * seq_len * shape.y_stride + head * cols,
                           lse + (int64_t)(batch * shape.heads + head) * seq_len, q_tile, q0,
                           warp_row, shape);
}

/* ---- launchers ----------------------------------------------------------------------------- */

/* One kernel and its tile sizes. */
template <typename T, int DP, int BM, int BN, int MT, int BLOCKS> struct forward_kernel {
    static const int shared_bytes = (BM + 4 * BN) * DP * 2 + BM * 4;
    static_assert(shared_bytes <= SHARED_EVERYWHERE, "there is one kernel for all GPUs");

    static cudaError_t prepare(int shared_bytes_max)
    {
        if (shared_bytes > shared_bytes_max) return cudaErrorInvalidConfiguration;
        return cudaFuncSetAttribute(attend<T, DP, BM, BN, MT, BLOCKS>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    }

    static cudaError_t launch(const yk_attention_forward_args *a, cudaStream_t s)
    {
        forward_shape shape;
        shape.seq_len = (int)a->seq_len;
        shape.heads = (int)a->heads;
        shape.kv_heads = (int)a->kv_heads;
        shape.head_size = (int)a->head_size;
        shape.qkv_stride = (int)((a->heads + 2 * a->kv_heads) * a->head_size);
        shape.y_stride = (int)(a->heads * a->head_size);
        shape.scale_log2 = a->scale * LOG2_E;
        shape.n_heads = (int)(a->batch * a->heads);
        shape.n_tiles = (int)div_up(a->seq_len, BM);
        shape.round_heads = yk_cuda_round_heads(shape.n_heads, shape.n_tiles);
        attend<T, DP, BM, BN, MT, BLOCKS>
            <<<(unsigned)(shape.n_heads * shape.n_tiles), BM / MT * 2, shared_bytes, s>>>(
                (T *)a->y, a->lse, (const T *)a->qkv, a->doc_start, shape);
        return cudaGetLastError();
    }
};

/* Call f with the kernel for heads padded to `padded` columns. */
template <typename T, typename F> static cudaError_t with_kernel(int64_t padded, F f)
{
    switch (padded) {
    case 32:
        return f(forward_kernel<T, 32, 128, 64, 2, 3>());
    case 64:
        return f(forward_kernel<T, 64, 128, 64, 2, 3>());
    case 96:
        return f(forward_kernel<T, 96, 128, 64, 2, 2>());
    case 128:
        return f(forward_kernel<T, 128, 128, 64, 2, 2>());
    case 192:
        return f(forward_kernel<T, 192, 64, 32, 1, 2>());
    default:
        return f(forward_kernel<T, 256, 64, 32, 1, 2>());
    }
}

cudaError_t yk_cuda_flash_forward(const yk_attention_forward_args *a, cudaStream_t s)
{
    auto launch = [&](auto kernel) { return kernel.launch(a, s); };
    int64_t padded = yk_cuda_flash_padded(a->head_size);
    return a->dtype == YK_BF16 ? with_kernel<bf16>(padded, launch)
                               : with_kernel<f16>(padded, launch);
}

cudaError_t yk_cuda_flash_forward_prepare(int shared_bytes_max)
{
    static const int64_t sizes[] = {32, 64, 96, 128, 192, 256};
    auto prepare = [&](auto kernel) { return kernel.prepare(shared_bytes_max); };
    for (int64_t padded : sizes) {
        cudaError_t e = with_kernel<bf16>(padded, prepare);
        if (e == cudaSuccess) e = with_kernel<f16>(padded, prepare);
        if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
}
