/* tests/launch/test_leftovers.c - segments in use are waited for by the clock, whatever their
 * number; the others go. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/leftovers.h"
#include "runtime/base/clock.h"
#include "tests/runtime/scratch.h"

#define N_USED 600

/* A segment of long ago, whose pages are mapped or not. */
static void *make(const char *dir, int i, bool is_mapped)
{
    const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    char path[SCRATCH_PATH + 64];
    snprintf(path, sizeof path, "%s/vader_segment.host.0.1.%d", dir, i);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, 4096), 0);
    void *at = is_mapped ? mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) : NULL;
    assert_true(at != MAP_FAILED);
    assert_int_equal(futimens(file, old), 0);
    close(file);
    return at;
}

static bool exists(const char *dir, int i)
{
    char path[SCRATCH_PATH + 64];
    snprintf(path, sizeof path, "%s/vader_segment.host.0.1.%d", dir, i);
    return access(path, F_OK) == 0;
}

static void many_in_use_are_waited_for_by_the_clock_and_stay(void **state)
{
    char dir[SCRATCH_PATH];
    static void *at[N_USED];
    (void)state;
    scratch_make(dir);
    for (int i = 0; i < N_USED; i++) at[i] = make(dir, i, true);
    make(dir, N_USED, false);
    double begin = yk_clock_s();
    yk_leftovers_remove(dir, 0);
    double took = yk_clock_s() - begin;
    assert_true(took >= 5);
    assert_true(took < 20);
    for (int i = 0; i < N_USED; i++) assert_true(exists(dir, i));
    assert_false(exists(dir, N_USED));
    for (int i = 0; i < N_USED; i++) munmap(at[i], 4096);
    yk_leftovers_remove(dir, 2000000000);
    assert_true(exists(dir, 0)); /* older than what is asked for */
    yk_leftovers_remove(dir, 0);
    for (int i = 0; i < N_USED; i++) assert_false(exists(dir, i));
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_in_use_are_waited_for_by_the_clock_and_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
