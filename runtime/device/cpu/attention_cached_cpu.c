/* runtime/device/cpu/attention_cached_cpu.c - attention of new positions over kept keys and values.
 *
 * A position reads every key before it once, which is what it costs; there is nothing to share
 * between positions when there is one. The softmax runs along as in attention_forward_cpu.c.
 */
#include "runtime/device/cpu/attention.h"

#define KEYS_AT_ONCE 64

static void append_row(const yk_attention_cached_args *a, int64_t row)
{
    int64_t d = a->head_size, kv = a->kv_heads * d, b = row / a->seq_len, t = row % a->seq_len;
    int64_t from = row * (a->heads + 2 * a->kv_heads) * d + a->heads * d;
    int64_t to = (b * a->capacity + a->past + t) * kv;
    size_t bytes = (size_t)(kv * yk_dtype_bytes(a->dtype));
    memcpy(cpu_at(a->k_cache, to, a->dtype), cpu_at(a->qkv, from, a->dtype), bytes);
    memcpy(cpu_at(a->v_cache, to, a->dtype), cpu_at(a->qkv, from + kv, a->dtype), bytes);
}

/* Scores of keys from .. from+n-1 in powers of two; -infinity up to the next whole vector. */
VEC_INLINE void score_keys(const yk_attention_cached_args *a, const float *q, int64_t at,
                           int64_t row, int64_t n, float *scores, yk_dtype t)
{
    int64_t d = a->head_size;
    for (int64_t j = 0; j < n; j++) {
        vecf sum = {0};
        for (int64_t i = 0; i < d; i += VEC_LANES)
            sum = vec_fma(vec_load_n(q, i, d - i, YK_F32),
                          vec_load_n(a->k_cache, at + j * row + i, d - i, t), sum);
        scores[j] = vec_sum(sum);
    }
    for (int64_t j = n; j < yk_round_up(n, VEC_LANES); j++) scores[j] = -INFINITY;
}

/* y = y * shrink + sum of exponentials times values. */
VEC_INLINE void add_values(const yk_attention_cached_args *a, const float *e, int64_t at,
                           int64_t row, int64_t n, float shrink, float *y, yk_dtype t)
{
    int64_t d = a->head_size;
    for (int64_t i = 0; i < d; i += VEC_LANES) {
        vecf sum = vec_load_f32(y + i) * shrink;
        for (int64_t j = 0; j < n; j++)
            sum = vec_fma(vec_set(e[j]), vec_load_n(a->v_cache, at + j * row + i, d - i, t), sum);
        vec_store_f32(y + i, sum);
    }
}

VEC_INLINE void attend(const yk_attention_cached_args *a, int64_t row, int64_t h, yk_dtype t)
{
    float q[ATTENTION_MAX_SIZE], y[ATTENTION_MAX_SIZE], scores[KEYS_AT_ONCE];
    int64_t d = a->head_size, kv = a->kv_heads * d, b = row / a->seq_len;
    int64_t n_keys = a->past + row % a->seq_len + 1;
    int64_t g = h / (a->heads / a->kv_heads), at = b * a->capacity * kv + g * d;
    int64_t query = row * (a->heads + 2 * a->kv_heads) * d + h * d;
    memset(y, 0, (size_t)yk_round_up(d, VEC_LANES) * sizeof *y);
    for (int64_t i = 0; i < d; i += VEC_LANES)
        vec_store_n(q, i, d - i, vec_load_n(a->qkv, query + i, d - i, t) * (a->scale * VEC_LOG2_E),
                    YK_F32);
    float most = -INFINITY, total = 0;
    for (int64_t key = 0; key < n_keys; key += KEYS_AT_ONCE) {
        int64_t n = yk_min(KEYS_AT_ONCE, n_keys - key);
        score_keys(a, q, at + key * kv, kv, n, scores, t);
        vecf greatest = vec_set(most), sum = {0};
        for (int64_t j = 0; j < n; j += VEC_LANES)
            greatest = vec_max(vec_load_f32(scores + j), greatest);
        float now = vec_greatest(greatest), shrink = total > 0 ? exp2f(most - now) : 0;
        for (int64_t j = 0; j < n; j += VEC_LANES) {
            vecf e = vec_load_f32(scores + j) - now;
            vec_exp2(&e, 1);
            vec_store_f32(scores + j, e);
            sum += e;
        }
        add_values(a, scores, at + key * kv, kv, n, shrink, y, t);
        total = total * shrink + vec_sum(sum);
        most = now;
    }
    for (int64_t i = 0; i < d; i += VEC_LANES)
        vec_store_n(a->y, (row * a->heads + h) * d + i, d - i, vec_load_f32(y + i) * (1 / total),
                    t);
}

static void attend_head(const yk_attention_cached_args *a, int64_t row, int64_t h)
{
    YK_CPU_BY_DTYPE(a->dtype, attend(a, row, h, T));
}

yk_status yk_cpu_attention_cached(yk_stream *s, const yk_attention_cached_args *a, void *ws)
{
    (void)ws;
    YK_TRY(attention_size_check(a->head_size));
    int64_t rows = a->batch * a->seq_len;
#pragma omp parallel num_threads(cpu_threads(s, rows * a->heads))
    {
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) append_row(a, r);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < rows * a->heads; i++) attend_head(a, i / a->heads, i % a->heads);
    }
    return YK_OK;
}
