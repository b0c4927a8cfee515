/* engine/evaluate.c - forward passes that keep nothing and add up losses. */
#include "engine/evaluate.h"

#include "engine/forward.h"

static yk_status evaluate_batch(yk_engine *e, const yk_batch *batch)
{
    YK_TRY(yk_pass_begin(e->pass, YK_PASS_EVALUATE, batch, 0.0f, NULL, NULL));
    YK_TRY(yk_forward_all(e));
    yk_pass_end(e->pass);
    return YK_OK;
}

yk_status yk_evaluate(yk_engine *e, yk_feed *feed, int64_t n_batches,
                      const yk_evaluate_watch *watch, double *loss_out, int64_t *n_tokens_out)
{
    YK_TRY(yk_step_begin(e->compute, &(yk_step_begin_args){.values = e->values}));
    for (int64_t i = 0; i < n_batches; i++) {
        yk_batch batch;
        if (watch) YK_TRY(watch->ask(watch->context));
        YK_TRY(yk_feed_next(feed, &batch));
        YK_TRY(evaluate_batch(e, &batch));
    }
    if (e->ranks.size > 1)
        YK_TRY(yk_comm_all_reduce_values(e->ranks.groups.all, e->values, e->compute));
    yk_step_values *v = e->evaluated;
    YK_TRY(yk_copy(e->compute, v, e->values, sizeof *v, YK_COPY_DEVICE_TO_HOST));
    YK_TRY(yk_stream_synchronize(e->compute));
    if (yk_device_get_kind(e->device) == YK_DEVICE_DRY) return YK_OK; /* nobody wrote there */
    *loss_out = v->n_tokens > 0 ? v->loss_sum / (double)v->n_tokens : 0.0;
    if (n_tokens_out) *n_tokens_out = v->n_tokens;
    return YK_OK;
}
