/* tests/runtime/device/test_graph.c - captured operations: not done, then done at each launch. */
#include <string.h>

#include "runtime/device/graph.h"
#include "tests/runtime/device/op_case.h"

#define N 1000

static yk_status copy(op_case *c, void *dst, const void *src, yk_copy_kind kind)
{
    return yk_copy(c->stream, dst, src, N * 4, kind);
}

static void fill(op_case *c, void *memory, float value)
{
    float values[N];
    for (int i = 0; i < N; i++) values[i] = value;
    assert_int_equal(copy(c, memory, values, YK_COPY_HOST_TO_DEVICE), YK_OK);
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
}

static float first_of(op_case *c, const void *memory)
{
    float values[N];
    assert_int_equal(copy(c, values, memory, YK_COPY_DEVICE_TO_HOST), YK_OK);
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    return values[N - 1];
}

/* b = a, a = 0: two operations whose order shows. */
static void enqueue(op_case *c, void *a, void *b)
{
    assert_int_equal(copy(c, b, a, YK_COPY_DEVICE), YK_OK);
    assert_int_equal(yk_zero(c->stream, a, N * 4), YK_OK);
}

static void a_graph_does_its_operations_at_each_launch(void **state)
{
    op_case *c = *state;
    yk_graph *graph;
    void *a, *b;
    if (!yk_device_has_graphs(c->device)) skip();
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, N * 4, &a), YK_OK);
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, N * 4, &b), YK_OK);
    fill(c, a, 1);
    fill(c, b, 9);
    int64_t before = yk_stream_n_ops(c->stream);
    assert_int_equal(yk_stream_capture_begin(c->stream), YK_OK);
    enqueue(c, a, b);
    assert_int_equal(yk_stream_capture_end(c->stream, &graph), YK_OK);
    assert_int_equal(yk_stream_n_ops(c->stream), before);
    assert_true(first_of(c, a) == 1 && first_of(c, b) == 9); /* nothing was done */
    for (int i = 1; i <= 3; i++) {
        fill(c, a, (float)i);
        assert_int_equal(yk_graph_launch(graph, c->stream), YK_OK);
        assert_true(first_of(c, a) == 0 && first_of(c, b) == (float)i);
    }
    fill(c, a, 7);
    before = yk_stream_n_ops(c->stream);
    yk_graph_replay_begin(graph, c->stream);
    enqueue(c, b, a); /* left out: the graph's own arguments count */
    assert_int_equal(yk_graph_replay_end(graph, c->stream), YK_OK);
    assert_int_equal(yk_stream_n_ops(c->stream), before + 2);
    assert_true(first_of(c, a) == 0 && first_of(c, b) == 7);
    yk_graph_destroy(graph);
    yk_device_free(c->device, YK_MEMORY_DEVICE, N * 4, a);
    yk_device_free(c->device, YK_MEMORY_DEVICE, N * 4, b);
}

static void a_device_without_graphs_says_so(void **state)
{
    op_case *c = *state;
    if (yk_device_has_graphs(c->device)) skip();
    assert_int_equal(yk_stream_capture_begin(c->stream), YK_EUNSUPPORTED);
    yk_graph_destroy(NULL);
}

static void a_captured_stream_takes_operations_alone(void **state)
{
    op_case *c = *state;
    yk_event *event;
    yk_graph *graph;
    if (!yk_device_has_graphs(c->device)) skip();
    assert_int_equal(yk_event_create(c->device, &event), YK_OK);
    assert_int_equal(yk_stream_capture_begin(c->stream), YK_OK);
    assert_int_equal(yk_stream_capture_begin(c->stream), YK_EINVAL);
    assert_int_equal(yk_event_record(event, c->stream), YK_EINVAL);
    assert_int_equal(yk_event_wait(event, c->stream), YK_EINVAL);
    assert_int_equal(yk_stream_capture_end(c->stream, &graph), YK_OK);
    yk_graph_destroy(graph);
    yk_event_destroy(event);
}

/* Virtual: what is captured takes no time, a launch takes what its operations do. */
static void a_dry_graph_counts_when_it_is_launched(void **state)
{
    (void)state;
    yk_device_spec spec;
    yk_device *device;
    yk_stream *stream;
    yk_graph *graph;
    assert_int_equal(yk_device_spec_find("4090d", &spec), YK_OK);
    assert_int_equal(yk_device_open_dry(&spec, &device), YK_OK);
    assert_int_equal(yk_stream_create(device, YK_STREAM_COMPUTE, "compute", &stream), YK_OK);
    assert_true(yk_device_has_graphs(device));
    void *memory = (void *)(uintptr_t)256;
    assert_int_equal(yk_zero(stream, memory, 1000000), YK_OK);
    double one_s = yk_stream_now(stream);
    assert_int_equal(yk_stream_capture_begin(stream), YK_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(yk_zero(stream, memory, 1000000), YK_OK);
    assert_int_equal(yk_stream_capture_end(stream, &graph), YK_OK);
    assert_true(yk_stream_now(stream) == one_s);
    assert_int_equal(yk_device_get_counts(device).n_ops, 1);
    assert_int_equal(yk_graph_launch(graph, stream), YK_OK);
    double after_s = yk_stream_now(stream);
    assert_true(after_s > 3.999 * one_s && after_s < 4.001 * one_s);
    assert_int_equal(yk_device_get_counts(device).n_ops, 4);
    assert_true(yk_device_get_counts(device).bytes == 4e6);
    yk_graph_destroy(graph);
    yk_stream_destroy(stream);
    yk_device_close(device);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(a_graph_does_its_operations_at_each_launch),
        OP_TEST(a_device_without_graphs_says_so),
        OP_TEST(a_captured_stream_takes_operations_alone),
        cmocka_unit_test(a_dry_graph_counts_when_it_is_launched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
