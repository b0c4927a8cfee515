/* engine/plan_trial.c - a candidate of the search: all is chosen but recomputation and rows of logits.
 *
 * Every plan is of a whole step: nothing here estimates. What makes it quick is to stop when what is left can
 * no longer be of use (plan_strength.c), or has become slower twice.
 */
#include <math.h>

#include "engine/plan_parts.h"
#include "runtime/base/arith.h"

/* Micro-batches differ by as much without their size being the reason. */
#define UNEVEN 0.002

/* Of a step that makes nothing again, whatever memory it takes. */
static yk_status look_bare(const yk_plan_target *target, yk_plan_trial *t, const yk_config *config,
                           bool *fits_out, yk_plan *plan_out)
{
    yk_config c = *config;
    yk_plan plan;
    yk_plan_set_strength(&c, target->shape, 0);
    YK_TRY(yk_plan_try(target, &c, &plan));
    *fits_out = yk_plan_fits(&plan);
    yk_status status = yk_plan_find_ease(target, &plan, &t->ease_s);
    t->bare_s = plan.step_s - t->ease_s;
    if (status == YK_OK && *fits_out)
        *plan_out = plan;
    else
        yk_plan_fini(&plan);
    return status;
}

yk_status yk_plan_bare_step_s(const yk_plan_target *target, const yk_config *config,
                              double *seconds_out)
{
    yk_plan_trial t = {0};
    yk_config c = *config;
    yk_plan plan;
    bool fits;
    yk_plan_take_most_head(target, &c);
    YK_TRY(look_bare(target, &t, &c, &fits, &plan));
    if (fits) yk_plan_fini(&plan);
    *seconds_out = t.bare_s;
    return YK_OK;
}

/* The most rows of logits, where recomputation is open. */
static yk_status plan_first(const yk_plan_target *target, yk_plan_trial *t, const yk_config *config,
                            bool *fits_out, yk_plan *plan_out)
{
    YK_TRY(look_bare(target, t, config, fits_out, plan_out));
    if (t->least_s > 0) t->limit_s = t->bar_s * fmax(1, t->bare_s / t->least_s) * (1 + UNEVEN);
    if (*fits_out || t->bare_s >= t->bar_s) return YK_OK;
    yk_plan_aim aim = {.above = 0, .guess = t->strength, .bar_s = t->limit_s + t->ease_s};
    yk_status status = yk_plan_find_strength(target, config, &aim, fits_out, plan_out);
    t->strength = aim.guess;
    t->ends = !*fits_out;
    return status;
}

/* Fewer rows, which must make less again to be faster than `best`, if there is one. */
static yk_status plan_fewer(const yk_plan_target *target, yk_plan_trial *t, const yk_config *config,
                            const yk_plan *best, bool *fits_out, yk_plan *plan_out)
{
    yk_plan_aim aim = {.above = -1, .guess = t->strength, .bar_s = t->limit_s};
    if (best) {
        double gained_s =
            yk_plan_head_price(target, &best->config) - yk_plan_head_price(target, config);
        aim.guess = yk_plan_strength_of(&best->config, target->shape) - 1;
        aim.bar_s = fmin(t->bar_s, best->step_s + gained_s);
    }
    aim.bar_s += t->ease_s;
    YK_TRY(yk_plan_find_strength(target, config, &aim, fits_out, plan_out));
    if (!*fits_out || plan_out->step_s < aim.bar_s) return YK_OK;
    yk_plan_fini(plan_out);
    *fits_out = false;
    return YK_OK;
}

/* Plan it, when recomputation alone may be open; not the first rows of logits, but better than `best`. */
static yk_status plan_one(const yk_plan_target *target, yk_plan_trial *t, const yk_config *config,
                          bool first, const yk_plan *best, bool *fits_out, yk_plan *plan_out)
{
    yk_plan plan = {0};
    bool fits, open = config->memory.recompute == YK_RECOMPUTE_AUTO;
    if (!open) {
        YK_TRY(yk_plan_try(target, config, &plan));
        fits = yk_plan_fits(&plan);
        if (!fits) yk_plan_fini(&plan);
    } else if (first) {
        YK_TRY(plan_first(target, t, config, &fits, &plan));
    } else {
        YK_TRY(plan_fewer(target, t, config, best, &fits, &plan));
    }
    *fits_out = fits;
    if (!fits) return YK_OK;
    bool of_use = !open || plan.step_s - t->ease_s < t->bar_s;
    yk_status status = of_use ? yk_plan_keep(target, &plan) : YK_OK;
    if (status == YK_OK)
        *plan_out = plan;
    else
        yk_plan_fini(&plan);
    return status;
}

/* Rows of logits are open, too: of what fits, the fastest. */
static yk_status plan_best_head(const yk_plan_target *target, yk_plan_trial *t,
                                const yk_config *config, bool *fits_out, yk_plan *plan_out)
{
    int64_t chunks[YK_PLAN_HEAD_CHUNKS];
    int n = yk_plan_head_chunks(target, config, chunks), slower = 0;
    yk_config c = *config;
    yk_plan best = {0}, plan;
    yk_status status = YK_OK;
    bool found = false, fits;
    for (int i = 0; i < n && slower < 2 && (i == 0 || t->bare_s < t->bar_s); i++) {
        c.memory.head_chunk = chunks[i];
        status = plan_one(target, t, &c, i == 0, found ? &best : NULL, &fits, &plan);
        if (status != YK_OK) break;
        bool faster =
            fits && (!found || plan.step_s + yk_plan_head_price(target, &plan.config) <
                                   best.step_s + yk_plan_head_price(target, &best.config));
        bool counts =
            found && best.step_s - t->ease_s < t->bar_s; /* others might have been faster */
        slower = faster ? 0 : slower + (counts ? 1 : 0);
        if (fits) yk_plan_fini(faster ? &best : &plan);
        if (faster) best = plan;
        found = found || fits;
    }
    if (status != YK_OK) yk_plan_fini(&best);
    YK_TRY(status);
    if (found) *plan_out = best;
    *fits_out = found;
    return YK_OK;
}

yk_status yk_plan_try_out(const yk_plan_target *target, const yk_config *config, yk_plan_trial *t,
                          bool *fits_out, yk_plan *plan_out)
{
    yk_plan plan;
    t->limit_s = t->bar_s;
    t->bare_s = t->ease_s = 0;
    t->ends = false;
    if (yk_plan_head_is_open(target, config))
        YK_TRY(plan_best_head(target, t, config, fits_out, &plan));
    else
        YK_TRY(plan_one(target, t, config, true, NULL, fits_out, &plan));
    if (!*fits_out) return YK_OK;
    t->ends = false;
    if (config->memory.recompute == YK_RECOMPUTE_AUTO)
        t->strength = yk_plan_strength_of(&plan.config, target->shape);
    *plan_out = plan;
    return YK_OK;
}

yk_status yk_plan_least_fits(const yk_plan_target *target, const yk_config *config, bool bare,
                             bool *fits_out)
{
    yk_config least = *config;
    yk_plan plan;
    yk_plan_take_least_head(target, &least);
    if (config->memory.recompute == YK_RECOMPUTE_AUTO)
        yk_plan_set_strength(&least, target->shape, bare ? 0 : yk_plan_strengths(target->shape));
    YK_TRY(yk_plan_try(target, &least, &plan));
    *fits_out = yk_plan_fits(&plan);
    yk_plan_fini(&plan);
    return YK_OK;
}
