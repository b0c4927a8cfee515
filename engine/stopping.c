/* engine/stopping.c - whether a signal has asked any rank to stop.
 *
 * All ranks must stop after the same step, so they agree on it after each. The question goes out at the
 * end of one step and the answer is looked at at the end of the next: waiting for it would cost every step
 * what a message takes.
 */
#include "engine/signals.h"
#include "engine/trainer_parts.h"

static int64_t was_asked(yk_trainer *t)
{
    bool asked = yk_signals_stop_was_asked();
    if (asked) yk_watchdog_suspect(t->watchdog);
    return asked;
}

yk_status yk_trainer_ask_now(yk_trainer *t)
{
    int64_t asked = was_asked(t), any = asked;
    if (t->n_ranks > 1) YK_TRY(yk_world_max(t->world, asked, &any));
    t->stopping = t->stopping || any != 0;
    return YK_OK;
}

yk_status yk_trainer_hear(yk_trainer *t)
{
    int64_t any;
    if (!t->is_asking) return YK_OK;
    t->is_asking = false;
    YK_TRY(yk_world_max_end(t->world, &any));
    t->stopping = t->stopping || any != 0;
    return YK_OK;
}

yk_status yk_trainer_ask(yk_trainer *t)
{
    if (t->n_ranks == 1) return yk_trainer_ask_now(t);
    YK_TRY(yk_trainer_hear(t));
    YK_TRY(yk_world_max_begin(t->world, was_asked(t)));
    t->is_asking = true;
    return YK_OK;
}
