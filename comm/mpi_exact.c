/* comm/mpi_exact.c - the sum in one order: an all-to-all and a local sum at each level.
 *
 * A shard is worked off in chunks, as long as a slot of the staging memory. A step is a chunk and a
 * node: the ranks of this node each sum that chunk of the part that belongs to one of them on that
 * node. Sums for this node stay, others go to their nodes; nodes begin with themselves and take turns,
 * so that each hears from one at a time. When all sums of a chunk have come they are added.
 *
 *   begin(t)        pack the chunk of the others' parts, send it, expect theirs
 *   finish(t)       wait, add in order of local rank, hand on
 *   close_chunk(c)  wait for the other nodes' sums, add in order of node, store
 *
 * begin(t + 1) comes before finish(t), so that messages are under way while sums are formed; what a
 * step holds is doubled for it. Parts of others are packed in place, which is safe chunk by chunk from
 * the front because the wire is no wider. The own part is packed aside: its place receives the result.
 */
#include "comm/mpi_group.h"
#include "runtime/base/arith.h"

typedef struct exact {
    yk_comm *comm;
    mpi_group *group;
    const yk_reduction *r;
    int tag, exponent;
    bool packs;                 /* elements are not yet what travels */
    int64_t wire_bytes, stride; /* of an element on the wire; of a part in memory */
    const void *own_sum[2];     /* the sums for this node, of two chunks */
} exact;

/* Elements begin .. begin+n-1 of every part, for the ranks of one node. */
typedef struct step {
    int64_t chunk, begin, n;
    int turn, node; /* the turn within the chunk, and the node whose parts are summed */
    int parity;     /* of the step */
} step;

static step step_at(const exact *x, int64_t t)
{
    const yk_comm *c = x->comm;
    int64_t chunk = t / c->n_nodes, begin = chunk * c->chunk;
    int turn = (int)(t % c->n_nodes);
    return (step){chunk,
                  begin,
                  yk_min(c->chunk, x->r->count - begin),
                  turn,
                  (yk_comm_node(c) + turn) % c->n_nodes,
                  (int)(t % 2)};
}

/* ---- where things lie --------------------------------------------------------------------- */

static char *slot(const exact *x, int64_t i)
{
    return x->comm->staging + i * x->comm->chunk * yk_dtype_bytes(x->comm->o.wire);
}

/* What came from a rank of this node. */
static char *local_slot(const exact *x, const step *s, int local)
{
    return slot(x, s->parity * x->comm->n_local + local);
}

/* The sum that came from a node, or that goes to it. */
static char *across_slot(const exact *x, int64_t chunk, int node, bool outgoing)
{
    int64_t first = 2 * x->comm->n_local, of_chunk = chunk % 2 * 2 * x->comm->n_nodes;
    return slot(x, first + of_chunk + (outgoing ? x->comm->n_nodes : 0) + node);
}

/* Part of index (local, node). */
static char *part(const exact *x, int local, int node)
{
    return (char *)x->r->full + (local * x->comm->n_nodes + node) * x->stride;
}

/* Where a step's chunk of a part lies, unpacked and packed. */
static char *source(const exact *x, const step *s, int local)
{
    return part(x, local, s->node) + s->begin * yk_dtype_bytes(x->r->dtype);
}

static char *payload(const exact *x, const step *s, int local)
{
    return part(x, local, s->node) + s->begin * x->wire_bytes;
}

static void pack(const exact *x, void *to, const void *from, int64_t n)
{
    int64_t flushed = yk_wire_pack(to, x->r->wire, from, x->r->dtype, n, x->exponent);
    if (flushed) atomic_fetch_add(&x->comm->n_flushed, flushed);
}

/* ---- within the node ---------------------------------------------------------------------- */

static yk_status begin(const exact *x, const step *s)
{
    yk_comm *c = x->comm;
    mpi_batch *b = &x->group->local[s->parity];
    int own = yk_comm_local(c), node = yk_comm_node(c);
    int64_t bytes = s->n * x->wire_bytes;
    for (int i = 1; i < c->n_local; i++) {
        int to = (own + i) % c->n_local, from = (own + c->n_local - i) % c->n_local;
        YK_TRY(
            yk_mpi_receive(c, b, from * c->n_nodes + node, local_slot(x, s, from), bytes, x->tag));
        if (x->packs) pack(x, payload(x, s, to), source(x, s, to), s->n);
        YK_TRY(yk_mpi_send(c, b, to * c->n_nodes + node, payload(x, s, to), bytes, x->tag));
    }
    return YK_OK;
}

/* This rank's own chunk as it would travel; packed into `room` when it is not yet so. */
static const void *own_part(const exact *x, const step *s, void *room)
{
    const char *from = source(x, s, yk_comm_local(x->comm));
    if (!x->packs) return from;
    pack(x, room, from, s->n);
    return room;
}

/* The sum over this node of a step's chunk, in `room` or, for a node of one rank, where it was. */
static const void *sum_local(const exact *x, const step *s, void *room)
{
    yk_comm *c = x->comm;
    int own = yk_comm_local(c);
    if (c->n_local == 1) return own_part(x, s, room);
    const void **parts = x->group->parts;
    for (int l = 0; l < c->n_local; l++) parts[l] = local_slot(x, s, l);
    parts[own] = own_part(x, s, local_slot(x, s, own));
    yk_wire_sum(room, parts, c->n_local, s->n, x->r->wire);
    return room;
}

/* ---- the result --------------------------------------------------------------------------- */

/* Where a chunk of the final sum is formed: in its place if it needs no more work there, else in
 * `room`. For all ranks it goes on travelling. */
static void *result_room(const exact *x, int64_t begin, void *room)
{
    const yk_comm *c = x->comm;
    if (!x->r->shard) return part(x, yk_comm_local(c), yk_comm_node(c)) + begin * x->wire_bytes;
    if (x->packs || x->r->accumulate) return room;
    return (char *)x->r->shard + begin * x->wire_bytes;
}

static void store(const exact *x, int64_t begin, int64_t n, const void *sum)
{
    const yk_reduction *r = x->r;
    if (!r->shard || (!x->packs && !r->accumulate)) return;
    yk_wire_unpack((char *)r->shard + begin * yk_dtype_bytes(r->dtype), r->dtype, sum, r->wire, n,
                   x->exponent, r->accumulate);
}

/* ---- across nodes ------------------------------------------------------------------------- */

static yk_status expect_across(const exact *x, const step *s)
{
    yk_comm *c = x->comm;
    for (int i = 1; i < c->n_nodes; i++) {
        int from = (yk_comm_node(c) + c->n_nodes - i) % c->n_nodes;
        YK_TRY(yk_mpi_receive(c, &x->group->across[s->chunk % 2],
                              yk_comm_local(c) * c->n_nodes + from,
                              across_slot(x, s->chunk, from, false), s->n * x->wire_bytes, x->tag));
    }
    return YK_OK;
}

/* Add the nodes' sums of a chunk. */
static yk_status close_chunk(const exact *x, int64_t chunk)
{
    yk_comm *c = x->comm;
    int own = yk_comm_node(c);
    int64_t first = chunk * c->chunk, n = yk_min(c->chunk, x->r->count - first);
    YK_TRY(yk_mpi_batch_wait(c, &x->group->across[chunk % 2], "reduction across nodes"));
    const void **parts = x->group->parts;
    for (int k = 0; k < c->n_nodes; k++) parts[k] = across_slot(x, chunk, k, false);
    parts[own] = x->own_sum[chunk % 2];
    void *sum = result_room(x, first, across_slot(x, chunk, own, false));
    yk_wire_sum(sum, parts, c->n_nodes, n, x->r->wire);
    store(x, first, n, sum);
    return YK_OK;
}

/* Form a step's sum and hand it to its node. */
static yk_status hand_on(exact *x, const step *s)
{
    yk_comm *c = x->comm;
    bool stays = s->turn == 0;
    const void *sum = sum_local(x, s, across_slot(x, s->chunk, s->node, !stays));
    if (stays) {
        x->own_sum[s->chunk % 2] = sum;
        YK_TRY(expect_across(x, s));
    } else {
        YK_TRY(yk_mpi_send(c, &x->group->across[s->chunk % 2],
                           yk_comm_local(c) * c->n_nodes + s->node, sum, s->n * x->wire_bytes,
                           x->tag));
    }
    bool last = s->turn == c->n_nodes - 1;
    return last && s->chunk > 0 ? close_chunk(x, s->chunk - 1) : YK_OK;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static yk_status finish(exact *x, const step *s)
{
    yk_comm *c = x->comm;
    YK_TRY(yk_mpi_batch_wait(c, &x->group->local[s->parity], "reduction"));
    if (c->n_nodes > 1) return hand_on(x, s);
    void *room = result_room(x, s->begin, local_slot(x, s, yk_comm_local(c)));
    store(x, s->begin, s->n, sum_local(x, s, room));
    return YK_OK;
}

static yk_status scatter(exact *x)
{
    yk_comm *c = x->comm;
    int64_t n_chunks = yk_div_up(x->r->count, c->chunk), n_steps = n_chunks * c->n_nodes;
    step before = {0};
    for (int64_t t = 0; t < n_steps; t++) {
        step s = step_at(x, t);
        YK_TRY(begin(x, &s));
        if (t > 0) YK_TRY(finish(x, &before));
        before = s;
    }
    YK_TRY(finish(x, &before));
    return c->n_nodes > 1 ? close_chunk(x, n_chunks - 1) : YK_OK;
}

/* The sums travel as they were rounded, so unpacking gives every rank what a shard's owner has. */
static yk_status gather(exact *x)
{
    yk_comm *c = x->comm;
    const yk_reduction *r = x->r;
    YK_TRY(yk_mpi_gather_parts(c, &x->group->gather[0], r->full, x->stride,
                               r->count * x->wire_bytes, x->tag));
    for (int i = 0; x->packs && i < c->size; i++) {
        char *at = (char *)r->full + i * x->stride;
        yk_wire_unpack(at, r->dtype, at, r->wire, r->count, x->exponent, false);
    }
    return YK_OK;
}

yk_status yk_mpi_run_exact(const mpi_task *t)
{
    exact x = {.comm = t->comm,
               .group = yk_mpi_group_of(t->comm),
               .r = &t->reduction,
               .tag = t->tag,
               .exponent = yk_mpi_exponent(t),
               .wire_bytes = yk_dtype_bytes(t->reduction.wire),
               .stride = t->reduction.count * yk_dtype_bytes(t->reduction.dtype)};
    x.packs = x.r->dtype != x.r->wire || x.exponent != 0;
    YK_TRY(scatter(&x));
    return x.r->shard ? YK_OK : gather(&x);
}
