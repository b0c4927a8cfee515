/* engine/trainer.c - the loop of a run.
 *
 * Step after step; a step's outcome is read while the next one runs, and what happens between steps
 * (evaluating, sampling, saving) waits for it. The end is a last evaluation and the weights as a
 * Hugging Face directory. What comes before the first step is in start.c.
 */
#include "engine/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/evaluate.h"
#include "engine/guard.h"
#include "engine/libraries.h"
#include "engine/replicas.h"
#include "engine/run_folder.h"
#include "engine/step.h"
#include "engine/trainer_parts.h"
#include "engine/tuning.h"
#include "engine/write_text.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/device/tune.h"
#include "runtime/storage/file.h"

/* ---- training ----------------------------------------------------------------------------- */

/* An evaluation or a sample may take longer than whoever sent the signal waits. */
static yk_status watch_evaluation(void *context)
{
    yk_trainer *t = context;
    YK_TRY(yk_trainer_ask(t));
    return t->stopping ? YK_ESTOPPED : YK_OK;
}

/* The loss on all validation windows, or on as many as eval.batches says. */
static yk_status evaluate(yk_trainer *t, double *loss_out)
{
    int64_t windows = yk_dataset_n_windows(t->data, YK_SPLIT_VAL);
    int64_t batches = yk_div_up(windows, t->plan.micro_batch * t->n_ranks);
    if (t->config->eval.batches > 0) batches = yk_min(batches, t->config->eval.batches);
    yk_loader_options o = {
        .dataset = t->data,
        .split = YK_SPLIT_VAL,
        .batch = t->plan.micro_batch * t->n_ranks,
        .micro_batch = t->plan.micro_batch,
        .rank = t->rank,
        .world = t->n_ranks,
        .n_buffers = YK_LOADER_BUFFERS,
    };
    yk_loader *loader;
    yk_feed feed;
    YK_TRY(yk_loader_create(&o, t->engine->staging[YK_SPLIT_VAL], &loader));
    yk_status status = yk_feed_init(&feed, t->engine, loader);
    if (status == YK_OK) {
        yk_evaluate_watch watch = {watch_evaluation, t};
        status = yk_evaluate(t->engine, &feed, batches, &watch, loss_out, NULL);
        yk_feed_fini(&feed);
    }
    yk_loader_destroy(loader);
    return status;
}

static bool has_validation(const yk_trainer *t)
{
    return yk_dataset_n_windows(t->data, YK_SPLIT_VAL) > 0;
}

/* Evaluate, for the step's row. A signal leaves the row without; train() ends the run. */
static yk_status validate(yk_trainer *t, int64_t step, yk_metrics_row *row)
{
    yk_status status = evaluate(t, &row->val_loss);
    if (status == YK_ESTOPPED) return YK_OK;
    YK_TRY(status);
    row->has_val_loss = true;
    t->summary.has_val_loss = true;
    t->summary.val_loss = row->val_loss;
    yk_progress_break(&t->progress);
    if (yk_trainer_speaks(t))
        printf("step %" PRId64 "  validation loss %.4f\n", step + 1, row->val_loss);
    return YK_OK;
}

/* Is this the step after which something that happens every `every` steps happens? */
static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && (step + 1) % every == 0;
}

/* How long the watchdog leaves a rank to name the one that is missing, before collectives fail. */
#define DEADLINE_MARGIN_S 2.0

/* What follows takes as long as a step does, or it may take longer. */
static void set_deadline(yk_trainer *t, bool may_be_long)
{
    double timeout_s = t->config->comm.timeout;
    if (!t->world) return;
    yk_world_set_timeout(t->world, may_be_long ? fmax(timeout_s, YK_WORLD_TIMEOUT_S)
                                               : timeout_s + DEADLINE_MARGIN_S);
}

/* The others wait until rank 0 has written: a disk may be slow. */
static yk_status save(yk_trainer *t, int64_t step)
{
    set_deadline(t, true);
    yk_watchdog_note(t->watchdog, YK_PHASE_SAVE, -1);
    YK_TRY(yk_run_folder_save(t->config, t->engine, yk_trainer_speaks(t)));
    if (t->world) YK_TRY(yk_world_barrier(t->world));
    set_deadline(t, false);
    t->last_saved = step;
    return YK_OK;
}

/* Sample what the model writes. A signal ends a lone rank's sample; several finish theirs, since
 * they would have to ask equally often and their texts might end at different tokens. */
static yk_status sample(yk_trainer *t, int64_t step)
{
    yk_evaluate_watch watch = {watch_evaluation, t};
    yk_progress_break(&t->progress);
    if (yk_trainer_speaks(t)) printf("step %" PRId64 "  the model writes:\n", step + 1);
    yk_status status = yk_write_sample(t->engine, t->config, t->n_ranks == 1 ? &watch : NULL,
                                       yk_trainer_speaks(t) ? stdout : NULL);
    if (status != YK_ESTOPPED) return status;
    putchar('\n');
    return YK_OK;
}

/* Add what went between ranks since it was asked last, and how long this one waited for it. */
static void count_communication(yk_trainer *t, yk_metrics_row *row)
{
    if (t->n_ranks == 1) return;
    yk_comm_counts now = yk_ranks_counts(&t->engine->ranks);
    double exposed_s = yk_store_waited_s(t->engine->store);
    row->has_comm = true;
    row->comm_bytes += now.bytes_sent - t->sent.bytes_sent;
    row->comm_flushed += now.n_flushed - t->sent.n_flushed;
    row->comm_ms += 1e3 * (now.busy_s - t->sent.busy_s);
    row->comm_exposed_ms += 1e3 * (exposed_s - t->exposed_s);
    t->sent = now;
    t->exposed_s = exposed_s;
}

/* Let what the step publishes arrive, so that it counts as the step's. */
static yk_status finish_communication(yk_trainer *t, yk_metrics_row *row)
{
    if (t->n_ranks == 1) return YK_OK;
    YK_TRY(yk_stream_synchronize(t->engine->ranks.groups.gather));
    YK_TRY(yk_stream_synchronize(t->engine->ranks.groups.reduce));
    count_communication(t, row);
    return YK_OK;
}

/* Save, evaluate and sample, where the step calls for it; what must not be lost comes first. Not
 * part of the step's time, nor of its communication. */
static yk_status between_steps(yk_trainer *t, int64_t step, yk_metrics_row *row)
{
    const yk_config *c = t->config;
    bool last = step + 1 == c->train.steps;
    yk_metrics_row others = {.step = step};
    YK_TRY(finish_communication(t, row));
    if (last || is_due(step, c->checkpoint.every)) YK_TRY(save(t, step));
    if (has_validation(t) && (last || is_due(step, c->eval.every))) YK_TRY(validate(t, step, row));
    if (is_due(step, c->sample.every) && !t->stopping) YK_TRY(sample(t, step));
    return finish_communication(t, &others);
}

static void show_progress(yk_trainer *t, const yk_metrics_row *row)
{
    int64_t left = t->config->train.steps - row->step - 1;
    yk_progress_show(&t->progress,
                     &(yk_progress_row){.step = row->step,
                                        .loss = row->loss,
                                        .lr = row->lr,
                                        .grad_norm = row->grad_norm,
                                        .tokens_per_s = row->tokens_per_s,
                                        .left_s = (double)left * t->train_s / (double)t->n_read,
                                        .skipped = row->skipped});
}

/* The first parameter, in the order of the table, whose gradient is not finite; -1: none.
 *                                                                                   [collective] */
static yk_status find_bad_gradient(yk_trainer *t, int *param_out)
{
    enum { CHUNK = 1 << 14 };
    float values[CHUNK];
    yk_engine *e = t->engine;
    *param_out = -1;
    for (int p = 0; p < yk_model_n_params(e->model); p++) {
        int64_t count = yk_param_count(&yk_model_params(e->model)[p]);
        for (int64_t i = 0; i < count; i += CHUNK) {
            int64_t n = yk_min(count - i, CHUNK);
            YK_TRY(yk_store_read(e->store, YK_STORE_GRAD, p, i, n, values, e->compute));
            for (int64_t j = 0; j < n; j++) {
                if (isfinite(values[j])) continue;
                *param_out = p;
                return YK_OK;
            }
        }
    }
    return YK_OK;
}

/* Make one more step, in which each rank looks at its own gradients. Where there is no data for it,
 * or nothing is wrong this time, only the sum is known. */
static yk_status find_bad_rank(yk_trainer *t, int64_t step, yk_bad_gradient *bad_out)
{
    yk_bad_gradient bad = {-1, -1, t->rank};
    int64_t ahead = yk_device_get_kind(t->device) == YK_DEVICE_CUDA ? 1 : 0;
    *bad_out = bad;
    if (step + 1 + ahead >= t->config->train.steps) return YK_OK;
    set_deadline(t, true);
    t->engine->bad = &bad;
    yk_status status = yk_step_run(t->engine, &t->feed, step + 1 + ahead, 0);
    t->engine->bad = NULL;
    if (status == YK_OK) status = yk_guard_agree(t->world, &bad);
    if (status == YK_OK) *bad_out = bad;
    return status;
}

/* End a run whose gradients are not finite step after step; every rank finds the same. */
static yk_status guard(yk_trainer *t, int64_t step, const yk_step_result *result)
{
    int param;
    char where[96] = "";
    yk_bad_gradient bad;
    if (result->skips_in_a_row < t->config->guard.max_skips || !result->skipped) return YK_OK;
    YK_TRY(find_bad_gradient(t, &param));
    YK_TRY(find_bad_rank(t, step, &bad));
    if (!yk_trainer_speaks(t)) return YK_EDIVERGED;
    if (bad.unit >= 0) param = bad.param;
    if (bad.unit >= 0 && t->world)
        snprintf(where, sizeof where, " on rank %d on %s", bad.rank,
                 yk_world_host(t->world, bad.rank));
    return yk_fail(
        YK_EDIVERGED, "training",
        "gradients were not finite in %" PRId64 " steps in a row, up to step %" PRId64
        ", first in %s%s; lower optim.lr%s",
        result->skips_in_a_row, step,
        param < 0 ? "no parameter" : yk_model_params(t->engine->model)[param].name, where,
        t->config->precision.compute == YK_F32 ? ", or give schedule.warmup more steps"
                                               : ", or raise precision with precision.compute");
}

/* How much of the device the step used, and how it is. */
static void add_device(yk_trainer *t, double took_s, yk_metrics_row *row)
{
    yk_nvml_state gpu;
    row->mfu = t->sheet_rate > 0 ? t->model_flops / took_s / t->sheet_rate : 0;
    row->mfu_product = t->product_rate > 0 ? t->model_flops / took_s / t->product_rate : 0;
    row->has_gpu = yk_gpu_watch_read(t->gpu, &gpu);
    if (!row->has_gpu) return;
    row->gpu_power_w = gpu.power_w;
    row->gpu_temperature_c = gpu.temperature_c;
    row->gpu_clock_mhz = gpu.sm_clock_mhz;
    row->pcie_rx_rate = gpu.pcie_rx_rate;
    row->pcie_tx_rate = gpu.pcie_tx_rate;
}

/* What was timed before the first step or within it, if anything was. */
static void print_tuning(const yk_trainer *t)
{
    const yk_tune_sum sum = yk_device_tune_sum(t->device);
    if (sum.n > 0)
        printf("tuned     %d kernels in %.1f s; they take %.1f %% less than the first choices\n",
               sum.n, sum.seconds, 100 * (1 - sum.taken_ms / sum.first_ms));
}

/* Once, after the first step: libraries have loaded what it needs. */
static void add_start(yk_trainer *t, yk_metrics_row *row)
{
    int64_t counted = t->plan.library_bytes;
    row->start_s = yk_clock_age_s();
    if (yk_device_get_kind(t->device) != YK_DEVICE_CUDA) return;
    if (yk_trainer_speaks(t)) yk_progress_break(&t->progress);
    yk_libraries_review(t->device, &t->plan);
    row->device_bytes = yk_plan_device_bytes(&t->plan);
    if (!yk_trainer_speaks(t)) return;
    print_tuning(t);
    printf("started   %.2f s to the end of the first step", row->start_s);
    if (t->plan.held_bytes > 0)
        printf("; libraries take %.0f MiB, %.0f counted", (double)t->plan.held_bytes / 0x1p20,
               (double)counted / 0x1p20);
    putchar('\n');
}

/* Wait for a step's outcome, count it, show it and give it a row. */
static yk_status read_step(yk_trainer *t, int64_t step, yk_step_result *result_out,
                           yk_metrics_row *row_out)
{
    yk_step_result result;
    YK_TRY(yk_step_wait(t->engine, step, &result));
    double took_s = yk_clock_s() - t->begin_s;
    t->begin_s += took_s;
    t->n_read = step + 1;
    t->train_s += took_s;
    t->tokens += t->plan.tokens;
    t->recent[step % YK_LOSS_WINDOW] = result.loss;
    t->summary.steps_skipped = result.steps_skipped;
    *row_out = (yk_metrics_row){
        .step = step,
        .loss = result.loss,
        .lr = yk_schedule_rate(&t->schedule, step),
        .grad_norm = result.grad_norm,
        .loss_scale = result.loss_scale,
        .skipped = result.skipped,
        .tokens = t->tokens,
        .tokens_per_s = (double)t->plan.tokens / took_s,
        .step_ms = 1e3 * took_s,
        .data_wait_ms = 1e3 * (t->feed.wait_s - t->wait_s),
        .device_bytes = yk_plan_device_bytes(&t->plan),
    };
    t->wait_s = t->feed.wait_s;
    add_device(t, took_s, row_out);
    if (!t->started) add_start(t, row_out);
    t->started = true;
    count_communication(t, row_out);
    *result_out = result;
    if (!yk_trainer_speaks(t)) return YK_OK;
    show_progress(t, row_out);
    if (result.n_tokens == 0)
        yk_warn("data", "every target of step %" PRId64 " is masked; it trains nothing", step);
    return YK_OK;
}

/* Does something happen after this step that needs its outcome? */
static bool is_stop(const yk_trainer *t, int64_t step)
{
    const yk_config *c = t->config;
    return step + 1 == c->train.steps || is_due(step, c->eval.every) ||
           is_due(step, c->sample.every) || is_due(step, c->checkpoint.every);
}

/* Read outcomes up to step `last` and write their lines; `last` may be a step where something
 * happens. */
static yk_status catch_up(yk_trainer *t, int64_t last)
{
    while (t->n_read <= last) {
        yk_step_result result;
        yk_metrics_row row;
        int64_t step = t->n_read;
        YK_TRY(read_step(t, step, &result, &row));
        yk_status verdict = guard(t, step, &result);
        if (verdict == YK_OK && is_stop(t, step)) {
            YK_TRY(between_steps(t, step, &row));
            t->begin_s = yk_clock_s();
        }
        if (yk_trainer_speaks(t)) YK_TRY(yk_metrics_write(t->metrics, &row));
        YK_TRY(verdict);
    }
    return YK_OK;
}

static yk_status stop_early(yk_trainer *t, int64_t step)
{
    yk_progress_break(&t->progress);
    if (t->last_saved != step) YK_TRY(save(t, step));
    if (yk_trainer_speaks(t))
        printf("stopped by a signal after step %" PRId64
               "; the weights are saved in %s/model; to go "
               "on from them: the same with model.init: %s and another run.dir\n",
               step + 1, t->config->run.dir, t->config->run.dir);
    return YK_ESTOPPED;
}

/* Spans of one step that a trace has room for. */
#define TRACE_SPANS (1 << 17)

static yk_status open_trace(yk_trainer *t)
{
    if (t->trace) return YK_OK;
    char *path = yk_path_join(t->config->run.dir, "trace.json");
    if (!path) return yk_fail(YK_ENOMEM, "trace.json", "no memory for a path");
    yk_status status = yk_recorder_create(t->device, TRACE_SPANS, &t->recorder);
    if (status == YK_OK) status = yk_trace_open(path, &t->trace);
    free(path);
    return status;
}

/* A step as rank 0's streams did it. What came before is waited for, so that it begins on its
 * own. */
static yk_status run_traced(yk_trainer *t, int64_t step, float lr)
{
    char title[32];
    YK_TRY(open_trace(t));
    YK_TRY(yk_stream_synchronize(t->engine->compute));
    yk_recorder_start(t->recorder);
    YK_TRY(yk_step_run(t->engine, &t->feed, step, lr));
    YK_TRY(yk_recorder_stop(t->recorder));
    snprintf(title, sizeof title, "step %" PRId64, step);
    return yk_trace_add(t->trace, t->rank, title, t->recorder);
}

static yk_status enqueue_step(yk_trainer *t, int64_t step)
{
    float lr = (float)yk_schedule_rate(&t->schedule, step);
    bool traced = yk_trainer_speaks(t) && yk_config_has_step(&t->config->trace.steps, step);
    return traced ? run_traced(t, step, lr) : yk_step_run(t->engine, &t->feed, step, lr);
}

/* A step; the watchdog is told how long this rank computed. On a GPU the host does not know. */
static yk_status run_step(yk_trainer *t, int64_t step)
{
    bool waits = yk_device_get_kind(t->device) == YK_DEVICE_CPU;
    double begin_s = yk_clock_s(), waited_s = yk_store_waited_s(t->engine->store);
    YK_TRY(enqueue_step(t, step));
    waited_s = yk_store_waited_s(t->engine->store) - waited_s;
    yk_watchdog_computed(t->watchdog, step, waits ? yk_clock_s() - begin_s - waited_s : 0);
    yk_watchdog_note(t->watchdog, YK_PHASE_END, -1);
    return YK_OK;
}

/* What is chosen by timing, before the first step; what was sent for it counts for no step. */
static yk_status tune(yk_trainer *t)
{
    YK_TRY(yk_tuning_settle(t->world, t->engine));
    t->sent = yk_ranks_counts(&t->engine->ranks);
    t->exposed_s = yk_store_waited_s(t->engine->store);
    return YK_OK;
}

static yk_status train(yk_trainer *t)
{
    /* A GPU works on a step while the host enqueues the next; a CPU has done it on return. */
    int64_t ahead = yk_device_get_kind(t->device) == YK_DEVICE_CUDA ? 1 : 0;
    YK_TRY(tune(t));
    t->begin_s = yk_clock_s();
    for (int64_t step = 0; step < t->config->train.steps; step++) {
        YK_TRY(run_step(t, step));
        if (step == 0) set_deadline(t, false);
        if (t->world && is_due(step, t->config->debug.check_replicas))
            YK_TRY(yk_replicas_check(t->engine, t->world, step));
        if (step + 1 < t->config->train.steps) YK_TRY(yk_trainer_ask(t));
        YK_TRY(catch_up(t, is_stop(t, step) || t->stopping ? step : step - ahead));
        if (t->stopping) return stop_early(t, step);
    }
    return YK_OK;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void summarise(yk_trainer *t)
{
    int64_t n = yk_min(t->n_read, YK_LOSS_WINDOW);
    t->summary.steps = t->n_read;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += t->recent[i];
    t->summary.train_loss = n > 0 ? sum / (double)n : NAN;
    t->summary.tokens = t->tokens;
    t->summary.train_s = t->train_s;
    t->summary.tokens_per_s = t->train_s > 0 ? (double)t->tokens / t->train_s : 0;
}

static void fini(yk_trainer *t)
{
    (void)yk_trace_close(t->trace); /* a failure was reported */
    yk_recorder_destroy(t->recorder);
    yk_gpu_watch_stop(t->gpu);
    yk_metrics_close(t->metrics);
    if (t->feed.engine) yk_feed_fini(&t->feed);
    yk_loader_destroy(t->loader);
    yk_engine_destroy(t->engine);
    yk_plan_fini(&t->plan);
    yk_device_close(t->device);
    yk_dataset_close(t->data);
}

yk_status yk_train(const yk_config *config, const yk_model_shape *shape, yk_world *world,
                   yk_train_summary *summary_out)
{
    yk_trainer t = {.config = config, .shape = shape, .n_ranks = 1};
    if (world && yk_world_size(world) > 1) {
        t.world = world;
        t.rank = yk_world_rank(world);
        t.n_ranks = yk_world_size(world);
    }
    yk_status status = yk_trainer_start(&t);
    bool trains = status == YK_OK;
    if (trains) status = train(&t);
    bool all = status == YK_OK || status == YK_ESTOPPED || status == YK_EDIVERGED;
    yk_status heard = trains && all ? yk_trainer_hear(&t) : YK_OK;
    if (heard != YK_OK) status = heard, all = false;
    yk_watchdog_stop(t.watchdog, status, trains && !all);
    summarise(&t);
    if (status == YK_OK || status == YK_ESTOPPED) *summary_out = t.summary;
    fini(&t);
    return status;
}
