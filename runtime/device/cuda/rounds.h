/* runtime/device/cuda/rounds.h - in what order the blocks of attention's forward pass start.
 *
 * A block has one tile of queries of one head, and causal tiles are of all lengths. A multiprocessor
 * that is free takes the block with the next number, so what is long must come early: if head
 * followed head, the longest tile of the last one would begin when there is nothing left to fill the
 * card beside it. All heads tile by tile would end best, but then their keys pass through the cache
 * once for each tile. Hence rounds: some heads side by side, in which all their longest tiles come
 * first, then all the next ones. A function of the shape alone; it moves no sum.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_ROUNDS_H
#define YK_RUNTIME_DEVICE_CUDA_ROUNDS_H

#include "runtime/base/arith.h"

/* Also computed on a GPU. */
#ifdef __CUDACC__
#define YK_CUDA_ROUNDS_INLINE static __host__ __device__ inline
#else
#define YK_CUDA_ROUNDS_INLINE static inline
#endif

/* Blocks of a round, or more: a card has about half as many in hand, and keys and values of a
 * round's heads fit its cache. */
#define YK_CUDA_ROUND_BLOCKS 512

/* Which tile of which head of which batch a block has. */
typedef struct yk_cuda_place {
    int tile, batch, head;
} yk_cuda_place;

/* Heads of a round; the last one may have fewer. */
static inline int yk_cuda_round_heads(int64_t n_heads, int64_t n_tiles)
{
    int64_t n_rounds = yk_max(1, n_heads * n_tiles / YK_CUDA_ROUND_BLOCKS);
    return (int)yk_div_up(n_heads, n_rounds);
}

YK_CUDA_ROUNDS_INLINE yk_cuda_place yk_cuda_place_of(int block, int n_tiles, int heads, int n_heads,
                                                     int round_heads)
{
    int first = block / (round_heads * n_tiles) * round_heads;
    int at = block - first * n_tiles, left = n_heads - first;
    int n = round_heads < left ? round_heads : left;
    yk_cuda_place p;
    p.tile = n_tiles - 1 - at / n;
    p.batch = (first + at % n) / heads;
    p.head = (first + at % n) % heads;
    return p;
}

#endif
