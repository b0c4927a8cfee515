/* tests/runtime/memory/test_arena.c - what a stack of pieces and the workspaces above it take. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/device/dispatch.h"
#include "runtime/memory/arena.h"

typedef struct rig {
    yk_device *device;
    yk_stream *stream;
    yk_arena *arena;
} rig;

static rig open_rig(int64_t capacity, int64_t red_zone)
{
    rig r;
    assert_int_equal(yk_device_open_cpu(1, &r.device), YK_OK);
    assert_int_equal(yk_stream_create(r.device, YK_STREAM_COMPUTE, "compute", &r.stream), YK_OK);
    assert_int_equal(
        yk_arena_create(r.device, "tested memory", YK_MEMORY_DEVICE, capacity, red_zone, &r.arena),
        YK_OK);
    yk_arena_lend(r.arena, r.stream);
    return r;
}

static void close_rig(rig *r)
{
    yk_stream_destroy(r->stream);
    yk_arena_destroy(r->arena);
    yk_device_close(r->device);
}

static char *push(rig *r, int64_t bytes)
{
    void *piece;
    assert_int_equal(yk_arena_push(r->arena, "piece", bytes, &piece), YK_OK);
    return piece;
}

static char *work(rig *r, int64_t bytes)
{
    void *ws;
    assert_int_equal(yk_stream_take_workspace(r->stream, "an operation", bytes, &ws), YK_OK);
    return ws;
}

static void a_workspace_lies_above_all_pieces_and_is_written_over_by_the_next(void **state)
{
    (void)state;
    rig r = open_rig(4096, 0);
    char *a = push(&r, 300);
    assert_ptr_equal(work(&r, 1000), a + 512);
    assert_ptr_equal(work(&r, 10), a + 512);
    assert_ptr_equal(push(&r, 256), a + 512);
    assert_ptr_equal(work(&r, 1), a + 768);
    yk_arena_pop(r.arena, 0);
    assert_ptr_equal(work(&r, 4096), a);
    close_rig(&r);
}

static void a_workspace_counts_as_far_as_it_reaches_above_everything_else(void **state)
{
    (void)state;
    rig r = open_rig(1 << 20, 0);
    push(&r, 1024);
    int mark = yk_arena_mark(r.arena);
    push(&r, 8192);
    yk_arena_pop(r.arena, mark);
    assert_int_equal(yk_arena_high(r.arena), 9216);
    work(&r, 8192);
    assert_int_equal(yk_arena_high(r.arena), 9216);
    work(&r, 8193);
    assert_int_equal(yk_arena_high(r.arena), 9216 + 256);
    assert_int_equal(yk_arena_n_peak_items(r.arena), 2);
    yk_arena_item top = yk_arena_get_peak_item(r.arena, 1);
    assert_string_equal(top.name, "workspace");
    assert_int_equal(top.bytes, 8192 + 256);
    work(&r, 1);
    push(&r, 1);
    assert_int_equal(yk_arena_high(r.arena), 9216 + 256);
    close_rig(&r);
}

static void no_workspace_takes_nothing(void **state)
{
    (void)state;
    rig r = open_rig(1024, 256);
    push(&r, 256);
    assert_null(work(&r, 0));
    assert_int_equal(yk_arena_high(r.arena), 512);
    close_rig(&r);
}

static void a_workspace_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    rig r = open_rig(1024, 0);
    void *ws;
    push(&r, 512);
    work(&r, 512);
    assert_int_equal(yk_stream_take_workspace(r.stream, "an operation", 513, &ws), YK_ENOMEM);
    work(&r, 512);
    close_rig(&r);
}

/* Does a program end by itself that writes `bytes` into a workspace of 100? */
static bool is_caught(int64_t bytes)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGABRT, SIG_DFL);
        rig r = open_rig(4096, 256);
        memset(work(&r, 100), 1, (size_t)bytes);
        work(&r, 1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status);
}

static void a_red_zone_lies_behind_a_workspace(void **state)
{
    (void)state;
    assert_false(is_caught(100));
    assert_true(is_caught(101));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_workspace_lies_above_all_pieces_and_is_written_over_by_the_next),
        cmocka_unit_test(a_workspace_counts_as_far_as_it_reaches_above_everything_else),
        cmocka_unit_test(no_workspace_takes_nothing),
        cmocka_unit_test(a_workspace_that_does_not_fit_is_refused),
        cmocka_unit_test(a_red_zone_lies_behind_a_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
