/* engine/plan.c - the plan: one step of the real engine on a device that counts. */
#include "engine/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/evaluate.h"
#include "engine/generate.h"
#include "engine/step.h"
#include "runtime/base/arith.h"

/* Room for the names of a ledger; there are some forty kinds of piece. */
#define MAX_ITEMS 128

static void add_item(yk_plan *plan, const char *arena, yk_arena_item item)
{
    for (int i = 0; i < plan->n_items; i++) {
        yk_plan_item *have = &plan->items[i];
        if (strcmp(have->arena, arena) != 0 || strcmp(have->name, item.name) != 0) continue;
        have->bytes += item.bytes;
        have->n_pieces++;
        return;
    }
    YK_CHECK(plan->n_items < MAX_ITEMS);
    yk_plan_item *fresh = &plan->items[plan->n_items++];
    *fresh = (yk_plan_item){.arena = arena, .bytes = item.bytes, .n_pieces = 1};
    snprintf(fresh->name, sizeof fresh->name, "%s", item.name);
}

static void add_items(yk_plan *plan, const char *name, const yk_arena *arena)
{
    for (int i = 0; i < yk_arena_n_peak_items(arena); i++)
        add_item(plan, name, yk_arena_get_peak_item(arena, i));
}

static void take_sizes(yk_plan *plan, const yk_engine *e, int64_t red_zone)
{
    plan->sizes = yk_engine_high_water(e);
    if (plan->sizes.workspace > 0) plan->sizes.workspace += red_zone;
    add_items(plan, "persistent", e->persistent);
    add_items(plan, "activation", e->activation);
    if (plan->sizes.workspace > 0)
        add_item(plan, "workspace", (yk_arena_item){"largest operation", plan->sizes.workspace});
    add_items(plan, "pinned", e->pinned);
    if (plan->sizes.shared > 0)
        add_item(plan, "pinned", (yk_arena_item){"shared with ranks", plan->sizes.shared});
}

/* A step, and what happens between steps, on a dry engine. */
static yk_status rehearse(yk_plan *plan, yk_engine *e)
{
    yk_feed feed;
    YK_TRY(yk_feed_init(&feed, e, NULL));
    yk_device_counts before = yk_device_get_counts(e->device);
    double begin = yk_stream_now(e->compute);
    yk_status status = yk_step_run(e, &feed, 0, 0.0f);
    yk_device_counts after = yk_device_get_counts(e->device);
    plan->step_s = yk_stream_now(e->compute) - begin;
    plan->flops = after.flops - before.flops;
    plan->bytes = after.bytes - before.bytes;
    plan->bytes_sent = yk_ranks_counts(&e->ranks).bytes_sent;

    double loss;
    if (status == YK_OK) status = yk_evaluate(e, &feed, 1, NULL, &loss, NULL);
    if (status == YK_OK && e->config->sample.every > 0) status = yk_generate_rehearse(e);
    yk_feed_fini(&feed);
    return status;
}

/* Plan with this micro-batch, whatever it takes. */
static yk_status plan_with(const yk_config *config, const yk_model_shape *shape,
                           const yk_device_spec *spec, const yk_topology *topology,
                           int64_t micro_batch, int64_t red_zone, yk_plan *plan_out)
{
    yk_device *dry = NULL;
    yk_engine *e = NULL;
    yk_plan plan = {.spec = *spec, .micro_batch = micro_batch, .ranks = 1, .node_size = 1};
    if (topology) {
        plan.ranks = topology->ranks;
        plan.node_size = topology->node_size;
    }
    plan.items = calloc(MAX_ITEMS, sizeof *plan.items);
    if (!plan.items) return yk_fail(YK_ENOMEM, "plan", "no memory");
    yk_status status = yk_device_open_dry(spec, &dry);
    if (status != YK_OK) goto fail;
    yk_device_set_tf32(dry, config->precision.tf32);
    status = yk_engine_create(&(yk_engine_options){.device = dry,
                                                   .config = config,
                                                   .shape = shape,
                                                   .train = true,
                                                   .micro_batch = micro_batch,
                                                   .topology = topology,
                                                   .red_zone = red_zone},
                              &e);
    if (status != YK_OK) goto fail;
    status = rehearse(&plan, e);
    if (status != YK_OK) goto fail;
    take_sizes(&plan, e, red_zone);
    plan.n_micro = e->n_micro;
    plan.tokens = config->train.batch * config->train.seq_len;
    yk_engine_destroy(e);
    yk_device_close(dry);
    *plan_out = plan;
    return YK_OK;
fail:
    yk_engine_destroy(e);
    yk_device_close(dry);
    yk_plan_fini(&plan);
    return status;
}

static bool fits(const yk_plan *plan)
{
    return yk_plan_device_bytes(plan) <= plan->limit;
}

/* The first of `config`'s ways to save memory that would fit, for the message of a refusal. */
static void say_what_would_fit(const yk_config *config, const yk_model_shape *shape,
                               const yk_topology *topology, const yk_plan *plan, char *text,
                               size_t room)
{
    yk_config smaller = *config;
    for (int policy = config->memory.recompute; policy <= YK_RECOMPUTE_BLOCK; policy++) {
        smaller.memory.recompute = (yk_recompute)policy;
        for (int64_t b = plan->micro_batch; b >= 1; b--) {
            yk_plan other;
            if (config->train.batch % (b * plan->ranks) != 0) continue;
            if (plan_with(&smaller, shape, &plan->spec, topology, b, 0, &other) != YK_OK) return;
            bool ok = yk_plan_device_bytes(&other) <= plan->limit;
            yk_plan_fini(&other);
            if (!ok) continue;
            static const char *const names[] = {"none", "cheap", "ffn", "qkv", "block"};
            snprintf(text, room,
                     "train.micro_batch: %" PRId64 " with memory.recompute: %s would fit", b,
                     names[policy]);
            return;
        }
    }
    snprintf(text, room, "no micro-batch fits; take a smaller model or a shorter train.seq_len");
}

static yk_status refuse(const yk_config *config, const yk_model_shape *shape,
                        const yk_topology *topology, const yk_plan *plan)
{
    char advice[160] = "";
    int64_t bytes = yk_plan_device_bytes(plan);
    bool large = bytes >= (int64_t)1 << 30;
    double unit = large ? 0x1p30 : 0x1p20;
    const char *name = large ? "GiB" : "MiB";
    say_what_would_fit(config, shape, topology, plan, advice, sizeof advice);
    return yk_fail(YK_ENOFIT, "memory",
                   "training takes %.2f %s (%.2f persistent, %.2f activations, %.2f workspace) and "
                   "%.2f %s may be used; %s",
                   (double)bytes / unit, name, (double)plan->sizes.persistent / unit,
                   (double)plan->sizes.activation / unit, (double)plan->sizes.workspace / unit,
                   (double)plan->limit / unit, name, advice);
}

static int64_t memory_limit(const yk_config *config, const yk_device_spec *spec)
{
    int64_t limit = config->memory.device_limit;
    return limit > 0 ? yk_min(limit, spec->memory_bytes) : spec->memory_bytes;
}

yk_status yk_plan_make(const yk_config *config, const yk_model_shape *shape,
                       const yk_device_spec *spec, const yk_topology *topology, int64_t red_zone,
                       yk_plan *plan_out)
{
    bool automatic = config->train.micro_batch == YK_AUTO;
    int64_t ranks = topology ? topology->ranks : 1;
    int64_t micro_batch = config->train.micro_batch;
    if (automatic) micro_batch = yk_max(config->train.batch / ranks, 1);
    for (;; micro_batch--) {
        bool divides = config->train.batch % (micro_batch * ranks) == 0;
        if (automatic && !divides && micro_batch > 1) continue;
        yk_plan plan;
        YK_TRY(plan_with(config, shape, spec, topology, micro_batch, red_zone, &plan));
        plan.limit = memory_limit(config, spec);
        if (fits(&plan)) {
            *plan_out = plan;
            return YK_OK;
        }
        bool last = !automatic || micro_batch == 1;
        yk_status status = last ? refuse(config, shape, topology, &plan) : YK_OK;
        yk_plan_fini(&plan);
        if (last) return status;
    }
}

/* An evaluation and a generation on a dry engine. */
static yk_status rehearse_inference(yk_engine *e)
{
    yk_feed feed;
    double loss;
    YK_TRY(yk_feed_init(&feed, e, NULL));
    yk_status status = yk_evaluate(e, &feed, 1, NULL, &loss, NULL);
    if (status == YK_OK) status = yk_generate_rehearse(e);
    yk_feed_fini(&feed);
    return status;
}

yk_status yk_plan_make_inference(const yk_config *config, const yk_model_shape *shape,
                                 const yk_device_spec *spec, yk_plan *plan_out)
{
    yk_device *dry = NULL;
    yk_engine *e = NULL;
    yk_plan plan = {.spec = *spec, .micro_batch = config->train.micro_batch, .n_micro = 1};
    plan.limit = memory_limit(config, spec);
    plan.items = calloc(MAX_ITEMS, sizeof *plan.items);
    if (!plan.items) return yk_fail(YK_ENOMEM, "plan", "no memory");
    yk_status status = yk_device_open_dry(spec, &dry);
    if (status == YK_OK)
        status = yk_engine_create(
            &(yk_engine_options){
                .device = dry, .config = config, .shape = shape, .micro_batch = plan.micro_batch},
            &e);
    if (status == YK_OK) status = rehearse_inference(e);
    if (status == YK_OK) take_sizes(&plan, e, 0);
    yk_engine_destroy(e);
    yk_device_close(dry);
    if (status == YK_OK && !fits(&plan))
        status = yk_fail(YK_ENOFIT, "memory", "the model takes %.2f GiB and %.2f GiB may be used",
                         (double)yk_plan_device_bytes(&plan) / 0x1p30, (double)plan.limit / 0x1p30);
    if (status == YK_OK)
        *plan_out = plan;
    else
        yk_plan_fini(&plan);
    return status;
}

void yk_plan_fini(yk_plan *plan)
{
    free(plan->items);
    plan->items = NULL;
    plan->n_items = 0;
}

int64_t yk_plan_device_bytes(const yk_plan *plan)
{
    return plan->sizes.persistent + plan->sizes.activation + plan->sizes.workspace;
}
