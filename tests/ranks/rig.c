/* tests/ranks/rig.c - joining, opening, and saying where an expectation failed. */
#include "tests/ranks/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rank_fail(yk_world *world, const char *file, int line, const char *condition)
{
    fprintf(stderr, "FAILED on rank %d: %s:%d: %s\n", world ? yk_world_rank(world) : -1, file, line,
            condition);
    yk_world_abort(world, 1);
}

/* YK_RANK_DEVICE=cuda: ranks take turns through the GPUs that there are. */
static yk_status open_device(rank_rig *r)
{
    const char *name = getenv("YK_RANK_DEVICE");
    if (!name || strcmp(name, "cuda") != 0) return yk_device_open_cpu(1, &r->device);
    int n = yk_device_count_cuda();
    return yk_device_open_cuda(yk_world_local_rank(r->world) % (n > 0 ? n : 1), &r->device);
}

void rank_open(rank_rig *r)
{
    *r = (rank_rig){0};
    EXPECT(r, yk_world_join(&r->world) == YK_OK);
    r->rank = yk_world_rank(r->world);
    r->size = yk_world_size(r->world);
    EXPECT(r, open_device(r) == YK_OK);
    EXPECT(r, yk_stream_create(r->device, YK_STREAM_COMPUTE, "compute", &r->compute) == YK_OK);
    EXPECT(r, yk_stream_create(r->device, YK_STREAM_TRANSFER, "gather", &r->gather) == YK_OK);
    EXPECT(r, yk_stream_create(r->device, YK_STREAM_TRANSFER, "reduce", &r->reduce) == YK_OK);
}

void rank_close(rank_rig *r)
{
    yk_stream_destroy(r->compute);
    yk_stream_destroy(r->gather);
    yk_stream_destroy(r->reduce);
    yk_device_close(r->device);
    yk_world_leave(r->world);
}

static yk_comm_choice choice_in(const char *variable)
{
    const char *name = getenv(variable);
    if (name && strcmp(name, "hostmem") == 0) return YK_COMM_HOSTMEM;
    return name && strcmp(name, "nccl") == 0 ? YK_COMM_NCCL : YK_COMM_AUTO;
}

yk_comm_choice rank_backend(void)
{
    return choice_in("YK_RANK_BACKEND");
}

yk_comm_choice rank_gathers(void)
{
    return choice_in("YK_RANK_GATHERS");
}

void rank_double_chunks(rank_rig *r, int in_gathers, int in_sums)
{
    r->lengths = (yk_race){.n_rows = 2,
                           .rows = {{.kind = YK_RACE_GATHER, .count = 1, .doublings = in_gathers},
                                    {.kind = YK_RACE_SCATTER, .count = 1, .doublings = in_sums}}};
}

yk_race rank_race(const rank_rig *r, yk_race_kind kind, int64_t bytes)
{
    bool gpu = yk_device_get_kind(r->device) == YK_DEVICE_CUDA;
    int64_t count = bytes / 2 / (128 * r->size) * (128 * r->size);
    yk_race race = {.backends = {gpu ? YK_COMM_NCCL : YK_COMM_MPI, YK_COMM_HOSTMEM},
                    .n_backends = 2,
                    .axis = YK_AXIS_WORLD,
                    .tries_lengths = true,
                    .wire = YK_BF16};
    race.rows[race.n_rows++] =
        (yk_race_row){.kind = kind, .dtype = YK_BF16, .count = count, .calls = 2};
    if (kind != YK_RACE_ALL_REDUCE)
        race.rows[race.n_rows++] =
            (yk_race_row){.kind = YK_RACE_GATHER, .dtype = YK_BF16, .count = count, .calls = 1};
    return race;
}

void rank_expect_race(rank_rig *r, const yk_race *race)
{
    yk_race all[16], judged = *race;
    EXPECT(r, r->size <= 16);
    for (int k = 0; k < race->n_rows; k++)
        for (int i = 0; i < race->n_backends; i++) EXPECT(r, race->rows[k].seconds[i] > 0);
    yk_race_judge(&judged);
    EXPECT(r, judged.sums == race->sums && judged.gathers == race->gathers);
    EXPECT(r, yk_world_gather(r->world, race, sizeof *race, all) == YK_OK);
    for (int i = 0; i < r->size; i++) {
        EXPECT(r, all[i].sums == race->sums && all[i].gathers == race->gathers);
        EXPECT(r, all[i].remembered == race->remembered && all[i].n_rows == race->n_rows);
        for (int k = 0; k < race->n_rows; k++) {
            EXPECT(r, memcmp(all[i].rows[k].seconds, race->rows[k].seconds,
                             sizeof race->rows[k].seconds) == 0);
            EXPECT(r, all[i].rows[k].doublings == race->rows[k].doublings);
        }
    }
}

static rank_group open_group(rank_rig *r, rank_group g, yk_comm *whole, int64_t max_count,
                             double timeout_s)
{
    bool cpu = yk_device_get_kind(r->device) == YK_DEVICE_CPU;
    EXPECT(r,
           yk_arena_create(r->device, "wire buffers", YK_MEMORY_DEVICE,
                           (cpu ? 64 : 192) * (int64_t)1048576, cpu ? 256 : 0, &g.arena) == YK_OK);
    yk_comm_options o = {.world = r->world,
                         .device = r->device,
                         .backend = rank_backend(),
                         .gathers = rank_gathers(),
                         .axis = g.axis,
                         .whole = whole,
                         .reduce = g.reduce,
                         .wire = g.wire,
                         .max_count = max_count,
                         .staging = g.arena,
                         .race = &r->lengths,
                         .timeout_s = timeout_s};
    EXPECT(r, yk_comm_create(&o, &g.comm) == YK_OK);
    return g;
}

rank_group rank_group_open(rank_rig *r, yk_axis axis, yk_reduce_choice reduce, yk_dtype wire,
                           int64_t max_count, double timeout_s)
{
    rank_group g = {.axis = axis, .reduce = reduce, .wire = wire};
    return open_group(r, g, NULL, max_count, timeout_s);
}

rank_group rank_group_open_part(rank_rig *r, yk_axis axis, const rank_group *whole,
                                int64_t max_count)
{
    rank_group g = {.axis = axis, .reduce = whole->reduce, .wire = whole->wire};
    return open_group(r, g, whole->comm, max_count, 30);
}

void rank_group_close(rank_group *g)
{
    yk_comm_destroy(g->comm);
    yk_arena_destroy(g->arena);
}
