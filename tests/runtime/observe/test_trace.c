/* tests/runtime/observe/test_trace.c - the file that Perfetto reads, and sums over spans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <string.h>

#include "runtime/device/ops.h"
#include "runtime/observe/trace.h"
#include "tests/runtime/device/round_rates.h"
#include "tests/runtime/scratch.h"

typedef struct rig {
    yk_device *device;
    yk_stream *compute, *gather;
    yk_recorder *recorder;
    void *memory;
} rig;

static rig open_rig(void)
{
    rig x;
    assert_int_equal(yk_device_open_dry(&round_rates, &x.device), YK_OK);
    assert_int_equal(yk_stream_create(x.device, YK_STREAM_COMPUTE, "compute", &x.compute), YK_OK);
    assert_int_equal(yk_stream_create(x.device, YK_STREAM_TRANSFER, "gather", &x.gather), YK_OK);
    assert_int_equal(yk_recorder_create(x.device, 2000, &x.recorder), YK_OK);
    assert_int_equal(yk_device_alloc(x.device, YK_MEMORY_DEVICE, 4096, &x.memory), YK_OK);
    return x;
}

static void close_rig(rig x)
{
    yk_recorder_destroy(x.recorder);
    yk_device_free(x.device, YK_MEMORY_DEVICE, 4096, x.memory);
    yk_stream_destroy(x.gather);
    yk_stream_destroy(x.compute);
    yk_device_close(x.device);
}

/* n zeroings of 1000 bytes (2 ms each) on compute, one copy of 500 (2 ms) on gather. */
static void record(rig x, int n)
{
    yk_recorder_start(x.recorder);
    yk_device_set_part(x.device, "backward", 1);
    for (int i = 0; i < n; i++) assert_int_equal(yk_zero(x.compute, x.memory, 1000), YK_OK);
    assert_int_equal(yk_copy(x.gather, x.memory, x.memory, 500, YK_COPY_DEVICE), YK_OK);
    assert_int_equal(yk_recorder_stop(x.recorder), YK_OK);
}

static double number(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static const char *text(const json_t *event, const char *key)
{
    const char *value = json_string_value(json_object_get(event, key));
    assert_non_null(value);
    return value;
}

/* The i-th complete event called `name`. */
static const json_t *find(const json_t *events, const char *name, int i)
{
    size_t at;
    const json_t *event;
    json_array_foreach(events, at, event)
    {
        if (strcmp(text(event, "ph"), "X") != 0 || strcmp(text(event, "name"), name) != 0) continue;
        if (i-- == 0) return event;
    }
    return NULL;
}

static void a_trace_is_json_with_every_span_on_its_stream(void **state)
{
    enum { N = 1000 }; /* more than a buffer of the writer holds */
    char path[SCRATCH_PATH];
    rig x = open_rig();
    yk_trace *trace;
    scratch_path(path, *state, "trace.json");
    assert_int_equal(yk_trace_open(path, &trace), YK_OK);
    record(x, N);
    assert_int_equal(yk_trace_add(trace, 2, "step 7", x.recorder), YK_OK);
    record(x, 1);
    assert_int_equal(yk_trace_add(trace, 2, "step 8", x.recorder), YK_OK);
    assert_int_equal(yk_trace_close(trace), YK_OK);
    close_rig(x);

    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    assert_non_null(root);
    const json_t *events = json_object_get(root, "traceEvents");
    const json_t *last = find(events, "zero", N - 1), *copy = find(events, "copy", 0);
    assert_non_null(last);
    assert_non_null(copy);
    assert_true(number(last, "ts") == 2000.0 * (N - 1) && number(last, "dur") == 2000);
    assert_true(number(last, "pid") == 2);
    assert_true(number(last, "tid") != number(copy, "tid"));
    const json_t *arguments = json_object_get(last, "args");
    assert_string_equal(text(arguments, "part"), "backward 1");
    assert_true(number(arguments, "bytes") == 1000);

    const json_t *first = find(events, "step 7", 0), *second = find(events, "step 8", 0);
    assert_non_null(first);
    assert_non_null(second);
    assert_true(number(first, "dur") == 2000.0 * N);
    assert_true(number(second, "ts") >= number(first, "ts") + number(first, "dur"));
    assert_null(find(events, "zero", N + 1));
    json_decref(root);
}

static void sums_are_by_name_and_stream_and_the_longest_comes_first(void **state)
{
    (void)state;
    rig x = open_rig();
    yk_trace_sum sums[4];
    record(x, 3);
    assert_int_equal(yk_trace_sum_up(x.recorder, sums, 4), 2);
    assert_string_equal(sums[0].name, "zero");
    assert_string_equal(sums[0].stream, "compute");
    assert_int_equal(sums[0].n, 3);
    assert_true(sums[0].bytes == 3000);
    assert_true(sums[0].seconds > 5.999e-3 && sums[0].seconds < 6.001e-3);
    assert_string_equal(sums[1].name, "copy");
    assert_int_equal(yk_trace_sum_up(x.recorder, sums, 1), 1);
    close_rig(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_trace_is_json_with_every_span_on_its_stream,
                                        scratch_set_up, scratch_tear_down),
        cmocka_unit_test(sums_are_by_name_and_stream_and_the_longest_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
