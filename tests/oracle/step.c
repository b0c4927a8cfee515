/* tests/oracle/step.c - the loss, the decision of a step, and AdamW, in fp64. */
#include <math.h>
#include <stddef.h>

#include "tests/oracle/oracle.h"

/* ---- loss --------------------------------------------------------------------------------- */

/* Bounds: exp of a difference of logits has 2 eps of the difference and 4 eps; the sum V eps. A
 * probability near the smallest normal number may be flushed to zero. */
#define FLUSHED 0x1p-124

void oracle_cross_entropy(const oracle_arith *arith, oracle_out losses, oracle_out dlogits,
                          const double *logits, const int32_t *targets, int64_t rows, int64_t vocab,
                          int64_t stride, double factor)
{
    for (int64_t r = 0; r < rows; r++) {
        const double *row = logits + r * stride;
        double max = -INFINITY, min = INFINITY, sum = 0, unit = arith ? arith->eps : 0;
        for (int64_t v = 0; v < vocab; v++) {
            max = fmax(max, row[v]);
            min = fmin(min, row[v]);
        }
        for (int64_t v = 0; v < vocab; v++) sum += exp(row[v] - max);
        double lse = max + log(sum), relative = unit * (2 * (max - min) + 4 + (double)vocab);
        bool masked = targets[r] < 0;
        losses.value[r] = masked ? 0 : lse - row[targets[r]];
        if (arith)
            losses.bound[r] = masked
                                  ? 0
                                  : relative + unit * (4 + 2 * (fabs(max) + log(sum) + fabs(lse) +
                                                                fabs(losses.value[r])));
        for (int64_t v = 0; dlogits.value && v < stride; v++) {
            bool zero = masked || v >= vocab;
            double p = zero ? 0 : exp(row[v] - lse), hot = v == targets[r] ? 1 : 0;
            dlogits.value[r * stride + v] = zero ? 0 : (p - hot) * factor;
            if (arith)
                dlogits.bound[r * stride + v] =
                    zero ? 0 : fabs(factor) * (2 * relative * p + 4 * unit * (p + hot) + FLUSHED);
        }
    }
}

/* ---- the optimiser's step ----------------------------------------------------------------- */

static void skip_step(yk_step_values *v, const yk_step_finish_args *a)
{
    v->skip = 1;
    v->steps_skipped++;
    v->skips_in_a_row++;
    if (!a->dynamic_scale) return;
    v->loss_scale = fmaxf(v->loss_scale / 2, a->scale_floor);
    v->good_steps = 0;
}

void oracle_step_finish(yk_step_values *v, const yk_step_finish_args *a)
{
    double scale = v->loss_scale, tokens = v->n_tokens > 0 ? (double)v->n_tokens : 1;
    double mean = a->expected_tokens / tokens / scale;
    double norm = sqrt(v->sum_squares) * mean;
    v->grad_norm = (float)norm;
    if (v->non_finite) {
        skip_step(v, a);
        return;
    }
    v->skip = 0;
    v->skips_in_a_row = 0;
    v->adam_steps++;
    v->correction1 = (float)(1 - pow((double)a->beta1, (double)v->adam_steps));
    v->correction2 = (float)(1 - pow((double)a->beta2, (double)v->adam_steps));
    double clip = a->clip > 0 && norm > (double)a->clip ? (double)a->clip / norm : 1;
    v->grad_scale = (float)(mean * clip);
    if (!a->dynamic_scale) return;
    v->good_steps++;
    if (v->good_steps < a->growth_interval) return;
    v->loss_scale = fminf(v->loss_scale * 2, a->scale_ceiling);
    v->good_steps = 0;
}

/* First-order propagation through the formula of yk_adamw() line by line, one eps an operation. */
void oracle_adamw(const oracle_arith *arith, oracle_out master, oracle_out m, oracle_out v,
                  const oracle_adamw_in *in)
{
    for (int64_t i = 0; i < in->n; i++) {
        double g = in->grad[i] * in->grad_scale, p = in->master[i];
        double m_new = in->m[i] + (1 - in->beta1) * (g - in->m[i]);
        double v_new = in->v[i] + (1 - in->beta2) * (g * g - in->v[i]);
        double m_hat = m_new / in->correction1, root = sqrt(v_new / in->correction2);
        double direction = m_hat / (root + in->eps);
        m.value[i] = m_new;
        v.value[i] = v_new;
        master.value[i] = p - in->lr * (direction + in->weight_decay * p);
        if (!arith) continue;
        double u = arith->eps;
        m.bound[i] = u * (fabs(in->m[i]) + 4 * (1 - in->beta1) * (fabs(g) + fabs(in->m[i])));
        v.bound[i] = u * (in->v[i] + 5 * (1 - in->beta2) * (g * g + in->v[i]));
        double v_hat_bound = v.bound[i] / in->correction2 + 2 * u * v_new / in->correction2;
        double root_bound = root > 0 ? v_hat_bound / (2 * root) + u * root : sqrt(v_hat_bound);
        double direction_bound = m.bound[i] / in->correction1 / (root + in->eps) +
                                 fabs(direction) * (root_bound / (root + in->eps) + 4 * u);
        master.bound[i] =
            in->lr * (direction_bound + 4 * u * (fabs(direction) + fabs(in->weight_decay * p)));
    }
}
