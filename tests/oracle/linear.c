/* tests/oracle/linear.c - matrix products and the activations that go with them, in fp64. */
#include <math.h>
#include <stddef.h>

#include "tests/oracle/oracle.h"

static double at_or_zero(const double *p, int64_t i)
{
    return p ? p[i] : 0;
}

/* ---- GELU --------------------------------------------------------------------------------- */

#define GELU_C 0.7978845608028654 /* sqrt(2 / pi) */
#define GELU_A 0.044715

static double gelu(double z)
{
    return 0.5 * z * (1 + tanh(GELU_C * (z + GELU_A * z * z * z)));
}

static double gelu_slope(double z)
{
    double t = tanh(GELU_C * (z + GELU_A * z * z * z));
    return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * GELU_C * (1 + 3 * GELU_A * z * z);
}

/* 1 + tanh() cancels where z is far below zero, so the error is of z and not of the result. */
static double gelu_bound(double unit, double z)
{
    return 8 * unit * fabs(z);
}

/* As above; the slope multiplies the rounding of 1 - tanh^2 by |z| (1 + 3 A z^2) C. */
static double gelu_slope_bound(double unit, double z)
{
    return 6 * unit * (1 + fabs(z) * GELU_C * (1 + 3 * GELU_A * z * z));
}

/* Where operands inside an operation are rounded to 16 bits, tanh may have 11 bits. */
static double gelu_slope_bound_of_tanh(double unit, double z)
{
    return unit * (0.5 + fabs(z) * GELU_C * (1 + 3 * GELU_A * z * z));
}

#define GELU_STEEPEST 1.13 /* the largest |slope| */

void oracle_gelu_forward(const oracle_arith *arith, oracle_out y, const double *z, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y.value[i] = gelu(z[i]);
        if (arith) y.bound[i] = gelu_bound(arith->eps, z[i]);
    }
}

/* What a sum of products whose terms add up to `terms` without signs may be off by. */
static double product_bound(const oracle_arith *arith, double terms)
{
    return (2 + arith->factor) * arith->factor * terms;
}

/* ---- linear ------------------------------------------------------------------------------- */

void oracle_linear_forward(const oracle_arith *arith, oracle_out y, oracle_out z, const double *x,
                           const double *w, const double *bias, const double *residual, int64_t m,
                           int64_t n, int64_t k, bool with_gelu, yk_dtype t)
{
    for (int64_t i = 0; i < m * n; i++) {
        const double *row = x + i / n * k, *col = w + i % n * k;
        double first = at_or_zero(bias, i % n), sum = first, terms = 0;
        for (int64_t l = 0; l < k; l++) {
            sum += row[l] * col[l];
            terms += fabs(row[l] * col[l]);
        }
        double added = with_gelu ? 0 : at_or_zero(residual, i), bound = 0;
        if (arith)
            bound = ((double)k + 1) * arith->eps * (terms + fabs(first) + fabs(added)) +
                    product_bound(arith, terms);
        if (z.value) z.value[i] = sum;
        if (z.value && arith) z.bound[i] = bound;
        y.value[i] = with_gelu ? gelu(sum) : sum + added;
        if (!arith) continue;
        y.bound[i] = with_gelu ? GELU_STEEPEST * oracle_stored_bound(t, sum, bound) +
                                     gelu_bound(arith->eps, sum)
                               : bound;
    }
}

void oracle_linear_backward_input(const oracle_arith *arith, oracle_out dx, const double *before,
                                  const double *dy, const double *w, const double *z, int64_t m,
                                  int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m * k; i++) {
        double sum = 0, terms = 0;
        for (int64_t l = 0; l < n; l++) {
            double term = dy[i / k * n + l] * w[l * k + i % k];
            sum += term;
            terms += fabs(term);
        }
        double slope = z ? gelu_slope(z[i]) : 1, added = at_or_zero(before, i);
        dx.value[i] = sum * slope + added;
        if (!arith) continue;
        dx.bound[i] = ((double)n + 2) * arith->eps * (terms * fabs(slope) + fabs(added)) +
                      product_bound(arith, terms * fabs(slope));
        /* A product of 16 bits may be rounded before an epilogue works on it. */
        if (before || z) dx.bound[i] += arith->operand / 2 * fabs(sum * slope);
        if (z) dx.bound[i] += terms * gelu_slope_bound(arith->eps, z[i]);
        if (z)
            dx.bound[i] +=
                fabs(sum) * gelu_slope_bound_of_tanh(arith->operand > 0 ? 0x1p-11 : 0, z[i]);
    }
}

void oracle_linear_backward_weight(const oracle_arith *arith, oracle_out dw, oracle_out dbias,
                                   const double *dw_before, const double *dbias_before,
                                   const double *x, const double *dy, int64_t m, int64_t n,
                                   int64_t k)
{
    for (int64_t i = 0; i < n * k; i++) {
        double first = at_or_zero(dw_before, i), sum = first, terms = 0;
        for (int64_t r = 0; r < m; r++) {
            double term = dy[r * n + i / k] * x[r * k + i % k];
            sum += term;
            terms += fabs(term);
        }
        dw.value[i] = sum;
        if (arith)
            dw.bound[i] =
                ((double)m + 1) * arith->eps * (terms + fabs(first)) + product_bound(arith, terms);
    }
    for (int64_t c = 0; dbias.value && c < n; c++) {
        double sum = at_or_zero(dbias_before, c), terms = fabs(sum);
        for (int64_t r = 0; r < m; r++) {
            sum += dy[r * n + c];
            terms += fabs(dy[r * n + c]);
        }
        dbias.value[c] = sum;
        if (arith) dbias.bound[c] = (double)m * arith->eps * terms;
    }
}

/* ---- SwiGLU ------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Relative: exp(-x) has the rounding of its argument, |x| eps (twice, where it goes through base
 * 2), and its own; then a sum and a quotient. */
static double sigmoid_relative_bound(double unit, double x)
{
    return (6 + 2 * fabs(x)) * unit;
}

/* A result under the smallest normal number may be flushed to zero. */
#define FLUSHED 0x1p-126

void oracle_swiglu_forward(const oracle_arith *arith, oracle_out y, const double *gate_up,
                           int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows * cols; i++) {
        const double *row = gate_up + i / cols * 2 * cols;
        double gate = row[i % cols], up = row[cols + i % cols];
        y.value[i] = gate * sigmoid(gate) * up;
        if (!arith) continue;
        y.bound[i] = fabs(y.value[i]) * (sigmoid_relative_bound(arith->eps, gate) + 3 * arith->eps);
        y.bound[i] += FLUSHED * (1 + fabs(gate)) * (1 + fabs(up));
    }
}

/* d silu / d gate = s (1 + gate (1 - s)); 1 - s cancels where s is near 1, so its error is eps. */
void oracle_swiglu_backward(const oracle_arith *arith, oracle_out dgate_up, const double *dy,
                            const double *gate_up, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t at_gate = i / cols * 2 * cols + i % cols, at_up = at_gate + cols;
        double gate = gate_up[at_gate], up = gate_up[at_up], s = sigmoid(gate);
        double slope = s * (1 + gate * (1 - s));
        dgate_up.value[at_gate] = dy[i] * up * slope;
        dgate_up.value[at_up] = dy[i] * gate * s;
        if (!arith) continue;
        double relative = sigmoid_relative_bound(arith->eps, gate);
        double slope_bound = relative * (s + fabs(gate) * s * (1 - s)) +
                             arith->eps * (4 * (s + fabs(gate) * s * (1 - s)) + 2 * fabs(gate) * s);
        double flushed = FLUSHED * (1 + fabs(gate)) * (1 + fabs(up)) * (1 + fabs(dy[i]));
        dgate_up.bound[at_gate] =
            fabs(dy[i] * up) * (slope_bound + 2 * arith->eps * fabs(slope)) + flushed;
        dgate_up.bound[at_up] = fabs(dgate_up.value[at_up]) * (relative + 3 * arith->eps) + flushed;
    }
}
