/* tests/comm/test_comm.c - groups of one rank, groups of described ranks, and what a group refuses.
 *
 * Groups of several real ranks are tested in tests/ranks/comm/.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "comm/comm.h"

typedef struct rig {
    yk_device *device;
    yk_stream *stream;
    yk_arena *arena;
    yk_comm *comm;
} rig;

/* described  the name of a device that is to be counted for; NULL: a real one */
static void open_as(rig *x, const char *described)
{
    yk_device_spec spec;
    *x = (rig){0};
    if (described) {
        assert_int_equal(yk_device_spec_find(described, &spec), YK_OK);
        spec.launch_s = 0;
        spec.memory_rate = 1e15; /* the links decide */
        assert_int_equal(yk_device_open_dry(&spec, &x->device), YK_OK);
    } else {
        assert_int_equal(yk_device_open_cpu(1, &x->device), YK_OK);
    }
    assert_int_equal(yk_stream_create(x->device, YK_STREAM_TRANSFER, "comm", &x->stream), YK_OK);
    assert_int_equal(yk_arena_create(x->device, "staging", YK_MEMORY_DEVICE,
                                     described ? YK_ARENA_MEASURE : 1 << 20, 0, &x->arena),
                     YK_OK);
}

static void open_device(rig *x, bool dry)
{
    open_as(x, dry ? "4090d" : NULL);
}

static void close_rig(rig *x)
{
    yk_comm_destroy(x->comm);
    yk_arena_destroy(x->arena);
    yk_stream_destroy(x->stream);
    yk_device_close(x->device);
}

static yk_comm_options options_of(const rig *x, const yk_topology *topology, yk_axis axis,
                                  yk_dtype wire, int64_t max_count)
{
    return (yk_comm_options){.device = x->device,
                             .topology = topology,
                             .axis = axis,
                             .wire = wire,
                             .max_count = max_count,
                             .staging = x->arena,
                             .timeout_s = 10};
}

/* ---- one rank ----------------------------------------------------------------------------- */

static rig open_alone(bool dry, yk_dtype wire)
{
    rig x;
    open_device(&x, dry);
    yk_comm_options o = options_of(&x, NULL, YK_AXIS_WORLD, wire, 1000);
    assert_int_equal(yk_comm_create(&o, &x.comm), YK_OK);
    return x;
}

static void one_rank_is_a_group(void **state)
{
    (void)state;
    for (int dry = 0; dry < 2; dry++) {
        rig x = open_alone(dry, YK_F16);
        assert_int_equal(yk_comm_size(x.comm), 1);
        assert_int_equal(yk_comm_index(x.comm), 0);
        assert_int_equal(yk_comm_rank(x.comm, 0), 0);
        assert_int_equal(yk_arena_used(x.arena), 0);
        close_rig(&x);
    }
}

/* Nothing travels, so nothing is rounded to the wire. */
static void collectives_of_one_rank_copy_at_most(void **state)
{
    (void)state;
    rig x = open_alone(false, YK_F16);
    float full[3] = {1.000001f, -1e30f, 5}, shard[3] = {0}, sum[3] = {1, 2, 3};
    float before[3];
    memcpy(before, full, sizeof full);
    yk_step_values v = {.loss_sum = 3, .sum_squares = 4, .n_tokens = 5, .non_finite = 1}, old = v;
    assert_int_equal(yk_comm_all_reduce(x.comm, full, 3, YK_F32, x.stream), YK_OK);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, full, full, 3, YK_F32, false, x.stream), YK_OK);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, shard, full, 3, YK_F32, false, x.stream),
                     YK_OK);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, sum, full, 3, YK_F32, true, x.stream), YK_OK);
    assert_int_equal(yk_comm_all_gather(x.comm, full, full, 3, YK_F32, x.stream), YK_OK);
    assert_int_equal(yk_comm_broadcast(x.comm, full, 12, 0, x.stream), YK_OK);
    assert_int_equal(yk_comm_all_reduce_values(x.comm, &v, x.stream), YK_OK);
    assert_int_equal(yk_comm_barrier(x.comm, x.stream), YK_OK);
    assert_int_equal(yk_stream_synchronize(x.stream), YK_OK);
    assert_memory_equal(full, before, sizeof full);
    assert_memory_equal(shard, full, sizeof full);
    for (int i = 0; i < 3; i++) assert_true(sum[i] == (float)(i + 1) + full[i]);
    assert_memory_equal(&v, &old, sizeof v);
    memset(shard, 0, sizeof shard);
    assert_int_equal(yk_comm_all_gather(x.comm, shard, full, 3, YK_F32, x.stream), YK_OK);
    assert_int_equal(yk_stream_synchronize(x.stream), YK_OK);
    assert_memory_equal(shard, full, sizeof full);
    assert_int_equal(yk_comm_get_counts(x.comm).bytes_sent, 0);
    close_rig(&x);
}

static void one_described_rank_takes_the_time_of_a_copy(void **state)
{
    (void)state;
    rig x = open_alone(true, YK_F32);
    char *full = (char *)x.device, *shard = full + 4096;
    assert_int_equal(yk_comm_all_reduce(x.comm, full, 1000, YK_F32, x.stream), YK_OK);
    assert_true(yk_stream_now(x.stream) == 0);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, shard, full, 1000, YK_F32, false, x.stream),
                     YK_OK);
    assert_true(fabs(yk_stream_now(x.stream) - 8000 / 1e15) < 1e-18);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, shard, full, 1000, YK_F32, true, x.stream),
                     YK_OK);
    assert_true(fabs(yk_stream_now(x.stream) - 20000 / 1e15) < 1e-18);
    close_rig(&x);
}

static void arguments_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    rig x = open_alone(false, YK_F32);
    float full[8] = {0}, shard[8] = {0};
    assert_int_equal(yk_comm_all_gather(x.comm, full, shard, -1, YK_F32, x.stream), YK_EINVAL);
    assert_int_equal(yk_comm_all_gather(x.comm, NULL, shard, 1, YK_F32, x.stream), YK_EINVAL);
    assert_int_equal(yk_comm_all_gather(x.comm, full, full + 1, 4, YK_F32, x.stream), YK_EINVAL);
    assert_int_equal(yk_comm_all_gather(x.comm, NULL, NULL, 0, YK_F32, x.stream), YK_OK);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, shard, full, 1, YK_I32, false, x.stream),
                     YK_EINVAL);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, shard, full, 1001, YK_F32, false, x.stream),
                     YK_EINVAL);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, full, full, 4, YK_F32, true, x.stream),
                     YK_EINVAL);
    assert_int_equal(yk_comm_reduce_scatter(x.comm, NULL, NULL, 0, YK_F32, true, x.stream), YK_OK);
    assert_int_equal(yk_comm_all_reduce(x.comm, full, -4, YK_F32, x.stream), YK_EINVAL);
    assert_int_equal(yk_comm_all_reduce_values(x.comm, NULL, x.stream), YK_EINVAL);
    assert_int_equal(yk_comm_broadcast(x.comm, full, 4, 1, x.stream), YK_EINVAL);
    assert_int_equal(yk_comm_broadcast(x.comm, full, 4, -1, x.stream), YK_EINVAL);
    assert_int_equal(yk_comm_broadcast(x.comm, full, -4, 0, x.stream), YK_EINVAL);
    yk_comm_destroy(NULL);
    close_rig(&x);
}

/* ---- described ranks ---------------------------------------------------------------------- */

static const yk_topology links = {.ranks = 32,
                                  .node_size = 8,
                                  .node_rate = 20e9,
                                  .node_latency_s = 1e-5,
                                  .across_rate = 10e9,
                                  .across_latency_s = 1e-4};

static void expect_near(double got, double expected)
{
    if (fabs(got - expected) > 1e-9 * expected) fail_msg("%.12g, not %.12g", got, expected);
}

static rig open_described(const yk_topology *topology, yk_axis axis, yk_dtype wire,
                          int64_t max_count)
{
    rig x;
    open_device(&x, true);
    yk_comm_options o = options_of(&x, topology, axis, wire, max_count);
    assert_int_equal(yk_comm_create(&o, &x.comm), YK_OK);
    return x;
}

static void axes_divide_the_described_ranks(void **state)
{
    (void)state;
    static const int sizes[] = {[YK_AXIS_WORLD] = 32, [YK_AXIS_NODE] = 8, [YK_AXIS_ACROSS] = 4};
    for (int axis = YK_AXIS_WORLD; axis <= YK_AXIS_ACROSS; axis++) {
        rig x = open_described(&links, (yk_axis)axis, YK_F32, 0);
        assert_int_equal(yk_comm_size(x.comm), sizes[axis]);
        assert_int_equal(yk_comm_index(x.comm), 0);
        close_rig(&x);
    }
    rig x = open_described(&links, YK_AXIS_WORLD, YK_F32, 0);
    /* Nodes of one local rank lie side by side. */
    for (int i = 0; i < 32; i++) assert_int_equal(yk_comm_rank(x.comm, i), i % 4 * 8 + i / 4);
    close_rig(&x);
}

/* A shard of 1 MB: across to 3 nodes by a link that 8 ranks share, then 4 shards to each of 7. */
static void a_gather_takes_the_time_of_its_links(void **state)
{
    (void)state;
    rig x = open_described(&links, YK_AXIS_WORLD, YK_F32, 0);
    char *full = (char *)x.device;
    assert_int_equal(yk_comm_all_gather(x.comm, full, full, 250000, YK_F32, x.stream), YK_OK);
    double across = 3 * 1e-4 + 3e6 * 8 / 10e9, local = 7 * 1e-5 + 28e6 / 20e9;
    expect_near(yk_stream_now(x.stream), across + local);
    yk_comm_counts counts = yk_comm_get_counts(x.comm);
    assert_int_equal(counts.bytes_sent, 31 * 1000000);
    assert_int_equal(counts.n_collectives, 1);
    assert_true(fabs(counts.busy_s - (across + local)) < 1e-8);
    close_rig(&x);
}

/* Whatever the division into nodes, a rank sends (N-1)/N of a buffer at the wire's width, or of what is
 * narrower, and twice that for everybody. */
static void bytes_are_those_of_a_ring(void **state)
{
    (void)state;
    static const int node_sizes[] = {1, 2, 4, 8, 24};
    for (int s = 0; s < 5; s++)
        for (int w = 0; w < YK_N_FLOAT_DTYPES; w++)
            for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) {
                yk_topology topology = links;
                topology.ranks = 24;
                topology.node_size = node_sizes[s];
                rig x = open_described(&topology, YK_AXIS_WORLD, (yk_dtype)w, 24 * 100000);
                char *full = (char *)x.device;
                yk_dtype wire = yk_comm_wire_for(x.comm, (yk_dtype)t);
                int64_t width = t == YK_F32 && w == YK_F32 ? 4 : 2, count = 100000;
                assert_int_equal(yk_dtype_bytes(wire), width);
                if (t == YK_F32) assert_int_equal(wire, w);
                assert_int_equal(
                    yk_comm_reduce_scatter(x.comm, full, full, count, (yk_dtype)t, false, x.stream),
                    YK_OK);
                assert_int_equal(yk_comm_get_counts(x.comm).bytes_sent, 23 * count * width);
                assert_int_equal(yk_comm_all_reduce(x.comm, full, count, (yk_dtype)t, x.stream),
                                 YK_OK);
                assert_int_equal(yk_comm_get_counts(x.comm).bytes_sent, 3 * 23 * count * width);
                close_rig(&x);
            }
}

static void a_narrower_wire_and_a_node_are_faster(void **state)
{
    (void)state;
    double seconds[3];
    static const int64_t count = 1000000;
    for (int i = 0; i < 3; i++) {
        rig x = open_described(&links, i == 2 ? YK_AXIS_NODE : YK_AXIS_WORLD,
                               i == 0 ? YK_F32 : YK_BF16, 32 * count);
        char *full = (char *)x.device;
        assert_int_equal(yk_comm_all_reduce(x.comm, full, count, YK_F32, x.stream), YK_OK);
        seconds[i] = yk_stream_now(x.stream);
        assert_int_equal(yk_comm_all_reduce_values(x.comm, (void *)full, x.stream), YK_OK);
        assert_int_equal(yk_comm_broadcast(x.comm, full, 100, 0, x.stream), YK_OK);
        assert_int_equal(yk_comm_barrier(x.comm, x.stream), YK_OK);
        assert_true(yk_stream_now(x.stream) > seconds[i]);
        close_rig(&x);
    }
    assert_true(seconds[0] > 1.5 * seconds[1] && seconds[1] > 1.5 * seconds[2]);
}

/* It grows with the number of ranks and no further than it has to for a buffer. */
/* What the largest sums take of staging memory, or sums of `max_count` elements. */
static int64_t staging_of(const char *described, const yk_topology *topology, int64_t max_count)
{
    rig x;
    open_as(&x, described);
    yk_comm_options o = options_of(&x, topology, YK_AXIS_WORLD, YK_F32, max_count);
    assert_int_equal(yk_comm_create(&o, &x.comm), YK_OK);
    int64_t used = yk_arena_used(x.arena);
    close_rig(&x);
    return used;
}

/* `limit` bytes, unless slots of `least` elements, the fewest, need more; `small` bytes beside them. */
static void check_staging(const char *described, int64_t limit, int64_t least, bool gpu)
{
    for (int ranks = 2; ranks <= 4096; ranks *= 2) {
        yk_topology topology = links;
        topology.ranks = ranks;
        topology.node_size = ranks < 8 ? ranks : 8;
        int64_t n_nodes = ranks / topology.node_size;
        int64_t slots = 2 * (topology.node_size + (n_nodes > 1 ? 2 * n_nodes : 0));
        int64_t values = ((int64_t)sizeof(yk_step_values) * ranks + 255) / 256 * 256;
        int64_t small = gpu ? 3 * 256 + values : 0;
        int64_t used = staging_of(described, &topology, (int64_t)1 << 34) - small;
        assert_true(used <= limit + 256 * 4 * slots || used == slots * least * 4);
        assert_int_equal(staging_of(described, &topology, ranks), slots * 128 * 4 + small);
        assert_int_equal(staging_of(described, &topology, 0), small);
    }
}

static void staging_memory_is_bounded(void **state)
{
    (void)state;
    check_staging("cpu", 4 << 20, 16384, false);
    check_staging("4090d", 64 << 20, 65536, true);
}

static void ranks_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    rig x;
    open_device(&x, true);
    static const struct {
        int ranks, node_size;
        double rate, latency;
    } bad[] = {{10, 4, 1e9, 0}, {0, 1, 1e9, 0}, {4, 0, 1e9, 0}, {4, 4, 0, 0}, {4, 4, 1e9, -1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        yk_topology t = {bad[i].ranks, bad[i].node_size, bad[i].rate, bad[i].latency, 1e9, 0, ""};
        yk_comm_options o = options_of(&x, &t, YK_AXIS_WORLD, YK_F32, 100);
        assert_int_equal(yk_comm_create(&o, &x.comm), YK_EINVAL);
    }
    yk_comm_options o = options_of(&x, &links, YK_AXIS_WORLD, YK_F32, INT64_C(1) << 31);
    o.reduce = YK_REDUCE_RING;
    assert_int_equal(yk_comm_create(&o, &x.comm), YK_EINVAL);
    assert_null(x.comm);
    close_rig(&x);
}

static void too_small_an_arena_is_refused(void **state)
{
    (void)state;
    rig x;
    open_device(&x, true);
    yk_arena *small;
    assert_int_equal(yk_arena_create(x.device, "small", YK_MEMORY_DEVICE, 4096, 0, &small), YK_OK);
    yk_comm_options o = options_of(&x, &links, YK_AXIS_WORLD, YK_F32, 1 << 20);
    o.staging = small;
    assert_int_equal(yk_comm_create(&o, &x.comm), YK_ENOMEM);
    assert_null(x.comm);
    yk_arena_destroy(small);
    close_rig(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_is_a_group),
        cmocka_unit_test(collectives_of_one_rank_copy_at_most),
        cmocka_unit_test(one_described_rank_takes_the_time_of_a_copy),
        cmocka_unit_test(arguments_that_do_not_fit_are_refused),
        cmocka_unit_test(axes_divide_the_described_ranks),
        cmocka_unit_test(a_gather_takes_the_time_of_its_links),
        cmocka_unit_test(bytes_are_those_of_a_ring),
        cmocka_unit_test(a_narrower_wire_and_a_node_are_faster),
        cmocka_unit_test(staging_memory_is_bounded),
        cmocka_unit_test(ranks_that_make_no_sense_are_refused),
        cmocka_unit_test(too_small_an_arena_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
