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

/* 2^CARRY times the exponentials of n vectors of logits less the greatest, from logit v on; 0 beyond
 * the vocabulary. */
VEC_INLINE void exponentials(const yk_cross_entropy_args *a, int64_t at, int64_t v, float most,
                             vecf *e, int n, yk_dtype t)
{
    int64_t left = a->vocab - v;
    VEC_EACH(n)
    {
        vecf x = vec_load_n(a->logits, at + v + i * VEC_LANES, left - i * VEC_LANES, t);
        e[i] = vec_fma(x - most, vec_set(VEC_LOG2_E), vec_set(CARRY));
    }
    vec_exp2(e, n);
    if (left < n * VEC_LANES) VEC_EACH(n) e[i] = vec_first(e[i], left - i * VEC_LANES);
}

VEC_INLINE float sum_exponentials(const yk_cross_entropy_args *a, int64_t at, float most,
                                  yk_dtype t)
{
    vecf e[VEC_GROUP], sum[VEC_GROUP] = {{0}, {0}, {0}, {0}};
    int64_t v = 0;
    for (; v + VEC_GROUP * VEC_LANES <= a->vocab; v += VEC_GROUP * VEC_LANES) {
        exponentials(a, at, v, most, e, VEC_GROUP, t);
        VEC_EACH(VEC_GROUP) sum[i] += e[i];
    }
    for (; v < a->vocab; v += VEC_LANES) {
        exponentials(a, at, v, most, e, 1, t);
        sum[0] += e[0];
    }
    return vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Exponentials times `factor` in place. */
VEC_INLINE void put_exponentials(const yk_cross_entropy_args *a, int64_t at, float most,
                                 float factor, yk_dtype t)
{
    vecf e[VEC_GROUP];
    int64_t v = 0;
    for (; v + VEC_GROUP * VEC_LANES <= a->vocab; v += VEC_GROUP * VEC_LANES) {
        exponentials(a, at, v, most, e, VEC_GROUP, t);
        VEC_EACH(VEC_GROUP) vec_store(a->logits, at + v + i * VEC_LANES, e[i] * factor, t);
    }
    for (; v < a->vocab; v += VEC_LANES) {
        exponentials(a, at, v, most, e, 1, t);
        vec_store_n(a->logits, at + v, a->vocab - v, e[0] * factor, t);
    }
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
    vecf here;
    exponentials(a, at, target, most, &here, 1, t);
    float at_target = (here[0] / sum - 1.0f) * gradient;
    put_exponentials(a, at, most, factor, t);
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
