/* runtime/device/timer.c - a ring of pairs of marks. */
#include "runtime/device/timer.h"

#include <stdlib.h>

#include "runtime/device/dispatch.h"

struct yk_timer {
    yk_device *device;
    int n_places;
    bool is_open;            /* a stretch has begun and has a place */
    int64_t n_begun, n_read; /* stretches */
    double total_s;
    yk_mark (*places)[2]; /* (n_places) begin, end */
};

yk_status yk_timer_create(yk_device *device, int n_places, yk_timer **timer_out)
{
    REQUIRE(n_places > 0);
    yk_timer *t = calloc(1, sizeof *t);
    if (t) t->places = calloc((size_t)n_places, sizeof *t->places);
    if (!t || !t->places) {
        free(t);
        return yk_fail(YK_ENOMEM, "timer", "no memory for %d stretches", n_places);
    }
    t->device = device;
    t->n_places = n_places;
    *timer_out = t;
    return YK_OK;
}

void yk_timer_destroy(yk_timer *t)
{
    if (!t) return;
    for (int i = 0; t->device->backend->mark_destroy && i < t->n_places; i++)
        for (int end = 0; end < 2; end++)
            t->device->backend->mark_destroy(t->device, &t->places[i][end]);
    free(t->places);
    free(t);
}

static bool has_passed(const yk_timer *t, const yk_mark *m)
{
    const yk_backend *b = t->device->backend;
    return !b->mark_passed || b->mark_passed(t->device, m);
}

double yk_timer_read(yk_timer *t)
{
    const yk_backend *b = t->device->backend;
    for (; t->n_read < t->n_begun; t->n_read++) {
        const yk_mark *m = t->places[t->n_read % t->n_places];
        double s = 0;
        if (!has_passed(t, &m[1])) break;
        if (!b->mark_read)
            t->total_s += m[1].at_s - m[0].at_s;
        else if (b->mark_read(t->device, &m[0], &m[1], &s) == YK_OK)
            t->total_s += s;
    }
    return t->total_s;
}

yk_status yk_timer_begin(yk_timer *t, yk_stream *stream)
{
    REQUIRE(!t->is_open && stream->device == t->device);
    REQUIRE_IN_TABLE(stream, mark);
    (void)yk_timer_read(t);
    if (t->n_begun - t->n_read == t->n_places) return YK_OK;
    YK_TRY(t->device->backend->mark(stream, &t->places[t->n_begun % t->n_places][0]));
    t->is_open = true;
    return YK_OK;
}

yk_status yk_timer_end(yk_timer *t, yk_stream *stream)
{
    if (!t->is_open) return YK_OK;
    t->is_open = false;
    YK_TRY(t->device->backend->mark(stream, &t->places[t->n_begun % t->n_places][1]));
    t->n_begun++;
    return YK_OK;
}
