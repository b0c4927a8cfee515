/* tests/runtime/device/test_rope.c - rotary positions against the oracle.
 *
 * Bounds. Two products and a sum: 2 eps of the sum of |terms|, then the rounding of storage. Value
 * heads keep their bits.
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

static void rope_case(op_case *c, yk_dtype t, shape s, bool inverse)
{
    int64_t positions = 130, n = s.rows * (s.heads + 2 * s.kv_heads) * s.head_size;
    op_case_begin(c, t, "rope R=%d H=%d G=%d D=%d inverse=%d", (int)s.rows, (int)s.heads,
                  (int)s.kv_heads, (int)s.head_size, inverse);
    op_buffer *cos_table = table_of(c, positions, s.head_size / 2, cos);
    op_buffer *sin_table = table_of(c, positions, s.head_size / 2, sin);
    op_buffer *at = op_indices(c, s.rows, positions), *qkv = op_inout(c, t, n, 1);
    OP_RUN(c, yk_rope,
           &((yk_rope_args){.qkv = qkv->data,
                            .cos = cos_table->data,
                            .sin = sin_table->data,
                            .positions = at->data,
                            .rows = s.rows,
                            .heads = s.heads,
                            .kv_heads = s.kv_heads,
                            .head_size = s.head_size,
                            .max_positions = positions,
                            .inverse = inverse,
                            .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, n);
    oracle_rope(&c->arith, want, qkv->value, cos_table->value, sin_table->value, op_ints(at),
                s.rows, s.heads, s.kv_heads, s.head_size, inverse);
    op_expect(c, qkv, "qkv", want);
}

static void rope_family(op_case *c)
{
    static const shape shapes[] = {{1, 1, 1, 2},    {3, 3, 1, 6},    {17, 4, 2, 10},
                                   {129, 6, 3, 34}, {127, 2, 2, 64}, {33, 8, 1, 128}};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 6; i++)
            for (int inverse = 0; inverse < 2; inverse++)
                rope_case(c, op_dtypes[d], shapes[i], inverse);
}

static void rope_agrees_with_the_oracle(void **state)
{
    rope_family(*state);
}

static void rope_of_no_rows_does_nothing(void **state)
{
    rope_case(*state, YK_F32, (shape){0, 2, 1, 4}, false);
}

static void rope_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(rope_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(rope_agrees_with_the_oracle),
        OP_TEST(rope_of_no_rows_does_nothing),
        cmocka_unit_test(rope_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
