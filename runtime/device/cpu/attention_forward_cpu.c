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
} tile;

static attention_shape shape_of(const yk_attention_forward_args *a)
{
    return attention_shape_make(a->batch, a->seq_len, a->heads, a->kv_heads, a->head_size,
                                a->doc_start, a->dtype);
}

/* Panels of keys (Tp,D) and of values (T,Dp) of each slot. */
static int64_t key_floats(const attention_shape *p)
{
    return p->padded_len * p->head_size;
}

static int64_t slot_floats(const attention_shape *p)
{
    return key_floats(p) + p->seq_len * p->padded_size;
}

int64_t yk_cpu_attention_forward_bytes(const yk_attention_forward_args *a)
{
    attention_shape p = shape_of(a);
    return 4 * p.n_slots * slot_floats(&p);
}

/* Scores low .. high-1 of a row become exponentials; `from`.. are those it sees, up to `to`. */
static void exponentiate(tile *t, int64_t row, int64_t dp, int64_t low, int64_t high, int64_t from,
                         int64_t to)
{
    float *s = t->scores + row * SCORE_ROW;
    int64_t end = low + yk_round_up(high - low, VEC_LANES);
    if (from >= to) {
        memset(s + low, 0, (size_t)(end - low) * sizeof *s);
        return;
    }
    for (int64_t j = low; j < from; j++) s[j] = -INFINITY;
    for (int64_t j = to; j < end; j++) s[j] = -INFINITY;
    vecf greatest = vec_set(t->most[row]), sum = {0};
    for (int64_t j = low; j < end; j += VEC_LANES)
        greatest = vec_max(vec_load_f32(s + j), greatest);
    float most = vec_greatest(greatest);
    for (int64_t j = low; j < end; j += VEC_LANES) {
        vecf e = vec_exp2(vec_load_f32(s + j) - most);
        vec_store_f32(s + j, e);
        sum += e;
    }
    if (t->sum[row] > 0 && most > t->most[row]) {
        vecf shrink = vec_exp2(vec_set(t->most[row] - most));
        t->sum[row] *= shrink[0];
        float *y = t->y + row * dp;
        for (int64_t j = 0; j < dp; j++) y[j] *= shrink[0];
    }
    t->most[row] = most;
    t->sum[row] += vec_sum(sum);
}

static void run_strip(const attention_shape *p, tile *t, int64_t b, int64_t q0, int64_t block,
                      const attention_strip *s, const float *keys, const float *values)
{
    attention_multiply_keys(p, s, t->q, keys, block, t->scores);
    for (int64_t i = s->row; i < s->row + s->rows; i++) {
        int64_t from = yk_max(attention_first_key(p, b, q0 + i) - block, 0);
        int64_t to = yk_min(q0 + i + 1 - block, KEY_BLOCK);
        exponentiate(t, i, p->padded_size, s->low, s->high, from, to);
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
    for (int64_t i = 0; i < rows; i++) {
        t->most[i] = -INFINITY;
        t->sum[i] = 0;
        first = yk_min(first, attention_first_key(p, b, q0 + i));
    }
    for (int64_t block = first / GEMM_COLS * GEMM_COLS; block < q0 + rows; block += KEY_BLOCK)
        for (int64_t row = 0; row < rows; row += GEMM_ROWS) {
            attention_strip s = attention_strip_make(p, b, q0, rows, row, block);
            if (s.low < s.high) run_strip(p, t, b, q0, block, &s, keys, values);
        }
    YK_CPU_BY_DTYPE(p->dtype, put_tile(p, a, t, b, h, q0, rows, T));
}

static void run_item(const attention_shape *p, const yk_attention_forward_args *a, int64_t item,
                     float *keys, float *scratch)
{
    int64_t b = item / p->kv_heads, g = item % p->kv_heads;
    int64_t at = b * p->seq_len * p->qkv_row + (p->heads + g) * p->head_size;
    float *values = keys + key_floats(p);
    attention_pack_transposed(p, keys, a->qkv, at);
    attention_pack_rows(p, values, a->qkv, at + p->kv_heads * p->head_size);
    tile t = {.scores = scratch, .q = scratch + SCORE_FLOATS};
    t.y = t.q + p->query_tile * p->padded_size;
    for (int64_t h = g * p->group; h < (g + 1) * p->group; h++)
        for (int64_t q0 = 0; q0 < p->seq_len; q0 += p->query_tile)
            run_tile(p, a, &t, b, h, q0, keys, values);
}

yk_status yk_cpu_attention_forward(yk_stream *s, const yk_attention_forward_args *a, void *ws)
{
    attention_shape p = shape_of(a);
    YK_TRY(attention_shape_check(&p));
#pragma omp parallel for num_threads(cpu_threads(s, p.n_slots)) schedule(dynamic)
    for (int64_t slot = 0; slot < p.n_slots; slot++)
        for (int64_t item = slot; item < p.n_items; item += p.n_slots)
            run_item(&p, a, item, (float *)ws + slot * slot_floats(&p),
                     cpu_scratch(s, omp_get_thread_num()));
    return YK_OK;
}
