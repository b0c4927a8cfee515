/* runtime/device/recorder.h - what streams really did, operation by operation.
 *
 * Model.    A recorder is made for a device, started and stopped around what is of interest, usually
 *           one step, and read afterwards. In between every operation, copy and collective on any
 *           stream of the device becomes a span: when the stream came to it and when it had passed
 *           it. On `cuda` by events, on `cpu` by the clock, on `dry` by the virtual clock. While
 *           nothing is recorded an operation costs one test of a pointer.
 * Memory.   A span's room is taken when the recorder is made; spans beyond it are counted and left
 *           out.
 * Threads.  One thread enqueues while a recorder runs.
 */
#ifndef YK_RUNTIME_DEVICE_RECORDER_H
#define YK_RUNTIME_DEVICE_RECORDER_H

#include "runtime/device/device.h"

typedef struct yk_recorder yk_recorder;

/* One operation on one stream. Spans on one stream may lie inside another: what a collective is made
 * of lies inside the collective. */
typedef struct yk_span {
    const char *name;      /* of the operation: "linear_forward"; static storage */
    const char *part;      /* what it was part of: "backward 3", or ""; the recorder's */
    const char *stream;    /* name of its stream; the recorder's */
    int lane;              /* number of the stream, from 0, in order of first use */
    double begin_s, end_s; /* since the first span of the recording began */
    double bytes, flops;   /* as yk_cost has them */
} yk_span;

/* Make a recorder with room for `max_spans` spans.                                       [local]
 *
 * YK_ENOMEM  no memory for them
 */
yk_status yk_recorder_create(yk_device *device, int max_spans, yk_recorder **recorder_out);

/* Release it; stopped if it runs. The device must be open still. NULL does nothing. */
void yk_recorder_destroy(yk_recorder *recorder);

/* Forget what was recorded, and record what the device's streams are given from now on. One recorder
 * of a device runs at a time. */
void yk_recorder_start(yk_recorder *recorder);

/* Record no more; wait for the streams that were recorded, and find out the times.        [local]
 *
 * YK_EDEVICE  the device failed
 */
yk_status yk_recorder_stop(yk_recorder *recorder);

/* What a stopped recorder holds: spans in the order in which they were enqueued. */
int yk_recorder_n_spans(const yk_recorder *recorder);
yk_span yk_recorder_get(const yk_recorder *recorder, int i);

/* Spans that found no room. */
int64_t yk_recorder_n_lost(const yk_recorder *recorder);

/* Is something recorded on the device now? */
bool yk_device_is_recorded(const yk_device *device);

/* What follows, until the next call, is part of "name number", or of "name" where number is negative.
 * Shown in spans, and as a range by NVIDIA's profilers. "" ends it.
 *
 * name  static storage
 */
void yk_device_set_part(yk_device *device, const char *name, int number);

/* A span of several calls on a stream, such as a collective. The number goes to yk_span_end(); it is
 * negative where nothing is recorded.
 *
 * name  static storage
 */
int yk_span_begin(yk_stream *stream, const char *name, double bytes, double flops);
void yk_span_end(yk_stream *stream, int span);

#endif
