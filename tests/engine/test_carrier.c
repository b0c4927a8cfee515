/* tests/engine/test_carrier.c - what is measured before one of two backends carries a run's collectives: those
 * of its steps. And what is said of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/carrier.h"

static yk_config config;
static yk_race race;

/* The race of two ranks with a preset and more settings, which NULL ends. */
static void prepare(const char *preset, const char *const *sets)
{
    char set[64];
    yk_model_shape shape;
    assert_int_equal(yk_config_init(&config), YK_OK);
    snprintf(set, sizeof set, "model.preset=%s", preset);
    assert_int_equal(yk_config_set(&config, set), YK_OK);
    for (; *sets; sets++) assert_int_equal(yk_config_set(&config, *sets), YK_OK);
    assert_int_equal(yk_model_shape_from_config(&config, &shape), YK_OK);
    race = yk_carrier_race(&config, &shape, 2);
    yk_config_fini(&config);
}

/* Row i: a kind, elements to within what is rounded up, and calls a step. */
static void expect_row(int i, yk_race_kind kind, yk_dtype dtype, int64_t count, double calls)
{
    const yk_race_row *row = &race.rows[i];
    assert_true(i < race.n_rows);
    assert_int_equal(row->kind, kind);
    assert_int_equal(row->dtype, dtype);
    assert_int_equal(row->count % 256, 0);
    assert_true(row->count >= count && row->count < count + 256);
    assert_true(row->calls > calls - 1e-9 && row->calls < calls + 1e-9);
}

#define C     768
#define BLOCK ((int64_t)12 * C * C + 13 * C)
#define ENDS  ((int64_t)(50257 + 1024 + 2) * C)

static void stage_0_sums_for_all(void **state)
{
    (void)state;
    prepare("gpt2-124m", (const char *[]){"parallel.zero=0", "precision.compute=bf16", NULL});
    assert_int_equal(race.n_rows, 2);
    expect_row(0, YK_RACE_ALL_REDUCE, YK_BF16, BLOCK, 12);
    expect_row(1, YK_RACE_ALL_REDUCE, YK_BF16, ENDS, 1);
    assert_int_equal(race.wire, YK_BF16);
    assert_int_equal(race.axis, YK_AXIS_WORLD);
    assert_true(race.tries_lengths && !race.shares_gpu);
}

static void chunks_have_the_lengths_of_the_rule_where_nothing_is_tuned(void **state)
{
    (void)state;
    prepare("gpt2-124m", (const char *[]){"tune=off", "launch.ranks_per_gpu=2", NULL});
    assert_true(!race.tries_lengths && race.shares_gpu);
    prepare("gpt2-124m", (const char *[]){"tune=full", NULL});
    assert_true(race.tries_lengths && !race.shares_gpu);
}

static void stages_1_and_2_gather_each_unit_once(void **state)
{
    (void)state;
    static const char *const zeros[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=auto"};
    for (int i = 0; i < 3; i++) {
        prepare("gpt2-124m", (const char *[]){zeros[i], "precision.compute=bf16",
                                              "precision.grads=fp32", "comm.reduce=ring", NULL});
        assert_int_equal(race.n_rows, 4);
        expect_row(0, YK_RACE_GATHER, YK_BF16, BLOCK, 12);
        expect_row(1, YK_RACE_SCATTER, YK_F32, BLOCK, 12);
        expect_row(2, YK_RACE_GATHER, YK_BF16, ENDS, 1);
        expect_row(3, YK_RACE_SCATTER, YK_F32, ENDS, 1);
        assert_int_equal(race.wire, YK_F32);
        assert_int_equal(race.reduce, YK_REDUCE_RING);
    }
}

static void parameters_that_are_fetched_are_gathered_for_both_passes(void **state)
{
    (void)state;
    static const char *const sets[][2] = {{"parallel.zero=3", "memory.offload=[]"},
                                          {"parallel.zero=1", "memory.offload=params"}};
    for (int i = 0; i < 2; i++) {
        prepare("gpt2-124m", (const char *[]){sets[i][0], sets[i][1], "comm.wire=fp16",
                                              "parallel.shard=node", NULL});
        expect_row(0, YK_RACE_GATHER, YK_F32, BLOCK, 24);
        expect_row(1, YK_RACE_SCATTER, YK_F32, BLOCK, 12);
        expect_row(2, YK_RACE_GATHER, YK_F32, ENDS, 1);
        assert_int_equal(race.wire, YK_F16);
        assert_int_equal(race.axis, YK_AXIS_NODE);
    }
}

/* An untied head is as long as the embedding; of what is longer than 256 MiB that much is measured. */
static void what_is_long_counts_as_several(void **state)
{
    (void)state;
    prepare("qwen2.5-7b", (const char *[]){"parallel.zero=0", "precision.compute=bf16", NULL});
    const int64_t most = (int64_t)128 << 20, end = (int64_t)152064 * 3584 + 3584 / 2;
    expect_row(0, YK_RACE_ALL_REDUCE, YK_BF16, most, 28 * 233057792.0 / (double)most);
    expect_row(1, YK_RACE_ALL_REDUCE, YK_BF16, most, 2 * (double)end / (double)most);
}

static void each_collective_has_a_line(void **state)
{
    (void)state;
    char text[1024] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    yk_race r = {.backends = {YK_COMM_NCCL, YK_COMM_HOSTMEM},
                 .n_backends = 2,
                 .rows = {{YK_RACE_GATHER, YK_BF16, 1 << 20, 24, {1e-3, 2e-3}, -2},
                          {YK_RACE_SCATTER, YK_F32, 1 << 20, 12.5, {4e-3, 25e-4}, 1},
                          {YK_RACE_SCATTER, YK_F32, 1 << 18, 1, {1e-3, 1e-3}, 0}},
                 .n_rows = 3};
    yk_race_judge(&r);
    yk_carrier_print(&r, f);
    fclose(f);
    assert_string_equal(
        text, "links     hostmem, gathers nccl; measured:\n"
              "          all-gather        2.0 MiB    24 a step  nccl 1.000 ms  hostmem 2.000 ms "
              "(chunks / 4)  -> nccl\n"
              "          reduce-scatter    4.0 MiB  12.5 a step  nccl 4.000 ms  hostmem 2.500 ms "
              "(chunks x 2)  -> hostmem\n"
              "          reduce-scatter    1.0 MiB     1 a step  nccl 1.000 ms  hostmem 1.000 ms"
              "  -> hostmem\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stage_0_sums_for_all),
        cmocka_unit_test(chunks_have_the_lengths_of_the_rule_where_nothing_is_tuned),
        cmocka_unit_test(stages_1_and_2_gather_each_unit_once),
        cmocka_unit_test(parameters_that_are_fetched_are_gathered_for_both_passes),
        cmocka_unit_test(what_is_long_counts_as_several),
        cmocka_unit_test(each_collective_has_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
