/* tests/runtime/device/test_dispatch.c - what the dispatcher refuses, and what it passes on.
 *
 * Refusals are tried on a dry device, whose count of operations shows that nothing was enqueued;
 * what a backend leaves out is tried on one that leaves out everything.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/device/backend.h"

static int setup(void **state)
{
    yk_device_spec spec;
    yk_device *d;
    yk_stream *s;
    if (yk_device_spec_find("cpu", &spec) != YK_OK) return -1;
    if (yk_device_open_dry(&spec, &d) != YK_OK) return -1;
    if (yk_stream_create(d, YK_STREAM_COMPUTE, "test", &s) != YK_OK) return -1;
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    yk_stream *s = *state;
    yk_device *d = yk_stream_get_device(s);
    yk_stream_destroy(s);
    yk_device_close(d);
    return 0;
}

/* Where every pointer of the good arguments points; the dry device does not look. */
static char somewhere[256];
#define P ((void *)somewhere)

static const yk_embed_forward_args good_embed_forward = {.y = P,
                                                         .wte = P,
                                                         .wpe = P,
                                                         .tokens = P,
                                                         .positions = P,
                                                         .rows = 3,
                                                         .cols = 4,
                                                         .vocab = 5,
                                                         .max_positions = 6};
static const yk_embed_backward_args good_embed_backward = {.dwte = P,
                                                           .dwpe = P,
                                                           .dy = P,
                                                           .tokens = P,
                                                           .positions = P,
                                                           .rows = 3,
                                                           .cols = 4,
                                                           .vocab = 5,
                                                           .max_positions = 6};
static const yk_norm_forward_args good_norm_forward = {.y = P,
                                                       .mean = P,
                                                       .rstd = P,
                                                       .x = P,
                                                       .weight = P,
                                                       .bias = P,
                                                       .rows = 3,
                                                       .cols = 4,
                                                       .eps = 1e-5f};
static const yk_norm_backward_args good_norm_backward = {.dx = P,
                                                         .dweight = P,
                                                         .dbias = P,
                                                         .dy = P,
                                                         .x = P,
                                                         .weight = P,
                                                         .mean = P,
                                                         .rstd = P,
                                                         .rows = 3,
                                                         .cols = 4};
static const yk_linear_forward_args good_linear_forward = {
    .y = P, .x = P, .w = P, .bias = P, .m = 3, .n = 4, .k = 5};
static const yk_linear_backward_input_args good_linear_backward_input = {
    .dx = P, .dy = P, .w = P, .m = 3, .n = 4, .k = 5};
static const yk_linear_backward_weight_args good_linear_backward_weight = {
    .dw = P, .dbias = P, .x = P, .dy = P, .m = 3, .n = 4, .k = 5};
static const yk_rope_args good_rope = {.qkv = P,
                                       .qkv_sum = P,
                                       .cos = P,
                                       .sin = P,
                                       .positions = P,
                                       .rows = 3,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .head_size = 6,
                                       .max_positions = 7};
static const yk_attention_forward_args good_attention_forward = {.y = P,
                                                                 .lse = P,
                                                                 .qkv = P,
                                                                 .batch = 2,
                                                                 .seq_len = 3,
                                                                 .heads = 4,
                                                                 .kv_heads = 2,
                                                                 .head_size = 6,
                                                                 .scale = 1};
static const yk_attention_backward_args good_attention_backward = {.dqkv = P,
                                                                   .dy = P,
                                                                   .y = P,
                                                                   .lse = P,
                                                                   .qkv = P,
                                                                   .batch = 2,
                                                                   .seq_len = 3,
                                                                   .heads = 4,
                                                                   .kv_heads = 2,
                                                                   .head_size = 6,
                                                                   .scale = 1};
static const yk_attention_cached_args good_attention_cached = {.y = P,
                                                               .k_cache = P,
                                                               .v_cache = P,
                                                               .qkv = P,
                                                               .batch = 2,
                                                               .seq_len = 3,
                                                               .past = 4,
                                                               .capacity = 7,
                                                               .heads = 4,
                                                               .kv_heads = 2,
                                                               .head_size = 6,
                                                               .scale = 1};
static const yk_swiglu_forward_args good_swiglu_forward = {
    .y = P, .gate_up = P, .rows = 3, .cols = 4};
static const yk_swiglu_backward_args good_swiglu_backward = {
    .dgate_up = P, .dy = P, .gate_up = P, .rows = 3, .cols = 4};
static const yk_cross_entropy_args good_cross_entropy = {.losses = P,
                                                         .logits = P,
                                                         .targets = P,
                                                         .values = P,
                                                         .rows = 3,
                                                         .vocab = 4,
                                                         .stride = 5,
                                                         .scale = 1,
                                                         .backward = true};
static const yk_loss_sum_args good_loss_sum = {.values = P, .losses = P, .targets = P, .rows = 3};
static const yk_step_begin_args good_step_begin = {.values = P, .lr = 1};
static const yk_squares_run good_squares_run = {P, 3}, squares_of_nothing = {NULL, 3},
                            squares_of_less = {P, -1};
static const yk_sum_squares_args good_sum_squares = {
    .values = P, .runs = &good_squares_run, .n_runs = 1, .piece = 16};
static const yk_step_finish_args good_step_finish = {.values = P,
                                                     .expected_tokens = 8,
                                                     .clip = 1,
                                                     .beta1 = 0.9f,
                                                     .beta2 = 0.99f,
                                                     .dynamic_scale = true,
                                                     .scale_floor = 1,
                                                     .scale_ceiling = 2,
                                                     .growth_interval = 5};
static const yk_adamw_run good_adamw_runs[] = {{.first = 32}, {.begin = 16}};
static const yk_adamw_args good_adamw = {.master = P,
                                         .m = P,
                                         .v = P,
                                         .grad = P,
                                         .values = P,
                                         .runs = good_adamw_runs,
                                         .n_runs = 2,
                                         .n = 17,
                                         .beta1 = 0.9f,
                                         .beta2 = 0.99f};
/* Not at 0, not one behind the other, behind the last element, or at no multiple of 16. */
static const yk_adamw_run bad_runs[][2] = {
    {{.begin = 16}, {.begin = 16}}, {{.begin = 0}, {.begin = 0}},
    {{.begin = 0}, {.begin = 32}},  {{.begin = 0}, {.begin = 8}},
    {{.first = 8}, {.begin = 16}},  {{.first = 0}, {.begin = 16, .first = -16}},
};
static const yk_draw_normal_args good_draw_normal = {.dst = P, .n = 3};
static const yk_cast_args good_cast = {.dst = P, .src = P, .n = 3};

/* Every operation with its good arguments. */
#define EACH_OP(X)                                                                                 \
    X(embed_forward)                                                                               \
    X(embed_backward)                                                                              \
    X(norm_forward)                                                                                \
    X(norm_backward)                                                                               \
    X(linear_forward)                                                                              \
    X(linear_backward_input)                                                                       \
    X(linear_backward_weight)                                                                      \
    X(rope)                                                                                        \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(attention_cached)                                                                            \
    X(swiglu_forward)                                                                              \
    X(swiglu_backward)                                                                             \
    X(cross_entropy)                                                                               \
    X(loss_sum)                                                                                    \
    X(step_begin)                                                                                  \
    X(sum_squares)                                                                                 \
    X(step_finish)                                                                                 \
    X(adamw)                                                                                       \
    X(draw_normal)                                                                                 \
    X(cast)

/* The good arguments with one field changed are refused, and nothing is enqueued. */
#define EXPECT_REFUSED(stream, op, field, wrong)                                                   \
    do {                                                                                           \
        yk_##op##_args changed = good_##op;                                                        \
        changed.field = wrong;                                                                     \
        expect_refused(stream, #op "." #field, yk_##op(stream, &changed));                         \
    } while (0)

static void expect_refused(yk_stream *s, const char *what, yk_status status)
{
    if (status != YK_EINVAL) fail_msg("%s: status %d", what, (int)status);
    assert_int_equal(yk_device_get_counts(yk_stream_get_device(s)).n_ops, 0);
}

static void good_arguments_are_passed_on(void **state)
{
    yk_stream *s = *state;
    int64_t n = 0;
#define ACCEPTED(op)                                                                               \
    assert_int_equal(yk_##op(s, &good_##op), YK_OK);                                               \
    assert_int_equal(yk_device_get_counts(yk_stream_get_device(s)).n_ops, ++n);
    EACH_OP(ACCEPTED)
#undef ACCEPTED
}

static void a_negative_size_is_refused(void **state)
{
    yk_stream *s = *state;
    EXPECT_REFUSED(s, embed_forward, rows, -1);
    EXPECT_REFUSED(s, embed_forward, cols, -1);
    EXPECT_REFUSED(s, embed_forward, vocab, -5);
    EXPECT_REFUSED(s, embed_backward, rows, -1);
    EXPECT_REFUSED(s, embed_backward, max_positions, -1);
    EXPECT_REFUSED(s, norm_forward, rows, -1);
    EXPECT_REFUSED(s, norm_forward, cols, 0);
    EXPECT_REFUSED(s, norm_backward, rows, -1);
    EXPECT_REFUSED(s, linear_forward, m, -1);
    EXPECT_REFUSED(s, linear_forward, n, -1);
    EXPECT_REFUSED(s, linear_forward, k, -1);
    EXPECT_REFUSED(s, linear_backward_input, m, -1);
    EXPECT_REFUSED(s, linear_backward_weight, k, -1);
    EXPECT_REFUSED(s, rope, rows, -1);
    EXPECT_REFUSED(s, attention_forward, batch, -1);
    EXPECT_REFUSED(s, attention_forward, seq_len, -1);
    EXPECT_REFUSED(s, attention_backward, batch, -1);
    EXPECT_REFUSED(s, attention_backward, head_size, -6);
    EXPECT_REFUSED(s, attention_cached, past, -1);
    EXPECT_REFUSED(s, swiglu_forward, cols, -1);
    EXPECT_REFUSED(s, swiglu_backward, rows, -1);
    EXPECT_REFUSED(s, cross_entropy, rows, -1);
    EXPECT_REFUSED(s, loss_sum, rows, -1);
    EXPECT_REFUSED(s, sum_squares, runs, &squares_of_less);
    EXPECT_REFUSED(s, sum_squares, n_runs, YK_STEP_RUNS + 1);
    EXPECT_REFUSED(s, sum_squares, piece, 0);
    EXPECT_REFUSED(s, sum_squares, piece, 24);
    EXPECT_REFUSED(s, adamw, n, -1);
    for (size_t i = 0; i < sizeof bad_runs / sizeof bad_runs[0]; i++) {
        yk_adamw_args a = good_adamw;
        a.runs = bad_runs[i];
        a.n_runs = 2;
        expect_refused(s, "adamw.runs", yk_adamw(s, &a));
    }
    EXPECT_REFUSED(s, adamw, n_runs, YK_STEP_RUNS + 1);
    EXPECT_REFUSED(s, draw_normal, n, -1);
    EXPECT_REFUSED(s, draw_normal, first, -1);
    EXPECT_REFUSED(s, cast, n, -1);
    expect_refused(s, "copy", yk_copy(s, P, P, -1, YK_COPY_DEVICE));
    expect_refused(s, "zero", yk_zero(s, P, -1));
}

static void a_missing_pointer_is_refused(void **state)
{
    yk_stream *s = *state;
    EXPECT_REFUSED(s, embed_forward, y, NULL);
    EXPECT_REFUSED(s, embed_forward, wte, NULL);
    EXPECT_REFUSED(s, embed_forward, tokens, NULL);
    EXPECT_REFUSED(s, embed_forward, positions, NULL);
    EXPECT_REFUSED(s, embed_backward, dwte, NULL);
    EXPECT_REFUSED(s, embed_backward, dy, NULL);
    EXPECT_REFUSED(s, embed_backward, tokens, NULL);
    EXPECT_REFUSED(s, embed_backward, positions, NULL);
    EXPECT_REFUSED(s, norm_forward, y, NULL);
    EXPECT_REFUSED(s, norm_forward, mean, NULL);
    EXPECT_REFUSED(s, norm_forward, rstd, NULL);
    EXPECT_REFUSED(s, norm_forward, x, NULL);
    EXPECT_REFUSED(s, norm_forward, weight, NULL);
    EXPECT_REFUSED(s, norm_forward, bias, NULL);
    EXPECT_REFUSED(s, norm_backward, dx, NULL);
    EXPECT_REFUSED(s, norm_backward, dweight, NULL);
    EXPECT_REFUSED(s, norm_backward, dbias, NULL);
    EXPECT_REFUSED(s, norm_backward, dy, NULL);
    EXPECT_REFUSED(s, norm_backward, mean, NULL);
    EXPECT_REFUSED(s, norm_backward, rstd, NULL);
    EXPECT_REFUSED(s, linear_forward, y, NULL);
    EXPECT_REFUSED(s, linear_forward, x, NULL);
    EXPECT_REFUSED(s, linear_forward, w, NULL);
    EXPECT_REFUSED(s, linear_backward_input, dx, NULL);
    EXPECT_REFUSED(s, linear_backward_input, dy, NULL);
    EXPECT_REFUSED(s, linear_backward_input, w, NULL);
    EXPECT_REFUSED(s, linear_backward_weight, dw, NULL);
    EXPECT_REFUSED(s, linear_backward_weight, x, NULL);
    EXPECT_REFUSED(s, linear_backward_weight, dy, NULL);
    EXPECT_REFUSED(s, rope, qkv, NULL);
    EXPECT_REFUSED(s, rope, cos, NULL);
    EXPECT_REFUSED(s, rope, sin, NULL);
    EXPECT_REFUSED(s, rope, positions, NULL);
    EXPECT_REFUSED(s, attention_forward, y, NULL);
    EXPECT_REFUSED(s, attention_forward, lse, NULL);
    EXPECT_REFUSED(s, attention_forward, qkv, NULL);
    EXPECT_REFUSED(s, attention_backward, dqkv, NULL);
    EXPECT_REFUSED(s, attention_backward, y, NULL);
    EXPECT_REFUSED(s, attention_backward, lse, NULL);
    EXPECT_REFUSED(s, attention_cached, k_cache, NULL);
    EXPECT_REFUSED(s, attention_cached, v_cache, NULL);
    EXPECT_REFUSED(s, swiglu_forward, gate_up, NULL);
    EXPECT_REFUSED(s, swiglu_backward, dgate_up, NULL);
    EXPECT_REFUSED(s, cross_entropy, losses, NULL);
    EXPECT_REFUSED(s, cross_entropy, logits, NULL);
    EXPECT_REFUSED(s, cross_entropy, targets, NULL);
    EXPECT_REFUSED(s, cross_entropy, values, NULL);
    EXPECT_REFUSED(s, loss_sum, values, NULL);
    EXPECT_REFUSED(s, step_begin, values, NULL);
    EXPECT_REFUSED(s, sum_squares, values, NULL);
    EXPECT_REFUSED(s, sum_squares, runs, &squares_of_nothing);
    EXPECT_REFUSED(s, step_finish, values, NULL);
    EXPECT_REFUSED(s, adamw, master, NULL);
    EXPECT_REFUSED(s, adamw, m, NULL);
    EXPECT_REFUSED(s, adamw, v, NULL);
    EXPECT_REFUSED(s, adamw, grad, NULL);
    EXPECT_REFUSED(s, adamw, values, NULL);
    EXPECT_REFUSED(s, draw_normal, dst, NULL);
    EXPECT_REFUSED(s, cast, dst, NULL);
    EXPECT_REFUSED(s, cast, src, NULL);
    expect_refused(s, "copy", yk_copy(s, NULL, P, 1, YK_COPY_DEVICE));
    expect_refused(s, "copy", yk_copy(s, P, NULL, 1, YK_COPY_DEVICE));
    expect_refused(s, "zero", yk_zero(s, NULL, 1));
}

static void sizes_that_do_not_fit_together_are_refused(void **state)
{
    yk_stream *s = *state;
    EXPECT_REFUSED(s, attention_forward, kv_heads, 3); /* 4 heads */
    EXPECT_REFUSED(s, attention_forward, kv_heads, 0);
    EXPECT_REFUSED(s, attention_backward, kv_heads, 8);
    EXPECT_REFUSED(s, attention_cached, heads, 5);
    EXPECT_REFUSED(s, attention_cached, capacity, 6); /* past 4 + 3 new */
    EXPECT_REFUSED(s, attention_cached, past, INT64_MAX);
    EXPECT_REFUSED(s, rope, head_size, 5);
    EXPECT_REFUSED(s, cross_entropy, stride, 3); /* 4 columns */
    EXPECT_REFUSED(s, embed_forward, max_positions, 0);
    EXPECT_REFUSED(s, step_finish, expected_tokens, 0);
    EXPECT_REFUSED(s, step_finish, beta1, 1);
    EXPECT_REFUSED(s, step_finish, clip, -1);
    EXPECT_REFUSED(s, step_finish, growth_interval, 0);
    EXPECT_REFUSED(s, step_finish, scale_ceiling, 0.5f);
}

static void what_does_not_go_together_is_refused(void **state)
{
    yk_stream *s = *state;
    yk_linear_forward_args f = good_linear_forward;
    f.gelu = true;
    f.residual = P;
    expect_refused(s, "gelu with residual", yk_linear_forward(s, &f));
    f.gelu = false;
    f.z = P;
    expect_refused(s, "z without gelu", yk_linear_forward(s, &f));
    yk_linear_backward_input_args b = good_linear_backward_input;
    b.z = P;
    b.accumulate = true;
    expect_refused(s, "accumulate with z", yk_linear_backward_input(s, &b));
    b = good_linear_backward_input;
    b.dbias = P;
    expect_refused(s, "dbias without z", yk_linear_backward_input(s, &b));
    EXPECT_REFUSED(s, norm_forward, kind, YK_NORM_RMS); /* with a mean and a bias */
    EXPECT_REFUSED(s, norm_backward, kind, YK_NORM_RMS);
}

static void a_type_that_is_not_a_float_is_refused(void **state)
{
    yk_stream *s = *state;
    EXPECT_REFUSED(s, embed_forward, dtype, YK_I32);
    EXPECT_REFUSED(s, embed_backward, grad_dtype, YK_I32);
    EXPECT_REFUSED(s, norm_backward, grad_dtype, YK_I32);
    EXPECT_REFUSED(s, rope, grad_dtype, YK_I32);
    EXPECT_REFUSED(s, linear_forward, dtype, YK_I32);
    EXPECT_REFUSED(s, linear_backward_weight, grad_dtype, (yk_dtype)17);
    EXPECT_REFUSED(s, attention_forward, dtype, YK_I32);
    EXPECT_REFUSED(s, cross_entropy, dtype, YK_I32);
    EXPECT_REFUSED(s, sum_squares, dtype, YK_I32);
    EXPECT_REFUSED(s, adamw, grad_dtype, YK_I32);
    EXPECT_REFUSED(s, adamw, master_dtype, YK_F16);
    EXPECT_REFUSED(s, adamw, moments_dtype, YK_F16);
    EXPECT_REFUSED(s, draw_normal, dtype, YK_I32);
    EXPECT_REFUSED(s, cast, dst_dtype, YK_I32);
    EXPECT_REFUSED(s, cast, src_dtype, YK_I32);
}

/* Pointers of no rows are not looked at. */
static void no_rows_enqueue_nothing(void **state)
{
    yk_stream *s = *state;
    yk_linear_forward_args l = {.n = 4, .k = 5};
    yk_attention_forward_args a = {.batch = 2, .heads = 4, .kv_heads = 2, .head_size = 6};
    yk_cross_entropy_args c = {.vocab = 4, .stride = 5};
    yk_adamw_args w = {.beta1 = 0.9f};
    yk_cast_args k = {0};
    assert_int_equal(yk_linear_forward(s, &l), YK_OK);
    assert_int_equal(yk_attention_forward(s, &a), YK_OK);
    assert_int_equal(yk_cross_entropy(s, &c), YK_OK);
    assert_int_equal(yk_adamw(s, &w), YK_OK);
    assert_int_equal(yk_cast(s, &k), YK_OK);
    assert_int_equal(yk_zero(s, NULL, 0), YK_OK);
    assert_int_equal(yk_copy(s, NULL, NULL, 0, YK_COPY_DEVICE), YK_OK);
    assert_int_equal(yk_device_get_counts(yk_stream_get_device(s)).n_ops, 0);
}

static void gradients_of_no_rows_are_cleared(void **state)
{
    yk_stream *s = *state;
    yk_linear_backward_weight_args l = {.dw = P, .dbias = P, .n = 4, .k = 5, .grad_dtype = YK_BF16};
    assert_int_equal(yk_linear_backward_weight(s, &l), YK_OK);
    yk_device_counts counts = yk_device_get_counts(yk_stream_get_device(s));
    assert_int_equal(counts.n_ops, 2);
    assert_true(counts.bytes == 2 * (20 + 4));
    l.accumulate = true;
    assert_int_equal(yk_linear_backward_weight(s, &l), YK_OK);
    assert_int_equal(yk_device_get_counts(yk_stream_get_device(s)).n_ops, 2);
}

/* ---- a backend of this test --------------------------------------------------------------- */

static int64_t ninety_bytes(const yk_sum_squares_args *a)
{
    (void)a;
    return 90;
}

static yk_status expect_workspace(yk_stream *s, const yk_sum_squares_args *a, void *ws)
{
    (void)a;
    *(void **)s->device->state = ws;
    return YK_EDEVICE;
}

static void what_a_backend_leaves_out_is_unsupported(void **state)
{
    (void)state;
    static const yk_backend nothing = {0};
    static const yk_workspaces none = {0};
    yk_device device = {.backend = &nothing, .workspaces = &none, .spec.name = "nothing"};
    yk_stream stream = {.device = &device};
#define UNSUPPORTED(op) assert_int_equal(yk_##op(&stream, &good_##op), YK_EUNSUPPORTED);
    EACH_OP(UNSUPPORTED)
#undef UNSUPPORTED
    assert_int_equal(yk_copy(&stream, P, P, 1, YK_COPY_DEVICE), YK_EUNSUPPORTED);
    assert_int_equal(yk_zero(&stream, P, 1), YK_EUNSUPPORTED);
}

static void an_operation_gets_the_workspace_that_it_stated(void **state)
{
    (void)state;
    static const yk_backend one = {.sum_squares = expect_workspace};
    static const yk_workspaces states = {.sum_squares = ninety_bytes};
    void *got = NULL;
    char workspace[90];
    yk_device device = {.backend = &one, .workspaces = &states, .state = &got};
    yk_stream stream = {.device = &device};
    yk_stream_set_workspace(&stream, workspace, 89);
    assert_int_equal(yk_sum_squares(&stream, &good_sum_squares), YK_ENOMEM);
    assert_null(got);
    yk_stream_set_workspace(&stream, workspace, 90);
    assert_int_equal(yk_sum_squares(&stream, &good_sum_squares), YK_EDEVICE); /* as it answered */
    assert_ptr_equal(got, workspace);
    assert_int_equal(yk_stream_workspace_high(&stream), 90);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(good_arguments_are_passed_on),
        TEST(a_negative_size_is_refused),
        TEST(a_missing_pointer_is_refused),
        TEST(sizes_that_do_not_fit_together_are_refused),
        TEST(what_does_not_go_together_is_refused),
        TEST(a_type_that_is_not_a_float_is_refused),
        TEST(no_rows_enqueue_nothing),
        TEST(gradients_of_no_rows_are_cleared),
        cmocka_unit_test(what_a_backend_leaves_out_is_unsupported),
        cmocka_unit_test(an_operation_gets_the_workspace_that_it_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
