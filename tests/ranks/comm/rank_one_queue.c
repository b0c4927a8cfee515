/* tests/ranks/comm/rank_one_queue.c - collectives through host memory where all streams of a rank are one, as they are
 * to a GPU whose hardware has fewer queues (CUDA_DEVICE_MAX_CONNECTIONS), and to a host that waits for room in one:
 * whatever a stream waits for, the other ranks have issued before the same point of their programs. Long chunks and
 * short ones take turns, in odd and even numbers. Started by test_hostmem.sh.
 *
 *   rank_one_queue COLLECTIVES SEED
 */
#include <stdio.h>
#include <stdlib.h>

#include "comm/hostmem.h"
#include "runtime/base/arith.h"
#include "tests/ranks/comm/reference.h"
#include "tests/ranks/rig.h"

#define COUNT_MAX ((int64_t)1 << 20) /* of a part: chunks of two slots */
#define TIMEOUT_S 20

typedef struct rig {
    rank_rig ranks;
    rank_group group;
    float *x; /* (size * COUNT_MAX) */
} rig;

static float input(int rank, int64_t i)
{
    return (float)(rank + 1) * (float)(i % 31);
}

static void check(rig *g, int64_t begin, int64_t n, int root)
{
    int size = g->ranks.size, sum = size * (size + 1) / 2;
    for (int64_t i = begin; i < begin + n; i++)
        EXPECT(&g->ranks, g->x[i] == (root < 0 ? (float)(sum * (int)(i % 31)) : input(root, i)));
}

/* One of a number of kinds, of `count` elements for each rank; what it gives is looked at. */
static void run(rig *g, int kind, int64_t count, int root)
{
    rank_rig *r = &g->ranks;
    yk_comm *c = g->group.comm;
    int64_t n = r->size * count, own = yk_comm_index(c) * count;
    for (int64_t i = 0; i < n; i++) g->x[i] = input(r->rank, i);
    if (kind == 0)
        EXPECT(r, yk_comm_all_gather(c, g->x, g->x + own, count, YK_F32, r->reduce) == YK_OK);
    else if (kind == 1)
        EXPECT(r, yk_comm_broadcast(c, g->x, 4 * n, root, r->reduce) == YK_OK);
    else if (kind == 2)
        EXPECT(r, yk_comm_all_reduce(c, g->x, count, YK_F32, r->reduce) == YK_OK);
    else
        EXPECT(r, yk_comm_reduce_scatter(c, g->x + own, g->x, count, YK_F32, false, r->reduce) ==
                      YK_OK);
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    for (int i = 0; kind == 0 && i < r->size; i++) check(g, i * count, count, yk_comm_rank(c, i));
    if (kind == 1) check(g, 0, n, yk_comm_rank(c, root));
    if (kind == 2) check(g, 0, n, -1);
    if (kind == 3) check(g, own, count, -1);
}

/* Chunks by length: from one to a dozen in a collective, some of one slot and some of two. */
static void run_many(rig *g, long n, uint64_t seed)
{
    for (long i = 0; i < n; i++) {
        uint64_t draw = ref_random(seed, (uint64_t)i, 0);
        int64_t most = COUNT_MAX >> (draw >> 32) % 12, count = 1 + (int64_t)(draw % (uint64_t)most);
        rank_double_chunks(&g->ranks, -(int)((draw >> 40) % 3), -(int)((draw >> 44) % 3));
        run(g, (int)((draw >> 50) % 4), count, (int)((draw >> 53) % (uint64_t)g->ranks.size));
    }
}

/* Streams that the group itself made are given back to it. */
static void join_streams(rig *g, hostmem_copies *own)
{
    hostmem_group *h = yk_hostmem_of(g->group.comm);
    for (int i = 0; i < 2; i++) {
        own[i] = h->copies[i];
        h->copies[i].down = h->copies[i].up = g->ranks.reduce;
    }
}

static void part_streams(rig *g, const hostmem_copies *own)
{
    hostmem_group *h = yk_hostmem_of(g->group.comm);
    for (int i = 0; i < 2; i++) h->copies[i] = own[i];
}

static void run_group(rig *g, yk_dtype wire, long n, uint64_t seed)
{
    hostmem_copies own[2];
    g->group = rank_group_open(&g->ranks, YK_AXIS_WORLD, YK_REDUCE_EXACT, wire,
                               g->ranks.size * COUNT_MAX, TIMEOUT_S);
    join_streams(g, own);
    run_many(g, n, seed);
    part_streams(g, own);
    rank_group_close(&g->group);
}

int main(int argc, char **argv)
{
    rig g;
    void *x;
    if (argc != 3) return 2;
    long n = atol(argv[1]);
    uint64_t seed = strtoull(argv[2], NULL, 10);
    rank_open(&g.ranks);
    int64_t bytes = g.ranks.size * COUNT_MAX * 4;
    EXPECT(&g.ranks, yk_device_alloc(g.ranks.device, YK_MEMORY_PINNED, bytes, &x) == YK_OK);
    g.x = x;
    run_group(&g, YK_F32, n, seed);
    run_group(&g, YK_BF16, n, seed + 1);
    yk_device_free(g.ranks.device, YK_MEMORY_PINNED, bytes, x);
    if (g.ranks.rank == 0)
        printf("passed %ld collectives in one queue on %d ranks\n", 2 * n, g.ranks.size);
    rank_close(&g.ranks);
    return 0;
}
