/* tests/models/test_oracle_model.c - the program's models against the fp64 one: losses, logits and
 * every gradient.
 */
#include <math.h>
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
#include "tests/oracle/oracle_model.h"

/* Both models on one batch, with equal parameters. */
typedef struct pair {
    rig r;
    values_batch batch;
    oracle_model *oracle;
    double **p, **g; /* the oracle's */
    double *losses;  /* (B,T) the program's */
    double loss;
    int64_t rows, n_tokens;
} pair;

static void pair_open(pair *c, const yk_model_shape *shape, const rig_options *o, int64_t split)
{
    rig_open(&c->r, shape, o);
    c->batch = values_batch_create(c->r.model, 2, 9, 4);
    if (split) values_batch_split(&c->batch, split);
    c->rows = 18;
    c->n_tokens = 0;
    for (int64_t i = 0; i < c->rows; i++) c->n_tokens += c->batch.targets[i] >= 0;
    c->p = values_of_params(c->r.model, 2);
    c->g = values_zero(c->r.model);
    c->losses = calloc((size_t)c->rows, sizeof *c->losses);
    rig_set_params(&c->r, c->p);
    rig_set_batch(&c->r, &c->batch.batch);
    c->oracle = oracle_model_create(c->r.model, &c->batch.batch);
    c->loss = oracle_model_gradient(c->oracle, c->p, c->g);
}

static void pair_close(pair *c)
{
    oracle_model_destroy(c->oracle);
    values_free(c->r.model, c->p);
    values_free(c->r.model, c->g);
    values_batch_destroy(&c->batch);
    free(c->losses);
    rig_close(&c->r);
}

static void expect_losses(pair *c, double bound)
{
    double sum;
    int64_t n;
    double distance = values_distance(c->losses, oracle_model_losses(c->oracle), c->rows);
    if (!(distance <= bound)) fail_msg("losses are off by %g", distance);
    rig_take_sums(&c->r, &sum, &n);
    assert_int_equal(n, c->n_tokens);
    assert_true(fabs(sum / (double)n - c->loss) <= bound * c->loss);
}

/* `factor` times the stored gradients is the oracle's gradient of the mean. Returns the worst
 * distance. */
static double expect_gradients(pair *c, double factor, double bound)
{
    double worst = 0;
    for (int k = 0; k < yk_model_n_params(c->r.model); k++) {
        const yk_param *param = &yk_model_params(c->r.model)[k];
        int64_t n = yk_param_count(param);
        double *g = calloc((size_t)n, sizeof *g);
        rig_get_gradient(&c->r, k, g);
        for (int64_t i = 0; i < n; i++) g[i] *= factor;
        for (int64_t i = values_in_use(c->r.model, k); i < n; i++) assert_true(g[i] == 0);
        double distance = values_distance(g, c->g[k], n);
        worst = fmax(worst, distance);
        if (!(distance <= bound)) fail_msg("gradient of %s is off by %g", param->name, distance);
        free(g);
    }
    return worst;
}

/* The weight that training gives each loss, a constant; the optimiser divides by the true count. */
static float weight_of(const pair *c)
{
    return 1.0f / (float)c->rows;
}

static double factor_of(const pair *c)
{
    double scale = c->r.o.loss_scale != 0 ? (double)c->r.o.loss_scale : 1;
    return (double)c->rows / (double)c->n_tokens / scale;
}

static void expect_pass(int i, const rig_options *o, int64_t split, double bound)
{
    pair c;
    yk_model_shape shape = shape_tiny_at(i);
    pair_open(&c, &shape, o, split);
    rig_train(&c.r, weight_of(&c), c.losses);
    expect_losses(&c, bound);
    double worst = expect_gradients(&c, factor_of(&c), bound);
    print_message("%s %s: worst %.1e\n", shape_tiny_name(i), yk_dtype_name(o->dtype), worst);
    rig_evaluate(&c.r, c.losses);
    expect_losses(&c, bound);
    pair_close(&c);
}

static void fp32_is_the_oracle_to_rounding(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        expect_pass(i, &(rig_options){0}, 0, 2e-6);
        expect_pass(i, &(rig_options){0}, 4, 2e-6);
    }
}

static void the_head_may_come_in_chunks_of_any_size(void **state)
{
    (void)state;
    static const int64_t chunks[] = {1, 5, 17, 18, 1000};
    for (int i = 0; i < N_TINY_SHAPES; i += 3)
        for (size_t k = 0; k < sizeof chunks / sizeof chunks[0]; k++)
            expect_pass(i, &(rig_options){.head_chunk = chunks[k]}, 0, 2e-6);
}

static void sixteen_bits_are_the_oracle_to_their_rounding(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        rig_options bf16 = {.dtype = YK_BF16, .grad_dtype = YK_F32};
        rig_options fp16 = {.dtype = YK_F16, .grad_dtype = YK_F16, .loss_scale = 256};
        expect_pass(i, &bf16, 0, 0.03);
        bf16.grad_dtype = YK_BF16;
        expect_pass(i, &bf16, 0, 0.03);
        expect_pass(i, &fp16, 0, 0.004);
    }
}

static void gradients_of_two_passes_add_up(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        pair c;
        yk_model_shape shape = shape_tiny_at(i);
        pair_open(&c, &shape, &(rig_options){.head_chunk = 7}, 0);
        rig_train(&c.r, 5.0f, NULL); /* is to be forgotten */
        rig_clear_gradients(&c.r);
        rig_train(&c.r, weight_of(&c), NULL);
        rig_train(&c.r, 2 * weight_of(&c), NULL);
        expect_gradients(&c, factor_of(&c) / 3, 2e-6);
        pair_close(&c);
    }
}

static void a_batch_without_targets_has_no_loss_and_no_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        pair c;
        yk_model_shape shape = shape_tiny_at(i);
        pair_open(&c, &shape, &(rig_options){0}, 0);
        for (int64_t r = 0; r < c.rows; r++) c.batch.targets[r] = -1;
        c.n_tokens = 0;
        rig_set_batch(&c.r, &c.batch.batch);
        c.loss = oracle_model_gradient(c.oracle, c.p, c.g);
        rig_train(&c.r, weight_of(&c), c.losses);
        for (int64_t r = 0; r < c.rows; r++) assert_true(c.losses[r] == 0);
        assert_true(c.loss == 0);
        expect_gradients(&c, 1, 0);
        pair_close(&c);
    }
}

static void logits_of_generation_are_the_oracles(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        pair c;
        yk_model_shape shape = shape_tiny_at(i);
        pair_open(&c, &shape, &(rig_options){0}, 0);
        int64_t v = shape.vocab_rows, t = c.batch.batch.seq_len;
        double *logits = calloc((size_t)(c.rows * v), sizeof *logits);
        for (int64_t r = 0; r < c.rows; r++) { /* one token at a time */
            if (r % t == 0) rig_restart(&c.r);
            rig_generate(&c.r, c.batch.tokens + r, 1, logits + r * v);
        }
        double distance = values_distance(logits, oracle_model_logits(c.oracle), c.rows * v);
        if (!(distance <= 2e-6)) fail_msg("%s: off by %g", shape_tiny_name(i), distance);
        free(logits);
        pair_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_is_the_oracle_to_rounding),
        cmocka_unit_test(the_head_may_come_in_chunks_of_any_size),
        cmocka_unit_test(sixteen_bits_are_the_oracle_to_their_rounding),
        cmocka_unit_test(gradients_of_two_passes_add_up),
        cmocka_unit_test(a_batch_without_targets_has_no_loss_and_no_gradient),
        cmocka_unit_test(logits_of_generation_are_the_oracles),
    };
    if (rig_missing()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
