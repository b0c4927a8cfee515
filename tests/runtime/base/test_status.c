/* tests/runtime/base/test_status.c - what people and scripts see of a failure. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"

static const yk_status every_status[] = {
    YK_OK,     YK_EINVAL,    YK_EFORMAT, YK_EUNSUPPORTED, YK_ENOFIT,    YK_EIO,
    YK_ENOMEM, YK_EDIVERGED, YK_EDEVICE, YK_EPEER,        YK_ETIMEDOUT, YK_ESTOPPED,
};

#define N_STATUSES (int)(sizeof every_status / sizeof every_status[0])

/* stderr of this process goes into a packet-mode pipe, where each read(2) gives what one write(2)
 * put in, until capture_end(). */
typedef struct capture {
    int reader, saved_stderr;
} capture;

static void capture_begin(capture *c)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_DIRECT), 0);
    c->reader = ends[0];
    c->saved_stderr = dup(STDERR_FILENO);
    assert_true(c->saved_stderr >= 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
}

/* The text of the next single write, NUL-terminated, into text (capacity); its length. */
static ssize_t capture_next(const capture *c, char *text, size_t capacity)
{
    ssize_t n = read(c->reader, text, capacity - 1);
    assert_true(n >= 0);
    text[n] = '\0';
    return n;
}

static void capture_end(capture *c)
{
    dup2(c->saved_stderr, STDERR_FILENO);
    close(c->saved_stderr);
    close(c->reader);
}

static void every_status_has_its_own_text(void **state)
{
    (void)state;
    for (int i = 0; i < N_STATUSES; i++) {
        assert_true(strlen(yk_status_text(every_status[i])) > 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(yk_status_text(every_status[i]),
                                    yk_status_text(every_status[j]));
    }
}

static void exit_codes_are_as_the_header_says(void **state)
{
    static const int codes[] = {0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 75};
    (void)state;
    for (int i = 0; i < N_STATUSES; i++)
        assert_int_equal(yk_status_exit_code(every_status[i]), codes[i]);
}

static void a_failure_is_one_line_in_one_write(void **state)
{
    char text[8192];
    capture c;
    (void)state;
    capture_begin(&c);
    yk_status s = yk_fail(YK_EINVAL, "train.steps", "%d is below 1; give at least %s", -3, "one");
    capture_next(&c, text, sizeof text);
    capture_end(&c);
    assert_int_equal(s, YK_EINVAL);
    assert_string_equal(text, "yoke: train.steps: -3 is below 1; give at least one\n");
}

static void a_warning_says_that_it_is_one(void **state)
{
    char text[8192];
    capture c;
    (void)state;
    capture_begin(&c);
    yk_warn("data.val", "%s", "has no targets");
    capture_next(&c, text, sizeof text);
    capture_end(&c);
    assert_string_equal(text, "yoke: warning: data.val: has no targets\n");
}

static void control_characters_of_a_path_do_not_break_the_line(void **state)
{
    char text[8192];
    capture c;
    (void)state;
    capture_begin(&c);
    yk_fail(YK_EIO, "a\nb", "cannot open \x1b[31m%s", "c\r\td\xc3\xa9");
    capture_next(&c, text, sizeof text);
    capture_end(&c);
    assert_string_equal(text, "yoke: a b: cannot open  [31mc  d\xc3\xa9\n");
}

/* What a terminal would take for a command, or cannot show: C1 controls, half a character, a stray byte. */
static void bytes_that_are_no_text_are_not_shown(void **state)
{
    char text[8192];
    capture c;
    (void)state;
    capture_begin(&c);
    yk_fail(YK_EINVAL,
            "\x7f"
            "ELF\xff",
            "\xc2\x9b"
            "2J \xe2\x82\xac \xe2\x82 \x80%s",
            "\xc3");
    capture_next(&c, text, sizeof text);
    capture_end(&c);
    assert_string_equal(text, "yoke:  ELF?:   2J \xe2\x82\xac ?? ??\n");
}

/* At every length around the limit there is one newline, at the end, and what was cut says so. */
static void a_long_message_is_cut_and_says_so(void **state)
{
    char text[8192], why[6001];
    capture c;
    (void)state;
    for (size_t n = 4060; n <= 6000; n += n < 4110 ? 1 : 600) {
        memset(why, 'x', n);
        why[n] = '\0';
        capture_begin(&c);
        yk_fail(YK_EIO, "f", "%s", why);
        ssize_t got = capture_next(&c, text, sizeof text);
        capture_end(&c);
        assert_true(got <= PIPE_BUF);
        assert_ptr_equal(strchr(text, '\n'), text + got - 1);
        if (n + strlen("yoke: f: \n") <= PIPE_BUF - 1) {
            assert_int_equal(got, n + strlen("yoke: f: \n"));
        } else {
            assert_string_equal(text + got - 5, "x...\n");
        }
    }
}

static void reporting_leaves_errno_alone(void **state)
{
    char text[8192];
    capture c;
    (void)state;
    capture_begin(&c);
    close(STDERR_FILENO);
    errno = ENOSPC;
    yk_fail(YK_EIO, "f", "no space left");
    int after_fail = errno;
    yk_warn("f", "no space left");
    int after_warn = errno;
    capture_end(&c);
    (void)text;
    assert_int_equal(after_fail, ENOSPC);
    assert_int_equal(after_warn, ENOSPC);
}

static yk_status fails_at(int *n_calls, int at)
{
    for (int i = 0; i < 3; i++) {
        YK_TRY(i == at ? YK_ENOMEM : YK_OK);
        ++*n_calls;
    }
    return YK_OK;
}

static void try_returns_at_the_first_failure(void **state)
{
    int n = 0;
    (void)state;
    assert_int_equal(fails_at(&n, 1), YK_ENOMEM);
    assert_int_equal(n, 1);
    assert_int_equal(fails_at(&n, 9), YK_OK);
    assert_int_equal(n, 4);
}

static void *shout(void *arg)
{
    char why[900];
    memset(why, *(const char *)arg, sizeof why - 1);
    why[sizeof why - 1] = '\0';
    for (int i = 0; i < 50; i++) yk_warn("w", "%s", why);
    return NULL;
}

static void lines_of_several_threads_do_not_mix(void **state)
{
    enum { N_THREADS = 4 };
    char names[N_THREADS] = "abcd", text[8192];
    pthread_t threads[N_THREADS];
    capture c;
    (void)state;
    capture_begin(&c);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, shout, &names[i]), 0);
    int n_mixed = 0;
    for (int i = 0; i < N_THREADS * 50; i++) {
        ssize_t n = capture_next(&c, text, sizeof text);
        const char *why = text + strlen("yoke: warning: w: ");
        n_mixed += strspn(why, (char[]){why[0], '\0'}) != 899 || text[n - 1] != '\n';
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    capture_end(&c);
    assert_int_equal(n_mixed, 0);
}

static void a_broken_invariant_aborts_and_names_the_place(void **state)
{
    char text[8192], want[256];
    capture c;
    (void)state;
    capture_begin(&c);
    int line = __LINE__ + 3;
    pid_t child = fork();
    if (child == 0) {
        YK_CHECK(1 + 1 == 3);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    capture_next(&c, text, sizeof text);
    capture_end(&c);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    snprintf(want, sizeof want, "yoke: %s:%d: broken invariant: 1 + 1 == 3; ", __FILE__, line);
    assert_memory_equal(text, want, strlen(want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_text),
        cmocka_unit_test(exit_codes_are_as_the_header_says),
        cmocka_unit_test(a_failure_is_one_line_in_one_write),
        cmocka_unit_test(a_warning_says_that_it_is_one),
        cmocka_unit_test(control_characters_of_a_path_do_not_break_the_line),
        cmocka_unit_test(bytes_that_are_no_text_are_not_shown),
        cmocka_unit_test(a_long_message_is_cut_and_says_so),
        cmocka_unit_test(reporting_leaves_errno_alone),
        cmocka_unit_test(try_returns_at_the_first_failure),
        cmocka_unit_test(lines_of_several_threads_do_not_mix),
        cmocka_unit_test(a_broken_invariant_aborts_and_names_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
