/* tests/runtime/device/test_stream.c - memory, streams and events of a real device. */
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/device/op_case.h"
#include "tests/runtime/scratch.h"

/* Under the address sanitizer too, memory that cannot be had is an answer and not an error. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void memory_is_aligned_and_apart(void **state)
{
    op_case *c = *state;
    static const int64_t sizes[] = {1, 255, 256, 257, 4096, 1 << 20};
    void *memory[12];
    for (int i = 0; i < 12; i++) {
        yk_memory_kind kind = i < 6 ? YK_MEMORY_DEVICE : YK_MEMORY_PINNED;
        assert_int_equal(yk_device_alloc(c->device, kind, sizes[i % 6], &memory[i]), YK_OK);
        assert_int_equal((uintptr_t)memory[i] % 256, 0);
        for (int j = 0; j < i; j++)
            assert_true((uint8_t *)memory[j] + sizes[j % 6] <= (uint8_t *)memory[i] ||
                        (uint8_t *)memory[i] + sizes[i % 6] <= (uint8_t *)memory[j]);
    }
    for (int i = 0; i < 12; i++)
        yk_device_free(c->device, i < 6 ? YK_MEMORY_DEVICE : YK_MEMORY_PINNED, sizes[i % 6],
                       memory[i]);
}

static void memory_that_cannot_be_had_is_an_error(void **state)
{
    op_case *c = *state;
    void *memory = state;
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, INT64_C(1) << 50, &memory),
                     YK_ENOMEM);
    assert_ptr_equal(memory, state); /* untouched */
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, 0, &memory), YK_EINVAL);
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, -1, &memory), YK_EINVAL);
    yk_device_free(c->device, YK_MEMORY_DEVICE, 1, NULL);
}

static void a_request_that_fails_says_who_has_the_memory(void **state)
{
    op_case *c = *state;
    void *small, *other, *memory;
    assert_int_equal(
        yk_device_alloc_named(c->device, YK_MEMORY_DEVICE, "small thing", 4096, &small), YK_OK);
    assert_int_equal(
        yk_device_alloc_named(c->device, YK_MEMORY_PINNED, "pinned thing", 8192, &other), YK_OK);
    yk_device_alloc_named(c->device, YK_MEMORY_DEVICE, "gone thing", 4096, &memory);
    yk_device_free(c->device, YK_MEMORY_DEVICE, 4096, memory);
    int saved = scratch_stderr_begin();
    yk_status status =
        yk_device_alloc_named(c->device, YK_MEMORY_DEVICE, "huge thing", INT64_C(1) << 50, &memory);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_ENOMEM);
    /* The address sanitizer has said something before. */
    assert_non_null(strstr(said, "yoke: huge thing: 1125899906842624 bytes of memory asked for"));
    assert_non_null(strstr(said, " free"));
    assert_non_null(strstr(said, "this process has small thing 4096"));
    assert_null(strstr(said, "pinned thing"));
    assert_null(strstr(said, "gone thing"));
    free(said);
    yk_device_free(c->device, YK_MEMORY_DEVICE, 4096, small);
    yk_device_free(c->device, YK_MEMORY_PINNED, 8192, other);
}

static void freed_memory_can_be_had_again(void **state)
{
    op_case *c = *state;
    int64_t bytes = yk_device_get_spec(c->device)->memory_bytes / 8;
    for (int i = 0; i < 20; i++) { /* more than there is, if nothing came back */
        void *memory;
        assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, bytes, &memory), YK_OK);
        assert_int_equal(yk_zero(c->stream, memory, 4096), YK_OK);
        assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
        yk_device_free(c->device, YK_MEMORY_DEVICE, bytes, memory);
    }
}

/* A chain over two streams, each link waiting for the one before. */
static void chain_over_two_streams(op_case *c, yk_stream_kind kind)
{
    yk_stream *other;
    yk_event *done, *never;
    enum { BYTES = 1 << 20 };
    static uint8_t in[BYTES], out[BYTES];
    void *a, *b;
    for (int i = 0; i < BYTES; i++) in[i] = (uint8_t)op_random(c);
    assert_int_equal(yk_stream_create(c->device, kind, "other", &other), YK_OK);
    assert_int_equal(yk_event_create(c->device, &done), YK_OK);
    assert_int_equal(yk_event_create(c->device, &never), YK_OK);
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, BYTES, &a), YK_OK);
    assert_int_equal(yk_device_alloc(c->device, YK_MEMORY_DEVICE, BYTES, &b), YK_OK);
    for (int round = 0; round < 5; round++) {
        memset(out, 0, BYTES);
        assert_int_equal(yk_zero(c->stream, b, BYTES), YK_OK);
        assert_int_equal(yk_copy(c->stream, a, in, BYTES, YK_COPY_HOST_TO_DEVICE), YK_OK);
        assert_int_equal(yk_event_record(done, c->stream), YK_OK);
        assert_int_equal(yk_event_wait(done, other), YK_OK);
        assert_int_equal(yk_event_wait(never, other), YK_OK);
        assert_int_equal(yk_copy(other, b, a, BYTES, YK_COPY_DEVICE), YK_OK);
        assert_int_equal(yk_copy(other, out, b, BYTES, YK_COPY_DEVICE_TO_HOST), YK_OK);
        assert_int_equal(yk_event_record(done, other), YK_OK);
        assert_int_equal(yk_event_synchronize(done), YK_OK);
        assert_memory_equal(in, out, BYTES);
    }
    yk_device_free(c->device, YK_MEMORY_DEVICE, BYTES, a);
    yk_device_free(c->device, YK_MEMORY_DEVICE, BYTES, b);
    yk_event_destroy(done);
    yk_event_destroy(never);
    yk_stream_destroy(other);
    yk_event_destroy(NULL);
    yk_stream_destroy(NULL);
}

static void work_after_an_event_sees_what_was_before_it(void **state)
{
    chain_over_two_streams(*state, YK_STREAM_COMPUTE);
    chain_over_two_streams(*state, YK_STREAM_TRANSFER);
}

static void a_streams_clock_runs_forward(void **state)
{
    op_case *c = *state;
    double before = yk_stream_now(c->stream);
    for (double now = before; now <= before;) now = yk_stream_now(c->stream);
}

static void a_real_device_counts_nothing(void **state)
{
    op_case *c = *state;
    yk_device_counts zeros = {0}, got = yk_device_get_counts(c->device);
    assert_memory_equal(&got, &zeros, sizeof got);
    assert_int_equal(yk_device_get_kind(c->device), yk_device_get_spec(c->device)->kind);
    assert_ptr_equal(yk_stream_get_device(c->stream), c->device);
}

static void a_device_knows_its_rates_and_memory(void **state)
{
    op_case *c = *state;
    const yk_device_spec *spec = yk_device_get_spec(c->device);
    assert_true(spec->name[0] != '\0' && spec->memory_bytes > 0);
    assert_true(spec->memory_rate > 0 && spec->host_link_rate > 0 && spec->launch_s >= 0);
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++)
        assert_true(spec->matmul_flops[t] > 0 && spec->attention_flops[t] > 0);
}

/* A plan that does not match the step is named, with the bytes. */
static void too_little_workspace_is_refused(void **state)
{
    op_case *c = *state;
    op_case_begin(c, YK_F32, "workspace");
    int64_t n = 70001;
    yk_step_values values = {0};
    op_buffer *step = op_step_values(c, &values), *x = op_input(c, YK_F32, n, 1);
    const yk_squares_run run = {x->data, n};
    yk_sum_squares_args a = {
        .values = step->data, .runs = &run, .n_runs = 1, .piece = 4096, .dtype = YK_F32};
    assert_int_equal(yk_sum_squares(c->dry_stream, &a), YK_OK);
    int64_t bytes = yk_stream_workspace_high(c->dry_stream);
    if (bytes == 0) skip(); /* the device sums without */
    yk_stream_set_workspace(c->stream, x->data, bytes - 1);
    assert_int_equal(yk_sum_squares(c->stream, &a), YK_ENOMEM);
    assert_int_equal(yk_stream_workspace_high(c->stream), bytes);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(memory_is_aligned_and_apart),
        OP_TEST(memory_that_cannot_be_had_is_an_error),
        OP_TEST(a_request_that_fails_says_who_has_the_memory),
        OP_TEST(freed_memory_can_be_had_again),
        OP_TEST(work_after_an_event_sees_what_was_before_it),
        OP_TEST(a_streams_clock_runs_forward),
        OP_TEST(a_real_device_counts_nothing),
        OP_TEST(a_device_knows_its_rates_and_memory),
        OP_TEST(too_little_workspace_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
