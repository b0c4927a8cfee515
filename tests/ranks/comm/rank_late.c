/* tests/ranks/comm/rank_late.c - sums through host memory where one way of one rank's link is late: what the
 * other way brings meanwhile may not take the place of what has not left yet. Of two sums, one after the other,
 * one has chunks of half the length. Started by test_hostmem.sh.
 */
#include <stdio.h>
#include <time.h>

#include "comm/hostmem.h"
#include "tests/ranks/rig.h"

#define COUNT     ((int64_t)1200001) /* of a part: ten chunks */
#define PERIOD    97
#define LATE_NS   100000000
#define TIMEOUT_S 30

static yk_status sleep_in_stream(void *none)
{
    (void)none;
    nanosleep(&(struct timespec){0, LATE_NS}, NULL);
    return YK_OK;
}

static void fill(float *x, int rank, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)((rank + 1) * (i % PERIOD));
}

static void check(rank_rig *r, const float *x, int64_t begin, int64_t n)
{
    int sum = r->size * (r->size + 1) / 2;
    for (int64_t i = begin; i < begin + n; i++) EXPECT(r, x[i] == (float)(sum * (i % PERIOD)));
}

static void be_late(rank_rig *r, const yk_comm *c, int rank, bool down)
{
    const hostmem_copies *copies = &yk_hostmem_of(c)->copies[HOSTMEM_LANE_REDUCE];
    if (r->rank != rank) return;
    EXPECT(r, yk_stream_run(down ? copies->down : copies->up, sleep_in_stream, NULL, 0) == YK_OK);
}

static void sum_late(rank_rig *r, yk_comm *c, float *x, int rank, bool down)
{
    int64_t first = yk_comm_index(c) * COUNT;
    fill(x, r->rank, r->size * COUNT);
    rank_double_chunks(r, 0, -(rank % 2));
    be_late(r, c, rank, down);
    EXPECT(r, yk_comm_reduce_scatter(c, x + first, x, COUNT, YK_F32, false, r->reduce) == YK_OK);
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    check(r, x, first, COUNT);
    fill(x, r->rank, r->size * COUNT);
    rank_double_chunks(r, 0, -((rank + 1) % 2));
    be_late(r, c, rank, down);
    EXPECT(r, yk_comm_all_reduce(c, x, COUNT, YK_F32, r->reduce) == YK_OK);
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    check(r, x, 0, r->size * COUNT);
}

int main(void)
{
    rank_rig r;
    rank_open(&r);
    int64_t n = r.size * COUNT;
    void *x;
    rank_group g = rank_group_open(&r, YK_AXIS_WORLD, YK_REDUCE_EXACT, YK_F32, n, TIMEOUT_S);
    EXPECT(&r, COUNT > 8 * yk_comm_hostmem_chunk(g.comm, COUNT, YK_F32));
    EXPECT(&r, yk_device_alloc(r.device, YK_MEMORY_PINNED, n * 4, &x) == YK_OK);
    for (int rank = 0; rank < r.size; rank++)
        for (int down = 0; down < 2; down++) sum_late(&r, g.comm, x, rank, down);
    yk_device_free(r.device, YK_MEMORY_PINNED, n * 4, x);
    rank_group_close(&g);
    if (r.rank == 0) printf("passed on %d ranks\n", r.size);
    rank_close(&r);
    return 0;
}
