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
} tile;

/* In a slot of the workspace. */
typedef struct slot {
    float *keys, *values; /* transposed panels, (Tp,D) each */
    float *key_rows;      /* panels of rows (T,Dp) */
    float *dk, *dv;       /* (T + GEMM_ROWS, Dp) */
} slot;

static attention_shape shape_of(const yk_attention_backward_args *a)
{
    return attention_shape_make(a->batch, a->seq_len, a->heads, a->kv_heads, a->head_size,
                                a->doc_start, a->dtype);
}

static int64_t slot_floats(const attention_shape *p)
{
    return 2 * p->padded_len * p->head_size + p->seq_len * p->padded_size +
           2 * (p->seq_len + GEMM_ROWS) * p->padded_size;
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

int64_t yk_cpu_attention_backward_bytes(const yk_attention_backward_args *a)
{
    attention_shape p = shape_of(a);
    return 4 * p.n_slots * slot_floats(&p);
}

/* A row of scores and dP to P and dS; `from` to `to` are the keys it sees. Zero before them and for a
 * vector beyond the strip's last, since strips of keys read that far. */
static void differentiate(const tile *t, int64_t row, int64_t high, int64_t from, int64_t to)
{
    float *p = t->p + row * SCORE_ROW, *ds = t->ds + row * SCORE_ROW;
    int64_t end = yk_round_up(high, VEC_LANES) + VEC_LANES, begin = from / VEC_LANES * VEC_LANES;
    if (from >= to) begin = from = to = end;
    for (int64_t j = begin; j < to; j += VEC_LANES) {
        vecf e = vec_exp2(vec_load_f32(p + j) - t->lse[row]);
        vec_store_f32(p + j, e);
        vec_store_f32(ds + j, e * (vec_load_f32(ds + j) - t->delta[row]));
    }
    for (int64_t j = 0; j < from; j++) p[j] = ds[j] = 0;
    for (int64_t j = to; j < end; j++) p[j] = ds[j] = 0;
}

/* P, dS and dq of a strip of queries. */
static void run_strip(const attention_shape *p, const tile *t, const slot *w, int64_t b, int64_t q0,
                      int64_t block, const attention_strip *s)
{
    attention_multiply_keys(p, s, t->q, w->keys, block, t->p);
    attention_multiply_keys(p, s, t->dy, w->values, block, t->ds);
    for (int64_t i = s->row; i < s->row + s->rows; i++) {
        int64_t from = yk_max(attention_first_key(p, b, q0 + i) - block, 0);
        int64_t to = yk_min(q0 + i + 1 - block, KEY_BLOCK);
        differentiate(t, i, s->high, from, to);
    }
    attention_add_rows(p, s, t->ds, w->key_rows, block, t->dq);
}

/* P and dS of a strip that sees nothing of the block. */
static void clear_strip(const tile *t, const attention_strip *s)
{
    memset(t->p + s->row * SCORE_ROW, 0, (size_t)(s->rows * SCORE_ROW) * sizeof *t->p);
    memset(t->ds + s->row * SCORE_ROW, 0, (size_t)(s->rows * SCORE_ROW) * sizeof *t->ds);
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

static void run_block(const attention_shape *p, const tile *t, const slot *w, int64_t b, int64_t q0,
                      int64_t rows, int64_t block)
{
    for (int64_t row = 0; row < rows; row += GEMM_ROWS) {
        attention_strip s = attention_strip_make(p, b, q0, rows, row, block);
        if (s.low < s.high)
            run_strip(p, t, w, b, q0, block, &s);
        else
            clear_strip(t, &s);
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

static void run_item(const attention_shape *p, const yk_attention_backward_args *a, int64_t item,
                     float *at, float *scratch)
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
    for (int64_t h = g * p->group; h < (g + 1) * p->group; h++)
        for (int64_t q0 = 0; q0 < p->seq_len; q0 += p->query_tile) run_tile(p, a, &t, &w, b, h, q0);
    /* dS^T q holds scale / ln 2 already, from q. */
    YK_CPU_BY_DTYPE(p->dtype,
                    attention_put_rows(p, a->dqkv, key, p->qkv_row, w.dk, p->seq_len, VEC_LN_2, T));
    YK_CPU_BY_DTYPE(p->dtype,
                    attention_put_rows(p, a->dqkv, value, p->qkv_row, w.dv, p->seq_len, 1, T));
}

yk_status yk_cpu_attention_backward(yk_stream *s, const yk_attention_backward_args *a, void *ws)
{
    attention_shape p = shape_of(a);
    YK_TRY(attention_shape_check(&p));
#pragma omp parallel for num_threads(cpu_threads(s, p.n_slots)) schedule(dynamic)
    for (int64_t i = 0; i < p.n_slots; i++)
        for (int64_t item = i; item < p.n_items; item += p.n_slots)
            run_item(&p, a, item, (float *)ws + i * slot_floats(&p),
                     cpu_scratch(s, omp_get_thread_num()));
    return YK_OK;
}
