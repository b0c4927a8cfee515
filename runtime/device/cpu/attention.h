/* runtime/device/cpu/attention.h - what attention's forward and backward passes share.
 *
 * Work.     An item is one key-value head of one sequence with the query heads that use it. Its keys
 *           and values are copied to panels (gemm.h) once; then tiles of queries pass over blocks of
 *           keys, so that scores exist for one tile and block at a time.
 * Slots.    An item's panels lie in the thread's scratch, where they stay near from item to item.
 *           Long sequences do not fit: their panels lie in slots of the workspace, of which there
 *           are at most ATTENTION_SLOTS; a slot serves its items one after the other, so that the
 *           workspace does not grow with the batch.
 * Skipping. A strip of GEMM_ROWS queries multiplies only the panels with keys that some of its rows
 *           see: none after its last row, none before the first document of its rows.
 *
 * Legend    T time, D head size, Dp and Tp these rounded up to whole panels.
 */
#ifndef YK_RUNTIME_DEVICE_CPU_ATTENTION_H
#define YK_RUNTIME_DEVICE_CPU_ATTENTION_H

#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/gemm.h"
#include "runtime/device/cpu/vec.h"

#define ATTENTION_SLOTS    32
#define QUERY_TILE         96  /* queries at a time, fewer where heads are large */
#define KEY_BLOCK          256 /* keys at a time: a multiple of every GEMM_COLS */
#define SCORE_ROW          (KEY_BLOCK + 2 * VEC_LANES) /* floats between rows of scores */
#define SCORE_FLOATS       (QUERY_TILE * SCORE_ROW)
#define ATTENTION_GROUP    GEMM_UNIT /* rows computed side by side: at most VEC_GROUP */
#define ATTENTION_MAX_SIZE 3072      /* of a head */
#define CACHE_LINE         64
#define FETCH_ROWS         3            /* asked for between two products */
#define FETCH_BYTES        (128 * 1024) /* asked for of one matrix ahead of its use */

_Static_assert(2 * SCORE_FLOATS + 3 * GEMM_ROWS * ATTENTION_MAX_SIZE <= CPU_SCRATCH_FLOATS,
               "a strip of each tile fits the scratch");

typedef struct attention_shape {
    int64_t seq_len, heads, kv_heads, group; /* group: query heads of a key-value head */
    int64_t head_size, padded_size;          /* D, Dp */
    int64_t padded_len;                      /* Tp */
    int64_t qkv_row, y_row;                  /* elements between positions */
    int64_t query_tile;
    int64_t n_items, n_slots, slot_floats; /* n_slots == n_items where slots lie in scratch */
    int64_t ws_bytes;
    const int32_t *doc_start; /* (B,T) or NULL */
    yk_dtype dtype;
} attention_shape;

/* A strip of queries and the keys of a block that its rows see, counted from the block's first. */
typedef struct attention_strip {
    int64_t row, rows; /* in the tile; rows there are, under GEMM_ROWS at the end */
    int64_t low, high; /* low a multiple of GEMM_COLS; empty when low >= high */
} attention_strip;

/* The keys of a block that each row of a group sees, from .. to-1; none where from >= to. Groups of
 * rows are computed side by side (vec.h); rows that are not there see nothing. */
typedef struct attention_keys {
    int64_t from[VEC_GROUP], to[VEC_GROUP];
    int64_t begin, end; /* vectors from begin to before end are seen whole by every row */
} attention_keys;

/* Memory that is asked for ahead of its use, a few rows at a time between products, since a head's
 * rows lie apart where the processor does not guess the next. */
typedef struct attention_fetch {
    const char *at[8];
    int64_t step[8]; /* bytes between rows */
    int n;
    int64_t row_bytes, rows; /* rows still to ask for */
} attention_fetch;

static inline attention_shape attention_shape_make(int64_t batch, int64_t seq_len, int64_t heads,
                                                   int64_t kv_heads, int64_t head_size,
                                                   const int32_t *doc_start, yk_dtype dtype)
{
    attention_shape p = {.seq_len = seq_len,
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .group = heads / kv_heads,
                         .head_size = head_size,
                         .padded_size = yk_round_up(head_size, GEMM_COLS),
                         .padded_len = yk_round_up(seq_len, GEMM_COLS),
                         .qkv_row = (heads + 2 * kv_heads) * head_size,
                         .y_row = heads * head_size,
                         .n_items = batch * kv_heads,
                         .doc_start = doc_start,
                         .dtype = dtype};
    /* Three tiles (queries, output or its gradient, gradient of queries) beside two of scores. */
    int64_t most = (CPU_SCRATCH_FLOATS - 2 * SCORE_FLOATS) / (3 * p.padded_size);
    p.query_tile = yk_min(QUERY_TILE, most / GEMM_ROWS * GEMM_ROWS);
    return p;
}

/* Floats of scratch that tiles take; slots may lie behind. */
static inline int64_t attention_tile_floats(const attention_shape *p)
{
    return 2 * SCORE_FLOATS + 3 * p->query_tile * p->padded_size;
}

/* Decide where slots of `slot_floats` lie. */
static inline void attention_shape_place(attention_shape *p, int64_t slot_floats)
{
    bool fits = attention_tile_floats(p) + slot_floats <= CPU_SCRATCH_FLOATS;
    p->slot_floats = slot_floats;
    p->n_slots = fits ? p->n_items : yk_min(p->n_items, ATTENTION_SLOTS);
    p->ws_bytes = fits ? 0 : 4 * p->n_slots * slot_floats;
}

static inline float *attention_slot(const attention_shape *p, int64_t slot, void *ws,
                                    float *scratch)
{
    return p->ws_bytes ? (float *)ws + slot * p->slot_floats : scratch + attention_tile_floats(p);
}

/* The item that a thread is likely to take after `item`, or -1: its slot's next one, or the first of
 * the slot that follows those in work. */
static inline int64_t attention_next_item(const attention_shape *p, int64_t item, int n_threads)
{
    if (item + p->n_slots < p->n_items) return item + p->n_slots;
    int64_t slot = item % p->n_slots + n_threads;
    return slot < p->n_slots ? slot : -1;
}

/* Refuse heads of which not even one strip of each tile fits the scratch. */
static inline yk_status attention_size_check(int64_t head_size)
{
    if (head_size <= ATTENTION_MAX_SIZE) return YK_OK;
    return yk_fail(YK_EUNSUPPORTED, "attention",
                   "heads of size %lld; the cpu device offers at most %d", (long long)head_size,
                   ATTENTION_MAX_SIZE);
}

/* Rows of the query tile at q0 from element `at` of x, times `scale`, padded with zeros to whole
 * panels and whole units of rows: (rows, Dp). */
VEC_INLINE void attention_copy_rows(const attention_shape *p, float *to, const void *x, int64_t at,
                                    int64_t x_row, int64_t rows, float scale, yk_dtype t)
{
    int64_t d = p->head_size, dp = p->padded_size;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < dp; j += VEC_LANES) {
            vecf v = {0};
            if (j < d) v = vec_load_n(x, at + i * x_row + j, d - j, t) * scale;
            vec_store_n(to + i * dp, j, dp - j, v, YK_F32);
        }
    int64_t padded = yk_round_up(rows, GEMM_UNIT);
    memset(to + rows * dp, 0, (size_t)((padded - rows) * dp) * sizeof *to);
}

/* Write rows (rows, Dp) times `scale` to element `at` of x. */
VEC_INLINE void attention_put_rows(const attention_shape *p, void *x, int64_t at, int64_t x_row,
                                   const float *from, int64_t rows, float scale, yk_dtype t)
{
    int64_t d = p->head_size, dp = p->padded_size;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < d; j += VEC_LANES)
            vec_store_n(x, at + i * x_row + j, d - j,
                        vec_load_n(from + i * dp, j, d - j, YK_F32) * scale, t);
}

/* Panels of the transposed rows x (T,D): (Tp/GEMM_COLS, D, GEMM_COLS). */
static inline void attention_pack_transposed(const attention_shape *p, float *panels, const void *x,
                                             int64_t at)
{
    for (int64_t i = 0; i < p->seq_len; i += GEMM_COLS)
        yk_cpu_pack_transposed(panels + i * p->head_size, cpu_at(x, at + i * p->qkv_row, p->dtype),
                               p->qkv_row, p->head_size, yk_min(GEMM_COLS, p->seq_len - i),
                               p->dtype);
}

/* Panels of the rows x (T,D): (Dp/GEMM_COLS, T, GEMM_COLS). */
static inline void attention_pack_rows(const attention_shape *p, float *panels, const void *x,
                                       int64_t at)
{
    yk_cpu_pack_rows(panels, cpu_at(x, at, p->dtype), p->qkv_row, p->seq_len, p->head_size,
                     p->dtype);
}

static inline attention_fetch attention_fetch_make(const attention_shape *p)
{
    int64_t bytes = p->head_size * yk_dtype_bytes(p->dtype);
    return (attention_fetch){.row_bytes = bytes, .rows = yk_min(p->seq_len, FETCH_BYTES / bytes)};
}

/* Ask for rows of x from element `at` on, `row` elements apart. */
static inline void attention_fetch_add(const attention_shape *p, attention_fetch *f, const void *x,
                                       int64_t at, int64_t row)
{
    f->at[f->n] = cpu_at(x, at, p->dtype);
    f->step[f->n++] = row * yk_dtype_bytes(p->dtype);
}

static inline void attention_fetch_rows(attention_fetch *f)
{
    for (int r = 0; r < FETCH_ROWS && f->rows > 0; r++, f->rows--)
        for (int i = 0; i < f->n; i++) {
            for (int64_t j = 0; j < f->row_bytes; j += CACHE_LINE) __builtin_prefetch(f->at[i] + j);
            f->at[i] += f->step[i];
        }
}

/* The first key that position t of sequence b sees. */
static inline int64_t attention_first_key(const attention_shape *p, int64_t b, int64_t t)
{
    return p->doc_start ? p->doc_start[b * p->seq_len + t] : 0;
}

/* What rows row .. of the tile at q0, with `rows` queries, see of the block at key `block`. */
static inline attention_keys attention_keys_make(const attention_shape *p, int64_t b, int64_t q0,
                                                 int64_t rows, int64_t row, int64_t block)
{
    attention_keys k = {.begin = 0, .end = KEY_BLOCK};
    for (int i = 0; i < ATTENTION_GROUP; i++) {
        bool there = row + i < rows;
        int64_t t = q0 + row + i;
        k.from[i] = there ? yk_max(attention_first_key(p, b, t) - block, 0) : KEY_BLOCK;
        k.to[i] = there ? yk_min(t + 1 - block, KEY_BLOCK) : 0;
        k.begin = yk_max(k.begin, yk_round_up(k.from[i], VEC_LANES));
        k.end = yk_min(k.end, k.to[i] / VEC_LANES * VEC_LANES);
    }
    return k;
}

/* Which of keys j .. j+15 row i of a group sees. */
VEC_INLINE veci attention_seen(const attention_keys *k, int64_t j, int i)
{
    return vec_between(k->from[i] - j, k->to[i] - j);
}

/* The strip at `row` of the tile at position q0 with `rows` queries, against the block of keys. */
static inline attention_strip attention_strip_make(const attention_shape *p, int64_t b, int64_t q0,
                                                   int64_t rows, int64_t row, int64_t block)
{
    attention_strip s = {.row = row, .rows = yk_min(GEMM_ROWS, rows - row)};
    int64_t first = attention_first_key(p, b, q0 + row);
    for (int64_t i = 1; i < s.rows; i++)
        first = yk_min(first, attention_first_key(p, b, q0 + row + i));
    s.low = yk_max(first - block, 0) / GEMM_COLS * GEMM_COLS;
    s.high = yk_min(q0 + row + s.rows - block, KEY_BLOCK);
    return s;
}

/* c (rows of the strip, keys low .. high, rounded up to panels) = x panels, where x (tile, Dp). */
static inline void attention_multiply_keys(const attention_shape *p, const attention_strip *s,
                                           const float *x, const float *panels, int64_t block,
                                           float *c, attention_fetch *next)
{
    int rows = (int)yk_round_up(s->rows, GEMM_UNIT);
    for (int64_t j = s->low; j < s->high; j += GEMM_COLS) {
        attention_fetch_rows(next);
        yk_cpu_gemm_tile(rows, p->head_size, x + s->row * p->padded_size, p->padded_size, 1,
                         panels + (block + j) * p->head_size, GEMM_COLS, c + s->row * SCORE_ROW + j,
                         SCORE_ROW, false);
    }
}

/* c (strip, Dp) += w panels, where w (tile, keys of the block) and panels those of rows. */
static inline void attention_add_rows(const attention_shape *p, const attention_strip *s,
                                      const float *w, const float *panels, int64_t block, float *c)
{
    int rows = (int)yk_round_up(s->rows, GEMM_UNIT);
    for (int64_t j = 0; j < p->head_size; j += GEMM_COLS)
        yk_cpu_gemm_tile(rows, s->high - s->low, w + s->row * SCORE_ROW + s->low, SCORE_ROW, 1,
                         panels + j * p->seq_len + (block + s->low) * GEMM_COLS, GEMM_COLS,
                         c + s->row * p->padded_size + j, p->padded_size, true);
}

#endif
