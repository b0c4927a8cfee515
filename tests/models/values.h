/* tests/models/values.h - parameters and batches for tests of whole models, as plain numbers.
 *
 * Values are a function of a seed. Weights are far larger than fresh ones, norms are not 1 and
 * biases not 0, so that every term of every formula shows in the result.
 */
#ifndef YK_TESTS_MODELS_VALUES_H
#define YK_TESTS_MODELS_VALUES_H

#include "models/model.h"

/* A pseudo-random number: uniform in 0 <= u < 1, and standard normal. */
double values_uniform(uint64_t seed, uint64_t index);
double values_normal(uint64_t seed, uint64_t index);

/* Elements of parameter `param` before the padding rows, all of them where there are none. */
int64_t values_in_use(const yk_model *model, int param);

/* (n_params) arrays in the shapes of the table, each number one that fp16 and bf16 hold exactly;
 * padding rows are zero. values_free() releases them. */
double **values_of_params(const yk_model *model, uint64_t seed);

/* The same, all zero: for gradients. */
double **values_zero(const yk_model *model);

void values_free(const yk_model *model, double **values);

/* A batch in host memory that owns its arrays. */
typedef struct values_batch {
    yk_batch batch;
    int32_t *tokens, *targets, *positions, *doc_start; /* (B,T) */
} values_batch;

/* Random tokens; targets that follow them, every seventh masked; positions from 0 in each row.
 * doc_start is NULL in `batch`. */
values_batch values_batch_create(const yk_model *model, int64_t batch, int64_t seq_len,
                                 uint64_t seed);

/* Begin a new document at column `t` of every row: positions restart and doc_start is set. */
void values_batch_split(values_batch *b, int64_t t);

void values_batch_destroy(values_batch *b);

/* ||a - b|| / ||b||; ||a|| where b is zero. */
double values_distance(const double *a, const double *b, int64_t n);

#endif
