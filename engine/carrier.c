/* engine/carrier.c - choosing between nccl and hostmem. */
#include "engine/carrier.h"

#include <stdio.h>

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

static yk_status race(const yk_config *config, const yk_model_shape *shape, yk_world *world,
                      yk_device *device, yk_config *chosen, yk_race *race_out)
{
    yk_dtype wire =
        config->comm.wire == YK_AUTO ? config->precision.compute : (yk_dtype)config->comm.wire;
    YK_TRY(yk_links_race(config, world, device, racers, YK_RACE_MAX, wire, block_bytes(shape, wire),
                         race_out));
    chosen->comm.backend = race_out->backends[race_out->sums];
    if (config->comm.gathers == YK_COMM_AUTO)
        chosen->comm.gathers = race_out->backends[race_out->gathers];
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
