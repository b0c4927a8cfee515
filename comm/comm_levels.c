/* comm/comm_levels.c - one group over several nodes whose ranks meet in host memory inside a node: hostmem
 * there, and the library between nodes.
 *
 * Composed of a group of the node and a group across, which see one part of a buffer each: the parts of
 * the ranks with one local rank lie side by side, and so
 *
 *   gather  across: the parts of this local rank     inside: those of all local ranks
 *   sum     inside: this local rank keeps its parts   across: this rank keeps its own
 *
 * Between the levels a sum stays as it travels, so that it is rounded where one group over all would round
 * it, and no more: the bits are the same. For all ranks the sums are gathered inside as they travel, and
 * unpacked at the end.
 *
 * Lanes. The gathers of an all-reduce and of values use the groups' lane for gathers, whatever stream
 *        they are given; an event orders them with the others.
 */
#include "comm/backend.h"
#include "runtime/base/arith.h"
#include "runtime/device/ops.h"
#include "runtime/device/ops_wire.h"

#define SMALL 256 /* bytes that the greatest gradient has of staging memory */

typedef struct levels {
    yk_comm *whole;           /* the group that this is of */
    yk_comm *inside, *across; /* owned */
    yk_event *gathered;       /* where the lane of gathers is free again */
    yk_step_values *values;   /* (size) staging memory */
} levels;

static levels *levels_of(const yk_comm *c)
{
    return c->state;
}

int64_t yk_comm_levels_staging_bytes(const yk_comm *c)
{
    return SMALL + yk_round_up(c->size * (int64_t)sizeof(yk_step_values), 256);
}

int64_t yk_comm_levels_shared_bytes(const yk_comm *c)
{
    return yk_comm_shared_bytes(levels_of(c)->inside);
}

void yk_comm_levels_parts(const yk_comm *c, const yk_comm *parts_out[2])
{
    parts_out[0] = levels_of(c)->inside;
    parts_out[1] = levels_of(c)->across;
}

/* ---- making and releasing ----------------------------------------------------------------- */

static yk_status create_level(yk_comm *c, yk_axis axis, int64_t max_count, yk_comm **comm_out)
{
    yk_comm_options o = c->o;
    o.axis = axis;
    o.gathers = YK_COMM_AUTO;
    o.whole = c;
    o.max_count = max_count;
    return yk_comm_create(&o, comm_out);
}

/* A node that cannot be joined keeps the others from waiting for it. */
static yk_status levels_create(yk_comm *c)
{
    levels *l = levels_of(c);
    int64_t worst, most = c->o.max_count;
    l->whole = c;
    l->values = (yk_step_values *)(void *)(c->staging + SMALL);
    c->greatest = (float *)(void *)c->staging;
    YK_TRY(yk_event_create(c->o.device, &l->gathered));
    yk_status status = create_level(c, YK_AXIS_NODE, most, &l->inside);
    if (yk_device_get_kind(c->o.device) != YK_DEVICE_DRY) {
        yk_status mine = status;
        status = yk_world_max(c->o.world, (int64_t)mine, &worst);
        if (status == YK_OK) status = mine != YK_OK ? mine : (yk_status)worst;
    }
    YK_TRY(status);
    return create_level(c, YK_AXIS_ACROSS, yk_div_up(most, c->n_local), &l->across);
}

static void levels_destroy(yk_comm *c)
{
    levels *l = levels_of(c);
    yk_comm_destroy(l->across);
    yk_comm_destroy(l->inside);
    yk_event_destroy(l->gathered);
}

static int64_t levels_flushed(const yk_comm *c)
{
    const levels *l = levels_of(c);
    yk_comm_counts inside = yk_comm_get_counts(l->inside), across = yk_comm_get_counts(l->across);
    atomic_store(&l->whole->bytes_sent, inside.bytes_sent + across.bytes_sent);
    atomic_store(&l->whole->busy_ns, (int64_t)(1e9 * (inside.busy_s + across.busy_s)));
    return inside.n_flushed + across.n_flushed;
}

/* ---- lanes -------------------------------------------------------------------------------- */

static yk_status begin(yk_comm *c)
{
    const levels *l = levels_of(c);
    return yk_comm_inherit_failure(c, l->inside, l->across);
}

static yk_status take_gathers(const levels *l, yk_stream *stream)
{
    return yk_event_wait(l->gathered, stream);
}

static yk_status give_gathers(const levels *l, yk_stream *stream)
{
    return yk_event_record(l->gathered, stream);
}

/* ---- what only moves ---------------------------------------------------------------------- */

/* Part i of full from index i to all, in the lane of gathers. */
static yk_status gather_parts(yk_comm *c, void *full, const void *shard, int64_t bytes,
                              yk_stream *stream)
{
    const levels *l = levels_of(c);
    char *mine = (char *)full + yk_comm_local(c) * c->n_nodes * bytes;
    YK_TRY(l->across->backend->all_gather(l->across, mine, shard, bytes, stream));
    return l->inside->backend->all_gather(l->inside, full, mine, c->n_nodes * bytes, stream);
}

static yk_status levels_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                                   yk_stream *stream)
{
    const levels *l = levels_of(c);
    YK_TRY(begin(c));
    YK_TRY(take_gathers(l, stream));
    YK_TRY(gather_parts(c, full, shard, bytes, stream));
    atomic_fetch_add(&c->n_collectives, 1);
    return give_gathers(l, stream);
}

/* From the root to the other nodes' ranks with its local rank, and from them to their nodes. */
static yk_status levels_broadcast(yk_comm *c, void *buffer, int64_t bytes, int root,
                                  yk_stream *stream)
{
    const levels *l = levels_of(c);
    int local = root / c->n_nodes, node = root % c->n_nodes;
    YK_TRY(begin(c));
    YK_TRY(take_gathers(l, stream));
    if (yk_comm_local(c) == local)
        YK_TRY(l->across->backend->broadcast(l->across, buffer, bytes, node, stream));
    YK_TRY(l->inside->backend->broadcast(l->inside, buffer, bytes, local, stream));
    atomic_fetch_add(&c->n_collectives, 1);
    return give_gathers(l, stream);
}

/* All learn the values of all, and add in order of index. */
static yk_status levels_all_reduce_values(yk_comm *c, yk_step_values *values, yk_stream *stream)
{
    const levels *l = levels_of(c);
    int64_t bytes = sizeof *values;
    YK_TRY(begin(c));
    YK_TRY(take_gathers(l, stream));
    YK_TRY(gather_parts(c, l->values, values, bytes, stream));
    YK_TRY(yk_sum_values(stream,
                         &(yk_sum_values_args){.values = values, .all = l->values, .n = c->size}));
    atomic_fetch_add(&c->n_collectives, 1);
    return give_gathers(l, stream);
}

/* When all of a node have come, each meets its peers, all of whose nodes have come then, too. */
static yk_status levels_barrier(yk_comm *c, yk_stream *stream)
{
    const levels *l = levels_of(c);
    YK_TRY(begin(c));
    YK_TRY(l->inside->backend->barrier(l->inside, stream));
    atomic_fetch_add(&c->n_collectives, 1);
    return l->across->backend->barrier(l->across, stream);
}

/* ---- sums --------------------------------------------------------------------------------- */

static yk_status levels_greatest(yk_comm *c, float *value, yk_stream *stream)
{
    const levels *l = levels_of(c);
    YK_TRY(l->inside->backend->greatest(l->inside, value, stream));
    return l->across->backend->greatest(l->across, value, stream);
}

static yk_status unpack(const yk_comm *c, const yk_reduction *r, void *to, const void *from,
                        int64_t n, yk_stream *stream)
{
    yk_wire_scale scale = {c->greatest, c->size};
    return yk_sum_parts(
        stream, &(yk_sum_parts_args){.sum = to,
                                     .parts = from,
                                     .n_parts = 1,
                                     .scale = r->wire == YK_F16 ? scale : (yk_wire_scale){0},
                                     .n = n,
                                     .accumulate = r->accumulate,
                                     .dtype = r->dtype,
                                     .wire = r->wire});
}

/* This rank's sum, of the packed ones at `mine`, and where it belongs. */
static yk_status keep_own(yk_comm *c, const yk_reduction *r, char *mine, bool packs,
                          yk_stream *stream)
{
    yk_comm *across = levels_of(c)->across;
    char *own = mine + yk_comm_node(c) * r->count * yk_dtype_bytes(r->wire);
    yk_reduction sum = {.full = mine,
                        .shard = packs ? own : r->shard,
                        .count = r->count,
                        .dtype = r->wire,
                        .wire = r->wire,
                        .accumulate = !packs && r->accumulate,
                        .packed = true};
    YK_TRY(across->backend->reduce(across, &sum, stream));
    return packs ? unpack(c, r, r->shard, own, r->count, stream) : YK_OK;
}

/* All sums to all: those of the nodes' local ranks close up first, since what travels may be shorter. */
static yk_status spread(yk_comm *c, const yk_reduction *r, char *mine, bool packs,
                        yk_stream *stream)
{
    const levels *l = levels_of(c);
    int64_t count = c->n_nodes * r->count, bytes = count * yk_dtype_bytes(r->wire);
    char *full = r->full, *closed = full + yk_comm_local(c) * bytes;
    yk_reduction sum = {
        .full = mine, .count = r->count, .dtype = r->wire, .wire = r->wire, .packed = true};
    YK_TRY(l->across->backend->reduce(l->across, &sum, stream));
    if (closed != mine) YK_TRY(yk_copy(stream, closed, mine, bytes, YK_COPY_DEVICE));
    YK_TRY(take_gathers(l, stream));
    YK_TRY(l->inside->backend->all_gather(l->inside, full, closed, bytes, stream));
    YK_TRY(give_gathers(l, stream));
    return packs ? unpack(c, r, full, full, c->size * r->count, stream) : YK_OK;
}

static yk_status levels_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream)
{
    yk_comm *inside = levels_of(c)->inside;
    int64_t count = c->n_nodes * r->count;
    bool packs = yk_reduction_packs(r);
    char *mine = (char *)r->full + yk_comm_local(c) * count * yk_dtype_bytes(r->dtype);
    yk_reduction sum = {.full = r->full,
                        .shard = mine,
                        .count = count,
                        .dtype = r->dtype,
                        .wire = r->wire,
                        .travels = true};
    YK_TRY(begin(c));
    YK_TRY(inside->backend->reduce(inside, &sum, stream));
    atomic_fetch_add(&c->n_collectives, 1);
    return r->shard ? keep_own(c, r, mine, packs, stream) : spread(c, r, mine, packs, stream);
}

const yk_comm_backend yk_comm_levels = {
    .name = "hostmem+nccl", /* on processors "hostmem+mpi" */
    .state_bytes = sizeof(levels),
    .create = levels_create,
    .destroy = levels_destroy,
    .all_gather = levels_all_gather,
    .reduce = levels_reduce,
    .greatest = levels_greatest,
    .all_reduce_values = levels_all_reduce_values,
    .broadcast = levels_broadcast,
    .barrier = levels_barrier,
    .flushed = levels_flushed,
};
