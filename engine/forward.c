/* engine/forward.c - unit after unit: acquire its parameters, compute, release. */
#include "engine/forward.h"

yk_status yk_forward_all(yk_engine *e)
{
    int last = yk_model_n_units(e->model) - 1;
    for (int u = 0; u <= last; u++) {
        const yk_param_view *p;
        yk_watchdog_note(e->watchdog, YK_PHASE_EVALUATE, u);
        YK_TRY(yk_store_acquire(e->store, u, last, e->compute, &p));
        YK_TRY(yk_pass_forward(e->pass, u, p));
        YK_TRY(yk_store_release(e->store, u, e->compute));
    }
    return YK_OK;
}
