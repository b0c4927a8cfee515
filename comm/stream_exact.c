/* comm/stream_exact.c - an all-to-all and a local sum at each level, enqueued.
 *
 * Chunks, steps and slots are those of mpi_exact.c, which tells them. What is other: the own part is
 * packed as it is added and needs no slot; sums of a chunk cross to the other nodes together, when the
 * last of them is formed; and nothing is waited for here, so that each reuse of a slot is an event:
 *
 *   begin(t)   sums: pack the others' parts | given: after that and after sum(t - 2), exchange
 *   finish(t)  sums: after that exchange, add in order of local rank
 *   cross(c)   given: after the sums of chunk c and close(c - 2), exchange with the other nodes
 *   close(c)   sums: after that exchange, add in order of node, store
 */
#include "comm/stream_exact.h"

#include <stdlib.h>

#include "runtime/base/arith.h"

/* A reduction on its way. */
typedef struct run {
    yk_exact *exact;
    yk_comm *comm;
    const yk_reduction *r;
    yk_stream *given, *sums;
    yk_wire_scale scale;
    bool packs;                      /* elements are not yet what travels */
    int64_t element, wire, part, of; /* bytes: of an element in memory and on the wire; of a part in
                                      * memory; of a slot */
} run;

/* Elements begin .. begin+n-1 of every part, for the ranks of one node. */
typedef struct step {
    int64_t chunk, begin, n;
    int node;   /* whose parts are summed */
    int parity; /* of the step */
    bool stays; /* its sums are for this node */
    bool last;  /* of the chunk */
} step;

static step step_at(const run *x, int64_t t)
{
    const yk_comm *c = x->comm;
    int64_t chunk = t / c->n_nodes, begin = chunk * c->chunk;
    int turn = (int)(t % c->n_nodes);
    return (step){.chunk = chunk,
                  .begin = begin,
                  .n = yk_min(c->chunk, x->r->count - begin),
                  .node = (yk_comm_node(c) + turn) % c->n_nodes,
                  .parity = (int)(t % 2),
                  .stays = turn == 0,
                  .last = turn == c->n_nodes - 1};
}

/* ---- where things lie --------------------------------------------------------------------- */

static int index_of(const yk_comm *c, int local, int node)
{
    return local * c->n_nodes + node;
}

/* What came from a rank of this node. */
static char *local_slot(const run *x, int parity, int local)
{
    return x->comm->staging + (parity * x->comm->n_local + local) * x->of;
}

/* The sum that came from a node, or that goes to it. */
static char *across_slot(const run *x, int64_t chunk, int node, bool outgoing)
{
    const yk_comm *c = x->comm;
    int64_t first = 2 * c->n_local + chunk % 2 * 2 * c->n_nodes;
    return c->staging + (first + (outgoing ? c->n_nodes : 0) + node) * x->of;
}

/* Element `begin` of the part of index (local, node): unpacked, and packed in the part's front. */
static char *source(const run *x, int local, int node, int64_t begin)
{
    return (char *)x->r->full + index_of(x->comm, local, node) * x->part + begin * x->element;
}

static char *payload(const run *x, int local, int node, int64_t begin)
{
    return (char *)x->r->full + index_of(x->comm, local, node) * x->part + begin * x->wire;
}

/* The sum that goes to another node: a node of one rank sends its part itself, if it is as it
 * travels. */
static void *to_node(const run *x, int64_t chunk, int node)
{
    const yk_comm *c = x->comm;
    if (c->n_local == 1 && !x->packs) return source(x, 0, node, chunk * c->chunk);
    return across_slot(x, chunk, node, true);
}

/* ---- operations --------------------------------------------------------------------------- */

/* `later` does after this what follows, when `earlier` has come here. */
static yk_status follow(yk_stream *later, yk_event *event, yk_stream *earlier)
{
    YK_TRY(yk_event_record(event, earlier));
    return yk_event_wait(event, later);
}

static yk_status pack(const run *x, void *to, const void *from, int64_t n)
{
    return yk_pack(x->sums, &(yk_pack_args){.packed = to,
                                            .x = from,
                                            .scale = x->scale,
                                            .n_flushed = x->exact->n_flushed,
                                            .n = n,
                                            .dtype = x->r->dtype,
                                            .wire = x->r->wire});
}

/* A sum of a level; the caller fills in parts and place. */
static yk_sum_parts_args sum_of(const run *x, int64_t n)
{
    return (yk_sum_parts_args){.stride = x->of,
                               .scale = x->scale,
                               .n_flushed = x->packs ? x->exact->n_flushed : NULL,
                               .n = n,
                               .dtype = x->r->dtype,
                               .wire = x->r->wire};
}

/* Where the last sum of elements from `begin` on goes. */
static void place_result(const run *x, int64_t begin, yk_sum_parts_args *sum)
{
    const yk_comm *c = x->comm;
    sum->travels = !x->r->shard;
    sum->accumulate = x->r->accumulate;
    sum->sum = x->r->shard ? (char *)x->r->shard + begin * x->element
                           : payload(x, yk_comm_local(c), yk_comm_node(c), begin);
}

/* ---- within the node ---------------------------------------------------------------------- */

static yk_status begin(const run *x, const step *s)
{
    yk_comm *c = x->comm;
    yk_transfer *list = x->exact->list;
    int own = yk_comm_local(c), node = yk_comm_node(c), n = 0;
    int64_t bytes = s->n * x->wire;
    for (int i = 1; i < c->n_local; i++) {
        int to = (own + i) % c->n_local, from = (own + c->n_local - i) % c->n_local;
        char *data = payload(x, to, s->node, s->begin);
        if (x->packs) YK_TRY(pack(x, data, source(x, to, s->node, s->begin), s->n));
        list[n++] = (yk_transfer){data, bytes, index_of(c, to, node), true};
        list[n++] =
            (yk_transfer){local_slot(x, s->parity, from), bytes, index_of(c, from, node), false};
    }
    if (n == 0) return YK_OK;
    if (x->packs) YK_TRY(follow(x->given, x->exact->packed[s->parity], x->sums));
    YK_TRY(yk_event_wait(x->exact->summed[s->parity], x->given));
    YK_TRY(x->exact->carrier->exchange(c, list, n, x->given));
    return yk_event_record(x->exact->arrived[s->parity], x->given);
}

/* Add this node's parts of a step, or pack the only one. */
static yk_status sum_local(const run *x, const step *s)
{
    yk_comm *c = x->comm;
    int own = yk_comm_local(c);
    const void *from = source(x, own, s->node, s->begin);
    if (c->n_local == 1 && c->n_nodes > 1 && (s->stays || !x->packs)) return YK_OK;
    void *to = across_slot(x, s->chunk, s->node, !s->stays);
    if (c->n_local == 1 && c->n_nodes > 1) return pack(x, to, from, s->n);
    yk_sum_parts_args a = sum_of(x, s->n);
    a.parts = local_slot(x, s->parity, 0);
    a.own = from;
    a.n_parts = c->n_local;
    a.own_part = own;
    a.sum = to;
    a.travels = true;
    if (c->n_nodes == 1) place_result(x, s->begin, &a);
    YK_TRY(yk_event_wait(x->exact->arrived[s->parity], x->sums));
    YK_TRY(yk_sum_parts(x->sums, &a));
    return yk_event_record(x->exact->summed[s->parity], x->sums);
}

/* ---- across nodes ------------------------------------------------------------------------- */

static yk_status cross(const run *x, const step *s)
{
    yk_comm *c = x->comm;
    yk_transfer *list = x->exact->list;
    int own = yk_comm_node(c), local = yk_comm_local(c), n = 0;
    int64_t bytes = s->n * x->wire;
    for (int i = 1; i < c->n_nodes; i++) {
        int to = (own + i) % c->n_nodes, from = (own + c->n_nodes - i) % c->n_nodes;
        list[n++] = (yk_transfer){to_node(x, s->chunk, to), bytes, index_of(c, local, to), true};
        list[n++] = (yk_transfer){across_slot(x, s->chunk, from, false), bytes,
                                  index_of(c, local, from), false};
    }
    YK_TRY(follow(x->given, x->exact->joined, x->sums));
    YK_TRY(yk_event_wait(x->exact->closed[s->chunk % 2], x->given));
    YK_TRY(x->exact->carrier->exchange(c, list, n, x->given));
    return yk_event_record(x->exact->crossed[s->chunk % 2], x->given);
}

/* Add the nodes' sums of a chunk. */
static yk_status close_chunk(const run *x, int64_t chunk)
{
    yk_comm *c = x->comm;
    int own = yk_comm_node(c);
    int64_t first = chunk * c->chunk;
    yk_sum_parts_args a = sum_of(x, yk_min(c->chunk, x->r->count - first));
    a.parts = across_slot(x, chunk, 0, false);
    a.own = c->n_local == 1 ? source(x, 0, own, first) : NULL;
    a.n_parts = c->n_nodes;
    a.own_part = own;
    place_result(x, first, &a);
    YK_TRY(yk_event_wait(x->exact->crossed[chunk % 2], x->sums));
    YK_TRY(yk_sum_parts(x->sums, &a));
    return yk_event_record(x->exact->closed[chunk % 2], x->sums);
}

/* ---- the whole ---------------------------------------------------------------------------- */

static yk_status finish(const run *x, const step *s)
{
    YK_TRY(sum_local(x, s));
    if (x->comm->n_nodes == 1 || !s->last) return YK_OK;
    YK_TRY(cross(x, s));
    return s->chunk > 0 ? close_chunk(x, s->chunk - 1) : YK_OK;
}

static yk_status scatter(const run *x)
{
    yk_comm *c = x->comm;
    int64_t n_chunks = yk_div_up(x->r->count, c->chunk), n_steps = n_chunks * c->n_nodes;
    step before = {0};
    YK_TRY(follow(x->sums, x->exact->joined, x->given));
    for (int64_t t = 0; t < n_steps; t++) {
        step s = step_at(x, t);
        YK_TRY(begin(x, &s));
        if (t > 0) YK_TRY(finish(x, &before));
        before = s;
    }
    YK_TRY(finish(x, &before));
    if (c->n_nodes > 1) YK_TRY(close_chunk(x, n_chunks - 1));
    return follow(x->given, x->exact->joined, x->sums);
}

/* This rank's sums to and from the other nodes. */
static yk_status gather_across(const run *x)
{
    yk_comm *c = x->comm;
    yk_transfer *list = x->exact->list;
    int own = yk_comm_node(c), local = yk_comm_local(c), n = 0;
    int64_t bytes = x->r->count * x->wire;
    for (int i = 1; i < c->n_nodes; i++) {
        int to = (own + i) % c->n_nodes, from = (own + c->n_nodes - i) % c->n_nodes;
        list[n++] = (yk_transfer){payload(x, local, own, 0), bytes, index_of(c, local, to), true};
        list[n++] =
            (yk_transfer){payload(x, local, from, 0), bytes, index_of(c, local, from), false};
    }
    return n == 0 ? YK_OK : x->exact->carrier->exchange(c, list, n, x->given);
}

/* What is here of one local rank on all nodes to and from the others of this node. */
static yk_status gather_local(const run *x)
{
    yk_comm *c = x->comm;
    yk_transfer *list = x->exact->list;
    int own = yk_comm_local(c), node = yk_comm_node(c), n = 0;
    int64_t bytes = x->r->count * x->wire;
    for (int i = 1; i < c->n_local; i++) {
        int to = (own + i) % c->n_local, from = (own + c->n_local - i) % c->n_local;
        for (int k = 0; k < c->n_nodes; k++) {
            list[n++] = (yk_transfer){payload(x, own, k, 0), bytes, index_of(c, to, node), true};
            list[n++] =
                (yk_transfer){payload(x, from, k, 0), bytes, index_of(c, from, node), false};
        }
    }
    return n == 0 ? YK_OK : x->exact->carrier->exchange(c, list, n, x->given);
}

/* The sums travel as they were rounded, so unpacking gives every rank what a shard's owner has. */
static yk_status gather(const run *x)
{
    const yk_reduction *r = x->r;
    if (x->wire == x->element) {
        YK_TRY(x->exact->carrier->gather(x->comm, r->full, x->part, x->given));
    } else {
        YK_TRY(gather_across(x));
        YK_TRY(gather_local(x));
    }
    for (int i = 0; x->packs && i < x->comm->size; i++) {
        void *at = (char *)r->full + i * x->part;
        YK_TRY(yk_sum_parts(x->given, &(yk_sum_parts_args){.sum = at,
                                                           .parts = at,
                                                           .n_parts = 1,
                                                           .scale = x->scale,
                                                           .n = r->count,
                                                           .dtype = r->dtype,
                                                           .wire = r->wire}));
    }
    return YK_OK;
}

yk_status yk_exact_run(yk_exact *e, const yk_reduction *r, yk_stream *stream)
{
    run x = {.exact = e,
             .comm = e->comm,
             .r = r,
             .given = stream,
             .sums = e->sums,
             .packs = yk_reduction_packs(r),
             .element = yk_dtype_bytes(r->dtype),
             .wire = yk_dtype_bytes(r->wire),
             .part = r->count * yk_dtype_bytes(r->dtype),
             .of = e->comm->chunk * yk_dtype_bytes(e->comm->o.wire)};
    YK_TRY(yk_comm_agree_scale(e->comm, r, stream, &x.scale));
    YK_TRY(scatter(&x));
    return r->shard ? YK_OK : gather(&x);
}

/* ---- making and releasing ----------------------------------------------------------------- */

static yk_status create_pair(yk_device *device, yk_event *events[2])
{
    YK_TRY(yk_event_create(device, &events[0]));
    return yk_event_create(device, &events[1]);
}

yk_status yk_exact_init(yk_exact *e)
{
    yk_device *device = e->comm->o.device;
    e->list = calloc(2 * (size_t)e->comm->size, sizeof *e->list);
    if (!e->list) return yk_fail(YK_ENOMEM, "group", "no memory for %d ranks", e->comm->size);
    YK_TRY(yk_stream_create(device, YK_STREAM_TRANSFER, "sums", &e->sums));
    YK_TRY(yk_event_create(device, &e->joined));
    YK_TRY(create_pair(device, e->packed));
    YK_TRY(create_pair(device, e->arrived));
    YK_TRY(create_pair(device, e->summed));
    YK_TRY(create_pair(device, e->crossed));
    return create_pair(device, e->closed);
}

void yk_exact_fini(yk_exact *e)
{
    yk_stream_destroy(e->sums);
    yk_event_destroy(e->joined);
    for (int i = 0; i < 2; i++) {
        yk_event_destroy(e->packed[i]);
        yk_event_destroy(e->arrived[i]);
        yk_event_destroy(e->summed[i]);
        yk_event_destroy(e->crossed[i]);
        yk_event_destroy(e->closed[i]);
    }
    free(e->list);
}
