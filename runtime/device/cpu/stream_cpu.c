/* runtime/device/cpu/stream_cpu.c - streams and events on processors.
 *
 * A compute stream is the thread that calls: what is enqueued is done on return, so it never lags
 * behind. A transfer stream is a thread of its own with a queue. An event counts its records and those
 * that have been passed; waiting for it is waiting until the second number has reached what the first
 * one was. A failure travels along: a stream that passes a record gives the event its status, and
 * whoever waits takes it over, so that nothing works on what was never made.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/device/cpu/cpu.h"

typedef struct cpu_event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t n_recorded, n_passed;
    const yk_stream *recorded_on; /* the stream of the last record */
    yk_status status;             /* of the stream when it passed the last record */
    int n_queued;                 /* tasks in queues that refer to the event */
} cpu_event;

static cpu_queue *queue_of(const yk_stream *s)
{
    return ((const cpu_stream *)s->state)->queue;
}

/* ---- streams ------------------------------------------------------------------------------ */

static yk_status create_scratch(const yk_stream *s, cpu_stream *state)
{
    int64_t bytes = state->n_threads * (int64_t)(CPU_SCRATCH_FLOATS * sizeof(float));
    state->scratch = yk_cpu_allocate(bytes);
    if (state->scratch) return YK_OK;
    return yk_fail(YK_ENOMEM, s->name, "no memory for the %lld bytes of a stream's %d threads",
                   (long long)bytes, state->n_threads);
}

yk_status yk_cpu_stream_create(yk_stream *s)
{
    cpu_stream *state = calloc(1, sizeof *state);
    if (!state) return yk_fail(YK_ENOMEM, s->name, "no memory for a stream");
    state->n_threads = yk_cpu_n_threads(s->device);
    yk_status status = s->kind == YK_STREAM_TRANSFER ? yk_cpu_queue_create(s->name, &state->queue)
                                                     : create_scratch(s, state);
    if (status != YK_OK) {
        free(state);
        return status;
    }
    s->state = state;
    return YK_OK;
}

void yk_cpu_stream_destroy(yk_stream *s)
{
    cpu_stream *state = s->state;
    yk_cpu_queue_destroy(state->queue);
    free(state->scratch);
    free(state);
}

yk_status yk_cpu_stream_synchronize(yk_stream *s)
{
    return queue_of(s) ? yk_cpu_queue_drain(queue_of(s)) : YK_OK;
}

double yk_cpu_stream_now(const yk_stream *s)
{
    (void)s;
    return yk_clock_s();
}

yk_status yk_cpu_stream_run(yk_stream *s, yk_stream_fn fn, const void *context, int64_t bytes)
{
    if (queue_of(s)) return yk_cpu_queue_push(queue_of(s), fn, context, bytes);
    _Alignas(16) char copy[YK_STREAM_CONTEXT_MAX];
    if (bytes > 0) memcpy(copy, context, (size_t)bytes);
    return fn(copy);
}

/* ---- marks -------------------------------------------------------------------------------- */

static yk_status look_at_clock(void *context)
{
    yk_mark *const *m = context;
    (*m)->at_s = yk_clock_s();
    return YK_OK;
}

/* On a transfer stream its thread looks at the clock when it comes to the mark. */
yk_status yk_cpu_mark(yk_stream *s, yk_mark *m)
{
    if (queue_of(s)) return yk_cpu_queue_push(queue_of(s), look_at_clock, &m, sizeof m);
    return look_at_clock(&m);
}

/* ---- copies inside a transfer stream: on its thread alone --------------------------------- */

typedef struct move {
    void *dst;
    const void *src; /* NULL: zeros */
    size_t bytes;
} move;

static yk_status run_move(void *context)
{
    const move *m = context;
    if (m->src)
        memcpy(m->dst, m->src, m->bytes);
    else
        memset(m->dst, 0, m->bytes);
    return YK_OK;
}

yk_status yk_cpu_stream_copy(yk_stream *s, void *dst, const void *src, int64_t bytes,
                             yk_copy_kind kind)
{
    if (!queue_of(s)) return yk_cpu_copy(s, dst, src, bytes, kind);
    move m = {.dst = dst, .src = src, .bytes = (size_t)bytes};
    return yk_cpu_queue_push(queue_of(s), run_move, &m, sizeof m);
}

yk_status yk_cpu_stream_zero(yk_stream *s, void *dst, int64_t bytes)
{
    if (!queue_of(s)) return yk_cpu_zero(s, dst, bytes);
    move m = {.dst = dst, .bytes = (size_t)bytes};
    return yk_cpu_queue_push(queue_of(s), run_move, &m, sizeof m);
}

/* ---- events ------------------------------------------------------------------------------- */

yk_status yk_cpu_event_create(yk_event *e)
{
    cpu_event *state = calloc(1, sizeof *state);
    if (!state) return yk_fail(YK_ENOMEM, "event", "no memory for an event");
    pthread_mutex_init(&state->lock, NULL);
    pthread_cond_init(&state->changed, NULL);
    e->state = state;
    return YK_OK;
}

void yk_cpu_event_destroy(yk_event *e)
{
    cpu_event *state = e->state;
    pthread_mutex_lock(&state->lock);
    while (state->n_queued > 0) pthread_cond_wait(&state->changed, &state->lock);
    pthread_mutex_unlock(&state->lock);
    pthread_cond_destroy(&state->changed);
    pthread_mutex_destroy(&state->lock);
    free(state);
}

/* What a queue keeps of a record or of a wait. */
typedef struct mark {
    cpu_event *event;
    uint64_t record; /* the record that is passed or waited for */
} mark;

static yk_status pass_record(void *context, yk_status so_far)
{
    const mark *m = context;
    cpu_event *e = m->event;
    pthread_mutex_lock(&e->lock);
    e->n_passed = m->record;
    e->status = so_far;
    e->n_queued--;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return so_far;
}

static yk_status wait_locked(cpu_event *e, uint64_t record)
{
    while (e->n_passed < record) pthread_cond_wait(&e->changed, &e->lock);
    return e->status;
}

static yk_status await_record(void *context, yk_status so_far)
{
    const mark *m = context;
    cpu_event *e = m->event;
    pthread_mutex_lock(&e->lock);
    yk_status status = so_far == YK_OK ? wait_locked(e, m->record) : so_far;
    e->n_queued--;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return status;
}

/* A stream passes its records in order. One on another stream waits until they are passed, so that
 * records are passed in order whatever the streams. */
yk_status yk_cpu_event_record(yk_event *e, yk_stream *s)
{
    cpu_event *state = e->state;
    pthread_mutex_lock(&state->lock);
    if (state->recorded_on != s) wait_locked(state, state->n_recorded);
    state->recorded_on = s;
    mark m = {.event = state, .record = ++state->n_recorded};
    state->n_queued++;
    pthread_mutex_unlock(&state->lock);
    if (queue_of(s))
        yk_cpu_queue_mark(queue_of(s), pass_record, &m, sizeof m);
    else
        pass_record(&m, YK_OK);
    return YK_OK;
}

yk_status yk_cpu_event_wait(yk_event *e, yk_stream *s)
{
    if (!queue_of(s)) return yk_cpu_event_synchronize(e);
    cpu_event *state = e->state;
    pthread_mutex_lock(&state->lock);
    mark m = {.event = state, .record = state->n_recorded};
    state->n_queued++;
    pthread_mutex_unlock(&state->lock);
    yk_cpu_queue_mark(queue_of(s), await_record, &m, sizeof m);
    return YK_OK;
}

yk_status yk_cpu_event_synchronize(yk_event *e)
{
    cpu_event *state = e->state;
    pthread_mutex_lock(&state->lock);
    yk_status status = wait_locked(state, state->n_recorded);
    pthread_mutex_unlock(&state->lock);
    return status;
}
