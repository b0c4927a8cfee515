/* tests/engine/test_plan.c - the plan against what a run uses; refusals.
 *
 * ctest: TIMEOUT 120
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "engine/evaluate.h"
#include "engine/generate.h"
#include "engine/step.h"
#include "tests/engine/rig.h"
#include "tests/engine/stored.h"
#include "tests/runtime/device/tested_device.h"

/* On the device that YK_TEST_DEVICE names. */
static void assert_plan_holds(int64_t red_zone, const char *const *sets)
{
    yk_rig rig;
    double loss;
    const char *all[16] = {tested_on_cuda() ? "device=cuda" : "device=cpu"};
    for (int i = 0; sets[i]; i++) all[i + 1] = sets[i];
    yk_rig_open(&rig, red_zone, all);
    yk_rig_train(&rig, 0, 2, NULL);
    assert_int_equal(yk_evaluate(rig.engine, &rig.feed, 1, NULL, &loss, NULL), YK_OK);
    yk_arena_sizes high = yk_engine_high_water(rig.engine);
    assert_int_equal(high.persistent, rig.plan.sizes.persistent);
    assert_int_equal(high.activation, rig.plan.sizes.activation);
    assert_int_equal(high.pinned, rig.plan.sizes.pinned);
    yk_rig_close(&rig); /* destroying an arena checks its red zones */
}

static void plan_equals_the_high_water_marks(void **state)
{
    (void)state;
    static const char *const models[] = {"model.preset=tiny-gpt2", "model.preset=tiny-llama",
                                         "model.preset=tiny-qwen2"};
    static const char *const batches[] = {"train.micro_batch=1", "train.micro_batch=2",
                                          "train.micro_batch=4"};
    static const char *const precisions[] = {"precision.compute=fp32", "precision.compute=bf16",
                                             "precision.compute=fp16"};
    static const char *const policies[] = {"memory.recompute=none", "memory.recompute=cheap",
                                           "memory.recompute=ffn", "memory.recompute=qkv",
                                           "memory.recompute=block"};
    static const char *const blocks[] = {"memory.recompute_blocks=auto",
                                         "memory.recompute_blocks=1"};
    static const char *const chunks[] = {"memory.head_chunk=auto", "memory.head_chunk=37"};
    static const char *const offloads[] = {"memory.offload=[]",
                                           "memory.offload=[moments]",
                                           "memory.offload=[inputs]",
                                           "memory.offload=[moments,grads]",
                                           "memory.offload=[params,inputs]",
                                           "memory.offload=[moments,grads,params,inputs]",
                                           "memory.offload=[grads]"};
    static const char *const moments[] = {"precision.moments=fp32", "precision.moments=bf16"};
    for (int i = 0; i < 70; i++) { /* every pair of neighbours in the lists meets */
        const char *sets[] = {models[i % 3],
                              batches[i / 3 % 3],
                              precisions[i / 9 % 3],
                              policies[(i + i / 9) % 5],
                              blocks[i / 5 % 2],
                              chunks[i / 30 % 2],
                              offloads[i % 7],
                              moments[i / 2 % 2],
                              NULL};
        assert_plan_holds(i % 2 ? 512 : 0, sets);
    }
}

static void stronger_recomputation_never_takes_more(void **state)
{
    (void)state;
    int64_t before = INT64_MAX;
    static const char *const policies[] = {"memory.recompute=none", "memory.recompute=cheap",
                                           "memory.recompute=ffn", "memory.recompute=qkv",
                                           "memory.recompute=block"};
    for (int i = 0; i < 5; i++) {
        yk_rig rig;
        const char *sets[] = {"model.preset=tiny-llama", "model.layers=6", policies[i], NULL};
        yk_rig_open(&rig, 0, sets);
        assert_true(rig.plan.sizes.activation < before);
        before = rig.plan.sizes.activation;
        yk_rig_close(&rig);
    }
}

/* Plan `sets` with a limit of `limit` bytes. */
static yk_status plan_within(int64_t limit, const char *const *sets, yk_plan *plan_out)
{
    yk_rig rig;
    yk_rig_open(&rig, 0, sets);
    rig.config.memory.device_limit = limit;
    rig.config.train.micro_batch = YK_AUTO;
    yk_status status = yk_plan_make(&rig.config, &rig.shape, &rig.plan.spec, NULL, 0, plan_out);
    yk_rig_close(&rig);
    return status;
}

static void auto_takes_the_largest_micro_batch_that_fits(void **state)
{
    (void)state;
    yk_rig rig;
    yk_plan plan;
    const char *whole[] = {"train.batch=12", "train.micro_batch=12", "memory.recompute=none", NULL};
    const char *third[] = {"train.batch=12", "train.micro_batch=4", "memory.recompute=none", NULL};
    yk_rig_open(&rig, 0, third);
    int64_t bytes = yk_plan_device_bytes(&rig.plan) + rig.plan.sizes.pinned; /* of one memory */
    yk_rig_close(&rig);
    assert_int_equal(plan_within(0, whole, &plan), YK_OK);
    assert_int_equal(plan.micro_batch, 12);
    yk_plan_fini(&plan);
    assert_int_equal(plan_within(bytes, whole, &plan), YK_OK);
    assert_int_equal(plan.micro_batch, 4);
    assert_true(yk_plan_device_bytes(&plan) <= bytes);
    yk_plan_fini(&plan);
    assert_int_equal(plan_within(1 << 16, whole, &plan), YK_ENOFIT);
}

/* Plan a tiny model on a described GPU; `sets` NULL-terminated. */
static yk_status plan_tiny(const char *const *sets, int64_t limit, int ranks, yk_config *config,
                           yk_model_shape *shape, yk_plan *plan_out)
{
    static const char *const base[] = {"model.preset=tiny-llama", "model.layers=3",
                                       "train.seq_len=128",       "precision.compute=bf16",
                                       "train.batch=12",          "train.micro_batch=12",
                                       "memory.recompute=none",   NULL};
    yk_device_spec spec;
    assert_int_equal(yk_config_init(config), YK_OK);
    for (int i = 0; base[i]; i++) assert_int_equal(yk_config_set(config, base[i]), YK_OK);
    for (; *sets; sets++) assert_int_equal(yk_config_set(config, *sets), YK_OK);
    config->memory.device_limit = limit;
    assert_int_equal(yk_model_shape_from_config(config, shape), YK_OK);
    assert_int_equal(yk_device_spec_find("h200", &spec), YK_OK);
    spec.memory_bytes = INT64_MAX;
    spec.peer_rate = 0; /* so that there is something to wait for */
    yk_topology topology = yk_ranks_topology(&spec, ranks, ranks);
    return yk_plan_make(config, shape, &spec, ranks > 1 ? &topology : NULL, 0, plan_out);
}

/* Every micro-batch and every strength of recomputation is tried; none that fits may be faster. */
static void auto_takes_the_fastest_of_all_that_fit(void **state)
{
    (void)state;
    static const char *const policies[] = {"none", "cheap", "ffn", "qkv", "block"};
    const char *given[] = {NULL},
               *small[] = {"train.micro_batch=1", "memory.recompute=block", NULL},
               *open[] = {"train.micro_batch=auto", "memory.recompute=auto", NULL};
    yk_config config;
    yk_model_shape shape;
    yk_plan whole, least, chosen, other;
    assert_int_equal(plan_tiny(small, 0, 1, &config, &shape, &least), YK_OK);
    yk_config_fini(&config);
    assert_int_equal(plan_tiny(given, 0, 1, &config, &shape, &whole), YK_OK);
    int64_t fixed = yk_plan_device_bytes(&least);
    for (int part = 1; part <= 9; part += 2) {
        int64_t limit = fixed + (yk_plan_device_bytes(&whole) - fixed) * part / 10;
        int n_fits = 0;
        yk_config_fini(&config);
        assert_int_equal(plan_tiny(open, limit, 1, &config, &shape, &chosen), YK_OK);
        assert_true(yk_plan_device_bytes(&chosen) <= limit);
        assert_true(strstr(chosen.why, "the fastest") != NULL);
        for (int micro = 1; micro <= 12; micro++)
            for (int i = 0; 12 % micro == 0 && i <= 12; i++) {
                yk_config one = config;
                char sets[3][64];
                const char *const list[] = {sets[0], sets[1], sets[2], NULL};
                snprintf(sets[0], 64, "train.micro_batch=%d", micro);
                snprintf(sets[1], 64, "memory.recompute=%s", policies[(i + 2) / 3]);
                snprintf(sets[2], 64, "memory.recompute_blocks=%d", i ? (i - 1) % 3 + 1 : 0);
                if (plan_tiny(list, 0, 1, &one, &shape, &other) != YK_OK) fail();
                if (yk_plan_device_bytes(&other) <= limit) {
                    n_fits++;
                    assert_true(other.step_s >= chosen.step_s);
                }
                yk_plan_fini(&other);
                yk_config_fini(&one);
            }
        assert_true(n_fits > 0);
        yk_plan_fini(&chosen);
    }
    yk_plan_fini(&least);
    yk_plan_fini(&whole);
    yk_config_fini(&config);
}

static void auto_recomputes_no_block_more_than_it_must(void **state)
{
    (void)state;
    const char *given[] = {NULL}, *open[] = {"memory.recompute=auto", NULL};
    yk_config config;
    yk_model_shape shape;
    yk_plan plan, least;
    assert_int_equal(plan_tiny(given, 0, 1, &config, &shape, &plan), YK_OK);
    yk_config_fini(&config);
    int64_t bytes = yk_plan_device_bytes(&plan);
    assert_int_equal(plan_tiny(open, bytes, 1, &config, &shape, &least), YK_OK);
    assert_int_equal(least.config.memory.recompute, YK_RECOMPUTE_NONE);
    yk_plan_fini(&least);
    yk_config_fini(&config);
    assert_int_equal(plan_tiny(open, bytes - 1, 1, &config, &shape, &least), YK_OK);
    assert_int_equal(least.config.memory.recompute, YK_RECOMPUTE_CHEAP);
    assert_int_equal(least.config.memory.recompute_blocks, 1);
    assert_true(least.step_s > plan.step_s);
    yk_plan_fini(&least);
    yk_plan_fini(&plan);
    yk_config_fini(&config);
}

/* Micro-batches beyond the first few are not run; what they take is the same. */
static void a_step_of_many_micro_batches_takes_what_it_takes_when_run(void **state)
{
    (void)state;
    const char *sets[] = {"train.micro_batch=1", NULL};
    yk_config config;
    yk_model_shape shape;
    yk_plan plan;
    yk_device *dry;
    yk_engine *e;
    yk_feed feed;
    assert_int_equal(plan_tiny(sets, 0, 1, &config, &shape, &plan), YK_OK);
    assert_int_equal(plan.n_micro, 12);
    assert_int_equal(yk_device_open_dry(&plan.spec, &dry), YK_OK);
    yk_engine_options o = {
        .device = dry, .config = &plan.config, .shape = &shape, .train = true, .micro_batch = 1};
    assert_int_equal(yk_engine_create(&o, &e), YK_OK);
    assert_int_equal(yk_feed_init(&feed, e, NULL), YK_OK);
    assert_int_equal(yk_step_run(e, &feed, 0, 0), YK_OK);
    double begin_s = yk_stream_now(e->compute), flops = yk_device_get_counts(dry).flops;
    assert_int_equal(yk_step_run(e, &feed, 1, 0), YK_OK);
    double step_s = yk_stream_now(e->compute) - begin_s;
    flops = yk_device_get_counts(dry).flops - flops;
    assert_true(fabs(plan.step_s - step_s) < 1e-9 * step_s);
    assert_true(fabs(plan.flops - flops) < 1e-9 * flops);
    yk_feed_fini(&feed);
    yk_engine_destroy(e);
    yk_device_close(dry);
    yk_plan_fini(&plan);
    yk_config_fini(&config);
}

static void waiting_for_other_ranks_is_part_of_a_step(void **state)
{
    (void)state;
    const char *alone[] = {NULL}, *sharded[] = {"parallel.zero=3", "train.batch=96", NULL},
               *open[] = {"parallel.zero=auto", "train.batch=96", NULL};
    yk_config config;
    yk_model_shape shape;
    yk_plan plan, chosen;
    assert_int_equal(plan_tiny(alone, 0, 1, &config, &shape, &plan), YK_OK);
    assert_true(plan.exposed_s == 0 && plan.bytes_sent == 0);
    yk_plan_fini(&plan);
    yk_config_fini(&config);
    assert_int_equal(plan_tiny(sharded, 0, 8, &config, &shape, &plan), YK_OK);
    assert_true(plan.exposed_s > 0 && plan.exposed_s < plan.step_s);
    yk_config_fini(&config);
    assert_int_equal(plan_tiny(open, 0, 8, &config, &shape, &chosen), YK_OK);
    assert_true(chosen.step_s <= plan.step_s);
    assert_in_range(chosen.config.parallel.zero, 0, 3);
    yk_plan_fini(&chosen);
    yk_plan_fini(&plan);
    yk_config_fini(&config);
}

/* On links that are too slow, a step is what one rank computes, a ninth longer beside collectives, and waiting. */
static void what_a_step_waits_for_is_counted_to_the_end(void **state)
{
    (void)state;
    const char *alone[] = {"model.preset=qwen2.5-7b", "train.batch=4", "train.micro_batch=4", NULL};
    const char *stages[] = {"parallel.zero=0", "parallel.zero=2", "parallel.zero=3"};
    yk_config config;
    yk_model_shape shape;
    yk_plan one, plan;
    assert_int_equal(plan_tiny(alone, 0, 1, &config, &shape, &one), YK_OK);
    yk_config_fini(&config);
    for (int i = 0; i < 6; i++) {
        const char *sets[] = {
            alone[0], stages[i % 3],       i < 3 ? "train.batch=32" : "train.batch=96",
            alone[2], "comm.backend=nccl", NULL};
        assert_int_equal(plan_tiny(sets, 0, 8, &config, &shape, &plan), YK_OK);
        double computed_s = plan.step_s - plan.exposed_s;
        assert_true(plan.exposed_s > plan.step_s / 4);
        assert_true(computed_s < (double)plan.n_micro * one.step_s * 10 / 9);
        yk_plan_fini(&plan);
        yk_config_fini(&config);
    }
    yk_plan_fini(&one);
}

/* A step that sums once waits as long as one that sums at its only micro-batch, which is the same. */
static void waiting_is_counted_where_gradients_are_away(void **state)
{
    (void)state;
    static const char *const stages[] = {"parallel.zero=1", "parallel.zero=2"};
    yk_config config;
    yk_model_shape shape;
    yk_plan plan;
    double exposed_s[2];
    for (int i = 0; i < 2; i++) {
        const char *sets[] = {"model.preset=qwen2.5-3b",
                              "model.layers=36",
                              stages[i],
                              "train.batch=32",
                              "train.micro_batch=4",
                              "comm.backend=nccl",
                              "memory.offload=[grads]",
                              NULL};
        assert_int_equal(plan_tiny(sets, 0, 8, &config, &shape, &plan), YK_OK);
        exposed_s[i] = plan.exposed_s;
        yk_plan_fini(&plan);
        yk_config_fini(&config);
    }
    assert_true(fabs(exposed_s[1] / exposed_s[0] - 1) < 0.01);
}

/* With less room on the device than the states take, they go to the host; without room there, no. */
static void auto_offloads_what_does_not_fit_the_device(void **state)
{
    (void)state;
    const char *given[] = {NULL}, *open[] = {"memory.offload=auto", NULL};
    yk_config config;
    yk_model_shape shape;
    yk_plan plan, chosen;
    assert_int_equal(plan_tiny(given, 0, 1, &config, &shape, &plan), YK_OK);
    yk_config_fini(&config);
    int64_t limit = yk_plan_device_bytes(&plan);
    assert_int_equal(plan_tiny(open, limit, 1, &config, &shape, &chosen), YK_OK);
    assert_int_equal(chosen.config.memory.offload, 0);
    yk_plan_fini(&chosen);
    yk_config_fini(&config);
    assert_int_equal(plan_tiny(open, limit - 1, 1, &config, &shape, &chosen), YK_OK);
    assert_true(chosen.config.memory.offload != 0);
    assert_true(strstr(chosen.why, "memory.offload: [") != NULL);
    yk_device_spec spec = chosen.spec;
    config.memory.device_limit = limit - 1;
    spec.host_bytes = chosen.sizes.pinned - 1;
    yk_plan_fini(&plan);
    if (yk_plan_make(&config, &shape, &spec, NULL, 0, &plan) == YK_OK) {
        assert_true(plan.sizes.pinned < chosen.sizes.pinned);
        yk_plan_fini(&plan);
    }
    spec.host_bytes = 1;
    assert_int_equal(yk_plan_make(&config, &shape, &spec, NULL, 0, &plan), YK_ENOFIT);
    yk_plan_fini(&chosen);
    yk_config_fini(&config);
}

static void a_thousand_ranks_are_planned_like_one(void **state)
{
    (void)state;
    const char *sets[] = {"train.batch=12288", "parallel.zero=3", NULL};
    yk_config config;
    yk_model_shape shape;
    yk_plan plan;
    assert_int_equal(plan_tiny(sets, 0, 1024, &config, &shape, &plan), YK_OK);
    assert_int_equal(plan.ranks, 1024);
    assert_int_equal(plan.n_micro, 1);
    yk_plan_fini(&plan);
    yk_config_fini(&config);
}

static void ledger_adds_up_to_the_arenas(void **state)
{
    (void)state;
    yk_rig rig;
    const char *sets[] = {NULL};
    yk_rig_open(&rig, 0, sets);
    int64_t persistent = 0, activation = 0;
    for (int i = 0; i < rig.plan.n_items; i++) {
        const yk_plan_item *item = &rig.plan.items[i];
        if (strcmp(item->arena, "persistent") == 0) persistent += item->bytes;
        if (strcmp(item->arena, "activation") == 0) activation += item->bytes;
    }
    assert_int_equal(persistent, rig.plan.sizes.persistent);
    assert_int_equal(activation, rig.plan.sizes.activation);
    yk_rig_close(&rig);
}

/* What the feed-forward's backward pass is done with makes room for attention's: most is in use before, with all of
 * the last block. */
static void gradients_of_attention_take_the_place_of_the_feed_forward(void **state)
{
    (void)state;
    static const char *const policies[] = {"none", "cheap", "ffn", "qkv", "block"};
    for (int i = 0; i < 5; i++) {
        yk_rig rig;
        char recompute[64];
        snprintf(recompute, sizeof recompute, "memory.recompute=%s", policies[i]);
        const char *sets[] = {"model.ffn=4096", "model.layers=3", "model.vocab=300", recompute,
                              NULL};
        int64_t up = 0;
        yk_rig_open(&rig, 0, sets);
        for (int j = 0; j < rig.plan.n_items; j++) {
            assert_string_not_equal(rig.plan.items[j].name, "d qkv");
            if (strcmp(rig.plan.items[j].name, "ffn up") == 0) up = rig.plan.items[j].bytes;
        }
        assert_int_equal(up, (i < 2 ? 3 : 1) * INT64_C(4) * 32 * 4096 * 4);
        yk_rig_close(&rig);
    }
}

static void sampling_during_training_is_planned(void **state)
{
    (void)state;
    yk_rig rig;
    const char *sets[] = {"model.preset=tiny-qwen2", "train.batch=1",  "train.micro_batch=1",
                          "memory.recompute=block",  "sample.every=1", NULL};
    yk_rig_open(&rig, 512, sets);
    yk_rig_train(&rig, 0, 1, NULL);
    assert_int_equal(yk_generate_rehearse(rig.engine),
                     YK_OK); /* asks for all that it ever asks for */
    assert_int_equal(yk_arena_high(rig.engine->activation), rig.plan.sizes.activation);
    yk_rig_close(&rig);
}

/* Plan a preset on ranks of a dry GPU; the limit is left out. */
static void plan_preset(const char *preset, int ranks, int node_size, const char *const *sets)
{
    yk_config config;
    yk_model_shape shape;
    yk_device_spec spec;
    yk_plan plan;
    char assignment[64];
    snprintf(assignment, sizeof assignment, "model.preset=%s", preset);
    assert_int_equal(yk_config_init(&config), YK_OK);
    assert_int_equal(yk_config_set(&config, assignment), YK_OK);
    for (; *sets; sets++) assert_int_equal(yk_config_set(&config, *sets), YK_OK);
    config.train.seq_len = 64;
    config.train.batch = 2 * ranks;
    config.train.micro_batch = 1;
    assert_int_equal(yk_model_shape_from_config(&config, &shape), YK_OK);
    assert_int_equal(yk_device_spec_find("h200", &spec), YK_OK);
    spec.memory_bytes = INT64_MAX;
    yk_topology topology = yk_ranks_topology(&spec, ranks, node_size);
    assert_int_equal(yk_plan_make(&config, &shape, &spec, &topology, 0, &plan), YK_OK);
    yk_plan_fini(&plan);
    yk_config_fini(&config);
}

/* Tied heads and heads of their own, embeddings larger and smaller than a block. */
static void every_preset_can_be_planned_in_every_stage(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2-124m",  "gpt2-1.5b",  "llama2-7b",
                                          "llama3-8b",  "tiny-gpt2",  "qwen2.5-0.5b",
                                          "tiny-llama", "tiny-qwen2", "qwen2.5-7b"};
    static const char *const stages[] = {"parallel.zero=0", "parallel.zero=1", "parallel.zero=2",
                                         "parallel.zero=3"};
    static const char *const times[] = {"comm.reduce_every=step", "comm.reduce_every=micro"};
    static const char *const shards[] = {"parallel.shard=world", "parallel.shard=node"};
    for (size_t p = 0; p < sizeof presets / sizeof presets[0]; p++)
        for (int i = 0; i < 16; i++) {
            const char *sets[] = {stages[i % 4], times[i / 4 % 2], shards[i / 8],
                                  "precision.compute=bf16", NULL};
            plan_preset(presets[p], 4, 2, sets);
        }
}

/* Gathered parameters of so many blocks stay for the backward pass as there is room for; the others are
 * gathered twice. */
static void parameters_are_kept_where_there_is_room(void **state)
{
    (void)state;
    static const char *const none[] = {"parallel.zero=3", "model.layers=8", "train.micro_batch=3",
                                       "memory.kept_blocks=0", NULL};
    static const char *const open[] = {"parallel.zero=3", "model.layers=8", "train.micro_batch=3",
                                       NULL};
    yk_config config;
    yk_model_shape shape;
    yk_plan least, plan;
    int64_t bytes_sent[7];
    assert_int_equal(plan_tiny(none, 0, 4, &config, &shape, &least), YK_OK);
    yk_config_fini(&config);
    for (int64_t kept = 0; kept <= 6; kept++) {
        char set[40];
        snprintf(set, sizeof set, "memory.kept_blocks=%d", (int)kept);
        const char *sets[] = {"parallel.zero=3", "model.layers=8", "train.micro_batch=3", set,
                              NULL};
        assert_int_equal(plan_tiny(sets, 0, 4, &config, &shape, &plan), YK_OK);
        yk_config_fini(&config);
        int64_t bytes = yk_plan_device_bytes(&plan);
        bytes_sent[kept] = plan.bytes_sent;
        yk_plan_fini(&plan);
        /* A twentieth more than that, and nothing is left for another block. */
        assert_int_equal(plan_tiny(open, bytes + bytes / 20, 4, &config, &shape, &plan), YK_OK);
        assert_true(plan.config.memory.kept_blocks >= kept);
        assert_true(yk_plan_device_bytes(&plan) <= plan.limit);
        assert_true(plan.step_s <= least.step_s);
        yk_plan_fini(&plan);
        yk_config_fini(&config);
    }
    for (int kept = 1; kept <= 6; kept++)
        assert_int_equal(bytes_sent[0] - bytes_sent[kept], kept * (bytes_sent[0] - bytes_sent[1]));
    assert_true(bytes_sent[1] < bytes_sent[0]);
    yk_plan_fini(&least);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_equals_the_high_water_marks),
        cmocka_unit_test(stronger_recomputation_never_takes_more),
        cmocka_unit_test(auto_takes_the_largest_micro_batch_that_fits),
        cmocka_unit_test(auto_takes_the_fastest_of_all_that_fit),
        cmocka_unit_test(auto_recomputes_no_block_more_than_it_must),
        cmocka_unit_test(a_step_of_many_micro_batches_takes_what_it_takes_when_run),
        cmocka_unit_test(waiting_for_other_ranks_is_part_of_a_step),
        cmocka_unit_test(what_a_step_waits_for_is_counted_to_the_end),
        cmocka_unit_test(waiting_is_counted_where_gradients_are_away),
        cmocka_unit_test(auto_offloads_what_does_not_fit_the_device),
        cmocka_unit_test(a_thousand_ranks_are_planned_like_one),
        cmocka_unit_test(every_preset_can_be_planned_in_every_stage),
        cmocka_unit_test(parameters_are_kept_where_there_is_room),
        cmocka_unit_test(ledger_adds_up_to_the_arenas),
        cmocka_unit_test(gradients_of_attention_take_the_place_of_the_feed_forward),
        cmocka_unit_test(sampling_during_training_is_planned),
    };
    if (stored_missing()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
