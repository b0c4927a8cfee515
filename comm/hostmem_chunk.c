/* comm/hostmem_chunk.c - one chunk through a channel, the bounds of a collective, and meetings.
 *
 * Before slots s .. s + width - 1 are written, readers must have taken what lay there, HOSTMEM_DEPTH numbers
 * before, so that they have said s + width - HOSTMEM_DEPTH. Comparing modulo 2^32, a word that is still 0
 * is far enough for the first HOSTMEM_DEPTH slots. A number that was left out is waited for with the
 * next one, which has been written by then.
 */
#include "comm/hostmem.h"
#include "runtime/base/clock.h"
#include "runtime/device/ops.h"

static hostmem_copies *copies_of(const yk_comm *c, hostmem_word ready)
{
    bool gathers = ready == HOSTMEM_GATHER_READY;
    return &yk_hostmem_of(c)->copies[gathers ? HOSTMEM_LANE_GATHER : HOSTMEM_LANE_REDUCE];
}

static hostmem_word taken_of(hostmem_word ready)
{
    return (hostmem_word)(ready + 1);
}

yk_status yk_hostmem_send(yk_comm *c, hostmem_place place, int to, const void *data, int64_t bytes)
{
    const hostmem_group *g = yk_hostmem_of(c);
    hostmem_word ready = place.ready;
    uint32_t end = place.number + place.width;
    yk_stream *down = copies_of(c, ready)->down;
    int me = c->index;
    for (int q = 0; q < c->size; q++)
        if (q != me && (to == HOSTMEM_ALL || q == to))
            YK_TRY(yk_stream_await_flag(down, yk_hostmem_word(g, taken_of(ready), me, q),
                                        end - HOSTMEM_DEPTH));
    YK_TRY(yk_copy(down, yk_hostmem_slot(g, ready, me, to, place.number), data, bytes,
                   YK_COPY_DEVICE_TO_HOST));
    for (int q = 0; q < c->size; q++)
        if (q != me && (to == HOSTMEM_ALL || q == to))
            YK_TRY(yk_stream_write_flag(down, yk_hostmem_word(g, ready, me, q), end));
    return YK_OK;
}

yk_status yk_hostmem_receive(yk_comm *c, hostmem_place place, int from, void *data, int64_t bytes)
{
    const hostmem_group *g = yk_hostmem_of(c);
    hostmem_word ready = place.ready;
    uint32_t end = place.number + place.width;
    yk_stream *up = copies_of(c, ready)->up;
    int me = c->index;
    YK_TRY(yk_stream_await_flag(up, yk_hostmem_word(g, ready, from, me), end));
    YK_TRY(yk_copy(up, data, yk_hostmem_slot(g, ready, from, me, place.number), bytes,
                   YK_COPY_HOST_TO_DEVICE));
    return yk_stream_write_flag(up, yk_hostmem_word(g, taken_of(ready), from, me), end);
}

typedef struct lane_of {
    yk_comm *comm;
    hostmem_lane lane;
} lane_of;

static yk_status note_begin(void *context)
{
    const lane_of *t = context;
    yk_hostmem_of(t->comm)->begun_ns[t->lane] = yk_clock_ns();
    return YK_OK;
}

static yk_status note_end(void *context)
{
    const lane_of *t = context;
    int64_t begun = yk_hostmem_of(t->comm)->begun_ns[t->lane];
    atomic_fetch_add(&t->comm->busy_ns, yk_clock_ns() - begun);
    return YK_OK;
}

/* On a processor a stream can tell the time; a GPU's is not held up for it. */
static yk_status note(yk_comm *c, hostmem_lane lane, yk_stream *stream, yk_stream_fn fn)
{
    lane_of task = {c, lane};
    if (yk_device_get_kind(c->o.device) != YK_DEVICE_CPU) return YK_OK;
    return yk_stream_run(stream, fn, &task, sizeof task);
}

yk_status yk_hostmem_begin(yk_comm *c, hostmem_lane lane, yk_stream *stream)
{
    hostmem_group *g = yk_hostmem_of(c);
    g->n_begun[lane]++;
    atomic_fetch_add(&c->n_collectives, 1);
    YK_TRY(note(c, lane, stream, note_begin));
    YK_TRY(yk_stream_write_flag(stream, yk_hostmem_begun(g, c->index, lane), g->n_begun[lane]));
    if (lane >= HOSTMEM_LANE_VALUES) return YK_OK;
    hostmem_copies *copies = &g->copies[lane];
    YK_TRY(yk_event_record(copies->begun, stream));
    YK_TRY(yk_event_wait(copies->begun, copies->down));
    return yk_event_wait(copies->begun, copies->up);
}

yk_status yk_hostmem_end(yk_comm *c, hostmem_lane lane, yk_stream *stream)
{
    hostmem_group *g = yk_hostmem_of(c);
    if (lane < HOSTMEM_LANE_VALUES) {
        hostmem_copies *copies = &g->copies[lane];
        YK_TRY(yk_event_record(copies->down_done, copies->down));
        YK_TRY(yk_event_record(copies->up_done, copies->up));
        YK_TRY(yk_event_wait(copies->down_done, stream));
        YK_TRY(yk_event_wait(copies->up_done, stream));
    }
    YK_TRY(note(c, lane, stream, note_end));
    return yk_stream_write_flag(stream, yk_hostmem_ended(g, c->index, lane), g->n_begun[lane]);
}

yk_status yk_hostmem_meet(yk_comm *c, hostmem_word met, uint32_t meeting, yk_stream *stream)
{
    const hostmem_group *g = yk_hostmem_of(c);
    for (int q = 0; q < c->size; q++)
        if (q != c->index)
            YK_TRY(yk_stream_write_flag(stream, yk_hostmem_word(g, met, c->index, q), meeting + 1));
    for (int q = 0; q < c->size; q++)
        if (q != c->index)
            YK_TRY(yk_stream_await_flag(stream, yk_hostmem_word(g, met, q, c->index), meeting + 1));
    return YK_OK;
}
