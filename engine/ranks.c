/* engine/ranks.c - making groups from a configuration. */
#include "engine/ranks.h"

#include <stdio.h>

#include "runtime/base/arith.h"
#include "runtime/machine/uplink.h"

/* Usual rates: shared memory between processes of one machine; of a network's and of NVLink's nominal rate
 * what is left for the bytes of collectives, which was not measured here. */
#define CPU_NODE_RATE    4e9
#define CPU_NODE_LATENCY 2e-5
#define NETWORK_SHARE    0.88
#define NETWORK_LATENCY  5e-5
#define GPU_NODE_LATENCY 2e-5
#define NCCL_SHARE       0.48 /* of a link with both ways in use: 23.5 of 49 GB/s, without peer-to-peer */

#define PEER_SHARE 0.8

/* What a rank of a node sends to others by NCCL or MPI, while it receives as much. */
static double node_rate(const yk_device_spec *spec)
{
    if (spec->kind != YK_DEVICE_CUDA) return CPU_NODE_RATE;
    return spec->peer_rate > 0 ? PEER_SHARE * spec->peer_rate : NCCL_SHARE * spec->host_link_rate;
}

void yk_ranks_set_network(yk_topology *topology, double gbit, const char *source)
{
    topology->across_rate = NETWORK_SHARE * gbit * 1e9 / 8;
    snprintf(topology->network, sizeof topology->network, "%s", source);
}

double yk_ranks_network_gbit(const yk_topology *topology)
{
    return topology->across_rate / (NETWORK_SHARE * 1e9 / 8);
}

yk_topology yk_ranks_topology(const yk_device_spec *spec, int ranks, int node_size)
{
    bool gpu = spec->kind == YK_DEVICE_CUDA;
    yk_topology topology = {
        .ranks = ranks,
        .node_size = node_size,
        .node_rate = node_rate(spec),
        .node_latency_s = gpu ? GPU_NODE_LATENCY : CPU_NODE_LATENCY,
        .across_latency_s = NETWORK_LATENCY,
    };
    yk_ranks_set_network(&topology, YK_RANKS_NETWORK_GBIT, "");
    return topology;
}

/* What the slowest node's device tells; Mbit/s, as ranks agree on whole numbers. */
static yk_status agree_on_uplink(yk_world *world, int node_size, yk_uplink *uplink_out)
{
    yk_uplink u = yk_uplink_read("", node_size);
    int64_t mine = (int64_t)(1e3 * u.gbit), least = mine, first = 0;
    if (world) {
        YK_TRY(yk_world_min(world, mine, &least));
        YK_TRY(yk_world_min(world, mine == least ? yk_world_rank(world) : INT64_MAX, &first));
        YK_TRY(yk_world_broadcast(world, &u, sizeof u, (int)first));
    }
    *uplink_out = u;
    return YK_OK;
}

yk_status yk_ranks_find_network(const yk_config *config, yk_world *world, yk_topology *topology)
{
    yk_uplink u;
    if (config->comm.network != YK_AUTO) {
        yk_ranks_set_network(topology, (double)config->comm.network, "comm.network");
        return YK_OK;
    }
    YK_TRY(agree_on_uplink(world, topology->node_size, &u));
    if (u.gbit > 0) yk_ranks_set_network(topology, u.gbit, u.name);
    return YK_OK;
}

static int n_nodes(const yk_ranks_options *o)
{
    if (yk_device_get_kind(o->device) == YK_DEVICE_DRY)
        return o->topology ? o->topology->ranks / o->topology->node_size : 1;
    return o->world ? yk_world_n_nodes(o->world) : 1;
}

static bool shares_gpu(const yk_ranks_options *o)
{
    bool gpu = yk_device_get_spec(o->device)->kind == YK_DEVICE_CUDA;
    return gpu && o->config->launch.ranks_per_gpu > 1;
}

/* NCCL refuses two ranks on one GPU. */
static yk_comm_choice backend_of(const yk_ranks_options *o)
{
    yk_comm_choice choice = o->config->comm.backend;
    return choice == YK_COMM_AUTO && shares_gpu(o) ? YK_COMM_HOSTMEM : choice;
}

static yk_status create_group(const yk_ranks_options *o, yk_axis axis, yk_comm *whole,
                              int64_t max_count, yk_comm **comm_out)
{
    const yk_config *c = o->config;
    yk_dtype wire = c->comm.wire == YK_AUTO ? o->store->grads : (yk_dtype)c->comm.wire;
    return yk_comm_create(&(yk_comm_options){.world = o->world,
                                             .device = o->device,
                                             .topology = o->topology,
                                             .backend = backend_of(o),
                                             .gathers = c->comm.gathers,
                                             .axis = axis,
                                             .whole = whole,
                                             .shares_gpu = shares_gpu(o),
                                             .reduce = c->comm.reduce,
                                             .wire = wire,
                                             .max_count = max_count,
                                             .staging = o->staging,
                                             .race = o->race},
                          comm_out);
}

static yk_status create_groups(yk_ranks *r, const yk_ranks_options *o)
{
    int64_t largest = yk_store_largest_unit(o->store, r->size);
    YK_TRY(yk_stream_create(o->device, YK_STREAM_TRANSFER, "gather", &r->groups.gather));
    YK_TRY(yk_stream_create(o->device, YK_STREAM_TRANSFER, "reduce", &r->groups.reduce));
    YK_TRY(yk_stream_create(o->device, YK_STREAM_TRANSFER, "put", &r->groups.put));
    YK_TRY(create_group(o, YK_AXIS_WORLD, NULL, r->node_groups ? 0 : largest, &r->groups.all));
    r->groups.shard = r->groups.all;
    r->groups.world = o->world;
    if (!r->node_groups) return YK_OK;
    r->groups.shard = NULL;
    YK_TRY(create_group(o, YK_AXIS_NODE, r->groups.all, largest, &r->groups.shard));
    YK_TRY(create_group(o, YK_AXIS_ACROSS, r->groups.all, largest, &r->groups.replicate));
    yk_ranks_options alone = *o;
    alone.world = NULL;
    alone.topology = NULL;
    return create_group(&alone, YK_AXIS_WORLD, NULL, largest, &r->groups.alone);
}

yk_status yk_ranks_create(const yk_ranks_options *o, yk_ranks *ranks_out)
{
    yk_ranks r = {.size = o->size};
    if (r.size > 1 && o->world) r.rank = yk_world_rank(o->world);
    r.node_groups = r.size > 1 && n_nodes(o) > 1 && n_nodes(o) < r.size &&
                    o->config->parallel.shard == YK_SHARD_NODE && o->config->parallel.zero > 0;
    yk_status status = r.size > 1 ? create_groups(&r, o) : YK_OK;
    if (status != YK_OK) {
        yk_ranks_destroy(&r);
        return status;
    }
    *ranks_out = r;
    return YK_OK;
}

void yk_ranks_destroy(yk_ranks *r)
{
    yk_stream_destroy(r->groups.gather);
    yk_stream_destroy(r->groups.reduce);
    yk_stream_destroy(r->groups.put);
    yk_comm_destroy(r->groups.alone);
    yk_comm_destroy(r->groups.replicate);
    if (r->groups.shard != r->groups.all) yk_comm_destroy(r->groups.shard);
    yk_comm_destroy(r->groups.all);
    *r = (yk_ranks){0};
}

yk_comm_counts yk_ranks_counts(const yk_ranks *r)
{
    yk_comm_counts total = {0};
    const yk_comm *groups[] = {r->groups.all, r->groups.replicate,
                               r->groups.shard == r->groups.all ? NULL : r->groups.shard};
    for (int i = 0; i < 3; i++) {
        if (!groups[i]) continue;
        yk_comm_counts c = yk_comm_get_counts(groups[i]);
        total.bytes_sent += c.bytes_sent;
        total.n_collectives += c.n_collectives;
        total.n_flushed += c.n_flushed;
        total.busy_s += c.busy_s;
    }
    return total;
}

int64_t yk_ranks_library_bytes(const yk_ranks *r)
{
    const yk_comm *groups[] = {r->groups.all, r->groups.replicate,
                               r->groups.shard == r->groups.all ? NULL : r->groups.shard};
    return yk_comm_library_bytes(groups, 3);
}

int64_t yk_ranks_shared_bytes(const yk_ranks *r)
{
    int64_t total = 0;
    const yk_comm *groups[] = {r->groups.all, r->groups.replicate,
                               r->groups.shard == r->groups.all ? NULL : r->groups.shard};
    for (int i = 0; i < 3; i++)
        if (groups[i]) total += yk_comm_shared_bytes(groups[i]);
    return total;
}
