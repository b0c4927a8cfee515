/* tests/ranks/comm/rank_stream_exact.c - exact sums as work of streams, carried by MPI here, against the
 * sum that one process forms alone: the order of packing, travelling and adding, the reuse of slots,
 * and the bits. What carries them on GPUs needs GPUs; all else is the same. Started by
 * test_stream_exact.sh.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/stream_exact.h"
#include "runtime/base/arith.h"
#include "tests/ranks/comm/reference.h"
#include "tests/ranks/rig.h"

/* ---- carrying bytes by MPI ---------------------------------------------------------------- */

/* What a stream carries: a copy of a list, freed when it is done. */
typedef struct parcel {
    const yk_comm *comm;
    yk_transfer *list;
    int n;
} parcel;

static yk_status carry(void *context)
{
    const parcel *p = context;
    MPI_Request *requests = malloc((size_t)p->n * sizeof *requests);
    if (!requests) return yk_fail(YK_ENOMEM, "test", "no memory");
    for (int i = 0; i < p->n; i++) {
        const yk_transfer *t = &p->list[i];
        int rank = p->comm->ranks[t->peer];
        if (t->sends)
            MPI_Isend(t->data, (int)t->bytes, MPI_BYTE, rank, 7, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(t->data, (int)t->bytes, MPI_BYTE, rank, 7, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(p->n, requests, MPI_STATUSES_IGNORE);
    free(requests);
    free(p->list);
    return YK_OK;
}

static yk_status send_parcel(parcel p, const yk_transfer *list, int n, yk_stream *stream)
{
    p.n = n;
    p.list = malloc((size_t)n * sizeof *list);
    if (!p.list) return yk_fail(YK_ENOMEM, "test", "no memory");
    memcpy(p.list, list, (size_t)n * sizeof *list);
    return yk_stream_run(stream, carry, &p, sizeof p);
}

static yk_status test_exchange(yk_comm *c, const yk_transfer *list, int n, yk_stream *stream)
{
    return send_parcel((parcel){.comm = c}, list, n, stream);
}

/* To and from every other index: `own` goes out, what comes lies at base + index * bytes. */
static yk_status to_all(parcel p, void *own, void *base, int64_t bytes, yk_stream *stream)
{
    yk_transfer list[2 * 64];
    int n = 0;
    for (int i = 0; i < p.comm->size; i++) {
        if (i == p.comm->index) continue;
        list[n++] = (yk_transfer){own, bytes, i, true};
        list[n++] = (yk_transfer){(char *)base + i * bytes, bytes, i, false};
    }
    return send_parcel(p, list, n, stream);
}

static yk_status test_gather(yk_comm *c, void *full, int64_t bytes, yk_stream *stream)
{
    return to_all((parcel){.comm = c}, (char *)full + c->index * bytes, full, bytes, stream);
}

static const yk_carrier carrier = {
    .exchange = test_exchange,
    .gather = test_gather,
};

/* ---- groups ------------------------------------------------------------------------------- */

typedef struct sums {
    rank_group group;
    yk_exact exact;
    int64_t n_flushed;
    int n_nodes;
    int ranks[64];
} sums;

/* Chunks of 128 elements, so that few elements make many of them. */
static void open_sums(rank_rig *r, sums *s, yk_axis axis, yk_dtype wire, int64_t max_count,
                      sums *whole)
{
    *s = (sums){0};
    s->group = whole ? rank_group_open_part(r, axis, &whole->group, max_count)
                     : rank_group_open(r, axis, YK_REDUCE_EXACT, wire, max_count, 30);
    yk_comm *c = s->group.comm;
    if (c->chunk > 128) c->chunk = 128;
    s->n_nodes = c->n_nodes;
    memcpy(s->ranks, c->ranks, (size_t)c->size * sizeof *c->ranks);
    s->exact = (yk_exact){.comm = c, .carrier = &carrier, .n_flushed = &s->n_flushed};
    EXPECT(r, yk_exact_init(&s->exact) == YK_OK);
}

static void close_sums(sums *s)
{
    yk_exact_fini(&s->exact);
    rank_group_close(&s->group);
}

static ref_case make_case(const sums *s, uint64_t seed, ref_values values, yk_dtype dtype,
                          int64_t count)
{
    const yk_comm *c = s->group.comm;
    return (ref_case){.seed = seed,
                      .values = values,
                      .dtype = dtype,
                      .wire = yk_comm_wire_for(c, dtype),
                      .n_local = c->size / c->n_nodes,
                      .n_nodes = c->n_nodes,
                      .n = c->size * count,
                      .ranks = s->ranks};
}

static void reduce(rank_rig *r, sums *s, const ref_case *c, void *shard, void *full,
                   bool accumulate)
{
    yk_reduction sum = {.full = full,
                        .shard = shard,
                        .count = c->n / s->group.comm->size,
                        .dtype = c->dtype,
                        .wire = c->wire,
                        .accumulate = accumulate};
    EXPECT(r, yk_exact_run(&s->exact, &sum, r->reduce) == YK_OK);
}

/* ---- one group ---------------------------------------------------------------------------- */

/* Way 0 keeps a shard in its place, 1 elsewhere, 2 adds it to what is there; 3 gives all to all. */
static void check_sum(rank_rig *r, sums *s, const ref_case *c, int way)
{
    int exponent = ref_exponent(c);
    int64_t count = c->n / s->group.comm->size, element = yk_dtype_bytes(c->dtype);
    int64_t first = way == 3 ? 0 : s->group.comm->index * count, n = way == 3 ? c->n : count;
    char *full = malloc((size_t)(c->n * element) + 64), *apart = malloc((size_t)(n * element) + 64);
    EXPECT(r, full && apart);
    ref_case old = *c;
    old.seed += 1000000;
    old.values = REF_NORMAL;
    ref_fill(c, r->rank, 0, c->n, full);
    ref_fill(&old, r->rank, 0, n, apart);
    char *shard = way == 0 ? full + first * element : way == 3 ? NULL : apart;
    s->n_flushed = 0;
    reduce(r, s, c, shard, full, way == 2);
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    for (int64_t i = 0; i < n; i++) {
        float expected = ref_sum(c, first + i, exponent);
        if (way == 2) expected = ref_input(&old, r->rank, i) + expected;
        EXPECT(r, ref_same(c->dtype, shard ? shard : full, i, expected));
    }
    bool packs = c->wire != c->dtype || c->wire == YK_F16;
    EXPECT(r, s->n_flushed == (packs ? ref_n_flushed(c, r->rank, exponent) : 0));
    free(full);
    free(apart);
}

static void one_group(rank_rig *r, yk_axis axis, yk_dtype wire)
{
    static const int64_t counts[] = {1, 127, 129, 777};
    sums s;
    uint64_t seed = 1;
    open_sums(r, &s, axis, wire, r->size * 777, NULL);
    for (int t = 0; t < YK_N_FLOAT_DTYPES && s.group.comm->size > 1; t++)
        for (int v = 0; v < REF_N_VALUES; v++)
            for (int n = 0; n < 4; n++) {
                ref_case c = make_case(&s, seed++, (ref_values)v, (yk_dtype)t, counts[n]);
                check_sum(r, &s, &c, (n + v) % 3);
                check_sum(r, &s, &c, 3);
            }
    close_sums(&s);
}

/* ---- many at once, and two groups --------------------------------------------------------- */

/* Sums that follow each other without the host waiting use the same slots and events. */
static void many_sums(rank_rig *r, yk_dtype dtype, yk_dtype wire)
{
    enum { MANY = 12 };
    sums s;
    char *full[MANY];
    ref_case c[MANY];
    open_sums(r, &s, YK_AXIS_WORLD, wire, r->size * 777, NULL);
    for (int i = 0; i < MANY; i++) {
        c[i] = make_case(&s, 100u + (uint64_t)i, REF_NORMAL, dtype, 40 + 61 * i);
        full[i] = malloc((size_t)(c[i].n * yk_dtype_bytes(dtype)));
        EXPECT(r, full[i]);
        ref_fill(&c[i], r->rank, 0, c[i].n, full[i]);
    }
    for (int i = 0; i < MANY; i++) reduce(r, &s, &c[i], NULL, full[i], false);
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    for (int i = 0; i < MANY; i++) {
        int exponent = ref_exponent(&c[i]);
        for (int64_t k = 0; k < c[i].n; k++)
            EXPECT(r, ref_same(dtype, full[i], k, ref_sum(&c[i], k, exponent)));
        free(full[i]);
    }
    close_sums(&s);
}

/* Summed in the node and then across, a buffer has the bits of one sum over all. */
static void two_groups(rank_rig *r, yk_dtype dtype, yk_dtype wire)
{
    int local = yk_world_local_size(r->world), nodes = yk_world_n_nodes(r->world);
    int64_t n = r->size * (int64_t)400, own = n / local, element = yk_dtype_bytes(dtype);
    sums whole, node, across;
    open_sums(r, &whole, YK_AXIS_WORLD, wire, n, NULL);
    open_sums(r, &node, YK_AXIS_NODE, wire, n, &whole);
    open_sums(r, &across, YK_AXIS_ACROSS, wire, own, &whole);
    ref_case c = make_case(&whole, 900, REF_WIDE, dtype, n / r->size);
    ref_case in_node = make_case(&node, 900, REF_WIDE, dtype, own);
    ref_case between = make_case(&across, 900, REF_WIDE, dtype, own / nodes);
    int64_t first = node.group.comm->index * own;
    char *full = malloc((size_t)(n * element));
    EXPECT(r, full);
    ref_fill(&c, r->rank, 0, n, full);
    reduce(r, &node, &in_node, full + first * element, full, false);
    reduce(r, &across, &between, NULL, full + first * element, false);
    EXPECT(r, yk_stream_synchronize(r->reduce) == YK_OK);
    int exponent = ref_exponent(&c);
    for (int64_t i = first; i < first + own; i++)
        EXPECT(r, ref_same(dtype, full, i, ref_sum(&c, i, exponent)));
    free(full);
    close_sums(&across);
    close_sums(&node);
    close_sums(&whole);
}

int main(void)
{
    rank_rig r;
    rank_open(&r);
    for (int w = 0; w < YK_N_FLOAT_DTYPES; w++) {
        one_group(&r, YK_AXIS_WORLD, (yk_dtype)w);
        many_sums(&r, YK_F32, (yk_dtype)w);
    }
    int nodes = yk_world_n_nodes(r.world), local = yk_world_local_size(r.world);
    if (nodes > 1 && local > 1) {
        one_group(&r, YK_AXIS_NODE, YK_BF16);
        one_group(&r, YK_AXIS_ACROSS, YK_F16);
        two_groups(&r, YK_F32, YK_F16);
        two_groups(&r, YK_F32, YK_BF16);
        two_groups(&r, YK_F16, YK_F16);
    }
    if (r.rank == 0) printf("passed on %d ranks, %d nodes\n", r.size, nodes);
    rank_close(&r);
    return 0;
}
