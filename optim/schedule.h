/* optim/schedule.h - the learning rate as a function of the step.
 *
 * Model.    A pure function: no state, so resuming needs nothing. Steps count from 0 to steps - 1
 *           and a skipped step counts too.
 * Warm-up.  Step s < warmup has (s + 1) / warmup of the peak; step `warmup` has the peak.
 * Decay.    Cosine and linear fall from the peak at step `warmup` to final * peak at the last step.
 *           WSD stays at the peak and falls linearly over the last round(decay * steps) steps, but
 *           not before the warm-up has ended; its last step has final * peak. Where a phase has no
 *           steps it is left out: with warmup == steps there is only warm-up, with one step only
 *           the peak.
 */
#ifndef YK_OPTIM_SCHEDULE_H
#define YK_OPTIM_SCHEDULE_H

#include "runtime/base/config.h"

typedef struct yk_schedule {
    yk_schedule_kind kind;
    double peak;    /* the learning rate at its highest */
    int64_t steps;  /* of the whole run, > 0 */
    int64_t warmup; /* 0 .. steps */
    double decay;   /* WSD: the part of the steps that decay, 0 .. 1 */
    double final;   /* the last rate as a fraction of the peak, 0 .. 1 */
} yk_schedule;

/* The schedule that a configuration describes. */
yk_schedule yk_schedule_from_config(const yk_config *config);

/* The learning rate of step 0 <= step < steps.                                          [local] */
double yk_schedule_rate(const yk_schedule *schedule, int64_t step);

#endif
