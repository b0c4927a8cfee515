/* runtime/device/cuda/sizes.h - sizes of workspaces, and the constants that they follow from.
 *
 * Shared by workspaces.c, which is compiled in every build, and by the kernels that use the memory,
 * so that both mean the same layout. No CUDA header is needed here. Everything is a function of the
 * shape alone, never of the card, so that a plan made anywhere holds.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_SIZES_H
#define YK_RUNTIME_DEVICE_CUDA_SIZES_H

#include <stdbool.h>

#include "runtime/base/arith.h"

/* Each part of a workspace begins at a multiple of this. */
#define YK_CUDA_ALIGNMENT 256

/* What a matrix product's algorithm may use: what NVIDIA advises for cuBLASLt
 * on sm_90; other architectures ask for less. */
#define YK_CUDA_PRODUCT_BYTES (INT64_C(32) << 20)

/* ---- embedding: rows sorted by token ------------------------------------------------------- */

#define YK_CUDA_EMBED_CHUNK 32 /* sorted rows that one warp sums: a lane knows about one */

/* Of one table; offsets in bytes. */
typedef struct yk_cuda_embed_layout {
    int64_t n_chunks;
    int64_t sorted, rows; /* (R) int32: sorted keys, and the rows that they came from */
    int64_t list;         /* (2,R,2) int32: for the sort's use */
    int64_t arrived;      /* (n_chunks, groups of 32 columns or more) int32 */
    int64_t parts;        /* (n_chunks,2,C) fp32: sums of runs that cross a chunk's edge */
    int64_t bytes;
} yk_cuda_embed_layout;

static inline yk_cuda_embed_layout yk_cuda_embed_plan(int64_t rows, int64_t cols)
{
    yk_cuda_embed_layout l;
    int64_t unit = YK_CUDA_ALIGNMENT;
    l.n_chunks = yk_div_up(rows, YK_CUDA_EMBED_CHUNK);
    l.sorted = 0;
    l.rows = yk_round_up(rows * 4, unit);
    l.list = l.rows + yk_round_up(rows * 4, unit);
    l.arrived = l.list + yk_round_up(rows * 16, unit);
    l.parts = l.arrived + yk_round_up(l.n_chunks * yk_div_up(cols, 32) * 4, unit);
    l.bytes = l.parts + yk_round_up(l.n_chunks * 2 * cols * 4, unit);
    return l;
}

/* ---- sums over rows ------------------------------------------------------------------------ */

/* The most blocks of a norm's backward pass, each with a partial sum: more than
 * there are multiprocessors. */
#define YK_CUDA_NORM_BLOCKS 528

/* The most parts of the sum over rows that a rotation makes on its way. */
#define YK_CUDA_ROPE_BLOCKS 528

/* Columns of a block of a column sum, and blocks in all: as many as run at one time. */
#define YK_CUDA_COLUMN_SUM_COLUMNS 256
#define YK_CUDA_COLUMN_SUM_BLOCKS  264

/* Parts that the rows of a column sum are cut into. */
static inline int64_t yk_cuda_column_sum_parts(int64_t m, int64_t n)
{
    int64_t wanted = YK_CUDA_COLUMN_SUM_BLOCKS / yk_div_up(n, YK_CUDA_COLUMN_SUM_COLUMNS);
    return yk_max(1, yk_min(wanted, yk_div_up(m, 32)));
}

static inline int64_t yk_cuda_column_sum_bytes(int64_t m, int64_t n)
{
    return yk_round_up(yk_cuda_column_sum_parts(m, n) * n * 4, YK_CUDA_ALIGNMENT);
}

/* Elements that one block squares. */
#define YK_CUDA_SQUARES_CHUNK 32768

/* Blocks that square n elements, of which each piece has its own. */
static inline int64_t yk_cuda_squares_chunks(int64_t n, int64_t piece)
{
    return n / piece * yk_div_up(piece, YK_CUDA_SQUARES_CHUNK) +
           yk_div_up(n % piece, YK_CUDA_SQUARES_CHUNK);
}

/* ---- attention's backward pass ------------------------------------------------------------- */

/* Keys that one block of the backward pass owns, for heads padded to `padded` columns. */
static inline int64_t yk_cuda_flash_keys(int64_t padded)
{
    return padded <= 128 ? 128 : 64;
}

/* Head sizes are padded to one of these. */
static inline int64_t yk_cuda_flash_padded(int64_t head_size)
{
    return head_size <= 32    ? 32
           : head_size <= 64  ? 64
           : head_size <= 96  ? 96
           : head_size <= 128 ? 128
           : head_size <= 192 ? 192
                              : 256;
}

/* Of n heads or groups, those whose sums lie in memory at one time: twice the heads of a round. */
static inline int64_t yk_cuda_flash_places(int64_t n, int64_t n_tiles)
{
    return yk_min(n, 4 + yk_div_up(1024, n_tiles));
}

/* Of the heads of a group, how many a block goes through, so that fewer blocks have to add up dk
 * and dv in turn: a few, since a block is not to last long. */
static inline int64_t yk_cuda_flash_set(int64_t group)
{
    return group % 2 == 0 ? 2 : group % 3 == 0 ? 3 : 1;
}

/* Of n heads in sets, how many have their blocks started in one round: as evenly as it goes. 512
 * blocks are enough to keep those of one head apart and to fill the gaps at the end; with more,
 * less would be read from the cache. A round begins when hardly any block of the round before the
 * last is left, so that none waits for a place; and none waits for a block that starts later. */
static inline int64_t yk_cuda_flash_round(int64_t n, int64_t set, int64_t places)
{
    if (n <= places) return n;
    int64_t sets = n / set, at_once = yk_max(1, places / 2 / set);
    return yk_div_up(sets, yk_div_up(sets, at_once)) * set;
}

/* The layout of the workspace; offsets in bytes. */
typedef struct yk_cuda_flash_layout {
    int64_t n_tiles; /* tiles of keys in a sequence */
    int64_t rows;    /* T rounded up to whole tiles */
    int64_t dq_places, dkv_places;
    int64_t set_heads, round_heads; /* heads of a block; whose blocks start together */
    int64_t stats;              /* (B,H,rows) float2: log2 of the softmax sum, row sum of dy y */
    int64_t dq;                 /* (dq_places, rows, padded) fp32, in fragments */
    int64_t dkv;                /* (dkv_places, n_tiles, 2, keys, padded) fp32, in fragments */
    int64_t flags, flags_bytes; /* int32, zero at the start: progress of each warp at each tile */
    int64_t dkv_flags;          /* where those of dk and dv begin */
    int64_t bytes;
} yk_cuda_flash_layout;

static inline yk_cuda_flash_layout yk_cuda_flash_plan(int64_t batch, int64_t seq_len, int64_t heads,
                                                      int64_t kv_heads, int64_t head_size)
{
    yk_cuda_flash_layout l;
    int64_t padded = yk_cuda_flash_padded(head_size), keys = yk_cuda_flash_keys(padded);
    int64_t unit = YK_CUDA_ALIGNMENT;
    l.n_tiles = yk_div_up(seq_len, keys);
    l.rows = l.n_tiles * keys;
    l.dq_places = yk_cuda_flash_places(batch * heads, l.n_tiles);
    l.set_heads = yk_cuda_flash_set(heads / kv_heads);
    l.round_heads = yk_cuda_flash_round(batch * heads, l.set_heads, l.dq_places);
    l.dkv_places = heads == kv_heads
                       ? 0
                       : yk_cuda_flash_places(batch * kv_heads, l.n_tiles * (heads / kv_heads)) + 1;
    l.stats = 0;
    l.dq = yk_round_up(l.stats + batch * heads * l.rows * 8, unit);
    l.dkv = yk_round_up(l.dq + l.dq_places * l.rows * padded * 4, unit);
    l.flags = yk_round_up(l.dkv + l.dkv_places * l.rows * padded * 2 * 4, unit);
    int64_t dq_flags =
        batch * heads * (l.rows / 2); /* tiles have 2 rows of queries a warp, or more */
    l.dkv_flags = l.flags + dq_flags * 4;
    l.flags_bytes = (dq_flags + batch * kv_heads * l.n_tiles) * 4;
    l.bytes = yk_round_up(l.flags + l.flags_bytes, unit);
    return l;
}

/* ---- cuDNN's attention --------------------------------------------------------------------- */

/* The most that its gradient takes at one time: beyond it, entries of the batch follow one another.
 * Deterministic, it keeps dS whole in 16 bits, 2 H T^2 bytes an entry. */
#define YK_CUDA_CUDNN_BYTES (INT64_C(512) << 20) /* or more, if there is room */

/* What the library may ask for beside what is counted here: its own small change. */
#define YK_CUDA_CUDNN_SPARE (INT64_C(4) << 20)

/* An entry takes the row sums of dy y and, deterministic, dS, else the sums of dq in fp32 and half
 * as much again; with grouped queries dk and dv of every query head too, in fp32 at most. */
typedef struct yk_cuda_cudnn_layout {
    int64_t at_once;                /* entries of the batch; 0: not offered */
    int64_t row_sum, dq, workspace; /* offsets */
    int64_t workspace_bytes, bytes;
} yk_cuda_cudnn_layout;

/* How many entries of a batch go at once where `limit` may: as many in each round, if that costs no
 * more than a round in two, so that one plan serves all; else as evenly as it goes. */
static inline int64_t yk_cuda_cudnn_at_once(int64_t batch, int64_t limit)
{
    for (int64_t n = limit; 2 * n >= limit; n--)
        if (batch % n == 0) return n;
    return yk_div_up(batch, yk_div_up(batch, limit));
}

static inline yk_cuda_cudnn_layout yk_cuda_cudnn_plan(int64_t batch, int64_t seq_len, int64_t heads,
                                                      int64_t kv_heads, int64_t head_size,
                                                      bool deterministic, int64_t room)
{
    yk_cuda_cudnn_layout l = {0};
    int64_t rows = yk_round_up(seq_len, 128), columns = yk_round_up(head_size, 64);
    int64_t row_sum = heads * rows * 4, dq = deterministic ? 0 : heads * rows * columns * 4;
    int64_t own = deterministic ? 2 * heads * rows * rows : dq / 2;
    if (heads != kv_heads) own += 2 * heads * rows * columns * 4;
    int64_t entry = row_sum + dq + own, unit = YK_CUDA_ALIGNMENT;
    int64_t limit = yk_min(batch, yk_max(room, YK_CUDA_CUDNN_BYTES) / entry);
    if (limit == 0) return l;
    l.at_once = yk_cuda_cudnn_at_once(batch, limit);
    l.dq = yk_round_up(l.at_once * row_sum, unit);
    l.workspace = l.dq + yk_round_up(l.at_once * dq, unit);
    l.workspace_bytes = l.at_once * own + YK_CUDA_CUDNN_SPARE;
    l.bytes = yk_round_up(l.workspace + l.workspace_bytes, unit);
    return l;
}

/* Of a forward pass, all of it the library's. */
static inline int64_t yk_cuda_cudnn_forward_bytes(int64_t batch, int64_t seq_len, int64_t heads)
{
    return yk_round_up(batch * heads * seq_len * 8, YK_CUDA_ALIGNMENT) + YK_CUDA_CUDNN_SPARE;
}

#endif
