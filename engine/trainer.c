/* engine/trainer.c - the loop of a run.
 *
 *   check     data, model and plan: whatever is wrong with the input shows here, before a file is written
 *   prepare   the run's folder, the device's memory, the first weights
 *   train     step after step; a step's outcome is read while the next one runs
 *   end       a last evaluation, the weights as a Hugging Face directory
 */
#include "engine/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "engine/bind.h"
#include "engine/evaluate.h"
#include "engine/plan.h"
#include "engine/run_folder.h"
#include "engine/step.h"
#include "engine/weights.h"
#include "engine/write_text.h"
#include "models/hf.h"
#include "optim/schedule.h"
#include "runtime/base/arith.h"
#include "runtime/observe/metrics.h"
#include "runtime/observe/progress.h"

/* Steps whose mean is reported as the training loss. */
#define LOSS_WINDOW 50

typedef struct trainer {
    const yk_config *config;
    yk_world *world; /* the other ranks; NULL: none */
    int rank, n_ranks;
    const yk_model_shape *shape;
    yk_dataset *data;
    yk_device *device;
    yk_plan plan;
    yk_engine *engine;
    yk_loader *loader;
    yk_feed feed;
    yk_schedule schedule;
    yk_metrics *metrics;
    yk_progress progress;

    double train_s;      /* of steps */
    double begin_s;      /* when the step whose outcome is read next began, as far as is known */
    double wait_s;       /* for data, before it */
    double exposed_s;    /* waited for other ranks, before it */
    yk_comm_counts sent; /* before it */
    int64_t n_read;      /* steps whose outcome was read */
    int64_t tokens;
    double recent[LOSS_WINDOW]; /* a ring of the last losses */
    int64_t last_saved;         /* step of the last saving, or -1 */
    yk_train_summary summary;
} trainer;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- signals ------------------------------------------------------------------------------ */

static sigset_t stop_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

void yk_trainer_block_signals(void)
{
    sigset_t set = stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Has one come since the last look? After the first, the next one ends the process at once. */
static bool stop_was_asked(void)
{
    sigset_t set = stop_signals();
    const struct timespec at_once = {0, 0};
    if (sigtimedwait(&set, NULL, &at_once) < 0) return false;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return true;
}

/* ---- device ------------------------------------------------------------------------------- */

bool yk_trainer_wants_gpu(const yk_config *config)
{
    if (config->device == YK_DEVICE_CHOICE_AUTO) return yk_device_count_cuda() > 0;
    return config->device == YK_DEVICE_CHOICE_CUDA;
}

yk_status yk_trainer_open_device(const yk_config *config, int gpu, yk_device **device_out)
{
    if (yk_trainer_wants_gpu(config)) return yk_device_open_cuda(gpu, device_out);
    return yk_device_open_cpu((int)config->cpu.threads, device_out);
}

/* A device's own description, with rates from a known device of its kind where it has none. */
static yk_status describe(const yk_device *device, yk_device_spec *spec_out)
{
    yk_device_spec spec, known;
    spec = *yk_device_get_spec(device);
    YK_TRY(yk_device_spec_find(spec.kind == YK_DEVICE_CPU ? "cpu" : "4090d", &known));
    if (spec.memory_rate > 0) {
        *spec_out = spec;
        return YK_OK;
    }
    known.memory_bytes = spec.memory_bytes;
    snprintf(known.name, sizeof known.name, "%s", spec.name);
    *spec_out = known;
    return YK_OK;
}

yk_status yk_trainer_device_spec(const yk_config *config, yk_device_spec *spec_out)
{
    yk_device *device;
    YK_TRY(yk_trainer_open_device(config, 0, &device));
    yk_status status = describe(device, spec_out);
    yk_device_close(device);
    return status;
}

/* ---- ranks -------------------------------------------------------------------------------- */

/* Run a part of the start on every rank and let what one found wrong be the end for all, said once. */
static yk_status together(trainer *t, yk_status (*part)(trainer *t))
{
    if (!t->world) return part(t);
    yk_world_hold(t->world);
    return yk_world_agree(t->world, part(t));
}

/* Rank 0 speaks for all. */
static bool speaks(const trainer *t)
{
    return t->rank == 0;
}

static yk_topology topology_of(const trainer *t, const yk_device_spec *spec)
{
    return yk_ranks_topology(spec, t->n_ranks, yk_world_local_size(t->world));
}

/* ---- checking ----------------------------------------------------------------------------- */

/* The input: the folder, the data. No rank waits for another here. */
static yk_status check(trainer *t)
{
    const yk_config *c = t->config;
    YK_TRY(yk_run_folder_check(c));
    YK_TRY(yk_dataset_open(c, t->shape->vocab, &t->data));
    if (yk_dataset_n_windows(t->data, YK_SPLIT_TRAIN) == 0)
        return yk_fail(YK_EINVAL, "data.train",
                       "there is nothing to train on; give at least one file");
    return yk_dataset_check(t->data);
}

/* Where to run: the rank's cores and GPU, and whether the plan fits there. */
static yk_status find_place(trainer *t)
{
    int gpu = 0;
    yk_device_spec spec;
    if (t->world) YK_TRY(yk_bind_rank(t->world, yk_trainer_wants_gpu(t->config), &gpu));
    YK_TRY(yk_trainer_open_device(t->config, gpu, &t->device));
    YK_TRY(describe(t->device, &spec));
    if (!t->world) return yk_plan_make(t->config, t->shape, &spec, NULL, 0, &t->plan);
    if (!yk_world_is_regular(t->world))
        return yk_fail(YK_EINVAL, "ranks",
                       "nodes have different numbers of ranks; start as many on each");
    yk_topology topology = topology_of(t, &spec);
    return yk_plan_make(t->config, t->shape, &spec, &topology, 0, &t->plan);
}

/* ---- preparing ---------------------------------------------------------------------------- */

static yk_status load_weights(trainer *t)
{
    const char *dir = t->config->model.init;
    if (!dir[0]) return yk_engine_init_weights(t->engine, t->config->train.seed);
    return yk_weights_load(t->engine->store, t->engine->model, dir, t->engine->compute);
}

static yk_status create_loader(trainer *t)
{
    yk_loader_options o = {
        .dataset = t->data,
        .split = YK_SPLIT_TRAIN,
        .batch = t->config->train.batch,
        .micro_batch = t->plan.micro_batch,
        .rank = t->rank,
        .world = t->n_ranks,
        .seed = t->config->train.seed,
        .n_buffers = YK_LOADER_BUFFERS,
    };
    YK_CHECK(yk_loader_bytes(&o) <= YK_LOADER_BUFFERS * yk_engine_batch_bytes(t->engine));
    YK_TRY(yk_loader_create(&o, t->engine->staging[YK_SPLIT_TRAIN], &t->loader));
    return yk_feed_init(&t->feed, t->engine, t->loader);
}

static yk_status create_engine(trainer *t)
{
    return yk_engine_create(&(yk_engine_options){.device = t->device,
                                                 .config = t->config,
                                                 .shape = t->shape,
                                                 .train = true,
                                                 .sizes = &t->plan.sizes,
                                                 .micro_batch = t->plan.micro_batch,
                                                 .world = t->world},
                            &t->engine);
}

static void print_start(const trainer *t)
{
    const yk_config *c = t->config;
    printf("model     %" PRId64 " parameters, %" PRId64 " layers of %" PRId64 "\n",
           yk_model_shape_count(t->shape), t->shape->layers, t->shape->width);
    printf("data      %" PRId64 " tokens to train on, %" PRId64 " to validate on\n",
           yk_dataset_n_tokens(t->data, YK_SPLIT_TRAIN),
           yk_dataset_n_tokens(t->data, YK_SPLIT_VAL));
    printf("step      %" PRId64 " tokens: %" PRId64 " x %" PRId64 " sequences of %" PRId64 "\n",
           t->plan.tokens, t->n_ranks * t->plan.n_micro, t->plan.micro_batch, c->train.seq_len);
    if (t->n_ranks > 1)
        printf("ranks     %d on %d nodes, ZeRO stage %" PRId64 "\n", t->n_ranks,
               yk_world_n_nodes(t->world), c->parallel.zero);
    printf("memory    %.1f MiB on %s\n", (double)yk_plan_device_bytes(&t->plan) / 0x1p20,
           t->plan.spec.name);
    printf("folder    %s\n", c->run.dir);
    fflush(stdout);
}

static yk_status prepare(trainer *t)
{
    YK_TRY(create_engine(t));
    YK_TRY(load_weights(t));
    YK_TRY(create_loader(t));
    if (speaks(t)) YK_TRY(yk_run_folder_create(t->config, &t->metrics));
    t->schedule = yk_schedule_from_config(t->config);
    t->last_saved = -1;
    yk_progress_init(&t->progress, t->config->train.steps, t->config->log.every);
    if (speaks(t)) print_start(t);
    return YK_OK;
}

/* ---- training ----------------------------------------------------------------------------- */

/* The loss on all validation windows, or on as many as eval.batches says. */
static yk_status evaluate(trainer *t, double *loss_out)
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
        status = yk_evaluate(t->engine, &feed, batches, loss_out, NULL);
        yk_feed_fini(&feed);
    }
    yk_loader_destroy(loader);
    return status;
}

static bool has_validation(const trainer *t)
{
    return yk_dataset_n_windows(t->data, YK_SPLIT_VAL) > 0;
}

/* Is this the step after which something that happens every `every` steps happens? */
static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && (step + 1) % every == 0;
}

static yk_status save(trainer *t, int64_t step)
{
    YK_TRY(yk_run_folder_save(t->config, t->engine, speaks(t)));
    t->last_saved = step;
    return YK_OK;
}

/* Evaluate, sample and save, where the step calls for it. Not part of the step's time. */
static yk_status between_steps(trainer *t, int64_t step, yk_metrics_row *row)
{
    const yk_config *c = t->config;
    bool last = step + 1 == c->train.steps;
    if (has_validation(t) && (last || is_due(step, c->eval.every))) {
        YK_TRY(evaluate(t, &row->val_loss));
        row->has_val_loss = true;
        t->summary.has_val_loss = true;
        t->summary.val_loss = row->val_loss;
        yk_progress_break(&t->progress);
        if (speaks(t)) printf("step %" PRId64 "  validation loss %.4f\n", step + 1, row->val_loss);
    }
    if (is_due(step, c->sample.every)) {
        yk_progress_break(&t->progress);
        YK_TRY(yk_write_sample(t->engine, c, speaks(t) ? stdout : NULL));
    }
    if (last || is_due(step, c->checkpoint.every)) YK_TRY(save(t, step));
    return YK_OK;
}

static void show_progress(trainer *t, const yk_metrics_row *row)
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

/* What went between ranks in the step, and how long this one waited for it. */
static void count_communication(trainer *t, yk_metrics_row *row)
{
    if (t->n_ranks == 1) return;
    yk_comm_counts now = yk_ranks_counts(&t->engine->ranks);
    double exposed_s = yk_store_waited_s(t->engine->store);
    row->has_comm = true;
    row->comm_bytes = now.bytes_sent - t->sent.bytes_sent;
    row->comm_flushed = now.n_flushed - t->sent.n_flushed;
    row->comm_ms = 1e3 * (now.busy_s - t->sent.busy_s);
    row->comm_exposed_ms = 1e3 * (exposed_s - t->exposed_s);
    t->sent = now;
    t->exposed_s = exposed_s;
}

/* End a run whose gradients are not finite step after step; every rank finds the same. */
static yk_status guard(const trainer *t, int64_t step, const yk_step_result *result)
{
    if (result->skips_in_a_row < t->config->guard.max_skips || !result->skipped) return YK_OK;
    if (!speaks(t)) return YK_EDIVERGED;
    return yk_fail(YK_EDIVERGED, "training",
                   "gradients were not finite in %" PRId64 " steps in a row, up to step %" PRId64
                   "; lower optim.lr, or raise precision with precision.compute",
                   result->skips_in_a_row, step);
}

/* Wait for a step's outcome, count it, show it and give it a row. */
static yk_status read_step(trainer *t, int64_t step, yk_metrics_row *row_out)
{
    yk_step_result result;
    YK_TRY(yk_step_wait(t->engine, step, &result));
    double took_s = now_s() - t->begin_s;
    t->begin_s += took_s;
    t->n_read = step + 1;
    t->train_s += took_s;
    t->tokens += t->plan.tokens;
    t->recent[step % LOSS_WINDOW] = result.loss;
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
    count_communication(t, row_out);
    if (!speaks(t)) return guard(t, step, &result);
    show_progress(t, row_out);
    if (result.n_tokens == 0)
        yk_warn("data", "every target of step %" PRId64 " is masked; it trains nothing", step);
    return guard(t, step, &result);
}

/* Does something happen after this step that needs its outcome? */
static bool is_stop(const trainer *t, int64_t step)
{
    const yk_config *c = t->config;
    return step + 1 == c->train.steps || is_due(step, c->eval.every) ||
           is_due(step, c->sample.every) || is_due(step, c->checkpoint.every);
}

/* Read outcomes up to step `last` and write their lines; `last` may be a step where something happens. */
static yk_status catch_up(trainer *t, int64_t last)
{
    while (t->n_read <= last) {
        yk_metrics_row row;
        int64_t step = t->n_read;
        YK_TRY(read_step(t, step, &row));
        if (is_stop(t, step)) {
            YK_TRY(between_steps(t, step, &row));
            t->begin_s = now_s();
        }
        if (speaks(t)) YK_TRY(yk_metrics_write(t->metrics, &row));
    }
    return YK_OK;
}

static yk_status stop_early(trainer *t, int64_t step)
{
    yk_progress_break(&t->progress);
    if (t->last_saved != step) YK_TRY(save(t, step));
    if (speaks(t))
        printf("stopped by a signal after step %" PRId64 "; the weights are saved in %s/model\n",
               step + 1, t->config->run.dir);
    return YK_ESTOPPED;
}

/* Has a signal come to any rank? All ask at the same step, and stop at the same. */
static yk_status ask_to_stop(const trainer *t, bool *stop_out)
{
    int64_t asked = stop_was_asked(), any = asked;
    if (t->n_ranks > 1) YK_TRY(yk_world_max(t->world, asked, &any));
    *stop_out = any != 0;
    return YK_OK;
}

static yk_status train(trainer *t)
{
    /* A GPU works on a step while the host enqueues the next; on the CPU a step is done on return. */
    int64_t ahead = yk_device_get_kind(t->device) == YK_DEVICE_CUDA ? 1 : 0;
    t->begin_s = now_s();
    for (int64_t step = 0; step < t->config->train.steps; step++) {
        float lr = (float)yk_schedule_rate(&t->schedule, step);
        YK_TRY(yk_step_run(t->engine, &t->feed, step, lr));
        bool last = step + 1 == t->config->train.steps, stop = false;
        if (!last) YK_TRY(ask_to_stop(t, &stop));
        YK_TRY(catch_up(t, is_stop(t, step) || stop ? step : step - ahead));
        if (stop) return stop_early(t, step);
    }
    return YK_OK;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void summarise(trainer *t)
{
    int64_t n = yk_min(t->n_read, LOSS_WINDOW);
    t->summary.steps = t->n_read;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += t->recent[i];
    t->summary.train_loss = n > 0 ? sum / (double)n : NAN;
    t->summary.tokens = t->tokens;
    t->summary.train_s = t->train_s;
    t->summary.tokens_per_s = t->train_s > 0 ? (double)t->tokens / t->train_s : 0;
}

static void fini(trainer *t)
{
    yk_metrics_close(t->metrics);
    if (t->feed.copied) yk_feed_fini(&t->feed);
    yk_loader_destroy(t->loader);
    yk_engine_destroy(t->engine);
    yk_plan_fini(&t->plan);
    yk_device_close(t->device);
    yk_dataset_close(t->data);
}

yk_status yk_train(const yk_config *config, const yk_model_shape *shape, yk_world *world,
                   yk_train_summary *summary_out)
{
    trainer t = {.config = config, .shape = shape, .n_ranks = 1};
    if (world && yk_world_size(world) > 1) {
        t.world = world;
        t.rank = yk_world_rank(world);
        t.n_ranks = yk_world_size(world);
    }
    yk_status status = together(&t, check);
    if (status == YK_OK) status = together(&t, find_place);
    if (status == YK_OK) status = together(&t, prepare);
    if (status == YK_OK) status = train(&t);
    summarise(&t);
    if (status == YK_OK || status == YK_ESTOPPED) *summary_out = t.summary;
    fini(&t);
    return status;
}
