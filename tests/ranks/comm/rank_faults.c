/* tests/ranks/comm/rank_faults.c - ranks that are late, and transfers beside work. Started by
 * test_faults.sh. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/ranks/rig.h"

/* Where in the group a rank is that the others wait for: the last. */
static bool is_late(const rank_rig *r)
{
    return r->rank == r->size - 1;
}

/* From a shelf on which this rank has put its part. */
static void take(rank_rig *r, yk_comm *comm, void *full)
{
    EXPECT(r, yk_comm_put(comm, 0, NULL, r->gather) == YK_OK);
    yk_comm_take(comm, 0, full, NULL, r->reduce);
}

/* The last rank sleeps instead of taking part. The others must fail within the deadline, stay failed, and
 * end the run themselves, with exit status 3. */
static void late(rank_rig *r, const char *what)
{
    enum { COUNT = 1000 };
    float buffer[8 * COUNT] = {0}, shard[COUNT];
    yk_step_values values = {0};
    rank_group g = rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, YK_F16, r->size * COUNT, 0.5);
    if (strcmp(what, "take") == 0)
        EXPECT(r, yk_comm_shelve(g.comm, &(int64_t){sizeof shard}, 1) == YK_OK);
    EXPECT(r, yk_comm_barrier(g.comm, r->reduce) == YK_OK);
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    if (is_late(r)) {
        sleep(30);
        rank_fail(r->world, __FILE__, __LINE__, "the others end the run");
    }
    double begin = yk_clock_s();
    yk_status (*synchronize)(yk_stream *) = yk_stream_synchronize;
    if (strcmp(what, "gather") == 0)
        yk_comm_all_gather(g.comm, buffer, shard, COUNT, YK_F32, r->reduce);
    else if (strcmp(what, "take") == 0)
        take(r, g.comm, buffer);
    else if (strcmp(what, "values") == 0)
        yk_comm_all_reduce_values(g.comm, &values, r->reduce);
    else if (strcmp(what, "broadcast") == 0)
        yk_comm_broadcast(g.comm, buffer, 1000, r->size - 1, r->reduce);
    else
        yk_comm_all_reduce(g.comm, buffer, COUNT, YK_F32, r->reduce);
    EXPECT(r, synchronize(r->reduce) == YK_ETIMEDOUT);
    double waited = yk_clock_s() - begin;
    EXPECT(r, waited >= 0.5 && waited < 3);
    EXPECT(r, yk_comm_barrier(g.comm, r->gather) == YK_ETIMEDOUT);
    EXPECT(r, yk_comm_all_reduce(g.comm, buffer, COUNT, YK_F32, r->gather) == YK_ETIMEDOUT);
    EXPECT(r, yk_world_barrier(r->world) == YK_ETIMEDOUT); /* nobody waits any more */
    rank_group_close(&g);
    if (strcmp(what, "exit") != 0) yk_world_abort(r->world, 3);
    rank_close(r);
    exit(3);
}

/* Likewise, in a call of the world. */
static void late_to_agree(rank_rig *r)
{
    int64_t least;
    yk_world_set_timeout(r->world, 0.5);
    EXPECT(r, yk_world_barrier(r->world) == YK_OK);
    if (is_late(r)) {
        sleep(30);
        rank_fail(r->world, __FILE__, __LINE__, "the others end the run");
    }
    double begin = yk_clock_s();
    EXPECT(r, yk_world_min(r->world, 1, &least) == YK_ETIMEDOUT);
    EXPECT(r, yk_clock_s() - begin < 3);
    EXPECT(r, yk_world_barrier(r->world) == YK_ETIMEDOUT);
    EXPECT(r, yk_world_agree(r->world, YK_OK) == YK_ETIMEDOUT);
    yk_world_abort(r->world, 3);
}

/* ---- overlap ------------------------------------------------------------------------------ */

static yk_status note_time(void *context)
{
    **(double **)context = yk_clock_s();
    return YK_OK;
}

/* While the caller computes, without a call of ours or of MPI's, reductions begin and end. */
static void transfers_run_beside_work(rank_rig *r)
{
    enum { COUNT = 200000, N = 8 };
    float *buffer = calloc((size_t)r->size * COUNT, sizeof *buffer);
    static double ended[N];
    rank_group g = rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, YK_BF16, r->size * COUNT, 30);
    EXPECT(r, yk_world_barrier(r->world) == YK_OK);
    for (int i = 0; i < N; i++) {
        double *at = &ended[i];
        EXPECT(r, yk_comm_all_reduce(g.comm, buffer, COUNT, YK_F32, r->reduce) == YK_OK);
        EXPECT(r, yk_stream_run(r->reduce, note_time, &at, sizeof at) == YK_OK);
    }
    double begin = yk_clock_s();
    volatile double x = 1;
    while (yk_clock_s() < begin + 2)
        for (int i = 0; i < 1000; i++) x = sqrt(x + i);
    double end = yk_clock_s();
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    for (int i = 0; i < N; i++) EXPECT(r, ended[i] > begin - 1 && ended[i] < end);
    rank_group_close(&g);
    free(buffer);
}

/* A rank that waits for another leaves the processor alone: a second's wait costs little of it. */
static void waiting_takes_no_processor(rank_rig *r)
{
    rank_group g = rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, YK_F32, 0, 30);
    EXPECT(r, yk_world_barrier(r->world) == YK_OK);
    if (is_late(r)) usleep(1000 * 1000);
    clock_t before = clock();
    EXPECT(r, yk_comm_barrier(g.comm, r->reduce) == YK_OK);
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    double used = (double)(clock() - before) / CLOCKS_PER_SEC;
    EXPECT(r, used < 0.1);
    rank_group_close(&g);
}

int main(int argc, char **argv)
{
    rank_rig r;
    rank_open(&r);
    EXPECT(&r, argc == 2 && r.size <= 8);
    if (strcmp(argv[1], "beside") == 0) {
        waiting_takes_no_processor(&r);
        transfers_run_beside_work(&r);
        if (r.rank == 0) printf("passed\n");
        rank_close(&r);
        return 0;
    }
    if (strcmp(argv[1], "world") == 0) late_to_agree(&r);
    late(&r, argv[1]);
}
