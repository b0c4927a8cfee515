/* tests/ranks/comm/rank_stress.c - thousands of collectives of mixed kinds and sizes, in two groups at once,
 * while ranks are late at random, and hostmem's chunks are longer or shorter in each than in the one before; all
 * data is fresh. Started by test_hostmem.sh.
 *
 *   rank_stress COLLECTIVES SEED
 *
 * Buffers lie in device memory, so it runs on a GPU as well. There chunks are long, so that some
 * collectives are, too: most of them sums for all ranks, which are formed another way when they are long.
 * All numbers are small and whole, so that sums are exact in every format and a chunk that is too old, too
 * early or not there shows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/arith.h"
#include "runtime/device/ops.h"
#include "tests/ranks/comm/reference.h"
#include "tests/ranks/rig.h"

#define TIMEOUT_S 60.0
#define COUNT_MAX 300000
#define LONG_MAX  ((int64_t)16 << 20) /* of all parts together */
#define EVERY     25                  /* rounds; the first job of one of them is long */
#define N_JOBS    12                  /* under way at once */

typedef enum kind { GATHER, SCATTER, ADD, ALL_REDUCE, BROADCAST, VALUES, BARRIER, N_KINDS } kind;

/* A collective, the same on all ranks, and its memory on this one. */
typedef struct job {
    kind kind;
    int group, root; /* an index */
    int doublings;   /* of chunks */
    yk_comm *comm;
    yk_dtype dtype;
    int64_t count;
    uint64_t seed;
    yk_stream *stream;
    char *host, *device; /* (room) */
    int64_t room;
} job;

typedef struct rig {
    rank_rig ranks;
    rank_group groups[2];
    yk_stream *values;
    uint64_t seed, n; /* of random numbers */
    bool has_long;
    job jobs[N_JOBS];
} rig;

static uint64_t draw(rig *x, uint64_t below)
{
    return ref_random(x->seed, x->n++, 0) % below;
}

/* What a rank brings: whole, and never the same in two jobs for long. */
static float input(const job *j, int rank, int64_t i)
{
    return (float)(int)(ref_random(j->seed, (uint64_t)rank, (uint64_t)i / 7) % 15) - 7 +
           (float)(i % 2);
}

static float sum_of_all(const job *j, int n, int64_t i)
{
    float sum = 0;
    for (int r = 0; r < n; r++) sum += input(j, r, i);
    return sum;
}

/* ---- making a job ------------------------------------------------------------------------- */

static int64_t draw_count(rig *x)
{
    if (draw(x, 40) == 0) return (int64_t)draw(x, COUNT_MAX) + 1;
    return (int64_t)draw(x, draw(x, 2) ? 3000 : 40) + 1;
}

static const yk_dtype wires[] = {YK_F32, YK_F16}; /* of the groups */

static int64_t count_max(const rig *x, int place)
{
    return x->has_long && place == 0 ? LONG_MAX / x->ranks.size : COUNT_MAX;
}

/* In turns a sum for all ranks in one group, any, one in the other group, any; all as they travel. */
static void make_long(rig *x, job *j, int64_t number)
{
    int64_t most = count_max(x, 0);
    if (number % 2 == 0) j->kind = ALL_REDUCE;
    if (number % 2 == 0) j->group = (int)(number / 2 % 2);
    j->dtype = wires[j->group];
    j->count = most - (int64_t)draw(x, (uint64_t)most / 2);
}

static void draw_job(rig *x, job *j, int64_t round)
{
    j->kind = (kind)draw(x, N_KINDS);
    j->group = (int)draw(x, 2);
    j->root = (int)draw(x, (uint64_t)x->ranks.size);
    j->doublings = (int)draw(x, 7) - 4;
    j->dtype = (yk_dtype)draw(x, YK_N_FLOAT_DTYPES);
    j->count = draw_count(x);
    if (x->has_long && j == &x->jobs[0] && round % EVERY == 0) make_long(x, j, round / EVERY);
    j->seed = ref_random(x->seed, x->n++, 1);
    j->comm = x->groups[j->group].comm;
    bool gathers = j->kind == GATHER || j->kind == BROADCAST;
    j->stream = gathers ? x->ranks.gather : x->ranks.reduce;
    if (j->kind == VALUES || j->kind == BARRIER) j->stream = x->values;
}

static int64_t bytes_of(const rig *x, const job *j)
{
    int64_t part = j->count * yk_dtype_bytes(j->dtype);
    if (j->kind == VALUES) return sizeof(yk_step_values);
    if (j->kind == BROADCAST) return part;
    return part * x->ranks.size;
}

static void fill(const rig *x, const job *j, int64_t begin, int64_t n, int rank)
{
    (void)x;
    for (int64_t i = begin; i < begin + n; i++)
        yk_store_f32(j->host, i, j->dtype, input(j, rank, i));
}

/* This rank's input; what others will bring is left out. */
static void fill_in(const rig *x, const job *j)
{
    int rank = x->ranks.rank, index = yk_comm_index(j->comm);
    memset(j->host, 0, (size_t)bytes_of(x, j));
    if (j->kind == GATHER)
        fill(x, j, index * j->count, j->count, rank);
    else if (j->kind == BROADCAST && index == j->root)
        fill(x, j, 0, j->count, rank);
    else if (j->kind == VALUES)
        *(yk_step_values *)(void *)j->host = (yk_step_values){.loss_sum = input(j, rank, 0),
                                                              .n_tokens = rank + 1,
                                                              .lr = 7,
                                                              .non_finite = index == j->root};
    else if (j->kind != BROADCAST && j->kind != BARRIER)
        fill(x, j, 0, x->ranks.size * j->count, rank);
}

/* ---- running one -------------------------------------------------------------------------- */

static yk_status sleep_in_stream(void *context)
{
    const int64_t *ns = context;
    nanosleep(&(struct timespec){0, *ns}, NULL);
    return YK_OK;
}

/* Each rank by itself: now and then the host is late, or a stream. */
static void be_late(rig *x, const job *j)
{
    uint64_t r = ref_random(x->seed, x->n, (uint64_t)x->ranks.rank + 2);
    int64_t ns = (int64_t)(r / 64 % 300000);
    if (r % 64 == 0) nanosleep(&(struct timespec){0, ns}, NULL);
    if (r % 64 == 1)
        EXPECT(&x->ranks, yk_stream_run(j->stream, sleep_in_stream, &ns, sizeof ns) == YK_OK);
}

static yk_status issue(const job *j)
{
    yk_comm *c = j->comm;
    int64_t element = yk_dtype_bytes(j->dtype);
    char *own = j->device + yk_comm_index(c) * j->count * element;
    char *apart = j->device + j->room / 2; /* behind the buffer */
    switch (j->kind) {
    case GATHER:
        return yk_comm_all_gather(c, j->device, own, j->count, j->dtype, j->stream);
    case SCATTER:
        return yk_comm_reduce_scatter(c, own, j->device, j->count, j->dtype, false, j->stream);
    case ADD:
        YK_TRY(yk_copy(j->stream, apart, own, j->count * element, YK_COPY_DEVICE));
        YK_TRY(yk_comm_reduce_scatter(c, apart, j->device, j->count, j->dtype, true, j->stream));
        return yk_copy(j->stream, own, apart, j->count * element, YK_COPY_DEVICE);
    case ALL_REDUCE:
        return yk_comm_all_reduce(c, j->device, j->count, j->dtype, j->stream);
    case BROADCAST:
        return yk_comm_broadcast(c, j->device, j->count * element, j->root, j->stream);
    case VALUES:
        return yk_comm_all_reduce_values(c, (void *)j->device, j->stream);
    default:
        return yk_comm_barrier(c, j->stream);
    }
}

static void start(rig *x, job *j, int64_t round)
{
    rank_rig *r = &x->ranks;
    draw_job(x, j, round);
    int64_t bytes = bytes_of(x, j);
    fill_in(x, j);
    EXPECT(r, yk_copy(j->stream, j->device, j->host, bytes, YK_COPY_HOST_TO_DEVICE) == YK_OK);
    be_late(x, j);
    rank_double_chunks(r, j->doublings, j->doublings);
    EXPECT(r, issue(j) == YK_OK);
    EXPECT(r, yk_copy(j->stream, j->host, j->device, bytes, YK_COPY_DEVICE_TO_HOST) == YK_OK);
}

/* ---- looking at the result ---------------------------------------------------------------- */

static void check_elements(rig *x, const job *j, int64_t begin, int64_t n)
{
    int size = x->ranks.size;
    for (int64_t i = begin; i < begin + n; i++) {
        float expected = sum_of_all(j, size, i);
        if (j->kind == GATHER) expected = input(j, yk_comm_rank(j->comm, (int)(i / j->count)), i);
        if (j->kind == BROADCAST) expected = input(j, yk_comm_rank(j->comm, j->root), i);
        if (j->kind == ADD) expected += input(j, x->ranks.rank, i);
        EXPECT(&x->ranks, yk_load_f32(j->host, i, j->dtype) == expected);
    }
}

static void check_values(rig *x, const job *j)
{
    const yk_step_values *v = (void *)j->host;
    int n = x->ranks.size;
    EXPECT(&x->ranks, v->loss_sum == (double)sum_of_all(j, n, 0));
    EXPECT(&x->ranks, v->n_tokens == n * (n + 1) / 2);
    EXPECT(&x->ranks, v->lr == 7 && v->non_finite == 1);
}

static void check(rig *x, const job *j)
{
    int64_t own = yk_comm_index(j->comm) * j->count;
    if (j->kind == VALUES)
        check_values(x, j);
    else if (j->kind == SCATTER || j->kind == ADD)
        check_elements(x, j, own, j->count);
    else if (j->kind == BROADCAST)
        check_elements(x, j, 0, j->count);
    else if (j->kind != BARRIER)
        check_elements(x, j, 0, x->ranks.size * j->count);
}

/* ---- all ---------------------------------------------------------------------------------- */

static char *allocate(rank_rig *r, yk_memory_kind where, int64_t bytes)
{
    void *memory;
    EXPECT(r, yk_device_alloc(r->device, where, bytes, &memory) == YK_OK);
    return memory;
}

static void open_rig(rig *x)
{
    rank_rig *r = &x->ranks;
    rank_open(r);
    x->has_long = yk_device_get_kind(r->device) == YK_DEVICE_CUDA;
    EXPECT(r, yk_stream_create(r->device, YK_STREAM_TRANSFER, "values", &x->values) == YK_OK);
    for (int i = 0; i < 2; i++)
        x->groups[i] = rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, wires[i],
                                       r->size * count_max(x, 0), TIMEOUT_S);
    for (int i = 0; i < N_JOBS; i++) {
        job *j = &x->jobs[i];
        j->room = 2 * yk_round_up(r->size * count_max(x, i) * 4, 256);
        j->host = allocate(r, YK_MEMORY_PINNED, j->room);
        j->device = allocate(r, YK_MEMORY_DEVICE, j->room);
    }
}

static void close_rig(rig *x)
{
    rank_rig *r = &x->ranks;
    for (int i = 0; i < N_JOBS; i++) {
        yk_device_free(r->device, YK_MEMORY_PINNED, x->jobs[i].room, x->jobs[i].host);
        yk_device_free(r->device, YK_MEMORY_DEVICE, x->jobs[i].room, x->jobs[i].device);
    }
    for (int i = 0; i < 2; i++) rank_group_close(&x->groups[i]);
    yk_stream_destroy(x->values);
    rank_close(r);
}

static void synchronize(rig *x)
{
    EXPECT(&x->ranks, yk_stream_synchronize(x->ranks.gather) == YK_OK);
    EXPECT(&x->ranks, yk_stream_synchronize(x->ranks.reduce) == YK_OK);
    EXPECT(&x->ranks, yk_stream_synchronize(x->values) == YK_OK);
}

int main(int argc, char **argv)
{
    static rig x;
    if (argc != 3) return 2;
    long n = atol(argv[1]);
    x.seed = strtoull(argv[2], NULL, 10);
    open_rig(&x);
    if (x.ranks.rank == 0) {
        printf("seed %llu\n", (unsigned long long)x.seed);
        fflush(stdout); /* a failure ends at once */
    }
    for (long i = 0; i < n; i += N_JOBS) {
        for (int k = 0; k < N_JOBS; k++) start(&x, &x.jobs[k], i / N_JOBS);
        synchronize(&x);
        for (int k = 0; k < N_JOBS; k++) check(&x, &x.jobs[k]);
    }
    if (x.ranks.rank == 0)
        printf("passed %ld collectives over %s on %d ranks\n", n,
               yk_comm_backend_name(x.groups[0].comm), x.ranks.size);
    close_rig(&x);
    return 0;
}
