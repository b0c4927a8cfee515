/* engine/plan_strength.c - how much to make again in the backward pass, where memory.recompute is auto.
 *
 * A strength counts it in blocks: 0 makes nothing again, each number up to the last lets one block more make
 * more again. More of it takes less memory and more time, so that the least that fits is the fastest, and
 * is found by halving. It also ends the search early: what does not fit and already takes too long is followed
 * by nothing that fits and is faster.
 */
#include <math.h>

#include "engine/plan_parts.h"
#include "runtime/base/arith.h"

int64_t yk_plan_strengths(const yk_model_shape *shape)
{
    return shape->layers * YK_RECOMPUTE_BLOCK;
}

void yk_plan_set_strength(yk_config *config, const yk_model_shape *shape, int64_t strength)
{
    int64_t layers = shape->layers;
    config->memory.recompute = (yk_recompute)yk_div_up(strength, layers);
    int64_t blocks = strength - (yk_div_up(strength, layers) - 1) * layers;
    config->memory.recompute_blocks = strength == 0 || blocks == layers ? YK_AUTO : blocks;
}

int64_t yk_plan_strength_of(const yk_config *config, const yk_model_shape *shape)
{
    int64_t policy = config->memory.recompute, blocks = config->memory.recompute_blocks;
    if (policy == YK_RECOMPUTE_NONE || blocks == YK_AUTO) return policy * shape->layers;
    return (policy - 1) * shape->layers + blocks;
}

/* ---- halving ------------------------------------------------------------------------------ */

void yk_plan_hunt_begin(yk_plan_hunt *h, int64_t low, int64_t high, int64_t guess)
{
    *h = (yk_plan_hunt){.low = low, .high = high, .reach = 1};
    h->at = yk_max(yk_min(guess, high - 1), low + 1);
}

/* Away from the guess by 1, 2, 4, ... until the answer is another, then by halves. */
void yk_plan_hunt_answer(yk_plan_hunt *h, bool holds)
{
    *(holds ? &h->high : &h->low) = h->at;
    *(holds ? &h->went_down : &h->went_up) = true;
    int64_t reach = h->went_down && h->went_up ? h->high - h->low : h->reach;
    int64_t middle = h->low + (h->high - h->low) / 2;
    h->at = holds ? yk_max(h->high - reach, middle) : yk_min(h->low + reach, middle);
    h->reach *= 2;
}

/* Memory lessens evenly for the most part: the strength at which it would be little enough by the last two that
 * were tried, (x0, over0) and (x1, over1). */
typedef struct line {
    int64_t x0, x1;
    double over0, over1;
    int n;
} line;

/* Answer by the line, as often as it is likely to be of use. */
#define LINES 5

static void answer(yk_plan_hunt *h, line *l, const yk_plan *plan, bool fits)
{
    l->x0 = l->x1, l->over0 = l->over1;
    l->x1 = h->at, l->over1 = (double)(yk_plan_taken_bytes(plan) - plan->limit);
    yk_plan_hunt_answer(h, fits);
    double slope = (l->over1 - l->over0) / (double)(l->x1 - l->x0);
    if (++l->n < 2 || l->n > LINES || yk_plan_hunt_ends(h) || !(slope < 0)) return;
    double x = ceil((double)l->x1 - l->over1 / slope);
    h->at = (int64_t)fmax(fmin(x, (double)h->high - 1), (double)h->low + 1);
}

yk_status yk_plan_find_strength(const yk_plan_target *target, const yk_config *config,
                                yk_plan_aim *aim, bool *fits_out, yk_plan *plan_out)
{
    yk_config c = *config;
    yk_plan best = {0}, plan;
    yk_plan_hunt hunt;
    line memory = {.n = 0};
    bool found = false, late = false;
    yk_plan_hunt_begin(&hunt, aim->above, yk_plan_strengths(target->shape) + 1, aim->guess);
    while (!yk_plan_hunt_ends(&hunt) && !late) {
        yk_plan_set_strength(&c, target->shape, hunt.at);
        yk_status status = yk_plan_try(target, &c, &plan);
        if (status != YK_OK) {
            yk_plan_fini(&best);
            return status;
        }
        bool fits = yk_plan_fits(&plan);
        late = !fits && plan.step_s >= aim->bar_s;
        answer(&hunt, &memory, &plan, fits);
        yk_plan_fini(fits ? &best : &plan);
        if (fits) best = plan;
        found = found || fits;
    }
    *fits_out = found && !late;
    aim->guess = *fits_out ? hunt.high : hunt.low;
    if (*fits_out)
        *plan_out = best;
    else
        yk_plan_fini(&best);
    return YK_OK;
}
