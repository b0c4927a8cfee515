/* tests/runtime/base/test_clock.c - durations by the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/base/clock.h"

static void never_goes_back(void **state)
{
    (void)state;
    int64_t last = yk_clock_ns();
    for (int i = 0; i < 10000; i++) {
        int64_t now = yk_clock_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void seconds_and_nanoseconds_are_of_one_clock(void **state)
{
    (void)state;
    double before = 1e-9 * (double)yk_clock_ns(), between = yk_clock_s();
    double after = 1e-9 * (double)yk_clock_ns();
    assert_true(before <= between && between <= after);
}

static void a_sleep_is_as_long_as_it_was_asked_to_be(void **state)
{
    (void)state;
    double begin = yk_clock_s();
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    assert_true(yk_clock_s() - begin >= 3e-3);
}

static void a_process_gets_older(void **state)
{
    (void)state;
    double before = yk_clock_age_s();
    assert_true(before >= 0 && before < 60);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    double after = yk_clock_age_s();
    assert_true(after >= before + 0.03 && after < before + 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_goes_back),
        cmocka_unit_test(seconds_and_nanoseconds_are_of_one_clock),
        cmocka_unit_test(a_sleep_is_as_long_as_it_was_asked_to_be),
        cmocka_unit_test(a_process_gets_older),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
