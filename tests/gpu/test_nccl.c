/* tests/gpu/test_nccl.c - the nccl backend on one GPU: every call of NCCL that a collective makes, in a
 * group of one rank, which the dispatcher would have given to `self`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl_layout.h"
#include "runtime/device/ops.h"
#include "runtime/device/wire.h"
#include "tests/runtime/device/op_case.h"

#define N 100003

typedef struct rig {
    yk_device *device;
    yk_stream *compute, *gather, *reduce;
    yk_comm comm;
    int rank;
    int64_t staging_bytes;
    void *full, *apart; /* (N) fp32, device memory */
} rig;

static void *take(rig *r, int64_t bytes)
{
    void *p;
    assert_int_equal(yk_device_alloc(r->device, YK_MEMORY_DEVICE, bytes, &p), YK_OK);
    return p;
}

static yk_status open_group(rig *r, yk_reduce_choice reduce, yk_dtype wire)
{
    yk_comm *c = &r->comm;
    *c = (yk_comm){.backend = &yk_comm_nccl,
                   .stands_for = &yk_comm_nccl,
                   .size = 1,
                   .n_local = 1,
                   .n_nodes = 1,
                   .node_ranks = 1,
                   .ranks = &r->rank};
    c->o = (yk_comm_options){
        .device = r->device, .reduce = reduce, .wire = wire, .max_count = N, .timeout_s = 60};
    c->chunk = 4096; /* so that there are many steps */
    r->staging_bytes = yk_comm_nccl_lay_out(c).bytes;
    c->staging = take(r, r->staging_bytes);
    return yk_comm_create_state(c);
}

static void close_group(rig *r)
{
    yk_comm_destroy_state(&r->comm);
    yk_device_free(r->device, YK_MEMORY_DEVICE, r->staging_bytes, r->comm.staging);
}

static int open_rig(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_int_equal(yk_device_open_cuda(0, &r->device), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_COMPUTE, "compute", &r->compute), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_TRANSFER, "gather", &r->gather), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_TRANSFER, "reduce", &r->reduce), YK_OK);
    r->full = take(r, N * 4);
    r->apart = take(r, N * 4);
    *state = r;
    return 0;
}

static int close_rig(void **state)
{
    rig *r = *state;
    yk_device_free(r->device, YK_MEMORY_DEVICE, N * 4, r->full);
    yk_device_free(r->device, YK_MEMORY_DEVICE, N * 4, r->apart);
    yk_stream_destroy(r->compute);
    yk_stream_destroy(r->gather);
    yk_stream_destroy(r->reduce);
    yk_device_close(r->device);
    free(r);
    return 0;
}

static void copy(yk_stream *s, void *to, const void *from, int64_t bytes, yk_copy_kind kind)
{
    assert_int_equal(yk_copy(s, to, from, bytes, kind), YK_OK);
    assert_int_equal(yk_stream_synchronize(s), YK_OK);
}

/* Gradients that fp16 needs a scale for; one in a thousand is lost with it. */
static void fill(void *x, yk_dtype t)
{
    for (int64_t i = 0; i < N; i++) {
        double v = sin((double)i) * ldexp(1, i % 1000 == 7 ? -90 : -30);
        yk_store_f32(x, i, t, (float)v);
    }
}

/* A sum over one rank is what went over the wire. */
static void sum_case(rig *r, yk_reduce_choice reduce, yk_dtype t, yk_dtype wire, int way)
{
    int64_t bytes = N * yk_dtype_bytes(t);
    void *host = malloc(N * 4), *want = malloc(N * 4), *got = malloc(N * 4);
    assert_true(host && want && got);
    assert_int_equal(open_group(r, reduce, wire), YK_OK);
    fill(host, t);
    copy(r->reduce, r->full, host, bytes, YK_COPY_HOST_TO_DEVICE);
    copy(r->reduce, r->apart, host, bytes, YK_COPY_HOST_TO_DEVICE);
    void *shard = way == 0 ? r->full : way == 3 ? NULL : r->apart;
    yk_reduction sum = {.full = r->full,
                        .shard = shard,
                        .count = N,
                        .dtype = t,
                        .wire = wire,
                        .accumulate = way == 2};
    assert_int_equal(r->comm.backend->reduce(&r->comm, &sum, r->reduce), YK_OK);
    copy(r->reduce, got, shard ? shard : r->full, bytes, YK_COPY_DEVICE_TO_HOST);

    float most = yk_wire_greatest(host, N, t);
    int exponent = wire == YK_F16 ? yk_wire_scale_exponent(most, 1) : 0;
    memcpy(want, host, (size_t)bytes);
    int64_t flushed = yk_wire_pack(host, wire, host, t, N, exponent);
    yk_wire_unpack(want, t, host, wire, N, exponent, way == 2);
    assert_memory_equal(got, want, (size_t)bytes);
    yk_comm_counts counts = yk_comm_get_counts(&r->comm);
    assert_int_equal(counts.n_flushed, flushed);
    assert_int_equal(counts.n_collectives, 1);
    assert_int_equal(counts.bytes_sent, 0);
    assert_true(counts.busy_s > 0);
    if (wire == YK_F16 && t == YK_F32) assert_true(flushed > 0);
    close_group(r);
    free(host);
    free(want);
    free(got);
}

static void a_sum_over_one_rank_is_what_went_over_the_wire(void **state)
{
    static const struct {
        yk_dtype t, wire;
    } pairs[] = {{YK_F32, YK_F32},
                 {YK_F32, YK_BF16},
                 {YK_F32, YK_F16},
                 {YK_BF16, YK_BF16},
                 {YK_BF16, YK_F16}};
    for (int p = 0; p < 5; p++) {
        sum_case(*state, YK_REDUCE_EXACT, pairs[p].t, pairs[p].wire, p % 4);
        sum_case(*state, YK_REDUCE_RING, pairs[p].t, pairs[p].wire, (p + 2) % 4);
    }
    sum_case(*state, YK_REDUCE_EXACT, YK_F32, YK_F16, 3);
    sum_case(*state, YK_REDUCE_RING, YK_F32, YK_BF16, 0);
}

static void buffers_and_values_come_through(void **state)
{
    rig *r = *state;
    float host[1000], got[1000];
    assert_int_equal(open_group(r, YK_REDUCE_EXACT, YK_F32), YK_OK);
    yk_comm *c = &r->comm;
    for (int i = 0; i < 1000; i++) host[i] = (float)i;
    copy(r->gather, r->apart, host, sizeof host, YK_COPY_HOST_TO_DEVICE);
    assert_int_equal(c->backend->all_gather(c, r->full, r->apart, sizeof host, r->gather), YK_OK);
    assert_int_equal(c->backend->broadcast(c, r->full, sizeof host, 0, r->gather), YK_OK);
    copy(r->gather, got, r->full, sizeof got, YK_COPY_DEVICE_TO_HOST);
    assert_memory_equal(got, host, sizeof host);

    yk_step_values mine = {.loss_sum = 1.5, .sum_squares = 2.5, .n_tokens = 7, .lr = 3}, back;
    copy(r->compute, r->full, &mine, sizeof mine, YK_COPY_HOST_TO_DEVICE);
    for (int i = 0; i < 3; i++) { /* from one stream to the other, in one lane */
        yk_stream *s = i == 1 ? r->reduce : r->compute;
        assert_int_equal(c->backend->all_reduce_values(c, r->full, s), YK_OK);
        assert_int_equal(c->backend->barrier(c, r->reduce), YK_OK);
    }
    assert_int_equal(yk_stream_synchronize(r->reduce), YK_OK);
    copy(r->compute, &back, r->full, sizeof back, YK_COPY_DEVICE_TO_HOST);
    assert_memory_equal(&back, &mine, sizeof mine);
    assert_int_equal(yk_comm_get_counts(c).n_collectives, 8);
    close_group(r);
}

/* More collectives than the ring of those under way has places. */
static void many_collectives_are_counted(void **state)
{
    rig *r = *state;
    assert_int_equal(open_group(r, YK_REDUCE_EXACT, YK_F32), YK_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(r->comm.backend->barrier(&r->comm, r->reduce), YK_OK);
    assert_int_equal(yk_stream_synchronize(r->reduce), YK_OK);
    assert_int_equal(yk_comm_get_counts(&r->comm).n_collectives, 1000);
    close_group(r);
}

/* 0, or 77 where NCCL is not there. */
static int nccl_missing(void)
{
    void *state;
    (void)open_rig(&state);
    yk_status opened = open_group(state, YK_REDUCE_EXACT, YK_F32);
    if (opened == YK_OK) close_group(state);
    (void)close_rig(&state);
    return opened == YK_EUNSUPPORTED ? 77 : 0;
}

int main(void)
{
    if (op_device_missing() || nccl_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sum_over_one_rank_is_what_went_over_the_wire, open_rig,
                                        close_rig),
        cmocka_unit_test_setup_teardown(buffers_and_values_come_through, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(many_collectives_are_counted, open_rig, close_rig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
