/* tests/runtime/device/test_activation.c - SwiGLU against the oracle.
 *
 * Bounds. The sigmoid (6 + 2 |x|) eps
 * relatively, because its exponent is rounded; SwiGLU and its gradient follow, with 2 eps |gate|
 * sigmoid for the cancellation in 1 - sigmoid. Then the rounding of storage.
 */
#include <math.h>

#include "tests/runtime/device/op_case.h"

static const int64_t sizes[][2] = {{1, 1}, {3, 17}, {17, 129}, {129, 3}, {257, 127}};
#define N_SIZES 5

/* Mostly ordinary numbers, and some that are far out on either side, zero, or subnormal. */
static op_buffer *wide_range(op_case *c, op_role role, yk_dtype t, int64_t n)
{
    static const double odd[] = {0, -0.0, 30, -30, 100, -100, 1e-6, -1e-6, 1e4, -1e4};
    double *x = op_out(c, n).value;
    for (int64_t i = 0; i < n; i++) {
        double v =
            op_random_below(c, 4) == 0 ? odd[op_random_below(c, 10)] : 2 * op_random_normal(c);
        x[i] = oracle_round(t, v);
    }
    return op_given(c, role, t, n, x);
}

static void swiglu_forward_case(op_case *c, yk_dtype t, int64_t rows, int64_t cols)
{
    op_case_begin(c, t, "swiglu_forward R=%d F=%d", (int)rows, (int)cols);
    op_buffer *gate_up = wide_range(c, OP_INPUT, t, rows * 2 * cols);
    op_buffer *y = op_output(c, t, rows * cols);
    OP_RUN(c, yk_swiglu_forward,
           &((yk_swiglu_forward_args){
               .y = y->data, .gate_up = gate_up->data, .rows = rows, .cols = cols, .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, rows * cols);
    oracle_swiglu_forward(&c->arith, want, gate_up->value, rows, cols);
    op_expect(c, y, "y", want);
}

static void swiglu_backward_case(op_case *c, yk_dtype t, int64_t rows, int64_t cols, bool in_place)
{
    op_case_begin(c, t, "swiglu_backward R=%d F=%d in_place=%d", (int)rows, (int)cols, in_place);
    op_buffer *gate_up = wide_range(c, in_place ? OP_INOUT : OP_INPUT, t, rows * 2 * cols);
    op_buffer *dy = op_input(c, t, rows * cols, 1);
    op_buffer *dgate_up = in_place ? gate_up : op_output(c, t, rows * 2 * cols);
    OP_RUN(c, yk_swiglu_backward,
           &((yk_swiglu_backward_args){.dgate_up = dgate_up->data,
                                       .dy = dy->data,
                                       .gate_up = gate_up->data,
                                       .rows = rows,
                                       .cols = cols,
                                       .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, rows * 2 * cols);
    oracle_swiglu_backward(&c->arith, want, dy->value, gate_up->value, rows, cols);
    op_expect(c, dgate_up, "dgate_up", want);
}

static void activation_family(op_case *c)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_SIZES; i++) {
            swiglu_forward_case(c, op_dtypes[d], sizes[i][0], sizes[i][1]);
            swiglu_backward_case(c, op_dtypes[d], sizes[i][0], sizes[i][1], false);
            swiglu_backward_case(c, op_dtypes[d], sizes[i][0], sizes[i][1], true);
        }
}

static void activations_agree_with_the_oracle(void **state)
{
    activation_family(*state);
}

static void activations_of_no_rows_do_nothing(void **state)
{
    swiglu_forward_case(*state, YK_F32, 0, 17);
    swiglu_backward_case(*state, YK_F32, 0, 17, false);
}

static void activations_give_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(activation_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(activations_agree_with_the_oracle),
        OP_TEST(activations_of_no_rows_do_nothing),
        cmocka_unit_test(activations_give_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
