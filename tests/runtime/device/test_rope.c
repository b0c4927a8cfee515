/* tests/runtime/device/test_rope.c - rotary positions against the oracle.
 *
 * Bounds. Two products and a sum: 2 eps of the sum of |terms|, then the rounding of storage. Value
 * heads keep their bits. The sum of R rows: R + 1 additions of eps, and what its terms may be off by.
 */
#include <math.h>

#include "tests/runtime/device/op_case.h"

typedef struct shape {
    int64_t rows, heads, kv_heads, head_size;
} shape;

/* Angles as a model has them: position * theta^(-2i/D). */
static op_buffer *table_of(op_case *c, int64_t positions, int64_t half, double (*f)(double))
{
    double *values = op_out(c, positions * half).value;
    for (int64_t i = 0; i < positions * half; i++) {
        double angle = (double)(i / half) * pow(10000, -(double)(i % half) / (double)half);
        values[i] = oracle_round(YK_F32, f(angle));
    }
    return op_given(c, OP_INPUT, YK_F32, positions * half, values);
}

/* What is done beside turning. */
typedef struct sum_how {
    bool wanted, accumulate;
    yk_dtype grad;
} sum_how;

/* `sum` holds the sums of the columns of `of`, which may have been rounded to t before. */
static void expect_sum(op_case *c, const op_buffer *sum, sum_how how, oracle_out of, yk_dtype t,
                       int64_t rows, int64_t width)
{
    oracle_out want = op_out(c, width);
    for (int64_t col = 0; col < width; col++) {
        double terms = how.accumulate ? fabs(sum->value[col]) : 0;
        want.value[col] = how.accumulate ? sum->value[col] : 0;
        for (int64_t i = col; i < rows * width; i += width) {
            want.value[col] += of.value[i];
            want.bound[col] += oracle_stored_bound(t, of.value[i], of.bound[i]);
            terms += fabs(of.value[i]);
        }
        want.bound[col] += (double)(rows + 1) * c->arith.eps * terms;
    }
    op_expect(c, sum, "qkv_sum", want);
}

static void rope_case(op_case *c, yk_dtype t, shape s, bool inverse, sum_how how)
{
    int64_t width = (s.heads + 2 * s.kv_heads) * s.head_size, positions = 130, n = s.rows * width;
    op_case_begin(c, t, "rope R=%d H=%d G=%d D=%d inverse=%d sum=%d %s accumulate=%d", (int)s.rows,
                  (int)s.heads, (int)s.kv_heads, (int)s.head_size, inverse, how.wanted,
                  yk_dtype_name(how.grad), how.accumulate);
    op_buffer *cos_table = table_of(c, positions, s.head_size / 2, cos);
    op_buffer *sin_table = table_of(c, positions, s.head_size / 2, sin);
    op_buffer *at = op_indices(c, s.rows, positions), *qkv = op_inout(c, t, n, 1);
    op_buffer *sum = how.wanted ? op_gradient(c, how.grad, width, how.accumulate) : NULL;
    OP_RUN(c, yk_rope,
           &((yk_rope_args){.qkv = qkv->data,
                            .qkv_sum = sum ? sum->data : NULL,
                            .cos = cos_table->data,
                            .sin = sin_table->data,
                            .positions = at->data,
                            .rows = s.rows,
                            .heads = s.heads,
                            .kv_heads = s.kv_heads,
                            .head_size = s.head_size,
                            .max_positions = positions,
                            .inverse = inverse,
                            .accumulate = how.accumulate,
                            .dtype = t,
                            .grad_dtype = how.grad}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, n);
    oracle_rope(&c->arith, want, qkv->value, cos_table->value, sin_table->value, op_ints(at),
                s.rows, s.heads, s.kv_heads, s.head_size, inverse);
    op_expect(c, qkv, "qkv", want);
    if (sum) expect_sum(c, sum, how, want, t, s.rows, width);
}

static const sum_how no_sum = {0};

static void rope_family(op_case *c)
{
    static const shape shapes[] = {{1, 1, 1, 2},    {3, 3, 1, 6},    {17, 4, 2, 10},
                                   {129, 6, 3, 34}, {127, 2, 2, 64}, {33, 8, 1, 128}};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 6; i++)
            for (int inverse = 0; inverse < 2; inverse++)
                rope_case(c, op_dtypes[d], shapes[i], inverse, no_sum);
}

/* Up to more columns than a block of a GPU has threads for, and more rows than all blocks go through
 * at a time. */
static void rope_sum_family(op_case *c)
{
    static const shape shapes[] = {{1, 1, 1, 2},    {3, 3, 1, 6},    {129, 6, 3, 34},
                                   {257, 2, 1, 48}, {127, 2, 2, 64}, {70, 32, 4, 128},
                                   {4099, 1, 1, 16}};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 7; i++)
            for (int way = 0; way < 2; way++) {
                yk_dtype grad = (i + way) & 1 ? YK_F32 : op_dtypes[d];
                rope_case(c, op_dtypes[d], shapes[i], true, (sum_how){true, way, grad});
            }
}

static void rope_agrees_with_the_oracle(void **state)
{
    rope_family(*state);
}

static void the_sum_of_rotated_rows_agrees_with_the_oracle(void **state)
{
    rope_sum_family(*state);
}

static void rope_of_no_rows_makes_sums_zero(void **state)
{
    shape none = {0, 2, 1, 4};
    rope_case(*state, YK_F32, none, false, no_sum);
    rope_case(*state, YK_BF16, none, true, (sum_how){true, false, YK_BF16});
    rope_case(*state, YK_F32, none, true, (sum_how){true, true, YK_F32});
}

static void rope_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(rope_family);
    op_expect_same_bits_again(rope_sum_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(rope_agrees_with_the_oracle),
        OP_TEST(the_sum_of_rotated_rows_agrees_with_the_oracle),
        OP_TEST(rope_of_no_rows_makes_sums_zero),
        cmocka_unit_test(rope_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
