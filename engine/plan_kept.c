/* engine/plan_kept.c - how many blocks keep their gathered parameters for the backward pass.
 *
 * Ranks that gather parameters need room for two blocks at a time. Memory that is left saves them
 * gathering the last blocks of the forward pass again, and lets them gather further ahead. Each block
 * takes the same, so two plans tell how many there is room for. It is done unless the clock says that it
 * is slower, for links that carry less hold up less than it knows of; and on GPUs, whose memory
 * nobody else wants: processors have theirs from the machine.
 */
#include <math.h>
#include <string.h>

#include "engine/plan_parts.h"
#include "runtime/base/arith.h"

/* The share of the limit that may be filled: what libraries take is an estimate. */
#define FILL 0.97

static bool gathers(const yk_plan_target *target, const yk_config *c)
{
    int from = c->memory.offload & YK_OFFLOAD_PARAMS ? 1 : 3;
    return yk_plan_target_ranks(target) > 1 && c->parallel.zero >= from;
}

static yk_status try_kept(const yk_plan_target *target, const yk_plan *plan, int64_t kept,
                          yk_plan *plan_out)
{
    yk_config c = plan->config;
    c.memory.kept_blocks = kept;
    return yk_plan_try(target, &c, plan_out);
}

/* All that can be of use. */
static int64_t most_kept(const yk_plan_target *target)
{
    return yk_max(target->shape->layers - 2, 0);
}

static int64_t find_room(const yk_plan *plan)
{
    return (int64_t)(FILL * (double)plan->limit) - yk_plan_device_bytes(plan);
}

/* Blocks that there is room for beside what `none` takes, when `one` keeps one. */
static int64_t count_room(const yk_plan_target *target, const yk_plan *none, const yk_plan *one)
{
    int64_t each = yk_plan_device_bytes(one) - yk_plan_device_bytes(none), room = find_room(none);
    if (each <= 0 || room < each) return 0;
    return yk_min(room / each, most_kept(target));
}

static bool may_keep(const yk_plan_target *target, const yk_config *c)
{
    return target->spec->kind == YK_DEVICE_CUDA && gathers(target, c);
}

bool yk_plan_may_keep_more(const yk_plan_target *target, const yk_config *config)
{
    return may_keep(target, config) && config->memory.kept_blocks < most_kept(target);
}

yk_status yk_plan_keep(const yk_plan_target *target, yk_plan *plan)
{
    yk_plan one, more;
    if (plan->config.memory.kept_blocks != YK_AUTO) return YK_OK;
    plan->config.memory.kept_blocks = 0;
    if (!may_keep(target, &plan->config) || find_room(plan) <= 0) return YK_OK;
    YK_TRY(try_kept(target, plan, 1, &one));
    int64_t kept = count_room(target, plan, &one);
    yk_plan_fini(&one);
    if (kept == 0) return YK_OK;
    YK_TRY(try_kept(target, plan, kept, &more));
    if (more.step_s <= plan->step_s && yk_plan_fits(&more)) {
        memcpy(more.why, plan->why, sizeof more.why);
        yk_plan_fini(plan);
        *plan = more;
    } else {
        yk_plan_fini(&more);
    }
    return YK_OK;
}

yk_status yk_plan_find_ease(const yk_plan_target *target, const yk_plan *plan, double *seconds_out)
{
    yk_plan all;
    *seconds_out = 0;
    if (plan->config.memory.kept_blocks != YK_AUTO || !may_keep(target, &plan->config))
        return YK_OK;
    YK_TRY(try_kept(target, plan, most_kept(target), &all));
    *seconds_out = fmax(plan->step_s - all.step_s, 0);
    yk_plan_fini(&all);
    return YK_OK;
}
