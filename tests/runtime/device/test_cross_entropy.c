/* tests/runtime/device/test_cross_entropy.c - the loss, its gradient in place, and its sum.
 *
 * Bounds. exp of a difference of logits has 2 eps of the difference and 4 eps relatively, the sum V
 * eps, the logarithm and two differences 2 eps of each number; a gradient twice the probability's
 * error and 4 eps, then the rounding of storage. Masked rows and padding columns are exactly zero.
 */
#include <math.h>
#include <string.h>

#include "tests/runtime/device/op_case.h"
#include "tests/runtime/device/tested_device.h"

typedef struct shape {
    int64_t rows, vocab, stride;
} shape;

typedef enum masking { NONE_MASKED, SOME_MASKED, ALL_MASKED } masking;

static op_buffer *targets_of(op_case *c, shape s, masking masked)
{
    int32_t targets[512];
    for (int64_t i = 0; i < s.rows; i++) {
        bool hidden = masked == ALL_MASKED || (masked == SOME_MASKED && op_random_below(c, 3) == 0);
        targets[i] = hidden ? -1 : (int32_t)op_random_below(c, s.vocab);
    }
    return op_integers(c, s.rows, targets);
}

/* Columns from vocab on hold NaN: nothing may come of them. */
static op_buffer *logits_of(op_case *c, yk_dtype t, shape s, double size)
{
    double *x = op_out(c, s.rows * s.stride).value;
    for (int64_t i = 0; i < s.rows * s.stride; i++)
        x[i] = i % s.stride < s.vocab ? oracle_round(t, op_random_normal(c) * size) : (double)NAN;
    return op_given(c, OP_INOUT, t, s.rows * s.stride, x);
}

static void loss_case(op_case *c, yk_dtype t, shape s, masking masked, bool backward, double size)
{
    op_case_begin(c, t, "cross_entropy R=%d V=%d stride=%d masked=%d backward=%d size=%g",
                  (int)s.rows, (int)s.vocab, (int)s.stride, (int)masked, backward, size);
    yk_step_values values = {.loss_scale = 512, .lr = NAN};
    op_buffer *step = op_step_values(c, &values);
    op_buffer *logits = logits_of(c, t, s, size), *targets = targets_of(c, s, masked);
    op_buffer *losses = op_output(c, YK_F32, s.rows);
    float scale = 1.0f / 37;
    OP_RUN(c, yk_cross_entropy,
           &((yk_cross_entropy_args){.losses = losses->data,
                                     .logits = logits->data,
                                     .targets = targets->data,
                                     .values = backward ? step->data : NULL,
                                     .rows = s.rows,
                                     .vocab = s.vocab,
                                     .stride = s.stride,
                                     .scale = scale,
                                     .backward = backward,
                                     .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, s.rows), gradient = op_out(c, s.rows * s.stride);
    oracle_cross_entropy(&c->arith, want, gradient, logits->value, op_ints(targets), s.rows,
                         s.vocab, s.stride, (double)scale * 512);
    op_expect(c, losses, "losses", want);
    if (backward)
        op_expect(c, logits, "dlogits", gradient);
    else
        op_expect_unchanged(c, logits, "logits");
}

static void cross_entropy_family(op_case *c)
{
    static const shape shapes[] = {{1, 1, 1},     {1, 3, 17},      {17, 127, 127},
                                   {129, 17, 32}, {257, 300, 384}, {3, 5003, 5120}};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 6; i++)
            for (int masked = NONE_MASKED; masked <= ALL_MASKED; masked++)
                for (int backward = 0; backward < 2; backward++)
                    loss_case(c, op_dtypes[d], shapes[i], (masking)masked, backward, 2);
}

static void cross_entropy_agrees_with_the_oracle(void **state)
{
    cross_entropy_family(*state);
}

static void cross_entropy_survives_large_logits(void **state)
{
    for (int d = 0; d < 3; d++)
        loss_case(*state, op_dtypes[d], (shape){17, 129, 130}, SOME_MASKED, true, 1000);
}

static void cross_entropy_of_a_large_vocabulary_agrees_with_the_oracle(void **state)
{
    for (int d = 0; d < 3; d++)
        loss_case(*state, op_dtypes[d], (shape){3, 50257, 50304}, NONE_MASKED, true, 2);
}

/* More rows than a GPU has multiprocessors, so that a block has several, masked ones between. */
static void cross_entropy_of_many_wide_rows_agrees_with_the_oracle(void **state)
{
    for (int d = 0; d < 3; d++)
        for (int backward = 0; backward < 2; backward++)
            loss_case(*state, op_dtypes[d], (shape){400, 8203, 8448}, SOME_MASKED, backward, 2);
}

/* Rows that a GPU's shared memory does not hold, nor, of the last, its registers with it: 240 KB a row,
 * several rows a block; 304 KB; 360 KB. */
static void long_rows(op_case *c)
{
    loss_case(c, YK_F32, (shape){140, 60005, 60032}, SOME_MASKED, true, 2);
    loss_case(c, YK_BF16, (shape){2, 151665, 151936}, NONE_MASKED, true, 2);
    loss_case(c, YK_F16, (shape){2, 128256, 128256}, NONE_MASKED, false, 2);
    loss_case(c, YK_F32, (shape){2, 90001, 90112}, NONE_MASKED, true, 2);
}

static void cross_entropy_of_rows_longer_than_fast_memory_agrees_with_the_oracle(void **state)
{
    long_rows(*state);
}

/* A row of GPT-2's vocabulary fills a block's memory in 16 bits and does not fit in 32; two blocks of
 * half the threads share a multiprocessor only where rows are half as long. */
static void smaller_card(op_case *c)
{
    op_be_smaller_card(c);
    for (int d = 0; d < 3; d++) {
        loss_case(c, op_dtypes[d], (shape){3, 50257, 50304}, NONE_MASKED, true, 2);
        loss_case(c, op_dtypes[d], (shape){400, 8203, 8448}, SOME_MASKED, true, 2);
        loss_case(c, op_dtypes[d], (shape){150, 24001, 24064}, SOME_MASKED, d == 2, 2);
    }
    long_rows(c);
}

static void cross_entropy_on_a_smaller_card_agrees_with_the_oracle(void **state)
{
    smaller_card(*state);
}

/* Logits of -inf, a whole thread's share of them too, have no probability and no gradient. */
static void cross_entropy_leaves_out_logits_of_minus_infinity(void **state)
{
    op_case *c = *state;
    enum { V = 4096, LEFT = 3 };
    for (int d = 0; d < 3; d++) {
        yk_dtype t = op_dtypes[d];
        op_case_begin(c, t, "cross_entropy of -inf");
        yk_step_values values = {.loss_scale = 512};
        op_buffer *step = op_step_values(c, &values);
        double *x = op_out(c, V).value;
        for (int64_t i = 0; i < V; i++) x[i] = i < LEFT ? 1 : (double)-INFINITY;
        op_buffer *logits = op_given(c, OP_INOUT, t, V, x);
        op_buffer *targets = op_integers(c, 1, (int32_t[]){1});
        op_buffer *losses = op_output(c, YK_F32, 1);
        OP_RUN(c, yk_cross_entropy,
               &((yk_cross_entropy_args){.losses = losses->data,
                                         .logits = logits->data,
                                         .targets = targets->data,
                                         .values = step->data,
                                         .rows = 1,
                                         .vocab = V,
                                         .stride = V,
                                         .scale = 1.0f / 512,
                                         .backward = true,
                                         .dtype = t}));
        assert_true(fabs(losses->got[0] - log(LEFT)) < 1e-6);
        for (int64_t i = 0; i < V; i++) {
            double want = i >= LEFT ? 0 : i == 1 ? 1.0 / LEFT - 1 : 1.0 / LEFT;
            assert_true(fabs(logits->got[i] - want) <= (t == YK_F32 ? 1e-6 : 3e-3) * fabs(want));
        }
    }
}

static void cross_entropy_of_no_rows_does_nothing(void **state)
{
    loss_case(*state, YK_F32, (shape){0, 17, 32}, NONE_MASKED, true, 1);
}

/* ---- the sum ------------------------------------------------------------------------------ */

/* Sums are of doubles: n * 2^-53 of the sum of |terms|. */
static void sum_case(op_case *c, int64_t rows, masking masked)
{
    op_case_begin(c, YK_F32, "loss_sum R=%d masked=%d", (int)rows, (int)masked);
    yk_step_values before = {.loss_sum = 123.25, .n_tokens = 41, .loss_scale = 3}, after;
    op_buffer *step = op_step_values(c, &before);
    op_buffer *targets = targets_of(c, (shape){rows, 100, 100}, masked);
    double *losses = op_out(c, rows).value, sum = before.loss_sum, terms = sum;
    int64_t n = before.n_tokens;
    for (int64_t i = 0; i < rows; i++) {
        bool hidden = op_ints(targets)[i] < 0;
        losses[i] = hidden ? 0 : oracle_round(YK_F32, fabs(op_random_normal(c)));
        sum += losses[i];
        terms += losses[i];
        n += hidden ? 0 : 1;
    }
    op_buffer *loss = op_given(c, OP_INPUT, YK_F32, rows, losses);
    OP_RUN(
        c, yk_loss_sum,
        &((yk_loss_sum_args){
            .values = step->data, .losses = loss->data, .targets = targets->data, .rows = rows}));
    after = op_step_values_got(step);
    assert_true(fabs(after.loss_sum - sum) <= 0x1p-53 * (double)(rows + 1) * terms * 2);
    assert_int_equal(after.n_tokens, n);
    after.loss_sum = before.loss_sum;
    after.n_tokens = before.n_tokens;
    assert_memory_equal(&after, &before, sizeof after);
}

static void loss_sum_family(op_case *c)
{
    static const int64_t sizes[] = {0, 1, 3, 17, 127, 129, 511};
    for (int i = 0; i < 7; i++)
        for (int masked = NONE_MASKED; masked <= ALL_MASKED; masked++)
            sum_case(c, sizes[i], (masking)masked);
}

static void loss_sum_adds_losses_and_counts_unmasked_targets(void **state)
{
    loss_sum_family(*state);
}

static void loss_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(cross_entropy_family);
    if (tested_on_cuda()) op_expect_same_bits_again(smaller_card);
    op_expect_same_bits_again(loss_sum_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(cross_entropy_agrees_with_the_oracle),
        OP_TEST(cross_entropy_survives_large_logits),
        OP_TEST(cross_entropy_of_a_large_vocabulary_agrees_with_the_oracle),
        OP_TEST(cross_entropy_of_many_wide_rows_agrees_with_the_oracle),
        OP_TEST(cross_entropy_of_rows_longer_than_fast_memory_agrees_with_the_oracle),
        OP_TEST(cross_entropy_on_a_smaller_card_agrees_with_the_oracle),
        OP_TEST(cross_entropy_leaves_out_logits_of_minus_infinity),
        OP_TEST(cross_entropy_of_no_rows_does_nothing),
        OP_TEST(loss_sum_adds_losses_and_counts_unmasked_targets),
        cmocka_unit_test(loss_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
