/* tests/oracle/oracle_model.h - a whole decoder in fp64, put together from the operations of
 * oracle.h: loss, logits and gradients of a batch.
 *
 * Everything is kept and nothing is fused, so that each line is one formula of the model. Rotary
 * angles are plain; other scalings are tested against recorded values.
 */
#ifndef YK_TESTS_ORACLE_ORACLE_MODEL_H
#define YK_TESTS_ORACLE_ORACLE_MODEL_H

#include "models/model.h"

typedef struct oracle_model oracle_model;

/* A model of this description on one batch (host memory); both are borrowed. */
oracle_model *oracle_model_create(const yk_model *model, const yk_batch *batch);
void oracle_model_destroy(oracle_model *m);

/* The mean loss over the unmasked targets, from parameters `p`: (n_params) arrays in the shapes of
 * the model's table. */
double oracle_model_loss(oracle_model *m, double *const *p);

/* The same, and the gradient of that mean by every parameter into `g`, which is overwritten. */
double oracle_model_gradient(oracle_model *m, double *const *p, double *const *g);

/* Of the last call: logits (B,T,vocab_rows) and the loss of each target (B,T), 0 where masked. */
const double *oracle_model_logits(const oracle_model *m);
const double *oracle_model_losses(const oracle_model *m);

#endif
