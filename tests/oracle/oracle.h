/* tests/oracle/oracle.h - every operation again, slowly, in fp64, with a bound on what a device may
 * differ by.
 *
 * Values.   Arrays of double that hold numbers of the stored type exactly; nothing is rounded on
 *           the way, so a value is right to about 1e-16 of its terms.
 * Bounds.   Where `arith` is given, each result comes with the largest error that arithmetic with
 *           unit roundoff arith->eps may have before the result is stored: the classical bounds of
 *           Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1, with the sums of
 *           absolute values at hand and first order only. A sum of n terms in any order has
 *           n * eps * (sum of |terms|). Storing adds oracle_stored_bound().
 * Not here. Speed, threads, checks of arguments.
 */
#ifndef YK_TESTS_ORACLE_ORACLE_H
#define YK_TESTS_ORACLE_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/device/ops.h"

/* ---- numbers ------------------------------------------------------------------------------ */

/* Half a unit in the last place of 1: 2^-24, 2^-8, 2^-11. */
double oracle_unit_roundoff(yk_dtype t);

/* The number of type t nearest to x, ties to even; by arithmetic on doubles alone, sharing nothing
 * with runtime/base/dtype.h. */
double oracle_round(yk_dtype t, double x);

/* Store x, which must be a number of type t (or inf or NaN), at `at`; and read it. */
void oracle_encode(yk_dtype t, double x, void *at);
double oracle_decode(yk_dtype t, const void *at);

/* What storing a number as type t adds to a bound: half a unit in the last place of the number, or
 * of the smallest normal number where it is subnormal. */
double oracle_stored_bound(yk_dtype t, double want, double bound);

/* ---- random numbers ------------------------------------------------------------------------- */

/* Philox4x32. */
void oracle_philox(int n_rounds, const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The sixteen bits that AdamW rounds each part of an element's state with. */
typedef struct oracle_draws {
    uint32_t master, m, v;
} oracle_draws;
oracle_draws oracle_adamw_draws(uint64_t key, int64_t step, int64_t index);

/* The bf16 neighbour of an fp32 number that sixteen bits choose. */
double oracle_choose_bf16(double x, uint32_t draw);

/* ---- results ------------------------------------------------------------------------------ */

/* How a device computes. */
typedef struct oracle_arith {
    double eps;     /* of one operation: 2^-24 for fp32 */
    double operand; /* rounding of operands made inside an operation (probabilities): 0 in fp32 */
    double factor;  /* rounding of both factors of a matrix product: 0 but in TF32 */
} oracle_arith;

/* A result; `bound` is written only where an oracle_arith is given. */
typedef struct oracle_out {
    double *value, *bound;
} oracle_out;

/* In all that follows `arith` may be NULL: values alone. `before` is what a gradient is added to,
 * NULL where it is overwritten. Shapes are those of ops.h. */

void oracle_embed_forward(const oracle_arith *arith, oracle_out y, const double *wte,
                          const double *wpe, const int32_t *tokens, const int32_t *positions,
                          int64_t rows, int64_t cols);

/* One table: dtable (n_values,C) from the rows that use it. */
void oracle_embed_backward(const oracle_arith *arith, oracle_out dtable, const double *before,
                           const double *dy, const int32_t *ids, int64_t rows, int64_t cols,
                           int64_t n_values);

void oracle_norm_forward(const oracle_arith *arith, yk_norm_kind kind, oracle_out y,
                         oracle_out mean, oracle_out rstd, const double *x, const double *weight,
                         const double *bias, int64_t rows, int64_t cols, double eps);

typedef struct oracle_norm_gradient_in {
    const double *dy, *add, *x, *weight, *mean, *rstd; /* add, and mean for RMS, may be NULL */
    const double *dweight_before, *dbias_before;
    int64_t rows, cols;
    yk_norm_kind kind;
} oracle_norm_gradient_in;
void oracle_norm_backward(const oracle_arith *arith, oracle_out dx, oracle_out dweight,
                          oracle_out dbias, const oracle_norm_gradient_in *in);

/* `z` is the product before GELU; with gelu, y is of z rounded to t. */
void oracle_linear_forward(const oracle_arith *arith, oracle_out y, oracle_out z, const double *x,
                           const double *w, const double *bias, const double *residual, int64_t m,
                           int64_t n, int64_t k, bool gelu, yk_dtype t);

void oracle_linear_backward_input(const oracle_arith *arith, oracle_out dx, const double *before,
                                  const double *dy, const double *w, const double *z, int64_t m,
                                  int64_t n, int64_t k);

/* dbias.value NULL: none. */
void oracle_linear_backward_weight(const oracle_arith *arith, oracle_out dw, oracle_out dbias,
                                   const double *dw_before, const double *dbias_before,
                                   const double *x, const double *dy, int64_t m, int64_t n,
                                   int64_t k);

void oracle_rope(const oracle_arith *arith, oracle_out out, const double *qkv, const double *cos,
                 const double *sin, const int32_t *positions, int64_t rows, int64_t heads,
                 int64_t kv_heads, int64_t head_size, bool inverse);

typedef struct oracle_attention {
    int64_t batch, seq_len, heads, kv_heads, head_size;
    double scale;
    const int32_t *doc_start; /* (B,T) or NULL */
} oracle_attention;
void oracle_attention_forward(const oracle_arith *arith, oracle_out y, oracle_out lse,
                              const double *qkv, const oracle_attention *shape);

/* The gradient as a function of y and lse as given. */
void oracle_attention_backward(const oracle_arith *arith, oracle_out dqkv, const double *dy,
                               const double *y, const double *lse, const double *qkv,
                               const oracle_attention *shape);

/* The caches hold rows 0 .. past-1 of earlier keys and values; those of qkv are taken from qkv. */
void oracle_attention_cached(const oracle_arith *arith, oracle_out y, const double *k_cache,
                             const double *v_cache, const double *qkv,
                             const oracle_attention *shape, int64_t past, int64_t capacity);

void oracle_gelu_forward(const oracle_arith *arith, oracle_out y, const double *z, int64_t n);
void oracle_swiglu_forward(const oracle_arith *arith, oracle_out y, const double *gate_up,
                           int64_t rows, int64_t cols);
void oracle_swiglu_backward(const oracle_arith *arith, oracle_out dgate_up, const double *dy,
                            const double *gate_up, int64_t rows, int64_t cols);

/* dlogits (R,stride) for a gradient of `factor` for each loss. dlogits.value NULL: losses alone. */
void oracle_cross_entropy(const oracle_arith *arith, oracle_out losses, oracle_out dlogits,
                          const double *logits, const int32_t *targets, int64_t rows, int64_t vocab,
                          int64_t stride, double factor);

/* What a step's values are after yk_step_finish(). */
void oracle_step_finish(yk_step_values *values, const yk_step_finish_args *args);

typedef struct oracle_adamw_in {
    const double *master, *m, *v, *grad;
    double grad_scale, lr, correction1, correction2;
    double beta1, beta2, eps, weight_decay;
    int64_t n;
} oracle_adamw_in;
void oracle_adamw(const oracle_arith *arith, oracle_out master, oracle_out m, oracle_out v,
                  const oracle_adamw_in *in);

#endif
