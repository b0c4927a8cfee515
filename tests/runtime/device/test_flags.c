/* tests/runtime/device/test_flags.c - streams of several processes order each other by words in memory
 * that they share; here a thread stands for the other process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/device/ops.h"

typedef struct rig {
    yk_device *device;
    yk_stream *compute, *a, *b; /* two transfer streams */
    uint32_t flag, back;
} rig;

static int setup(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_int_equal(yk_device_open_cpu(1, &r->device), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_COMPUTE, "compute", &r->compute), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_TRANSFER, "a", &r->a), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_TRANSFER, "b", &r->b), YK_OK);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    rig *r = *state;
    yk_stream_destroy(r->a);
    yk_stream_destroy(r->b);
    yk_stream_destroy(r->compute);
    yk_device_close(r->device);
    free(r);
    return 0;
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static uint32_t read_flag(const uint32_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void a_stream_waits_until_the_flag_has_come(void **state)
{
    rig *r = *state;
    int from = 1, to = 0;
    assert_int_equal(yk_stream_await_flag(r->a, &r->flag, 3), YK_OK);
    assert_int_equal(yk_copy(r->a, &to, &from, sizeof to, YK_COPY_DEVICE), YK_OK);
    assert_int_equal(yk_stream_write_flag(r->a, &r->back, 1), YK_OK);
    for (uint32_t v = 1; v < 3; v++) {
        __atomic_store_n(&r->flag, v, __ATOMIC_RELEASE);
        sleep_ms(20);
        assert_int_equal(read_flag(&r->back), 0);
    }
    __atomic_store_n(&r->flag, 7, __ATOMIC_RELEASE); /* beyond is far enough */
    assert_int_equal(yk_stream_synchronize(r->a), YK_OK);
    assert_int_equal(to, 1);
    assert_int_equal(read_flag(&r->back), 1);
}

static void flags_go_on_past_the_end_of_their_range(void **state)
{
    rig *r = *state;
    r->flag = UINT32_MAX - 1;
    assert_int_equal(yk_stream_await_flag(r->compute, &r->flag, UINT32_MAX - 1), YK_OK);
    assert_int_equal(yk_stream_await_flag(r->a, &r->flag, 2), YK_OK);
    assert_int_equal(yk_stream_write_flag(r->a, &r->back, 1), YK_OK);
    __atomic_store_n(&r->flag, UINT32_MAX, __ATOMIC_RELEASE);
    sleep_ms(20);
    assert_int_equal(read_flag(&r->back), 0);
    __atomic_store_n(&r->flag, 2, __ATOMIC_RELEASE);
    assert_int_equal(yk_stream_synchronize(r->a), YK_OK);
    assert_int_equal(yk_stream_await_flag(r->compute, &r->flag, UINT32_MAX), YK_OK);
}

/* Two streams hand numbers to and fro through one cell of memory. */
static void what_was_written_before_a_flag_is_seen_after_it(void **state)
{
    enum { ROUNDS = 2000 };
    rig *r = *state;
    static int64_t cell, seen[ROUNDS], numbers[ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        numbers[i] = i * INT64_C(1000003);
        assert_int_equal(yk_stream_await_flag(r->a, &r->back, i), YK_OK);
        assert_int_equal(yk_copy(r->a, &cell, &numbers[i], sizeof cell, YK_COPY_DEVICE), YK_OK);
        assert_int_equal(yk_stream_write_flag(r->a, &r->flag, i + 1), YK_OK);
        assert_int_equal(yk_stream_await_flag(r->b, &r->flag, i + 1), YK_OK);
        assert_int_equal(yk_copy(r->b, &seen[i], &cell, sizeof cell, YK_COPY_DEVICE), YK_OK);
        assert_int_equal(yk_stream_write_flag(r->b, &r->back, i + 1), YK_OK);
    }
    assert_int_equal(yk_stream_synchronize(r->a), YK_OK);
    assert_int_equal(yk_stream_synchronize(r->b), YK_OK);
    assert_memory_equal(seen, numbers, sizeof seen);
}

static void *fail_later(void *device)
{
    sleep_ms(50);
    yk_device_fail(device, YK_ETIMEDOUT);
    return NULL;
}

/* The stream, who waits for it, and every later wait; the first failure stays. */
static void a_device_that_gives_up_lets_nobody_wait(void **state)
{
    rig *r = *state;
    pthread_t thread;
    yk_event *event;
    assert_int_equal(yk_event_create(r->device, &event), YK_OK);
    assert_int_equal(yk_stream_await_flag(r->a, &r->flag, 1), YK_OK);
    assert_int_equal(yk_event_record(event, r->a), YK_OK);
    assert_int_equal(yk_event_wait(event, r->b), YK_OK);
    assert_int_equal(pthread_create(&thread, NULL, fail_later, r->device), 0);
    assert_int_equal(yk_stream_synchronize(r->a), YK_ETIMEDOUT);
    assert_int_equal(yk_stream_synchronize(r->b), YK_ETIMEDOUT);
    pthread_join(thread, NULL);
    yk_device_fail(r->device, YK_EPEER);
    assert_int_equal(yk_stream_await_flag(r->compute, &r->back, 1), YK_ETIMEDOUT);
    yk_event_destroy(event);
}

static void a_dry_device_does_not_look_at_flags(void **state)
{
    (void)state;
    yk_device_spec spec;
    yk_device *device;
    yk_stream *stream;
    uint32_t flag = 0;
    assert_int_equal(yk_device_spec_find("4090d", &spec), YK_OK);
    assert_int_equal(yk_device_open_dry(&spec, &device), YK_OK);
    assert_int_equal(yk_stream_create(device, YK_STREAM_TRANSFER, "dry", &stream), YK_OK);
    assert_int_equal(yk_stream_await_flag(stream, &flag, 5), YK_OK);
    assert_int_equal(yk_stream_write_flag(stream, &flag, 6), YK_OK);
    assert_int_equal(flag, 0);
    assert_true(yk_stream_now(stream) == 0);
    assert_int_equal(yk_stream_await_flag(stream, NULL, 5), YK_EINVAL);
    yk_device_fail(device, YK_ETIMEDOUT);
    yk_stream_destroy(stream);
    yk_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_stream_waits_until_the_flag_has_come, setup, teardown),
        cmocka_unit_test_setup_teardown(flags_go_on_past_the_end_of_their_range, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_written_before_a_flag_is_seen_after_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_device_that_gives_up_lets_nobody_wait, setup, teardown),
        cmocka_unit_test(a_dry_device_does_not_look_at_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
