/* tests/oracle/rows.c - operations that work row by row, in fp64: embedding, norm, rotary
 * positions. */
#include <math.h>
#include <stddef.h>

#include "tests/oracle/oracle.h"

static double at_or_zero(const double *p, int64_t i)
{
    return p ? p[i] : 0;
}

/* ---- embedding ---------------------------------------------------------------------------- */

void oracle_embed_forward(const oracle_arith *arith, oracle_out y, const double *wte,
                          const double *wpe, const int32_t *tokens, const int32_t *positions,
                          int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            double value = wte[tokens[r] * cols + c];
            if (wpe) value += wpe[positions[r] * cols + c];
            y.value[r * cols + c] = value;
            if (arith) y.bound[r * cols + c] = wpe ? arith->eps * fabs(value) : 0;
        }
    }
}

void oracle_embed_backward(const oracle_arith *arith, oracle_out dtable, const double *before,
                           const double *dy, const int32_t *ids, int64_t rows, int64_t cols,
                           int64_t n_values)
{
    for (int64_t v = 0; v < n_values; v++) {
        for (int64_t c = 0; c < cols; c++) {
            double sum = at_or_zero(before, v * cols + c), terms = fabs(sum);
            int64_t n = 0;
            for (int64_t r = 0; r < rows; r++) {
                if (ids[r] != v) continue;
                sum += dy[r * cols + c];
                terms += fabs(dy[r * cols + c]);
                n++;
            }
            dtable.value[v * cols + c] = sum;
            if (arith) dtable.bound[v * cols + c] = (double)n * arith->eps * terms;
        }
    }
}

/* ---- norm --------------------------------------------------------------------------------- */

typedef struct row_moments {
    double mean, mean_bound;          /* bound (C + 1) eps mean|x| */
    double spread, spread_bound;      /* variance about the mean, or mean square */
    double rstd, rstd_relative_bound; /* half of the relative error of spread + eps, and 3 eps */
} row_moments;

/* The variance's error: each difference has eps |x - mean| and the mean's own error; to first order
 * the latter cancels in the sum of squares, but a second-order term remains. */
static row_moments moments_of(double unit, yk_norm_kind kind, const double *x, int64_t cols,
                              double eps)
{
    row_moments r = {0};
    double n = (double)cols, abs_sum = 0, deviation = 0;
    for (int64_t c = 0; c < cols; c++) {
        r.mean += x[c] / n;
        abs_sum += fabs(x[c]);
    }
    if (kind == YK_NORM_RMS)
        r.mean = 0;
    else
        r.mean_bound = (n + 1) * unit * abs_sum / n;
    for (int64_t c = 0; c < cols; c++) {
        r.spread += (x[c] - r.mean) * (x[c] - r.mean) / n;
        deviation += fabs(x[c] - r.mean) / n;
    }
    r.spread_bound = (n + 4) * unit * r.spread + 2 * r.mean_bound * unit * (n + 4) * deviation +
                     r.mean_bound * r.mean_bound;
    r.rstd = 1 / sqrt(r.spread + eps);
    r.rstd_relative_bound = 0.5 * r.spread_bound / (r.spread + eps) + 3 * unit;
    return r;
}

void oracle_norm_forward(const oracle_arith *arith, yk_norm_kind kind, oracle_out y,
                         oracle_out mean, oracle_out rstd, const double *x, const double *weight,
                         const double *bias, int64_t rows, int64_t cols, double eps)
{
    double unit = arith ? arith->eps : 0;
    for (int64_t r = 0; r < rows; r++) {
        row_moments row = moments_of(unit, kind, x + r * cols, cols, eps);
        if (mean.value) mean.value[r] = row.mean;
        rstd.value[r] = row.rstd;
        if (arith && mean.value) mean.bound[r] = row.mean_bound;
        if (arith) rstd.bound[r] = row.rstd_relative_bound * row.rstd;
        for (int64_t c = 0; c < cols; c++) {
            double d = x[r * cols + c] - row.mean, b = at_or_zero(bias, c);
            double scaled = d * row.rstd * weight[c];
            y.value[r * cols + c] = scaled + b;
            if (!arith) continue;
            y.bound[r * cols + c] =
                fabs(weight[c]) * row.rstd * row.mean_bound * (1 + row.rstd_relative_bound) +
                fabs(scaled) * (row.rstd_relative_bound + 4 * unit) + unit * (fabs(b));
        }
    }
}

/* The means over a row of g = dy weight and of g xhat, with their bounds; xhat may be made as
 * (x - mean) rstd or as x rstd - mean rstd, whose rounding is 3 eps of `xhat_terms`. */
typedef struct row_gradient {
    double mean_g, mean_g_bound, mean_gx, mean_gx_bound;
} row_gradient;

static double xhat_of(const oracle_norm_gradient_in *in, int64_t r, int64_t c, double *terms)
{
    double x = in->x[r * in->cols + c], mean = at_or_zero(in->mean, r);
    *terms = (fabs(x) + fabs(mean)) * in->rstd[r];
    return (x - mean) * in->rstd[r];
}

static row_gradient row_gradient_of(double unit, const oracle_norm_gradient_in *in, int64_t r)
{
    row_gradient out = {0};
    double n = (double)in->cols, terms;
    for (int64_t c = 0; c < in->cols; c++) {
        double g = in->dy[r * in->cols + c] * in->weight[c], xhat = xhat_of(in, r, c, &terms);
        if (in->kind == YK_NORM_LAYER) {
            out.mean_g += g / n;
            out.mean_g_bound += (n + 2) * unit * fabs(g) / n;
        }
        out.mean_gx += g * xhat / n;
        out.mean_gx_bound += (n + 6) * unit * fabs(g) * terms / n;
    }
    return out;
}

static void norm_backward_row(const oracle_arith *arith, oracle_out dx,
                              const oracle_norm_gradient_in *in, int64_t r)
{
    double unit = arith ? arith->eps : 0, rstd = in->rstd[r], terms;
    row_gradient row = row_gradient_of(unit, in, r);
    for (int64_t c = 0; c < in->cols; c++) {
        int64_t i = r * in->cols + c;
        double g = in->dy[i] * in->weight[c], xhat = xhat_of(in, r, c, &terms);
        double add = at_or_zero(in->add, i);
        dx.value[i] = add + rstd * (g - row.mean_g - xhat * row.mean_gx);
        if (!arith) continue;
        double size = fabs(g) + fabs(row.mean_g) + terms * fabs(row.mean_gx);
        dx.bound[i] = rstd * (row.mean_g_bound + terms * row.mean_gx_bound + 8 * unit * size) +
                      unit * fabs(add);
    }
}

void oracle_norm_backward(const oracle_arith *arith, oracle_out dx, oracle_out dweight,
                          oracle_out dbias, const oracle_norm_gradient_in *in)
{
    for (int64_t r = 0; r < in->rows; r++) norm_backward_row(arith, dx, in, r);
    double n = (double)in->rows, terms;
    for (int64_t c = 0; c < in->cols; c++) {
        double dw = at_or_zero(in->dweight_before, c), dw_terms = fabs(dw);
        double db = at_or_zero(in->dbias_before, c), db_terms = fabs(db);
        for (int64_t r = 0; r < in->rows; r++) {
            double dy = in->dy[r * in->cols + c];
            dw += dy * xhat_of(in, r, c, &terms);
            dw_terms += fabs(dy) * terms;
            db += dy;
            db_terms += fabs(dy);
        }
        dweight.value[c] = dw;
        if (arith) dweight.bound[c] = (n + 5) * arith->eps * dw_terms;
        if (!dbias.value) continue;
        dbias.value[c] = db;
        if (arith) dbias.bound[c] = n * arith->eps * db_terms;
    }
}

/* ---- rotary positions --------------------------------------------------------------------- */

void oracle_rope(const oracle_arith *arith, oracle_out out, const double *qkv, const double *cos,
                 const double *sin, const int32_t *positions, int64_t rows, int64_t heads,
                 int64_t kv_heads, int64_t head_size, bool inverse)
{
    int64_t half = head_size / 2, width = (heads + 2 * kv_heads) * head_size;
    for (int64_t i = 0; i < rows * width; i++) {
        int64_t r = i / width, head = i % width / head_size, d = i % head_size;
        out.value[i] = qkv[i];
        if (arith) out.bound[i] = 0;
        if (head >= heads + kv_heads) continue; /* a value head */
        double c = cos[positions[r] * half + d % half];
        double s = sin[positions[r] * half + d % half] * (inverse ? -1 : 1);
        double other = d < half ? -qkv[i + half] : qkv[i - half];
        out.value[i] = qkv[i] * c + other * s;
        if (arith) out.bound[i] = 2 * arith->eps * (fabs(qkv[i] * c) + fabs(other * s));
    }
}
