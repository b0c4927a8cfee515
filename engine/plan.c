/* engine/plan.c - the plan: one step of the real engine on a device that counts. */
#include "engine/plan.h"

#include <stdlib.h>
#include <string.h>

#include "engine/evaluate.h"
#include "engine/generate.h"
#include "engine/plan_parts.h"
#include "engine/step.h"
#include "runtime/base/arith.h"
#include "runtime/base/number.h"

/* Room for the names of a ledger; there are some forty kinds of piece. */
#define MAX_ITEMS 128

#define CUDA_ITEM "CUDA and kernels"

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

static void take_libraries(yk_plan *plan, const yk_ranks *ranks)
{
    int64_t context = plan->spec.context_bytes, nccl = yk_ranks_library_bytes(ranks);
    plan->library_bytes = context + nccl;
    if (context > 0) add_item(plan, "libraries", (yk_arena_item){CUDA_ITEM, context});
    if (nccl > 0) add_item(plan, "libraries", (yk_arena_item){"NCCL", nccl});
}

static void take_sizes(yk_plan *plan, const yk_engine *e)
{
    plan->sizes = yk_engine_high_water(e);
    add_items(plan, "persistent", e->persistent);
    add_items(plan, "activation", e->activation);
    add_items(plan, "pinned", e->pinned);
    if (plan->sizes.shared > 0)
        add_item(plan, "pinned", (yk_arena_item){"shared with ranks", plan->sizes.shared});
    take_libraries(plan, &e->ranks);
}

/* ---- a step ------------------------------------------------------------------------------- */

/* Micro-batches that are run of a step that has more. */
#define MICRO_RUN 3

/* What a step takes. */
typedef struct tally {
    double step_s, exposed_s, flops, bytes, bytes_sent;
} tally;

static tally read_clocks(const yk_engine *e)
{
    yk_device_counts counts = yk_device_get_counts(e->device);
    return (tally){
        .step_s = yk_stream_now(e->compute),
        .exposed_s = yk_store_waited_s(e->store),
        .flops = counts.flops,
        .bytes = counts.bytes,
        .bytes_sent = (double)yk_ranks_counts(&e->ranks).bytes_sent,
    };
}

/* a + times * (b - a) */
static tally towards(const tally *a, const tally *b, double times)
{
    return (tally){
        .step_s = a->step_s + times * (b->step_s - a->step_s),
        .exposed_s = a->exposed_s + times * (b->exposed_s - a->exposed_s),
        .flops = a->flops + times * (b->flops - a->flops),
        .bytes = a->bytes + times * (b->bytes - a->bytes),
        .bytes_sent = a->bytes_sent + times * (b->bytes_sent - a->bytes_sent),
    };
}

static yk_status run_step(yk_engine *e, yk_feed *feed, int64_t n_micro, tally *tally_out)
{
    tally before = read_clocks(e);
    e->n_micro = n_micro;
    YK_TRY(yk_step_run(e, feed, 0, 0.0f));
    tally after = read_clocks(e), none = {0}, minus = towards(&none, &before, -1);
    *tally_out = (tally){
        .step_s = after.step_s + minus.step_s,
        .exposed_s = after.exposed_s + minus.exposed_s,
        .flops = after.flops + minus.flops,
        .bytes = after.bytes + minus.bytes,
        .bytes_sent = after.bytes_sent + minus.bytes_sent,
    };
    return YK_OK;
}

/* A step after another one; micro-batches after the first few each add the same. */
static yk_status run_steps(yk_engine *e, yk_feed *feed, tally *tally_out)
{
    int64_t n = e->n_micro, run = yk_min(n, MICRO_RUN);
    tally fewer, more;
    YK_TRY(run_step(e, feed, run, &more));
    if (n > run) YK_TRY(run_step(e, feed, run - 1, &fewer));
    YK_TRY(run_step(e, feed, run, &more));
    *tally_out = n > run ? towards(&fewer, &more, (double)(n - run + 1)) : more;
    e->n_micro = n;
    return YK_OK;
}

/* Steps, and what happens between steps, on a dry engine. */
static yk_status rehearse(yk_plan *plan, yk_engine *e)
{
    yk_feed feed;
    tally t = {0};
    double loss;
    YK_TRY(yk_feed_init(&feed, e, NULL));
    yk_status status = run_steps(e, &feed, &t);
    if (status == YK_OK) status = yk_evaluate(e, &feed, 1, NULL, &loss, NULL);
    if (status == YK_OK && e->config->sample.every > 0) status = yk_generate_rehearse(e);
    yk_feed_fini(&feed);
    plan->step_s = t.step_s;
    plan->exposed_s = t.exposed_s;
    plan->flops = t.flops;
    plan->bytes = t.bytes;
    plan->bytes_sent = (int64_t)(t.bytes_sent + 0.5);
    return status;
}

int64_t yk_plan_limit(const yk_config *config, const yk_device_spec *spec)
{
    int64_t limit = config->memory.device_limit;
    return limit > 0 ? yk_min(limit, spec->memory_bytes) : spec->memory_bytes;
}

/* Host memory that a rank may use; 0: not known. */
static int64_t host_limit(const yk_config *config, const yk_plan_target *target)
{
    int64_t known = target->spec->host_bytes, limit = config->memory.host_limit;
    if (target->topology) limit /= target->topology->node_size;
    return known > 0 && limit > 0 ? yk_min(known, limit) : yk_max(known, limit);
}

/* A gigabyte on a card of 24, most of which lies where a block's feed-forward was; beyond some gigabytes more
 * is hardly faster. */
int64_t yk_plan_attention_room(int64_t limit)
{
    return yk_min(limit / 24, INT64_C(3) << 30);
}

static int64_t attention_room(const yk_config *config, const yk_device_spec *spec)
{
    if (spec->kind != YK_DEVICE_CUDA) return 0;
    return yk_plan_attention_room(yk_plan_limit(config, spec));
}

yk_status yk_plan_open_dry(const yk_plan_target *target, const yk_config *config,
                           yk_device **device_out, yk_engine **engine_out)
{
    yk_device *dry = NULL;
    YK_TRY(yk_device_open_dry(target->spec, &dry));
    yk_device_set_tf32(dry, config->precision.tf32);
    yk_device_set_attention_room(dry, attention_room(config, target->spec));
    yk_status status =
        yk_engine_create(&(yk_engine_options){.device = dry,
                                              .config = config,
                                              .shape = target->shape,
                                              .train = true,
                                              .micro_batch = config->train.micro_batch,
                                              .topology = target->topology,
                                              .red_zone = target->red_zone},
                         engine_out);
    if (status != YK_OK) {
        yk_device_close(dry);
        return status;
    }
    *device_out = dry;
    return YK_OK;
}

yk_status yk_plan_try(const yk_plan_target *target, const yk_config *config, yk_plan *plan_out)
{
    yk_device *dry;
    yk_engine *e;
    yk_plan plan = {
        .spec = *target->spec,
        .config = *config,
        .ranks = 1,
        .node_size = 1,
        .micro_batch = config->train.micro_batch,
        .limit = yk_plan_limit(config, target->spec),
        .tokens = config->train.batch * config->train.seq_len,
    };
    if (target->topology) {
        plan.ranks = target->topology->ranks;
        plan.node_size = target->topology->node_size;
        plan.topology = *target->topology;
    }
    plan.spec.host_bytes = host_limit(config, target);
    plan.spec.attention_bytes = attention_room(config, target->spec);
    plan.items = calloc(MAX_ITEMS, sizeof *plan.items);
    if (!plan.items) return yk_fail(YK_ENOMEM, "plan", "no memory");
    yk_status status = yk_plan_open_dry(target, config, &dry, &e);
    if (status != YK_OK) {
        yk_plan_fini(&plan);
        return status;
    }
    plan.n_micro = e->n_micro;
    if (plan.ranks > 1)
        snprintf(plan.carrier, sizeof plan.carrier, "%s",
                 yk_comm_backend_name(e->ranks.groups.all));
    plan.config.memory.head_chunk = e->head_chunk;
    status = rehearse(&plan, e);
    if (status == YK_OK) take_sizes(&plan, e);
    yk_engine_destroy(e);
    yk_device_close(dry);
    if (status == YK_OK)
        *plan_out = plan;
    else
        yk_plan_fini(&plan);
    return status;
}

/* ---- choosing ----------------------------------------------------------------------------- */

/* The share of the limit below which it is said why no more is used. */
#define GOOD_USE 0.92

/* "; bits follow train.micro_batch and memory.head_chunk", of what was left open. */
static void write_bits(const yk_plan *plan, const yk_config *given, char *text, size_t room)
{
    const char *names[3];
    int n = 0;
    if (given->train.micro_batch == YK_AUTO) names[n++] = "train.micro_batch";
    if (given->memory.head_chunk == YK_AUTO && plan->spec.kind == YK_DEVICE_CUDA)
        names[n++] = "memory.head_chunk";
    if (given->parallel.zero == YK_AUTO) names[n++] = "parallel.zero";
    text[0] = 0;
    for (int i = 0; i < n; i++) {
        size_t used = strlen(text);
        const char *before = i == 0 ? "; bits follow " : i == n - 1 ? " and " : ", ";
        snprintf(text + used, room - used, "%s%s", before, names[i]);
    }
}

static void say_why(yk_plan *plan, const yk_config *given)
{
    char choices[240], bits[96], time[YK_NUMBER_MAX];
    double use = (double)yk_plan_taken_bytes(plan) / (double)plan->limit;
    yk_plan_write_choices(&plan->config, given, choices, sizeof choices);
    write_bits(plan, given, bits, sizeof bits);
    yk_number_write_time(plan->step_s, time);
    snprintf(plan->why, sizeof plan->why,
             "%s: the fastest by the clock that fits, %s a step, %.1f %% of the memory%s%s",
             choices, time, 100 * use,
             use < GOOD_USE ? "; nothing that takes more is notably faster" : "", bits);
}

/* Where nothing else was open. */
static void say_head(yk_plan *plan, const yk_config *given)
{
    char choices[240];
    if (given->memory.head_chunk != YK_AUTO) return;
    yk_plan_write_choices(&plan->config, given, choices, sizeof choices);
    snprintf(plan->why, sizeof plan->why, "%s: it follows from the model", choices);
}

/* With what is left of the memory. */
static yk_status keep(const yk_plan_target *target, yk_plan *plan)
{
    yk_status status = yk_plan_keep(target, plan);
    if (status != YK_OK) yk_plan_fini(plan);
    return status;
}

static yk_status choose(const yk_plan_target *target, const yk_config *config, yk_plan *plan_out)
{
    yk_plan_row best;
    int n;
    YK_TRY(yk_plan_search(target, config, false, &best, 1, &n));
    if (n == 0) return yk_plan_refuse_all(target, config);
    YK_TRY(yk_plan_try(target, &best.config, plan_out));
    YK_TRY(keep(target, plan_out));
    say_why(plan_out, config);
    return YK_OK;
}

static yk_status make(const yk_plan_target *target, const yk_config *config, yk_plan *plan_out)
{
    yk_plan plan;
    YK_TRY(yk_plan_check_head(config));
    if (yk_plan_has_choices(target, config)) return choose(target, config, plan_out);
    YK_TRY(yk_plan_try(target, config, &plan));
    bool away = config->memory.host_limit > 0; /* what else the host has is checked at the start */
    bool fits = away ? yk_plan_fits(&plan) : yk_plan_fits_device(&plan);
    yk_status status = fits ? YK_OK : yk_plan_refuse(target, config, &plan);
    if (status != YK_OK) {
        yk_plan_fini(&plan);
        return status;
    }
    *plan_out = plan;
    say_head(plan_out, config);
    return keep(target, plan_out);
}

yk_status yk_plan_make(const yk_config *config, const yk_model_shape *shape,
                       const yk_device_spec *spec, const yk_topology *topology, int64_t red_zone,
                       yk_plan *plan_out)
{
    yk_plan_target target = {shape, spec, topology, red_zone, NULL};
    return make(&target, config, plan_out);
}

yk_status yk_plan_make_or_print(const yk_config *config, const yk_model_shape *shape,
                                const yk_device_spec *spec, const yk_topology *topology,
                                FILE *refusal, yk_plan *plan_out)
{
    yk_plan_target target = {shape, spec, topology, 0, refusal};
    return make(&target, config, plan_out);
}

/* ---- evaluation and generation ------------------------------------------------------------ */

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
    yk_plan plan = {
        .spec = *spec,
        .config = *config,
        .micro_batch = config->train.micro_batch,
        .n_micro = 1,
        .limit = yk_plan_limit(config, spec),
    };
    plan.items = calloc(MAX_ITEMS, sizeof *plan.items);
    if (!plan.items) return yk_fail(YK_ENOMEM, "plan", "no memory");
    yk_status status = yk_device_open_dry(spec, &dry);
    if (status == YK_OK)
        status = yk_engine_create(
            &(yk_engine_options){
                .device = dry, .config = config, .shape = shape, .micro_batch = plan.micro_batch},
            &e);
    if (status == YK_OK) status = rehearse_inference(e);
    if (status == YK_OK) take_sizes(&plan, e);
    yk_engine_destroy(e);
    yk_device_close(dry);
    if (status == YK_OK && !yk_plan_fits(&plan))
        status =
            yk_fail(YK_ENOFIT, "memory", "the model takes %.2f GiB and %.2f GiB may be used; %s",
                    (double)yk_plan_taken_bytes(&plan) / 0x1p30, (double)plan.limit / 0x1p30,
                    config->precision.compute == YK_F32
                        ? "--precision bf16 takes half of it"
                        : "take a shorter --seq-len, a smaller model or a larger device");
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

void yk_plan_count_libraries(yk_plan *plan, int64_t more)
{
    plan->library_bytes += more;
    add_item(plan, "libraries", (yk_arena_item){CUDA_ITEM, more});
}

int64_t yk_plan_device_bytes(const yk_plan *plan)
{
    return plan->sizes.persistent + plan->sizes.activation + plan->library_bytes;
}
