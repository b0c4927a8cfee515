/* runtime/device/cpu/queue.h - a thread that works off what it is given, in order; included by cpu/
 * alone.
 *
 * A ring of fixed slots, each with a function and a copy of its context: nothing is allocated after
 * the queue is made. Both sides sleep when they have nothing to do. One thread pushes.
 */
#ifndef YK_RUNTIME_DEVICE_CPU_QUEUE_H
#define YK_RUNTIME_DEVICE_CPU_QUEUE_H

#include "runtime/device/device.h"

typedef struct cpu_queue cpu_queue;

/* A task that is done even after a failure, such as letting others know of it. Gets the queue's
 * status and returns the new one. */
typedef yk_status (*cpu_mark_fn)(void *context, yk_status so_far);

yk_status yk_cpu_queue_create(const char *name, cpu_queue **queue_out);

/* Waits for what was pushed. NULL does nothing. */
void yk_cpu_queue_destroy(cpu_queue *queue);

/* Enqueue `fn`, which is left out once the queue has failed. Waits while the ring is full. Returns
 * the queue's failure, if it is known already. */
yk_status yk_cpu_queue_push(cpu_queue *queue, yk_stream_fn fn, const void *context, int64_t bytes);

/* Enqueue `fn`, which is always done. */
void yk_cpu_queue_mark(cpu_queue *queue, cpu_mark_fn fn, const void *context, int64_t bytes);

/* Block until everything pushed is done; returns the queue's failure. */
yk_status yk_cpu_queue_drain(cpu_queue *queue);

#endif
