/* tests/runtime/device/test_step.c - the optimiser's step is decided on the device.
 *
 * Bounds. Sums of squares are of doubles: 2 n 2^-53 relatively. What yk_step_finish() decides is
 * computed in double and stored as fp32: 2 units in the last place.
 */
#include <math.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "tests/runtime/device/op_case.h"

/* Every field holds something, so that one that is touched by mistake shows. */
static yk_step_values some_values(void)
{
    return (yk_step_values){.loss_sum = 9.5,
                            .sum_squares = 12.25,
                            .n_tokens = 60,
                            .skip = 7,
                            .grad_scale = 0.3f,
                            .grad_norm = 0.4f,
                            .correction1 = 0.5f,
                            .correction2 = 0.6f,
                            .lr = 0.01f,
                            .loss_scale = 1024,
                            .good_steps = 5,
                            .skips_in_a_row = 2,
                            .adam_steps = 11,
                            .steps_skipped = 3};
}

static void step_begin_zeroes_the_sums_and_sets_the_learning_rate(void **state)
{
    op_case *c = *state;
    op_case_begin(c, YK_F32, "step_begin");
    yk_step_values want = some_values();
    want.non_finite = 1;
    op_buffer *step = op_step_values(c, &want);
    OP_RUN(c, yk_step_begin, &((yk_step_begin_args){.values = step->data, .lr = 0.125f}));
    want.loss_sum = want.sum_squares = 0;
    want.n_tokens = 0;
    want.non_finite = 0;
    want.lr = 0.125f;
    yk_step_values got = op_step_values_got(step);
    assert_memory_equal(&got, &want, sizeof got);
}

/* ---- sum of squares ----------------------------------------------------------------------- */

/* Short, so that many lie in what is squared here. */
#define PIECE 4096

static void square(op_case *c, op_buffer *step, const yk_squares_run *runs, int n_runs, yk_dtype t)
{
    OP_RUN(c, yk_sum_squares,
           &((yk_sum_squares_args){
               .values = step->data, .runs = runs, .n_runs = n_runs, .piece = PIECE, .dtype = t}));
}

/* A bad number at a random place, unless it is 0. */
static void sum_case(op_case *c, yk_dtype t, int64_t n, double size, double bad, int flag_before)
{
    op_case_begin(c, t, "sum_squares n=%d size=%g bad=%g", (int)n, size, bad);
    yk_step_values before = some_values();
    before.non_finite = flag_before;
    op_buffer *step = op_step_values(c, &before);
    double *x = op_out(c, n).value, sum = before.sum_squares;
    for (int64_t i = 0; i < n; i++) {
        x[i] = oracle_round(t, op_random_normal(c) * size);
        sum += x[i] * x[i];
    }
    if (bad != 0) x[op_random_below(c, n)] = bad;
    op_buffer *in = op_given(c, OP_INPUT, t, n, x);
    square(c, step, &(yk_squares_run){in->data, n}, 1, t);
    yk_step_values after = op_step_values_got(step);
    assert_int_equal(after.non_finite, bad != 0 ? 1 : flag_before);
    if (bad == 0 && !(fabs(after.sum_squares - sum) <= 2 * (double)(n + 1) * 0x1p-53 * sum))
        fail_msg("%s: %.17g should be %.17g", c->label, after.sum_squares, sum);
    after.sum_squares = before.sum_squares;
    after.non_finite = before.non_finite;
    assert_memory_equal(&after, &before, sizeof after);
}

static void sum_squares_family(op_case *c)
{
    static const int64_t sizes[] = {0, 1, 3, 17, 127, 129, 4097, 70001};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 8; i++) {
            sum_case(c, op_dtypes[d], sizes[i], 1, 0, 0);
            sum_case(c, op_dtypes[d], sizes[i], 1, 0, 1);
        }
}

static void sum_squares_agrees_with_the_oracle(void **state)
{
    sum_squares_family(*state);
}

static void sum_squares_of_entries_of_1e20_is_right(void **state)
{
    sum_case(*state, YK_F32, 4099, 1e20, 0, 0);
    sum_case(*state, YK_BF16, 4099, 1e20, 0, 0);
    sum_case(*state, YK_F32, 4099, 1e-30, 0, 0);
}

static void sum_squares_flags_an_infinity_or_nan_anywhere(void **state)
{
    static const int64_t sizes[] = {1, 17, 4097, 70001};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 4; i++) {
            sum_case(*state, op_dtypes[d], sizes[i], 1, INFINITY, 0);
            sum_case(*state, op_dtypes[d], sizes[i], 1, -INFINITY, 1);
            sum_case(*state, op_dtypes[d], sizes[i], 1, NAN, 0);
        }
}

static void *elements_from(const op_buffer *b, int64_t index, yk_dtype t)
{
    return (char *)b->data + index * yk_dtype_bytes(t);
}

/* Runs of no element, of less than a piece, of one, of several and of a last one that is not whole, as many
 * as one call takes; each begins where the one before ends, rounded up to 128. */
static int64_t make_runs(int64_t *begins, int64_t *counts)
{
    static const int64_t sizes[] = {PIECE + 5, 0, 1, 129, PIECE, 3 * PIECE, 2 * PIECE + 1, 70};
    int64_t n = 0;
    for (int i = 0; i < YK_STEP_RUNS; i++) {
        begins[i] = n;
        counts[i] = sizes[i % 8];
        n += yk_round_up(counts[i], 128);
    }
    return n;
}

/* A sum that stands beside does not hide what an order changes. */
static void a_call_gives_the_bits_of_a_call_for_each_piece(void **state)
{
    op_case *c = *state;
    for (int d = 0; d < 3; d++) {
        int64_t begins[YK_STEP_RUNS], counts[YK_STEP_RUNS], n = make_runs(begins, counts);
        yk_dtype t = op_dtypes[d];
        op_case_begin(c, t, "sum_squares of %d runs", YK_STEP_RUNS);
        yk_step_values before = some_values();
        op_buffer *x = op_input(c, t, n, 1);
        op_buffer *once = op_step_values(c, &before), *often = op_step_values(c, &before);
        yk_squares_run runs[YK_STEP_RUNS];
        for (int i = 0; i < YK_STEP_RUNS; i++)
            runs[i] = (yk_squares_run){elements_from(x, begins[i], t), counts[i]};
        square(c, once, runs, YK_STEP_RUNS, t);
        for (int i = 0; i < YK_STEP_RUNS; i++)
            for (int64_t k = 0; k < counts[i]; k += PIECE) {
                const yk_squares_run piece = {elements_from(x, begins[i] + k, t),
                                              yk_min(PIECE, counts[i] - k)};
                square(c, often, &piece, 1, t);
            }
        yk_step_values got = op_step_values_got(once), want = op_step_values_got(often);
        assert_true(got.sum_squares > before.sum_squares);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

/* The bad one lies in the last piece of the last run. */
static void a_bad_element_of_any_run_is_found(void **state)
{
    op_case *c = *state;
    for (int d = 0; d < 3; d++) {
        yk_dtype t = op_dtypes[d];
        int64_t n = 2 * PIECE + 300;
        op_case_begin(c, t, "sum_squares of two runs");
        yk_step_values before = some_values();
        double *x = op_out(c, n).value;
        for (int64_t i = 0; i < n; i++) x[i] = i == n - 1 ? (double)INFINITY : 1;
        op_buffer *in = op_given(c, OP_INPUT, t, n, x), *step = op_step_values(c, &before);
        const yk_squares_run runs[] = {{in->data, 256}, {elements_from(in, 256, t), n - 256}};
        square(c, step, runs, 2, t);
        assert_int_equal(op_step_values_got(step).non_finite, 1);
    }
}

static void sum_squares_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(sum_squares_family);
}

/* ---- the decision ------------------------------------------------------------------------- */

static const yk_step_finish_args usual = {.expected_tokens = 64,
                                          .clip = 1,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.999f,
                                          .dynamic_scale = true,
                                          .scale_floor = 1,
                                          .scale_ceiling = 65536,
                                          .growth_interval = 100};

static void expect_float(const char *name, float got, float want)
{
    if (!(fabsf(got - want) <= 0x1p-22f * fabsf(want)))
        fail_msg("%s is %.9g and should be %.9g", name, (double)got, (double)want);
}

static yk_step_values finish(op_case *c, yk_step_values before, yk_step_finish_args a)
{
    op_case_begin(c, YK_F32, "step_finish");
    op_buffer *step = op_step_values(c, &before);
    a.values = step->data;
    OP_RUN(c, yk_step_finish, &a);
    return op_step_values_got(step);
}

/* Against the oracle, field by field. */
static yk_step_values finish_and_compare(op_case *c, yk_step_values before, yk_step_finish_args a)
{
    yk_step_values got = finish(c, before, a), want = before;
    oracle_step_finish(&want, &a);
    assert_int_equal(got.skip, want.skip);
    if (a.dynamic_scale) assert_int_equal(got.good_steps, want.good_steps);
    assert_int_equal(got.skips_in_a_row, want.skips_in_a_row);
    assert_int_equal(got.adam_steps, want.adam_steps);
    assert_int_equal(got.steps_skipped, want.steps_skipped);
    assert_true(got.loss_scale == want.loss_scale);
    assert_true(got.lr == before.lr && got.loss_sum == before.loss_sum);
    assert_true(got.n_tokens == before.n_tokens && got.non_finite == before.non_finite);
    if (want.skip) {
        assert_false(isfinite(got.grad_norm));
    } else {
        assert_true(got.sum_squares == before.sum_squares);
        expect_float("grad_norm", got.grad_norm, want.grad_norm);
        expect_float("grad_scale", got.grad_scale, want.grad_scale);
        expect_float("correction1", got.correction1, want.correction1);
        expect_float("correction2", got.correction2, want.correction2);
    }
    return got;
}

/* By hand: sqrt(12.25) 64/60 / 1024 = 0.0036458; below the clip, so the scale alone. */
static void a_good_step_unscales_averages_and_counts(void **state)
{
    yk_step_values got = finish_and_compare(*state, some_values(), usual);
    expect_float("grad_norm", got.grad_norm, 3.5f * 64 / 60 / 1024);
    expect_float("grad_scale", got.grad_scale, 64.0f / 60 / 1024);
    assert_int_equal(got.adam_steps, 12);
    assert_int_equal(got.skips_in_a_row, 0);
    assert_int_equal(got.good_steps, 6);
    assert_true(got.loss_scale == 1024);
}

static void a_large_gradient_is_clipped_to_the_norm(void **state)
{
    yk_step_values values = some_values();
    values.sum_squares = 1e10;
    yk_step_values got = finish_and_compare(*state, values, usual);
    expect_float("clipped norm", (float)(sqrt(1e10) * (double)got.grad_scale), 1);
    yk_step_finish_args unclipped = usual;
    unclipped.clip = 0;
    got = finish_and_compare(*state, values, unclipped);
    expect_float("grad_scale", got.grad_scale, 64.0f / 60 / 1024);
}

static void the_norm_of_entries_of_1e20_is_clipped_right(void **state)
{
    yk_step_values values = some_values();
    values.loss_scale = 1;
    values.sum_squares = 1e40 * 1e6;
    yk_step_values got = finish_and_compare(*state, values, usual);
    expect_float("clipped norm", (float)(1e23 * (double)got.grad_scale), 1);
}

static void an_overflow_skips_and_halves_the_scale(void **state)
{
    yk_step_values values = some_values();
    values.non_finite = 1;
    values.sum_squares = INFINITY;
    yk_step_values got = finish_and_compare(*state, values, usual);
    assert_int_equal(got.skip, 1);
    assert_int_equal(got.adam_steps, 11);
    assert_int_equal(got.steps_skipped, 4);
    assert_int_equal(got.skips_in_a_row, 3);
    assert_int_equal(got.good_steps, 0);
    assert_true(got.loss_scale == 512);
    values.sum_squares = NAN;
    finish_and_compare(*state, values, usual);
    values.sum_squares = 12.25; /* a flag alone is enough */
    finish_and_compare(*state, values, usual);
}

static void the_scale_stops_at_its_floor(void **state)
{
    yk_step_values values = some_values();
    values.non_finite = 1;
    values.sum_squares = NAN;
    values.loss_scale = 1.5f;
    assert_true(finish_and_compare(*state, values, usual).loss_scale == 1);
    values.loss_scale = 1;
    assert_true(finish_and_compare(*state, values, usual).loss_scale == 1);
}

static void an_overflow_without_dynamic_scale_skips_alone(void **state)
{
    yk_step_finish_args fixed = usual;
    fixed.dynamic_scale = false;
    yk_step_values values = some_values();
    values.non_finite = 1;
    values.sum_squares = NAN;
    yk_step_values got = finish_and_compare(*state, values, fixed);
    assert_int_equal(got.skip, 1);
    assert_true(got.loss_scale == 1024);
    fixed.growth_interval = 0;
    assert_true(finish_and_compare(*state, some_values(), fixed).loss_scale == 1024);
}

static void the_scale_doubles_after_the_interval_of_good_steps(void **state)
{
    yk_step_finish_args soon = usual;
    soon.growth_interval = 7;
    yk_step_values got = finish_and_compare(*state, some_values(), soon);
    assert_true(got.loss_scale == 1024);
    got = finish_and_compare(*state, got, soon);
    assert_true(got.loss_scale == 2048);
    assert_int_equal(got.good_steps, 0);
    /* The step that doubles it is still unscaled by what its backward pass used. */
    expect_float("grad_scale", got.grad_scale, 64.0f / 60 / 1024);
}

static void the_scale_stops_at_its_ceiling(void **state)
{
    yk_step_finish_args soon = usual;
    soon.growth_interval = 1;
    soon.scale_ceiling = 1500;
    yk_step_values got = finish_and_compare(*state, some_values(), soon);
    assert_true(got.loss_scale == 1500);
    assert_true(finish_and_compare(*state, got, soon).loss_scale == 1500);
}

static void a_step_without_tokens_has_norm_zero_and_a_finite_scale(void **state)
{
    yk_step_values values = some_values();
    values.n_tokens = 0;
    values.sum_squares = 0;
    values.loss_sum = 0;
    yk_step_values got = finish(*state, values, usual);
    assert_int_equal(got.skip, 0);
    assert_true(got.grad_norm == 0);
    assert_true(isfinite(got.grad_scale));
    assert_int_equal(got.adam_steps, 12);
}

static void the_first_step_has_full_bias_correction(void **state)
{
    yk_step_values values = some_values();
    values.adam_steps = 0;
    yk_step_values got = finish_and_compare(*state, values, usual);
    expect_float("correction1", got.correction1, (float)(1 - (double)0.9f));
    expect_float("correction2", got.correction2, (float)(1 - (double)0.999f));
    values.adam_steps = INT64_C(5000000000);
    got = finish_and_compare(*state, values, usual);
    assert_true(got.correction1 == 1 && got.correction2 == 1);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(step_begin_zeroes_the_sums_and_sets_the_learning_rate),
        OP_TEST(sum_squares_agrees_with_the_oracle),
        OP_TEST(sum_squares_of_entries_of_1e20_is_right),
        OP_TEST(sum_squares_flags_an_infinity_or_nan_anywhere),
        OP_TEST(a_call_gives_the_bits_of_a_call_for_each_piece),
        OP_TEST(a_bad_element_of_any_run_is_found),
        cmocka_unit_test(sum_squares_gives_the_same_bits_again),
        OP_TEST(a_good_step_unscales_averages_and_counts),
        OP_TEST(a_large_gradient_is_clipped_to_the_norm),
        OP_TEST(the_norm_of_entries_of_1e20_is_clipped_right),
        OP_TEST(an_overflow_skips_and_halves_the_scale),
        OP_TEST(the_scale_stops_at_its_floor),
        OP_TEST(an_overflow_without_dynamic_scale_skips_alone),
        OP_TEST(the_scale_doubles_after_the_interval_of_good_steps),
        OP_TEST(the_scale_stops_at_its_ceiling),
        OP_TEST(a_step_without_tokens_has_norm_zero_and_a_finite_scale),
        OP_TEST(the_first_step_has_full_bias_correction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
