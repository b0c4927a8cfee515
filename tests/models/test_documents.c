/* tests/models/test_documents.c - documents in one row do not see each other: with masks and
 * positions that restart they are as if each had a row of its own.
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

#define ROW   15
#define SPLIT 6

/* To rounding: sums over a row's rows come in another order. */
#define BOUND 1e-6

/* Elements t .. t+n-1 of a batch of one row, as a row of their own. */
static void set_part(rig *r, const values_batch *whole, int64_t t, int64_t n)
{
    rig_set_batch(r, &(yk_batch){.tokens = whole->tokens + t,
                                 .targets = whole->targets + t,
                                 .positions = whole->positions + t,
                                 .batch = 1,
                                 .seq_len = n});
}

static double **gradients_of(rig *r)
{
    double **g = values_zero(r->model);
    for (int k = 0; k < yk_model_n_params(r->model); k++) rig_get_gradient(r, k, g[k]);
    return g;
}

static void expect_near(const rig *r, double *const *a, double *const *b)
{
    for (int k = 0; k < yk_model_n_params(r->model); k++) {
        const yk_param *p = &yk_model_params(r->model)[k];
        double distance = values_distance(a[k], b[k], yk_param_count(p));
        if (!(distance <= BOUND)) fail_msg("gradient of %s is off by %g", p->name, distance);
    }
}

static void two_documents_in_a_row_are_two_rows(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        rig r;
        yk_model_shape shape = shape_tiny_at(i);
        double together[ROW], apart[ROW];
        rig_open(&r, &shape, &(rig_options){.recompute = (yk_recompute)(i % 5)});
        double **p = values_of_params(r.model, 5);
        values_batch b = values_batch_create(r.model, 1, ROW, 8);
        values_batch_split(&b, SPLIT);
        rig_set_params(&r, p);

        rig_set_batch(&r, &b.batch);
        rig_train(&r, 0.25f, together);
        double **joined = gradients_of(&r);
        rig_clear_gradients(&r);
        set_part(&r, &b, 0, SPLIT);
        rig_train(&r, 0.25f, apart);
        set_part(&r, &b, SPLIT, ROW - SPLIT);
        rig_train(&r, 0.25f, apart + SPLIT);
        double **summed = gradients_of(&r);

        double distance = values_distance(together, apart, ROW);
        if (!(distance <= BOUND)) fail_msg("losses are off by %g", distance);
        expect_near(&r, joined, summed);
        values_free(r.model, joined);
        values_free(r.model, summed);
        values_free(r.model, p);
        values_batch_destroy(&b);
        rig_close(&r);
    }
}

/* Losses of the second document with `token` at the end of the first. */
static void losses_after(rig *r, values_batch *b, int32_t token, double *losses)
{
    b->tokens[SPLIT - 1] = token;
    rig_set_batch(r, &b->batch);
    rig_evaluate(r, losses);
}

static void a_document_does_not_change_with_the_one_before(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        rig r;
        yk_model_shape shape = shape_tiny_at(i);
        double one[ROW], other[ROW];
        rig_open(&r, &shape, &(rig_options){0});
        double **p = values_of_params(r.model, 5);
        values_batch b = values_batch_create(r.model, 1, ROW, 8);
        rig_set_params(&r, p);
        losses_after(&r, &b, 1, one);
        losses_after(&r, &b, 2, other);
        assert_memory_not_equal(one + SPLIT, other + SPLIT, (ROW - SPLIT) * sizeof *one);
        values_batch_split(&b, SPLIT);
        losses_after(&r, &b, 1, one);
        losses_after(&r, &b, 2, other);
        assert_memory_equal(one + SPLIT, other + SPLIT, (ROW - SPLIT) * sizeof *one);
        values_free(r.model, p);
        values_batch_destroy(&b);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_documents_in_a_row_are_two_rows),
        cmocka_unit_test(a_document_does_not_change_with_the_one_before),
    };
    if (rig_missing()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
