/* runtime/device/cpu/attention_forward_cpu.c - causal attention, scores a tile and block at a time.
 *
 * The softmax runs along (Dao 2023, algorithm 1): the greatest score of a row and the sum of its
 * exponentials are kept between blocks of keys, and what was summed before is scaled when a greater
 * score comes. Queries are multiplied by scale / ln 2 as they are copied, so exponentials are powers
 * of two. A sequence of one block needs no scaling and pays for none.
 */
#include <omp.h>

#include "runtime/device/cpu/attention.h"

/* In a thread's scratch. */
typedef struct tile {
    float *q;      /* (query tile, Dp) times scale / ln 2 */
    float *y;      /* (query tile, Dp) sum of exponentials times values */
    float *scores; /* (query tile, SCORE_ROW) scores, then exponentials */
    float most[QUERY_TILE], sum[QUERY_TILE];
    attention_fetch next; /* for the next head */
} tile;

/* Panels of keys (Tp,D), before those of values (T,Dp), in a slot. */
static int64_t key_floats(const attention_shape *p)
{
    return p->padded_len * p->head_size;
}

static attention_shape shape_of(const yk_attention_forward_args *a)
{
    attention_shape p = attention_shape_make(a->batch, a->seq_len, a->heads, a->kv_heads,
                                             a->head_size, a->doc_start, a->dtype);
    attention_shape_place(&p, key_floats(&p) + p.seq_len * p.padded_size);
    return p;
}

int64_t yk_cpu_attention_forward_bytes(const yk_attention_forward_args *a)
{
    return shape_of(a).ws_bytes;
}

/* Take keys j .. j+15 of a group of rows into the greatest scores. */
VEC_INLINE void see(const float *s, int64_t j, const attention_keys *k, bool whole, vecf *most)
{
    VEC_EACH(ATTENTION_GROUP)
    {
        vecf x = vec_load_f32(s + i * SCORE_ROW + j);
        veci seen = attention_seen(k, j, i);
        if (!whole) x = vec_keep(seen, x) + vec_keep(~seen, vec_set(-INFINITY));
        most[i] = vec_max(x, most[i]);
    }
}

/* Scores j .. j+15 of a group of rows to exponentials, 0 where a row does not see the key. */
VEC_INLINE void exponentiate(float *s, int64_t j, const attention_keys *k, bool whole,
                             const float *most, vecf *sum)
{
    vecf e[VEC_GROUP];
    VEC_EACH(ATTENTION_GROUP) e[i] = vec_load_f32(s + i * SCORE_ROW + j) - most[i];
    vec_exp2(e, ATTENTION_GROUP);
    VEC_EACH(ATTENTION_GROUP)
    {
        if (!whole) e[i] = vec_keep(attention_seen(k, j, i), e[i]);
        vec_store_f32(s + i * SCORE_ROW + j, e[i]);
        sum[i] += e[i];
    }
}

/* Make what was summed before relative to a greater score. */
static void shrink(tile *t, int64_t row, int64_t dp, float most)
{
    if (t->sum[row] > 0 && most > t->most[row]) {
        float factor = exp2f(t->most[row] - most), *y = t->y + row * dp;
        t->sum[row] *= factor;
        for (int64_t j = 0; j < dp; j++) y[j] *= factor;
    }
    t->most[row] = most;
}

/* The softmax of a group of rows, as far as the block goes: keys low .. high-1 in whole vectors. */
static void soften(tile *t, int64_t row, int64_t dp, int64_t low, int64_t high,
                   const attention_keys *k)
{
    float *s = t->scores + row * SCORE_ROW;
    vecf most[VEC_GROUP], sum[VEC_GROUP];
    int64_t begin = yk_max(low, k->begin), end = yk_min(high, k->end), j;
    VEC_EACH(ATTENTION_GROUP)
    {
        most[i] = vec_set(t->most[row + i]);
        sum[i] = (vecf){0};
    }
    for (j = low; j < yk_min(begin, high); j += VEC_LANES) see(s, j, k, false, most);
    for (; j < end; j += VEC_LANES) see(s, j, k, true, most);
    for (; j < high; j += VEC_LANES) see(s, j, k, false, most);
    for (int i = 0; i < ATTENTION_GROUP; i++) shrink(t, row + i, dp, vec_greatest(most[i]));
    const float *m = t->most + row;
    for (j = low; j < yk_min(begin, high); j += VEC_LANES) exponentiate(s, j, k, false, m, sum);
    for (; j < end; j += VEC_LANES) exponentiate(s, j, k, true, m, sum);
    for (; j < high; j += VEC_LANES) exponentiate(s, j, k, false, m, sum);
    for (int i = 0; i < ATTENTION_GROUP; i++) t->sum[row + i] += vec_sum(sum[i]);
}

static void run_strip(const attention_shape *p, tile *t, int64_t b, int64_t q0, int64_t rows,
                      int64_t block, const attention_strip *s, const float *keys,
                      const float *values)
{
    attention_multiply_keys(p, s, t->q, keys, block, t->scores, &t->next);
    for (int64_t row = s->row; row < s->row + s->rows; row += ATTENTION_GROUP) {
        attention_keys k = attention_keys_make(p, b, q0, rows, row, block);
        soften(t, row, p->padded_size, s->low, s->high, &k);
    }
    attention_add_rows(p, s, t->scores, values, block, t->y);
}

/* y and lse of the tile's rows. */
VEC_INLINE void put_tile(const attention_shape *p, const yk_attention_forward_args *a,
                         const tile *t, int64_t b, int64_t h, int64_t q0, int64_t rows,
                         yk_dtype dtype)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = (b * p->seq_len + q0 + i) * p->y_row + h * p->head_size;
        attention_put_rows(p, a->y, at, p->y_row, t->y + i * p->padded_size, 1, 1 / t->sum[i],
                           dtype);
        a->lse[(b * p->heads + h) * p->seq_len + q0 + i] = t->most[i] * VEC_LN_2 + logf(t->sum[i]);
    }
}

static void run_tile(const attention_shape *p, const yk_attention_forward_args *a, tile *t,
                     int64_t b, int64_t h, int64_t q0, const float *keys, const float *values)
{
    int64_t rows = yk_min(p->query_tile, p->seq_len - q0), first = p->seq_len;
    int64_t at = (b * p->seq_len + q0) * p->qkv_row + h * p->head_size;
    YK_CPU_BY_DTYPE(p->dtype, attention_copy_rows(p, t->q, a->qkv, at, p->qkv_row, rows,
                                                  a->scale * VEC_LOG2_E, T));
    memset(t->y, 0, (size_t)(p->query_tile * p->padded_size) * sizeof *t->y);
    for (int64_t i = 0; i < p->query_tile; i++) {
        t->most[i] = -INFINITY;
        t->sum[i] = 0;
    }
    for (int64_t i = 0; i < rows; i++) first = yk_min(first, attention_first_key(p, b, q0 + i));
    for (int64_t block = first / GEMM_COLS * GEMM_COLS; block < q0 + rows; block += KEY_BLOCK)
        for (int64_t row = 0; row < rows; row += GEMM_ROWS) {
            attention_strip s = attention_strip_make(p, b, q0, rows, row, block);
            if (s.low < s.high) run_strip(p, t, b, q0, rows, block, &s, keys, values);
        }
    YK_CPU_BY_DTYPE(p->dtype, put_tile(p, a, t, b, h, q0, rows, T));
}

/* What query head h of an item reads and writes, and its keys and values if it is the first. */
static attention_fetch fetch_head(const attention_shape *p, const yk_attention_forward_args *a,
                                  int64_t item, int64_t h, bool is_first)
{
    int64_t b = item / p->kv_heads, g = item % p->kv_heads, position = b * p->seq_len;
    int64_t key = position * p->qkv_row + (p->heads + g) * p->head_size;
    attention_fetch f = attention_fetch_make(p);
    attention_fetch_add(p, &f, a->qkv, position * p->qkv_row + h * p->head_size, p->qkv_row);
    attention_fetch_add(p, &f, a->y, position * p->y_row + h * p->head_size, p->y_row);
    if (!is_first) return f;
    attention_fetch_add(p, &f, a->qkv, key, p->qkv_row);
    attention_fetch_add(p, &f, a->qkv, key + p->kv_heads * p->head_size, p->qkv_row);
    return f;
}

static void run_item(const attention_shape *p, const yk_attention_forward_args *a, int64_t item,
                     int64_t next_item, float *keys, float *scratch)
{
    int64_t b = item / p->kv_heads, g = item % p->kv_heads;
    int64_t at = b * p->seq_len * p->qkv_row + (p->heads + g) * p->head_size;
    float *values = keys + key_floats(p);
    attention_pack_transposed(p, keys, a->qkv, at);
    attention_pack_rows(p, values, a->qkv, at + p->kv_heads * p->head_size);
    tile t = {.scores = scratch, .q = scratch + SCORE_FLOATS};
    t.y = t.q + p->query_tile * p->padded_size;
    for (int64_t h = g * p->group; h < (g + 1) * p->group; h++) {
        t.next = (attention_fetch){0};
        if (h + 1 < (g + 1) * p->group)
            t.next = fetch_head(p, a, item, h + 1, false);
        else if (next_item >= 0)
            t.next = fetch_head(p, a, next_item, next_item % p->kv_heads * p->group, true);
        for (int64_t q0 = 0; q0 < p->seq_len; q0 += p->query_tile)
            run_tile(p, a, &t, b, h, q0, keys, values);
    }
}

yk_status yk_cpu_attention_forward(yk_stream *s, const yk_attention_forward_args *a, void *ws)
{
    YK_TRY(attention_size_check(a->head_size));
    attention_shape p = shape_of(a);
    int n_threads = cpu_threads(s, p.n_slots);
#pragma omp parallel for num_threads(n_threads) schedule(dynamic)
    for (int64_t slot = 0; slot < p.n_slots; slot++)
        for (int64_t item = slot; item < p.n_items; item += p.n_slots) {
            float *scratch = cpu_scratch(s, omp_get_thread_num());
            run_item(&p, a, item, attention_next_item(&p, item, n_threads),
                     attention_slot(&p, slot, ws, scratch), scratch);
        }
    return YK_OK;
}
