/* tests/runtime/base/test_side_thread.c - signals go past a thread beside the work. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/side_thread.h"

static void *read_mask(void *mask_out)
{
    pthread_sigmask(SIG_SETMASK, NULL, mask_out);
    return NULL;
}

static void the_thread_takes_no_signals_and_the_caller_does_as_before(void **state)
{
    sigset_t of_thread, own;
    pthread_t thread;
    (void)state;
    sigemptyset(&of_thread);
    assert_int_equal(yk_side_thread_start(&thread, read_mask, &of_thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &own);
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCONT, SIGCHLD};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        assert_int_equal(sigismember(&of_thread, signals[i]), 1);
        assert_int_equal(sigismember(&own, signals[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thread_takes_no_signals_and_the_caller_does_as_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
