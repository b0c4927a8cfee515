/* engine/step.h - one training step, and what came of it. */
#ifndef YK_ENGINE_STEP_H
#define YK_ENGINE_STEP_H

#include "engine/feed.h"

/* Enqueue step `step`: forward and backward of every micro-batch, then the update, if the gradients
 * are finite. Returns once all is enqueued.                                              [stream]
 *
 * feed  gives the micro-batches
 * lr    the learning rate of this step
 */
yk_status yk_step_run(yk_engine *engine, yk_feed *feed, int64_t step, float lr);

/* Enqueue the forward and backward passes of a step's first micro-batch and, where there are more, of one
 * that adds to its gradients, both on `batch`, and the sums of squares: no update. What that leaves in
 * the store and the step's values means nothing to the next step.                        [stream] */
yk_status yk_step_rehearse(yk_engine *engine, const yk_batch *batch);

/* What a step came to, read by the host. */
typedef struct yk_step_result {
    double loss;      /* mean over the unmasked tokens; 0 when there are none */
    int64_t n_tokens; /* unmasked tokens */
    float grad_norm;  /* of the mean gradient, before clipping */
    float loss_scale; /* that the step's backward pass used */
    bool skipped;     /* a gradient was not finite: nothing was updated */
    int64_t skips_in_a_row, steps_skipped;
} yk_step_result;

/* Wait for step `step`, the last or the one before, and say what it came to.             [local] */
yk_status yk_step_wait(yk_engine *engine, int64_t step, yk_step_result *result_out);

#endif
