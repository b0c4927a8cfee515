/* runtime/device/cuda/embed_beside.cuh - what multiprocessors do that a sort of an embedding's rows
 * leaves idle.
 *
 * A sort keeps half of them busy and the memory hardly at all. The others write zeros to rows of
 * the table that no key names, where such rows have to become zero; else they bring what the sort's
 * caller reads next into the cache. There are more of them where positions are those of whole
 * sequences, which need no sort: rows that share one are as far apart as a sequence is long.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_EMBED_BESIDE_CUH
#define YK_RUNTIME_DEVICE_CUDA_EMBED_BESIDE_CUH

#include "runtime/device/cuda/kernels.cuh"

/* Blocks that work together, and which of them this one is. */
typedef struct team {
    int block, blocks;
} team;

/* The length of sequences, if keys are 0 .. length - 1 again and again, or 0, also if it is not a
 * multiple of 4. For a whole block. */
static __device__ inline int sequence_length(const int32_t *keys, int n)
{
    int length = __ldg(keys + n - 1) + 1;
    bool bad = length <= 0 || n % length || length % 4 || ((uintptr_t)keys & 15);
    if (!bad) {
#pragma unroll 8
        for (int i = 4 * threadIdx.x; i < n; i += 4 * blockDim.x) {
            int4 key = __ldg(reinterpret_cast<const int4 *>(keys + i));
            int at = i % length;
            bad |= key.x != at || key.y != at + 1 || key.z != at + 2 || key.w != at + 3;
        }
    }
    return __syncthreads_or(bad) ? 0 : length;
}

/* Their rows of equal key together, in order of row, without a sort. */
static __device__ inline void list_sequences(int32_t *sorted, int32_t *rows, int n, int length,
                                             team t)
{
    int times = n / length;
    for (int i = t.block * blockDim.x + threadIdx.x; i < n; i += t.blocks * blockDim.x) {
        int position = i / times;
        sorted[i] = position;
        rows[i] = (i - position * times) * length + position;
    }
}

/* A row of 16-byte words. For a warp. */
static __device__ inline void zero_row(uint4 *row, int words)
{
    for (int w = threadIdx.x & 31; w < words; w += 32) row[w] = make_uint4(0, 0, 0, 0);
}

/* Of rows first .. n_rows - 1 of a table those that no key names; `named` has a bit for each row of
 * the table, in shared memory. */
static __device__ inline void zero_unnamed(uint4 *table, int words, int first, int n_rows,
                                           const int32_t *keys, int n, uint32_t *named, team t)
{
    for (int i = threadIdx.x; i <= n_rows / 32; i += blockDim.x) named[i] = 0;
    __syncthreads();
#pragma unroll 8
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int32_t key = __ldg(keys + i);
        atomicOr(&named[key >> 5], 1u << (key & 31));
    }
    __syncthreads();
    int warps = blockDim.x / 32, warp = t.block * warps + (threadIdx.x >> 5);
    for (int row = first + warp; row < n_rows; row += t.blocks * warps)
        if (!(named[row >> 5] >> (row & 31) & 1)) zero_row(table + (int64_t)row * words, words);
}

/* Bring what is ahead of each of n rows into the cache, and wait for none of it. */
static __device__ inline void fetch_ahead(const yk_cuda_ahead &a, int n, team t)
{
    int warps = blockDim.x / 32;
    for (int64_t row = t.block * warps + (threadIdx.x >> 5); row < n; row += t.blocks * warps)
        for (int64_t at = (threadIdx.x & 31) * 32; at < a.width; at += 32 * 32)
            asm volatile(
                "prefetch.global.L2 [%0];" ::"l"((const char *)a.from + row * a.stride + at));
}

#endif
