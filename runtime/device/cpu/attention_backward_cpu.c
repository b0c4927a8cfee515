/* runtime/device/cpu/attention_backward_cpu.c - gradients of queries, keys and values.
 *
 * Scores are made again, from lse, a tile and block at a time (Dao 2023, algorithm 2). With P the
 * probabilities, dP = dy v^T and delta = rowsum(dy y):
 *   dv += P^T dy    dS = P (dP - delta)    dq = scale dS k    dk += scale dS^T q
 * dq of a tile is complete when the tile is. dk and dv of an item are summed in its slot over query
 * heads, tiles and strips in that order by one thread.
 */
#include <omp.h>

#include "runtime/device/cpu/attention.h"

/* In a thread's scratch. */
typedef struct tile {
    float *q;  /* (query tile, Dp) times scale / ln 2 */
    float *dy; /* (query tile, Dp) */
    float *dq; /* (query tile, Dp) */
    float *p;  /* (query tile, SCORE_ROW) scores, then probabilities */
    float *ds; /* (query tile, SCORE_ROW) dP, then dS */
    float lse[QUERY_TILE], delta[QUERY_TILE]; /* lse in powers of two */
    attention_fetch next;                     /* for the next head */
} tile;

/* In a slot of the workspace. */
typedef struct slot {
    float *keys, *values; /* transposed panels, (Tp,D) each */
    float *key_rows;      /* panels of rows (T,Dp) */
    float *dk, *dv;       /* (T + GEMM_ROWS, Dp) */
} slot;

static attention_shape shape_of(const yk_attention_backward_args *a)
{
    attention_shape p = attention_shape_make(a->batch, a->seq_len, a->heads, a->kv_heads,
                                             a->head_size, a->doc_start, a->dtype);
    attention_shape_place(&p, 2 * p.padded_len * p.head_size + p.seq_len * p.padded_size +
                                  2 * (p.seq_len + GEMM_ROWS) * p.padded_size);
    return p;
}

static slot slot_at(const attention_shape *p, float *at)
{
    slot s = {.keys = at};
    s.values = s.keys + p->padded_len * p->head_size;
    s.key_rows = s.values + p->padded_len * p->head_size;
    s.dk = s.key_rows + p->seq_len * p->padded_size;
    s.dv = s.dk + (p->seq_len + GEMM_ROWS) * p->padded_size;
    return s;
}

int64_t yk_cpu_attention_backward_bytes(const yk_attention_backward_args *a,
                                        const yk_device_spec *spec)
{
    (void)spec;
    return shape_of(a).ws_bytes;
}

/* Scores and dP of keys j .. j+15 of a group of rows to P and dS, 0 where a row does not see the
 * key. */
VEC_INLINE void differentiate(const tile *t, int64_t row, int64_t j, const attention_keys *k,
                              bool whole)
{
    float *p = t->p + row * SCORE_ROW + j, *ds = t->ds + row * SCORE_ROW + j;
    vecf e[VEC_GROUP], d[VEC_GROUP];
    VEC_EACH(ATTENTION_GROUP) e[i] = vec_load_f32(p + i * SCORE_ROW) - t->lse[row + i];
    vec_exp2(e, ATTENTION_GROUP);
    VEC_EACH(ATTENTION_GROUP) d[i] = e[i] * (vec_load_f32(ds + i * SCORE_ROW) - t->delta[row + i]);
    if (!whole) {
        VEC_EACH(ATTENTION_GROUP) e[i] = vec_keep(attention_seen(k, j, i), e[i]);
        VEC_EACH(ATTENTION_GROUP) d[i] = vec_keep(attention_seen(k, j, i), d[i]);
    }
    VEC_EACH(ATTENTION_GROUP) vec_store_f32(p + i * SCORE_ROW, e[i]);
    VEC_EACH(ATTENTION_GROUP) vec_store_f32(ds + i * SCORE_ROW, d[i]);
}

/* Keys from begin to before end of a group of rows: not seen. */
static void clear(const tile *t, int64_t row, int64_t begin, int64_t end)
{
    if (begin >= end) return;
    for (int64_t i = row; i < row + ATTENTION_GROUP; i++) {
        memset(t->p + i * SCORE_ROW + begin, 0, (size_t)(end - begin) * sizeof *t->p);
        memset(t->ds + i * SCORE_ROW + begin, 0, (size_t)(end - begin) * sizeof *t->ds);
    }
}

/* A group of rows of scores and dP to P and dS. Zero before the strip's keys and for a vector beyond
 * its last, since strips of keys read that far. */
static void differentiate_rows(const tile *t, int64_t row, const attention_strip *s,
                               const attention_keys *k)
{
    int64_t high = yk_round_up(s->high, VEC_LANES), j = s->low;
    int64_t begin = yk_min(yk_max(j, k->begin), high), end = yk_min(high, k->end);
    clear(t, row, 0, s->low);
    for (; j < begin; j += VEC_LANES) differentiate(t, row, j, k, false);
    for (; j < end; j += VEC_LANES) differentiate(t, row, j, k, true);
    for (; j < high; j += VEC_LANES) differentiate(t, row, j, k, false);
    clear(t, row, high, high + VEC_LANES);
}

/* P, dS and dq of a strip of queries. */
static void run_strip(const attention_shape *p, tile *t, const slot *w, int64_t b, int64_t q0,
                      int64_t rows, int64_t block, const attention_strip *s)
{
    attention_multiply_keys(p, s, t->q, w->keys, block, t->p, &t->next);
    attention_multiply_keys(p, s, t->dy, w->values, block, t->ds, &t->next);
    for (int64_t row = s->row; row < s->row + s->rows; row += ATTENTION_GROUP) {
        attention_keys k = attention_keys_make(p, b, q0, rows, row, block);
        differentiate_rows(t, row, s, &k);
    }
    attention_add_rows(p, s, t->ds, w->key_rows, block, t->dq);
}

/* dk and dv of the keys of a block, from the tile's rows that see them: a strip of keys is a strip
 * of rows of the transposed P and dS. */
static void add_keys(const attention_shape *p, const tile *t, const slot *w, int64_t q0,
                     int64_t rows, int64_t block)
{
    int64_t end = yk_min(q0 + rows - block, KEY_BLOCK), dp = p->padded_size;
    for (int64_t i = 0; i < end; i += GEMM_ROWS) {
        int64_t row = yk_max(block + i - q0, 0);
        for (int64_t j = 0; j < p->head_size; j += GEMM_COLS) {
            int64_t to = (block + i) * dp + j, at = row * SCORE_ROW + i;
            yk_cpu_gemm_tile(GEMM_ROWS, rows - row, t->p + at, 1, SCORE_ROW, t->dy + row * dp + j,
                             dp, w->dv + to, dp, true);
            yk_cpu_gemm_tile(GEMM_ROWS, rows - row, t->ds + at, 1, SCORE_ROW, t->q + row * dp + j,
                             dp, w->dk + to, dp, true);
        }
    }
}

static void run_block(const attention_shape *p, tile *t, const slot *w, int64_t b, int64_t q0,
                      int64_t rows, int64_t block)
{
    for (int64_t row = 0; row < rows; row += GEMM_ROWS) {
        attention_strip s = attention_strip_make(p, b, q0, rows, row, block);
        if (s.low < s.high)
            run_strip(p, t, w, b, q0, rows, block, &s);
        else
            for (int64_t i = 0; i < GEMM_ROWS; i += ATTENTION_GROUP)
                clear(t, row + i, 0, SCORE_ROW);
    }
    add_keys(p, t, w, q0, rows, block);
}

/* Copy a tile's inputs and make its statistics. */
VEC_INLINE void load_tile(const attention_shape *p, const yk_attention_backward_args *a, tile *t,
                          int64_t b, int64_t h, int64_t q0, int64_t rows, yk_dtype dtype)
{
    int64_t position = b * p->seq_len + q0, d = p->head_size, dp = p->padded_size;
    int64_t at = position * p->y_row + h * d;
    attention_copy_rows(p, t->q, a->qkv, position * p->qkv_row + h * d, p->qkv_row, rows,
                        a->scale * VEC_LOG2_E, dtype);
    attention_copy_rows(p, t->dy, a->dy, at, p->y_row, rows, 1, dtype);
    memset(t->dq, 0, (size_t)(p->query_tile * dp) * sizeof *t->dq);
    for (int64_t i = 0; i < rows; i++) {
        vecf sum = {0};
        for (int64_t j = 0; j < d; j += VEC_LANES)
            sum = vec_fma(vec_load_n(a->y, at + i * p->y_row + j, d - j, dtype),
                          vec_load_n(t->dy + i * dp, j, dp - j, YK_F32), sum);
        t->delta[i] = vec_sum(sum);
        t->lse[i] = a->lse[(b * p->heads + h) * p->seq_len + q0 + i] * VEC_LOG2_E;
    }
}

static void run_tile(const attention_shape *p, const yk_attention_backward_args *a, tile *t,
                     const slot *w, int64_t b, int64_t h, int64_t q0)
{
    int64_t rows = yk_min(p->query_tile, p->seq_len - q0), first = p->seq_len;
    int64_t at = (b * p->seq_len + q0) * p->qkv_row + h * p->head_size;
    YK_CPU_BY_DTYPE(p->dtype, load_tile(p, a, t, b, h, q0, rows, T));
    for (int64_t i = 0; i < rows; i++) first = yk_min(first, attention_first_key(p, b, q0 + i));
    for (int64_t block = first / GEMM_COLS * GEMM_COLS; block < q0 + rows; block += KEY_BLOCK)
        run_block(p, t, w, b, q0, rows, block);
    YK_CPU_BY_DTYPE(p->dtype,
                    attention_put_rows(p, a->dqkv, at, p->qkv_row, t->dq, rows, a->scale, T));
}

/* What query head h of an item reads and writes, and its keys and values if it is the first. */
static attention_fetch fetch_head(const attention_shape *p, const yk_attention_backward_args *a,
                                  int64_t item, int64_t h, bool is_first)
{
    int64_t b = item / p->kv_heads, g = item % p->kv_heads, d = p->head_size;
    int64_t query = b * p->seq_len * p->qkv_row + h * d, at = b * p->seq_len * p->y_row + h * d;
    int64_t key = b * p->seq_len * p->qkv_row + (p->heads + g) * d, value = key + p->kv_heads * d;
    attention_fetch f = attention_fetch_make(p);
    attention_fetch_add(p, &f, a->qkv, query, p->qkv_row);
    attention_fetch_add(p, &f, a->dqkv, query, p->qkv_row);
    attention_fetch_add(p, &f, a->dy, at, p->y_row);
    attention_fetch_add(p, &f, a->y, at, p->y_row);
    if (!is_first) return f;
    attention_fetch_add(p, &f, a->qkv, key, p->qkv_row);
    attention_fetch_add(p, &f, a->dqkv, key, p->qkv_row);
    attention_fetch_add(p, &f, a->qkv, value, p->qkv_row);
    attention_fetch_add(p, &f, a->dqkv, value, p->qkv_row);
    return f;
}

static void run_item(const attention_shape *p, const yk_attention_backward_args *a, int64_t item,
                     int64_t next_item, float *at, float *scratch)
{
    int64_t b = item / p->kv_heads, g = item % p->kv_heads;
    int64_t key = b * p->seq_len * p->qkv_row + (p->heads + g) * p->head_size;
    int64_t value = key + p->kv_heads * p->head_size;
    slot w = slot_at(p, at);
    attention_pack_transposed(p, w.keys, a->qkv, key);
    attention_pack_transposed(p, w.values, a->qkv, value);
    attention_pack_rows(p, w.key_rows, a->qkv, key);
    memset(w.dk, 0, 2 * (size_t)((p->seq_len + GEMM_ROWS) * p->padded_size) * sizeof *w.dk);
    tile t = {.p = scratch, .ds = scratch + SCORE_FLOATS, .q = scratch + 2 * SCORE_FLOATS};
    t.dy = t.q + p->query_tile * p->padded_size;
    t.dq = t.dy + p->query_tile * p->padded_size;
    for (int64_t h = g * p->group; h < (g + 1) * p->group; h++) {
        t.next = (attention_fetch){0};
        if (h + 1 < (g + 1) * p->group)
            t.next = fetch_head(p, a, item, h + 1, false);
        else if (next_item >= 0)
            t.next = fetch_head(p, a, next_item, next_item % p->kv_heads * p->group, true);
        for (int64_t q0 = 0; q0 < p->seq_len; q0 += p->query_tile) run_tile(p, a, &t, &w, b, h, q0);
    }
    /* dS^T q holds scale / ln 2 already, from q. */
    YK_CPU_BY_DTYPE(p->dtype,
                    attention_put_rows(p, a->dqkv, key, p->qkv_row, w.dk, p->seq_len, VEC_LN_2, T));
    YK_CPU_BY_DTYPE(p->dtype,
                    attention_put_rows(p, a->dqkv, value, p->qkv_row, w.dv, p->seq_len, 1, T));
}

yk_status yk_cpu_attention_backward(yk_stream *s, const yk_attention_backward_args *a, void *ws)
{
    YK_TRY(attention_size_check(a->head_size));
    attention_shape p = shape_of(a);
    int n_threads = cpu_threads(s, p.n_slots);
#pragma omp parallel for num_threads(n_threads) schedule(dynamic)
    for (int64_t i = 0; i < p.n_slots; i++)
        for (int64_t item = i; item < p.n_items; item += p.n_slots) {
            float *scratch = cpu_scratch(s, omp_get_thread_num());
            run_item(&p, a, item, attention_next_item(&p, item, n_threads),
                     attention_slot(&p, i, ws, scratch), scratch);
        }
    return YK_OK;
}
