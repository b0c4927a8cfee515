/* tests/ranks/comm/rank_shelf.c - items of a shelf, put again and again while ranks are late at random, are
 * what their ranks put there last, whenever and however often they are taken. Started by test_hostmem.sh.
 *
 *   rank_shelf ROUNDS SEED
 *
 * Buffers lie in device memory, so it runs on a GPU as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/device/ops.h"
#include "tests/ranks/comm/reference.h"
#include "tests/ranks/rig.h"

/* Of less than a piece, of none, and of many. */
static const int64_t sizes[] = {1000, 0, 4096, 70000, 300001};
#define N_ITEMS 5
#define MOST    300001
#define TAKES   2

typedef struct rig {
    rank_rig ranks;
    rank_group group;
    yk_stream *put;
    yk_event *was_put[N_ITEMS];
    uint64_t seed, n; /* of random numbers, each rank's own */
    char *in, *out;   /* (N_ITEMS, MOST), (N_ITEMS, TAKES, size, MOST) device memory */
    char *host;       /* (size * MOST) pinned */
} rig;

static char byte_of(const rig *x, int round, int item, int index, int64_t i)
{
    return (char)ref_random(x->seed + (uint64_t)round, (uint64_t)(item * 64 + index),
                            (uint64_t)i / 8);
}

static void *allocate(rig *x, yk_memory_kind kind, int64_t bytes)
{
    void *memory;
    EXPECT(&x->ranks, yk_device_alloc(x->ranks.device, kind, bytes, &memory) == YK_OK);
    return memory;
}

static int64_t out_bytes(const rig *x)
{
    return (int64_t)N_ITEMS * TAKES * x->ranks.size * MOST;
}

static void open_rig(rig *x)
{
    rank_rig *r = &x->ranks;
    rank_open(r);
    x->group = rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, YK_F32, 0, 60);
    EXPECT(r, yk_stream_create(r->device, YK_STREAM_TRANSFER, "put", &x->put) == YK_OK);
    for (int i = 0; i < N_ITEMS; i++)
        EXPECT(r, yk_event_create(r->device, &x->was_put[i]) == YK_OK);
    x->n = (uint64_t)r->rank << 32;
    x->in = allocate(x, YK_MEMORY_DEVICE, (int64_t)N_ITEMS * MOST);
    x->out = allocate(x, YK_MEMORY_DEVICE, out_bytes(x));
    x->host = allocate(x, YK_MEMORY_PINNED, (int64_t)r->size * MOST);
    int64_t before = yk_comm_shared_bytes(x->group.comm);
    EXPECT(r, yk_comm_shelve(x->group.comm, sizes, N_ITEMS) == YK_OK);
    EXPECT(r, yk_comm_shared_bytes(x->group.comm) >= before + 375097);
}

static void close_rig(rig *x)
{
    rank_rig *r = &x->ranks;
    yk_device_free(r->device, YK_MEMORY_DEVICE, (int64_t)N_ITEMS * MOST, x->in);
    yk_device_free(r->device, YK_MEMORY_DEVICE, out_bytes(x), x->out);
    yk_device_free(r->device, YK_MEMORY_PINNED, (int64_t)r->size * MOST, x->host);
    for (int i = 0; i < N_ITEMS; i++) yk_event_destroy(x->was_put[i]);
    yk_stream_destroy(x->put);
    rank_group_close(&x->group);
    rank_close(r);
}

static void be_late(rig *x)
{
    uint64_t ns = ref_random(x->seed, x->n++, 0) % 600000;
    if (ns < 200000) nanosleep(&(struct timespec){0, (long)ns}, NULL);
}

/* From device memory, or in place by the host. */
static void put(rig *x, int round, int item)
{
    yk_comm *c = x->group.comm;
    char *in = x->in + item * MOST, *part = yk_comm_shelf_part(c, item);
    bool by_host = (round + item) % 3 == 0;
    for (int64_t i = 0; i < sizes[item]; i++)
        (by_host ? part : x->host)[i] = byte_of(x, round, item, yk_comm_index(c), i);
    if (!by_host && sizes[item] > 0)
        EXPECT(&x->ranks,
               yk_copy(x->put, in, x->host, sizes[item], YK_COPY_HOST_TO_DEVICE) == YK_OK);
    EXPECT(&x->ranks, yk_comm_put(c, item, by_host ? NULL : in, x->put) == YK_OK);
    EXPECT(&x->ranks, yk_event_record(x->was_put[item], x->put) == YK_OK);
    EXPECT(&x->ranks, yk_stream_synchronize(x->put) == YK_OK); /* the host writes again */
}

static char *place(const rig *x, int item, int take)
{
    return x->out + (int64_t)(item * TAKES + take) * x->ranks.size * MOST;
}

/* With this rank's own part from the shelf or, where that is on the device, from there. */
static void take(rig *x, int round, int item, int n)
{
    char *full = place(x, item, n);
    bool by_host = (round + item) % 3 == 0;
    const char *own = by_host || n == 0 ? NULL : x->in + item * MOST;
    EXPECT(&x->ranks, yk_comm_take(x->group.comm, item, full, own, x->ranks.gather) == YK_OK);
}

static void check(rig *x, int round, int item, int n)
{
    int64_t bytes = sizes[item] * x->ranks.size;
    if (bytes == 0) return;
    EXPECT(&x->ranks, yk_copy(x->ranks.gather, x->host, place(x, item, n), bytes,
                              YK_COPY_DEVICE_TO_HOST) == YK_OK);
    EXPECT(&x->ranks, yk_stream_synchronize(x->ranks.gather) == YK_OK);
    for (int64_t i = 0; i < bytes; i++)
        EXPECT(&x->ranks,
               x->host[i] == byte_of(x, round, item, (int)(i / sizes[item]), i % sizes[item]));
}

/* Each rank puts items in an order of its own; what it takes first may not be there yet. */
static void run_round(rig *x, int round)
{
    int first = (int)(ref_random(x->seed, x->n++, 1) % N_ITEMS);
    for (int i = 0; i < N_ITEMS; i++) {
        be_late(x);
        put(x, round, (first + i) % N_ITEMS);
    }
    for (int n = 0; n < TAKES; n++)
        for (int i = 0; i < N_ITEMS; i++) {
            be_late(x);
            take(x, round, i, n);
        }
    for (int n = 0; n < TAKES; n++)
        for (int i = 0; i < N_ITEMS; i++) check(x, round, i, n);
    EXPECT(&x->ranks, yk_comm_barrier(x->group.comm, x->ranks.gather) == YK_OK);
    EXPECT(&x->ranks, yk_stream_synchronize(x->ranks.gather) == YK_OK);
}

int main(int argc, char **argv)
{
    static rig x;
    if (argc != 3) return 2;
    x.seed = strtoull(argv[2], NULL, 10);
    if (rank_backend() != YK_COMM_HOSTMEM && rank_gathers() != YK_COMM_HOSTMEM) return 2;
    open_rig(&x);
    if (x.ranks.rank == 0) {
        printf("seed %s\n", argv[2]);
        fflush(stdout); /* a failure ends at once */
    }
    for (int round = 0; round < atoi(argv[1]); round++) run_round(&x, round);
    EXPECT(&x.ranks, yk_comm_get_counts(x.group.comm).bytes_sent ==
                         (int64_t)atoi(argv[1]) * TAKES * (x.ranks.size - 1) * 375097);
    if (x.ranks.rank == 0)
        printf("passed %s rounds over %s on %d ranks\n", argv[1],
               yk_comm_backend_name(x.group.comm), x.ranks.size);
    close_rig(&x);
    return 0;
}
