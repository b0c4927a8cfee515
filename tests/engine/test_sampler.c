/* tests/engine/test_sampler.c - tokens are chosen as often as their probabilities say, from those
 * that the options leave, and the same ones again for the same seed and counter.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sampler.h"
#include "tests/runtime/scratch.h"

static int32_t sample(const float *logits, int64_t vocab, const yk_sample_options *o,
                      uint64_t counter)
{
    int32_t token = -1;
    assert_int_equal(yk_sample_token(logits, vocab, o, counter, &token), YK_OK);
    assert_true(token >= 0 && token < vocab);
    return token;
}

/* Draw 20,000 tokens; no token of probability 0 comes, and Pearson's chi-square of the rest stays
 * under its mean plus five deviations: k - 1 + 5 sqrt(2 (k - 1)). */
static void expect_frequencies(const float *logits, int64_t vocab, const yk_sample_options *o,
                               const double *probabilities)
{
    enum { DRAWS = 20000 };
    int64_t counts[64] = {0}, k = 0;
    double chi_square = 0;
    for (uint64_t i = 0; i < DRAWS; i++) counts[sample(logits, vocab, o, i)]++;
    for (int64_t i = 0; i < vocab; i++) {
        double expected = probabilities[i] * DRAWS;
        if (expected == 0) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        double off = (double)counts[i] - expected;
        chi_square += off * off / expected;
        k++;
    }
    double freedom = (double)(k - 1);
    if (chi_square > freedom + 5 * sqrt(2 * freedom)) fail_msg("chi-square is %g", chi_square);
}

/* Probabilities 0.4, 0.3, 0.15, 0.1, 0.05 in no order; the last two logits are padding. */
static const float five[] = {-1.8971199848858813f,
                             -0.9162907318741551f,
                             -2.995732273553991f,
                             -1.2039728043259361f,
                             -2.3025850929940455f,
                             50.0f,
                             NAN};

static void frequencies_are_the_probabilities(void **state)
{
    (void)state;
    yk_sample_options o = {.temperature = 1, .top_p = 1, .seed = 3};
    expect_frequencies(five, 5, &o, (double[]){0.15, 0.4, 0.05, 0.3, 0.1});
}

static void seeds_and_counters_draw_independently(void **state)
{
    (void)state;
    /* Pairs of draws of neighbouring counters, and of neighbouring seeds: 4 x 4 equal cells. */
    float logits[16] = {0};
    for (int by_seed = 0; by_seed < 2; by_seed++) {
        int64_t cells[16] = {0};
        double chi_square = 0;
        for (uint64_t i = 0; i < 16000; i++) {
            yk_sample_options a = {.temperature = 1, .top_p = 1, .seed = 5}, b = a;
            if (by_seed) a.seed = (int64_t)i, b.seed = (int64_t)i + 1;
            int32_t x = sample(logits, 4, &a, by_seed ? 9 : i);
            int32_t y = sample(logits, 4, &b, by_seed ? 9 : i + 1);
            cells[4 * x + y]++;
        }
        for (int i = 0; i < 16; i++)
            chi_square += ((double)cells[i] - 1000) * ((double)cells[i] - 1000) / 1000;
        assert_true(chi_square < 15 + 5 * sqrt(30));
    }
}

static void temperature_sharpens_and_flattens(void **state)
{
    (void)state;
    double p[5] = {0.15, 0.4, 0.05, 0.3, 0.1};
    for (int i = 0; i < 2; i++) {
        double temperature = i ? 2.0 : 0.5, total = 0, q[5];
        for (int t = 0; t < 5; t++) total += q[t] = pow(p[t], 1 / temperature);
        for (int t = 0; t < 5; t++) q[t] /= total;
        yk_sample_options o = {.temperature = temperature, .top_p = 1, .seed = 4};
        expect_frequencies(five, 5, &o, q);
    }
}

static void top_k_keeps_the_k_largest(void **state)
{
    (void)state;
    yk_sample_options o = {.temperature = 1, .top_p = 1, .top_k = 3, .seed = 6};
    expect_frequencies(five, 5, &o, (double[]){0.15 / 0.85, 0.4 / 0.85, 0, 0.3 / 0.85, 0});
    o.top_k = 5;
    expect_frequencies(five, 5, &o, (double[]){0.15, 0.4, 0.05, 0.3, 0.1});
    o.top_k = 1000;
    expect_frequencies(five, 5, &o, (double[]){0.15, 0.4, 0.05, 0.3, 0.1});
}

static void top_p_keeps_the_fewest_that_reach_it(void **state)
{
    (void)state;
    yk_sample_options o = {.temperature = 1, .top_p = 0.65, .seed = 8};
    expect_frequencies(five, 5, &o, (double[]){0, 0.4 / 0.7, 0, 0.3 / 0.7, 0});
    o.top_p = 0.75;
    expect_frequencies(five, 5, &o, (double[]){0.15 / 0.85, 0.4 / 0.85, 0, 0.3 / 0.85, 0});
    o.top_p = 0.39;
    expect_frequencies(five, 5, &o, (double[]){0, 1, 0, 0, 0});
}

static void top_p_is_a_share_of_what_top_k_leaves(void **state)
{
    (void)state;
    /* Of 0.4 and 0.3 the first alone has 0.571. */
    yk_sample_options o = {.temperature = 1, .top_k = 2, .top_p = 0.57, .seed = 8};
    expect_frequencies(five, 5, &o, (double[]){0, 1, 0, 0, 0});
    o.top_p = 0.58;
    expect_frequencies(five, 5, &o, (double[]){0, 0.4 / 0.7, 0, 0.3 / 0.7, 0});
}

static void greedy_is_the_first_of_the_largest(void **state)
{
    (void)state;
    float logits[] = {1, 7, -INFINITY, 7, 6.9999f};
    const yk_sample_options greedy[] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 1, .top_p = 0},
        {.temperature = 100, .top_p = 1, .top_k = 1},
    };
    for (int i = 0; i < 3; i++)
        for (uint64_t counter = 0; counter < 200; counter++)
            assert_int_equal(sample(logits, 5, &greedy[i], counter), 1);
}

static void equal_logits_rank_by_token(void **state)
{
    (void)state;
    float logits[40];
    double expected[40] = {0};
    for (int i = 0; i < 40; i++) logits[i] = i % 2 ? 1.0f : 0.5f;
    for (int i = 0; i < 6; i++) expected[2 * i + 1] = 1.0 / 6;
    yk_sample_options o = {.temperature = 1, .top_p = 1, .top_k = 6, .seed = 1};
    expect_frequencies(logits, 40, &o, expected);
}

static void a_cold_temperature_does_not_overflow(void **state)
{
    (void)state;
    float logits[] = {-3e38f, 3e38f, 2.9e38f};
    yk_sample_options o = {.temperature = 1e-300, .top_p = 1};
    for (uint64_t i = 0; i < 50; i++) assert_int_equal(sample(logits, 3, &o, i), 1);
    o.temperature = 5e-324;
    float equal[] = {2, 2};
    int64_t first = 0;
    for (uint64_t i = 0; i < 400; i++) first += sample(equal, 2, &o, i) == 0;
    assert_true(first > 100 && first < 300);
}

static void the_same_seed_and_counter_choose_the_same_token(void **state)
{
    (void)state;
    yk_sample_options o = {.temperature = 1, .top_p = 0.9, .seed = -12};
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(sample(five, 5, &o, i << 40), sample(five, 5, &o, i << 40));
}

static void expect_diverged(const float *logits, int64_t vocab, const char *part)
{
    yk_sample_options o = {.temperature = 1, .top_p = 1};
    int32_t token = -7;
    int saved = scratch_stderr_begin();
    yk_status status = yk_sample_token(logits, vocab, &o, 0, &token);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_EDIVERGED);
    assert_true(scratch_is_one_line(said, part));
    assert_int_equal(token, -7);
    free(said);
}

static void logits_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    expect_diverged((float[]){1, NAN, 2}, 3, "that of token 1 is nan");
    expect_diverged((float[]){NAN, NAN}, 2, "that of token 0 is nan");
    expect_diverged((float[]){1, 2, INFINITY}, 3, "that of token 2 is inf");
    expect_diverged((float[]){-INFINITY, -INFINITY}, 2, "all are -infinity");
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    const yk_sample_options good = {.temperature = 0.8, .top_k = 40, .top_p = 0.95};
    assert_int_equal(yk_sample_options_check(&good), YK_OK);
    const struct {
        yk_sample_options o;
        const char *part;
    } bad[] = {
        {{.temperature = -0.1, .top_p = 1}, "temperature"},
        {{.temperature = NAN, .top_p = 1}, "temperature"},
        {{.temperature = INFINITY, .top_p = 1}, "temperature"},
        {{.temperature = 1, .top_p = 1.01}, "top-p"},
        {{.temperature = 1, .top_p = -0.01}, "top-p"},
        {{.temperature = 1, .top_p = NAN}, "top-p"},
        {{.temperature = 1, .top_p = 1, .top_k = -1}, "top-k"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int saved = scratch_stderr_begin();
        yk_status status = yk_sample_options_check(&bad[i].o);
        char *said = scratch_stderr_end(saved);
        assert_int_equal(status, YK_EINVAL);
        assert_true(scratch_is_one_line(said, bad[i].part));
        free(said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_the_probabilities),
        cmocka_unit_test(seeds_and_counters_draw_independently),
        cmocka_unit_test(temperature_sharpens_and_flattens),
        cmocka_unit_test(top_k_keeps_the_k_largest),
        cmocka_unit_test(top_p_keeps_the_fewest_that_reach_it),
        cmocka_unit_test(top_p_is_a_share_of_what_top_k_leaves),
        cmocka_unit_test(greedy_is_the_first_of_the_largest),
        cmocka_unit_test(equal_logits_rank_by_token),
        cmocka_unit_test(a_cold_temperature_does_not_overflow),
        cmocka_unit_test(the_same_seed_and_counter_choose_the_same_token),
        cmocka_unit_test(logits_that_are_no_numbers_are_refused),
        cmocka_unit_test(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
