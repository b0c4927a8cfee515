/* engine/carrier.c - choosing between nccl and hostmem. */
#include "engine/carrier.h"

#include <stdio.h>
#include <string.h>

#include "engine/links.h"
#include "runtime/base/arith.h"

/* A buffer of fewer bytes says little of a link, and of more takes long. */
#define RACE_MIN ((int64_t)1 << 20)
#define RACE_MAX ((int64_t)256 << 20)

static const yk_comm_choice racers[YK_RACE_MAX] = {YK_COMM_NCCL, YK_COMM_HOSTMEM};

/* On all ranks or on none. */
static yk_status all_have(yk_world *world, bool mine, bool *all_out)
{
    int64_t least;
    YK_TRY(yk_world_min(world, mine, &least));
    *all_out = least != 0;
    return YK_OK;
}

/* What most collectives carry: the parameters of a block. */
static int64_t block_bytes(const yk_model_shape *shape, yk_dtype wire)
{
    yk_model_shape longer = *shape;
    longer.layers++;
    int64_t count = yk_model_shape_count(&longer) - yk_model_shape_count(shape);
    return yk_max(RACE_MIN, yk_min(RACE_MAX, count * yk_dtype_bytes(wire)));
}

static yk_dtype wire_of(const yk_config *config)
{
    return config->comm.wire == YK_AUTO ? config->precision.compute : (yk_dtype)config->comm.wire;
}

static void take_winners(const yk_config *config, const yk_race *r, yk_config *chosen)
{
    chosen->comm.backend = r->backends[r->sums];
    if (config->comm.gathers == YK_COMM_AUTO) chosen->comm.gathers = r->backends[r->gathers];
}

static yk_status race(const yk_config *config, const yk_model_shape *shape, yk_world *world,
                      yk_device *device, yk_config *chosen, yk_race *race_out)
{
    yk_dtype wire = wire_of(config);
    YK_TRY(yk_links_race(config, world, device, racers, YK_RACE_MAX, wire, block_bytes(shape, wire),
                         race_out));
    take_winners(config, race_out, chosen);
    return YK_OK;
}

/* NCCL refuses two ranks on one GPU, in words that do not help. */
static yk_status check_sharing(const yk_config *config, const yk_world *world)
{
    bool sums = config->comm.backend == YK_COMM_NCCL,
         gathers = config->comm.gathers == YK_COMM_NCCL;
    bool shares = world && config->launch.ranks_per_gpu > 1 &&
                  yk_world_local_size(world) > yk_device_count_cuda();
    if ((!sums && !gathers) || !shares) return YK_OK;
    return yk_fail(YK_EINVAL, sums ? "comm.backend" : "comm.gathers",
                   "nccl does not serve ranks that share a GPU; take auto or hostmem");
}

yk_status yk_carrier_choose(const yk_config *config, const yk_model_shape *shape, yk_world *world,
                            yk_device *device, yk_config *chosen, yk_race *race_out)
{
    bool reaches, has_nccl;
    bool gpu = yk_device_get_kind(device) == YK_DEVICE_CUDA;
    *race_out = (yk_race){.n_backends = 0};
    if (gpu) YK_TRY(check_sharing(config, world));
    if (config->comm.backend != YK_COMM_AUTO || !gpu || !world || yk_world_local_size(world) == 1)
        return YK_OK;
    YK_TRY(all_have(world, yk_device_reaches_peers(device), &reaches));
    YK_TRY(all_have(world, yk_comm_nccl_version() > 0, &has_nccl));
    if (config->launch.ranks_per_gpu > 1 || !has_nccl)
        chosen->comm.backend = YK_COMM_HOSTMEM;
    else if (!reaches)
        return race(config, shape, world, device, chosen, race_out);
    return YK_OK;
}

/* ---- of described GPUs -------------------------------------------------------------------- */

/* A gather and a sum over one backend, by the clock of a dry device. */
static yk_status run_dry(yk_device *device, const yk_topology *topology, yk_dtype wire, yk_race *r,
                         int i, yk_stream *stream, yk_arena *staging)
{
    yk_comm *comm;
    void *buffer;
    int64_t count = r->bytes / yk_dtype_bytes(wire) / topology->ranks / 128 * 128;
    YK_TRY(yk_arena_push(staging, "race", r->bytes, &buffer));
    YK_TRY(yk_comm_create(&(yk_comm_options){.device = device,
                                             .topology = topology,
                                             .backend = r->backends[i],
                                             .axis = YK_AXIS_WORLD,
                                             .reduce = YK_REDUCE_EXACT,
                                             .wire = wire,
                                             .max_count = r->bytes / yk_dtype_bytes(wire),
                                             .staging = staging},
                          &comm));
    double begin_s = yk_stream_now(stream);
    yk_status status = yk_comm_all_gather(comm, buffer, buffer, count, wire, stream);
    r->gather_s[i] = yk_stream_now(stream) - begin_s;
    if (status == YK_OK)
        status = yk_comm_reduce_scatter(comm, buffer, buffer, count, wire, false, stream);
    r->reduce_s[i] = yk_stream_now(stream) - begin_s - r->gather_s[i];
    yk_comm_destroy(comm);
    return status;
}

static yk_status race_dry(const yk_device_spec *spec, const yk_topology *topology, yk_dtype wire,
                          yk_race *r)
{
    yk_device *device;
    yk_stream *stream = NULL;
    yk_arena *staging = NULL;
    YK_TRY(yk_device_open_dry(spec, &device));
    yk_status status = yk_stream_create(device, YK_STREAM_TRANSFER, "race", &stream);
    if (status == YK_OK)
        status = yk_arena_create(device, "race", YK_MEMORY_DEVICE, YK_ARENA_MEASURE, 0, &staging);
    for (int i = 0; i < r->n_backends && status == YK_OK; i++)
        status = run_dry(device, topology, wire, r, i, stream, staging);
    yk_arena_destroy(staging);
    yk_stream_destroy(stream);
    yk_device_close(device);
    return status;
}

yk_status yk_carrier_plan(const yk_config *config, const yk_model_shape *shape,
                          const yk_device_spec *spec, const yk_topology *topology,
                          yk_config *chosen)
{
    bool meet = topology && topology->node_size > 1 && spec->kind == YK_DEVICE_CUDA;
    if (config->comm.backend != YK_COMM_AUTO || !meet) return YK_OK;
    if (config->launch.ranks_per_gpu > 1) {
        chosen->comm.backend = YK_COMM_HOSTMEM;
        return YK_OK;
    }
    if (spec->peer_rate > 0) return YK_OK;
    yk_dtype wire = wire_of(config);
    yk_race r = {.n_backends = YK_RACE_MAX};
    memcpy(r.backends, racers, sizeof r.backends);
    int64_t unit = 128 * yk_dtype_bytes(wire) * topology->ranks;
    r.bytes = yk_round_up(block_bytes(shape, wire), unit);
    YK_TRY(race_dry(spec, topology, wire, &r));
    yk_race_judge(&r);
    take_winners(config, &r, chosen);
    return YK_OK;
}

void yk_carrier_write(const yk_race *r, char *text, size_t room)
{
    bool one = r->gathers == r->sums;
    int n = snprintf(text, room, "%s%s%s; %s", yk_race_name(r, r->sums), one ? "" : ", gathers ",
                     one ? "" : yk_race_name(r, r->gathers),
                     r->remembered ? "an earlier run measured:" : "measured:");
    for (int i = 0; i < r->n_backends && n >= 0 && (size_t)n < room; i++)
        n += snprintf(text + n, room - (size_t)n,
                      "%s %s gathers %lld MiB in %.3g ms and sums in %.3g", i ? "," : "",
                      yk_race_name(r, i), (long long)(r->bytes >> 20), 1e3 * r->gather_s[i],
                      1e3 * r->reduce_s[i]);
}
