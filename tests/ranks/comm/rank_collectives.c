/* tests/ranks/comm/rank_collectives.c - every collective, on this many ranks and nodes, against the sum
 * that one process forms alone. Started by test_collectives.sh. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "tests/ranks/comm/reference.h"
#include "tests/ranks/rig.h"

#define TIMEOUT_S 30.0

static const int64_t counts[] = {0, 1, 2, 17, 128, 129, 777};
#define N_COUNTS  ((int)(sizeof counts / sizeof counts[0]))
#define COUNT_MAX 777

static uint64_t next_seed(void)
{
    static uint64_t seed = 20260;
    return seed++;
}

static void *room(rank_rig *r, int64_t bytes)
{
    void *p = malloc((size_t)bytes + 64);
    EXPECT(r, p);
    return p;
}

static void synchronize(rank_rig *r)
{
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    EXPECT(r, yk_stream_synchronize(r->gather) == YK_OK);
}

/* What reduces nothing, or in place, takes no staging memory; but hostmem keeps small things there. */
static bool takes_none(const rank_group *g)
{
    bool hostmem = strstr(yk_comm_backend_name(g->comm), "hostmem");
    return hostmem || yk_arena_used(g->arena) == 0;
}

/* ---- the exact sum ------------------------------------------------------------------------ */

/* A group as the reference sees it. */
typedef struct layout {
    int size, n_nodes;
    int ranks[64];
} layout;

static layout layout_of(const rank_rig *r, const rank_group *g)
{
    layout l = {.size = yk_comm_size(g->comm)};
    l.n_nodes = g->axis == YK_AXIS_NODE ? 1 : yk_world_n_nodes(r->world);
    for (int i = 0; i < l.size; i++) l.ranks[i] = yk_comm_rank(g->comm, i);
    return l;
}

static ref_case make_case(const rank_group *g, const layout *l, ref_values values, yk_dtype dtype,
                          int64_t count)
{
    return (ref_case){.seed = next_seed(),
                      .values = values,
                      .dtype = dtype,
                      .wire = yk_comm_wire_for(g->comm, dtype),
                      .n_local = l->size / l->n_nodes,
                      .n_nodes = l->n_nodes,
                      .n = l->size * count,
                      .ranks = l->ranks};
}

/* What a sum must have sent and lost, since `before`. */
static void check_counts(rank_rig *r, const rank_group *g, const ref_case *c, yk_comm_counts before,
                         int64_t parts_sent, int exponent)
{
    yk_comm_counts now = yk_comm_get_counts(g->comm);
    int64_t count = c->n / yk_comm_size(g->comm);
    bool travels = count > 0 && yk_comm_size(g->comm) > 1;
    bool packs = travels && (c->wire != c->dtype || exponent != 0);
    EXPECT(r, now.bytes_sent - before.bytes_sent ==
                  (travels ? parts_sent * count * yk_dtype_bytes(c->wire) : 0));
    EXPECT(r,
           now.n_flushed - before.n_flushed == (packs ? ref_n_flushed(c, r->rank, exponent) : 0));
}

/* A group of one rank rounds nothing to the wire. */
static float expected_sum(const ref_case *c, int64_t i, int exponent)
{
    if (c->n_local * c->n_nodes == 1) return ref_input(c, c->ranks[0], i);
    return ref_sum(c, i, exponent);
}

/* The three ways to keep a shard: in its place, elsewhere, added to what is there. */
static void check_scatter(rank_rig *r, rank_group *g, const ref_case *c, int way, int exponent)
{
    int64_t count = c->n / yk_comm_size(g->comm), element = yk_dtype_bytes(c->dtype);
    int64_t first = yk_comm_index(g->comm) * count;
    char *full = room(r, c->n * element), *apart = room(r, count * element);
    char *shard = way == 0 ? full + first * element : apart;
    ref_case old = *c;
    old.seed++;
    old.values = REF_NORMAL;
    ref_fill(c, r->rank, 0, c->n, full);
    if (way == 2) ref_fill(&old, r->rank, 0, count, shard);
    yk_comm_counts before = yk_comm_get_counts(g->comm);
    EXPECT(r, yk_comm_reduce_scatter(g->comm, shard, full, count, c->dtype, way == 2, r->reduce) ==
                  YK_OK);
    synchronize(r);
    for (int64_t i = 0; i < count; i++) {
        float expected = expected_sum(c, first + i, exponent);
        if (way == 2) {
            float stored[1];
            yk_store_f32(stored, 0, YK_F32, expected);
            expected = ref_input(&old, r->rank, i) + stored[0];
        }
        EXPECT(r, ref_same(c->dtype, shard, i, expected));
    }
    check_counts(r, g, c, before, yk_comm_size(g->comm) - 1, exponent);
    free(full);
    free(apart);
}

static void check_all_reduce(rank_rig *r, rank_group *g, const ref_case *c, int exponent)
{
    int64_t count = c->n / yk_comm_size(g->comm);
    char *buffer = room(r, c->n * yk_dtype_bytes(c->dtype));
    ref_fill(c, r->rank, 0, c->n, buffer);
    yk_comm_counts before = yk_comm_get_counts(g->comm);
    EXPECT(r, yk_comm_all_reduce(g->comm, buffer, count, c->dtype, r->reduce) == YK_OK);
    synchronize(r);
    for (int64_t i = 0; i < c->n; i++)
        EXPECT(r, ref_same(c->dtype, buffer, i, expected_sum(c, i, exponent)));
    check_counts(r, g, c, before, 2 * (yk_comm_size(g->comm) - 1), exponent);
    free(buffer);
}

static void exact_sums(rank_rig *r, yk_axis axis, yk_dtype wire, bool brief)
{
    rank_group g = {0};
    layout l = {.size = axis == YK_AXIS_WORLD    ? r->size
                        : axis == YK_AXIS_ACROSS ? yk_world_n_nodes(r->world)
                                                 : yk_world_local_size(r->world)};
    g = rank_group_open(r, axis, YK_REDUCE_EXACT, wire, l.size * COUNT_MAX, TIMEOUT_S);
    l = layout_of(r, &g);
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++)
        for (int v = 0; v < REF_N_VALUES; v++)
            for (int n = brief ? 4 : 0; n < (brief ? 6 : N_COUNTS); n++) {
                ref_case c = make_case(&g, &l, (ref_values)v, (yk_dtype)t, counts[n]);
                int exponent = ref_exponent(&c);
                check_scatter(r, &g, &c, (n + v) % 3, exponent);
                check_all_reduce(r, &g, &c, exponent);
            }
    rank_group_close(&g);
}

/* Summed in the node and then across, by two groups, a buffer has the bits of one sum over all. */
static void two_groups_sum_as_one(rank_rig *r, yk_dtype dtype, yk_dtype wire)
{
    int64_t count = 129, n = r->size * count, element = yk_dtype_bytes(dtype);
    int64_t own = n / yk_world_local_size(r->world);
    rank_group whole = rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, wire, n, TIMEOUT_S);
    rank_group node = rank_group_open_part(r, YK_AXIS_NODE, &whole, n);
    rank_group across = rank_group_open_part(r, YK_AXIS_ACROSS, &whole, own);
    layout l = layout_of(r, &whole);
    /* Not at the ends of fp32, in which the node's sum is kept in between. */
    static const ref_values sorts[] = {REF_NORMAL, REF_WIDE, REF_SPECIAL, REF_ZEROS};
    for (int v = 0; v < 4; v++) {
        ref_case c = make_case(&whole, &l, sorts[v], dtype, count);
        int exponent = ref_exponent(&c);
        char *full = room(r, n * element);
        int64_t first = yk_comm_index(node.comm) * own;
        char *shard = full + first * element;
        ref_fill(&c, r->rank, 0, n, full);
        EXPECT(r, yk_comm_reduce_scatter(node.comm, shard, full, own, dtype, false, r->reduce) ==
                      YK_OK);
        EXPECT(r, yk_comm_all_reduce(across.comm, shard, own / yk_comm_size(across.comm), dtype,
                                     r->reduce) == YK_OK);
        synchronize(r);
        for (int64_t i = first; i < first + own; i++)
            EXPECT(r, ref_same(dtype, full, i, expected_sum(&c, i, exponent)));
        free(full);
    }
    rank_group_close(&across);
    rank_group_close(&node);
    rank_group_close(&whole);
}

/* Shards of several chunks. Inputs repeat after a prime number of elements, so that the sum does, and
 * an element that went astray is seen. */
#define PERIOD 8191

static void fill_periodic(const ref_case *c, int rank, int64_t n, char *x)
{
    int64_t element = yk_dtype_bytes(c->dtype);
    ref_fill(c, rank, 0, PERIOD, x);
    for (int64_t i = PERIOD; i < n; i += PERIOD)
        memcpy(x + i * element, x, (size_t)(yk_min(PERIOD, n - i) * element));
}

static void long_sums(rank_rig *r, yk_dtype dtype, yk_dtype wire)
{
    int64_t count = r->size == 2 ? 1200001 : 400001, element = yk_dtype_bytes(dtype);
    int64_t n = r->size * count, bytes = n * element;
    rank_group g = rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, wire, n, TIMEOUT_S);
    int64_t first = yk_comm_index(g.comm) * count;
    layout l = layout_of(r, &g);
    ref_case c = make_case(&g, &l, REF_NORMAL, dtype, count);
    c.n = PERIOD;
    int exponent = ref_exponent(&c);
    char *scattered = room(r, bytes), *reduced = room(r, bytes), *expected = room(r, bytes);
    for (int64_t i = 0; i < PERIOD; i++) yk_store_f32(expected, i, dtype, ref_sum(&c, i, exponent));
    for (int64_t i = PERIOD; i < n; i += PERIOD)
        memcpy(expected + i * element, expected, (size_t)(yk_min(PERIOD, n - i) * element));
    fill_periodic(&c, r->rank, n, scattered);
    fill_periodic(&c, r->rank, n, reduced);
    EXPECT(r, yk_comm_reduce_scatter(g.comm, scattered + first * element, scattered, count, dtype,
                                     false, r->reduce) == YK_OK);
    EXPECT(r, yk_comm_all_reduce(g.comm, reduced, count, dtype, r->reduce) == YK_OK);
    synchronize(r);
    EXPECT(r, memcmp(scattered + first * element, expected + first * element,
                     (size_t)(count * element)) == 0);
    EXPECT(r, memcmp(reduced, expected, (size_t)bytes) == 0);
    free(scattered);
    free(reduced);
    free(expected);
    rank_group_close(&g);
}

/* ---- sums in the library's order ---------------------------------------------------------- */

static void ring_sums(rank_rig *r, yk_dtype wire)
{
    rank_group g =
        rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_RING, wire, r->size * COUNT_MAX, TIMEOUT_S);
    layout l = layout_of(r, &g);
    EXPECT(r, takes_none(&g));
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++)
        for (int n = 0; n < N_COUNTS; n++) {
            int64_t count = counts[n], element = yk_dtype_bytes((yk_dtype)t);
            ref_case c = make_case(&g, &l, REF_NORMAL, (yk_dtype)t, count);
            int exponent = ref_exponent(&c);
            int64_t first = yk_comm_index(g.comm) * count;
            char *full = room(r, c.n * element), *whole = room(r, c.n * element);
            ref_fill(&c, r->rank, 0, c.n, full);
            memcpy(whole, full, (size_t)(c.n * element));
            char *shard = full + first * element;
            EXPECT(r, yk_comm_reduce_scatter(g.comm, shard, full, count, c.dtype, false,
                                             r->reduce) == YK_OK);
            EXPECT(r, yk_comm_all_reduce(g.comm, whole, count, c.dtype, r->reduce) == YK_OK);
            synchronize(r);
            /* A rounding for each addition, of sums of magnitude up to 4 a rank. */
            yk_dtype worst = r->size == 1 ? c.dtype : c.wire;
            float eps = worst == YK_F32 ? 0x1p-24f : worst == YK_F16 ? 0x1p-11f : 0x1p-8f;
            float bound = 2 * eps * (float)(r->size * r->size) * 4;
            for (int64_t i = 0; i < c.n; i++) {
                float expected = expected_sum(&c, i, exponent);
                EXPECT(r, fabsf(yk_load_f32(whole, i, c.dtype) - expected) <= bound);
                if (i < first || i >= first + count) continue;
                EXPECT(r, fabsf(yk_load_f32(full, i, c.dtype) - expected) <= bound);
            }
            free(full);
            free(whole);
        }
    rank_group_close(&g);
}

/* ---- what only moves ---------------------------------------------------------------------- */

/* Bytes that repeat after PERIOD. */
static void fill_bytes(uint64_t seed, int index, int64_t bytes, unsigned char *x)
{
    for (int64_t i = 0; i < yk_min(bytes, PERIOD); i++)
        x[i] = (unsigned char)(ref_random(seed, (uint64_t)index, (uint64_t)i) >> 32);
    for (int64_t i = PERIOD; i < bytes; i += PERIOD)
        memcpy(x + i, x, (size_t)yk_min(PERIOD, bytes - i));
}

static bool has_bytes(uint64_t seed, int index, int64_t bytes, const unsigned char *x)
{
    unsigned char expected[PERIOD];
    fill_bytes(seed, index, yk_min(bytes, PERIOD), expected);
    for (int64_t i = 0; i < bytes; i += PERIOD)
        if (memcmp(x + i, expected, (size_t)yk_min(PERIOD, bytes - i)) != 0) return false;
    return true;
}

static void check_gather(rank_rig *r, rank_group *g, int64_t count, yk_dtype dtype, bool apart)
{
    int size = yk_comm_size(g->comm), index = yk_comm_index(g->comm);
    int64_t bytes = count * yk_dtype_bytes(dtype);
    uint64_t seed = next_seed();
    unsigned char *full = room(r, size * bytes), *shard = room(r, bytes);
    memset(full, 0, (size_t)(size * bytes));
    unsigned char *from = apart ? shard : full + index * bytes;
    fill_bytes(seed, index, bytes, from);
    yk_comm_counts before = yk_comm_get_counts(g->comm);
    EXPECT(r, yk_comm_all_gather(g->comm, full, from, count, dtype, r->gather) == YK_OK);
    synchronize(r);
    for (int p = 0; p < size; p++) EXPECT(r, has_bytes(seed, p, bytes, full + p * bytes));
    EXPECT(r, yk_comm_get_counts(g->comm).bytes_sent - before.bytes_sent == (size - 1) * bytes);
    free(full);
    free(shard);
}

static void check_broadcast(rank_rig *r, rank_group *g, int64_t bytes, int root)
{
    uint64_t seed = next_seed();
    unsigned char *buffer = room(r, bytes);
    memset(buffer, 0, (size_t)bytes);
    if (yk_comm_index(g->comm) == root) fill_bytes(seed, root, bytes, buffer);
    EXPECT(r, yk_comm_broadcast(g->comm, buffer, bytes, root, r->gather) == YK_OK);
    synchronize(r);
    EXPECT(r, has_bytes(seed, root, bytes, buffer));
    free(buffer);
}

static void moves(rank_rig *r, yk_axis axis)
{
    rank_group g = rank_group_open(r, axis, YK_REDUCE_EXACT, YK_F32, 0, TIMEOUT_S);
    EXPECT(r, takes_none(&g));
    for (int t = YK_F32; t <= YK_I32; t++)
        for (int n = 0; n < N_COUNTS; n++) {
            check_gather(r, &g, counts[n], (yk_dtype)t, true);
            check_gather(r, &g, counts[n], (yk_dtype)t, false);
        }
    for (int root = 0; root < yk_comm_size(g.comm); root++)
        for (int n = 0; n < N_COUNTS; n++) check_broadcast(r, &g, counts[n], root);
    rank_group_close(&g);
}

/* Longer than one message may be. */
static void long_moves(rank_rig *r)
{
    rank_group g = rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, YK_F32, 0, TIMEOUT_S);
    check_gather(r, &g, (17 << 20) + 3, YK_F32, false);
    check_broadcast(r, &g, (65 << 20) + 1, 1);
    rank_group_close(&g);
}

/* Sums whose bits depend on the order. */
static void values(rank_rig *r)
{
    rank_group g = rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, YK_BF16, 0, TIMEOUT_S);
    for (int round = 0; round < 20; round++) {
        uint64_t seed = next_seed();
        yk_step_values v = {.lr = 7, .skip = 3, .loss_scale = 2, .adam_steps = 5}, expected = v;
        for (int i = 0; i < r->size; i++) {
            uint64_t h = ref_random(seed, (uint64_t)yk_comm_rank(g.comm, i), 0);
            double loss = ldexp((double)(h >> 11), (int)(h % 60) - 80);
            double squares = ldexp((double)(h >> 10), (int)(h / 60 % 60) - 80);
            int32_t bad = round % 4 == 0 && h % 5 == 0;
            expected.loss_sum = i == 0 ? loss : expected.loss_sum + loss;
            expected.sum_squares = i == 0 ? squares : expected.sum_squares + squares;
            expected.n_tokens += (int64_t)(h >> 20);
            expected.non_finite |= bad;
            if (i != yk_comm_index(g.comm)) continue;
            v.loss_sum = loss;
            v.sum_squares = squares;
            v.n_tokens = (int64_t)(h >> 20);
            v.non_finite = bad;
        }
        yk_stream *stream = round % 2 ? r->reduce : r->compute;
        EXPECT(r, yk_comm_barrier(g.comm, stream) == YK_OK);
        EXPECT(r, yk_comm_all_reduce_values(g.comm, &v, stream) == YK_OK);
        synchronize(r);
        EXPECT(r, memcmp(&v, &expected, sizeof v) == 0);
    }
    rank_group_close(&g);
}

/* ---- two streams at once ------------------------------------------------------------------ */

static void gathers_run_beside_reductions(rank_rig *r)
{
    enum { ROUNDS = 40, COUNT = 501 };
    rank_group g =
        rank_group_open(r, YK_AXIS_WORLD, YK_REDUCE_EXACT, YK_BF16, r->size * COUNT, TIMEOUT_S);
    layout l = layout_of(r, &g);
    ref_case c = make_case(&g, &l, REF_NORMAL, YK_F32, COUNT);
    int64_t bytes = c.n * 4, own = yk_comm_index(g.comm) * (int64_t)COUNT;
    float *summed = room(r, ROUNDS * bytes), *gathered = room(r, ROUNDS * bytes);
    for (int i = 0; i < ROUNDS; i++) {
        float *s = summed + i * c.n, *f = gathered + i * c.n;
        ref_fill(&c, r->rank, 0, c.n, s);
        for (int j = 0; j < COUNT; j++) f[own + j] = (float)(i * 1000 + r->rank);
        if (r->rank % 2) yk_clock_s(); /* ranks get here at different times */
        EXPECT(r, yk_comm_all_reduce(g.comm, s, COUNT, YK_F32, r->reduce) == YK_OK);
        EXPECT(r, yk_comm_all_gather(g.comm, f, f + own, COUNT, YK_F32, r->gather) == YK_OK);
    }
    synchronize(r);
    for (int i = 0; i < ROUNDS; i++)
        for (int64_t j = 0; j < c.n; j += i == 0 ? 1 : 50) {
            EXPECT(r, ref_same(YK_F32, summed + i * c.n, j, expected_sum(&c, j, 0)));
            int from = yk_comm_rank(g.comm, (int)(j / COUNT));
            EXPECT(r, gathered[i * c.n + j] == (float)(i * 1000 + from));
        }
    yk_comm_counts counted = yk_comm_get_counts(g.comm);
    EXPECT(r, r->size == 1 || counted.n_collectives == 2 * ROUNDS);
    EXPECT(r, r->size == 1 || counted.busy_s > 0);
    free(summed);
    free(gathered);
    rank_group_close(&g);
}

/* ---- a group as it was planned ------------------------------------------------------------ */

/* The dry group that stands for this one takes the same memory and sends the same bytes. */
static void a_dry_group_is_the_same(rank_rig *r, yk_axis axis, yk_dtype wire)
{
    yk_topology topology = {.ranks = r->size,
                            .node_size = yk_world_local_size(r->world),
                            .node_rate = 1e9,
                            .across_rate = 1e9};
    int64_t count = 70001, max_count = r->size * count;
    rank_group g = rank_group_open(r, axis, YK_REDUCE_EXACT, wire, max_count, TIMEOUT_S);
    yk_device *device;
    yk_stream *stream;
    yk_arena *arena;
    yk_comm *dry;
    EXPECT(r, yk_device_open_dry(yk_device_get_spec(r->device), &device) == YK_OK);
    EXPECT(r, yk_stream_create(device, YK_STREAM_TRANSFER, "dry", &stream) == YK_OK);
    EXPECT(r, yk_arena_create(device, "dry", YK_MEMORY_DEVICE, YK_ARENA_MEASURE, 256, &arena) ==
                  YK_OK);
    EXPECT(r, yk_comm_create(&(yk_comm_options){.device = device,
                                                .backend = rank_backend(),
                                                .gathers = rank_gathers(),
                                                .topology = &topology,
                                                .axis = axis,
                                                .wire = wire,
                                                .max_count = max_count,
                                                .staging = arena},
                             &dry) == YK_OK);
    EXPECT(r, yk_arena_used(arena) == yk_arena_used(g.arena));
    EXPECT(r, yk_comm_size(dry) == yk_comm_size(g.comm));
    EXPECT(r, strcmp(yk_comm_backend_name(dry), yk_comm_backend_name(g.comm)) == 0);
    EXPECT(r, yk_comm_shared_bytes(dry) == yk_comm_shared_bytes(g.comm));
    if (r->rank == 0) EXPECT(r, yk_comm_index(dry) == yk_comm_index(g.comm));

    int64_t n = yk_comm_size(g.comm) * count;
    float *full = room(r, n * 4), *shard = room(r, count * 4);
    memset(full, 0, (size_t)n * 4);
    EXPECT(r,
           yk_comm_reduce_scatter(g.comm, shard, full, count, YK_F32, false, r->reduce) == YK_OK);
    EXPECT(r, yk_comm_reduce_scatter(dry, shard, full, count, YK_F32, false, stream) == YK_OK);
    EXPECT(r, yk_comm_all_reduce(g.comm, full, count, YK_F32, r->reduce) == YK_OK);
    EXPECT(r, yk_comm_all_reduce(dry, full, count, YK_F32, stream) == YK_OK);
    EXPECT(r, yk_comm_all_gather(g.comm, full, shard, count, YK_BF16, r->reduce) == YK_OK);
    EXPECT(r, yk_comm_all_gather(dry, full, shard, count, YK_BF16, stream) == YK_OK);
    synchronize(r);
    yk_comm_counts real = yk_comm_get_counts(g.comm), planned = yk_comm_get_counts(dry);
    EXPECT(r, real.bytes_sent == planned.bytes_sent);
    EXPECT(r, real.n_collectives == planned.n_collectives);
    free(full);
    free(shard);
    yk_comm_destroy(dry);
    yk_arena_destroy(arena);
    yk_stream_destroy(stream);
    yk_device_close(device);
    rank_group_close(&g);
}

static void all_short(rank_rig *r, bool brief)
{
    for (int wire = 0; wire < YK_N_FLOAT_DTYPES; wire++) {
        yk_dtype w = (yk_dtype)wire;
        exact_sums(r, YK_AXIS_WORLD, w, brief);
        exact_sums(r, YK_AXIS_NODE, w, true);
        exact_sums(r, YK_AXIS_ACROSS, w, true);
        two_groups_sum_as_one(r, YK_F32, w);
        ring_sums(r, w);
        a_dry_group_is_the_same(r, YK_AXIS_WORLD, w);
        a_dry_group_is_the_same(r, YK_AXIS_NODE, w);
        a_dry_group_is_the_same(r, YK_AXIS_ACROSS, w);
    }
    moves(r, YK_AXIS_WORLD);
    moves(r, YK_AXIS_NODE);
    moves(r, YK_AXIS_ACROSS);
    values(r);
    gathers_run_beside_reductions(r);
}

static void all_long(rank_rig *r)
{
    long_sums(r, YK_F32, YK_F32);
    long_sums(r, YK_F32, YK_BF16);
    long_sums(r, YK_F32, YK_F16);
    long_sums(r, YK_BF16, YK_BF16);
    long_moves(r);
}

/* rank_collectives short|brief|long */
int main(int argc, char **argv)
{
    rank_rig r;
    rank_open(&r);
    const char *what = argc > 1 ? argv[1] : "short";
    if (strcmp(what, "long") == 0)
        all_long(&r);
    else
        all_short(&r, strcmp(what, "brief") == 0);
    if (r.rank == 0) printf("passed on %d ranks, %d nodes\n", r.size, yk_world_n_nodes(r.world));
    rank_close(&r);
    return 0;
}
