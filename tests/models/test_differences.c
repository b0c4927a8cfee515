/* tests/models/test_differences.c - the gradients of the fp64 model are the slopes of its loss.
 *
 * Every parameter of every tiny model is moved both ways: (loss(p + h) - loss(p - h)) / 2h. With
 * that the formulas of the backward pass stand on the forward pass alone; test_oracle_model.c then
 * holds the program's own model against this one.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/models/shapes.h"
#include "tests/models/values.h"
#include "tests/oracle/oracle_model.h"

/* Where the rounding of the loss, 1e-16 / h, meets the third derivative, h^2. */
#define STEP 1e-5

/* Relative to the norm of a parameter's gradient. */
#define BOUND 1e-8

static double slope_of(oracle_model *m, double **p, double *value)
{
    double was = *value;
    *value = was + STEP;
    double above = oracle_model_loss(m, p);
    *value = was - STEP;
    double below = oracle_model_loss(m, p);
    *value = was;
    return (above - below) / (2 * STEP);
}

static void expect_slopes(const yk_model *model, const yk_batch *batch)
{
    oracle_model *m = oracle_model_create(model, batch);
    double **p = values_of_params(model, 1), **g = values_zero(model),
           **slopes = values_zero(model);
    double worst = 0;
    oracle_model_gradient(m, p, g);
    for (int k = 0; k < yk_model_n_params(model); k++) {
        const yk_param *param = &yk_model_params(model)[k];
        int64_t n = yk_param_count(param);
        for (int64_t i = 0; i < values_in_use(model, k); i++)
            slopes[k][i] = slope_of(m, p, &p[k][i]);
        double distance = values_distance(g[k], slopes[k], n);
        worst = fmax(worst, distance);
        if (!(distance <= BOUND)) fail_msg("%s: off by %g", param->name, distance);
    }
    print_message("worst %.1e\n", worst);
    values_free(model, p);
    values_free(model, g);
    values_free(model, slopes);
    oracle_model_destroy(m);
}

static void expect_slopes_of_shape(int i, int64_t split)
{
    yk_model_shape shape = shape_tiny_at(i);
    yk_model *model;
    assert_int_equal(yk_model_create(&shape, &model), YK_OK);
    values_batch b = values_batch_create(model, 2, 7, 9);
    if (split) values_batch_split(&b, split);
    print_message("%s: ", shape_tiny_name(i));
    expect_slopes(model, &b.batch);
    values_batch_destroy(&b);
    yk_model_destroy(model);
}

static void gradients_are_the_slopes_of_the_loss(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) expect_slopes_of_shape(i, 0);
}

static void gradients_are_the_slopes_with_documents_apart(void **state)
{
    (void)state;
    for (int i = 1; i < N_TINY_SHAPES; i += 4) expect_slopes_of_shape(i, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_slopes_of_the_loss),
        cmocka_unit_test(gradients_are_the_slopes_with_documents_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
