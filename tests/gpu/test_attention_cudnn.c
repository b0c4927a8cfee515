/* tests/gpu/test_attention_cudnn.c - attention by cuDNN, held against the oracle. Skipped where
 * there is no cuDNN. ctest: TIMEOUT 300
 *
 * Building a plan takes cuDNN up to a second, so there are few shapes: whole and ragged tiles,
 * grouped queries, both types, both ways of making dq.
 */
#include <math.h>
#include <string.h>

#include "runtime/device/tune.h"
#include "tests/runtime/base/heard.h"
#include "tests/runtime/device/attention_case.h"
#include "tests/runtime/device/tested_device.h"

static void ask_for_cudnn(op_case *c, bool deterministic)
{
    assert_int_equal(yk_device_set_attention(c->device, YK_ATTENTION_CUDNN, deterministic), YK_OK);
    assert_int_equal(yk_device_set_attention(c->dry, YK_ATTENTION_CUDNN, deterministic), YK_OK);
}

static bool is_cudnn_missing(void)
{
    yk_device *d;
    if (tested_device_open(1, &d) != YK_OK) return false;
    bool missing = yk_device_set_attention(d, YK_ATTENTION_CUDNN, true) == YK_EUNSUPPORTED;
    yk_device_close(d);
    return missing;
}

/* ---- against the oracle ------------------------------------------------------------------- */

static void cudnn_agrees_with_the_oracle(void **state)
{
    op_case *c = *state;
    ask_for_cudnn(c, true);
    attention_case(c, YK_BF16, (attention_shape){1, 512, 3, 3, 64}, 0);
    attention_case(c, YK_BF16, (attention_shape){2, 193, 4, 2, 64}, 0);
    attention_case(c, YK_BF16, (attention_shape){3, 65, 2, 2, 128}, 0);
    attention_case(c, YK_F16, (attention_shape){1, 300, 2, 1, 128}, 0);
}

static void without_determinism_cudnn_agrees_with_the_oracle(void **state)
{
    op_case *c = *state;
    ask_for_cudnn(c, false);
    attention_case(c, YK_BF16, (attention_shape){2, 260, 4, 2, 64}, 0);
    attention_case(c, YK_BF16, (attention_shape){1, 256, 2, 2, 128}, 0);
}

/* Forward and backward are timed at their first call and not again. */
static void whoever_is_found_fastest_agrees_with_the_oracle(void **state)
{
    const attention_shape shape = {2, 512, 4, 2, 64};
    op_case *c = *state;
    assert_int_equal(yk_device_set_attention(c->device, YK_ATTENTION_AUTO, true), YK_OK);
    assert_int_equal(yk_device_set_attention(c->dry, YK_ATTENTION_AUTO, true), YK_OK);
    assert_int_equal(yk_device_tune(c->device, YK_TUNE_CACHED, ""), YK_OK);
    int before = yk_device_tune_sum(c->device).n;
    attention_case(c, YK_BF16, shape, 0);
    assert_int_equal(yk_device_tune_sum(c->device).n, before + 2);
    attention_case(c, YK_BF16, shape, 0);
    assert_int_equal(yk_device_tune_sum(c->device).n, before + 2);
    assert_int_equal(yk_device_tune(c->device, YK_TUNE_OFF, ""), YK_OK);
}

/* What cuDNN is not asked for: documents, fp32, small and odd heads. */
static void other_calls_take_our_own_kernels(void **state)
{
    op_case *c = *state;
    ask_for_cudnn(c, true);
    attention_case(c, YK_BF16, (attention_shape){1, 200, 2, 2, 64}, 40);
    attention_case(c, YK_F32, (attention_shape){1, 100, 2, 2, 64}, 0);
    attention_case(c, YK_BF16, (attention_shape){1, 100, 2, 1, 24}, 0);
}

static void repeated(op_case *c)
{
    ask_for_cudnn(c, true);
    attention_case(c, YK_BF16, (attention_shape){4, 1024, 12, 12, 64}, 0);
    attention_case(c, YK_BF16, (attention_shape){1, 777, 8, 2, 128}, 0);
}

static void deterministic_cudnn_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(repeated);
}

/* ---- without it --------------------------------------------------------------------------- */

typedef struct tensors {
    op_buffer *qkv, *y, *lse, *dy, *dqkv;
} tensors;

static tensors take_tensors(op_case *c, yk_dtype t, attention_shape s)
{
    int64_t rows = attention_rows(s), width = attention_width(s);
    int64_t all = rows * attention_qkv_width(s);
    return (tensors){.qkv = op_input(c, t, all, 1),
                     .y = op_input(c, t, rows * width, 1),
                     .lse = op_input(c, YK_F32, rows * s.heads, 1),
                     .dy = op_input(c, t, rows * width, 1),
                     .dqkv = op_output(c, t, all)};
}

/* The gradient of the entries from `first` on. */
static yk_attention_backward_args gradient_of(const tensors *x, yk_dtype t, attention_shape s,
                                              int64_t first)
{
    int64_t rows = first * s.seq_len, width = attention_width(s) * 2;
    int64_t qkv = rows * attention_qkv_width(s) * 2;
    yk_attention_backward_args a = attention_backward_args(s, t, NULL);
    a.dqkv = (char *)x->dqkv->data + qkv;
    a.dy = (char *)x->dy->data + rows * width;
    a.y = (char *)x->y->data + rows * width;
    a.lse = (float *)x->lse->data + rows * s.heads;
    a.qkv = (char *)x->qkv->data + qkv;
    return a;
}

/* Heads and lengths of real models must not fall back: the note of a fallback is not heard. */
static void cudnn_serves_the_heads_of_models(void **state)
{
    static const attention_shape shapes[] = {
        {1, 1024, 12, 12, 64}, {1, 1024, 14, 2, 64}, {1, 1024, 12, 2, 128}};
    op_case *c = *state;
    for (int d = YK_BF16; d <= YK_F16; d++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            heard h;
            op_case_begin(c, (yk_dtype)d, "attention_backward, heard");
            ask_for_cudnn(c, true);
            tensors x = take_tensors(c, (yk_dtype)d, shapes[i]);
            yk_attention_backward_args a = gradient_of(&x, (yk_dtype)d, shapes[i], 0);
            assert_int_equal(yk_attention_backward(c->dry_stream, &a), YK_OK);
            op_lend_workspace(c);
            heard_begin(&h);
            yk_status status = yk_attention_backward(c->stream, &a);
            bool served = strstr(heard_take(&h), "does not serve") == NULL;
            heard_end(&h);
            assert_int_equal(status, YK_OK);
            assert_true(served);
            op_collect(c);
        }
}

/* 7 entries of 134 MB: three at a time, and one at the end. */
static void a_batch_beyond_the_workspace_is_served_in_parts(void **state)
{
    const attention_shape all = {7, 4096, 4, 4, 32};
    op_case *c = *state;
    op_case_begin(c, YK_BF16, "attention_backward in parts");
    ask_for_cudnn(c, true);
    tensors x = take_tensors(c, YK_BF16, all);
    yk_attention_backward_args whole = gradient_of(&x, YK_BF16, all, 0);
    OP_RUN(c, yk_attention_backward, &whole);
    op_buffer *again = op_output(c, YK_BF16, x.dqkv->n);
    tensors others = x;
    others.dqkv = again;
    for (int64_t first = 0; first < all.batch; first += 3) {
        attention_shape part = all;
        part.batch = first < 6 ? 3 : 1;
        yk_attention_backward_args a = gradient_of(&others, YK_BF16, part, first);
        assert_int_equal(yk_attention_backward(c->stream, &a), YK_OK);
    }
    op_collect(c);
    op_expect_equal(c, x.dqkv, again, "dqkv in parts");
}

int main(void)
{
    if (op_device_missing() || is_cudnn_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(cudnn_serves_the_heads_of_models),
        OP_TEST(cudnn_agrees_with_the_oracle),
        OP_TEST(without_determinism_cudnn_agrees_with_the_oracle),
        OP_TEST(whoever_is_found_fastest_agrees_with_the_oracle),
        OP_TEST(other_calls_take_our_own_kernels),
        OP_TEST(a_batch_beyond_the_workspace_is_served_in_parts),
        cmocka_unit_test(deterministic_cudnn_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
