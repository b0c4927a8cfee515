/* runtime/device/cpu/cross_entropy_cpu.c - the loss of each row of logits, and its gradient in place.
 *
 * Three passes over a row that the first one brings near: the greatest logit, the sum of
 * exponentials, the gradient. The exponentials are made twice, so that nothing but the row is kept.
 * They are carried times 2^64: the small ones then keep their precision until they have been
 * multiplied by the loss scale.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

#define ROWS_AT_ONCE 8
#define CARRY        64 /* exponentials are times 2^CARRY */

VEC_INLINE float greatest(const yk_cross_entropy_args *a, int64_t at, yk_dtype t)
{
    vecf m = vec_set(-INFINITY);
    int64_t v = 0;
    for (; v + VEC_LANES <= a->vocab; v += VEC_LANES)
        m = vec_max(vec_load(a->logits, at + v, t), m);
    float most = vec_greatest(m);
    for (; v < a->vocab; v++) {
        float x = vec_load_n(a->logits, at + v, 1, t)[0];
        most = x > most ? x : most;
    }
    return most;
}

/* 2^CARRY times the exponentials of logits v .. v+15 less the greatest; 0 beyond the vocabulary. */
VEC_INLINE vecf exponentials(const yk_cross_entropy_args *a, int64_t at, int64_t v, float most,
                             yk_dtype t)
{
    int64_t n = a->vocab - v;
    vecf x = vec_load_n(a->logits, at + v, n, t);
    return vec_first(vec_exp2(vec_fma(x - most, vec_set(VEC_LOG2_E), vec_set(CARRY))), n);
}

VEC_INLINE float sum_exponentials(const yk_cross_entropy_args *a, int64_t at, float most,
                                  yk_dtype t)
{
    vecf sum[2] = {{0}, {0}};
    int64_t v = 0;
    for (; v + VEC_LANES < a->vocab; v += 2 * VEC_LANES) {
        sum[0] += exponentials(a, at, v, most, t);
        sum[1] += exponentials(a, at, v + VEC_LANES, most, t);
    }
    if (v < a->vocab) sum[0] += exponentials(a, at, v, most, t);
    return vec_sum(sum[0] + sum[1]);
}

VEC_INLINE void fill_zero(const yk_cross_entropy_args *a, int64_t at, int64_t from)
{
    memset(cpu_at(a->logits, at + from, a->dtype), 0,
           (size_t)((a->stride - from) * yk_dtype_bytes(a->dtype)));
}

VEC_INLINE void row_loss(const yk_cross_entropy_args *a, int64_t row, float gradient, yk_dtype t)
{
    int64_t at = row * a->stride, target = a->targets[row];
    if (target < 0) {
        a->losses[row] = 0.0f;
        if (a->backward) fill_zero(a, at, 0);
        return;
    }
    float most = greatest(a, at, t), sum = sum_exponentials(a, at, most, t);
    a->losses[row] =
        logf(ldexpf(sum, -CARRY)) + (most - vec_load_n(a->logits, at + target, 1, t)[0]);
    if (!a->backward) return;
    float factor = gradient / sum;
    vecf here = exponentials(a, at, target, most, t);
    float at_target = (here[0] / sum - 1.0f) * gradient;
    for (int64_t v = 0; v < a->vocab; v += VEC_LANES)
        vec_store_n(a->logits, at + v, a->vocab - v, exponentials(a, at, v, most, t) * factor, t);
    vec_store_n(a->logits, at + target, 1, vec_set(at_target), t);
    fill_zero(a, at, a->vocab);
}

static void rows_loss(const yk_cross_entropy_args *a, int64_t begin, float gradient)
{
    for (int64_t r = begin; r < yk_min(begin + ROWS_AT_ONCE, a->rows); r++)
        YK_CPU_BY_DTYPE(a->dtype, row_loss(a, r, gradient, T));
}

yk_status yk_cpu_cross_entropy(yk_stream *s, const yk_cross_entropy_args *a)
{
    float gradient = a->backward ? a->scale * a->values->loss_scale : 0.0f;
#pragma omp parallel for num_threads(cpu_threads(s, yk_div_up(a->rows, ROWS_AT_ONCE)))
    for (int64_t r = 0; r < a->rows; r += ROWS_AT_ONCE) rows_loss(a, r, gradient);
    return YK_OK;
}
