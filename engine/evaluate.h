/* engine/evaluate.h - the loss on the validation data. */
#ifndef YK_ENGINE_EVALUATE_H
#define YK_ENGINE_EVALUATE_H

#include "engine/feed.h"

/* Asked before each batch, on every rank before the same; what is not YK_OK ends the evaluation
 * and is its status. */
typedef struct yk_evaluate_watch {
    yk_status (*ask)(void *context);
    void *context;
} yk_evaluate_watch;

/* Mean loss, in nats, over the unmasked tokens of the next `n_batches` micro-batches of `feed`, of
 * every rank. Between steps only: the sums of the step are used. Blocks.             [collective]
 *
 * watch         NULL: nobody is asked
 * n_tokens_out  unmasked tokens; with none the loss is 0. May be NULL
 */
yk_status yk_evaluate(yk_engine *engine, yk_feed *feed, int64_t n_batches,
                      const yk_evaluate_watch *watch, double *loss_out, int64_t *n_tokens_out);

#endif
