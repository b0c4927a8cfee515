/* tests/comm/test_hostmem.c - groups over host memory that ranks share, as they are planned: who gets one,
 * what it takes, and how long its collectives are.
 *
 * Groups of real ranks are tested in tests/ranks/comm/.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "comm/backend.h"
#include "comm/race.h"
#include "runtime/base/arith.h"

typedef struct rig {
    yk_device *device;
    yk_stream *gather, *reduce;
    yk_arena *arena;
    yk_comm *comm;
    bool shares_gpu;
    const yk_race *race;
} rig;

#define RATE 25e9 /* with both ways of all links in use: four fifths of one alone */

static void open_device(rig *x)
{
    yk_device_spec spec;
    *x = (rig){0};
    assert_int_equal(yk_device_spec_find("4090", &spec), YK_OK);
    spec.launch_s = 0;
    spec.memory_rate = 1e15; /* the links decide */
    spec.host_link_rate = RATE / 0.87;
    assert_int_equal(yk_device_open_dry(&spec, &x->device), YK_OK);
    assert_int_equal(yk_stream_create(x->device, YK_STREAM_TRANSFER, "gather", &x->gather), YK_OK);
    assert_int_equal(yk_stream_create(x->device, YK_STREAM_TRANSFER, "reduce", &x->reduce), YK_OK);
    assert_int_equal(
        yk_arena_create(x->device, "staging", YK_MEMORY_DEVICE, YK_ARENA_MEASURE, 0, &x->arena),
        YK_OK);
}

static yk_status create(const rig *x, int ranks, int node_size, yk_comm_choice backend,
                        yk_axis axis, yk_comm *whole, yk_dtype wire, int64_t max_count,
                        yk_comm **comm_out)
{
    yk_topology t = {ranks, node_size, RATE / 2, 1e-5, 1e9, 1e-4, ""};
    return yk_comm_create(&(yk_comm_options){.device = x->device,
                                             .backend = backend,
                                             .topology = &t,
                                             .axis = axis,
                                             .whole = whole,
                                             .shares_gpu = x->shares_gpu,
                                             .wire = wire,
                                             .max_count = max_count,
                                             .staging = x->arena,
                                             .race = x->race},
                          comm_out);
}

static rig open_rig_of(int ranks, yk_comm_choice backend, int64_t max_count, bool shares_gpu)
{
    rig x;
    open_device(&x);
    x.shares_gpu = shares_gpu;
    assert_int_equal(
        create(&x, ranks, ranks, backend, YK_AXIS_WORLD, NULL, YK_BF16, max_count, &x.comm), YK_OK);
    return x;
}

static rig open_rig(int ranks, yk_comm_choice backend, int64_t max_count)
{
    return open_rig_of(ranks, backend, max_count, false);
}

static void close_rig(rig *x)
{
    yk_comm_destroy(x->comm);
    yk_arena_destroy(x->arena);
    yk_stream_destroy(x->gather);
    yk_stream_destroy(x->reduce);
    yk_device_close(x->device);
}

static const char *backend_of(const rig *x, int node_size, yk_axis axis, yk_comm *whole,
                              yk_dtype wire)
{
    yk_comm *c;
    assert_int_equal(create(x, 8, node_size, YK_COMM_HOSTMEM, axis, whole, wire, 8 << 10, &c),
                     YK_OK);
    const char *name = yk_comm_backend_name(c);
    yk_comm_destroy(c);
    return name;
}

static void host_memory_joins_the_ranks_of_one_node(void **state)
{
    (void)state;
    rig x;
    yk_comm *whole;
    open_device(&x);
    assert_string_equal(backend_of(&x, 8, YK_AXIS_WORLD, NULL, YK_F16), "hostmem");
    assert_string_equal(backend_of(&x, 4, YK_AXIS_WORLD, NULL, YK_F16), "hostmem+nccl");
    assert_string_equal(backend_of(&x, 4, YK_AXIS_NODE, NULL, YK_F16), "hostmem");
    assert_string_equal(backend_of(&x, 4, YK_AXIS_ACROSS, NULL, YK_F16), "nccl");
    assert_string_equal(backend_of(&x, 1, YK_AXIS_NODE, NULL, YK_F16), "self");
    assert_int_equal(create(&x, 8, 4, YK_COMM_HOSTMEM, YK_AXIS_WORLD, NULL, YK_F16, 0, &whole),
                     YK_OK);
    assert_string_equal(backend_of(&x, 4, YK_AXIS_NODE, whole, YK_F16), "hostmem");
    assert_string_equal(backend_of(&x, 1, YK_AXIS_WORLD, NULL, YK_F16), "nccl");
    yk_comm_destroy(whole);
    close_rig(&x);
}

static void a_backend_for_another_device_is_refused(void **state)
{
    (void)state;
    rig x;
    open_device(&x);
    yk_comm *c = NULL;
    assert_int_equal(create(&x, 4, 4, YK_COMM_MPI, YK_AXIS_WORLD, NULL, YK_F32, 100, &c),
                     YK_EINVAL);
    assert_null(c);
    close_rig(&x);
}

/* It grows with what is reduced and the number of ranks, and no further than it has to. */
static void what_it_takes_is_bounded(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 16; ranks *= 2) {
        for (int shares = 0; shares < 2; shares++) {
            int64_t unit = (int64_t)(1 + shares) << 20;
            rig large = open_rig_of(ranks, YK_COMM_HOSTMEM, (int64_t)1 << 34, shares);
            int64_t device = yk_arena_used(large.arena), host = yk_comm_shared_bytes(large.comm);
            assert_in_range(device, 48 * unit, 128 * unit);
            assert_in_range(host, 48 * unit, 112 * unit);
            close_rig(&large);
        }
        rig small = open_rig(ranks, YK_COMM_HOSTMEM, ranks);
        assert_in_range(yk_arena_used(small.arena), 1, 64 << 10);
        assert_in_range(yk_comm_shared_bytes(small.comm), 1, 512 << 10);
        close_rig(&small);
        rig other = open_rig(ranks, YK_COMM_NCCL, ranks);
        assert_int_equal(yk_comm_shared_bytes(other.comm), 0);
        close_rig(&other);
    }
}

/* A copy with its words costs what half a megabyte does: long shards go in long chunks. What GPUs have on its
 * way stays in the processor's cache; where they are one GPU, chunks are longer. */
static void long_shards_travel_in_long_chunks(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (int shares = 0; shares < 2; shares++) {
            int64_t shard = (int64_t)512 << 20;
            rig x = open_rig_of(ranks, YK_COMM_HOSTMEM, ranks * shard / 2, shares);
            int64_t gathered = yk_comm_hostmem_gather_chunk(x.comm, shard),
                    summed = 2 * yk_comm_hostmem_chunk(x.comm, shard / 2, YK_BF16);
            assert_int_equal(gathered, (shares ? 16 : 8) << 20);
            assert_int_equal(summed, yk_min(gathered, ((shares ? 32 : 16) << 20) / ranks));
            int64_t last = shard;
            for (; shard >= 1 << 20; shard /= 4) {
                int64_t chunk = yk_comm_hostmem_gather_chunk(x.comm, shard);
                assert_true(chunk <= last && (chunk - 256) * (chunk - 256) < shard
                                                                                 << (19 + shares));
                last = chunk;
            }
            close_rig(&x);
        }
}

/* Slots are whole pages: a chunk whose length is rounded up beyond its slot would run into the next one. */
static void the_longest_chunk_fills_its_slot(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 16; ranks++)
        for (int shares = 0; shares < 2; shares++) {
            rig x = open_rig_of(ranks, YK_COMM_HOSTMEM, (int64_t)1 << 34, shares);
            int64_t longest = yk_comm_hostmem_gather_chunk(x.comm, (int64_t)1 << 33);
            assert_in_range(longest, 4 << 20, 16 << 20);
            assert_int_equal(longest % 4096, 0);
            close_rig(&x);
        }
}

/* Chunks of gathers and of sums by lengths that were measured: within what there is room for by the rule. */
static void chunks_are_as_long_as_was_measured(void **state)
{
    (void)state;
    rig plain = open_rig(2, YK_COMM_HOSTMEM, (int64_t)1 << 34), x;
    yk_race race = {.n_rows = 2,
                    .rows = {{.kind = YK_RACE_GATHER, .count = 1 << 20},
                             {.kind = YK_RACE_ALL_REDUCE, .count = 1 << 20}}};
    open_device(&x);
    x.race = &race;
    assert_int_equal(
        create(&x, 2, 2, YK_COMM_HOSTMEM, YK_AXIS_WORLD, NULL, YK_BF16, (int64_t)1 << 34, &x.comm),
        YK_OK);
    int64_t gathered = yk_comm_hostmem_gather_chunk(plain.comm, 8 << 20),
            summed = yk_comm_hostmem_chunk(plain.comm, 4 << 20, YK_BF16);
    assert_int_equal(gathered, 2 << 20);
    assert_int_equal(summed, 1 << 20);
    for (int in_gathers = -8; in_gathers <= 8; in_gathers++) {
        int in_sums = -in_gathers;
        race.rows[0].doublings = in_gathers;
        race.rows[1].doublings = in_sums;
        int64_t by_gathers = (int64_t)ldexp((double)gathered, in_gathers),
                by_sums = (int64_t)ldexp((double)summed, in_sums);
        assert_int_equal(yk_comm_hostmem_gather_chunk(x.comm, 8 << 20),
                         yk_max(64 << 10, yk_min(by_gathers, 8 << 20)));
        assert_int_equal(yk_comm_hostmem_chunk(x.comm, 4 << 20, YK_BF16),
                         yk_max(32 << 10, yk_min(by_sums, 4 << 20)));
        assert_int_equal(yk_comm_chunk_bytes(x.comm, true, 8 << 20),
                         yk_comm_hostmem_gather_chunk(x.comm, 8 << 20));
        assert_int_equal(yk_comm_chunk_bytes(x.comm, false, 8 << 20),
                         2 * yk_comm_hostmem_chunk(x.comm, 4 << 20, YK_BF16));
        assert_int_equal(yk_arena_used(x.arena), yk_arena_used(plain.arena));
        assert_int_equal(yk_comm_shared_bytes(x.comm), yk_comm_shared_bytes(plain.comm));
    }
    close_rig(&x);
    close_rig(&plain);
}

static void what_is_shorter_than_a_chunk_travels_at_once(void **state)
{
    (void)state;
    rig x = open_rig(2, YK_COMM_HOSTMEM, 1 << 20), other = open_rig(2, YK_COMM_NCCL, 1 << 20);
    for (int gathers = 0; gathers < 2; gathers++) {
        assert_int_equal(yk_comm_chunk_bytes(x.comm, gathers, 1000), 1000);
        assert_int_equal(yk_comm_chunk_bytes(other.comm, gathers, 1000), 0); /* it does not tell */
    }
    close_rig(&other);
    close_rig(&x);
}

static void expect_about(double got, double expected, double slack)
{
    if (got < expected || got > expected * (1 + slack)) fail_msg("%.6g, not %.6g", got, expected);
}

/* A shard of 64 MiB and 7 more of it come by a link of 25 GB/s; a sum takes as much, twice for all. */
static void a_link_brings_what_the_others_have(void **state)
{
    (void)state;
    int64_t count = 32 << 20;
    double all = 7 * 2.0 * (double)count / RATE;
    rig x = open_rig(8, YK_COMM_HOSTMEM, 8 * count);
    char *full = (char *)x.device;
    assert_int_equal(yk_comm_all_gather(x.comm, full, full, count, YK_BF16, x.gather), YK_OK);
    double gathered = yk_stream_now(x.gather);
    expect_about(gathered, all, 0.05);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, full, full, count, YK_BF16, false, x.gather),
                     YK_OK);
    double scattered = yk_stream_now(x.gather);
    expect_about(scattered - gathered, all, 0.1);
    assert_int_equal(yk_comm_all_reduce(x.comm, full, count, YK_BF16, x.gather), YK_OK);
    expect_about(yk_stream_now(x.gather) - scattered, 2 * all, 0.1);
    close_rig(&x);
}

/* A broadcast is read by all at once: it takes as long for 8 ranks as for 2. */
static void a_broadcast_crosses_a_link_once(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        rig x = open_rig(ranks, YK_COMM_HOSTMEM, 1 << 30);
        assert_int_equal(yk_comm_broadcast(x.comm, (char *)x.device, (int64_t)1 << 30, 0, x.gather),
                         YK_OK);
        expect_about(yk_stream_now(x.gather), 0x1p30 / RATE, 0.1);
        close_rig(&x);
    }
}

/* A gather and a reduction that begin together end after the time of both. */
static void streams_share_the_link_of_a_gpu(void **state)
{
    (void)state;
    static const yk_comm_choice backends[] = {YK_COMM_HOSTMEM, YK_COMM_NCCL};
    for (int b = 0; b < 2; b++) {
        int64_t count = 8 << 20;
        rig x = open_rig(4, backends[b], 4 * count);
        char *full = (char *)x.device;
        assert_int_equal(yk_comm_all_gather(x.comm, full, full, count, YK_BF16, x.gather), YK_OK);
        double alone = yk_stream_now(x.gather);
        assert_int_equal(
            yk_comm_reduce_scatter(x.comm, full, full, count, YK_BF16, false, x.reduce), YK_OK);
        expect_about(yk_stream_now(x.reduce), 2 * alone, 0.2);
        assert_true(yk_stream_now(x.gather) == alone);
        close_rig(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_joins_the_ranks_of_one_node),
        cmocka_unit_test(a_backend_for_another_device_is_refused),
        cmocka_unit_test(what_it_takes_is_bounded),
        cmocka_unit_test(long_shards_travel_in_long_chunks),
        cmocka_unit_test(chunks_are_as_long_as_was_measured),
        cmocka_unit_test(what_is_shorter_than_a_chunk_travels_at_once),
        cmocka_unit_test(the_longest_chunk_fills_its_slot),
        cmocka_unit_test(a_link_brings_what_the_others_have),
        cmocka_unit_test(a_broadcast_crosses_a_link_once),
        cmocka_unit_test(streams_share_the_link_of_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
