/* tests/runtime/device/test_timer.c - stretches of a stream are added up when they are passed. */
#include <stdlib.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/device/timer.h"
#include "tests/runtime/device/op_case.h"

/* Host functions that take 20 ms, 100 ms. */
static yk_status nap(void *context)
{
    (void)context;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return YK_OK;
}

static yk_status sleep_long(void *context)
{
    (void)context;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    return YK_OK;
}

static yk_timer *open_timer(op_case *c, int n_places)
{
    yk_timer *t;
    assert_int_equal(yk_timer_create(c->device, n_places, &t), YK_OK);
    return t;
}

static void a_wait_for_another_stream_is_what_it_takes(void **state)
{
    op_case *c = *state;
    yk_timer *t = open_timer(c, 4);
    yk_stream *other;
    yk_event *e;
    assert_int_equal(yk_stream_create(c->device, YK_STREAM_TRANSFER, "other", &other), YK_OK);
    assert_int_equal(yk_event_create(c->device, &e), YK_OK);
    double begin = yk_clock_s();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(yk_stream_run(other, sleep_long, NULL, 0), YK_OK);
        assert_int_equal(yk_event_record(e, other), YK_OK);
        assert_int_equal(yk_timer_begin(t, c->stream), YK_OK);
        assert_int_equal(yk_event_wait(e, c->stream), YK_OK);
        assert_int_equal(yk_timer_end(t, c->stream), YK_OK);
    }
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    double took = yk_clock_s() - begin, waited = yk_timer_read(t);
    assert_true(waited > 0.02 && waited <= took);
    assert_true(yk_timer_read(t) == waited);
    yk_event_destroy(e);
    yk_stream_destroy(other);
    yk_timer_destroy(t);
}

static void what_lies_between_stretches_does_not_count(void **state)
{
    op_case *c = *state;
    yk_timer *t = open_timer(c, 4);
    double begin = yk_clock_s();
    for (int i = 0; i < 4; i++) {
        assert_int_equal(yk_stream_run(c->stream, nap, NULL, 0), YK_OK);
        assert_int_equal(yk_timer_begin(t, c->stream), YK_OK);
        assert_int_equal(yk_timer_end(t, c->stream), YK_OK);
    }
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    double took = yk_clock_s() - begin;
    assert_true(yk_timer_read(t) <= took - 0.079); /* the naps took 0.08 */
    yk_timer_destroy(t);
}

/* Far more stretches than places: a stream that is slower than the host leaves some out. */
static void places_are_used_again(void **state)
{
    op_case *c = *state;
    yk_timer *t = open_timer(c, 2);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(yk_timer_begin(t, c->stream), YK_OK);
        assert_int_equal(yk_stream_run(c->stream, nap, NULL, 0), YK_OK);
        assert_int_equal(yk_timer_end(t, c->stream), YK_OK);
        assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    }
    assert_true(yk_timer_read(t) > 0.19);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(yk_timer_begin(t, c->stream), YK_OK);
        assert_int_equal(yk_timer_end(t, c->stream), YK_OK);
    }
    assert_int_equal(yk_stream_synchronize(c->stream), YK_OK);
    (void)yk_timer_read(t);
    yk_timer_destroy(t);
}

static void a_described_device_has_virtual_stretches(void **state)
{
    op_case *c = *state;
    yk_timer *t;
    assert_int_equal(yk_timer_create(c->dry, 2, &t), YK_OK);
    assert_int_equal(yk_timer_begin(t, c->dry_stream), YK_OK);
    assert_int_equal(yk_stream_charge(c->dry_stream, 3.0, 0), YK_OK);
    assert_int_equal(yk_timer_end(t, c->dry_stream), YK_OK);
    double s = yk_timer_read(t);
    assert_true(s >= 3.0 && s < 3.01);
    yk_timer_destroy(t);
    yk_timer_destroy(NULL);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(a_wait_for_another_stream_is_what_it_takes),
        OP_TEST(what_lies_between_stretches_does_not_count),
        OP_TEST(places_are_used_again),
        OP_TEST(a_described_device_has_virtual_stretches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
