/* comm/comm_dry.c - any number of described ranks, as a cost on a stream's clock.
 *
 * Sends what the backend sends that the group stands for. With MPI and NCCL a rank sends to its peers
 * in turn at each level of the group, and a message costs the link's latency and its bytes over the
 * link's rate. Through host memory a rank's copy engines bring what the others have for it, at the rate
 * of its own link with both ways in use; what it brings there itself is no more and goes on beside. What a
 * rank does to the bytes itself, packing and adding, goes on meanwhile; the longer of the two counts.
 * Ranks are taken to arrive together. A GPU's link carries one collective of a group after the other:
 * gathers and reductions that run beside each other share it.
 */
#include "comm/backend.h"
#include "runtime/base/arith.h"

/* Through host memory: until the first chunk is there, by way of words and copies on both sides; and what
 * a copy and its words cost beside its bytes. */
#define HOSTMEM_START_S 3e-5
#define HOSTMEM_CHUNK_S 3e-6

/* Of the link's rate, what is left where all ranks use both ways of theirs: 43 of 49.5 GB/s on two H200. */
#define HOSTMEM_SHARE 0.87

/* Messages and bytes that a rank sends at each level. */
typedef struct traffic {
    double local_messages, local_bytes, across_messages, across_bytes;
    double brought; /* to host memory that the ranks of a node share: of hostmem */
} traffic;

static bool by_hostmem(const yk_comm *c)
{
    return c->stands_for == &yk_comm_hostmem;
}

static double link_seconds(const yk_comm *c, const traffic *t)
{
    const yk_topology *l = &c->topology;
    if (by_hostmem(c))
        return HOSTMEM_START_S + t->local_messages * HOSTMEM_CHUNK_S +
               t->local_bytes / (HOSTMEM_SHARE * yk_device_get_spec(c->o.device)->host_link_rate);
    return t->local_messages * l->node_latency_s + t->local_bytes / l->node_rate +
           t->across_messages * l->across_latency_s +
           t->across_bytes * c->node_ranks / l->across_rate;
}

/* Until the group's link is free for a stream: it carries what was issued before. */
static double wait_for_link(yk_comm *c, const yk_stream *stream, double busy_s)
{
    double now = yk_stream_now(stream), wait = c->link_free_s - now;
    if (yk_device_get_spec(c->o.device)->kind != YK_DEVICE_CUDA || wait < 0) wait = 0;
    c->link_free_s = now + wait + busy_s;
    return wait;
}

/* Over the link to the host, that copies take, too: by NCCL, what is sent and as much that is received. */
static yk_status charge_link(const yk_comm *c, yk_stream *stream, const traffic *t, double busy_s,
                             double memory_bytes)
{
    bool past = !by_hostmem(c) && yk_device_get_spec(c->o.device)->peer_rate > 0;
    double in = past ? 0 : t->local_bytes, out = by_hostmem(c) ? t->brought : in;
    return yk_stream_charge_link(stream, busy_s, memory_bytes, in, out);
}

static yk_status charge(yk_comm *c, yk_stream *stream, const traffic *t, double memory_bytes)
{
    double links = link_seconds(c, t);
    double memory = memory_bytes / yk_device_get_spec(c->o.device)->memory_rate;
    double before = yk_stream_now(stream), busy = links > memory ? links : memory;
    double wait = wait_for_link(c, stream, busy);
    if (wait > 0) YK_TRY(yk_stream_charge(stream, wait, 0));
    YK_TRY(charge_link(c, stream, t, busy, memory_bytes));
    atomic_fetch_add(&c->bytes_sent, (int64_t)(t->local_bytes + t->across_bytes));
    atomic_fetch_add(&c->n_collectives, 1);
    atomic_fetch_add(&c->busy_ns, (int64_t)((yk_stream_now(stream) - before) * 1e9));
    return YK_OK;
}

/* A part of `bytes` bytes to all: across nodes first, then what came from there to the node. */
static traffic gather_traffic(const yk_comm *c, double bytes)
{
    return (traffic){
        .local_messages = c->n_local - 1,
        .local_bytes = (double)(c->n_local - 1) * c->n_nodes * bytes,
        .across_messages = c->n_nodes - 1,
        .across_bytes = (c->n_nodes - 1) * bytes,
        .brought = c->n_nodes * bytes,
    };
}

/* The same parts the other way round, chunk by chunk. */
static traffic scatter_traffic(const yk_comm *c, int64_t count, yk_dtype wire)
{
    traffic t = gather_traffic(c, (double)count * (double)yk_dtype_bytes(wire));
    int64_t chunk = by_hostmem(c) ? yk_comm_hostmem_chunk(c, count, wire) : c->chunk;
    double n_chunks = chunk > 0 ? (double)yk_div_up(count, chunk) : 1;
    t.brought = t.local_bytes;
    t.local_messages *= n_chunks * c->n_nodes;
    t.across_messages *= n_chunks;
    return t;
}

static yk_status dry_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                                yk_stream *stream)
{
    (void)full, (void)shard;
    traffic t = gather_traffic(c, (double)bytes);
    if (by_hostmem(c))
        t.local_messages *= (double)yk_div_up(bytes, yk_comm_hostmem_gather_chunk(c, bytes));
    return charge(c, stream, &t, (double)bytes * c->size);
}

static double levels_of_tree(int n)
{
    double levels = 0;
    for (int reach = 1; reach < n; reach *= 2) levels++;
    return levels;
}

/* A few bytes to and from everybody, up and down a tree. */
static void add_round(const yk_comm *c, traffic *t)
{
    t->local_messages += 2 * levels_of_tree(c->n_local);
    t->across_messages += 2 * levels_of_tree(c->n_nodes);
}

/* Memory: the buffer is read, what travels is written and read at either end, the sum is written. */
static yk_status dry_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream)
{
    double n = (double)c->size * (double)r->count;
    double element = (double)yk_dtype_bytes(r->dtype), wire = (double)yk_dtype_bytes(r->wire);
    double memory = n * (element + 3 * wire) + (double)r->count * element;
    traffic t = scatter_traffic(c, r->count, r->wire);
    if (r->wire == YK_F16 && !r->packed) {
        if (by_hostmem(c))
            t.local_messages += HOSTMEM_START_S / HOSTMEM_CHUNK_S;
        else
            add_round(c, &t); /* the scale */
        memory += n * element;
    }
    if (!r->shard) {
        traffic back = gather_traffic(c, (double)r->count * wire);
        t.local_messages += back.local_messages;
        t.local_bytes += back.local_bytes;
        t.brought += back.brought;
        t.across_messages += back.across_messages;
        t.across_bytes += back.across_bytes;
        memory += n * (element + wire);
    }
    return charge(c, stream, &t, memory);
}

/* Through host memory: from it all at once. */
static yk_status charge_round(yk_comm *c, yk_stream *stream)
{
    traffic t = {0};
    if (!by_hostmem(c)) add_round(c, &t);
    return charge(c, stream, &t, 0);
}

static yk_status dry_all_reduce_values(yk_comm *c, yk_step_values *values, yk_stream *stream)
{
    (void)values;
    return charge_round(c, stream);
}

static yk_status dry_barrier(yk_comm *c, yk_stream *stream)
{
    return charge_round(c, stream);
}

/* As rank 0 of a binomial tree, which sends or receives at each of its levels. */
static yk_status dry_broadcast(yk_comm *c, void *buffer, int64_t bytes, int root, yk_stream *stream)
{
    (void)buffer, (void)root;
    if (by_hostmem(c)) { /* written once and read by all, chunk behind chunk */
        double chunk = (double)yk_comm_hostmem_gather_chunk(c, bytes);
        traffic t = {.local_messages = (double)bytes / chunk + 1, .local_bytes = (double)bytes};
        return charge(c, stream, &t, (double)bytes);
    }
    double local = levels_of_tree(c->n_local), across = levels_of_tree(c->size) - local;
    traffic t = {.local_messages = local,
                 .local_bytes = local * (double)bytes,
                 .across_messages = across,
                 .across_bytes = across * (double)bytes};
    return charge(c, stream, &t, (double)bytes);
}

/* ---- a shelf ------------------------------------------------------------------------------ */

/* An address that nobody may read. */
static yk_status dry_shelve(yk_comm *c)
{
    c->shelf->mine = (char *)((uintptr_t)1 << 46);
    return YK_OK;
}

/* A copy to or from this rank's own host memory. */
static yk_status charge_own(int64_t bytes, bool to_host, yk_stream *stream)
{
    double b = (double)bytes;
    return yk_stream_charge_link(stream, 0, b, to_host ? 0 : b, to_host ? b : 0);
}

static yk_status dry_put(yk_comm *c, int item, const void *data, yk_stream *stream)
{
    return data ? charge_own(c->shelf->items[item].bytes, true, stream) : YK_OK;
}

static yk_status dry_take(yk_comm *c, int item, void *full, const void *own, yk_stream *stream)
{
    (void)full;
    const yk_shelf_item *it = &c->shelf->items[item];
    traffic t = {.local_messages = (double)(c->size - 1) * yk_shelf_n_pieces(it),
                 .local_bytes = (double)(c->size - 1) * (double)it->bytes};
    if (!own) YK_TRY(charge_own(it->bytes, false, stream));
    return charge(c, stream, &t, t.local_bytes);
}

const yk_comm_backend yk_comm_dry = {
    .name = "dry",
    .all_gather = dry_all_gather,
    .reduce = dry_reduce,
    .all_reduce_values = dry_all_reduce_values,
    .broadcast = dry_broadcast,
    .barrier = dry_barrier,
    .shelve = dry_shelve,
    .put = dry_put,
    .take = dry_take,
};
