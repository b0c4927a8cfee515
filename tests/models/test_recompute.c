/* tests/models/test_recompute.c - what is made again is what was there: losses and gradients have the
 * same bits under every policy of recomputation, also where the last blocks have a weaker one, and
 * with any number of threads; a stronger policy holds less.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/models/rig.h"
#include "tests/models/shapes.h"
#include "tests/models/values.h"

/* What a training pass leaves: every loss and gradient, and the activation arena's high-water mark. */
typedef struct outcome {
    double *values;
    int64_t n, high;
} outcome;

static outcome run(const yk_model_shape *shape, const rig_options *o)
{
    rig r;
    rig_open(&r, shape, o);
    values_batch b = values_batch_create(r.model, 3, 11, 6);
    values_batch_split(&b, 5);
    double **p = values_of_params(r.model, 3);
    rig_set_params(&r, p);
    rig_set_batch(&r, &b.batch);

    outcome out = {.n = b.batch.batch * b.batch.seq_len};
    for (int k = 0; k < yk_model_n_params(r.model); k++)
        out.n += yk_param_count(&yk_model_params(r.model)[k]);
    out.values = calloc((size_t)out.n, sizeof *out.values);
    rig_train(&r, 0.125f, out.values);
    double *next = out.values + b.batch.batch * b.batch.seq_len;
    for (int k = 0; k < yk_model_n_params(r.model); k++) {
        rig_get_gradient(&r, k, next);
        next += yk_param_count(&yk_model_params(r.model)[k]);
    }
    out.high = yk_arena_high(r.activation);
    values_free(r.model, p);
    values_batch_destroy(&b);
    rig_close(&r);
    return out;
}

static void expect_same_bits(const outcome *a, const outcome *b)
{
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++)
        if (memcmp(&a->values[i], &b->values[i], sizeof *a->values) != 0)
            fail_msg("value %lld: %a, not %a", (long long)i, b->values[i], a->values[i]);
}

static void every_policy_gives_the_same_bits_and_holds_less(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) {
            yk_model_shape shape = shape_tiny_at(i);
            rig_options o = {.dtype = (yk_dtype)t, .grad_dtype = (yk_dtype)t, .head_chunk = 8};
            shape.layers = 5; /* so that what is kept outweighs what is at work */
            print_message("%s %s\n", shape_tiny_name(i), yk_dtype_name(o.dtype));
            outcome none = run(&shape, &o);
            int64_t before = none.high;
            for (int policy = YK_RECOMPUTE_CHEAP; policy <= YK_RECOMPUTE_BLOCK; policy++)
                for (o.n_lighter = 3; o.n_lighter >= 0; o.n_lighter -= 3) {
                    o.recompute = (yk_recompute)policy;
                    outcome again = run(&shape, &o);
                    expect_same_bits(&none, &again);
                    assert_true(again.high < before);
                    before = again.high;
                    free(again.values);
                }
            free(none.values);
        }
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const presets[] = {"tiny-gpt2", "tiny-qwen2"};
    for (int i = 0; i < 2; i++) {
        yk_model_shape shape = shape_of_preset(presets[i]);
        rig_options o = {.threads = 1, .head_chunk = 20};
        outcome one = run(&shape, &o);
        for (int threads = 2; threads <= 4; threads++) {
            o.threads = threads;
            outcome more = run(&shape, &o);
            expect_same_bits(&one, &more);
            free(more.values);
        }
        free(one.values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_gives_the_same_bits_and_holds_less),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
    };
    if (rig_missing()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
