/* runtime/device/cuda/embed_sort.cu - a stable sort of row numbers by a small
 * integer key.
 *
 * The embedding's gradient sums rows of equal token in order of row, so rows
 * are first brought together. Least significant digit first, 8 bits a pass:
 * count the digits of each tile of keys, add up where each (digit, tile)
 * begins, move. Within a tile, order comes from matching lanes of a warp and
 * from prefix sums over warps: no atomics, so the order is the same in every
 * run.
 *
 * Bytes: a pass reads and writes 8 bytes a row; 65,536 rows are half a
 * megabyte, so the time is that of three launches a pass.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define DIGITS  256
#define THREADS 256
#define WARPS   (THREADS / 32)

/* Keys of a tile with digit d of this pass into counts[d * n_tiles + tile]. */
static __global__ void count_digits(int32_t *counts, const int32_t *keys, int64_t n, int shift)
{
    __shared__ int32_t count[DIGITS];
    count[threadIdx.x] = 0;
    __syncthreads();
    int64_t begin = (int64_t)blockIdx.x * YK_CUDA_SORT_TILE;
    for (int i = threadIdx.x; i < YK_CUDA_SORT_TILE; i += THREADS)
        if (begin + i < n) atomicAdd(&count[keys[begin + i] >> shift & (DIGITS - 1)], 1);
    __syncthreads();
    counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

/* Exclusive prefix sums of counts (n), in place, by one block. */
static __global__ void scan_counts(int32_t *counts, int64_t n)
{
    __shared__ int32_t warp_total[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int32_t before = 0;
    for (int64_t base = 0; base < n; base += blockDim.x) {
        int64_t i = base + threadIdx.x;
        int32_t mine = i < n ? counts[i] : 0, sum = mine;
        for (int d = 1; d < 32; d <<= 1) {
            int32_t other = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += other;
        }
        if (lane == 31) warp_total[warp] = sum;
        __syncthreads();
        int32_t totals = warp_total[lane];
        for (int d = 1; d < 32; d <<= 1) {
            int32_t other = __shfl_up_sync(0xffffffffu, totals, d);
            if (lane >= d) totals += other;
        }
        int32_t block_total = __shfl_sync(0xffffffffu, totals, 31);
        int32_t warps_before = __shfl_sync(0xffffffffu, totals, warp ? warp - 1 : 0);
        if (i < n) counts[i] = before + (warp ? warps_before : 0) + sum - mine;
        before += block_total;
        __syncthreads();
    }
}

/* Move each key and its row to its place. `rows` NULL: rows are 0, 1, 2, ... */
static __global__ void move_rows(int32_t *keys_out, int32_t *rows_out, const int32_t *keys,
                                 const int32_t *rows, const int32_t *starts, int64_t n, int shift)
{
    __shared__ int32_t next[DIGITS];         /* where the tile's next key of a digit goes */
    __shared__ int32_t place[WARPS][DIGITS]; /* keys of a digit in each warp, then
                                              their places */
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    next[threadIdx.x] = starts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x];
    int64_t begin = (int64_t)blockIdx.x * YK_CUDA_SORT_TILE;
    for (int base = 0; base < YK_CUDA_SORT_TILE; base += THREADS) {
        for (int w = 0; w < WARPS; w++) place[w][threadIdx.x] = 0;
        __syncthreads();
        int64_t i = begin + base + threadIdx.x;
        int32_t key = i < n ? keys[i] : -1, row = i < n ? (rows ? rows[i] : (int32_t)i) : 0;
        int digit = i < n ? key >> shift & (DIGITS - 1) : DIGITS;
        unsigned same = __match_any_sync(0xffffffffu, digit);
        int rank = __popc(same & ((1u << lane) - 1u));
        if (i < n && rank == 0) place[warp][digit] = __popc(same);
        __syncthreads();
        int32_t at = next[threadIdx.x];
        for (int w = 0; w < WARPS; w++) {
            int32_t count = place[w][threadIdx.x];
            place[w][threadIdx.x] = at;
            at += count;
        }
        next[threadIdx.x] = at;
        __syncthreads();
        if (i < n) {
            keys_out[place[warp][digit] + rank] = key;
            rows_out[place[warp][digit] + rank] = row;
        }
        __syncthreads();
    }
}

cudaError_t yk_cuda_sort_rows(const int32_t *keys, int64_t n, int64_t n_keys, void *ws,
                              const int32_t **sorted_keys_out, const int32_t **rows_out,
                              cudaStream_t s)
{
    int64_t n_tiles = div_up(n, YK_CUDA_SORT_TILE);
    int64_t column = yk_cuda_sort_column_bytes(n);
    char *at = (char *)ws;
    int32_t *keys_of[2] = {(int32_t *)at, (int32_t *)(at + column)};
    int32_t *rows_of[2] = {(int32_t *)(at + 2 * column), (int32_t *)(at + 3 * column)};
    int32_t *counts = (int32_t *)(at + 4 * column);
    const int32_t *from_keys = keys, *from_rows = NULL;
    int to = 0;
    for (int shift = 0; shift == 0 || (n_keys - 1) >> shift > 0; shift += 8, to ^= 1) {
        count_digits<<<(unsigned)n_tiles, THREADS, 0, s>>>(counts, from_keys, n, shift);
        scan_counts<<<1, 1024, 0, s>>>(counts, n_tiles * DIGITS);
        move_rows<<<(unsigned)n_tiles, THREADS, 0, s>>>(keys_of[to], rows_of[to], from_keys,
                                                        from_rows, counts, n, shift);
        from_keys = keys_of[to], from_rows = rows_of[to];
    }
    *sorted_keys_out = from_keys;
    *rows_out = from_rows;
    return cudaGetLastError();
}
