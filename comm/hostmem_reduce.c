/* comm/hostmem_reduce.c - sums in one order: parts through the host, added on the device.
 *
 * A shard is worked off in chunks. Chunk k of the others' parts is packed and goes to each of them;
 * theirs come up side by side, and one operation adds them in order of rank. For all ranks the sum goes
 * to the host once and is read by all. What is issued for a chunk:
 *
 *   send(k)   given stream: pack              down: copy to each rank
 *   add(k)    up: copy from each rank         given stream: sum          down: copy the sum
 *   spread(k) up: copy each rank's sum        given stream: unpack
 *
 * send(k + 1) is issued before add(k), and add(k + 1) before spread(k): then both directions of the link
 * are in use while sums are formed. What a chunk holds in staging memory is doubled for it, and there is
 * room for more of them to arrive. Where elements are what travels, nothing is packed: parts leave from
 * where they lie, and sums arrive where they belong, which has left by then, or the sum would not have
 * been formed. A rank that then keeps its own sum alone lets the others' parts arrive where those lay
 * that it sent them HOSTMEM_ARRIVALS chunks before, the first ones in staging memory: no sum holds up
 * the link, though a product may leave a sum no multiprocessor for milliseconds, nor does one way of
 * the link hold up the other; so a few chunks are added at once, and only the last alone, for which
 * nothing travels any more. A long sum for all ranks is formed like that, and goes to them behind all
 * parts: then most of it has long been formed.
 */
#include "comm/hostmem.h"
#include "runtime/base/arith.h"
#include "runtime/device/ops.h"
#include "runtime/device/ops_wire.h"

typedef struct sums {
    yk_comm *comm;
    hostmem_group *group;
    const yk_reduction *r;
    yk_stream *stream;
    hostmem_copies *copies;
    int64_t chunk;    /* elements of a part that travel and are added at once */
    int64_t n_chunks; /* of a part */
    uint32_t width;   /* slots that a chunk takes */
    bool packs;       /* elements are not yet what travels */
    bool in_place;    /* what arrives takes the place of what has left */
    yk_wire_scale scale;
    int64_t *flushed; /* device memory */
} sums;

/* A chunk: elements begin .. begin+n-1 of every part. */
typedef struct span {
    uint32_t number;         /* in this reduction */
    int parity, arrival;     /* which of two places it has, and which of those for what arrives */
    int64_t begin, n, bytes; /* bytes on the wire */
} span;

static span span_of(const sums *x, int64_t k)
{
    int64_t begin = k * x->chunk, n = yk_min(x->chunk, x->r->count - begin);
    return (span){.number = (uint32_t)k,
                  .parity = (int)(k % 2),
                  .arrival = (int)(k % HOSTMEM_ARRIVALS),
                  .begin = begin,
                  .n = n,
                  .bytes = n * yk_dtype_bytes(x->r->wire)};
}

static uint32_t n_slots(const sums *x)
{
    return yk_hostmem_align((uint32_t)x->n_chunks * x->width, 2);
}

/* Does it arrive where another one lay that has left? */
static bool takes_place(const sums *x, const span *s)
{
    return x->in_place && s->number >= HOSTMEM_ARRIVALS;
}

/* A reduction's slots are an even number. One that the last chunk leaves over is said with it: no chunk of the
 * next, which may be wide, then waits for what is said after more of its own have come. */
static hostmem_place place_of(const sums *x, const span *s, hostmem_word ready, uint32_t first)
{
    uint32_t number = s->number * x->width, width = x->width;
    if (s->number == x->n_chunks - 1) width = n_slots(x) - number;
    return (hostmem_place){ready, first + number, width};
}

static hostmem_place place_of_part(const sums *x, const span *s)
{
    return place_of(x, s, HOSTMEM_PART_READY, x->group->n_parts);
}

static hostmem_place place_of_sum(const sums *x, const span *s)
{
    return place_of(x, s, HOSTMEM_SUM_READY, x->group->n_sums);
}

/* Is it the last of a few chunks that are added at once, where sums are in place? Those are as many as arrive in
 * staging memory, and the last chunk of all is alone. */
static bool ends_few(const sums *x, const span *s)
{
    return s->arrival == HOSTMEM_ARRIVALS - 1 || s->number >= x->n_chunks - 2;
}

static int64_t first_of_few(const sums *x, const span *s)
{
    return s->number == x->n_chunks - 1 ? s->number : s->number - (uint32_t)s->arrival;
}

/* ---- events -------------------------------------------------------------------------------
 *
 * One that is recorded or waited for on a copy stream is work of its engine between two copies, like a word: none
 * is without need. */

static yk_event *event_of(const sums *x, hostmem_event kind, int64_t number)
{
    return x->group->events[kind][number & (HOSTMEM_TURNS - 1)];
}

static yk_status tell(const sums *x, hostmem_event kind, const span *s, yk_stream *stream)
{
    return yk_event_record(event_of(x, kind, s->number), stream);
}

/* Of the chunk that is `before` ones before; those of other reductions are over. */
static yk_status await(const sums *x, hostmem_event kind, const span *s, int before,
                       yk_stream *stream)
{
    return yk_event_wait(event_of(x, kind, (int64_t)s->number - before), stream);
}

/* ---- where things lie --------------------------------------------------------------------- */

/* Slot i of those that begin at `base` in staging memory, `width` of them to a chunk. */
static char *staging(const sums *x, int64_t base, const span *s, int width, int i)
{
    return x->comm->staging + base + (s->parity * width + i) * x->group->layout.chunk_bytes;
}

/* A chunk of a rank's part. */
static char *part(const sums *x, const span *s, int rank)
{
    return (char *)x->r->full + (rank * x->r->count + s->begin) * yk_dtype_bytes(x->r->dtype);
}

/* Where a chunk of this rank's part arrives from rank 0; from the others, `stride` bytes behind each. The
 * next one lies behind it, unless that is another one's place. */
static char *arrivals(const sums *x, const span *s, int64_t *stride_out)
{
    const hostmem_layout *l = &x->group->layout;
    if (takes_place(x, s)) {
        span left = span_of(x, s->number - HOSTMEM_ARRIVALS);
        *stride_out = x->r->count * yk_dtype_bytes(x->r->dtype);
        return part(x, &left, 0);
    }
    *stride_out = HOSTMEM_ARRIVALS * l->chunk_bytes;
    return x->comm->staging + l->in + s->arrival * x->chunk * yk_dtype_bytes(x->r->wire);
}

/* 0 .. n-2 for the other ranks. */
static int other(const sums *x, int rank)
{
    return rank - (rank > x->comm->index);
}

/* ---- a chunk ------------------------------------------------------------------------------ */

static yk_status pack(const sums *x, const span *s)
{
    const hostmem_group *g = x->group;
    YK_TRY(await(x, HOSTMEM_SENT, s, 2, x->stream));
    for (int p = 0; p < x->comm->size; p++)
        if (p != x->comm->index)
            YK_TRY(yk_pack(x->stream,
                           &(yk_pack_args){.packed = staging(x, g->layout.out, s, x->comm->size - 1,
                                                             other(x, p)),
                                           .x = part(x, s, p),
                                           .scale = x->scale,
                                           .n_flushed = x->flushed,
                                           .n = s->n,
                                           .dtype = x->r->dtype,
                                           .wire = x->r->wire}));
    YK_TRY(tell(x, HOSTMEM_PACKED, s, x->stream));
    return await(x, HOSTMEM_PACKED, s, 0, x->copies->down);
}

static bool ends_pair(const span *s)
{
    return s->parity == 1;
}

static yk_status send(const sums *x, const span *s)
{
    const hostmem_group *g = x->group;
    int n = x->comm->size;
    if (x->packs) YK_TRY(pack(x, s));
    for (int i = 1; i < n; i++) {
        int to = (x->comm->index + i) % n;
        const char *from =
            x->packs ? staging(x, g->layout.out, s, n - 1, other(x, to)) : part(x, s, to);
        YK_TRY(yk_hostmem_send(x->comm, place_of_part(x, s), to, from, s->bytes));
    }
    if (!x->packs && !(x->in_place && ends_pair(s))) return YK_OK;
    return tell(x, HOSTMEM_SENT, s, x->copies->down);
}

/* Chunks take the places of two others at a time, when both have left. */
static yk_status await_place(const sums *x, const span *s)
{
    if (!x->in_place) return await(x, HOSTMEM_SUMMED, s, HOSTMEM_ARRIVALS, x->copies->up);
    if (!takes_place(x, s) || ends_pair(s)) return YK_OK;
    return await(x, HOSTMEM_SENT, s, HOSTMEM_ARRIVALS - 1, x->copies->up);
}

/* All parts of a chunk, where the sum reads them. */
static yk_status receive(const sums *x, const span *s)
{
    int n = x->comm->size;
    int64_t stride;
    char *to = arrivals(x, s, &stride);
    YK_TRY(await_place(x, s));
    for (int i = 1; i < n; i++) {
        int from = (x->comm->index + n - i) % n;
        YK_TRY(
            yk_hostmem_receive(x->comm, place_of_part(x, s), from, to + from * stride, s->bytes));
    }
    return x->in_place && !ends_few(x, s) ? YK_OK : tell(x, HOSTMEM_ARRIVED, s, x->copies->up);
}

static yk_status sum(const sums *x, const span *s, void *to)
{
    int64_t stride;
    const char *parts = arrivals(x, s, &stride);
    return yk_sum_parts(x->stream, &(yk_sum_parts_args){.sum = to,
                                                        .parts = parts,
                                                        .own = part(x, s, x->comm->index),
                                                        .stride = stride,
                                                        .n_parts = x->comm->size,
                                                        .own_part = x->comm->index,
                                                        .scale = x->scale,
                                                        .n_flushed = x->packs ? x->flushed : NULL,
                                                        .n = s->n,
                                                        .travels = !x->r->shard || x->r->travels,
                                                        .accumulate = x->r->accumulate,
                                                        .dtype = x->r->dtype,
                                                        .wire = x->r->wire});
}

/* A chunk of sums as it travelled, to where it belongs. */
static yk_status unpack(const sums *x, const span *s, const void *from, int rank)
{
    return yk_sum_parts(x->stream, &(yk_sum_parts_args){.sum = part(x, s, rank),
                                                        .parts = from,
                                                        .n_parts = 1,
                                                        .own_part = -1,
                                                        .scale = x->scale,
                                                        .n = s->n,
                                                        .dtype = x->r->dtype,
                                                        .wire = x->r->wire});
}

static yk_status send_sum(const sums *x, const span *s, const void *from)
{
    return yk_hostmem_send(x->comm, place_of_sum(x, s), HOSTMEM_ALL, from, s->bytes);
}

static char *kept_sum(const sums *x, const span *s)
{
    const yk_reduction *r = x->r;
    return (char *)r->shard + s->begin * yk_dtype_bytes(r->travels ? r->wire : r->dtype);
}

/* The sum of HOSTMEM_ARRIVALS chunks at once, when the last of them has arrived: nothing on the link waits for
 * it, and each time that a GPU's multiprocessors go over to another process it costs the copies. */
static yk_status add_few(const sums *x, const span *s)
{
    if (!ends_few(x, s)) return YK_OK;
    span few = span_of(x, first_of_few(x, s));
    few.n = s->begin + s->n - few.begin;
    YK_TRY(await(x, HOSTMEM_ARRIVED, s, 0, x->stream));
    YK_TRY(sum(x, &few, kept_sum(x, &few)));
    return yk_event_record(event_of(x, HOSTMEM_SUMMED, s->number / HOSTMEM_ARRIVALS), x->stream);
}

/* The sum of a chunk, and for all ranks on its way to them. */
static yk_status add(const sums *x, const span *s)
{
    const hostmem_group *g = x->group;
    YK_TRY(receive(x, s));
    if (x->in_place) return add_few(x, s);
    YK_TRY(await(x, HOSTMEM_ARRIVED, s, 0, x->stream));
    if (x->r->shard) {
        YK_TRY(sum(x, s, kept_sum(x, s)));
        return tell(x, HOSTMEM_SUMMED, s, x->stream);
    }
    char *own = part(x, s, x->comm->index);
    char *to = x->packs ? staging(x, g->layout.sum, s, 1, 0) : own;
    if (x->packs) YK_TRY(await(x, HOSTMEM_SUM_SENT, s, 2, x->stream));
    YK_TRY(sum(x, s, to));
    YK_TRY(tell(x, HOSTMEM_SUMMED, s, x->stream));
    YK_TRY(await(x, HOSTMEM_SUMMED, s, 0, x->copies->down));
    YK_TRY(send_sum(x, s, to));
    if (!x->packs) return YK_OK;
    YK_TRY(tell(x, HOSTMEM_SUM_SENT, s, x->copies->down));
    return unpack(x, s, to, x->comm->index);
}

/* The others' sums of a chunk. */
static yk_status spread(const sums *x, const span *s)
{
    const hostmem_group *g = x->group;
    int n = x->comm->size;
    if (x->packs) YK_TRY(await(x, HOSTMEM_UNPACKED, s, 2, x->copies->up));
    for (int i = 1; i < n; i++) {
        int from = (x->comm->index + i) % n;
        char *to =
            x->packs ? staging(x, g->layout.back, s, n - 1, other(x, from)) : part(x, s, from);
        YK_TRY(yk_hostmem_receive(x->comm, place_of_sum(x, s), from, to, s->bytes));
    }
    if (!x->packs) return YK_OK;
    YK_TRY(tell(x, HOSTMEM_BACK, s, x->copies->up));
    YK_TRY(await(x, HOSTMEM_BACK, s, 0, x->stream));
    for (int p = 0; p < n; p++)
        if (p != x->comm->index)
            YK_TRY(unpack(x, s, staging(x, g->layout.back, s, n - 1, other(x, p)), p));
    return tell(x, HOSTMEM_UNPACKED, s, x->stream);
}

/* ---- the whole ---------------------------------------------------------------------------- */

static yk_status add_all(const sums *x)
{
    int64_t n_chunks = x->n_chunks;
    for (int64_t k = 0; k < n_chunks + 2; k++) {
        span sent = span_of(x, k), added = span_of(x, k - 1), spread_out = span_of(x, k - 2);
        if (k < n_chunks) YK_TRY(send(x, &sent));
        if (k >= 1 && k - 1 < n_chunks) YK_TRY(add(x, &added));
        if (k >= 2 && !x->r->shard) YK_TRY(spread(x, &spread_out));
    }
    return YK_OK;
}

/* Let `stream`, which asks for one chunk after the other, go on when `number` has been added, with the few that
 * begin with it; or, where others have taken its event, the first that still has one. */
static yk_status await_sum(const sums *x, int64_t number, yk_stream *stream)
{
    if (number % HOSTMEM_ARRIVALS != 0) return YK_OK;
    int64_t last = (x->n_chunks - 1) / HOSTMEM_ARRIVALS, oldest = last + 1 - HOSTMEM_TURNS;
    int64_t few = yk_max(yk_min(number / HOSTMEM_ARRIVALS, last), oldest);
    return yk_event_wait(event_of(x, HOSTMEM_SUMMED, few), stream);
}

/* For all ranks, but first as for this one alone, so that what arrives has room. Where a sum comes back,
 * a part lay that arrived HOSTMEM_ARRIVALS chunks later, and has been added. */
static yk_status add_then_spread(const sums *x)
{
    sums first = *x;
    yk_reduction own = *x->r;
    span all = span_of(x, 0);
    own.shard = part(x, &all, x->comm->index);
    first.r = &own;
    first.in_place = true;
    YK_TRY(add_all(&first));
    for (int64_t k = 0; k < x->n_chunks + 1; k++) {
        span sent = span_of(x, k), spread_out = span_of(x, k - 1);
        if (k < x->n_chunks) {
            YK_TRY(await_sum(x, k, x->copies->down));
            YK_TRY(send_sum(x, &sent, part(x, &sent, x->comm->index)));
        }
        if (k >= 1) {
            YK_TRY(await_sum(x, k - 1 + HOSTMEM_ARRIVALS, x->copies->up));
            YK_TRY(spread(x, &spread_out));
        }
    }
    return YK_OK;
}

static yk_status all_chunks(const sums *x)
{
    bool is_long = !x->packs && !x->r->shard && x->n_chunks > HOSTMEM_ARRIVALS;
    hostmem_group *g = x->group;
    YK_TRY(is_long ? add_then_spread(x) : add_all(x));
    g->n_parts += n_slots(x);
    if (!x->r->shard) g->n_sums += n_slots(x);
    return YK_OK;
}

yk_status yk_hostmem_find_greatest(yk_comm *c, float *value, yk_stream *stream)
{
    hostmem_group *g = yk_hostmem_of(c);
    uint32_t meeting = g->n_met_reduce++;
    float *row = yk_hostmem_greatest(g, meeting);
    float *all = (void *)(c->staging + g->layout.greatest_of_all);
    int64_t bytes = (int64_t)sizeof *all;
    YK_TRY(yk_copy(stream, row + c->index, value, bytes, YK_COPY_DEVICE_TO_HOST));
    YK_TRY(yk_hostmem_meet(c, HOSTMEM_MET_REDUCE, meeting, stream));
    YK_TRY(yk_copy(stream, all, row, c->size * bytes, YK_COPY_HOST_TO_DEVICE));
    return yk_greatest(
        stream, &(yk_greatest_args){.greatest = value, .x = all, .n = c->size, .dtype = YK_F32});
}

yk_status yk_hostmem_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream)
{
    hostmem_group *g = yk_hostmem_of(c);
    sums x = {.comm = c,
              .group = g,
              .r = r,
              .stream = stream,
              .copies = &g->copies[HOSTMEM_LANE_REDUCE],
              .chunk = yk_comm_hostmem_chunk(c, r->count, r->wire),
              .packs = yk_reduction_packs(r),
              .in_place = r->shard && !yk_reduction_packs(r),
              .flushed = (void *)(c->staging + g->layout.n_flushed)};
    x.n_chunks = yk_div_up(r->count, x.chunk);
    x.width = yk_hostmem_width(x.chunk * yk_dtype_bytes(r->wire), g->layout.chunk_bytes);
    YK_TRY(yk_hostmem_begin(c, HOSTMEM_LANE_REDUCE, stream));
    YK_TRY(yk_comm_agree_scale(c, r, stream, &x.scale));
    YK_TRY(all_chunks(&x));
    if (x.packs)
        YK_TRY(yk_copy(stream, yk_hostmem_flushed(g, c->index), x.flushed, sizeof *x.flushed,
                       YK_COPY_DEVICE_TO_HOST));
    int64_t sent = (c->size - 1) * r->count * yk_dtype_bytes(r->wire);
    atomic_fetch_add(&c->bytes_sent, r->shard ? sent : 2 * sent);
    return yk_hostmem_end(c, HOSTMEM_LANE_REDUCE, stream);
}
