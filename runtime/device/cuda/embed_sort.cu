/* runtime/device/cuda/embed_sort.cu - a stable sort of row numbers by a small integer key, and zeros
 * for the rows of a table that no key names.
 *
 * The embedding's gradient sums rows of equal token in order of row, so rows are first brought
 * together. Least significant digit first, 8 bits a pass: count the digits of each block's keys, add
 * up where each (digit, block) begins, move. Within a block, order comes from matching lanes of a warp
 * and from prefix sums over warps, so it is the same in every run.
 *
 * A sort of some ten thousand keys waits for its steps, not for memory: a few blocks do it, which meet
 * between steps, while the others of the same launch write the zeros, which take longer. Those that
 * sort are the first of the grid, so all of them run before any other block can take their place.
 *
 * Bytes: a pass reads and writes 8 a row, in the cache; the zeros are written once.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define DIGITS  256
#define THREADS 512
#define WARPS   (THREADS / 32)
#define SORTERS YK_CUDA_SORTERS

/* Blocks that write zeros; block z has rows z, z + ZEROERS, ... of the table. */
#define ZEROERS  256
#define MAX_ROWS 8192 /* of a block */

typedef struct sort_job {
    const int32_t *keys; /* (n) */
    int32_t *keys_of[2], *rows_of[2];
    int32_t *counts; /* (DIGITS,SORTERS) */
    unsigned *met;   /* how often sorters have come to a meeting; 0 at the start */
    int64_t n;
    int n_passes;
} sort_job;

typedef struct table {
    uint4 *at; /* (n_rows, words) */
    int n_rows, words;
} table;

/* ---- the sort
 * ----------------------------------------------------------------------------- */

/* All sorters come to meeting number `number`, from 1 on, before one of them leaves it; what they wrote
 * before is there for all afterwards. */
static __device__ inline void meet(unsigned *met, unsigned number)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(met, 1u);
        while (*(volatile unsigned *)met < number * SORTERS) {}
        __threadfence();
    }
    __syncthreads();
}

/* Keys begin .. end-1 with digit d of this pass into counts[d * SORTERS + the block]. */
static __device__ inline void count_digits(int32_t *counts, const int32_t *keys, int64_t begin,
                                           int64_t end, int shift)
{
    __shared__ int32_t count[DIGITS];
    if (threadIdx.x < DIGITS) count[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        atomicAdd(&count[__ldcg(keys + i) >> shift & (DIGITS - 1)], 1);
    __syncthreads();
    if (threadIdx.x < DIGITS) counts[threadIdx.x * SORTERS + blockIdx.x] = count[threadIdx.x];
}

/* Where the block's first key of each digit goes: behind all of lesser digits, and behind those of the
 * same digit that blocks before it have. */
static __device__ inline void find_places(int32_t *next, const int32_t *counts)
{
    __shared__ int32_t warp_total[DIGITS / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int32_t before = 0, mine = 0, sum;
    if (threadIdx.x < DIGITS) {
        for (int b = 0; b < SORTERS; b++) {
            int32_t count = __ldcg(counts + threadIdx.x * SORTERS + b);
            if (b < (int)blockIdx.x) before += count;
            mine += count;
        }
        sum = mine;
        for (int d = 1; d < 32; d <<= 1) {
            int32_t other = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += other;
        }
        if (lane == 31) warp_total[warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x < DIGITS) {
        for (int w = 0; w < warp; w++) sum += warp_total[w];
        next[threadIdx.x] = sum - mine + before;
    }
    __syncthreads();
}

/* Move keys begin .. end-1 and their rows to their places. `rows` NULL: rows are 0, 1, 2, ... */
static __device__ inline void move_rows(int32_t *keys_out, int32_t *rows_out, const int32_t *keys,
                                        const int32_t *rows, int32_t *next, int64_t begin,
                                        int64_t end, int shift)
{
    __shared__ int32_t place[WARPS][DIGITS]; /* keys of a digit in each warp, then their places */
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int64_t base = begin; base < end; base += THREADS) {
        for (int d = lane; d < DIGITS; d += 32) place[warp][d] = 0;
        __syncwarp();
        int64_t i = base + threadIdx.x;
        int32_t key = i < end ? __ldcg(keys + i) : -1, row = (int32_t)i;
        if (rows && i < end) row = __ldcg(rows + i);
        int digit = i < end ? key >> shift & (DIGITS - 1) : DIGITS;
        unsigned same = __match_any_sync(0xffffffffu, digit);
        int rank = __popc(same & ((1u << lane) - 1u));
        if (i < end && rank == 0) place[warp][digit] = __popc(same);
        __syncthreads();
        if (threadIdx.x < DIGITS) {
            int32_t at = next[threadIdx.x];
            for (int w = 0; w < WARPS; w++) {
                int32_t count = place[w][threadIdx.x];
                place[w][threadIdx.x] = at;
                at += count;
            }
            next[threadIdx.x] = at;
        }
        __syncthreads();
        if (i < end) {
            keys_out[place[warp][digit] + rank] = key;
            rows_out[place[warp][digit] + rank] = row;
        }
        __syncwarp();
    }
}

static __device__ inline void sort_keys(const sort_job &j)
{
    __shared__ int32_t next[DIGITS];
    int64_t share = (j.n + SORTERS - 1) / SORTERS, begin = blockIdx.x * share;
    int64_t end = begin + share < j.n ? begin + share : j.n;
    const int32_t *keys = j.keys, *rows = NULL;
    unsigned meetings = 0;
    for (int pass = 0; pass < j.n_passes; pass++) {
        int32_t *keys_out = j.keys_of[pass & 1], *rows_out = j.rows_of[pass & 1];
        count_digits(j.counts, keys, begin, end, 8 * pass);
        meet(j.met, ++meetings);
        find_places(next, j.counts);
        move_rows(keys_out, rows_out, keys, rows, next, begin, end, 8 * pass);
        meet(j.met, ++meetings);
        keys = keys_out, rows = rows_out;
    }
}

/* ---- zeros
 * -------------------------------------------------------------------------------- */

/* Rows z, z + ZEROERS, ... of the table become zero, but for those that a key names. */
static __device__ inline void zero_absent(const table &t, const int32_t *keys, int64_t n, int z)
{
    __shared__ uint32_t named[MAX_ROWS / 32];
    for (int i = threadIdx.x; i < MAX_ROWS / 32; i += THREADS) named[i] = 0;
    __syncthreads();
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        unsigned key = (unsigned)keys[i], mine = key / ZEROERS;
        if (key % ZEROERS == (unsigned)z) atomicOr(&named[mine >> 5], 1u << (mine & 31));
    }
    __syncthreads();
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int mine = warp; mine * ZEROERS + z < t.n_rows; mine += WARPS) {
        if (named[mine >> 5] >> (mine & 31) & 1) continue;
        uint4 *row = t.at + (int64_t)(mine * ZEROERS + z) * t.words;
        for (int w = lane; w < t.words; w += 32) row[w] = make_uint4(0, 0, 0, 0);
    }
}

static __global__ void __launch_bounds__(THREADS)
    sort_and_zero(const __grid_constant__ sort_job j, const __grid_constant__ table t)
{
    if (blockIdx.x < SORTERS)
        sort_keys(j);
    else
        zero_absent(t, j.keys, j.n, (int)blockIdx.x - SORTERS);
}

cudaError_t yk_cuda_sort_rows(const int32_t *keys, int64_t n, int64_t n_keys, void *zero,
                              int64_t row_bytes, void *ws, const int32_t **sorted_keys_out,
                              const int32_t **rows_out, cudaStream_t s)
{
    int64_t column = yk_cuda_sort_column_bytes(n);
    char *at = (char *)ws;
    sort_job j = {.keys = keys,
                  .keys_of = {(int32_t *)at, (int32_t *)(at + column)},
                  .rows_of = {(int32_t *)(at + 2 * column), (int32_t *)(at + 3 * column)},
                  .counts = (int32_t *)(at + 4 * column),
                  .met = (unsigned *)(at + 4 * column + DIGITS * SORTERS * 4),
                  .n = n,
                  .n_passes = 1};
    while ((n_keys - 1) >> 8 * j.n_passes > 0) j.n_passes++;
    table t = {(uint4 *)zero, (int)n_keys, (int)(row_bytes / 16)};
    bool beside = zero && is_aligned(zero) && row_bytes % 16 == 0 && row_bytes < INT32_MAX &&
                  n_keys <= (int64_t)MAX_ROWS * ZEROERS;
    cudaError_t e = cudaMemsetAsync(j.met, 0, sizeof *j.met, s);
    if (e == cudaSuccess && zero && !beside)
        e = cudaMemsetAsync(zero, 0, (size_t)(n_keys * row_bytes), s);
    if (e != cudaSuccess) return e;
    sort_and_zero<<<SORTERS + (beside ? ZEROERS : 0), THREADS, 0, s>>>(j, t);
    *sorted_keys_out = j.keys_of[(j.n_passes - 1) & 1];
    *rows_out = j.rows_of[(j.n_passes - 1) & 1];
    return cudaGetLastError();
}
