/* tests/runtime/device/test_holdings.c - how much of a device's memory this process has, and whether there is
 * room for more. On processors, whose memory is the machine's, a backend that counts stands in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/device/backend.h"
#include "tests/runtime/base/heard.h"
#include "tests/runtime/device/tested_device.h"

#define MIB ((int64_t)1 << 20)

static yk_device *open_device(void)
{
    yk_device *d;
    assert_int_equal(tested_device_open(1, &d), YK_OK);
    return d;
}

static int64_t three_taken(const yk_device *d)
{
    (void)d;
    return 3 * MIB;
}

static void say_room(const yk_device *d, yk_memory_kind kind, char *text_out, size_t size)
{
    (void)d;
    (void)kind;
    snprintf(text_out, size, "7 of 10 free; process 5 (x) has 2");
}

/* What was said of a request that was refused. */
static void refuse(yk_device *d, const char *name, int64_t bytes, char *said, size_t size)
{
    heard h;
    heard_begin(&h);
    yk_status status = yk_device_check_room(d, name, bytes);
    snprintf(said, size, "%s", heard_take(&h));
    heard_end(&h);
    assert_int_equal(status, YK_ENOMEM);
}

static void room_is_what_nobody_has_taken(void **state)
{
    (void)state;
    char said[2048];
    void *memory;
    yk_device *d = open_device();
    const yk_backend *real = d->backend;
    int64_t all = d->spec.memory_bytes;
    yk_backend counting = *real;
    counting.used_bytes = three_taken;
    counting.room = say_room;
    d->backend = &counting;
    d->spec.memory_bytes = 10 * MIB;
    assert_int_equal(yk_device_check_room(d, "a run", 7 * MIB), YK_OK);
    assert_int_equal(yk_device_alloc_named(d, YK_MEMORY_DEVICE, "a table", 4096, &memory), YK_OK);
    refuse(d, "a run", 7 * MIB + 1, said, sizeof said);
    assert_non_null(strstr(said,
                           "a run: 7340033 bytes of memory asked for, 7 of 10 free; process 5 "
                           "(x) has 2; this process has a table 4096;"));
    counting.used_bytes = NULL; /* nobody knows */
    assert_int_equal(yk_device_check_room(d, "a run", 11 * MIB), YK_OK);
    d->backend = real;
    d->spec.memory_bytes = all;
    yk_device_free(d, YK_MEMORY_DEVICE, 4096, memory);
    yk_device_close(d);
}

static void what_is_held_is_known_of_a_gpu_alone(void **state)
{
    (void)state;
    char said[2048];
    void *memory;
    yk_device *d = open_device();
    int64_t before = yk_device_held_bytes(d), more = 512 * MIB;
    if (!tested_on_cuda()) {
        assert_int_equal(before, 0);
        yk_device_close(d);
        return;
    }
    assert_true(before > 100 * MIB); /* a context is more */
    assert_true(before <= yk_device_used_bytes(d));
    assert_int_equal(yk_device_alloc(d, YK_MEMORY_DEVICE, more, &memory), YK_OK);
    int64_t grown = yk_device_held_bytes(d) - before;
    assert_true(grown >= more && grown <= more + 4 * MIB);
    yk_device_free(d, YK_MEMORY_DEVICE, more, memory);
    assert_int_equal(yk_device_check_room(d, "a run", 2 * more), YK_OK);
    refuse(d, "a run", d->spec.memory_bytes, said, sizeof said);
    assert_non_null(strstr(said, " free"));
    yk_device_close(d);
}

int main(void)
{
    if (tested_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_is_what_nobody_has_taken),
        cmocka_unit_test(what_is_held_is_known_of_a_gpu_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
