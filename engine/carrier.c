/* engine/carrier.c - choosing between nccl and hostmem, and how long the chunks of hostmem are. */
#include "engine/carrier.h"

#include <stdlib.h>
#include <string.h>

#include "engine/links.h"
#include "runtime/base/arith.h"

/* A buffer of more bytes takes long, and as many times as long as it is longer. */
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

/* ---- what a step will do ------------------------------------------------------------------ */

static void add_row(yk_race *r, yk_race_kind kind, yk_dtype dtype, int64_t count, double calls,
                    int ranks)
{
    int64_t most = yk_min(count, RACE_MAX / yk_dtype_bytes(dtype));
    r->rows[r->n_rows++] = (yk_race_row){.kind = kind,
                                         .dtype = dtype,
                                         .count = yk_round_up(most, 128 * (int64_t)ranks),
                                         .calls = calls * (double)count / (double)most};
}

/* Units of one size, `n` of them, whose parameters a micro-batch reads `n_reads` times. */
static void add_units(yk_race *r, const yk_config *c, int64_t count, double n, int n_reads,
                      int ranks)
{
    yk_dtype compute = c->precision.compute;
    yk_dtype grads = c->precision.grads == YK_AUTO ? compute : (yk_dtype)c->precision.grads;
    bool replicated = c->parallel.zero == 0;
    bool fetched = c->parallel.zero == 3 || (c->memory.offload & YK_OFFLOAD_PARAMS);
    if (!replicated) add_row(r, YK_RACE_GATHER, compute, count, fetched ? n * n_reads : n, ranks);
    add_row(r, replicated ? YK_RACE_ALL_REDUCE : YK_RACE_SCATTER, grads, count, n, ranks);
    r->wire = c->comm.wire == YK_AUTO ? grads : (yk_dtype)c->comm.wire;
}

yk_race yk_carrier_race(const yk_config *config, const yk_model_shape *shape, int ranks)
{
    yk_model_shape bare = *shape;
    bare.layers = 0;
    int n_ends = shape->tied ? 1 : 2;
    int64_t ends = yk_model_shape_count(&bare);
    int64_t block = (yk_model_shape_count(shape) - ends) / shape->layers;
    bool by_node = config->parallel.shard == YK_SHARD_NODE && config->parallel.zero != 0;
    yk_race r = {.n_backends = YK_RACE_MAX,
                 .axis = by_node ? YK_AXIS_NODE : YK_AXIS_WORLD,
                 .shares_gpu = config->launch.ranks_per_gpu > 1,
                 .tries_lengths = config->tune != YK_TUNE_CHOICE_OFF,
                 .reduce = config->comm.reduce};
    memcpy(r.backends, racers, sizeof r.backends);
    add_units(&r, config, block, (double)shape->layers, 2, ranks);
    add_units(&r, config, ends / n_ends, n_ends, 1, ranks);
    return r;
}

static void take_winners(const yk_config *config, const yk_race *r, yk_config *chosen)
{
    chosen->comm.backend = r->backends[r->sums];
    if (config->comm.gathers == YK_COMM_AUTO) chosen->comm.gathers = r->backends[r->gathers];
}

/* ---- of GPUs that are here ---------------------------------------------------------------- */

static yk_status race(const yk_config *config, const yk_model_shape *shape, yk_world *world,
                      yk_device *device, yk_config *chosen, yk_race *race_out)
{
    yk_race r = yk_carrier_race(config, shape, yk_world_size(world));
    YK_TRY(yk_links_race(config, world, device, &r));
    take_winners(config, &r, chosen);
    *race_out = r;
    return YK_OK;
}

/* Which chunks are best where hostmem it is. */
static yk_status race_alone(const yk_config *config, const yk_model_shape *shape, yk_world *world,
                            yk_device *device, yk_race *race_out)
{
    if (config->tune == YK_TUNE_CHOICE_OFF) return YK_OK;
    yk_race r = yk_carrier_race(config, shape, yk_world_size(world));
    r.backends[0] = YK_COMM_HOSTMEM;
    r.n_backends = 1;
    YK_TRY(yk_links_race(config, world, device, &r));
    *race_out = r;
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
    bool reaches, has_nccl, gpu = yk_device_get_kind(device) == YK_DEVICE_CUDA;
    yk_comm_choice choice = config->comm.backend;
    *race_out = (yk_race){.n_backends = 0};
    if (gpu) YK_TRY(check_sharing(config, world));
    if (!gpu || !world || yk_world_local_size(world) == 1) return YK_OK;
    if (choice == YK_COMM_AUTO) {
        YK_TRY(all_have(world, yk_device_reaches_peers(device), &reaches));
        YK_TRY(all_have(world, yk_comm_nccl_version() > 0, &has_nccl));
        if (config->launch.ranks_per_gpu > 1 || !has_nccl)
            choice = YK_COMM_HOSTMEM;
        else if (!reaches)
            return race(config, shape, world, device, chosen, race_out);
    }
    chosen->comm.backend = choice;
    if (choice != YK_COMM_HOSTMEM || config->comm.gathers == YK_COMM_NCCL) return YK_OK;
    return race_alone(config, shape, world, device, race_out);
}

/* ---- of described GPUs -------------------------------------------------------------------- */

static yk_status call_dry(yk_comm *comm, const yk_race_row *row, void *buffer, yk_stream *stream)
{
    int64_t count = row->count / yk_comm_size(comm);
    if (row->kind == YK_RACE_GATHER)
        return yk_comm_all_gather(comm, buffer, buffer, count, row->dtype, stream);
    if (row->kind == YK_RACE_SCATTER)
        return yk_comm_reduce_scatter(comm, buffer, buffer, count, row->dtype, false, stream);
    return yk_comm_all_reduce(comm, buffer, count, row->dtype, stream);
}

/* All rows over one backend, by the clock of a dry device. */
static yk_status run_dry(yk_device *device, const yk_topology *topology, yk_race *r, int i,
                         yk_stream *stream, yk_arena *staging)
{
    yk_comm *comm;
    void *buffer;
    yk_status status = YK_OK;
    YK_TRY(yk_arena_push(staging, "race", yk_race_max_bytes(r), &buffer));
    YK_TRY(yk_comm_create(&(yk_comm_options){.device = device,
                                             .topology = topology,
                                             .backend = r->backends[i],
                                             .axis = r->axis,
                                             .reduce = r->reduce,
                                             .wire = r->wire,
                                             .max_count = yk_race_max_count(r),
                                             .staging = staging},
                          &comm));
    for (int k = 0; k < r->n_rows && status == YK_OK; k++) {
        double begin_s = yk_stream_now(stream);
        status = call_dry(comm, &r->rows[k], buffer, stream);
        r->rows[k].seconds[i] = yk_stream_now(stream) - begin_s;
    }
    yk_comm_destroy(comm);
    return status;
}

static yk_status race_dry(const yk_device_spec *spec, const yk_topology *topology, yk_race *r)
{
    yk_device *device;
    yk_stream *stream = NULL;
    yk_arena *staging = NULL;
    YK_TRY(yk_device_open_dry(spec, &device));
    yk_status status = yk_stream_create(device, YK_STREAM_TRANSFER, "race", &stream);
    if (status == YK_OK)
        status = yk_arena_create(device, "race", YK_MEMORY_DEVICE, YK_ARENA_MEASURE, 0, &staging);
    for (int i = 0; i < r->n_backends && status == YK_OK; i++)
        status = run_dry(device, topology, r, i, stream, staging);
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
    yk_race r = yk_carrier_race(config, shape, topology->ranks);
    YK_TRY(race_dry(spec, topology, &r));
    yk_race_judge(&r);
    take_winners(config, &r, chosen);
    return YK_OK;
}

/* ---- saying it ---------------------------------------------------------------------------- */

static void print_time(const yk_race *r, const yk_race_row *row, int i, FILE *out)
{
    int d = row->doublings;
    fprintf(out, "  %s %.3f ms", yk_race_name(r, i), 1e3 * row->seconds[i]);
    if (r->backends[i] == YK_COMM_HOSTMEM && d != 0)
        fprintf(out, " (chunks %s %d)", d > 0 ? "x" : "/", 1 << abs(d));
}

static void print_row(const yk_race *r, const yk_race_row *row, FILE *out)
{
    double mib = (double)(row->count * yk_dtype_bytes(row->dtype)) / 0x1p20;
    fprintf(out, "          %-14s %6.1f MiB %5.4g a step", yk_race_kind_name(row->kind), mib,
            row->calls);
    for (int i = 0; i < r->n_backends; i++) print_time(r, row, i, out);
    fprintf(out, "  -> %s\n", yk_race_name(r, row->kind == YK_RACE_GATHER ? r->gathers : r->sums));
}

void yk_carrier_print(const yk_race *r, FILE *out)
{
    bool one = r->gathers == r->sums;
    fprintf(out, "links     %s%s%s; %s\n", yk_race_name(r, r->sums), one ? "" : ", gathers ",
            one ? "" : yk_race_name(r, r->gathers),
            r->remembered ? "an earlier run measured:" : "measured:");
    for (int i = 0; i < r->n_rows; i++) print_row(r, &r->rows[i], out);
}
