/* runtime/observe/trace.h - trace.json: what streams did, for Perfetto or chrome://tracing.
 *
 * The format is Chrome's ("Trace Event Format", complete events): one object with an array of
 * spans, each on a process (a rank) and a thread (a stream), with bytes and operations as
 * arguments. Times are microseconds.
 */
#ifndef YK_RUNTIME_OBSERVE_TRACE_H
#define YK_RUNTIME_OBSERVE_TRACE_H

#include "runtime/device/recorder.h"

typedef struct yk_trace yk_trace;

/* Make `path`, or empty it.                                                              [local] */
yk_status yk_trace_open(const char *path, yk_trace **trace_out);

/* Add what a stopped recorder holds, after what was added before.
 *
 * rank   shown as the process
 * title  of a span over all of it, such as "step 12"
 */
yk_status yk_trace_add(yk_trace *trace, int rank, const char *title, const yk_recorder *recorder);

/* End the file and close it. NULL does nothing. */
yk_status yk_trace_close(yk_trace *trace);

/* All spans of one name on one stream, taken together. */
typedef struct yk_trace_sum {
    const char *name, *stream; /* the recorder's */
    int n;
    double seconds, bytes, flops;
} yk_trace_sum;

/* Sum what a stopped recorder holds, the longest first; at most `max_sums`. Returns how many. Spans
 * that lie inside another count in both. */
int yk_trace_sum_up(const yk_recorder *recorder, yk_trace_sum *sums, int max_sums);

#endif
