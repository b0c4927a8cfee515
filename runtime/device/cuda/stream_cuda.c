/* runtime/device/cuda/stream_cuda.c - streams, events, and host functions inside a stream.
 *
 * Streams do not block on the legacy stream; events carry no time. The contexts of host functions
 * lie in a ring that belongs to the stream, so that calling one allocates nothing: a place is free
 * again when its function has run, and when all are taken the caller waits for the oldest. What a
 * host function reports stops the whole device, since the GPU cannot leave out work that it was
 * given.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/native.h"

#define PLACES 256

typedef struct host_call {
    _Alignas(16) unsigned char context[YK_STREAM_CONTEXT_MAX];
    struct stream_state *owner;
    yk_stream_fn fn;
} host_call;

typedef struct stream_state {
    yk_cuda_stream head;
    yk_cuda_state *device;
    int64_t n_called;       /* host functions enqueued */
    _Atomic int64_t n_done; /* and run */
    host_call calls[PLACES];
} stream_state;

/* ---- streams ------------------------------------------------------------------------------- */

/* What a transfer stream launches goes before what computes: it has little to do, others wait for it,
 * and a collective that got no multiprocessor would hold up every rank. */
static cudaError_t create_stream(const yk_stream *s, cudaStream_t *stream_out)
{
    int least = 0, greatest = 0;
    (void)cudaDeviceGetStreamPriorityRange(&least, &greatest);
    return cudaStreamCreateWithPriority(stream_out, cudaStreamNonBlocking,
                                        s->kind == YK_STREAM_TRANSFER ? greatest : least);
}

yk_status yk_cuda_stream_create(yk_stream *s)
{
    YK_TRY(yk_cuda_enter(s->device));
    stream_state *state = calloc(1, sizeof *state);
    if (!state) return yk_fail(YK_ENOMEM, s->name, "no memory for a stream");
    cudaError_t error = create_stream(s, &state->head.stream);
    if (error != cudaSuccess) {
        free(state);
        return yk_cuda_check(error, s->name);
    }
    state->device = s->device->state;
    s->state = state;
    return YK_OK;
}

void yk_cuda_stream_destroy(yk_stream *s)
{
    stream_state *state = s->state;
    (void)cudaSetDevice(state->device->index);
    (void)cudaStreamSynchronize(state->head.stream);
    (void)cudaStreamDestroy(state->head.stream);
    free(state);
}

yk_status yk_cuda_stream_synchronize(yk_stream *s)
{
    YK_TRY(yk_cuda_enter(s->device));
    YK_TRY(yk_cuda_check(cudaStreamSynchronize(yk_cuda_stream_of(s)), s->name));
    return yk_cuda_enter(s->device);
}

yk_status yk_cuda_native(yk_stream *stream, cudaStream_t *handle_out)
{
    YK_TRY(yk_cuda_enter(stream->device));
    *handle_out = yk_cuda_stream_of(stream);
    return YK_OK;
}

double yk_cuda_stream_now(const yk_stream *s)
{
    struct timespec t;
    (void)s;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- host functions ------------------------------------------------------------------------ */

static void CUDART_CB run_call(void *argument)
{
    host_call *call = argument;
    stream_state *stream = call->owner;
    atomic_int *failure = &stream->device->failure;
    int none = YK_OK;
    if (atomic_load(failure) == YK_OK) {
        yk_status status = call->fn(call->context);
        if (status != YK_OK) atomic_compare_exchange_strong(failure, &none, (int)status);
    }
    atomic_fetch_add(&stream->n_done, 1);
}

/* Until the ring has a place. */
static void await_place(stream_state *stream)
{
    const struct timespec pause = {.tv_nsec = 20000};
    while (stream->n_called - atomic_load(&stream->n_done) >= PLACES) nanosleep(&pause, NULL);
}

yk_status yk_cuda_stream_run(yk_stream *s, yk_stream_fn fn, const void *context, int64_t bytes)
{
    stream_state *stream = s->state;
    YK_TRY(yk_cuda_enter(s->device));
    await_place(stream);
    host_call *call = &stream->calls[stream->n_called % PLACES];
    call->owner = stream;
    call->fn = fn;
    if (bytes > 0) memcpy(call->context, context, (size_t)bytes);
    YK_TRY(yk_cuda_check(cudaLaunchHostFunc(stream->head.stream, run_call, call), s->name));
    stream->n_called++;
    return YK_OK;
}

/* ---- events -------------------------------------------------------------------------------- */

yk_status yk_cuda_event_create(yk_event *e)
{
    cudaEvent_t event;
    YK_TRY(yk_cuda_enter(e->device));
    YK_TRY(yk_cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event"));
    e->state = event;
    return YK_OK;
}

void yk_cuda_event_destroy(yk_event *e)
{
    (void)cudaSetDevice(((const yk_cuda_state *)e->device->state)->index);
    (void)cudaEventDestroy((cudaEvent_t)e->state);
}

yk_status yk_cuda_event_record(yk_event *e, yk_stream *s)
{
    YK_TRY(yk_cuda_enter(e->device));
    return yk_cuda_check(cudaEventRecord((cudaEvent_t)e->state, yk_cuda_stream_of(s)), s->name);
}

yk_status yk_cuda_event_wait(yk_event *e, yk_stream *s)
{
    YK_TRY(yk_cuda_enter(e->device));
    return yk_cuda_check(cudaStreamWaitEvent(yk_cuda_stream_of(s), (cudaEvent_t)e->state, 0),
                         s->name);
}

yk_status yk_cuda_event_synchronize(yk_event *e)
{
    YK_TRY(yk_cuda_enter(e->device));
    YK_TRY(yk_cuda_check(cudaEventSynchronize((cudaEvent_t)e->state), "event"));
    return yk_cuda_enter(e->device);
}
