/* tests/runtime/device/cpu/test_cuts.c - shapes at which the cpu backend cuts its work another way:
 * operands in several blocks, rows that would fall on equal cache sets, attention whose panels do not
 * fit a thread's scratch.
 *
 * ctest: TIMEOUT 180
 */
#include <math.h>

#include "tests/runtime/device/attention_case.h"

/* ---- products ----------------------------------------------------------------------------- */

typedef struct product {
    int64_t m, n, k;
} product;

/* Several blocks of columns; several of k as well; these in bands of rows; rows of 4096 bytes; one tile more than a round
 * number of them; rows in slices with tiles in both directions. */
static const product products[] = {{14, 1201, 1000}, {13, 500, 2500}, {30, 40, 1024},
                                   {2100, 10, 1030}, {97, 33, 16},    {2050, 530, 20},
                                   {2050, 12, 300}};
#define N_PRODUCTS 7

static void forward_product(op_case *c, yk_dtype t, product s)
{
    op_case_begin(c, t, "linear_forward M=%d N=%d K=%d", (int)s.m, (int)s.n, (int)s.k);
    op_buffer *x = op_input(c, t, s.m * s.k, 1), *w = op_input(c, t, s.n * s.k, 1);
    op_buffer *bias = op_input(c, t, s.n, 1), *y = op_inout(c, t, s.m * s.n, 1);
    OP_RUN(c, yk_linear_forward,
           &((yk_linear_forward_args){.y = y->data,
                                      .x = x->data,
                                      .w = w->data,
                                      .bias = bias->data,
                                      .residual = y->data,
                                      .m = s.m,
                                      .n = s.n,
                                      .k = s.k,
                                      .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, s.m * s.n);
    oracle_linear_forward(&c->arith, want, (oracle_out){0}, x->value, w->value, bias->value,
                          y->value, s.m, s.n, s.k, false, t);
    op_expect(c, y, "y", want);
}

static void backward_product(op_case *c, yk_dtype t, product s)
{
    op_case_begin(c, t, "gradients M=%d N=%d K=%d", (int)s.m, (int)s.n, (int)s.k);
    op_buffer *x = op_input(c, t, s.m * s.k, 1), *w = op_input(c, t, s.n * s.k, 1);
    op_buffer *dy = op_input(c, t, s.m * s.n, 1), *z = op_input(c, t, s.m * s.k, 2);
    op_buffer *dx = op_output(c, t, s.m * s.k);
    op_buffer *dw = op_inout(c, t, s.n * s.k, 1), *dbias = op_inout(c, t, s.n, 1);
    OP_RUN(c, yk_linear_backward_input,
           &((yk_linear_backward_input_args){.dx = dx->data,
                                             .dy = dy->data,
                                             .w = w->data,
                                             .z = z->data,
                                             .m = s.m,
                                             .n = s.n,
                                             .k = s.k,
                                             .dtype = t}));
    OP_RUN(c, yk_linear_backward_weight,
           &((yk_linear_backward_weight_args){.dw = dw->data,
                                              .dbias = dbias->data,
                                              .x = x->data,
                                              .dy = dy->data,
                                              .m = s.m,
                                              .n = s.n,
                                              .k = s.k,
                                              .accumulate = true,
                                              .dtype = t,
                                              .grad_dtype = t}));
    if (c->bits_only) return;
    oracle_out want_dx = op_out(c, s.m * s.k), want_dw = op_out(c, s.n * s.k);
    oracle_out want_dbias = op_out(c, s.n);
    oracle_linear_backward_input(&c->arith, want_dx, NULL, dy->value, w->value, z->value, s.m, s.n,
                                 s.k);
    oracle_linear_backward_weight(&c->arith, want_dw, want_dbias, dw->value, dbias->value, x->value,
                                  dy->value, s.m, s.n, s.k);
    op_expect(c, dx, "dx", want_dx);
    op_expect(c, dw, "dw", want_dw);
    op_expect(c, dbias, "dbias", want_dbias);
}

static void product_family(op_case *c)
{
    for (int i = 0; i < N_PRODUCTS; i++) {
        yk_dtype t = op_dtypes[i % 2]; /* fp32 is read where it lies, bf16 from copies */
        forward_product(c, t, products[i]);
        backward_product(c, t, products[i]);
    }
    forward_product(c, YK_F32, products[1]);
    backward_product(c, YK_F32, products[5]);
}

static void products_in_several_blocks_agree_with_the_oracle(void **state)
{
    op_on_each_unit(*state, product_family);
}

/* ---- attention ---------------------------------------------------------------------------- */

/* Panels in the workspace, several sequences a place, backward and both ways; heads so large that tiles of queries shrink;
 * documents that end within a tile of queries, with more than one block of keys. */
static const attention_shape shapes[] = {
    {34, 110, 1, 1, 256}, {1, 280, 2, 1, 256}, {1, 40, 2, 1, 1030}, {1, 700, 2, 2, 20}};

static void attention_family(op_case *c)
{
    attention_case(c, YK_F32, shapes[0], 150);
    attention_case(c, YK_BF16, shapes[1], 150);
    attention_case(c, YK_F32, shapes[2], 0);
    attention_case(c, YK_F32, shapes[3], 0);
    attention_case(c, YK_F16, shapes[3], 150);
}

static void attention_beyond_the_scratch_agrees_with_the_oracle(void **state)
{
    attention_family(*state);
}

static void heads_too_large_for_the_scratch_are_refused(void **state)
{
    op_case *c = *state;
    enum { D = 5000 };
    op_case_begin(c, YK_F32, "attention of heads of %d", D);
    op_buffer *qkv = op_input(c, YK_F32, 3 * D, 1), *y = op_output(c, YK_F32, D);
    op_buffer *lse = op_output(c, YK_F32, 1), *dqkv = op_output(c, YK_F32, 3 * D);
    op_buffer *keys = op_output(c, YK_F32, D), *values = op_output(c, YK_F32, D);
    const attention_shape one = {1, 1, 1, 1, D};
    yk_attention_forward_args forward = attention_forward_args(one, YK_F32, NULL);
    forward.y = y->data;
    forward.lse = lse->data;
    forward.qkv = qkv->data;
    yk_attention_backward_args backward = attention_backward_args(one, YK_F32, NULL);
    backward.dqkv = dqkv->data;
    backward.dy = y->data;
    backward.y = y->data;
    backward.lse = lse->data;
    backward.qkv = qkv->data;
    yk_attention_cached_args cached = {.y = y->data,
                                       .k_cache = keys->data,
                                       .v_cache = values->data,
                                       .qkv = qkv->data,
                                       .batch = 1,
                                       .seq_len = 1,
                                       .capacity = 1,
                                       .heads = 1,
                                       .kv_heads = 1,
                                       .head_size = D,
                                       .scale = 1};
    assert_int_equal(yk_attention_forward(c->dry_stream, &forward), YK_OK);
    assert_int_equal(yk_attention_backward(c->dry_stream, &backward), YK_OK);
    op_lend_workspace(c);
    assert_int_equal(yk_attention_forward(c->stream, &forward), YK_EUNSUPPORTED);
    assert_int_equal(yk_attention_backward(c->stream, &backward), YK_EUNSUPPORTED);
    assert_int_equal(yk_attention_cached(c->stream, &cached), YK_EUNSUPPORTED);
}

/* ---- all ---------------------------------------------------------------------------------- */

static void every_cut_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(product_family);
    op_expect_same_bits_again(attention_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(products_in_several_blocks_agree_with_the_oracle),
        OP_TEST(attention_beyond_the_scratch_agrees_with_the_oracle),
        OP_TEST(heads_too_large_for_the_scratch_are_refused),
        cmocka_unit_test(every_cut_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
