/* tests/runtime/data/test_sampler.c - every window once an epoch, in an order that looks random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/data/sampler.h"

/* Every number below n comes once in the epoch. */
static void expect_permutation(int64_t n, int64_t seed, int64_t epoch)
{
    yk_sampler s = {.n = n, .seed = seed};
    uint8_t *seen = calloc((size_t)n, 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t w = yk_sampler_at(&s, epoch * n + i);
        assert_true(w >= 0 && w < n);
        assert_int_equal(seen[w], 0);
        seen[w] = 1;
    }
    free(seen);
}

static void every_size_up_to_300_is_permuted(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 300; n++) {
        for (int64_t epoch = 0; epoch < 3; epoch++) expect_permutation(n, 1337, epoch);
    }
}

static void large_sizes_are_permuted(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1023, 1024, 1025, 65535, 65537, 999983, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        expect_permutation(sizes[i], (int64_t)i - 3, 7);
    }
}

static void sizes_and_positions_beyond_32_bits_work(void **state)
{
    (void)state;
    yk_sampler s = {.n = (INT64_C(1) << 40) + 12345, .seed = 5};
    int64_t last = -1;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t w = yk_sampler_at(&s, s.n * 1000 + i);
        assert_true(w >= 0 && w < s.n && w != last);
        last = w;
    }
}

static void seeds_and_epochs_give_other_orders(void **state)
{
    (void)state;
    yk_sampler a = {.n = 1000, .seed = 1}, b = {.n = 1000, .seed = 2};
    int same_seed = 0, same_epoch = 0, in_order = 0;
    for (int64_t i = 0; i < 1000; i++) {
        same_seed += yk_sampler_at(&a, i) == yk_sampler_at(&b, i);
        same_epoch += yk_sampler_at(&a, i) == yk_sampler_at(&a, i + 1000);
        in_order += yk_sampler_at(&a, i) == i;
    }
    assert_true(same_seed < 10 && same_epoch < 10 && in_order < 10); /* 1 is expected */
    assert_int_equal(yk_sampler_at(&a, 123), yk_sampler_at(&a, 123));
}

/* Chi-squared over (position, window) pairs of many epochs: (n-1)^2 degrees of freedom. */
static void each_window_comes_as_often_at_each_position(void **state)
{
    (void)state;
    static const int64_t sizes[] = {2, 3, 5, 8, 13, 40};
    const int64_t epochs = 20000;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        int64_t n = sizes[k];
        yk_sampler s = {.n = n, .seed = 42};
        int64_t *count = calloc((size_t)(n * n), sizeof *count);
        for (int64_t p = 0; p < n * epochs; p++) count[p % n * n + yk_sampler_at(&s, p)]++;
        double expected = (double)epochs / (double)n, chi = 0;
        for (int64_t i = 0; i < n * n; i++) {
            double d = (double)count[i] - expected;
            chi += d * d / expected;
        }
        double freedom = (double)((n - 1) * (n - 1));
        if (chi > 2 * freedom + 12) fail_msg("n %d: chi-squared %g of %g", (int)n, chi, freedom);
        free(count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_up_to_300_is_permuted),
        cmocka_unit_test(large_sizes_are_permuted),
        cmocka_unit_test(sizes_and_positions_beyond_32_bits_work),
        cmocka_unit_test(seeds_and_epochs_give_other_orders),
        cmocka_unit_test(each_window_comes_as_often_at_each_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
