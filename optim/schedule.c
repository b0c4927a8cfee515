/* optim/schedule.c - warm-up, then one of four ways down. */
#include "optim/schedule.h"

#include <math.h>

#include "runtime/base/arith.h"

#define PI 3.141592653589793

yk_schedule yk_schedule_from_config(const yk_config *config)
{
    return (yk_schedule){
        .kind = config->schedule.kind,
        .peak = config->optim.lr,
        .steps = config->train.steps,
        .warmup = config->schedule.warmup,
        .decay = config->schedule.decay,
        .final = config->schedule.final,
    };
}

/* How far from the peak (0) to the end (1) step `step` of a fall from `first` to `last` is. */
static double progress(int64_t step, int64_t first, int64_t last)
{
    if (step <= first || last <= first) return 0.0;
    return (double)(step - first) / (double)(last - first);
}

static double between(const yk_schedule *s, double weight_of_final)
{
    return s->peak * (1.0 - weight_of_final * (1.0 - s->final));
}

double yk_schedule_rate(const yk_schedule *s, int64_t step)
{
    int64_t last = s->steps - 1;
    if (step < s->warmup) return s->peak * (double)(step + 1) / (double)s->warmup;
    switch (s->kind) {
    case YK_SCHEDULE_CONSTANT:
        return s->peak;
    case YK_SCHEDULE_COSINE: /* Loshchilov and Hutter 2017, eq. 5, without restarts */
        return between(s, (1.0 - cos(PI * progress(step, s->warmup, last))) / 2.0);
    case YK_SCHEDULE_LINEAR:
        return between(s, progress(step, s->warmup, last));
    case YK_SCHEDULE_WSD: {
        int64_t n_decay = llround(s->decay * (double)s->steps);
        int64_t peak_until = yk_max(last - n_decay, s->warmup - 1);
        return between(s, progress(step, peak_until, last));
    }
    }
    return s->peak;
}
