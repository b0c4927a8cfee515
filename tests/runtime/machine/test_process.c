/* tests/runtime/machine/test_process.c - what is told of a child, and of one that is no more. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/machine/process.h"

/* A child that sleeps, with an environment of its own. */
static pid_t start_child(void)
{
    char text[8];
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *const words[] = {"sleep", "300", NULL};
        char *const env[] = {"FIRST=1", "YOKE_TEST=here = there", "YOKE_TEST_2=no", NULL};
        execve("/bin/sleep", words, env);
        _exit(127);
    }
    for (int i = 0; i < 1000 && !yk_process_variable(child, "FIRST", text, sizeof text); i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    return child;
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static bool becomes(pid_t child, char state)
{
    for (int i = 0; i < 1000 && yk_process_state(child) != state; i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    return yk_process_state(child) == state;
}

static void a_child_is_told_with_its_state(void **state)
{
    pid_t children[8] = {0};
    (void)state;
    assert_int_equal(yk_process_children(getpid(), children, 8), 0);
    pid_t child = start_child();
    assert_int_equal(yk_process_children(getpid(), children, 8), 1);
    assert_int_equal(children[0], child);
    assert_int_equal(yk_process_children(getpid(), children, 0), 0);
    assert_int_equal(yk_process_parent(child), getpid());
    kill(child, SIGSTOP);
    assert_true(becomes(child, YK_PROCESS_STOPPED));
    kill(child, SIGKILL);
    assert_true(becomes(child, YK_PROCESS_ENDED));
    assert_int_equal(yk_process_children(getpid(), children, 8), 1);
    waitpid(child, NULL, 0);
    assert_int_equal(yk_process_children(getpid(), children, 8), 0);
    assert_int_equal(yk_process_state(child), 0);
    assert_int_equal(yk_process_parent(child), 0);
}

static void a_variable_is_found_by_its_whole_name(void **state)
{
    char text[64];
    pid_t child = start_child();
    (void)state;
    assert_true(yk_process_variable(child, "YOKE_TEST", text, sizeof text));
    assert_string_equal(text, "here = there");
    assert_true(yk_process_variable(child, "YOKE_TEST", text, 5));
    assert_string_equal(text, "here");
    assert_false(yk_process_variable(child, "YOKE", text, sizeof text));
    assert_string_equal(text, "");
    end_child(child);
    assert_false(yk_process_variable(child, "YOKE_TEST", text, sizeof text));
}

static void a_copy_runs_the_same_and_another_program_does_not(void **state)
{
    pid_t child = start_child(), copy = fork();
    (void)state;
    if (copy == 0) {
        pause();
        _exit(0);
    }
    char path[YK_PROCESS_PATH];
    yk_process_program(getpid(), path);
    assert_string_equal(strrchr(path, '/'), "/test_process");
    assert_true(yk_process_runs_same(copy, getpid()));
    assert_false(yk_process_runs_same(child, getpid()));
    end_child(copy);
    end_child(child);
    assert_false(yk_process_runs_same(child, child));
    yk_process_program(child, path);
    assert_string_equal(path, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_told_with_its_state),
        cmocka_unit_test(a_variable_is_found_by_its_whole_name),
        cmocka_unit_test(a_copy_runs_the_same_and_another_program_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
