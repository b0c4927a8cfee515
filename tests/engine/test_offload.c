/* tests/engine/test_offload.c - training with state in host memory: the same bits, as planned.
 *
 * ctest: TIMEOUT 180
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/evaluate.h"
#include "engine/generate.h"
#include "tests/engine/rig.h"
#include "tests/engine/stored.h"
#include "tests/runtime/device/tested_device.h"

#define N_STEPS 3

typedef struct outcome {
    double losses[N_STEPS], evaluated;
    uint64_t hash;
    yk_arena_sizes sizes;
} outcome;

/* On the device that YK_TEST_DEVICE names: train, evaluate, and hold the arenas against the plan. */
static outcome run(const char *const *sets, int64_t red_zone)
{
    yk_rig rig;
    outcome o;
    const char *all[16] = {tested_on_cuda() ? "device=cuda" : "device=cpu"};
    for (int i = 0; sets[i]; i++) all[i + 1] = sets[i];
    memset(&o, 0, sizeof o);
    yk_rig_open(&rig, red_zone, all);
    yk_rig_train(&rig, 0, N_STEPS, o.losses);
    assert_int_equal(yk_evaluate(rig.engine, &rig.feed, 1, NULL, &o.evaluated, NULL), YK_OK);
    o.hash = yk_rig_hash(&rig);
    o.sizes = yk_engine_high_water(rig.engine);
    assert_memory_equal(&o.sizes, &rig.plan.sizes, sizeof o.sizes);
    yk_rig_close(&rig); /* destroying an arena checks its red zones */
    return o;
}

static void assert_same_bits(const outcome *a, const outcome *b, const char *about)
{
    if (memcmp(a->losses, b->losses, sizeof a->losses) != 0 || a->hash != b->hash ||
        a->evaluated != b->evaluated)
        fail_msg("%s: other bits", about);
}

static const char *const base[][6] = {
    {"model.preset=tiny-gpt2", "train.micro_batch=4", "memory.recompute=block"},
    {"model.preset=tiny-qwen2", "precision.compute=bf16", "train.micro_batch=2", "model.layers=5",
     "memory.recompute=block"},
    {"model.preset=tiny-llama", "precision.compute=bf16", "precision.master=bf16",
     "precision.moments=bf16", "train.micro_batch=1", "model.layers=6"},
    {"model.preset=tiny-gpt2", "precision.compute=fp16", "precision.moments=bf16",
     "precision.grads=fp32", "train.micro_batch=2", "model.layers=1"},
};

/* What can be offloaded apart from master weights, which not every run has. */
static const char *const offloads[] = {
    "memory.offload=moments",
    "memory.offload=grads",
    "memory.offload=params",
    "memory.offload=inputs",
    "memory.offload=[moments, grads, params, inputs]",
};
#define N_OFFLOADS (sizeof offloads / sizeof offloads[0])

static void offload_changes_no_bit_and_takes_what_was_planned(void **state)
{
    (void)state;
    for (size_t b = 0; b < sizeof base / sizeof base[0]; b++) {
        const char *sets[8] = {0};
        memcpy(sets, base[b], sizeof base[b]);
        int n = 0;
        while (n < 6 && sets[n]) n++;
        outcome home = run(sets, 0);
        for (size_t i = 0; i < N_OFFLOADS; i++) {
            sets[n] = offloads[i];
            outcome away = run(sets, i % 2 ? 512 : 0);
            assert_same_bits(&home, &away, offloads[i]);
        }
    }
}

static void master_weights_may_be_away_too(void **state)
{
    (void)state;
    const char *sets[] = {"precision.compute=bf16", "train.micro_batch=2", NULL, NULL};
    outcome home = run(sets, 0);
    sets[2] = "memory.offload=[master]";
    outcome away = run(sets, 0);
    assert_same_bits(&home, &away, sets[2]);
    int64_t freed = home.sizes.persistent - away.sizes.persistent;
    assert_true(away.sizes.pinned - home.sizes.pinned > freed); /* less what passes through */
    sets[2] = "memory.offload=[master, moments, grads, params, inputs]";
    away = run(sets, 512);
    assert_same_bits(&home, &away, sets[2]);
}

static void states_in_bf16_train(void **state)
{
    (void)state;
    const char *sets[] = {"precision.compute=bf16", NULL, NULL, NULL};
    outcome exact = run(sets, 0);
    sets[1] = "precision.master=bf16";
    sets[2] = "precision.moments=bf16";
    outcome rounded = run(sets, 0), again = run(sets, 0);
    assert_same_bits(&rounded, &again, "again");
    assert_true(rounded.hash != exact.hash);
    assert_true(rounded.losses[N_STEPS - 1] < rounded.losses[0]);
    double difference = rounded.losses[N_STEPS - 1] - exact.losses[N_STEPS - 1];
    assert_true(difference < 0.02 && difference > -0.02);
    assert_true(rounded.sizes.persistent < exact.sizes.persistent);
}

/* The fewer the blocks, the more of the ring is never used. */
static void inputs_are_right_at_any_depth(void **state)
{
    (void)state;
    static const char *const depths[] = {"model.layers=1", "model.layers=2", "model.layers=3",
                                         "model.layers=4", "model.layers=7"};
    for (int i = 0; i < 5; i++) {
        const char *sets[] = {"model.preset=tiny-qwen2",
                              depths[i],
                              "train.micro_batch=1",
                              i % 2 ? "memory.recompute=none" : "memory.recompute=qkv",
                              NULL,
                              NULL};
        outcome home = run(sets, 0);
        sets[4] = "memory.offload=inputs";
        outcome away = run(sets, 256);
        assert_same_bits(&home, &away, depths[i]);
    }
}

static void too_little_host_memory_is_said_with_what_would_help(void **state)
{
    (void)state;
    yk_plan_item items[] = {
        {.arena = "persistent", .name = "parameters", .bytes = (int64_t)9 << 30},
        {.arena = "pinned", .name = "first moments", .bytes = (int64_t)3 << 30},
        {.arena = "pinned", .name = "block inputs", .bytes = (int64_t)1 << 30},
    };
    yk_plan plan = {.sizes = {.pinned = (int64_t)4 << 30}, .items = items, .n_items = 3};
    yk_host_room room = {.bytes = (int64_t)8 << 30, .source = "/sys/fs/cgroup/job/memory.max"};
    assert_int_equal(yk_plan_check_host(&plan, 2, &room), YK_OK);
    int saved = scratch_stderr_begin();
    yk_status status = yk_plan_check_host(&plan, 3, &room);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_ENOFIT);
    assert_string_equal(
        said, "yoke: host memory: 4.00 GiB must stay in it for each of 3 ranks here, 3.00 "
              "of them 'first moments', and 8.00 GiB can be had "
              "(/sys/fs/cgroup/job/memory.max); raise that limit or end what else runs, "
              "or leave moments out of memory.offload\n");
    free(said);
}

int main(void)
{
    if (stored_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offload_changes_no_bit_and_takes_what_was_planned),
        cmocka_unit_test(master_weights_may_be_away_too),
        cmocka_unit_test(states_in_bf16_train),
        cmocka_unit_test(inputs_are_right_at_any_depth),
        cmocka_unit_test(too_little_host_memory_is_said_with_what_would_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
