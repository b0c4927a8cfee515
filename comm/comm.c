/* comm/comm.c - the dispatcher: who belongs to a group, what is refused, what has no work. */
#include "comm/comm.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "comm/backend.h"
#include "comm/nccl_layout.h"
#include "runtime/base/arith.h"
#include "runtime/base/require.h"
#include "runtime/device/recorder.h"

/* Staging memory aims at so much, so that the parts of a sum stay in a processor's cache, but a
 * message should not become so small that its start is what it costs. */
#define STAGING_BYTES      ((int64_t)4 << 20)
#define CHUNK_MIN_ELEMENTS 16384

/* ---- making a group ----------------------------------------------------------------------- */

static yk_status check_options(const yk_comm_options *o)
{
    bool dry = yk_device_get_kind(o->device) == YK_DEVICE_DRY;
    const yk_topology *t = dry ? o->topology : NULL;
    YK_CHECK(o->wire == YK_F32 || o->wire == YK_BF16 || o->wire == YK_F16);
    YK_CHECK(o->max_count >= 0);
    if (t && (t->ranks < 1 || t->node_size < 1 || t->ranks % t->node_size != 0))
        return yk_fail(YK_EINVAL, "ranks",
                       "%d ranks do not divide into nodes of %d; give a multiple", t->ranks,
                       t->node_size);
    if (t && (t->node_rate <= 0 || t->across_rate <= 0 || t->node_latency_s < 0 ||
              t->across_latency_s < 0))
        return yk_fail(YK_EINVAL, "links",
                       "a rate or a latency of the described links is not "
                       "positive");
    if (o->reduce == YK_REDUCE_RING && o->max_count > INT_MAX)
        return yk_fail(YK_EINVAL, "comm.reduce",
                       "ring adds up to 2^31 - 1 elements at once and a unit has %lld; use exact",
                       (long long)o->max_count);
    if (dry || !o->world || o->axis == YK_AXIS_NODE || yk_world_is_regular(o->world)) return YK_OK;
    return yk_fail(YK_EINVAL, "ranks",
                   "%d ranks on %d nodes are not the same number on each; start as many on every "
                   "node",
                   yk_world_size(o->world), yk_world_n_nodes(o->world));
}

/* The shape of the whole: L ranks on each of K nodes, this one being (local, node). */
typedef struct layout {
    int n_local, n_nodes, local, node;
} layout;

static layout whole_layout(const yk_comm_options *o)
{
    if (yk_device_get_kind(o->device) == YK_DEVICE_DRY) {
        if (!o->topology) return (layout){1, 1, 0, 0};
        return (layout){o->topology->node_size, o->topology->ranks / o->topology->node_size, 0, 0};
    }
    if (!o->world) return (layout){1, 1, 0, 0};
    return (layout){yk_world_local_size(o->world), yk_world_n_nodes(o->world),
                    yk_world_local_rank(o->world), yk_world_node(o->world)};
}

static int world_rank(const yk_comm_options *o, const layout *whole, int node, int local)
{
    if (yk_device_get_kind(o->device) == YK_DEVICE_DRY) return node * whole->n_local + local;
    return o->world ? yk_world_rank_at(o->world, node, local) : 0;
}

static yk_status place(yk_comm *c)
{
    layout whole = whole_layout(&c->o);
    bool local = c->o.axis != YK_AXIS_ACROSS, across = c->o.axis != YK_AXIS_NODE;
    c->node_ranks = whole.n_local;
    c->n_local = local ? whole.n_local : 1;
    c->n_nodes = across ? whole.n_nodes : 1;
    c->size = c->n_local * c->n_nodes;
    c->index = (local ? whole.local : 0) * c->n_nodes + (across ? whole.node : 0);
    c->ranks = malloc((size_t)c->size * sizeof *c->ranks);
    if (!c->ranks) return yk_fail(YK_ENOMEM, "group", "no memory for %d ranks", c->size);
    for (int i = 0; i < c->size; i++)
        c->ranks[i] = world_rank(&c->o, &whole, across ? i % c->n_nodes : whole.node,
                                 local ? i / c->n_nodes : whole.local);
    return YK_OK;
}

static yk_status push_for_hostmem(yk_comm *c)
{
    void *staging = NULL;
    YK_TRY(yk_arena_push(c->o.staging, "wire buffers", yk_comm_hostmem_staging_bytes(c), &staging));
    c->staging = staging;
    return YK_OK;
}

static yk_status push_for_nccl(yk_comm *c)
{
    void *staging = NULL;
    YK_TRY(yk_arena_push(c->o.staging, "wire buffers", yk_comm_nccl_lay_out(c).bytes, &staging));
    c->chunk = yk_comm_nccl_chunk(c);
    c->staging = staging;
    return YK_OK;
}

static yk_status push_for_levels(yk_comm *c)
{
    void *staging = NULL;
    YK_TRY(yk_arena_push(c->o.staging, "small values", yk_comm_levels_staging_bytes(c), &staging));
    c->staging = staging;
    return YK_OK;
}

/* A ring reduces in place. */
static yk_status push_staging(yk_comm *c)
{
    if (c->stands_for == &yk_comm_hostmem) return push_for_hostmem(c);
    if (c->stands_for == &yk_comm_levels) return push_for_levels(c);
    if (c->stands_for == &yk_comm_split) return YK_OK;
    if (c->stands_for == &yk_comm_nccl) return push_for_nccl(c);
    if (c->size == 1 || c->o.max_count == 0 || c->o.reduce == YK_REDUCE_RING) return YK_OK;
    int64_t element = yk_dtype_bytes(c->o.wire), slots = yk_comm_n_slots(c);
    int64_t fitting = yk_max(STAGING_BYTES / (slots * element), CHUNK_MIN_ELEMENTS);
    c->chunk = yk_round_up(yk_min(yk_div_up(c->o.max_count, c->size), fitting), 128);
    void *staging = NULL;
    YK_TRY(yk_arena_push(c->o.staging, "wire buffers", slots * c->chunk * element, &staging));
    c->staging = staging;
    return YK_OK;
}

/* What a choice is for this group: host memory joins the ranks of a node. */
static const yk_comm_backend *backend_of(const yk_comm *c, yk_comm_choice choice)
{
    bool cpu = yk_device_get_spec(c->o.device)->kind == YK_DEVICE_CPU;
    if (c->size == 1) return &yk_comm_self;
    if (choice == YK_COMM_HOSTMEM && c->n_local > 1)
        return c->n_nodes > 1 ? &yk_comm_levels : &yk_comm_hostmem;
    return cpu ? &yk_comm_mpi : &yk_comm_nccl;
}

/* Whether a backend that was asked for serves the device. */
static yk_status check_backend(const yk_comm *c, const char *key, yk_comm_choice choice)
{
    bool cpu = yk_device_get_spec(c->o.device)->kind == YK_DEVICE_CPU;
    if (choice == YK_COMM_NCCL && cpu)
        return yk_fail(
            YK_EINVAL, key,
            "nccl is for GPUs, and ranks compute on processors; take auto, mpi or hostmem");
    if (choice == YK_COMM_MPI && !cpu)
        return yk_fail(YK_EINVAL, key,
                       "mpi is for processors, and ranks compute on GPUs; take auto, nccl or "
                       "hostmem");
    return YK_OK;
}

/* Of groups that have their own backends and staging memory. */
static bool is_composed(const yk_comm *c)
{
    return c->stands_for == &yk_comm_levels || c->stands_for == &yk_comm_split;
}

static yk_status choose_backend(yk_comm *c)
{
    YK_TRY(check_backend(c, "comm.backend", c->o.backend));
    YK_TRY(check_backend(c, "comm.gathers", c->o.gathers));
    bool dry = yk_device_get_kind(c->o.device) == YK_DEVICE_DRY;
    c->stands_for = backend_of(c, c->o.backend);
    if (c->o.gathers != YK_COMM_AUTO && backend_of(c, c->o.gathers) != c->stands_for)
        c->stands_for = &yk_comm_split;
    bool is_one = c->size > 1 && !is_composed(c); /* whose groups are dry */
    c->backend = dry && is_one ? &yk_comm_dry : c->stands_for;
    return YK_OK;
}

void yk_comm_destroy_state(yk_comm *c)
{
    if (c->backend->destroy) c->backend->destroy(c);
    free(c->state);
    c->state = NULL;
}

yk_status yk_comm_create_state(yk_comm *c)
{
    size_t bytes = c->backend->state_bytes;
    if (bytes > 0 && !(c->state = calloc(1, bytes)))
        return yk_fail(YK_ENOMEM, "group", "no memory for it");
    yk_status status = c->backend->create ? c->backend->create(c) : YK_OK;
    if (status != YK_OK) yk_comm_destroy_state(c);
    return status;
}

yk_status yk_comm_create(const yk_comm_options *options, yk_comm **comm_out)
{
    YK_TRY(check_options(options));
    yk_comm *c = calloc(1, sizeof *c);
    if (!c) return yk_fail(YK_ENOMEM, "group", "no memory for it");
    c->o = *options;
    if (options->topology) c->topology = *options->topology;
    yk_status status = place(c);
    c->o.topology = &c->topology;
    if (status == YK_OK) status = choose_backend(c);
    if (status == YK_OK) status = push_staging(c);
    if (status == YK_OK) status = yk_comm_create_state(c);
    if (status != YK_OK) {
        free(c->ranks);
        free(c);
        return status;
    }
    *comm_out = c;
    return YK_OK;
}

void yk_comm_destroy(yk_comm *c)
{
    if (!c) return;
    yk_comm_destroy_state(c);
    yk_shelf_free(c->shelf);
    free(c->ranks);
    free(c);
}

const char *yk_comm_backend_name(const yk_comm *c)
{
    bool cpu = yk_device_get_spec(c->o.device)->kind == YK_DEVICE_CPU;
    if (c->stands_for == &yk_comm_split) return yk_comm_split_name(c);
    return c->stands_for == &yk_comm_levels && cpu ? "hostmem+mpi" : c->stands_for->name;
}

int64_t yk_comm_shared_bytes(const yk_comm *c)
{
    if (c->stands_for == &yk_comm_levels) return yk_comm_levels_shared_bytes(c);
    if (c->stands_for == &yk_comm_split) return yk_comm_split_shared_bytes(c);
    if (c->stands_for != &yk_comm_hostmem) return 0;
    return yk_comm_hostmem_shared_bytes(c) + yk_comm_shelf_bytes(c);
}

int64_t yk_comm_chunk_bytes(const yk_comm *c, bool gathers, int64_t bytes)
{
    int64_t element = yk_dtype_bytes(c->o.wire);
    if (c->stands_for != &yk_comm_hostmem) return 0;
    if (gathers) return yk_min(bytes, yk_comm_hostmem_gather_chunk(c, bytes));
    return yk_min(bytes, element * yk_comm_hostmem_chunk(c, bytes / element, c->o.wire));
}

/* Add what NCCL takes for a group and those that it is composed of, NULL for none. */
static void add_library_bytes(const yk_comm *c, int64_t *bytes)
{
    const yk_comm *parts[2] = {NULL, NULL};
    if (!c) return;
    bool peers = c->n_local > 1 && yk_device_get_spec(c->o.device)->peer_rate > 0;
    if (c->stands_for == &yk_comm_nccl) *bytes += yk_comm_nccl_group_bytes(peers);
    if (c->stands_for == &yk_comm_levels) yk_comm_levels_parts(c, parts);
    if (c->stands_for == &yk_comm_split) yk_comm_split_parts(c, parts);
    for (int i = 0; i < 2; i++) add_library_bytes(parts[i], bytes);
}

int64_t yk_comm_library_bytes(const yk_comm *const *groups, int n)
{
    int64_t all = 0;
    for (int i = 0; i < n; i++) add_library_bytes(groups[i], &all);
    return all > 0 ? YK_COMM_NCCL_BYTES + all : 0;
}

int yk_comm_index(const yk_comm *c)
{
    return c->index;
}

int yk_comm_size(const yk_comm *c)
{
    return c->size;
}

int yk_comm_rank(const yk_comm *c, int index)
{
    YK_CHECK(index >= 0 && index < c->size);
    return c->ranks[index];
}

yk_dtype yk_comm_wire_for(const yk_comm *c, yk_dtype dtype)
{
    return yk_dtype_bytes(c->o.wire) > yk_dtype_bytes(dtype) ? dtype : c->o.wire;
}

yk_comm_counts yk_comm_get_counts(const yk_comm *c)
{
    int64_t flushed = c->backend->flushed ? c->backend->flushed(c) : atomic_load(&c->n_flushed);
    return (yk_comm_counts){
        .bytes_sent = atomic_load(&c->bytes_sent),
        .n_collectives = atomic_load(&c->n_collectives),
        .n_flushed = flushed,
        .busy_s = 1e-9 * (double)atomic_load(&c->busy_ns),
    };
}

yk_status yk_comm_agree_scale(yk_comm *c, const yk_reduction *r, yk_stream *stream,
                              yk_wire_scale *scale_out)
{
    yk_comm *by = c->o.whole ? c->o.whole : c;
    if (r->wire != YK_F16 || r->packed) {
        *scale_out = (yk_wire_scale){0};
        return YK_OK;
    }
    if (by->n_local <= c->n_local) { /* else of sums that the node formed at this scale */
        YK_TRY(yk_greatest(stream, &(yk_greatest_args){.greatest = by->greatest,
                                                       .x = r->full,
                                                       .n = c->size * r->count,
                                                       .dtype = r->dtype}));
        YK_TRY(by->backend->greatest(by, by->greatest, stream));
    }
    *scale_out = (yk_wire_scale){by->greatest, by->size};
    return YK_OK;
}

/* ---- collectives -------------------------------------------------------------------------- */

/* A group that failed stays failed, and says no more about it. */
#define REQUIRE_WHOLE(c)                                                                           \
    do {                                                                                           \
        if (atomic_load(&(c)->failed)) return (yk_status)atomic_load(&(c)->failed);                \
    } while (0)

static bool is_float(yk_dtype t)
{
    return t == YK_F32 || t == YK_BF16 || t == YK_F16;
}

static const char *part(const void *full, int index, int64_t bytes)
{
    return (const char *)full + index * bytes;
}

/* True when `shard` is the group's own part of `full`, or not in `full` at all. */
static bool is_own_or_outside(const yk_comm *c, const void *shard, const void *full, int64_t bytes)
{
    const char *s = shard;
    return s == part(full, c->index, bytes) || s + bytes <= (const char *)full ||
           s >= part(full, c->size, bytes);
}

/* Return what the backend says to `call`, which is a span where the stream is recorded. */
#define ENQUEUE(stream, name, bytes, call)                                                         \
    do {                                                                                           \
        int span_ = yk_span_begin((stream), (name), (double)(bytes), 0);                           \
        yk_status status_ = (call);                                                                \
        yk_span_end((stream), span_);                                                              \
        return status_;                                                                            \
    } while (0)

yk_status yk_comm_all_gather(yk_comm *c, void *full, const void *shard, int64_t count,
                             yk_dtype dtype, yk_stream *stream)
{
    int64_t bytes = count * yk_dtype_bytes(dtype);
    REQUIRE_WHOLE(c);
    REQUIRE(count >= 0);
    if (count == 0) return YK_OK;
    REQUIRE(full && shard && is_own_or_outside(c, shard, full, bytes));
    ENQUEUE(stream, "all_gather", c->size * bytes,
            c->backend->all_gather(c, full, shard, bytes, stream));
}

static yk_status reduce(yk_comm *c, void *full, void *shard, int64_t count, yk_dtype dtype,
                        bool accumulate, yk_stream *stream)
{
    yk_reduction r = {.full = full,
                      .shard = shard,
                      .count = count,
                      .dtype = dtype,
                      .wire = yk_comm_wire_for(c, dtype),
                      .accumulate = accumulate};
    ENQUEUE(stream, shard ? "reduce_scatter" : "all_reduce",
            c->size * count * yk_dtype_bytes(dtype), c->backend->reduce(c, &r, stream));
}

yk_status yk_comm_reduce_scatter(yk_comm *c, void *shard, void *full, int64_t count, yk_dtype dtype,
                                 bool accumulate, yk_stream *stream)
{
    int64_t bytes = count * yk_dtype_bytes(dtype);
    REQUIRE_WHOLE(c);
    REQUIRE(count >= 0 && is_float(dtype));
    REQUIRE(count <= c->o.max_count / c->size);
    if (count == 0) return YK_OK;
    REQUIRE(full && shard && is_own_or_outside(c, shard, full, bytes));
    REQUIRE(!accumulate || shard != part(full, c->index, bytes));
    return reduce(c, full, shard, count, dtype, accumulate, stream);
}

yk_status yk_comm_all_reduce(yk_comm *c, void *buffer, int64_t count, yk_dtype dtype,
                             yk_stream *stream)
{
    REQUIRE_WHOLE(c);
    REQUIRE(count >= 0 && is_float(dtype));
    REQUIRE(count <= c->o.max_count / c->size);
    if (count == 0 || c->size == 1) return YK_OK;
    REQUIRE(buffer);
    return reduce(c, buffer, NULL, count, dtype, false, stream);
}

yk_status yk_comm_all_reduce_values(yk_comm *c, yk_step_values *values, yk_stream *stream)
{
    REQUIRE_WHOLE(c);
    REQUIRE(values);
    if (c->size == 1) return YK_OK;
    ENQUEUE(stream, "all_reduce_values", sizeof *values,
            c->backend->all_reduce_values(c, values, stream));
}

yk_status yk_comm_broadcast(yk_comm *c, void *buffer, int64_t bytes, int root, yk_stream *stream)
{
    REQUIRE_WHOLE(c);
    REQUIRE(bytes >= 0 && root >= 0 && root < c->size);
    if (bytes == 0 || c->size == 1) return YK_OK;
    REQUIRE(buffer);
    ENQUEUE(stream, "broadcast", bytes, c->backend->broadcast(c, buffer, bytes, root, stream));
}

yk_status yk_comm_barrier(yk_comm *c, yk_stream *stream)
{
    REQUIRE_WHOLE(c);
    if (c->size == 1) return YK_OK;
    ENQUEUE(stream, "barrier", 0, c->backend->barrier(c, stream));
}
