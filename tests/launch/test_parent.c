/* tests/launch/test_parent.c - a command that does not answer ends with all that it has started. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/parent.h"

/* Runs it in a shell. */
static char *ask(const char *script, int limit_s, yk_ended *ended)
{
    yk_command command = {.is_short = false};
    char *answer = NULL;
    yk_command_add(&command, "bash");
    yk_command_add(&command, "-c");
    yk_command_add(&command, "%s", script);
    assert_int_equal(yk_command_check(&command), YK_OK);
    assert_int_equal(yk_parent_ask(&command, limit_s, &answer, ended), YK_OK);
    yk_command_fini(&command);
    return answer;
}

static void an_answer_comes_with_the_status(void **state)
{
    yk_ended ended;
    (void)state;
    char *answer = ask("echo here; exit 3", 600, &ended);
    assert_string_equal(answer, "here\n");
    assert_int_equal(ended.exit_status, 3);
    assert_false(ended.was_asked || ended.is_late);
    free(answer);
}

/* A child in a session of its own, as mpirun's ssh is, whose number is the answer. */
#define SCRIPT(end) "setsid sleep 300 & echo $!; " end

static void expect_gone(char *answer)
{
    pid_t left = (pid_t)strtol(answer, NULL, 10);
    assert_true(left > 1);
    assert_int_equal(kill(left, 0), -1);
    free(answer);
}

static void what_is_late_ends_with_its_children_in_other_groups(void **state)
{
    yk_ended ended;
    (void)state;
    expect_gone(ask(SCRIPT("wait"), 1, &ended));
    assert_true(ended.is_late && !ended.was_asked);
}

static void what_does_not_hear_is_killed(void **state)
{
    yk_ended ended;
    (void)state;
    expect_gone(ask("trap '' TERM; " SCRIPT("while :; do sleep 1; done"), 1, &ended));
    assert_true(ended.is_late);
}

static void a_signal_ends_it_with_its_children(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    (void)state;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        char script[128];
        yk_ended ended;
        snprintf(script, sizeof script, SCRIPT("kill -%d $PPID; wait"), signals[i]);
        expect_gone(ask(script, 600, &ended));
        assert_true(ended.was_asked && !ended.is_late);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_with_the_status),
        cmocka_unit_test(what_is_late_ends_with_its_children_in_other_groups),
        cmocka_unit_test(what_does_not_hear_is_killed),
        cmocka_unit_test(a_signal_ends_it_with_its_children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
