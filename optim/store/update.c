/* optim/store/update.c - the norm and the update: walks over all units, piece by piece.
 *
 * What lies in host memory passes through a lane, a few MiB of device memory: a piece comes in on one
 * stream, is worked on, and goes out on another, while the piece before goes out and the one behind
 * comes in. What lies on the device is worked on where it is, many units in one call. An update is the
 * same for each element wherever it is cut. A sum of squares is not, so it is a sum of pieces, which are
 * cut alike with and without offload, and taken in the order in which the backward pass completes units:
 * a gradient that leaves the device is squared before it goes.
 */
#include <string.h>

#include "optim/store/parts.h"
#include "runtime/base/arith.h"

/* Elements of a piece: long enough for a copy to be at full speed, short enough to be little memory. */
#define PIECE_GPU ((int64_t)1 << 23)
#define PIECE_CPU ((int64_t)1 << 20)

/* ---- lanes -------------------------------------------------------------------------------- */

static yk_status push_part(yk_store *st, bool wanted, yk_arena *arena, yk_dtype dtype,
                           void **part_out)
{
    int64_t bytes = st->o.piece * yk_dtype_bytes(dtype);
    return wanted ? yk_arena_push(arena, "pieces of offloaded state", bytes, part_out) : YK_OK;
}

static yk_status push_lane(yk_store *st, yk_store_lane *lane, yk_arena *arena, yk_device *device)
{
    bool moments = yk_store_offloads(st, YK_OFFLOAD_MOMENTS);
    YK_TRY(push_part(st, yk_store_offloads(st, YK_OFFLOAD_PARAMS), arena, st->o.compute,
                     &lane->param));
    YK_TRY(push_part(st, yk_store_offloads(st, YK_OFFLOAD_MASTER), arena, st->o.master,
                     &lane->master));
    YK_TRY(push_part(st, moments, arena, st->o.moments, &lane->m));
    YK_TRY(push_part(st, moments, arena, st->o.moments, &lane->v));
    YK_TRY(push_part(st, yk_store_offloads(st, YK_OFFLOAD_GRADS), arena, st->o.grads, &lane->grad));
    YK_TRY(yk_event_create(device, &lane->filled));
    YK_TRY(yk_event_create(device, &lane->used));
    return yk_event_create(device, &lane->free);
}

yk_status yk_store_push_lanes(yk_store *st, yk_arena *arena, yk_stream *stream)
{
    yk_device *device = yk_stream_get_device(stream);
    bool cpu = yk_device_get_spec(device)->kind == YK_DEVICE_CPU;
    int64_t most = YK_STORE_TENSOR_ALIGN;
    for (int i = 0; i < st->o.n_units; i++) most = yk_max(most, st->units[i].count);
    if (st->o.piece == 0) st->o.piece = cpu ? PIECE_CPU : PIECE_GPU;
    YK_CHECK(st->o.piece % YK_STORE_TENSOR_ALIGN == 0);
    st->o.piece = yk_min(st->o.piece, most);
    st->has_lanes = st->o.train && st->o.offload != 0;
    for (int i = 0; st->has_lanes && i < YK_STORE_LANES; i++)
        YK_TRY(push_lane(st, &st->lanes[i], arena, device));
    return YK_OK;
}

void yk_store_destroy_lanes(yk_store *st)
{
    for (int i = 0; i < YK_STORE_LANES; i++) {
        yk_event_destroy(st->lanes[i].filled);
        yk_event_destroy(st->lanes[i].used);
        yk_event_destroy(st->lanes[i].free);
    }
}

/* ---- pieces ------------------------------------------------------------------------------- */

/* Elements that are worked on together, and the lane that they pass through. */
typedef struct piece {
    int unit;             /* n_units or -1: behind the last */
    yk_store_range whole; /* the part of the unit that is walked over */
    int64_t begin, end;
    yk_store_lane *lane; /* NULL: nothing of it lies in host memory */
} piece;

/* What a walk covers of each unit, how far a piece goes, and whether pieces take lanes. */
typedef struct walk {
    bool
        squares; /* this rank's part for the norm, last unit first; else what it updates, first unit
                   * first */
    bool lanes;
    int64_t length;
} walk;

static bool is_behind(const yk_store *st, const piece *p)
{
    return p->unit < 0 || p->unit == st->o.n_units;
}

static piece begin_unit(yk_store *st, const walk *w, int unit)
{
    piece p = {.unit = unit};
    if (is_behind(st, &p)) return p;
    const yk_store_unit *u = &st->units[unit];
    p.whole = w->squares ? u->mine : u->state_range;
    p.begin = p.end = p.whole.begin;
    return p;
}

/* The piece behind `p`, which may be the start of a unit. */
static piece following(yk_store *st, const walk *w, piece p)
{
    while (!is_behind(st, &p) && p.end == p.whole.begin + p.whole.count)
        p = begin_unit(st, w, w->squares ? p.unit - 1 : p.unit + 1);
    if (is_behind(st, &p)) return p;
    p.begin = p.end;
    p.end = yk_min(p.begin + w->length, p.whole.begin + p.whole.count);
    p.lane = NULL;
    if (w->lanes) {
        p.lane = &st->lanes[st->next_lane];
        st->next_lane = (st->next_lane + 1) % YK_STORE_LANES;
    }
    return p;
}

static bool is_last_of_unit(const piece *p)
{
    return p->end == p->whole.begin + p->whole.count;
}

/* Copy a piece of what a unit keeps in host memory, which holds `range`, to or from a lane. */
static yk_status carry(const yk_store *st, const piece *p, void *part, void *home,
                       yk_store_range range, yk_dtype dtype, bool out)
{
    if (!part) return YK_OK;
    int64_t bytes = (p->end - p->begin) * yk_dtype_bytes(dtype);
    void *there = yk_store_at(home, range, p->begin, dtype);
    if (out) return yk_copy(st->host.to_host, there, part, bytes, YK_COPY_DEVICE_TO_HOST);
    return yk_copy(st->host.to_device, part, there, bytes, YK_COPY_HOST_TO_DEVICE);
}

/* All that an update changes. */
static yk_status carry_states(const yk_store *st, const piece *p, bool out)
{
    const yk_store_unit *u = &st->units[p->unit];
    const yk_store_lane *l = p->lane;
    YK_TRY(carry(st, p, l->param, u->param, u->param_range, st->o.compute, out));
    YK_TRY(carry(st, p, l->master, u->master, u->state_range, st->o.master, out));
    YK_TRY(carry(st, p, l->m, u->m, u->state_range, st->o.moments, out));
    return carry(st, p, l->v, u->v, u->state_range, st->o.moments, out);
}

/* Start bringing a piece to its lane. */
static yk_status bring(yk_store *st, const walk *w, const piece *p)
{
    if (is_behind(st, p) || !p->lane) return YK_OK;
    const yk_store_unit *u = &st->units[p->unit];
    YK_TRY(yk_event_wait(p->lane->free, st->host.to_device));
    YK_TRY(yk_event_wait(u->stored, st->host.to_device));
    if (!w->squares) YK_TRY(carry_states(st, p, false));
    YK_TRY(carry(st, p, p->lane->grad, u->grad, u->grad_range, st->o.grads, false));
    return yk_event_record(p->lane->filled, st->host.to_device);
}

/* After work on `stream`: let a piece go home. */
static yk_status send(yk_store *st, const piece *p, yk_stream *stream)
{
    if (!p->lane) return YK_OK;
    YK_TRY(yk_event_record(p->lane->used, stream));
    YK_TRY(yk_event_wait(p->lane->used, st->host.to_host));
    YK_TRY(carry_states(st, p, true));
    YK_TRY(yk_event_record(p->lane->free, st->host.to_host));
    return yk_event_record(st->units[p->unit].stored, st->host.to_host);
}

/* Element `index` of a state, in the lane or at home. */
static void *at(const piece *p, void *part, void *home, yk_store_range range, int64_t index,
                yk_dtype dtype)
{
    if (part) return (char *)part + (index - p->begin) * yk_dtype_bytes(dtype);
    return yk_store_at(home, range, index, dtype);
}

/* ---- the norm ----------------------------------------------------------------------------- */

static yk_status square(const yk_store *st, const yk_squares_run *runs, int n_runs,
                        yk_stream *stream, yk_step_values *values)
{
    yk_sum_squares_args args = {.values = values,
                                .runs = runs,
                                .n_runs = n_runs,
                                .piece = st->o.piece,
                                .dtype = st->o.grads};
    return yk_sum_squares(stream, &args);
}

/* Square gradients in their lanes. */
static yk_status square_lanes(yk_store *st, yk_stream *stream, yk_step_values *values)
{
    const walk w = {.squares = true, .lanes = true, .length = st->o.piece};
    piece next, now = following(st, &w, begin_unit(st, &w, st->o.n_units - 1));
    YK_TRY(bring(st, &w, &now));
    for (; !is_behind(st, &now); now = next) {
        const yk_squares_run run = {now.lane->grad, now.end - now.begin};
        next = following(st, &w, now);
        YK_TRY(bring(st, &w, &next));
        YK_TRY(yk_event_wait(now.lane->filled, stream));
        YK_TRY(square(st, &run, 1, stream, values));
        YK_TRY(yk_event_record(now.lane->free, stream));
    }
    return YK_OK;
}

/* This rank's part of the gradient of `unit` in `grad`, which holds `range`. */
static yk_squares_run run_of(const yk_store *st, int unit, void *grad, yk_store_range range)
{
    const yk_store_unit *u = &st->units[unit];
    return (yk_squares_run){yk_store_at(grad, range, u->mine.begin, st->o.grads), u->mine.count};
}

/* Square gradients where they are kept. */
static yk_status square_home(const yk_store *st, yk_stream *stream, yk_step_values *values)
{
    yk_squares_run runs[YK_STEP_RUNS];
    int n = 0;
    for (int unit = st->o.n_units - 1; unit >= 0; unit--) {
        const yk_store_unit *u = &st->units[unit];
        runs[n++] = run_of(st, unit, u->grad, u->grad_range);
        if (n < YK_STEP_RUNS && unit > 0) continue;
        YK_TRY(square(st, runs, n, stream, values));
        n = 0;
    }
    return YK_OK;
}

static yk_status square_all(yk_store *st, yk_stream *stream, yk_step_values *values)
{
    return yk_store_offloads(st, YK_OFFLOAD_GRADS) ? square_lanes(st, stream, values)
                                                   : square_home(st, stream, values);
}

yk_status yk_store_square_leaving(yk_store *st, int unit, void *grad, yk_stream *stream)
{
    yk_store_range whole = {0, st->units[unit].count};
    const yk_squares_run run = run_of(st, unit, grad, whole);
    return square(st, &run, 1, stream, st->values);
}

yk_status yk_store_sum_squares(yk_store *st, yk_stream *stream, yk_step_values *values)
{
    for (int i = 0; i < st->o.n_units; i++)
        if (st->units[i].reduced) YK_TRY(yk_store_wait(st, st->units[i].reduced, stream));
    if (!yk_store_squares_leaving(st)) YK_TRY(square_all(st, stream, values));
    if (!yk_store_is_shared(st)) return YK_OK;
    YK_TRY(yk_timer_begin(st->waits, stream));
    YK_TRY(yk_comm_all_reduce_values(st->g.all, values, stream));
    return yk_timer_end(st->waits, stream);
}

/* ---- the update --------------------------------------------------------------------------- */

/* Tensors that lie one behind the other in each kind of state, and are updated in one call. */
typedef struct batch {
    yk_adamw_args args; /* of `n` elements so far */
    yk_adamw_run runs[YK_STEP_RUNS];
    bool rounds;   /* bits are drawn by tensor; else only decay tells elements apart */
    bool together; /* units are, since nothing else is done with one after its update */
} batch;

static void begin_batch(batch *b, const yk_store *st, const yk_adamw_options *adamw,
                        const yk_step_values *values)
{
    b->args = (yk_adamw_args){.values = values,
                              .runs = b->runs,
                              .beta1 = adamw->beta1,
                              .beta2 = adamw->beta2,
                              .eps = adamw->eps,
                              .weight_decay = adamw->weight_decay,
                              .dtype = st->o.compute,
                              .grad_dtype = st->o.grads,
                              .master_dtype = st->o.master,
                              .moments_dtype = st->o.moments};
    b->rounds = st->o.master != YK_F32 || st->o.moments != YK_F32;
    b->together = !st->has_lanes && (st->n_shards == 1 || st->o.zero == 0);
}

/* Update what is in the batch, and empty it. */
static yk_status flush(batch *b, yk_stream *stream)
{
    YK_TRY(yk_adamw(stream, &b->args));
    b->args.n = b->args.n_runs = 0;
    return YK_OK;
}

/* Where elements from `index` on lie, in the lane or at home. */
static yk_adamw_args places(const yk_store *st, const piece *p, int64_t index)
{
    static const yk_store_lane none = {0};
    const yk_store_unit *u = &st->units[p->unit];
    const yk_store_lane *l = p->lane ? p->lane : &none;
    bool own = yk_store_has_master(st);
    void *param = at(p, l->param, u->param, u->param_range, index, st->o.compute);
    return (yk_adamw_args){
        .param = own ? param : NULL,
        .master = own ? at(p, l->master, u->master, u->state_range, index, st->o.master) : param,
        .m = at(p, l->m, u->m, u->state_range, index, st->o.moments),
        .v = at(p, l->v, u->v, u->state_range, index, st->o.moments),
        .grad = at(p, l->grad, u->grad, u->grad_range, index, st->o.grads)};
}

/* Is `next` behind n elements that begin at `first`? */
static bool is_next(const void *first, const void *next, int64_t n, yk_dtype dtype)
{
    return (uintptr_t)next == (uintptr_t)first + (uintptr_t)(n * yk_dtype_bytes(dtype));
}

static bool are_next(const yk_adamw_args *a, const yk_adamw_args *next)
{
    return is_next(a->master, next->master, a->n, a->master_dtype) &&
           is_next(a->m, next->m, a->n, a->moments_dtype) &&
           is_next(a->v, next->v, a->n, a->moments_dtype) &&
           is_next(a->grad, next->grad, a->n, a->grad_dtype) &&
           (!a->param || is_next(a->param, next->param, a->n, a->dtype));
}

/* Add elements begin .. end-1 of a unit, which are of `tensor` or its padding. */
static yk_status add_run(const yk_store *st, batch *b, const piece *p, int tensor, int64_t begin,
                         int64_t end, yk_stream *stream)
{
    yk_adamw_args *a = &b->args, here = places(st, p, begin);
    bool decay = st->o.params[tensor].decay;
    bool goes_on = a->n > 0 && are_next(a, &here);
    bool same = goes_on && !b->rounds && b->runs[a->n_runs - 1].decay == decay;
    if (!goes_on || (!same && a->n_runs == YK_STEP_RUNS)) {
        YK_TRY(flush(b, stream));
        a->param = here.param, a->master = here.master, a->grad = here.grad;
        a->m = here.m, a->v = here.v;
    }
    if (!same)
        b->runs[a->n_runs++] = (yk_adamw_run){.begin = a->n,
                                              .first = b->rounds ? begin - st->offsets[tensor] : 0,
                                              .key = b->rounds ? st->keys[tensor] : 0,
                                              .decay = decay};
    a->n += end - begin;
    return YK_OK;
}

static yk_status update_piece(const yk_store *st, batch *b, const piece *p, yk_stream *stream)
{
    const yk_store_unit *u = &st->units[p->unit];
    if (u->put) YK_TRY(yk_event_wait(u->put, stream)); /* of before, long ago */
    if (p->lane) YK_TRY(yk_event_wait(p->lane->filled, stream));
    for (int i = 0; i < u->n_tensors; i++) {
        const int *t = &st->order[u->first_tensor + i];
        int64_t begin = yk_max(st->offsets[*t], p->begin);
        int64_t end = yk_min(i + 1 < u->n_tensors ? st->offsets[t[1]] : u->count, p->end);
        if (begin < end) YK_TRY(add_run(st, b, p, *t, begin, end, stream));
    }
    return b->together ? YK_OK : flush(b, stream);
}

yk_status yk_store_update(yk_store *st, yk_stream *stream, const yk_adamw_options *adamw,
                          const yk_step_values *values)
{
    const walk w = {.lanes = st->has_lanes, .length = st->has_lanes ? st->o.piece : INT64_MAX / 4};
    piece next, now = following(st, &w, begin_unit(st, &w, 0));
    batch b;
    begin_batch(&b, st, adamw, values);
    YK_TRY(bring(st, &w, &now));
    for (; !is_behind(st, &now); now = next) {
        next = following(st, &w, now);
        YK_TRY(bring(st, &w, &next));
        YK_TRY(update_piece(st, &b, &now, stream));
        YK_TRY(send(st, &now, stream));
        if (is_last_of_unit(&now)) YK_TRY(yk_store_publish(st, now.unit, stream));
    }
    return flush(&b, stream);
}
