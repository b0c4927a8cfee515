/* tests/runtime/device/test_dry.c - the device that counts: bytes, operations and time by hand.
 *
 * The device has round rates: fp32 products 1e9, bf16 2e9, attention half of that, memory 1e6
 * bytes/s, the host's link 1e5, and 1 ms an operation, so that every time can be read off.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/device/ops.h"
#include "tests/runtime/device/round_rates.h"

typedef struct bench {
    yk_device *device;
    yk_stream *a, *b;
    yk_event *event;
} bench;

static bench open_bench(yk_device_spec spec)
{
    bench x;
    assert_int_equal(yk_device_open_dry(&spec, &x.device), YK_OK);
    assert_int_equal(yk_stream_create(x.device, YK_STREAM_COMPUTE, "compute", &x.a), YK_OK);
    assert_int_equal(yk_stream_create(x.device, YK_STREAM_COMPUTE, "gather", &x.b), YK_OK);
    assert_int_equal(yk_event_create(x.device, &x.event), YK_OK);
    return x;
}

static void close_bench(bench x)
{
    yk_event_destroy(x.event);
    yk_stream_destroy(x.a);
    yk_stream_destroy(x.b);
    yk_device_close(x.device);
}

/* Some memory of the device; nobody looks at it. */
static void *memory_of(bench x)
{
    void *memory;
    assert_int_equal(yk_device_alloc(x.device, YK_MEMORY_DEVICE, 4096, &memory), YK_OK);
    return memory;
}

static void expect_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want))) fail_msg("%.15g should be %.15g", got, want);
}

/* ---- time and counts ---------------------------------------------------------------------- */

static yk_linear_forward_args product_of(void *p, yk_dtype t, int64_t m, int64_t n, int64_t k)
{
    return (yk_linear_forward_args){
        .y = p, .x = p, .w = p, .bias = p, .m = m, .n = n, .k = k, .dtype = t};
}

static void a_sequence_has_the_time_and_counts_of_its_parts(void **state)
{
    (void)state;
    bench x = open_bench(round_rates);
    void *p = memory_of(x);

    /* 2*200*300*500 = 6e7 operations at 1e9: 60 ms. Bytes 4*(100,000 + 150,000 + 60,000 + 300) =
     * 1,241,200 at 1e6: 1.2412 s, which is more. */
    yk_linear_forward_args a = product_of(p, YK_F32, 200, 300, 500);
    assert_int_equal(yk_linear_forward(x.a, &a), YK_OK);
    expect_near(yk_stream_now(x.a), 1.2412 + 0.001);

    /* At 1e3 times the memory rate, the operations are what is left. */
    yk_device_spec fast = round_rates;
    fast.memory_rate = 1e9;
    bench y = open_bench(fast);
    assert_int_equal(yk_linear_forward(y.a, &a), YK_OK);
    expect_near(yk_stream_now(y.a), 0.060 + 0.001);
    a.dtype = YK_BF16;
    assert_int_equal(yk_linear_forward(y.a, &a), YK_OK);
    expect_near(yk_stream_now(y.a), 0.061 + 0.030 + 0.001);

    /* Attention: 2 products * 2 * D * pairs * B * H = 4*16*(100*101/2)*2*3 = 1,939,200 operations
     * at 1e9 (bf16). */
    yk_attention_forward_args at = {.y = p,
                                    .lse = p,
                                    .qkv = p,
                                    .batch = 2,
                                    .seq_len = 100,
                                    .heads = 3,
                                    .kv_heads = 1,
                                    .head_size = 16,
                                    .scale = 1,
                                    .dtype = YK_BF16};
    assert_int_equal(yk_attention_forward(y.a, &at), YK_OK);
    expect_near(yk_stream_now(y.a), 0.092 + 1939200e-9 + 0.001);

    /* A copy from the host: 1000 bytes at 1e5. Within the device 2000 bytes at 1e9. Zero 500. */
    double before = yk_stream_now(y.a);
    assert_int_equal(yk_copy(y.a, p, p, 1000, YK_COPY_HOST_TO_DEVICE), YK_OK);
    expect_near(yk_stream_now(y.a) - before, 0.010 + 0.001);
    assert_int_equal(yk_copy(y.a, p, p, 1000, YK_COPY_DEVICE), YK_OK);
    assert_int_equal(yk_zero(y.a, p, 500), YK_OK);
    expect_near(yk_stream_now(y.a) - before, 0.011 + 2e-6 + 0.5e-6 + 0.002);

    yk_device_counts counts = yk_device_get_counts(y.device);
    int64_t attention_bytes = 2 * (200 * (5 * 16) + 200 * (3 * 16)) + 4 * 200 * 3;
    assert_int_equal(counts.n_ops, 6);
    expect_near(counts.flops, 6e7 + 6e7 + 1939200);
    expect_near(counts.bytes, 1241200 + 620600 + (double)attention_bytes + 1000 + 2000 + 500);
    close_bench(x);
    close_bench(y);
}

/* However often it was asked for before. */
static void a_product_has_the_rate_that_holds_when_it_is_enqueued(void **state)
{
    (void)state;
    yk_device_spec spec = round_rates;
    spec.memory_rate = 1e12;
    spec.tf32_flops = 4e9;
    bench x = open_bench(spec);
    yk_linear_forward_args a = product_of(memory_of(x), YK_F32, 200, 300, 500); /* 6e7 operations */
    const double work_s[] = {0.060, 0.060, 0.015, 0.015, 0.060};
    double end_s = 0;
    for (int i = 0; i < 5; i++) {
        yk_device_set_tf32(x.device, i == 2 || i == 3);
        assert_int_equal(yk_linear_forward(x.a, &a), YK_OK);
        expect_near(yk_stream_now(x.a), end_s += work_s[i] + 0.001);
    }
    a.k = 250;
    assert_int_equal(yk_linear_forward(x.a, &a), YK_OK);
    expect_near(yk_stream_now(x.a), end_s + 0.030 + 0.001);
    close_bench(x);
}

static void streams_run_apart_and_events_order_them(void **state)
{
    (void)state;
    bench x = open_bench(round_rates);
    void *p = memory_of(x);
    assert_int_equal(yk_zero(x.a, p, 9000), YK_OK); /* a: 9 + 1 ms */
    assert_int_equal(yk_zero(x.b, p, 1000), YK_OK); /* b: 1 + 1 ms */
    expect_near(yk_stream_now(x.a), 0.010);
    expect_near(yk_stream_now(x.b), 0.002);

    assert_int_equal(yk_event_wait(x.event, x.b), YK_OK); /* never recorded: holds nothing back */
    expect_near(yk_stream_now(x.b), 0.002);

    assert_int_equal(yk_event_record(x.event, x.a), YK_OK);
    assert_int_equal(yk_zero(x.a, p, 4000), YK_OK); /* a goes on to 15 ms */
    assert_int_equal(yk_event_wait(x.event, x.b), YK_OK);
    expect_near(yk_stream_now(x.b), 0.010); /* the record, not the end of a */
    assert_int_equal(yk_zero(x.b, p, 1000), YK_OK);
    expect_near(yk_stream_now(x.b), 0.012);
    expect_near(yk_stream_now(x.a), 0.015);

    /* A stream that is past the event already is not moved. */
    assert_int_equal(yk_event_wait(x.event, x.a), YK_OK);
    expect_near(yk_stream_now(x.a), 0.015);
    close_bench(x);
}

/* Copies one way take turns on the link, whatever their streams and the order in which they are issued; those
 * the other way, and what is short, do not wait. A collective through the host takes its part of the link. */
static void transfers_one_way_share_the_link(void **state)
{
    (void)state;
    yk_device_spec spec = round_rates;
    spec.host_link_rate = 1e7;
    bench x = open_bench(spec);
    yk_stream *streams[4];
    void *memory = memory_of(x);
    double launch = spec.launch_s;
    int64_t bytes = 10000000; /* a second's */
    for (int i = 0; i < 4; i++)
        assert_int_equal(yk_stream_create(x.device, YK_STREAM_TRANSFER, "copies", &streams[i]),
                         YK_OK);
    /* From 10 s on, issued first; the next fills what is free before and behind it. */
    assert_int_equal(yk_stream_charge(streams[0], 10 - launch, 0), YK_OK);
    assert_int_equal(yk_copy(streams[0], memory, memory, bytes, YK_COPY_HOST_TO_DEVICE), YK_OK);
    expect_near(yk_stream_now(streams[0]), 11 + launch);
    assert_int_equal(yk_copy(streams[1], memory, memory, 12 * bytes, YK_COPY_HOST_TO_DEVICE),
                     YK_OK);
    expect_near(yk_stream_now(streams[1]), 13 + launch);
    assert_int_equal(yk_copy(streams[2], memory, memory, 2 * bytes, YK_COPY_DEVICE_TO_HOST), YK_OK);
    expect_near(yk_stream_now(streams[2]), 2 + launch);
    assert_int_equal(yk_copy(streams[3], memory, memory, 1000, YK_COPY_HOST_TO_DEVICE), YK_OK);
    expect_near(yk_stream_now(streams[3]), 1e-4 + launch);
    /* For 5 seconds, of which it takes the link for 4. */
    assert_int_equal(yk_stream_charge_link(streams[2], 5, 1, 0, 4e7), YK_OK);
    expect_near(yk_stream_now(streams[2]), 7 + 2 * launch);
    assert_int_equal(yk_copy(streams[3], memory, memory, bytes, YK_COPY_DEVICE_TO_HOST), YK_OK);
    expect_near(yk_stream_now(streams[3]), 7 + launch);
    for (int i = 0; i < 4; i++) yk_stream_destroy(streams[i]);
    close_bench(x);
}

/* What the host issues after a wait cannot have started before the wait's end. */
static void the_hosts_waits_order_streams_too(void **state)
{
    (void)state;
    bench x = open_bench(round_rates);
    void *p = memory_of(x);
    assert_int_equal(yk_zero(x.a, p, 9000), YK_OK);
    assert_int_equal(yk_event_record(x.event, x.a), YK_OK);
    assert_int_equal(yk_zero(x.a, p, 9000), YK_OK);
    assert_int_equal(yk_event_synchronize(x.event), YK_OK);
    assert_int_equal(yk_zero(x.b, p, 1000), YK_OK);
    expect_near(yk_stream_now(x.b), 0.012);
    assert_int_equal(yk_stream_synchronize(x.a), YK_OK);
    assert_int_equal(yk_zero(x.b, p, 1000), YK_OK);
    expect_near(yk_stream_now(x.b), 0.022);
    close_bench(x);
}

/* A call on a CPU returns when the work is done, so nothing overlaps. */
static void a_described_cpu_runs_its_streams_one_after_the_other(void **state)
{
    (void)state;
    yk_device_spec spec = round_rates;
    spec.kind = YK_DEVICE_CPU;
    bench x = open_bench(spec);
    void *p = memory_of(x);
    assert_int_equal(yk_zero(x.a, p, 9000), YK_OK);
    assert_int_equal(yk_zero(x.b, p, 1000), YK_OK);
    expect_near(yk_stream_now(x.b), 0.012);
    close_bench(x);
}

static void gradients_that_accumulate_are_read_as_well(void **state)
{
    (void)state;
    float p;
    yk_linear_backward_weight_args a = {.dw = &p,
                                        .x = &p,
                                        .dy = &p,
                                        .m = 7,
                                        .n = 3,
                                        .k = 5,
                                        .dtype = YK_BF16,
                                        .grad_dtype = YK_F32};
    yk_cost once = yk_linear_backward_weight_cost(&a);
    expect_near(once.bytes, 2 * 7 * (3 + 5) + 4 * 15);
    expect_near(once.flops, 2 * 7 * 3 * 5);
    a.accumulate = true;
    expect_near(yk_linear_backward_weight_cost(&a).bytes, once.bytes + 4 * 15);
    a.dbias = &p;
    expect_near(yk_linear_backward_weight_cost(&a).bytes, once.bytes + 4 * 15 + 2 * 4 * 3);
}

/* A product on a GPU of four multiprocessors: 1e9 operations/s each under way. */
static double product_seconds(int64_t m, int64_t n, int64_t k)
{
    yk_device_spec spec = round_rates;
    spec.n_multiprocessors = 4;
    spec.matmul_flops[YK_BF16] = 4e9;
    spec.memory_rate = 1e15;
    yk_linear_forward_args a = product_of(NULL, YK_BF16, m, n, k);
    yk_cost cost = yk_linear_forward_cost(&a);
    return yk_cost_seconds(&cost, &spec);
}

static void tiles_that_do_not_fill_a_round_cost_a_whole_one(void **state)
{
    (void)state;
    double round = 2.0 * 256 * 128 * (960 + 32) / 1e9; /* one tile; its start is as 32 of depth */
    assert_true(fabs(product_seconds(1024, 128, 960) - round) < 1e-6 * round);
    assert_true(fabs(product_seconds(2048, 128, 960) - 2 * round) < 1e-6 * round);
    double five = product_seconds(1280, 128, 960); /* smaller tiles fill the second round better */
    assert_true(five > 1.25 * round && five < 2 * round);
}

static void a_small_depth_is_slower_for_its_operations(void **state)
{
    (void)state;
    assert_true(product_seconds(2048, 256, 64) > 1.4 * product_seconds(2048, 256, 960) / 15);
    /* Few tiles and a great depth: the sums are split over the multiprocessors. */
    double one = product_seconds(256, 128, 8192);
    assert_true(one < 0.3 * 2.0 * 256 * 128 * 8192 / 1e9);
}

static void half_of_what_an_epilogue_moves_comes_on_top(void **state)
{
    (void)state;
    yk_device_spec spec = round_rates;
    spec.n_multiprocessors = 4;
    spec.memory_rate = 1e9;
    char memory;
    yk_linear_forward_args a = product_of(&memory, YK_BF16, 256, 256, 512);
    yk_cost plain = yk_linear_forward_cost(&a);
    a.residual = &memory;
    yk_cost added = yk_linear_forward_cost(&a);
    expect_near(yk_cost_seconds(&added, &spec) - yk_cost_seconds(&plain, &spec),
                0.5 * 2.0 * 256 * 256 / 1e9);
}

static void the_softmax_takes_its_time_whatever_the_heads_size(void **state)
{
    (void)state;
    yk_device_spec spec = round_rates;
    spec.memory_rate = 1e15;
    spec.softmax_s[0] = 1e-6;
    yk_attention_forward_args a = {
        .batch = 1, .seq_len = 256, .heads = 2, .kv_heads = 2, .head_size = 8, .dtype = YK_BF16};
    yk_cost small = yk_attention_forward_cost(&a);
    a.head_size = 16;
    yk_cost large = yk_attention_forward_cost(&a);
    double softmax = 2 * 3 * 128 * 128 * 1e-6; /* two heads, three tiles that hold a seen pair */
    expect_near(yk_cost_seconds(&small, &spec) - softmax, small.flops / 1e9);
    expect_near(yk_cost_seconds(&large, &spec) - softmax, large.flops / 1e9);
}

/* The backward pass of attention has five products for two. */
static void attention_backward_is_five_products_for_two(void **state)
{
    (void)state;
    yk_attention_forward_args f = {
        .batch = 2, .seq_len = 9, .heads = 4, .kv_heads = 2, .head_size = 8};
    yk_attention_backward_args b = {
        .batch = 2, .seq_len = 9, .heads = 4, .kv_heads = 2, .head_size = 8};
    yk_attention_cached_args c = {
        .batch = 2, .seq_len = 1, .past = 8, .heads = 4, .kv_heads = 2, .head_size = 8};
    expect_near(yk_attention_backward_cost(&b).flops / yk_attention_forward_cost(&f).flops, 2.5);
    expect_near(yk_attention_cached_cost(&c).flops, 2.0 * 2 * 2 * 4 * 8 * 9);
}

/* Three matrices read or written of (R,C) bf16, w, mean, rstd; 7 numbers of AdamW; and so on. */
static void memory_bound_operations_have_the_bytes_of_their_arrays(void **state)
{
    (void)state;
    int p;
    yk_norm_backward_args n = {
        .rows = 6, .cols = 10, .kind = YK_NORM_LAYER, .dtype = YK_BF16, .grad_dtype = YK_F32};
    expect_near(yk_norm_backward_cost(&n).bytes, 2 * (3 * 60 + 10) + 4 * 12 + 4 * 20);
    yk_adamw_args w = {.param = &p, .n = 10, .dtype = YK_BF16, .grad_dtype = YK_BF16};
    expect_near(yk_adamw_cost(&w).bytes, 10 * (6 * 4 + 2 + 2));
    w.master_dtype = w.moments_dtype = YK_BF16;
    w.param = NULL;
    expect_near(yk_adamw_cost(&w).bytes, 10 * (6 * 2 + 2));
    yk_cross_entropy_args l = {
        .rows = 3, .vocab = 50, .stride = 64, .backward = true, .dtype = YK_F16};
    expect_near(yk_cross_entropy_cost(&l).bytes, 2 * 3 * (50 + 64) + 4 * 3 + 4 * 3);
    yk_embed_forward_args e = {.wpe = &p, .rows = 4, .cols = 8, .dtype = YK_F32};
    expect_near(yk_embed_forward_cost(&e).bytes, 4 * (3 * 32) + 4 * 8);
    yk_draw_normal_args d = {.n = 9, .dtype = YK_BF16};
    expect_near(yk_draw_normal_cost(&d).bytes, 9 * 2);
    yk_cast_args k = {.n = 9, .dst_dtype = YK_BF16, .src_dtype = YK_F32};
    expect_near(yk_cast_cost(&k).bytes, 9 * 6);
    assert_true(yk_cast_cost(&k).kind == YK_COST_MEMORY && yk_cast_cost(&k).flops == 0);
}

/* ---- memory ------------------------------------------------------------------------------- */

static void memory_is_counted_without_limit_and_never_given_twice(void **state)
{
    (void)state;
    bench x = open_bench(round_rates);
    void *memory[100];
    int64_t bytes = INT64_C(1) << 40; /* a million times what the device has */
    for (int i = 0; i < 100; i++) {
        yk_memory_kind kind = i % 4 ? YK_MEMORY_DEVICE : YK_MEMORY_PINNED;
        assert_int_equal(yk_device_alloc(x.device, kind, bytes + i, &memory[i]), YK_OK);
        assert_int_equal((uintptr_t)memory[i] % 256, 0);
        for (int j = 0; j < i; j++)
            assert_true((uintptr_t)memory[i] > (uintptr_t)memory[j] + (uintptr_t)(bytes + j));
    }
    yk_device_counts counts = yk_device_get_counts(x.device);
    assert_int_equal(counts.device_bytes, 75 * bytes + 4950 - 1200);
    assert_int_equal(counts.pinned_bytes, 25 * bytes + 1200);
    for (int i = 0; i < 100; i++)
        yk_device_free(x.device, i % 4 ? YK_MEMORY_DEVICE : YK_MEMORY_PINNED, bytes + i, memory[i]);
    counts = yk_device_get_counts(x.device);
    assert_int_equal(counts.device_bytes, 0);
    assert_int_equal(counts.pinned_bytes, 0);
    void *again;
    assert_int_equal(yk_device_alloc(x.device, YK_MEMORY_DEVICE, 1, &again), YK_OK);
    for (int i = 0; i < 100; i++) assert_ptr_not_equal(again, memory[i]);
    close_bench(x);
}

static void a_stray_access_faults(void **state)
{
    (void)state;
    bench x = open_bench(round_rates);
    volatile char *memory = memory_of(x);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        *memory = 1;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0));
    close_bench(x);
}

/* ---- workspace ---------------------------------------------------------------------------- */

static void the_workspace_high_mark_is_the_largest_single_wish(void **state)
{
    (void)state;
    bench x = open_bench(round_rates);
    void *p = memory_of(x);
    yk_attention_backward_args a = {.dqkv = p,
                                    .dy = p,
                                    .y = p,
                                    .lse = p,
                                    .qkv = p,
                                    .batch = 1,
                                    .seq_len = 64,
                                    .heads = 2,
                                    .kv_heads = 1,
                                    .head_size = 16,
                                    .scale = 1,
                                    .dtype = YK_BF16};
    assert_int_equal(yk_stream_workspace_high(x.a), 0);
    assert_int_equal(yk_attention_backward(x.a, &a), YK_OK);
    int64_t small = yk_stream_workspace_high(x.a);
    a.seq_len = 4096; /* far enough for any granularity of a backend's workspace */
    assert_int_equal(yk_attention_backward(x.a, &a), YK_OK);
    int64_t large = yk_stream_workspace_high(x.a);
    assert_true(large > small);
    a.seq_len = 64;
    assert_int_equal(yk_attention_backward(x.a, &a), YK_OK);
    assert_int_equal(yk_stream_workspace_high(x.a), large);
    assert_int_equal(yk_stream_workspace_high(x.b), 0);
    close_bench(x);
}

/* Workspace of attention's gradient in heads of 64. */
static int64_t gradient_workspace(yk_attention_provider provider, int64_t batch, int64_t seq_len)
{
    yk_device_spec spec;
    assert_int_equal(yk_device_spec_find("h200", &spec), YK_OK);
    bench x = open_bench(spec);
    void *m = memory_of(x);
    assert_int_equal(yk_device_set_attention(x.device, provider, true), YK_OK);
    yk_attention_backward_args a = {.dqkv = m,
                                    .dy = m,
                                    .y = m,
                                    .lse = m,
                                    .qkv = m,
                                    .batch = batch,
                                    .seq_len = seq_len,
                                    .heads = 12,
                                    .kv_heads = 12,
                                    .head_size = 64,
                                    .scale = 1,
                                    .dtype = YK_BF16};
    assert_int_equal(yk_attention_backward(x.a, &a), YK_OK);
    int64_t bytes = yk_stream_workspace_high(x.a);
    yk_device_free(x.device, YK_MEMORY_DEVICE, 4096, m);
    close_bench(x);
    return bytes;
}

static void cudnn_takes_its_bound_and_no_more(void **state)
{
    (void)state;
    const int64_t bound = (INT64_C(512) << 20) + (INT64_C(4) << 20) + 4096;
    const int64_t scores = INT64_C(2) * 12 * 1024 * 1024; /* of one entry */
    int64_t own = gradient_workspace(YK_ATTENTION_OWN, 64, 1024);
    int64_t one = gradient_workspace(YK_ATTENTION_CUDNN, 1, 1024);
    int64_t many = gradient_workspace(YK_ATTENTION_CUDNN, 64, 1024);
    assert_true(one >= scores && many >= 10 * scores && many >= own);
    assert_true(many <= bound);
    /* An entry that is larger than the bound is left to our own kernels. */
    assert_true(gradient_workspace(YK_ATTENTION_CUDNN, 1, 16384) <= bound);
    assert_true(gradient_workspace(YK_ATTENTION_CUDNN, 4096, 1) <= bound);
}

static void a_cpu_has_no_cudnn(void **state)
{
    (void)state;
    yk_device *cpu;
    assert_int_equal(yk_device_open_cpu(1, &cpu), YK_OK);
    assert_int_equal(yk_device_set_attention(cpu, YK_ATTENTION_AUTO, true), YK_OK);
    assert_int_equal(yk_device_set_attention(cpu, YK_ATTENTION_OWN, true), YK_OK);
    assert_int_equal(yk_device_set_attention(cpu, YK_ATTENTION_CUDNN, true), YK_EUNSUPPORTED);
    yk_device_close(cpu);
}

/* ---- descriptions ------------------------------------------------------------------------- */

static void every_known_device_can_be_opened(void **state)
{
    (void)state;
    static const char *const names[] = {"4090d", "4090", "3090", "5090",
                                        "a100",  "h100", "h200", "cpu"};
    for (int i = 0; i < 8; i++) {
        yk_device_spec spec;
        yk_device *d;
        assert_int_equal(yk_device_spec_find(names[i], &spec), YK_OK);
        assert_int_equal(yk_device_open_dry(&spec, &d), YK_OK);
        assert_int_equal(yk_device_get_kind(d), YK_DEVICE_DRY);
        assert_string_equal(yk_device_get_spec(d)->name, spec.name);
        assert_true(spec.memory_bytes > 0);
        yk_device_close(d);
    }
}

static void an_unknown_device_is_refused(void **state)
{
    (void)state;
    yk_device_spec spec = {.launch_s = 42};
    assert_int_equal(yk_device_spec_find("4080", &spec), YK_EINVAL);
    assert_true(spec.launch_s == 42); /* untouched */
}

static void a_description_without_a_rate_is_refused(void **state)
{
    (void)state;
    yk_device *d = NULL;
    yk_device_spec spec = round_rates;
    spec.memory_rate = 0;
    assert_int_equal(yk_device_open_dry(&spec, &d), YK_EINVAL);
    spec = round_rates;
    spec.matmul_flops[YK_F16] = 0;
    assert_int_equal(yk_device_open_dry(&spec, &d), YK_EINVAL);
    spec = round_rates;
    spec.kind = YK_DEVICE_DRY;
    assert_int_equal(yk_device_open_dry(&spec, &d), YK_EINVAL);
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_has_the_time_and_counts_of_its_parts),
        cmocka_unit_test(a_product_has_the_rate_that_holds_when_it_is_enqueued),
        cmocka_unit_test(streams_run_apart_and_events_order_them),
        cmocka_unit_test(transfers_one_way_share_the_link),
        cmocka_unit_test(the_hosts_waits_order_streams_too),
        cmocka_unit_test(a_described_cpu_runs_its_streams_one_after_the_other),
        cmocka_unit_test(gradients_that_accumulate_are_read_as_well),
        cmocka_unit_test(tiles_that_do_not_fill_a_round_cost_a_whole_one),
        cmocka_unit_test(a_small_depth_is_slower_for_its_operations),
        cmocka_unit_test(half_of_what_an_epilogue_moves_comes_on_top),
        cmocka_unit_test(the_softmax_takes_its_time_whatever_the_heads_size),
        cmocka_unit_test(attention_backward_is_five_products_for_two),
        cmocka_unit_test(memory_bound_operations_have_the_bytes_of_their_arrays),
        cmocka_unit_test(memory_is_counted_without_limit_and_never_given_twice),
        cmocka_unit_test(a_stray_access_faults),
        cmocka_unit_test(the_workspace_high_mark_is_the_largest_single_wish),
        cmocka_unit_test(cudnn_takes_its_bound_and_no_more),
        cmocka_unit_test(a_cpu_has_no_cudnn),
        cmocka_unit_test(every_known_device_can_be_opened),
        cmocka_unit_test(an_unknown_device_is_refused),
        cmocka_unit_test(a_description_without_a_rate_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
