/* models/inputs.c - blocks' inputs that wait in host memory for the backward pass.
 *
 * The residual goes through a ring of three buffers: block l reads number l and writes number
 * l + 1.
 * On the way up an input leaves for the host as soon as it is made, and its place is written again
 * when it has gone. On the way down, when block l is done with its place, the input of block l - 3
 * comes to it, while blocks l - 1 and l - 2 compute. What the ring still holds at the top, the last
 * three, never travels.
 *
 * Unit u writes input u and reads input u - 1; input L is the head's.
 */
#include <stdlib.h>

#include "models/pass.h"

yk_status yk_pass_inputs_create(yk_pass *s)
{
    yk_pass_inputs *in = &s->inputs;
    if (!s->o.inputs) return YK_OK;
    in->host = *s->o.inputs;
    in->home = calloc((size_t)s->model->shape.layers, sizeof *in->home);
    if (!in->home) return yk_fail(YK_ENOMEM, "model", "no memory for a list of inputs");
    yk_device *device = yk_stream_get_device(s->o.stream);
    YK_TRY(yk_event_create(device, &in->made));
    for (int i = 0; i < YK_PASS_RING; i++) {
        YK_TRY(yk_event_create(device, &in->gone[i]));
        YK_TRY(yk_event_create(device, &in->read[i]));
        YK_TRY(yk_event_create(device, &in->here[i]));
    }
    return YK_OK;
}

void yk_pass_inputs_destroy(yk_pass *s)
{
    yk_pass_inputs *in = &s->inputs;
    yk_event_destroy(in->made);
    for (int i = 0; i < YK_PASS_RING; i++) {
        yk_event_destroy(in->gone[i]);
        yk_event_destroy(in->read[i]);
        yk_event_destroy(in->here[i]);
    }
    free(in->home);
}

/* Does input l leave? Those that are in the ring when the way down begins do not. */
static bool travels(const yk_pass *s, int64_t l)
{
    return l >= 0 && l <= s->model->shape.layers - YK_PASS_RING;
}

yk_status yk_pass_inputs_begin(yk_pass *s, int64_t bytes)
{
    yk_pass_inputs *in = &s->inputs;
    in->on = in->host.pinned && s->mode == YK_PASS_TRAIN;
    if (!in->on) return YK_OK;
    in->bottom = yk_arena_mark(in->host.pinned);
    for (int i = 0; i < YK_PASS_RING; i++)
        YK_TRY(yk_arena_push(s->o.activation, "block inputs", bytes, &in->ring[i]));
    for (int64_t l = 0; travels(s, l); l++)
        YK_TRY(yk_arena_push(in->host.pinned, "block inputs", bytes, &in->home[l]));
    return YK_OK;
}

void yk_pass_inputs_end(yk_pass *s)
{
    if (s->inputs.on) yk_arena_pop(s->inputs.host.pinned, s->inputs.bottom);
    s->inputs.on = false;
}

static int64_t input_bytes(const yk_pass *s)
{
    return yk_pass_rows(s) * s->model->shape.width * yk_dtype_bytes(s->o.dtype);
}

/* Input l has been made: let it go out. */
static yk_status push_out(yk_pass *s, int64_t l)
{
    yk_pass_inputs *in = &s->inputs;
    if (!travels(s, l)) return YK_OK;
    YK_TRY(yk_event_record(in->made, s->o.stream));
    YK_TRY(yk_event_wait(in->made, in->host.to_host));
    YK_TRY(yk_copy(in->host.to_host, in->home[l], in->ring[l % YK_PASS_RING], input_bytes(s),
                   YK_COPY_DEVICE_TO_HOST));
    return yk_event_record(in->gone[l % YK_PASS_RING], in->host.to_host);
}

/* Input l has been read for the last time: let the one that takes its place come in. */
static yk_status fetch_next(yk_pass *s, int64_t l)
{
    yk_pass_inputs *in = &s->inputs;
    int64_t next = l - YK_PASS_RING, place = l % YK_PASS_RING;
    if (!travels(s, next)) return YK_OK;
    YK_TRY(yk_event_record(in->read[place], s->o.stream));
    YK_TRY(yk_event_wait(in->read[place], in->host.to_device));
    YK_TRY(yk_event_wait(in->gone[place], in->host.to_device));
    YK_TRY(yk_copy(in->host.to_device, in->ring[place], in->home[next], input_bytes(s),
                   YK_COPY_HOST_TO_DEVICE));
    return yk_event_record(in->here[place], in->host.to_device);
}

yk_status yk_pass_enter(yk_pass *s, int unit, bool backward)
{
    yk_pass_inputs *in = &s->inputs;
    if (!in->on) return YK_OK;
    if (!backward) return yk_event_wait(in->gone[unit % YK_PASS_RING], s->o.stream);
    if (!travels(s, unit - 1)) return YK_OK;
    return yk_event_wait(in->here[(unit - 1) % YK_PASS_RING], s->o.stream);
}

yk_status yk_pass_leave(yk_pass *s, int unit, bool backward)
{
    if (!s->inputs.on) return YK_OK;
    if (!backward) return push_out(s, unit);
    return unit > 0 ? fetch_next(s, unit - 1) : YK_OK;
}
