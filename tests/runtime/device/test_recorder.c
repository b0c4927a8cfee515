/* tests/runtime/device/test_recorder.c - spans of operations: on the virtual clock by hand, on the
 * processors in order. */
#include "runtime/device/recorder.h"
#include "tests/runtime/device/op_case.h"
#include "tests/runtime/device/round_rates.h"

static void expect_time(double have, double want)
{
    assert_true(have > want - 1e-9 && have < want + 1e-9);
}

static void spans_have_the_times_of_the_virtual_clock(void **state)
{
    (void)state;
    yk_device *device;
    yk_stream *compute, *copies;
    yk_recorder *r;
    yk_event *event;
    void *memory;
    assert_int_equal(yk_device_open_dry(&round_rates, &device), YK_OK);
    assert_int_equal(yk_stream_create(device, YK_STREAM_COMPUTE, "compute", &compute), YK_OK);
    assert_int_equal(yk_stream_create(device, YK_STREAM_TRANSFER, "copies", &copies), YK_OK);
    assert_int_equal(yk_event_create(device, &event), YK_OK);
    assert_int_equal(yk_device_alloc(device, YK_MEMORY_DEVICE, 4096, &memory), YK_OK);
    assert_int_equal(yk_recorder_create(device, 8, &r), YK_OK);

    assert_int_equal(yk_zero(compute, memory, 1000), YK_OK); /* before: not recorded */
    yk_recorder_start(r);
    assert_true(yk_device_is_recorded(device));
    yk_device_set_part(device, "forward", 3);
    assert_int_equal(yk_zero(compute, memory, 1000), YK_OK); /* 1 + 1 ms */
    assert_int_equal(yk_event_record(event, compute), YK_OK);
    assert_int_equal(yk_event_wait(event, copies), YK_OK);
    yk_device_set_part(device, "", -1);
    int whole = yk_span_begin(copies, "collective", 7, 0);
    assert_int_equal(yk_copy(copies, memory, memory, 100, YK_COPY_HOST_TO_DEVICE), YK_OK);
    yk_span_end(copies, whole);
    assert_int_equal(yk_recorder_stop(r), YK_OK);
    assert_false(yk_device_is_recorded(device));
    assert_int_equal(yk_zero(compute, memory, 1000), YK_OK); /* after: not recorded */

    assert_int_equal(yk_recorder_n_spans(r), 3);
    yk_span zero = yk_recorder_get(r, 0), outer = yk_recorder_get(r, 1);
    yk_span copy = yk_recorder_get(r, 2);
    assert_string_equal(zero.name, "zero");
    assert_string_equal(zero.part, "forward 3");
    assert_string_equal(zero.stream, "compute");
    assert_int_equal(zero.lane, 0);
    assert_true(zero.bytes == 1000 && zero.flops == 0);
    expect_time(zero.begin_s, 0);
    expect_time(zero.end_s, 2e-3);
    assert_string_equal(outer.name, "collective");
    assert_string_equal(outer.part, "");
    assert_string_equal(copy.stream, "copies");
    assert_int_equal(copy.lane, 1);
    expect_time(copy.begin_s, 2e-3);
    expect_time(copy.end_s, 4e-3);
    expect_time(outer.begin_s, copy.begin_s);
    expect_time(outer.end_s, copy.end_s);

    yk_recorder_destroy(r);
    yk_device_free(device, YK_MEMORY_DEVICE, 4096, memory);
    yk_event_destroy(event);
    yk_stream_destroy(copies);
    yk_stream_destroy(compute);
    yk_device_close(device);
}

static void a_full_recorder_counts_what_it_leaves_out(void **state)
{
    (void)state;
    yk_device *device;
    yk_stream *compute;
    yk_recorder *r;
    void *memory;
    assert_int_equal(yk_device_open_dry(&round_rates, &device), YK_OK);
    assert_int_equal(yk_stream_create(device, YK_STREAM_COMPUTE, "compute", &compute), YK_OK);
    assert_int_equal(yk_device_alloc(device, YK_MEMORY_DEVICE, 64, &memory), YK_OK);
    assert_int_equal(yk_recorder_create(device, 2, &r), YK_OK);
    for (int again = 0; again < 2; again++) {
        yk_recorder_start(r);
        for (int i = 0; i < 5; i++) assert_int_equal(yk_zero(compute, memory, 64), YK_OK);
        assert_int_equal(yk_recorder_stop(r), YK_OK);
        assert_int_equal(yk_recorder_n_spans(r), 2);
        assert_int_equal(yk_recorder_n_lost(r), 3);
    }
    yk_recorder_destroy(r);
    yk_device_free(device, YK_MEMORY_DEVICE, 64, memory);
    yk_stream_destroy(compute);
    yk_device_close(device);
}

/* On a real device: spans of a stream follow each other, also on a stream that is a thread. */
static void spans_of_a_stream_follow_each_other(void **state)
{
    enum { BYTES = 1 << 20, N = 6 };
    yk_device *device = ((op_case *)*state)->device;
    yk_stream *streams[2];
    yk_recorder *r;
    void *memory[2];
    assert_int_equal(yk_stream_create(device, YK_STREAM_COMPUTE, "compute", &streams[0]), YK_OK);
    assert_int_equal(yk_stream_create(device, YK_STREAM_TRANSFER, "copies", &streams[1]), YK_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(yk_device_alloc(device, YK_MEMORY_DEVICE, BYTES, &memory[i]), YK_OK);
    assert_int_equal(yk_recorder_create(device, 2 * N, &r), YK_OK);
    yk_recorder_start(r);
    for (int i = 0; i < 2 * N; i++)
        assert_int_equal(yk_zero(streams[i % 2], memory[i % 2], BYTES), YK_OK);
    assert_int_equal(yk_recorder_stop(r), YK_OK);
    assert_int_equal(yk_recorder_n_spans(r), 2 * N);
    for (int i = 0; i < 2 * N; i++) {
        yk_span s = yk_recorder_get(r, i);
        assert_int_equal(s.lane, i % 2);
        assert_true(s.end_s > s.begin_s);
        assert_true(s.bytes == BYTES);
        if (i >= 2) assert_true(s.begin_s >= yk_recorder_get(r, i - 2).end_s - 1e-9);
    }
    yk_recorder_destroy(r);
    for (int i = 0; i < 2; i++) {
        yk_device_free(device, YK_MEMORY_DEVICE, BYTES, memory[i]);
        yk_stream_destroy(streams[i]);
    }
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_have_the_times_of_the_virtual_clock),
        cmocka_unit_test(a_full_recorder_counts_what_it_leaves_out),
        OP_TEST(spans_of_a_stream_follow_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
