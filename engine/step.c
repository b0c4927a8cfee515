/* engine/step.c - a training step, top to bottom.
 *
 *   begin     zero the sums of the step, set its learning rate
 *   for each micro-batch:
 *     forward   unit 0 .. last: acquire its parameters, compute, release
 *     backward  unit last .. 0: acquire, recompute what was not kept, compute gradients, hand
 *               them in
 *   finish    sum of squares of all gradients -> skip or step, clip factor -> update every unit
 *
 * The host only enqueues. Whether the step is skipped is decided on the device from what lies in
 * yk_step_values; the host learns of it from a copy, a step later.
 */
#include "engine/step.h"

#include <math.h>

#include "engine/guard.h"
#include "runtime/device/recorder.h"

/* What the unit at the far end of a pass has in host memory comes bit by bit while the pass nears
 * it (the *_ahead() calls, which do nothing otherwise): parameters as soon as there is room for
 * them, gradients, and all that the embedding needs, over the second half of the way. */
static yk_status forward(yk_engine *e, const yk_batch *batch)
{
    int last = yk_model_n_units(e->model) - 1;
    for (int u = 0; u <= last; u++) {
        const yk_param_view *p;
        yk_watchdog_note(e->watchdog, YK_PHASE_FORWARD, u);
        yk_device_set_part(e->device, "forward", u);
        YK_TRY(yk_store_acquire(e->store, u, last, e->compute, &p));
        YK_TRY(yk_store_acquire_ahead(e->store, last, (double)u / last));
        YK_TRY(yk_store_grad_ahead(e->store, last, 2.0 * u / last - 1));
        YK_TRY(yk_pass_enter(e->pass, u, false));
        YK_TRY(yk_graphs_forward(e->graphs, batch, u, p));
        YK_TRY(yk_pass_leave(e->pass, u, false));
        YK_TRY(yk_store_release(e->store, u, e->compute));
    }
    return YK_OK;
}

/* `more`: another micro-batch follows, under the same parameters. */
static yk_status backward(yk_engine *e, const yk_batch *batch, bool more)
{
    int last = yk_model_n_units(e->model) - 1, lowest = 0; /* of the units that read parameters */
    while (!yk_model_backward_reads(e->model, lowest)) lowest++;
    for (int u = last; u >= 0; u--) {
        const yk_param_view *p = NULL;
        const yk_grad_view *g;
        yk_watchdog_note(e->watchdog, YK_PHASE_BACKWARD, u);
        yk_device_set_part(e->device, "backward", u);
        bool reads = yk_model_backward_reads(e->model, u);
        if (reads) YK_TRY(yk_store_acquire(e->store, u, lowest, e->compute, &p));
        YK_TRY(yk_store_grad(e->store, u, e->compute, &g));
        YK_TRY(yk_store_grad_ahead(e->store, 0, 1 - 2.0 * u / last));
        if (more) YK_TRY(yk_store_acquire_ahead(e->store, 0, 1 - 2.0 * u / last));
        YK_TRY(yk_pass_enter(e->pass, u, true));
        YK_TRY(yk_graphs_backward(e->graphs, batch, u, p, g));
        YK_TRY(yk_pass_leave(e->pass, u, true));
        if (e->bad) YK_TRY(yk_guard_look(e, u, g));
        YK_TRY(yk_store_grad_ready(e->store, u, e->compute));
        if (reads) YK_TRY(yk_store_release(e->store, u, e->compute));
    }
    return YK_OK;
}

static double tokens_in_step(const yk_engine *e)
{
    return (double)e->config->train.batch * (double)e->seq_len;
}

static yk_status micro_step(yk_engine *e, const yk_batch *batch, bool more)
{
    float loss_weight = (float)(1.0 / tokens_in_step(e));
    YK_TRY(yk_pass_begin(e->pass, YK_PASS_TRAIN, batch, loss_weight, NULL, NULL));
    YK_TRY(forward(e, batch));
    YK_TRY(backward(e, batch, more));
    yk_pass_end(e->pass);
    return YK_OK;
}

/* Skip or step, and by how much, is decided where the sums are: on the device. */
static yk_status decide(yk_engine *e)
{
    const yk_config *c = e->config;
    yk_watchdog_note(e->watchdog, YK_PHASE_REDUCE, -1);
    YK_TRY(yk_store_sum_squares(e->store, e->compute, e->values));
    return yk_step_finish(e->compute,
                          &(yk_step_finish_args){
                              .values = e->values,
                              .expected_tokens = tokens_in_step(e),
                              .clip = (float)c->optim.clip,
                              .beta1 = (float)c->optim.beta1,
                              .beta2 = (float)c->optim.beta2,
                              .dynamic_scale = e->compute_dtype == YK_F16,
                              .scale_floor = (float)c->precision.loss_scale.floor,
                              .scale_ceiling = (float)c->precision.loss_scale.ceiling,
                              .growth_interval = (int32_t)c->precision.loss_scale.growth_interval,
                          });
}

static yk_status update(yk_engine *e)
{
    const yk_config *c = e->config;
    yk_adamw_options adamw = {
        .beta1 = (float)c->optim.beta1,
        .beta2 = (float)c->optim.beta2,
        .eps = (float)c->optim.eps,
        .weight_decay = (float)c->optim.weight_decay,
    };
    yk_watchdog_note(e->watchdog, YK_PHASE_UPDATE, -1);
    return yk_store_update(e->store, e->compute, &adamw, e->values);
}

static yk_status finish(void *context)
{
    yk_engine *e = context;
    yk_device_set_part(e->device, "finish", -1);
    YK_TRY(decide(e));
    yk_device_set_part(e->device, "update", -1);
    return update(e);
}

/* With other ranks, or with state in host memory, more than the compute stream is at work. */
static bool finishes_alone(const yk_engine *e)
{
    return e->ranks.size == 1 && e->config->memory.offload == 0;
}

/* Copy the outcome to where the host can look a step later. */
static yk_status publish_result(yk_engine *e, int64_t step)
{
    YK_TRY(yk_copy(e->compute, &e->results[step % 2], e->values, sizeof(yk_step_values),
                   YK_COPY_DEVICE_TO_HOST));
    return yk_event_record(e->result_ready[step % 2], e->compute);
}

yk_status yk_step_run(yk_engine *e, yk_feed *feed, int64_t step, float lr)
{
    yk_watchdog_step(e->watchdog, step);
    YK_TRY(yk_step_begin(e->compute, &(yk_step_begin_args){.values = e->values, .lr = lr}));
    yk_store_begin(e->store, e->n_micro, e->values);
    for (int64_t m = 0; m < e->n_micro; m++) {
        yk_batch batch;
        yk_watchdog_note(e->watchdog, YK_PHASE_DATA, -1);
        YK_TRY(yk_feed_next(feed, &batch));
        YK_TRY(micro_step(e, &batch, m + 1 < e->n_micro));
    }
    YK_TRY(finishes_alone(e) ? yk_graphs_finish(e->graphs, finish, e) : finish(e));
    yk_device_set_part(e->device, "", -1);
    return publish_result(e, step);
}

yk_status yk_step_rehearse(yk_engine *e, const yk_batch *batch)
{
    int64_t n_micro = e->n_micro > 1 ? 2 : 1;
    YK_TRY(yk_step_begin(e->compute, &(yk_step_begin_args){.values = e->values}));
    yk_store_begin(e->store, n_micro, e->values);
    for (int64_t m = 0; m < n_micro; m++) YK_TRY(micro_step(e, batch, m + 1 < n_micro));
    yk_device_set_part(e->device, "", -1);
    return yk_store_sum_squares(e->store, e->compute, e->values);
}

yk_status yk_step_wait(yk_engine *e, int64_t step, yk_step_result *result_out)
{
    YK_TRY(yk_event_synchronize(e->result_ready[step % 2]));
    const yk_step_values *v = &e->results[step % 2];
    *result_out = (yk_step_result){
        .loss = v->n_tokens > 0 ? v->loss_sum / (double)v->n_tokens : 0.0,
        .n_tokens = v->n_tokens,
        .grad_norm = v->grad_norm,
        .loss_scale = v->loss_scale,
        .skipped = v->skip != 0,
        .skips_in_a_row = v->skips_in_a_row,
        .steps_skipped = v->steps_skipped,
    };
    return YK_OK;
}
