/* tests/models/test_init.c - initial weights are a function of (seed, name, index) and nothing else,
 * and have the distribution that they should.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/table.h"
#include "runtime/device/normal.h"
#include "tests/models/shapes.h"

static yk_model *create(yk_model_shape shape)
{
    yk_model *model;
    assert_int_equal(yk_model_create(&shape, &model), YK_OK);
    return model;
}

static float *init(const yk_model *m, int param, int64_t seed)
{
    int64_t n = yk_param_count(&m->params[param]);
    float *values = calloc((size_t)n, sizeof *values);
    assert_non_null(values);
    int64_t used;
    yk_normal normal = yk_model_first_values(m, param, seed, &used);
    yk_normal_fill(&(yk_draw_normal_args){.dst = values, .n = used, .normal = normal}, 1);
    return values;
}

static void values_do_not_depend_on_the_rest_of_the_model(void **state)
{
    (void)state;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false), other = shape;
    other.vocab = 640; /* padding, kind of head and family change nothing for a weight's name */
    other.tied = true;
    other.family = YK_FAMILY_QWEN2;
    yk_model *a = create(shape), *b = create(other);
    const char *names[] = {"block.1.qkv.weight", "block.0.down.weight"};
    for (int i = 0; i < 2; i++) {
        int pa = yk_model_find_param(a, names[i]), pb = yk_model_find_param(b, names[i]);
        float *x = init(a, pa, 3), *y = init(b, pb, 3);
        assert_memory_equal(x, y, (size_t)yk_param_count(&a->params[pa]) * sizeof *x);
        free(x);
        free(y);
    }
    yk_model_destroy(a);
    yk_model_destroy(b);
}

/* How alike two tensors are: 0 for independent ones, up to a few 1 / sqrt(n). */
static double correlation(const float *x, const float *y, int64_t n)
{
    double xy = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < n; i++) {
        xy += (double)x[i] * y[i];
        xx += (double)x[i] * x[i];
        yy += (double)y[i] * y[i];
    }
    return xy / sqrt(xx * yy);
}

static void seeds_and_names_give_unrelated_values(void **state)
{
    (void)state;
    yk_model *m = create(shape_of_preset("tiny-gpt2"));
    int a = m->blocks[0].up.weight, b = m->blocks[1].up.weight;
    int64_t n = yk_param_count(&m->params[a]);
    float *x = init(m, a, 1), *y = init(m, b, 1), *z = init(m, a, 2);
    assert_true(fabs(correlation(x, y, n)) < 5 / sqrt((double)n));
    assert_true(fabs(correlation(x, z, n)) < 5 / sqrt((double)n));
    assert_true(fabs(correlation(x, x + 1, n - 1)) < 5 / sqrt((double)n));
    free(x);
    free(y);
    free(z);
    yk_model_destroy(m);
}

/* Mean, deviation and fourth moment are those of a normal distribution, each within five of its own
 * standard errors; so is the share beyond two deviations. */
static void expect_normal(const float *x, int64_t n, double deviation)
{
    double sum = 0, squares = 0, fourth = 0, beyond = 0, root = sqrt((double)n);
    for (int64_t i = 0; i < n; i++) {
        double u = x[i] / deviation;
        sum += u;
        squares += u * u;
        fourth += u * u * u * u;
        beyond += fabs(u) > 2;
    }
    double share = 0.0455002639;
    assert_true(fabs(sum / root) < 5);
    assert_true(fabs((squares / (double)n - 1) * root) < 5 * sqrt(2));
    assert_true(fabs((fourth / (double)n - 3) * root) < 5 * sqrt(96));
    assert_true(fabs((beyond / (double)n - share) * root) < 5 * sqrt(share * (1 - share)));
}

static void matrices_are_normal_with_the_deviation_of_their_kind(void **state)
{
    (void)state;
    yk_model *m = create(shape_of_preset("tiny-llama"));
    double small = 0.02 / sqrt(2.0 * (double)m->shape.layers);
    const yk_block_ids *b = &m->blocks[1];
    const int ids[] = {m->embed.tokens, m->head.out,    b->qkv.weight,
                       b->up.weight,    b->proj.weight, b->down.weight};
    for (int i = 0; i < 6; i++) {
        const yk_param *p = &m->params[ids[i]];
        float *x = init(m, ids[i], 11);
        expect_normal(x, yk_param_count(p), i < 4 ? 0.02 : small);
        free(x);
    }
    yk_model_destroy(m);
}

static void norms_are_one_and_biases_zero(void **state)
{
    (void)state;
    yk_model *m = create(shape_tiny(YK_FAMILY_GPT2, false));
    int n_norms = 0, n_biases = 0;
    for (int k = 0; k < m->n_params; k++) {
        const yk_param *p = &m->params[k];
        if (p->n_dims == 2) continue;
        bool weight = strstr(p->name, ".weight") != NULL;
        float *x = init(m, k, 5);
        for (int64_t i = 0; i < yk_param_count(p); i++) assert_true(x[i] == (weight ? 1.0f : 0.0f));
        n_norms += weight;
        n_biases += !weight;
        free(x);
    }
    assert_int_equal(n_norms, 2 * m->shape.layers + 1);
    assert_int_equal(n_biases, 2 * m->shape.layers + 1 + 4 * m->shape.layers);
    yk_model_destroy(m);
}

static void padding_rows_are_zero_and_no_others_are(void **state)
{
    (void)state;
    yk_model *m = create(shape_tiny(YK_FAMILY_LLAMA, false));
    const int ids[] = {m->embed.tokens, m->head.out};
    for (int k = 0; k < 2; k++) {
        const yk_param *p = &m->params[ids[k]];
        float *x = init(m, ids[k], 5);
        assert_true(p->shape[0] > m->shape.vocab);
        for (int64_t i = 0; i < yk_param_count(p); i++)
            assert_int_equal(x[i] == 0.0f, i / p->shape[1] >= m->shape.vocab);
        free(x);
    }
    yk_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_do_not_depend_on_the_rest_of_the_model),
        cmocka_unit_test(seeds_and_names_give_unrelated_values),
        cmocka_unit_test(matrices_are_normal_with_the_deviation_of_their_kind),
        cmocka_unit_test(norms_are_one_and_biases_zero),
        cmocka_unit_test(padding_rows_are_zero_and_no_others_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
