/* tests/engine/test_step.c - what a training step promises.
 *
 * ctest: TIMEOUT 120
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/rig.h"

#define N_STEPS 6

typedef struct outcome {
    double losses[N_STEPS];
    uint64_t hash;
} outcome;

static outcome run(const char *const *sets)
{
    yk_rig rig;
    outcome o;
    yk_rig_open(&rig, 0, sets);
    yk_rig_train(&rig, 0, N_STEPS, o.losses);
    o.hash = yk_rig_hash(&rig);
    yk_rig_close(&rig);
    return o;
}

static void assert_same_bits(const outcome *a, const outcome *b)
{
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_true(a->hash == b->hash);
}

static void equal_runs_give_equal_bits_whatever_the_threads(void **state)
{
    (void)state;
    static const char *const precisions[] = {"precision.compute=fp32", "precision.compute=bf16",
                                             "precision.compute=fp16"};
    static const char *const threads[] = {"cpu.threads=1", "cpu.threads=2", "cpu.threads=4"};
    for (int p = 0; p < 3; p++) {
        const char *sets[] = {"model.preset=tiny-llama", precisions[p], threads[0], NULL};
        outcome first = run(sets);
        assert_true(first.losses[N_STEPS - 1] < first.losses[0]);
        for (int t = 0; t < 3; t++) {
            sets[2] = threads[t];
            outcome again = run(sets);
            assert_same_bits(&first, &again);
        }
    }
}

static void recomputation_changes_no_bit(void **state)
{
    (void)state;
    static const char *const models[] = {"model.preset=tiny-gpt2", "model.preset=tiny-llama"};
    static const char *const policies[] = {"memory.recompute=cheap", "memory.recompute=ffn",
                                           "memory.recompute=qkv", "memory.recompute=block"};
    static const char *const precisions[] = {"precision.compute=fp32", "precision.compute=bf16"};
    for (int i = 0; i < 16; i++) {
        const char *sets[] = {models[i % 2], precisions[i / 8], "memory.recompute=none", NULL,
                              NULL};
        outcome kept = run(sets);
        sets[2] = policies[i / 2 % 4];
        if (i % 3) sets[3] = "memory.recompute_blocks=1";
        outcome again = run(sets);
        assert_same_bits(&kept, &again);
    }
}

static void micro_batches_add_up_to_one_big_batch(void **state)
{
    (void)state;
    const char *sets[] = {"train.batch=8", "train.micro_batch=8", NULL};
    outcome whole = run(sets);
    sets[1] = "train.micro_batch=2";
    outcome parts = run(sets);
    for (int i = 0; i < N_STEPS; i++)
        assert_true(fabs(whole.losses[i] - parts.losses[i]) < 2e-6 * whole.losses[i]);
}

/* Put `value` into a weight of the head's norm. */
static void poison(yk_rig *rig, float value)
{
    int param = yk_model_find_param(rig->engine->model, "head.norm.weight");
    assert_true(param >= 0);
    assert_int_equal(yk_store_write(rig->engine->store, YK_STORE_WEIGHT, param, 0, 1, &value,
                                    rig->engine->compute),
                     YK_OK);
}

static void overflow_skips_the_step_and_halves_the_scale(void **state)
{
    (void)state;
    yk_rig rig;
    yk_step_result result;
    const char *sets[] = {"precision.compute=fp16", NULL};
    yk_rig_open(&rig, 0, sets);
    yk_rig_train(&rig, 0, 2, NULL);
    poison(&rig, INFINITY);
    int param = yk_model_find_param(rig.engine->model, "block.0.up.weight");
    float before[64], after[64], moment_before[64], moment_after[64];
    yk_store *store = rig.engine->store;
    yk_stream *stream = rig.engine->compute;
    assert_int_equal(yk_store_read(store, YK_STORE_WEIGHT, param, 0, 64, before, stream), YK_OK);
    assert_int_equal(yk_store_read(store, YK_STORE_MOMENT2, param, 0, 64, moment_before, stream),
                     YK_OK);
    int64_t adam_steps = rig.engine->values->adam_steps;
    assert_int_equal(adam_steps, 2);
    float scale = rig.engine->values->loss_scale;

    assert_int_equal(yk_step_run(rig.engine, &rig.feed, 2, 1e-3f), YK_OK);
    assert_int_equal(yk_step_wait(rig.engine, 2, &result), YK_OK);
    assert_true(result.skipped);
    assert_int_equal(result.steps_skipped, 1);
    assert_true(rig.engine->values->loss_scale == scale / 2);
    assert_int_equal(rig.engine->values->adam_steps, adam_steps);
    assert_int_equal(yk_store_read(store, YK_STORE_WEIGHT, param, 0, 64, after, stream), YK_OK);
    assert_int_equal(yk_store_read(store, YK_STORE_MOMENT2, param, 0, 64, moment_after, stream),
                     YK_OK);
    assert_memory_equal(before, after, sizeof before);
    assert_memory_equal(moment_before, moment_after, sizeof moment_before);

    poison(&rig, 1.0f); /* the next step goes on with the next data */
    assert_int_equal(yk_step_run(rig.engine, &rig.feed, 3, 1e-3f), YK_OK);
    assert_int_equal(yk_step_wait(rig.engine, 3, &result), YK_OK);
    assert_false(result.skipped);
    assert_int_equal(rig.engine->values->adam_steps, adam_steps + 1);
    yk_rig_close(&rig);
}

static void the_loss_scale_does_not_change_the_update(void **state)
{
    (void)state;
    const char *sets[] = {"precision.compute=fp16", "precision.loss_scale.start=1024", NULL};
    outcome low = run(sets);
    sets[1] = "precision.loss_scale.start=8192";
    outcome high = run(sets);
    for (int i = 0; i < N_STEPS; i++) /* powers of two: only what underflows may differ */
        assert_true(fabs(low.losses[i] - high.losses[i]) < 1e-3);
}

static void a_batch_without_targets_gives_loss_0_and_no_nan(void **state)
{
    (void)state;
    yk_rig rig;
    yk_step_result result;
    const char *sets[] = {"data.doc_token=0", NULL};
    yk_rig_open(&rig, 0, sets);
    yk_rig_train(&rig, 0, 1, NULL);
    int64_t n = rig.engine->micro_batch * rig.engine->seq_len;
    yk_batch batch = yk_engine_batch(rig.engine, 0);
    int32_t *targets = rig.engine->slots[0] + n;
    for (int64_t i = 0; i < n; i++) targets[i] = -1;
    /* The step by hand, on the batch without targets. */
    yk_engine *e = rig.engine;
    const yk_param_view *p;
    const yk_grad_view *g;
    assert_int_equal(yk_step_begin(e->compute, &(yk_step_begin_args){e->values, 1e-3f}), YK_OK);
    yk_store_begin(e->store, 1, e->values);
    assert_int_equal(yk_pass_begin(e->pass, YK_PASS_TRAIN, &batch, 1.0f, NULL, NULL), YK_OK);
    int last = yk_model_n_units(e->model) - 1;
    assert_int_equal(yk_store_acquire(e->store, 0, -1, e->compute, &p), YK_OK);
    assert_int_equal(yk_store_grad(e->store, 0, e->compute, &g), YK_OK);
    for (int u = 0; u <= last; u++) assert_int_equal(yk_pass_forward(e->pass, u, p), YK_OK);
    for (int u = last; u >= 0; u--) {
        assert_int_equal(yk_pass_backward(e->pass, u, p, g), YK_OK);
        assert_int_equal(yk_store_grad_ready(e->store, u, e->compute), YK_OK);
    }
    yk_pass_end(e->pass);
    assert_int_equal(yk_store_sum_squares(e->store, e->compute, e->values), YK_OK);
    yk_step_finish_args finish = {.values = e->values,
                                  .expected_tokens = (double)n,
                                  .clip = 1,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f};
    assert_int_equal(yk_step_finish(e->compute, &finish), YK_OK);
    e->results[1] = *e->values;
    assert_int_equal(yk_step_wait(e, 1, &result), YK_OK);
    assert_true(result.loss == 0.0);
    assert_false(result.skipped);
    assert_true(result.grad_norm == 0.0f);
    assert_true(isfinite(e->values->grad_scale));
    yk_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_runs_give_equal_bits_whatever_the_threads),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(micro_batches_add_up_to_one_big_batch),
        cmocka_unit_test(overflow_skips_the_step_and_halves_the_scale),
        cmocka_unit_test(the_loss_scale_does_not_change_the_update),
        cmocka_unit_test(a_batch_without_targets_gives_loss_0_and_no_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
