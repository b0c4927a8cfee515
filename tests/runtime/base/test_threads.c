/* tests/runtime/base/test_threads.c - threads after a process has been bound. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/threads.h"

static void a_process_bound_after_its_start_takes_no_more_threads_than_processors(void **state)
{
    (void)state;
    omp_set_num_threads(4);
    cpu_set_t given, one;
    assert_int_equal(sched_getaffinity(0, sizeof given, &given), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(yk_threads(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof given, &given), 0);
    assert_int_equal(yk_threads(), CPU_COUNT(&given) < 4 ? CPU_COUNT(&given) : 4);
}

static void no_more_threads_than_were_asked_for_are_taken(void **state)
{
    (void)state;
    omp_set_num_threads(1);
    assert_int_equal(yk_threads(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_bound_after_its_start_takes_no_more_threads_than_processors),
        cmocka_unit_test(no_more_threads_than_were_asked_for_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
