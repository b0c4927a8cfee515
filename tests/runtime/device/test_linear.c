/* tests/runtime/device/test_linear.c - matrix products against the oracle.
 *
 * Bounds. A sum of K products has (K + 1) eps of the sum of |terms| in whatever order, then one
 * rounding of storage; GELU adds 8 eps |z| and, z being rounded first, 1.13 (its steepest slope)
 * times that rounding. Gradients likewise with N + 2 and M + 1; GELU' adds its own error times the
 * sum of |terms|. tests/oracle/linear.c has them.
 */
#include <math.h>

#include "runtime/device/tune.h"
#include "tests/runtime/device/op_case.h"

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape shapes[] = {{1, 1, 1},    {1, 17, 3},    {3, 1, 127},   {17, 129, 3},
                               {129, 3, 17}, {127, 65, 33}, {129, 257, 64}};
#define N_SHAPES 7

/* ---- forward ------------------------------------------------------------------------------ */

typedef enum residual_how { NO_RESIDUAL, RESIDUAL, RESIDUAL_IS_Y } residual_how;

static void forward_case(op_case *c, yk_dtype t, shape s, bool with_bias, residual_how how)
{
    op_case_begin(c, t, "linear_forward M=%d N=%d K=%d bias=%d residual=%d", (int)s.m, (int)s.n,
                  (int)s.k, with_bias, (int)how);
    op_buffer *x = op_input(c, t, s.m * s.k, 1), *w = op_input(c, t, s.n * s.k, 1);
    op_buffer *bias = op_input(c, t, s.n, 1);
    op_buffer *y = how == RESIDUAL_IS_Y ? op_inout(c, t, s.m * s.n, 1) : op_output(c, t, s.m * s.n);
    op_buffer *residual = how == RESIDUAL ? op_input(c, t, s.m * s.n, 1) : y;
    OP_RUN(c, yk_linear_forward,
           &((yk_linear_forward_args){.y = y->data,
                                      .x = x->data,
                                      .w = w->data,
                                      .bias = with_bias ? bias->data : NULL,
                                      .residual = how == NO_RESIDUAL ? NULL : residual->data,
                                      .m = s.m,
                                      .n = s.n,
                                      .k = s.k,
                                      .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, s.m * s.n);
    oracle_linear_forward(&c->arith, want, (oracle_out){0}, x->value, w->value,
                          with_bias ? bias->value : NULL,
                          how == NO_RESIDUAL ? NULL : residual->value, s.m, s.n, s.k, false, t);
    op_expect(c, y, "y", want);
}

/* With GELU: y has the same bits whether z is kept or not. */
static void gelu_case(op_case *c, yk_dtype t, shape s, bool with_bias)
{
    op_case_begin(c, t, "linear_forward gelu M=%d N=%d K=%d bias=%d", (int)s.m, (int)s.n, (int)s.k,
                  with_bias);
    op_buffer *x = op_input(c, t, s.m * s.k, 1), *w = op_input(c, t, s.n * s.k, 1);
    op_buffer *bias = op_input(c, t, s.n, 1);
    op_buffer *y = op_output(c, t, s.m * s.n), *z = op_output(c, t, s.m * s.n);
    op_buffer *y_alone = op_output(c, t, s.m * s.n);
    yk_linear_forward_args a = {.y = y->data,
                                .z = z->data,
                                .x = x->data,
                                .w = w->data,
                                .bias = with_bias ? bias->data : NULL,
                                .m = s.m,
                                .n = s.n,
                                .k = s.k,
                                .gelu = true,
                                .dtype = t};
    OP_RUN(c, yk_linear_forward, &a);
    a.y = y_alone->data;
    a.z = NULL;
    OP_RUN(c, yk_linear_forward, &a);
    if (c->bits_only) return;
    oracle_out want = op_out(c, s.m * s.n), want_z = op_out(c, s.m * s.n);
    oracle_linear_forward(&c->arith, want, want_z, x->value, w->value,
                          with_bias ? bias->value : NULL, NULL, s.m, s.n, s.k, true, t);
    op_expect(c, z, "z", want_z);
    op_expect(c, y, "y", want);
    op_expect_equal(c, y, y_alone, "y without z kept");
}

static void linear_forward_family(op_case *c)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_SHAPES; i++)
            for (int bias = 0; bias < 2; bias++) {
                for (int how = NO_RESIDUAL; how <= RESIDUAL_IS_Y; how++)
                    forward_case(c, op_dtypes[d], shapes[i], bias, (residual_how)how);
                gelu_case(c, op_dtypes[d], shapes[i], bias);
            }
}

/* ---- gradients ---------------------------------------------------------------------------- */

static void backward_input_case(op_case *c, yk_dtype t, shape s, bool with_z, bool accumulate)
{
    op_case_begin(c, t, "linear_backward_input M=%d N=%d K=%d z=%d accumulate=%d", (int)s.m,
                  (int)s.n, (int)s.k, with_z, accumulate);
    op_buffer *dy = op_input(c, t, s.m * s.n, 1), *w = op_input(c, t, s.n * s.k, 1);
    op_buffer *z = with_z ? op_input(c, t, s.m * s.k, 2) : NULL;
    op_buffer *dx = op_gradient(c, t, s.m * s.k, accumulate);
    OP_RUN(c, yk_linear_backward_input,
           &((yk_linear_backward_input_args){.dx = dx->data,
                                             .dy = dy->data,
                                             .w = w->data,
                                             .z = with_z ? z->data : NULL,
                                             .m = s.m,
                                             .n = s.n,
                                             .k = s.k,
                                             .accumulate = accumulate,
                                             .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, s.m * s.k);
    oracle_linear_backward_input(&c->arith, want, op_before(dx, accumulate), dy->value, w->value,
                                 with_z ? z->value : NULL, s.m, s.n, s.k);
    op_expect(c, dx, "dx", want);
}

/* The bias before the GELU: sums over rows of dx, whose bound they have, its rounding, and m eps. */
static void gelu_bias_case(op_case *c, yk_dtype t, yk_dtype grad, shape s, bool accumulate)
{
    op_case_begin(c, t, "linear_backward_input %s M=%d N=%d K=%d dbias accumulate=%d",
                  yk_dtype_name(grad), (int)s.m, (int)s.n, (int)s.k, accumulate);
    op_buffer *dy = op_input(c, t, s.m * s.n, 1), *w = op_input(c, t, s.n * s.k, 1);
    op_buffer *z = op_input(c, t, s.m * s.k, 2), *dx = op_output(c, t, s.m * s.k);
    op_buffer *dbias = op_gradient(c, grad, s.k, accumulate);
    OP_RUN(c, yk_linear_backward_input,
           &((yk_linear_backward_input_args){.dx = dx->data,
                                             .dbias = dbias->data,
                                             .dy = dy->data,
                                             .w = w->data,
                                             .z = z->data,
                                             .m = s.m,
                                             .n = s.n,
                                             .k = s.k,
                                             .accumulate_dbias = accumulate,
                                             .dtype = t,
                                             .grad_dtype = grad}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, s.m * s.k), sums = op_out(c, s.k);
    oracle_linear_backward_input(&c->arith, want, NULL, dy->value, w->value, z->value, s.m, s.n,
                                 s.k);
    op_expect(c, dx, "dx", want);
    for (int64_t col = 0; col < s.k; col++) {
        double terms = accumulate ? fabs(dbias->value[col]) : 0;
        sums.value[col] = accumulate ? dbias->value[col] : 0;
        for (int64_t i = col; i < s.m * s.k; i += s.k) {
            sums.value[col] += want.value[i];
            sums.bound[col] += oracle_stored_bound(t, want.value[i], want.bound[i]);
            terms += fabs(want.value[i]);
        }
        sums.bound[col] += (double)(s.m + 1) * c->arith.eps * terms;
    }
    op_expect(c, dbias, "dbias", sums);
}

static void linear_backward_input_family(op_case *c)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_SHAPES; i++) {
            backward_input_case(c, op_dtypes[d], shapes[i], false, false);
            backward_input_case(c, op_dtypes[d], shapes[i], false, true);
            backward_input_case(c, op_dtypes[d], shapes[i], true, false);
            gelu_bias_case(c, op_dtypes[d], op_dtypes[d], shapes[i], false);
            gelu_bias_case(c, op_dtypes[d], YK_F32, shapes[i], true);
        }
}

static void backward_weight_case(op_case *c, yk_dtype t, yk_dtype grad, shape s, bool with_bias,
                                 bool accumulate)
{
    op_case_begin(c, t, "linear_backward_weight %s M=%d N=%d K=%d bias=%d accumulate=%d",
                  yk_dtype_name(grad), (int)s.m, (int)s.n, (int)s.k, with_bias, accumulate);
    op_buffer *x = op_input(c, t, s.m * s.k, 1), *dy = op_input(c, t, s.m * s.n, 1);
    op_buffer *dw = op_gradient(c, grad, s.n * s.k, accumulate);
    op_buffer *dbias = with_bias ? op_gradient(c, grad, s.n, accumulate) : NULL;
    OP_RUN(c, yk_linear_backward_weight,
           &((yk_linear_backward_weight_args){.dw = dw->data,
                                              .dbias = with_bias ? dbias->data : NULL,
                                              .x = x->data,
                                              .dy = dy->data,
                                              .m = s.m,
                                              .n = s.n,
                                              .k = s.k,
                                              .accumulate = accumulate,
                                              .dtype = t,
                                              .grad_dtype = grad}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, s.n * s.k),
               want_bias = with_bias ? op_out(c, s.n) : (oracle_out){0};
    oracle_linear_backward_weight(&c->arith, want, want_bias, op_before(dw, accumulate),
                                  with_bias ? op_before(dbias, accumulate) : NULL, x->value,
                                  dy->value, s.m, s.n, s.k);
    op_expect(c, dw, "dw", want);
    if (with_bias) op_expect(c, dbias, "dbias", want_bias);
}

static void linear_backward_weight_family(op_case *c)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_SHAPES; i++)
            for (int way = 0; way < 8; way++)
                backward_weight_case(c, op_dtypes[d], way & 1 ? YK_F32 : op_dtypes[d], shapes[i],
                                     way & 2, way & 4);
}

/* ---- tests -------------------------------------------------------------------------------- */

static void linear_forward_agrees_with_the_oracle(void **state)
{
    op_on_each_unit(*state, linear_forward_family);
}

static void linear_backward_input_agrees_with_the_oracle(void **state)
{
    op_on_each_unit(*state, linear_backward_input_family);
}

static void linear_backward_weight_agrees_with_the_oracle(void **state)
{
    op_on_each_unit(*state, linear_backward_weight_family);
}

static void linear_of_no_rows_is_zero_or_what_was_there(void **state)
{
    shape none = {0, 17, 3};
    forward_case(*state, YK_F32, none, true, NO_RESIDUAL);
    backward_input_case(*state, YK_F32, none, false, false);
    gelu_bias_case(*state, YK_F32, YK_F32, none, false);
    gelu_bias_case(*state, YK_F32, YK_F32, none, true);
    for (int way = 0; way < 4; way++)
        backward_weight_case(*state, YK_BF16, YK_F32, none, way & 1, way & 2);
}

/* Rows and columns that a GPU cuts into parts and strips, and what is left over of each. */
static void bias_family(op_case *c)
{
    static const shape sums[] = {{1, 1, 0},      {3, 17, 0},    {129, 257, 0},
                                 {1000, 8, 0},   {31, 256, 0},  {2100, 40, 0},
                                 {1777, 264, 0}, {9001, 24, 0}, {70, 1601, 0}};
    for (int i = 0; i < 9; i++)
        for (int d = 0; d < 3; d++)
            for (int way = 0; way < 4; way++)
                backward_weight_case(c, op_dtypes[d], way & 1 ? YK_F32 : op_dtypes[d], sums[i],
                                     true, way & 2);
}

static void gradient_of_a_bias_alone_agrees_with_the_oracle(void **state)
{
    op_on_each_unit(*state, bias_family);
}

/* Large enough that each side in turn is cut, and every thread has some. */
static void larger_products(op_case *c)
{
    static const shape large[] = {{513, 300, 129}, {129, 1025, 65}, {1030, 33, 260}, {2100, 40, 33},
                                  {9, 37, 4999},   {200, 384, 96},  {77, 96, 384}};
    for (int i = 0; i < 7; i++) {
        forward_case(c, YK_F32, large[i], true, RESIDUAL);
        gelu_case(c, YK_F32, large[i], true);
        backward_input_case(c, YK_F32, large[i], true, false);
        backward_weight_case(c, YK_F32, YK_F32, large[i], true, true);
        forward_case(c, YK_BF16, large[i], true, RESIDUAL);
        backward_input_case(c, YK_F16, large[i], false, true);
        backward_weight_case(c, YK_BF16, YK_BF16, large[i], true, false);
        for (int d = YK_BF16; d <= YK_F16; d++) {
            gelu_case(c, (yk_dtype)d, large[i], true);
            backward_input_case(c, (yk_dtype)d, large[i], true, false);
            gelu_bias_case(c, (yk_dtype)d, (yk_dtype)d, large[i], false);
        }
    }
}

static void linear_of_larger_sizes_agrees_with_the_oracle(void **state)
{
    op_on_each_unit(*state, larger_products);
}

/* On a GPU, where algorithms race on the tensors at hand: nothing of that may be left in them. */
static void linear_that_is_tuned_agrees_with_the_oracle(void **state)
{
    op_case *c = *state;
    if (yk_device_get_kind(c->device) == YK_DEVICE_CPU) skip();
    assert_int_equal(yk_device_tune(c->device, YK_TUNE_FULL, ""), YK_OK);
    larger_products(c);
}

/* In TF32 what is rounded are the factors, so that few terms show it best. */
static void single_products(op_case *c)
{
    static const shape more[] = {{64, 96, 8}, {200, 384, 96}, {513, 300, 129}};
    for (int i = 0; i < N_SHAPES + 3; i++) {
        shape s = i < N_SHAPES ? shapes[i] : more[i - N_SHAPES];
        forward_case(c, YK_F32, s, true, NO_RESIDUAL);
        forward_case(c, YK_F32, s, false, RESIDUAL_IS_Y);
        gelu_case(c, YK_F32, s, true);
        backward_input_case(c, YK_F32, s, false, true);
        backward_input_case(c, YK_F32, s, true, false);
        gelu_bias_case(c, YK_F32, YK_F32, s, false);
        backward_weight_case(c, YK_F32, YK_F32, s, true, true);
    }
}

static void linear_in_tf32_agrees_with_the_oracle(void **state)
{
    op_use_tf32(*state);
    single_products(*state);
}

/* What `tf32` is for, and that nothing of it stays: a product's algorithm is kept for the next time. */
static void linear_rounds_factors_while_tf32_is_on_and_then_no_more(void **state)
{
    op_case *c = *state;
    enum { M = 256, N = 512, K = 384 };
    if (yk_device_get_kind(c->device) == YK_DEVICE_CPU) skip();
    op_case_begin(c, YK_F32, "linear_forward before, with and after tf32");
    op_buffer *x = op_input(c, YK_F32, M * K, 1), *w = op_input(c, YK_F32, N * K, 1), *y[3];
    for (int i = 0; i < 3; i++) {
        y[i] = op_output(c, YK_F32, M * N);
        yk_device_set_tf32(c->device, i == 1);
        OP_RUN(c, yk_linear_forward,
               &((yk_linear_forward_args){.y = y[i]->data,
                                          .x = x->data,
                                          .w = w->data,
                                          .m = M,
                                          .n = N,
                                          .k = K,
                                          .dtype = YK_F32}));
    }
    op_expect_equal(c, y[0], y[2], "y after tf32");
    double most = 0; /* the error of a sum of K products of normal numbers is about sqrt(K) eps */
    for (int64_t i = 0; i < M * N; i++) most = fmax(most, fabs(y[1]->got[i] - y[0]->got[i]));
    assert_true(most > sqrt(K) * 0x1p-13 && most < sqrt(K) * 0x1p-7);
}

static void linear_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(linear_forward_family);
    op_expect_same_bits_again(linear_backward_input_family);
    op_expect_same_bits_again(linear_backward_weight_family);
    op_expect_same_bits_again(bias_family);
    op_expect_same_bits_again(larger_products);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(linear_forward_agrees_with_the_oracle),
        OP_TEST(linear_backward_input_agrees_with_the_oracle),
        OP_TEST(linear_backward_weight_agrees_with_the_oracle),
        OP_TEST(linear_of_no_rows_is_zero_or_what_was_there),
        OP_TEST(gradient_of_a_bias_alone_agrees_with_the_oracle),
        OP_TEST(linear_of_larger_sizes_agrees_with_the_oracle),
        OP_TEST(linear_that_is_tuned_agrees_with_the_oracle),
        OP_TEST(linear_in_tf32_agrees_with_the_oracle),
        OP_TEST(linear_rounds_factors_while_tf32_is_on_and_then_no_more),
        cmocka_unit_test(linear_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
