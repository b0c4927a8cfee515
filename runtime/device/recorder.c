/* runtime/device/recorder.c - see recorder.h.
 *
 * A span has two marks, which the backend puts on the stream and reads once the stream has passed
 * them. Times are taken from the first mark, since a GPU's events know differences alone. The first
 * failure of a mark is kept for yk_recorder_stop(), so that an operation never fails for being
 * watched.
 */
#include "runtime/device/recorder.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/device/backend.h"

#define MAX_LANES  32
#define PART_BYTES 24

/* A stream that was recorded. */
typedef struct lane_state {
    yk_stream *stream;
    char name[32];
} lane_state;

typedef struct span_state {
    const char *name;
    char part[PART_BYTES];
    int lane;
    double bytes, flops;
    yk_mark begin, end;
    double begin_s, end_s; /* known when stopped */
    bool ended;
} span_state;

struct yk_recorder {
    yk_device *device;
    int max_spans, n_spans, n_lanes;
    int64_t n_lost;
    lane_state lanes[MAX_LANES];
    char part[PART_BYTES];
    yk_status status;  /* the first failure of a mark */
    span_state *spans; /* (max_spans) */
};

yk_status yk_recorder_create(yk_device *device, int max_spans, yk_recorder **recorder_out)
{
    YK_CHECK(max_spans > 0);
    yk_recorder *r = calloc(1, sizeof *r);
    if (r) r->spans = calloc((size_t)max_spans, sizeof *r->spans);
    if (!r || !r->spans) {
        free(r);
        return yk_fail(YK_ENOMEM, "trace", "no memory for %d spans", max_spans);
    }
    r->device = device;
    r->max_spans = max_spans;
    *recorder_out = r;
    return YK_OK;
}

void yk_recorder_destroy(yk_recorder *r)
{
    if (!r) return;
    if (r->device->recorder == r) r->device->recorder = NULL;
    if (r->device->backend->mark_destroy) {
        for (int i = 0; i < r->max_spans; i++) {
            r->device->backend->mark_destroy(r->device, &r->spans[i].begin);
            r->device->backend->mark_destroy(r->device, &r->spans[i].end);
        }
    }
    free(r->spans);
    free(r);
}

void yk_recorder_start(yk_recorder *r)
{
    YK_CHECK(!r->device->recorder);
    r->n_spans = r->n_lanes = 0;
    r->n_lost = 0;
    r->part[0] = '\0';
    r->status = YK_OK;
    r->device->recorder = r;
}

/* Seconds from the first mark to `mark`. */
static yk_status read_mark(const yk_recorder *r, const yk_mark *mark, double *s_out)
{
    const yk_mark *first = &r->spans[0].begin;
    if (r->device->backend->mark_read)
        return r->device->backend->mark_read(r->device, first, mark, s_out);
    *s_out = mark->at_s - first->at_s;
    return YK_OK;
}

yk_status yk_recorder_stop(yk_recorder *r)
{
    YK_CHECK(r->device->recorder == r);
    r->device->recorder = NULL;
    for (int i = 0; i < r->n_lanes; i++) YK_TRY(yk_stream_synchronize(r->lanes[i].stream));
    YK_TRY(r->status);
    for (int i = 0; i < r->n_spans; i++) {
        span_state *s = &r->spans[i];
        YK_CHECK(s->ended);
        YK_TRY(read_mark(r, &s->begin, &s->begin_s));
        YK_TRY(read_mark(r, &s->end, &s->end_s));
    }
    return YK_OK;
}

int yk_recorder_n_spans(const yk_recorder *r)
{
    return r->n_spans;
}

yk_span yk_recorder_get(const yk_recorder *r, int i)
{
    const span_state *s = &r->spans[i];
    return (yk_span){
        .name = s->name,
        .part = s->part,
        .stream = r->lanes[s->lane].name,
        .lane = s->lane,
        .begin_s = s->begin_s,
        .end_s = s->end_s,
        .bytes = s->bytes,
        .flops = s->flops,
    };
}

int64_t yk_recorder_n_lost(const yk_recorder *r)
{
    return r->n_lost;
}

/* ---- while recording ---------------------------------------------------------------------- */

bool yk_device_is_recorded(const yk_device *device)
{
    return device->recorder != NULL;
}

void yk_device_set_part(yk_device *device, const char *name, int number)
{
    yk_recorder *r = device->recorder;
    if (!r && !device->backend->set_part) return;
    char part[PART_BYTES];
    if (number < 0)
        snprintf(part, sizeof part, "%s", name);
    else
        snprintf(part, sizeof part, "%s %d", name, number);
    if (r) snprintf(r->part, sizeof r->part, "%s", part);
    if (device->backend->set_part) device->backend->set_part(device, part);
}

/* The lane of a stream, or -1 when there are too many. */
static int lane_of(yk_recorder *r, yk_stream *stream)
{
    for (int i = 0; i < r->n_lanes; i++)
        if (r->lanes[i].stream == stream) return i;
    if (r->n_lanes == MAX_LANES) return -1;
    lane_state *fresh = &r->lanes[r->n_lanes];
    fresh->stream = stream;
    snprintf(fresh->name, sizeof fresh->name, "%s", stream->name);
    return r->n_lanes++;
}

static void put_mark(yk_recorder *r, yk_stream *stream, yk_mark *mark)
{
    yk_status status = stream->device->backend->mark(stream, mark);
    if (r->status == YK_OK) r->status = status;
}

int yk_span_begin(yk_stream *stream, const char *name, double bytes, double flops)
{
    yk_recorder *r = stream->device->recorder;
    if (!r) return -1;
    int lane = lane_of(r, stream);
    if (r->n_spans == r->max_spans || lane < 0) {
        r->n_lost++;
        return -1;
    }
    span_state *s = &r->spans[r->n_spans];
    s->name = name;
    s->lane = lane;
    s->bytes = bytes;
    s->flops = flops;
    s->ended = false;
    snprintf(s->part, sizeof s->part, "%s", r->part);
    put_mark(r, stream, &s->begin);
    return r->n_spans++;
}

void yk_span_end(yk_stream *stream, int span)
{
    yk_recorder *r = stream->device->recorder;
    if (!r || span < 0) return;
    put_mark(r, stream, &r->spans[span].end);
    r->spans[span].ended = true;
}
