/* runtime/device/cpu/queue_cpu.c - the thread behind a transfer stream, and its ring of tasks.
 *
 * A task runs in its slot, without the lock, and its slot is free when it is done. So `n_done` counts
 * what has been passed, and a full ring makes the pusher wait, as a stream of a GPU does.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/side_thread.h"
#include "runtime/device/cpu/queue.h"

#define N_SLOTS 1024

typedef struct slot {
    _Alignas(16) char context[YK_STREAM_CONTEXT_MAX];
    yk_stream_fn fn;  /* one of the two is set */
    cpu_mark_fn mark; /* done after a failure too */
} slot;

struct cpu_queue {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t pushed, done; /* the thread waits for the first, the pusher for the second */
    uint64_t n_pushed, n_done;   /* since the start; slots are numbered modulo N_SLOTS */
    yk_status status;            /* the first failure */
    bool closing;
    slot slots[N_SLOTS];
};

static yk_status run(const slot *s, void *context, yk_status so_far)
{
    if (s->mark) return s->mark(context, so_far);
    return so_far == YK_OK ? s->fn(context) : so_far;
}

static void *work(void *argument)
{
    cpu_queue *q = argument;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->n_done == q->n_pushed && !q->closing) pthread_cond_wait(&q->pushed, &q->lock);
        if (q->n_done == q->n_pushed) break;
        slot *s = &q->slots[q->n_done % N_SLOTS];
        yk_status status = q->status;
        pthread_mutex_unlock(&q->lock);
        status = run(s, s->context, status);
        pthread_mutex_lock(&q->lock);
        q->status = status;
        q->n_done++;
        pthread_cond_signal(&q->done);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

yk_status yk_cpu_queue_create(const char *name, cpu_queue **queue_out)
{
    cpu_queue *q = aligned_alloc(64, (sizeof *q + 63) / 64 * 64);
    if (!q) return yk_fail(YK_ENOMEM, name, "no memory for a stream's queue");
    memset(q, 0, sizeof *q);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->pushed, NULL);
    pthread_cond_init(&q->done, NULL);
    int error = yk_side_thread_start(&q->thread, work, q);
    if (error != 0) {
        free(q);
        return yk_fail(YK_ENOMEM, name,
                       "no thread for a stream: %s; allow more processes (ulimit -u)",
                       strerror(error));
    }
    pthread_setname_np(q->thread, name); /* names over 15 bytes are refused and do not matter */
    *queue_out = q;
    return YK_OK;
}

void yk_cpu_queue_destroy(cpu_queue *q)
{
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->closing = true;
    pthread_cond_signal(&q->pushed);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->done);
    pthread_cond_destroy(&q->pushed);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static yk_status push(cpu_queue *q, slot task, const void *context, int64_t bytes)
{
    pthread_mutex_lock(&q->lock);
    while (q->n_pushed - q->n_done == N_SLOTS) pthread_cond_wait(&q->done, &q->lock);
    slot *s = &q->slots[q->n_pushed % N_SLOTS];
    if (bytes > 0) memcpy(s->context, context, (size_t)bytes);
    s->fn = task.fn;
    s->mark = task.mark;
    q->n_pushed++;
    yk_status status = q->status;
    pthread_cond_signal(&q->pushed);
    pthread_mutex_unlock(&q->lock);
    return status;
}

yk_status yk_cpu_queue_push(cpu_queue *q, yk_stream_fn fn, const void *context, int64_t bytes)
{
    return push(q, (slot){.fn = fn}, context, bytes);
}

void yk_cpu_queue_mark(cpu_queue *q, cpu_mark_fn fn, const void *context, int64_t bytes)
{
    push(q, (slot){.mark = fn}, context, bytes);
}

yk_status yk_cpu_queue_drain(cpu_queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->n_done != q->n_pushed) pthread_cond_wait(&q->done, &q->lock);
    yk_status status = q->status;
    pthread_mutex_unlock(&q->lock);
    return status;
}
