/* tests/runtime/device/test_transfer.c - streams that work beside the thread that calls, on the cpu.
 *
 * Work is held back by gates, so that what has and has not happened is known and not a matter of luck.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/device/ops.h"

typedef struct rig {
    yk_device *device;
    yk_stream *compute, *a, *b; /* two transfer streams */
    yk_event *event, *other;
    sem_t gate; /* passed once for each post */
    atomic_int n_run;
    int order[4096];
    pthread_t thread; /* that ran last */
} rig;

static int setup(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_int_equal(yk_device_open_cpu(2, &r->device), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_COMPUTE, "compute", &r->compute), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_TRANSFER, "gather", &r->a), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_TRANSFER, "reduce", &r->b), YK_OK);
    assert_int_equal(yk_event_create(r->device, &r->event), YK_OK);
    assert_int_equal(yk_event_create(r->device, &r->other), YK_OK);
    sem_init(&r->gate, 0, 0);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    rig *r = *state;
    yk_event_destroy(r->event);
    yk_event_destroy(r->other);
    yk_stream_destroy(r->a);
    yk_stream_destroy(r->b);
    yk_stream_destroy(r->compute);
    yk_device_close(r->device);
    sem_destroy(&r->gate);
    free(r);
    return 0;
}

/* ---- what streams are given --------------------------------------------------------------- */

typedef struct note {
    rig *r;
    int id;
} note;

static yk_status write_down(void *context)
{
    const note *n = context;
    n->r->order[atomic_fetch_add(&n->r->n_run, 1)] = n->id;
    n->r->thread = pthread_self();
    return YK_OK;
}

static yk_status pass_gate(void *context)
{
    rig *r = *(rig **)context;
    while (sem_wait(&r->gate) != 0) continue;
    return YK_OK;
}

static yk_status fail_on_purpose(void *context)
{
    return *(yk_status *)context;
}

static void enqueue(rig *r, yk_stream *s, int id)
{
    note n = {r, id};
    assert_int_equal(yk_stream_run(s, write_down, &n, sizeof n), YK_OK);
}

static void enqueue_gate(rig *r, yk_stream *s)
{
    assert_int_equal(yk_stream_run(s, pass_gate, &r, sizeof r), YK_OK);
}

static void enqueue_failure(yk_stream *s, yk_status status)
{
    assert_int_equal(yk_stream_run(s, fail_on_purpose, &status, sizeof status), YK_OK);
}

static void open_gate(rig *r)
{
    sem_post(&r->gate);
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
}

static void *open_gate_later(void *argument)
{
    nap();
    open_gate(argument);
    return NULL;
}

/* ---- order -------------------------------------------------------------------------------- */

static void a_transfer_stream_works_in_order_on_a_thread_of_its_own(void **state)
{
    rig *r = *state;
    enqueue_gate(r, r->a);
    for (int i = 0; i < 100; i++) enqueue(r, r->a, i);
    assert_int_equal(atomic_load(&r->n_run), 0); /* the calls have returned */
    open_gate(r);
    assert_int_equal(yk_stream_synchronize(r->a), YK_OK);
    assert_int_equal(atomic_load(&r->n_run), 100);
    for (int i = 0; i < 100; i++) assert_int_equal(r->order[i], i);
    assert_false(pthread_equal(r->thread, pthread_self()));
}

static void a_compute_stream_works_at_once(void **state)
{
    rig *r = *state;
    enqueue(r, r->compute, 7);
    assert_int_equal(atomic_load(&r->n_run), 1);
    assert_true(pthread_equal(r->thread, pthread_self()));
    yk_status bad = YK_EIO;
    assert_int_equal(yk_stream_run(r->compute, fail_on_purpose, &bad, sizeof bad), YK_EIO);
}

typedef struct large {
    unsigned char bytes[YK_STREAM_CONTEXT_MAX];
} large;

static yk_status check_large(void *context)
{
    const large *l = context;
    if ((uintptr_t)context % 16 != 0) return YK_EINVAL;
    for (int i = 0; i < YK_STREAM_CONTEXT_MAX; i++)
        if (l->bytes[i] != (unsigned char)(i * 7)) return YK_EFORMAT;
    return YK_OK;
}

static void a_context_is_copied_whole_and_aligned(void **state)
{
    rig *r = *state;
    large l;
    for (int i = 0; i < YK_STREAM_CONTEXT_MAX; i++) l.bytes[i] = (unsigned char)(i * 7);
    enqueue_gate(r, r->a);
    assert_int_equal(yk_stream_run(r->a, check_large, &l, sizeof l), YK_OK);
    memset(&l, 0, sizeof l);
    open_gate(r);
    assert_int_equal(yk_stream_synchronize(r->a), YK_OK);
    for (int i = 0; i < YK_STREAM_CONTEXT_MAX; i++) l.bytes[i] = (unsigned char)(i * 7);
    assert_int_equal(yk_stream_run(r->compute, check_large, &l, sizeof l), YK_OK);
    assert_int_equal(yk_stream_run(r->a, check_large, &l, sizeof l + 1), YK_EINVAL);
    assert_int_equal(yk_stream_run(r->a, check_large, &l, -1), YK_EINVAL);
    assert_int_equal(yk_stream_run(r->a, check_large, NULL, 1), YK_EINVAL);
    assert_int_equal(yk_stream_run(r->a, NULL, &l, 1), YK_EINVAL);
}

/* 3000 are more than the ring holds. */
static void a_full_stream_makes_its_caller_wait_and_loses_nothing(void **state)
{
    rig *r = *state;
    pthread_t opener;
    enqueue_gate(r, r->a);
    pthread_create(&opener, NULL, open_gate_later, r);
    for (int i = 0; i < 3000; i++) enqueue(r, r->a, i);
    assert_true(atomic_load(&r->n_run) >= 3000 - 1024);
    assert_int_equal(yk_stream_synchronize(r->a), YK_OK);
    for (int i = 0; i < 3000; i++) assert_int_equal(r->order[i], i);
    pthread_join(opener, NULL);
}

static void copies_and_zeros_are_in_order_with_functions(void **state)
{
    rig *r = *state;
    static char from[70001], to[70001];
    memset(from, 3, sizeof from);
    memset(to, 9, sizeof to);
    enqueue_gate(r, r->a);
    assert_int_equal(yk_copy(r->a, to, from, sizeof to, YK_COPY_DEVICE), YK_OK);
    assert_int_equal(yk_zero(r->a, from, sizeof from), YK_OK);
    assert_int_equal(to[0], 9);
    assert_int_equal(from[0], 3);
    open_gate(r);
    assert_int_equal(yk_stream_synchronize(r->a), YK_OK);
    for (size_t i = 0; i < sizeof to; i++) assert_true(to[i] == 3 && from[i] == 0);
}

static void operations_are_refused_on_a_transfer_stream(void **state)
{
    rig *r = *state;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    yk_cast_args a = {.dst = y, .src = x, .n = 4, .dst_dtype = YK_F32, .src_dtype = YK_F32};
    assert_int_equal(yk_cast(r->a, &a), YK_EUNSUPPORTED);
    assert_int_equal(yk_cast(r->compute, &a), YK_OK);
    assert_memory_equal(x, y, sizeof x);
}

static void a_call_allocates_nothing(void **state)
{
    rig *r = *state;
    char a[64], b[64];
    for (int warm = 0; warm < 2; warm++) {
        size_t before = mallinfo2().uordblks;
        for (int i = 0; i < 500; i++) {
            note n = {r, i};
            assert_int_equal(yk_stream_run(r->a, write_down, &n, sizeof n), YK_OK);
            assert_int_equal(yk_copy(r->b, a, b, sizeof a, YK_COPY_DEVICE), YK_OK);
            assert_int_equal(yk_event_record(r->event, r->a), YK_OK);
            assert_int_equal(yk_event_wait(r->event, r->b), YK_OK);
        }
        assert_int_equal(yk_stream_synchronize(r->b), YK_OK);
        if (warm) assert_int_equal(mallinfo2().uordblks, before);
        atomic_store(&r->n_run, 0);
    }
}

static void destroying_a_stream_waits_for_its_work(void **state)
{
    rig *r = *state;
    yk_stream *s;
    pthread_t opener;
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_TRANSFER, "short", &s), YK_OK);
    enqueue_gate(r, s);
    enqueue(r, s, 1);
    pthread_create(&opener, NULL, open_gate_later, r);
    yk_stream_destroy(s);
    assert_int_equal(atomic_load(&r->n_run), 1);
    pthread_join(opener, NULL);
}

static void a_stream_of_an_unknown_kind_is_refused(void **state)
{
    rig *r = *state;
    yk_stream *s;
    assert_int_equal(yk_stream_create(r->device, (yk_stream_kind)7, "odd", &s), YK_EINVAL);
}

/* ---- events ------------------------------------------------------------------------------- */

static void an_event_holds_the_caller_until_the_transfer_is_done(void **state)
{
    rig *r = *state;
    pthread_t opener;
    enqueue_gate(r, r->a);
    enqueue(r, r->a, 1);
    assert_int_equal(yk_event_record(r->event, r->a), YK_OK);
    enqueue_gate(r, r->a); /* what comes after the record is not waited for */
    pthread_create(&opener, NULL, open_gate_later, r);
    assert_int_equal(yk_event_wait(r->event, r->compute), YK_OK);
    assert_int_equal(atomic_load(&r->n_run), 1);
    pthread_join(opener, NULL);
    open_gate(r);
}

static void an_event_holds_one_transfer_stream_for_another(void **state)
{
    rig *r = *state;
    enqueue_gate(r, r->a);
    assert_int_equal(yk_event_record(r->event, r->a), YK_OK);
    assert_int_equal(yk_event_wait(r->event, r->b), YK_OK);
    enqueue(r, r->b, 1);
    nap();
    assert_int_equal(atomic_load(&r->n_run), 0);
    open_gate(r);
    assert_int_equal(yk_stream_synchronize(r->b), YK_OK);
    assert_int_equal(atomic_load(&r->n_run), 1);
}

static void an_event_never_recorded_holds_nothing_back(void **state)
{
    rig *r = *state;
    assert_int_equal(yk_event_wait(r->event, r->compute), YK_OK);
    assert_int_equal(yk_event_wait(r->event, r->a), YK_OK);
    assert_int_equal(yk_event_synchronize(r->event), YK_OK);
    assert_int_equal(yk_stream_synchronize(r->a), YK_OK);
}

static void a_wait_is_for_the_record_that_was_last_when_it_was_made(void **state)
{
    rig *r = *state;
    enqueue(r, r->a, 1);
    assert_int_equal(yk_event_record(r->event, r->a), YK_OK);
    assert_int_equal(yk_event_wait(r->event, r->b), YK_OK);
    enqueue_gate(r, r->a);
    assert_int_equal(yk_event_record(r->event, r->a), YK_OK); /* after the gate */
    assert_int_equal(yk_stream_synchronize(r->b), YK_OK);     /* before it */
    open_gate(r);
    assert_int_equal(yk_event_synchronize(r->event), YK_OK);
}

/* The record on a is passed late; the one on b would pass it by. */
static void a_record_on_another_stream_does_not_overtake(void **state)
{
    rig *r = *state;
    pthread_t opener;
    enqueue_gate(r, r->a);
    enqueue(r, r->a, 1);
    assert_int_equal(yk_event_record(r->event, r->a), YK_OK);
    pthread_create(&opener, NULL, open_gate_later, r);
    assert_int_equal(yk_event_record(r->event, r->b), YK_OK);
    assert_int_equal(yk_event_synchronize(r->event), YK_OK);
    assert_int_equal(atomic_load(&r->n_run), 1);
    pthread_join(opener, NULL);
}

static void destroying_an_event_waits_until_streams_have_passed_it(void **state)
{
    rig *r = *state;
    yk_event *e;
    pthread_t opener;
    assert_int_equal(yk_event_create(r->device, &e), YK_OK);
    enqueue_gate(r, r->a);
    assert_int_equal(yk_event_record(e, r->a), YK_OK);
    assert_int_equal(yk_event_wait(e, r->b), YK_OK);
    pthread_create(&opener, NULL, open_gate_later, r);
    yk_event_destroy(e);
    assert_int_equal(yk_stream_synchronize(r->b), YK_OK);
    pthread_join(opener, NULL);
}

/* ---- failure ------------------------------------------------------------------------------ */

static void a_failure_stays_and_what_follows_is_left_out(void **state)
{
    rig *r = *state;
    char to = 1, from = 2;
    enqueue(r, r->a, 1);
    enqueue_failure(r->a, YK_EPEER);
    assert_int_equal(yk_stream_synchronize(r->a), YK_EPEER);
    note n = {r, 2};
    assert_int_equal(yk_stream_run(r->a, write_down, &n, sizeof n), YK_EPEER);
    assert_int_equal(yk_copy(r->a, &to, &from, 1, YK_COPY_DEVICE), YK_EPEER);
    assert_int_equal(yk_stream_synchronize(r->a), YK_EPEER);
    assert_int_equal(atomic_load(&r->n_run), 1);
    assert_int_equal(to, 1);
    enqueue(r, r->b, 3); /* others go on */
    assert_int_equal(yk_stream_synchronize(r->b), YK_OK);
}

static void a_failure_reaches_those_who_wait(void **state)
{
    rig *r = *state;
    enqueue_gate(r, r->a);
    enqueue_failure(r->a, YK_ETIMEDOUT);
    assert_int_equal(yk_event_record(r->event, r->a), YK_OK);
    assert_int_equal(yk_event_wait(r->event, r->b), YK_OK);
    enqueue(r, r->b, 1);
    assert_int_equal(yk_event_record(r->other, r->b), YK_OK);
    open_gate(r);
    assert_int_equal(yk_event_wait(r->event, r->compute), YK_ETIMEDOUT);
    assert_int_equal(yk_event_synchronize(r->other), YK_ETIMEDOUT);
    assert_int_equal(yk_stream_synchronize(r->b), YK_ETIMEDOUT);
    assert_int_equal(atomic_load(&r->n_run), 0);
    assert_int_equal(yk_event_record(r->event, r->compute), YK_OK); /* a sound stream */
    assert_int_equal(yk_event_synchronize(r->event), YK_OK);
}

/* ---- dry ---------------------------------------------------------------------------------- */

static void expect_near(double got, double expected)
{
    if (got < expected - 1e-9 || got > expected + 1e-9) fail_msg("%.9f, not %.9f", got, expected);
}

typedef struct dry {
    yk_device *device;
    yk_stream *compute, *transfer;
    yk_event *event;
} dry;

static dry open_dry(const char *name, double launch_s)
{
    dry d;
    yk_device_spec spec;
    assert_int_equal(yk_device_spec_find(name, &spec), YK_OK);
    spec.launch_s = launch_s;
    assert_int_equal(yk_device_open_dry(&spec, &d.device), YK_OK);
    assert_int_equal(yk_stream_create(d.device, YK_STREAM_COMPUTE, "compute", &d.compute), YK_OK);
    assert_int_equal(yk_stream_create(d.device, YK_STREAM_TRANSFER, "gather", &d.transfer), YK_OK);
    assert_int_equal(yk_event_create(d.device, &d.event), YK_OK);
    return d;
}

static void close_dry(dry d)
{
    yk_event_destroy(d.event);
    yk_stream_destroy(d.compute);
    yk_stream_destroy(d.transfer);
    yk_device_close(d.device);
}

static void a_dry_stream_never_calls_and_spends_what_it_is_charged(void **state)
{
    rig *r = *state;
    dry d = open_dry("4090d", 0.001);
    enqueue(r, d.transfer, 1);
    assert_int_equal(yk_stream_synchronize(d.transfer), YK_OK);
    assert_int_equal(atomic_load(&r->n_run), 0);
    expect_near(yk_stream_now(d.transfer), 0);
    assert_int_equal(yk_stream_charge(d.transfer, 0.5, 1000), YK_OK);
    expect_near(yk_stream_now(d.transfer), 0.501);
    expect_near(yk_device_get_counts(d.device).bytes, 1000);
    assert_int_equal(yk_stream_charge(d.transfer, -1, 0), YK_EINVAL);
    assert_int_equal(yk_stream_charge(r->a, 5, 1000), YK_OK); /* a real one takes its own time */
    close_dry(d);
}

static void a_described_cpu_transfers_beside_its_compute(void **state)
{
    (void)state;
    dry d = open_dry("cpu", 0);
    assert_int_equal(yk_stream_charge(d.transfer, 1, 0), YK_OK);
    assert_int_equal(yk_stream_charge(d.compute, 0.25, 0), YK_OK);
    expect_near(yk_stream_now(d.compute), 0.25); /* it did not wait */
    assert_int_equal(yk_event_record(d.event, d.transfer), YK_OK);
    assert_int_equal(yk_event_wait(d.event, d.compute), YK_OK);
    expect_near(yk_stream_now(d.compute), 1);
    yk_cast_args a = {.dst = d.device, .src = d.device, .n = 4};
    assert_int_equal(yk_cast(d.transfer, &a), YK_EUNSUPPORTED);
    close_dry(d);
}

/* A wait on a compute stream of a cpu blocks the host, so what it issues next starts later; a GPU's
 * does not. */
static void a_wait_blocks_the_host_of_a_described_cpu_alone(void **state)
{
    (void)state;
    for (int cpu = 0; cpu < 2; cpu++) {
        dry d = open_dry(cpu ? "cpu" : "4090d", 0);
        yk_stream *third;
        assert_int_equal(yk_stream_create(d.device, YK_STREAM_TRANSFER, "third", &third), YK_OK);
        assert_int_equal(yk_stream_charge(d.transfer, 1, 0), YK_OK);
        assert_int_equal(yk_event_record(d.event, d.transfer), YK_OK);
        assert_int_equal(yk_event_wait(d.event, d.compute), YK_OK);
        assert_int_equal(yk_stream_charge(third, 0.5, 0), YK_OK);
        expect_near(yk_stream_now(third), cpu ? 1.5 : 0.5);
        yk_stream_destroy(third);
        close_dry(d);
    }
}

/* What a GPU computes beside a collective takes longer, by a share of the time that both are under way. */
static void a_collective_takes_a_share_of_what_a_gpu_computes_beside_it(void **state)
{
    (void)state;
    double seconds[2][3];
    for (int cpu = 0; cpu < 2; cpu++)
        for (int i = 0; i < 3; i++) { /* nothing travels; beside half of the work; before it */
            dry d = open_dry(cpu ? "cpu" : "4090d", 0);
            if (i > 0) assert_int_equal(yk_stream_charge(d.transfer, 1, 1000), YK_OK);
            assert_int_equal(yk_event_record(d.event, d.transfer), YK_OK);
            if (i == 2) assert_int_equal(yk_event_wait(d.event, d.compute), YK_OK);
            double begin_s = yk_stream_now(d.compute);
            assert_int_equal(yk_stream_charge(d.compute, 2, 1000), YK_OK);
            seconds[cpu][i] = yk_stream_now(d.compute) - begin_s;
            close_dry(d);
        }
    expect_near(seconds[0][0], 2);
    assert_true(seconds[0][1] > 2.05 && seconds[0][1] < 2.2);
    expect_near(seconds[0][2], 2);
    for (int i = 0; i < 3; i++) expect_near(seconds[1][i], 2);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_transfer_stream_works_in_order_on_a_thread_of_its_own),
        TEST(a_compute_stream_works_at_once),
        TEST(a_context_is_copied_whole_and_aligned),
        TEST(a_full_stream_makes_its_caller_wait_and_loses_nothing),
        TEST(copies_and_zeros_are_in_order_with_functions),
        TEST(operations_are_refused_on_a_transfer_stream),
        TEST(a_call_allocates_nothing),
        TEST(destroying_a_stream_waits_for_its_work),
        TEST(a_stream_of_an_unknown_kind_is_refused),
        TEST(an_event_holds_the_caller_until_the_transfer_is_done),
        TEST(an_event_holds_one_transfer_stream_for_another),
        TEST(an_event_never_recorded_holds_nothing_back),
        TEST(a_wait_is_for_the_record_that_was_last_when_it_was_made),
        TEST(a_record_on_another_stream_does_not_overtake),
        TEST(destroying_an_event_waits_until_streams_have_passed_it),
        TEST(a_failure_stays_and_what_follows_is_left_out),
        TEST(a_failure_reaches_those_who_wait),
        TEST(a_dry_stream_never_calls_and_spends_what_it_is_charged),
        TEST(a_described_cpu_transfers_beside_its_compute),
        TEST(a_wait_blocks_the_host_of_a_described_cpu_alone),
        TEST(a_collective_takes_a_share_of_what_a_gpu_computes_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
