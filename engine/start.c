/* engine/start.c - a run up to its first step.
 *
 *   check       data and folder: what is wrong with the input shows here, before a file is written
 *   find_place  the rank's cores and device
 *   plan        whether the run fits there, and how
 *   prepare     memory, first weights
 *   open_folder the run's folder, unless a signal has come
 *
 * Each part runs on every rank, and what one rank finds wrong is the end for all.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bind.h"
#include "engine/carrier.h"
#include "engine/device_choice.h"
#include "engine/libraries.h"
#include "engine/run_folder.h"
#include "engine/speed.h"
#include "engine/trainer_parts.h"
#include "engine/weights.h"
#include "engine/write_text.h"
#include "runtime/storage/hash.h"

/* Windows of a part that are compared with those of other ranks. */
#define N_COMPARED 16

/* ---- checking ----------------------------------------------------------------------------- */

/* The input: the folder, the data. No rank waits for another here. */
static yk_status check(yk_trainer *t)
{
    const yk_config *c = t->config;
    YK_TRY(yk_run_folder_check(c));
    YK_TRY(yk_dataset_open(c, t->shape->vocab, &t->data));
    if (yk_dataset_n_windows(t->data, YK_SPLIT_TRAIN) == 0)
        return yk_fail(YK_EINVAL, "data.train",
                       "there is nothing to train on; give at least one file");
    return yk_dataset_check(t->data);
}

/* What a rank reads, in brief. */
typedef struct digest {
    int64_t n_tokens[2]; /* to train on, to validate on */
    uint64_t hash;       /* of a few windows of each */
} digest;

/* A window with an id outside of the vocabulary is not the first to be found here, and ends the run
 * where it is used. */
static yk_status digest_data(const yk_dataset *data, digest *digest_out)
{
    static const yk_split splits[2] = {YK_SPLIT_TRAIN, YK_SPLIT_VAL};
    int64_t t = yk_dataset_seq_len(data);
    int32_t *fields = calloc((size_t)(4 * t), sizeof *fields);
    if (!fields) return yk_fail(YK_ENOMEM, "data", "no memory for a sequence of %" PRId64, t);
    yk_row row = {fields, fields + t, fields + 2 * t, fields + 3 * t};
    digest d = {{0}, 0};
    for (int s = 0; s < 2; s++) {
        int64_t n = yk_dataset_n_windows(data, splits[s]);
        d.n_tokens[s] = yk_dataset_n_tokens(data, splits[s]);
        for (int i = 0; i < N_COMPARED && n > 0; i++) {
            yk_data_fault fault;
            (void)yk_dataset_fill(data, splits[s], i * (n - 1) / (N_COMPARED - 1), &row, &fault);
            d.hash = yk_hash64(fields, 2 * t * (int64_t)sizeof *fields, d.hash);
        }
    }
    free(fields);
    *digest_out = d;
    return YK_OK;
}

/* Ranks with other files under the same names would train on them without a word, or part where one
 * has no data to validate on. */
static yk_status compare_data(yk_trainer *t)
{
    if (t->n_ranks == 1) return YK_OK;
    digest mine = {{0}, 0};
    yk_status status = digest_data(t->data, &mine);
    digest first = mine;
    YK_TRY(yk_world_broadcast(t->world, &first, sizeof first, 0));
    YK_TRY(status);
    if (memcmp(mine.n_tokens, first.n_tokens, sizeof mine.n_tokens) != 0)
        return yk_fail(YK_EINVAL, "data",
                       "this rank has %" PRId64 " tokens to train on and %" PRId64
                       " to validate on, and rank 0 has %" PRId64 " and %" PRId64
                       "; give every rank the same files",
                       mine.n_tokens[0], mine.n_tokens[1], first.n_tokens[0], first.n_tokens[1]);
    if (mine.hash != first.hash)
        return yk_fail(YK_EINVAL, "data",
                       "this rank has as many tokens as rank 0, and other ones; give every rank "
                       "the same files");
    return YK_OK;
}

/* Where to run: the rank's cores and GPU. */
static yk_status find_place(yk_trainer *t)
{
    int gpu = 0, n_cores = 0;
    if (t->world)
        YK_TRY(yk_bind_rank(t->world, yk_config_wants_gpu(t->config),
                            t->config->launch.ranks_per_gpu, &gpu, &n_cores));
    return yk_device_open_chosen(t->config, gpu, n_cores, &t->device);
}

/* What the steps' utilisation is a part of. Before the run takes its memory, for a product takes
 * some too. */
static yk_status measure_speed(yk_trainer *t)
{
    const yk_config *c = t->config;
    yk_dtype dtype = c->precision.compute;
    YK_TRY(yk_speed_model_flops(c, t->shape, &t->plan.spec, t->plan.micro_batch, &t->model_flops));
    t->model_flops *= (double)t->plan.n_micro;
    t->sheet_rate = yk_speed_sheet(yk_device_get_spec(t->device), dtype, c->precision.tf32);
    if (yk_device_get_kind(t->device) != YK_DEVICE_CUDA) return YK_OK;
    YK_TRY(yk_gpu_watch_start(yk_device_get_spec(t->device)->bus_id, &t->gpu));
    return yk_speed_measure(t->device, dtype, &t->product_rate);
}

/* What rank 0 chooses for its device: another one's rates could make another choice. */
static yk_status choose_as_first(yk_trainer *t, const yk_device_spec *spec,
                                 const yk_topology *network, yk_config *chosen)
{
    yk_device_spec first = *spec;
    yk_plan plan;
    if (!t->world) return YK_OK;
    YK_TRY(yk_world_broadcast(t->world, &first, sizeof first, 0));
    if (memcmp(&first, spec, sizeof first) == 0) return YK_OK;
    yk_topology topology = yk_ranks_topology(&first, t->n_ranks, network->node_size);
    yk_ranks_set_network(&topology, yk_ranks_network_gbit(network), network->network);
    YK_TRY(yk_plan_make(chosen, t->shape, &first, &topology, 0, &plan));
    *chosen = plan.config;
    yk_plan_fini(&plan);
    return YK_OK;
}

/* The same choices where what libraries hold now leaves them room, else others. NCCL holds its part already
 * where it has raced. */
static yk_status count_held(yk_trainer *t, const yk_config *chosen, yk_device_spec *spec,
                            const yk_topology *topology)
{
    bool raced = t->race.n_backends > 0 && !t->race.remembered;
    int64_t nccl = raced ? 0 : t->plan.library_bytes - spec->context_bytes, missing;
    YK_TRY(yk_libraries_missing(t->world, &t->plan, yk_libraries_held(t->device, 0),
                                YK_LIBRARIES_LATER + nccl, &missing));
    if (yk_plan_device_bytes(&t->plan) + missing <= t->plan.limit) {
        if (missing > 0) yk_plan_count_libraries(&t->plan, missing);
        return YK_OK;
    }
    yk_plan plan;
    spec->context_bytes += missing;
    YK_TRY(yk_plan_make(chosen, t->shape, spec, topology, 0, &plan));
    yk_plan_fini(&t->plan);
    t->plan = plan;
    return YK_OK;
}

/* Whether the run fits there, and how it is done. Ranks with unlike memory take what the smallest
 * has, so that all choose the same. */
static yk_status plan(yk_trainer *t)
{
    yk_device_spec spec;
    yk_host_room room;
    int ranks_here = t->world ? yk_world_local_size(t->world) : 1;
    YK_TRY(yk_device_describe_part(t->config, t->world, t->device, &spec, &room));
    if (t->world && !yk_world_is_regular(t->world))
        return yk_fail(YK_EINVAL, "ranks",
                       "nodes have different numbers of ranks; start as many on each");
    yk_topology topology = yk_ranks_topology(&spec, t->n_ranks, ranks_here);
    YK_TRY(yk_ranks_find_network(t->config, t->world, &topology));
    yk_config chosen = *t->config;
    YK_TRY(yk_carrier_choose(t->config, t->shape, t->world, t->device, &chosen, &t->race));
    YK_TRY(choose_as_first(t, &spec, &topology, &chosen));
    YK_TRY(yk_plan_make(&chosen, t->shape, &spec, t->world ? &topology : NULL, 0, &t->plan));
    YK_TRY(count_held(t, &chosen, &spec, t->world ? &topology : NULL));
    t->config = &t->plan.config;
    yk_device_set_attention_room(t->device, t->plan.spec.attention_bytes);
    YK_TRY(yk_plan_check_host(&t->plan, ranks_here, &room));
    return measure_speed(t);
}

/* ---- preparing ---------------------------------------------------------------------------- */

static yk_status load_weights(yk_trainer *t)
{
    const char *dir = t->config->model.init;
    if (!dir[0]) return yk_engine_init_weights(t->engine, t->config->train.seed);
    return yk_weights_load(t->engine->store, t->engine->model, dir, t->engine->compute);
}

static yk_status create_loader(yk_trainer *t)
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
    YK_TRY(yk_feed_init(&t->feed, t->engine, t->loader));
    yk_feed_expect(&t->feed, t->config->train.steps * t->plan.n_micro);
    return YK_OK;
}

static yk_status create_engine(yk_trainer *t)
{
    return yk_engine_create(&(yk_engine_options){.device = t->device,
                                                 .config = t->config,
                                                 .shape = t->shape,
                                                 .train = true,
                                                 .sizes = &t->plan.sizes,
                                                 .micro_batch = t->plan.micro_batch,
                                                 .world = t->world,
                                                 .race = &t->race},
                            &t->engine);
}

/* From now on ranks are watched. Starting may take longer than what comes.          [collective] */
static yk_status watch(yk_trainer *t)
{
    double timeout_s = t->config->comm.timeout;
    if (!t->world) return YK_OK;
    yk_world_set_timeout(t->world, fmax(timeout_s, YK_WORLD_TIMEOUT_S));
    return yk_watchdog_start(t->world, timeout_s, &t->watchdog);
}

/* What was planned with between nodes. */
static void print_network(const yk_plan *plan)
{
    const char *source = plan->topology.network;
    if (plan->node_size >= plan->ranks) return;
    printf("network   %.4g Gbit/s between nodes (%s)\n", yk_ranks_network_gbit(&plan->topology),
           source[0] ? source : "assumed; comm.network sets it");
}

static void print_start(const yk_trainer *t)
{
    const yk_config *c = t->config;
    char preset[256];
    printf("model     %" PRId64 " parameters, %" PRId64 " layers of %" PRId64 "\n",
           yk_model_shape_count(t->shape), t->shape->layers, t->shape->width);
    if (yk_model_shape_tell_preset(t->shape, c, preset, sizeof preset))
        printf("preset    %s\n", preset);
    printf("data      %" PRId64 " tokens to train on, %" PRId64 " to validate on\n",
           yk_dataset_n_tokens(t->data, YK_SPLIT_TRAIN),
           yk_dataset_n_tokens(t->data, YK_SPLIT_VAL));
    printf("step      %" PRId64 " tokens: %" PRId64 " x %" PRId64 " sequences of %" PRId64 "\n",
           t->plan.tokens, t->n_ranks * t->plan.n_micro, t->plan.micro_batch, c->train.seq_len);
    if (t->n_ranks > 1)
        printf("ranks     %d on %d node%s, ZeRO stage %" PRId64 "\n", t->n_ranks,
               yk_world_n_nodes(t->world), yk_world_n_nodes(t->world) == 1 ? "" : "s",
               c->parallel.zero);
    print_network(&t->plan);
    if (t->race.n_backends > 0) yk_carrier_print(&t->race, stdout);
    printf("memory    %.1f MiB on %s\n", (double)yk_plan_device_bytes(&t->plan) / 0x1p20,
           t->plan.spec.name);
    if (t->plan.held_bytes > 0)
        printf("libraries %.1f MiB of it: %.1f are held, the rest is left for what they load by "
               "and by\n",
               (double)t->plan.library_bytes / 0x1p20, (double)t->plan.held_bytes / 0x1p20);
    if (t->plan.why[0]) printf("chosen    %s\n", t->plan.why);
    printf("folder    %s\n", c->run.dir);
    fflush(stdout);
}

/* Is what will be taken of a GPU free there? */
static yk_status check_room(yk_trainer *t)
{
    return yk_libraries_check_room(t->device, &t->plan);
}

/* All libraries are open. */
static yk_status count_libraries(yk_trainer *t)
{
    return yk_libraries_count(t->world, t->device, &t->plan);
}

static yk_status prepare(yk_trainer *t)
{
    YK_TRY(create_engine(t));
    t->engine->watchdog = t->watchdog;
    YK_TRY(load_weights(t));
    YK_TRY(create_loader(t));
    YK_TRY(yk_write_sample_check(t->engine, t->config));
    t->schedule = yk_schedule_from_config(t->config);
    t->last_saved = -1;
    yk_progress_init(&t->progress, t->config->train.steps, t->config->log.every);
    return YK_OK;
}

/* Starting takes a while. No folder is left that would be in the way of the next run. */
static yk_status stop_early(yk_trainer *t)
{
    YK_TRY(yk_trainer_ask_now(t));
    if (!t->stopping) return YK_OK;
    if (yk_trainer_speaks(t)) printf("stopped by a signal before the first step\n");
    return YK_ESTOPPED;
}

static yk_status open_folder(yk_trainer *t)
{
    if (!yk_trainer_speaks(t)) return YK_OK;
    YK_TRY(yk_run_folder_create(t->config, &t->metrics));
    print_start(t);
    return YK_OK;
}

/* ---- ranks -------------------------------------------------------------------------------- */

/* Run a part of the start on every rank and let what one found wrong be the end for all, said
 * once. */
static yk_status together(yk_trainer *t, yk_status (*part)(yk_trainer *t))
{
    if (!t->world) return part(t);
    yk_world_hold(t->world);
    return yk_world_agree(t->world, part(t));
}

yk_status yk_trainer_start(yk_trainer *t)
{
    YK_TRY(watch(t));
    YK_TRY(together(t, check));
    YK_TRY(together(t, compare_data));
    YK_TRY(together(t, find_place));
    YK_TRY(together(t, plan));
    YK_TRY(together(t, check_room));
    YK_TRY(together(t, prepare));
    YK_TRY(together(t, count_libraries));
    YK_TRY(stop_early(t));
    return together(t, open_folder);
}
