/* runtime/observe/trace.c - see trace.h. */
#include "runtime/observe/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/storage/file.h"

#define BUFFER_BYTES (1 << 16)
#define EVENT_BYTES  512 /* more than any event takes */

/* Lanes of one rank that may be named, and the row of titles above them. */
#define MAX_LANES 64

/* Between recordings that follow each other. */
#define GAP_US 1000.0

struct yk_trace {
    yk_file *file;
    int used; /* bytes of the buffer */
    bool any; /* an event was written */
    bool named[MAX_LANES];
    double offset_us; /* where the next recording begins */
    char buffer[BUFFER_BYTES];
};

static yk_status flush(yk_trace *t)
{
    int bytes = t->used;
    t->used = 0;
    return bytes > 0 ? yk_file_write(t->file, t->buffer, bytes) : YK_OK;
}

/* Add an event, an object of JSON. */
static yk_status add(yk_trace *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static yk_status add(yk_trace *t, const char *format, ...)
{
    if (t->used + EVENT_BYTES > BUFFER_BYTES) YK_TRY(flush(t));
    char *at = t->buffer + t->used;
    int n = snprintf(at, EVENT_BYTES, "%s\n", t->any ? "," : "");
    va_list arguments;
    va_start(arguments, format);
    n += vsnprintf(at + n, (size_t)(EVENT_BYTES - n), format, arguments);
    va_end(arguments);
    YK_CHECK(n < EVENT_BYTES);
    t->used += n;
    t->any = true;
    return YK_OK;
}

yk_status yk_trace_open(const char *path, yk_trace **trace_out)
{
    static const char head[] = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
    yk_trace *t = calloc(1, sizeof *t);
    if (!t) return yk_fail(YK_ENOMEM, path, "no memory for a trace");
    yk_status status = yk_file_open(path, YK_FILE_WRITE, &t->file);
    if (status != YK_OK) {
        free(t);
        return status;
    }
    t->used = (int)sizeof head - 1;
    memcpy(t->buffer, head, (size_t)t->used);
    *trace_out = t;
    return YK_OK;
}

/* Say once what a lane is called; lane 0 has the titles, stream i is lane i + 1. */
static yk_status name_lane(yk_trace *t, int rank, int lane, const char *name)
{
    if (lane >= MAX_LANES || t->named[lane]) return YK_OK;
    t->named[lane] = true;
    if (lane == 0)
        YK_TRY(add(t,
                   "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": "
                   "\"rank %d\"}}",
                   rank, rank));
    YK_TRY(add(t,
               "{\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": %d, \"tid\": %d, "
               "\"args\": {\"sort_index\": %d}}",
               rank, lane, lane));
    return add(t,
               "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, \"args\": "
               "{\"name\": \"%s\"}}",
               rank, lane, name);
}

static yk_status add_span(yk_trace *t, int rank, const yk_span *s)
{
    YK_TRY(name_lane(t, rank, s->lane + 1, s->stream));
    return add(t,
               "{\"ph\": \"X\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": "
               "%.3f, \"args\": {\"part\": \"%s\", \"bytes\": %.0f, \"flops\": %.0f}}",
               s->name, rank, s->lane + 1, t->offset_us + 1e6 * s->begin_s,
               1e6 * (s->end_s - s->begin_s), s->part, s->bytes, s->flops);
}

yk_status yk_trace_add(yk_trace *t, int rank, const char *title, const yk_recorder *recorder)
{
    double end_s = 0;
    int n = yk_recorder_n_spans(recorder);
    YK_TRY(name_lane(t, rank, 0, "step"));
    for (int i = 0; i < n; i++) {
        yk_span s = yk_recorder_get(recorder, i);
        YK_TRY(add_span(t, rank, &s));
        if (end_s < s.end_s) end_s = s.end_s;
    }
    YK_TRY(add(t,
               "{\"ph\": \"X\", \"name\": \"%s\", \"pid\": %d, \"tid\": 0, \"ts\": %.3f, \"dur\": "
               "%.3f, \"args\": {\"spans\": %d, \"spans_lost\": %lld}}",
               title, rank, t->offset_us, 1e6 * end_s, n, (long long)yk_recorder_n_lost(recorder)));
    t->offset_us += 1e6 * end_s + GAP_US;
    return YK_OK;
}

yk_status yk_trace_close(yk_trace *t)
{
    static const char tail[] = "\n]}\n";
    if (!t) return YK_OK;
    yk_status status = flush(t);
    if (status == YK_OK) status = yk_file_write(t->file, tail, (int64_t)sizeof tail - 1);
    yk_status closed = yk_file_close(t->file);
    free(t);
    return status == YK_OK ? closed : status;
}

/* ---- sums --------------------------------------------------------------------------------- */

static yk_trace_sum *sum_of(yk_trace_sum *sums, int *n, int max_sums, const yk_span *s)
{
    for (int i = 0; i < *n; i++)
        if (strcmp(sums[i].name, s->name) == 0 && strcmp(sums[i].stream, s->stream) == 0)
            return &sums[i];
    if (*n == max_sums) return NULL;
    sums[*n] = (yk_trace_sum){.name = s->name, .stream = s->stream};
    return &sums[(*n)++];
}

static int longer_first(const void *a, const void *b)
{
    double x = ((const yk_trace_sum *)a)->seconds, y = ((const yk_trace_sum *)b)->seconds;
    return (x < y) - (x > y);
}

int yk_trace_sum_up(const yk_recorder *recorder, yk_trace_sum *sums, int max_sums)
{
    int n = 0;
    for (int i = 0; i < yk_recorder_n_spans(recorder); i++) {
        yk_span s = yk_recorder_get(recorder, i);
        yk_trace_sum *sum = sum_of(sums, &n, max_sums, &s);
        if (!sum) continue;
        sum->n++;
        sum->seconds += s.end_s - s.begin_s;
        sum->bytes += s.bytes;
        sum->flops += s.flops;
    }
    qsort(sums, (size_t)n, sizeof *sums, longer_first);
    return n;
}
