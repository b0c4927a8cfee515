/* tests/engine/test_graphs.c - a step whose units are graphs is the same step.
 *
 * On a dry device, which any machine has, everything is counted; on a GPU bits are compared.
 * ctest: TIMEOUT 120
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/device/recorder.h"
#include "tests/engine/rig.h"
#include "tests/engine/stored.h"
#include "tests/runtime/device/tested_device.h"

/* Steps, each of two micro-batches: that many keys repeat often enough to be replayed. */
#define STEPS 6

/* ---- counting ----------------------------------------------------------------------------- */

typedef struct dry_run {
    yk_device_counts counts;  /* of all steps */
    yk_arena_sizes high;      /* of the arenas */
    int made, made_in_middle; /* graphs, at the end and before the last two steps */
} dry_run;

static dry_run run_dry(const char *graphs, const char *model, const char *zero, int ranks)
{
    dry_run run;
    yk_config config;
    yk_model_shape shape;
    yk_device_spec spec;
    yk_device *device;
    yk_engine *engine;
    yk_feed feed;
    const char *sets[] = {"train.seq_len=32",
                          "train.batch=16",
                          "train.micro_batch=2",
                          "train.steps=20",
                          graphs,
                          model,
                          zero,
                          "data.train=x"};
    assert_int_equal(yk_config_init(&config), YK_OK);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        assert_int_equal(yk_config_set(&config, sets[i]), YK_OK);
    assert_int_equal(yk_model_shape_from_config(&config, &shape), YK_OK);
    assert_int_equal(yk_device_spec_find("4090d", &spec), YK_OK);
    assert_int_equal(yk_device_open_dry(&spec, &device), YK_OK);
    yk_topology topology = yk_ranks_topology(&spec, ranks, ranks);
    yk_engine_options o = {.device = device,
                           .config = &config,
                           .shape = &shape,
                           .train = true,
                           .micro_batch = 2,
                           .topology = ranks > 1 ? &topology : NULL};
    assert_int_equal(yk_engine_create(&o, &engine), YK_OK);
    assert_int_equal(yk_feed_init(&feed, engine, NULL), YK_OK);
    yk_feed_expect(&feed, INT64_MAX);
    yk_device_counts before = yk_device_get_counts(device);
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS - 2) run.made_in_middle = yk_graphs_count(engine->graphs);
        assert_int_equal(yk_step_run(engine, &feed, step, 1e-3f), YK_OK);
    }
    run.counts = yk_device_get_counts(device);
    run.counts.n_ops -= before.n_ops;
    run.counts.flops -= before.flops;
    run.counts.bytes -= before.bytes;
    run.high = yk_engine_high_water(engine);
    run.made = yk_graphs_count(engine->graphs);
    yk_feed_fini(&feed);
    yk_engine_destroy(engine);
    yk_device_close(device);
    yk_config_fini(&config);
    return run;
}

static void expect_equal_counts(const char *model, const char *zero, int ranks)
{
    dry_run on = run_dry("cuda.graphs=on", model, zero, ranks);
    dry_run off = run_dry("cuda.graphs=off", model, zero, ranks);
    assert_int_equal(off.made, 0);
    assert_true(on.made > 4);
    assert_int_equal(on.made, on.made_in_middle); /* everything is replayed by then */
    assert_int_equal(on.counts.n_ops, off.counts.n_ops);
    assert_true(on.counts.flops == off.counts.flops);
    assert_true(on.counts.bytes == off.counts.bytes);
    assert_memory_equal(&on.high, &off.high, sizeof on.high);
}

static void graphs_do_the_operations_of_a_step(void **state)
{
    (void)state;
    expect_equal_counts("model.preset=tiny-gpt2", "parallel.zero=0", 1);
    expect_equal_counts("model.preset=tiny-llama", "parallel.zero=0", 1);
    expect_equal_counts("model.preset=tiny-gpt2", "memory.offload=[master, moments, inputs]", 1);
}

/* Gathered parameters and gradients lie now here, now there. */
static void graphs_follow_parameters_that_move(void **state)
{
    (void)state;
    expect_equal_counts("model.preset=tiny-gpt2", "parallel.zero=2", 2);
    expect_equal_counts("model.preset=tiny-qwen2", "parallel.zero=3", 2);
}

/* ---- bits --------------------------------------------------------------------------------- */

static uint64_t train_on_gpu(const char *graphs, const char *model, const char *precision,
                             bool recorded, double *losses, int *made_out)
{
    yk_rig rig;
    const char *sets[] = {
        graphs, model, precision, "device=cuda", "train.batch=4", "train.micro_batch=2", NULL};
    yk_rig_open(&rig, 0, sets);
    yk_rig_train(&rig, 0, STEPS, losses);
    if (recorded) { /* a step that is recorded runs without graphs, between others */
        yk_recorder *r;
        assert_int_equal(yk_recorder_create(rig.device, 10000, &r), YK_OK);
        yk_recorder_start(r);
        yk_rig_train(&rig, STEPS, 1, losses + STEPS);
        assert_int_equal(yk_recorder_stop(r), YK_OK);
        assert_true(yk_recorder_n_spans(r) > 20);
        yk_recorder_destroy(r);
    } else {
        yk_rig_train(&rig, STEPS, 1, losses + STEPS);
    }
    yk_rig_train(&rig, STEPS + 1, 2, losses + STEPS + 1);
    *made_out = yk_graphs_count(rig.engine->graphs);
    uint64_t hash = yk_rig_hash(&rig);
    yk_rig_close(&rig);
    return hash;
}

static void results_with_graphs_have_the_bits_of_those_without(void **state)
{
    (void)state;
    static const char *const models[] = {"model.preset=tiny-gpt2", "model.preset=tiny-llama"};
    static const char *const precisions[] = {"precision.compute=fp32", "precision.compute=bf16",
                                             "precision.compute=fp16"};
    if (!tested_on_cuda()) skip();
    for (int i = 0; i < 6; i++) {
        double on[STEPS + 3], off[STEPS + 3];
        int made;
        const char *model = models[i % 2], *precision = precisions[i / 2];
        uint64_t with = train_on_gpu("cuda.graphs=on", model, precision, i % 2, on, &made);
        assert_true(made > 4);
        uint64_t without = train_on_gpu("cuda.graphs=off", model, precision, false, off, &made);
        assert_int_equal(made, 0);
        assert_memory_equal(on, off, sizeof on);
        assert_true(with == without);
    }
}

int main(void)
{
    if (stored_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_do_the_operations_of_a_step),
        cmocka_unit_test(graphs_follow_parameters_that_move),
        cmocka_unit_test(results_with_graphs_have_the_bits_of_those_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
