/* runtime/device/step_values.h - the values of one optimiser step that live in device memory.
 *
 * One such struct lies in device memory for a whole run. Operations read and write it by pointer,
 * so that a step is decided on the device and the host learns the outcome a step later, when it has
 * a copy. It is plain data, equal on host and device.
 */
#ifndef YK_RUNTIME_DEVICE_STEP_VALUES_H
#define YK_RUNTIME_DEVICE_STEP_VALUES_H

#include <stdint.h>

typedef struct yk_step_values {
    /* Sums of the step under way, set to zero by yk_step_begin(). */
    double loss_sum;    /* sum of the losses of unmasked tokens */
    double sum_squares; /* sum of squares of the gradients as stored, loss scale included */
    int64_t n_tokens;   /* unmasked tokens */
    int32_t non_finite; /* 1 when some gradient is infinite or NaN */

    /* Decided by yk_step_finish() and read by yk_adamw(). */
    int32_t skip;      /* 1: this step changes nothing */
    float grad_scale;  /* multiplies every stored gradient: unscales, averages and clips */
    float grad_norm;   /* norm of the mean gradient, before clipping; NaN or inf when non_finite */
    float correction1; /* 1 - beta1^adam_steps */
    float correction2; /* 1 - beta2^adam_steps */

    /* Set for each step by yk_step_begin(). */
    float lr;
    int32_t padding;

    /* Kept from step to step; part of a checkpoint. */
    float loss_scale;   /* the losses' gradient is multiplied by it in this step */
    int32_t good_steps; /* steps without overflow since the scale last changed */
    int32_t skips_in_a_row;
    int32_t padding2;
    int64_t adam_steps;    /* updates made: Adam's own count */
    int64_t steps_skipped; /* in all */
} yk_step_values;

#endif
