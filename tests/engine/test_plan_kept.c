/* tests/engine/test_plan_kept.c - memory that recomputation frees may hold gathered parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine/plan.h"

/* Seconds of a step of Qwen2.5 7B on eight described cards, everything in host memory. */
static double plan_seven(const char *const *sets, yk_config *chosen_out)
{
    static const char *const base[] = {
        "model.preset=qwen2.5-7b",
        "train.batch=256",
        "train.micro_batch=8",
        "train.seq_len=1024",
        "precision.compute=bf16",
        "parallel.zero=1",
        "memory.head_chunk=2048",
        "memory.offload=[master,moments,grads,params,inputs]",
        NULL,
    };
    yk_config config;
    yk_model_shape shape;
    yk_device_spec spec;
    yk_plan plan;
    assert_int_equal(yk_config_init(&config), YK_OK);
    for (int i = 0; base[i]; i++) assert_int_equal(yk_config_set(&config, base[i]), YK_OK);
    for (; *sets; sets++) assert_int_equal(yk_config_set(&config, *sets), YK_OK);
    assert_int_equal(yk_model_shape_from_config(&config, &shape), YK_OK);
    assert_int_equal(yk_device_spec_find("4090d", &spec), YK_OK);
    yk_topology topology = yk_ranks_topology(&spec, 8, 8);
    assert_int_equal(yk_plan_make(&config, &shape, &spec, &topology, 0, &plan), YK_OK);
    double seconds = plan.step_s;
    if (chosen_out) *chosen_out = plan.config;
    yk_plan_fini(&plan);
    yk_config_fini(&config);
    return seconds;
}

/* Gathering blocks twice may cost more than making some of them again. */
static void recomputation_makes_room_for_gathered_parameters_where_that_is_faster(void **state)
{
    (void)state;
    static const char *const open[] = {"memory.recompute=auto", NULL};
    yk_config chosen;
    double seconds = plan_seven(open, &chosen);
    assert_int_equal(chosen.memory.recompute, YK_RECOMPUTE_FFN);
    assert_true(chosen.memory.kept_blocks > 0);
    for (int n = 8; n <= 20; n++) { /* all of which fit, with fewer or more kept */
        char blocks[40];
        const char *sets[] = {"memory.recompute=ffn", blocks, NULL};
        snprintf(blocks, sizeof blocks, "memory.recompute_blocks=%d", n);
        assert_true(plan_seven(sets, NULL) >= seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputation_makes_room_for_gathered_parameters_where_that_is_faster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
