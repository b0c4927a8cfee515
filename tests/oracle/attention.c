/* tests/oracle/attention.c - causal attention and its gradient in fp64, one pair at a time.
 *
 * Bounds. A score has (D + 2) eps of its absolute terms A. A probability exp(s - lse) has,
 * relatively, the error of its exponent and of exp itself; a softmax over n positions that error
 * twice (above and below the line) and the sum's n eps, and a running maximum adds no more than one
 * rounding a position.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/oracle/oracle.h"

/* Where a head's vectors lie: vector t of head h of batch entry b. */
typedef struct heads_view {
    const double *data;
    int64_t batch_stride, row_stride, head_size;
} heads_view;

static const double *vector_at(heads_view v, int64_t b, int64_t t, int64_t h)
{
    return v.data + b * v.batch_stride + t * v.row_stride + h * v.head_size;
}

/* One query's view of the past. */
typedef struct query {
    int64_t b, h, g;    /* batch entry, head, key-value head */
    int64_t first, end; /* positions seen: first <= j < end */
    const double *q;    /* (D) */
} query;

static double dot(const double *a, const double *b, int64_t n, double *terms)
{
    double sum = 0;
    *terms = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
        *terms += fabs(a[i] * b[i]);
    }
    return sum;
}

/* ---- forward ------------------------------------------------------------------------------ */

/* y (D) and lse of one query; `p` is scratch for `end` numbers. */
static void attend(const oracle_arith *arith, const query *at, heads_view k, heads_view v,
                   double scale, double *p, double *y, double *y_bound, double *lse,
                   double *lse_bound)
{
    int64_t d_size = k.head_size;
    double max = -INFINITY, min = INFINITY, worst_terms = 0, sum = 0;
    for (int64_t j = at->first; j < at->end; j++) {
        double terms;
        p[j] = scale * dot(at->q, vector_at(k, at->b, j, at->g), d_size, &terms);
        max = fmax(max, p[j]);
        min = fmin(min, p[j]);
        worst_terms = fmax(worst_terms, fabs(scale) * terms);
    }
    for (int64_t j = at->first; j < at->end; j++) sum += exp(p[j] - max);
    *lse = max + log(sum);
    double n = (double)(at->end - at->first), relative = 0;
    if (arith) {
        relative = arith->eps * (((double)d_size + 2) * worst_terms + 2 * (max - min) + 4);
        *lse_bound = relative + arith->eps * (n + 4 + 2 * (fabs(max) + log(sum) + fabs(*lse)));
        relative = 2 * relative + (2 * n + 6) * arith->eps + arith->operand;
    }
    for (int64_t d = 0; d < d_size; d++) {
        double terms = 0;
        y[d] = 0;
        for (int64_t j = at->first; j < at->end; j++) {
            double term = exp(p[j] - *lse) * vector_at(v, at->b, j, at->g)[d];
            y[d] += term;
            terms += fabs(term);
        }
        if (arith) y_bound[d] = relative * terms;
    }
}

static heads_view view_of_qkv(const double *qkv, const oracle_attention *s, int64_t first_head)
{
    int64_t width = (s->heads + 2 * s->kv_heads) * s->head_size;
    return (heads_view){qkv + first_head * s->head_size, s->seq_len * width, width, s->head_size};
}

static query query_at(const oracle_attention *s, heads_view q, int64_t b, int64_t t, int64_t h)
{
    return (query){.b = b,
                   .h = h,
                   .g = h / (s->heads / s->kv_heads),
                   .first = s->doc_start ? s->doc_start[b * s->seq_len + t] : 0,
                   .end = t + 1,
                   .q = vector_at(q, b, t, h)};
}

void oracle_attention_forward(const oracle_arith *arith, oracle_out y, oracle_out lse,
                              const double *qkv, const oracle_attention *s)
{
    heads_view q = view_of_qkv(qkv, s, 0), k = view_of_qkv(qkv, s, s->heads),
               v = view_of_qkv(qkv, s, s->heads + s->kv_heads);
    double *p = calloc((size_t)s->seq_len, sizeof *p);
    for (int64_t i = 0; i < s->batch * s->heads * s->seq_len; i++) {
        int64_t t = i % s->seq_len, h = i / s->seq_len % s->heads, b = i / s->seq_len / s->heads;
        query at = query_at(s, q, b, t, h);
        int64_t out = ((b * s->seq_len + t) * s->heads + h) * s->head_size;
        attend(arith, &at, k, v, s->scale, p, y.value + out, arith ? y.bound + out : NULL,
               lse.value + i, arith ? lse.bound + i : NULL);
    }
    free(p);
}

void oracle_attention_cached(const oracle_arith *arith, oracle_out y, const double *k_cache,
                             const double *v_cache, const double *qkv, const oracle_attention *s,
                             int64_t past, int64_t capacity)
{
    heads_view q = view_of_qkv(qkv, s, 0), new_k = view_of_qkv(qkv, s, s->heads),
               new_v = view_of_qkv(qkv, s, s->heads + s->kv_heads);
    int64_t width = s->kv_heads * s->head_size, seen = past + s->seq_len;
    double *k = calloc((size_t)(s->batch * seen * width), sizeof *k);
    double *v = calloc((size_t)(s->batch * seen * width), sizeof *v);
    double *p = calloc((size_t)seen, sizeof *p), lse, lse_bound;
    for (int64_t i = 0; i < s->batch * seen * width; i++) {
        int64_t b = i / (seen * width), j = i / width % seen, c = i % width;
        int64_t cached = (b * capacity + j) * width + c;
        k[i] = j < past ? k_cache[cached] : vector_at(new_k, b, j - past, 0)[c];
        v[i] = j < past ? v_cache[cached] : vector_at(new_v, b, j - past, 0)[c];
    }
    heads_view all_k = {k, seen * width, width, s->head_size};
    heads_view all_v = {v, seen * width, width, s->head_size};
    for (int64_t i = 0; i < s->batch * s->heads * s->seq_len; i++) {
        int64_t t = i % s->seq_len, h = i / s->seq_len % s->heads, b = i / s->seq_len / s->heads;
        query at = query_at(s, q, b, t, h);
        at.first = 0;
        at.end = past + t + 1;
        int64_t out = ((b * s->seq_len + t) * s->heads + h) * s->head_size;
        attend(arith, &at, all_k, all_v, s->scale, p, y.value + out, arith ? y.bound + out : NULL,
               &lse, &lse_bound);
    }
    free(k);
    free(v);
    free(p);
}

/* ---- backward ----------------------------------------------------------------------------- */

/* A probability and its score's gradient, with bounds. */
typedef struct pair_gradient {
    double p, p_bound, ds, ds_bound;
} pair_gradient;

/* What is common to the pairs of one query: dy, y, and their dot product. */
typedef struct query_gradient {
    const double *dy;
    double lse, dy_y, dy_y_terms;
} query_gradient;

static pair_gradient pair_of(const oracle_arith *arith, const query *at, const query_gradient *grad,
                             const double *k, const double *v, int64_t d_size, double scale)
{
    double s_terms, dp_terms;
    double s = scale * dot(at->q, k, d_size, &s_terms), dp = dot(grad->dy, v, d_size, &dp_terms);
    pair_gradient out = {.p = exp(s - grad->lse)};
    out.ds = scale * out.p * (dp - grad->dy_y);
    if (!arith) return out;
    double n = (double)d_size, unit = arith->eps;
    double relative =
        unit * ((n + 2) * fabs(scale) * s_terms + 3 * (fabs(s) + fabs(grad->lse)) + 4);
    out.p_bound = relative * out.p;
    out.ds_bound = (relative + 3 * unit) * fabs(out.ds) +
                   fabs(scale) * out.p * (n + 2) * unit * (dp_terms + grad->dy_y_terms);
    return out;
}

/* dst[i] += x[i] * a, and the bound: that of `a`, and `roundings` of the product. */
static void add_scaled(oracle_out dst, int64_t offset, const double *x, double a, double a_bound,
                       double roundings, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        dst.value[offset + i] += x[i] * a;
        if (dst.bound) dst.bound[offset + i] += fabs(x[i]) * (a_bound + roundings * fabs(a));
    }
}

void oracle_attention_backward(const oracle_arith *arith, oracle_out dqkv, const double *dy,
                               const double *y, const double *lse, const double *qkv,
                               const oracle_attention *s)
{
    heads_view q = view_of_qkv(qkv, s, 0), k = view_of_qkv(qkv, s, s->heads),
               v = view_of_qkv(qkv, s, s->heads + s->kv_heads);
    int64_t n = s->batch * s->seq_len * (s->heads + 2 * s->kv_heads) * s->head_size;
    /* A sum over the positions that see a key, for each head of its group. */
    double terms = (double)(s->seq_len * (s->heads / s->kv_heads));
    double roundings = arith ? terms * arith->eps + arith->operand : 0;
    if (!arith) dqkv.bound = NULL;
    for (int64_t i = 0; i < n; i++) dqkv.value[i] = 0;
    for (int64_t i = 0; dqkv.bound && i < n; i++) dqkv.bound[i] = 0;
    for (int64_t i = 0; i < s->batch * s->heads * s->seq_len; i++) {
        int64_t t = i % s->seq_len, h = i / s->seq_len % s->heads, b = i / s->seq_len / s->heads;
        int64_t out = ((b * s->seq_len + t) * s->heads + h) * s->head_size;
        query at = query_at(s, q, b, t, h);
        query_gradient grad = {.dy = dy + out, .lse = lse[i]};
        grad.dy_y = dot(dy + out, y + out, s->head_size, &grad.dy_y_terms);
        for (int64_t j = at.first; j < at.end; j++) {
            const double *kj = vector_at(k, b, j, at.g), *vj = vector_at(v, b, j, at.g);
            pair_gradient pair = pair_of(arith, &at, &grad, kj, vj, s->head_size, s->scale);
            add_scaled(dqkv, at.q - qkv, kj, pair.ds, pair.ds_bound, roundings, s->head_size);
            add_scaled(dqkv, kj - qkv, at.q, pair.ds, pair.ds_bound, roundings, s->head_size);
            add_scaled(dqkv, vj - qkv, grad.dy, pair.p, pair.p_bound, roundings, s->head_size);
        }
    }
}
