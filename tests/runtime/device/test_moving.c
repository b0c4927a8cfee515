/* tests/runtime/device/test_moving.c - cast, copy and zero, to the bit.
 *
 * The rounding that cast must do is the oracle's, which shares nothing with runtime/base/dtype.h.
 */
#include <math.h>
#include <string.h>

#include "tests/runtime/device/op_case.h"

/* Numbers between two of the 16-bit types, ties among them, up to where they overflow and down to
 * where they vanish. */
static double odd_number(op_case *c, yk_dtype dst, int64_t i)
{
    static const double special[] = {0,         -0.0,    INFINITY, -INFINITY, NAN,      65504,
                                     65519.99,  65520,   65536,    3.4e38,    0x1p-24,  0x1p-25,
                                     0x1.8p-25, 0x1p-14, 0x1p-126, 0x1p-133,  0x1p-134, 0x1.8p-134};
    if (i < 18) return special[i];
    int exponent = (int)op_random_below(c, 300) - 160;
    double x = oracle_round(dst, ldexp(1 + (double)op_random_below(c, 1024) / 1024, exponent));
    double step = oracle_unit_roundoff(dst) * x; /* half a unit, or all of it */
    static const double near[] = {0, 1, 1.001, 0.999, 2};
    x += step * near[op_random_below(c, 5)];
    return op_random_below(c, 2) ? x : -x;
}

static void cast_case(op_case *c, yk_dtype dst, yk_dtype src, int64_t n)
{
    op_case_begin(c, dst, "cast from %s n=%d", yk_dtype_name(src), (int)n);
    oracle_out want = op_out(c, n);
    double *x = op_out(c, n).value;
    for (int64_t i = 0; i < n; i++) {
        x[i] = oracle_round(src, odd_number(c, dst, i));
        want.value[i] = oracle_round(dst, x[i]);
    }
    op_buffer *in = op_given(c, OP_INPUT, src, n, x), *out = op_output(c, dst, n);
    OP_RUN(c, yk_cast,
           &((yk_cast_args){
               .dst = out->data, .src = in->data, .n = n, .dst_dtype = dst, .src_dtype = src}));
    if (c->bits_only) return;
    op_expect(c, out, "dst", want);
    for (int64_t i = 0; i < n; i++)
        if (!isnan(x[i])) assert_int_equal(!!signbit(out->got[i]), !!signbit(x[i]));
}

static void cast_family(op_case *c)
{
    static const int64_t sizes[] = {0, 1, 3, 17, 127, 129, 4097, 70001};
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 3; s++)
            for (int i = 0; i < 8; i++) cast_case(c, op_dtypes[d], op_dtypes[s], sizes[i]);
}

static void cast_rounds_to_nearest_even(void **state)
{
    cast_family(*state);
}

/* All 65,536 patterns: fp32 holds each exactly, and gives each back. */
static void cast_of_every_half_there_and_back_is_exact(void **state)
{
    op_case *c = *state;
    for (int d = 1; d < 3; d++) {
        yk_dtype t = op_dtypes[d];
        op_case_begin(c, t, "cast of every number");
        oracle_out want = op_out(c, 65536);
        for (int i = 0; i < 65536; i++) {
            uint16_t bits = (uint16_t)i;
            want.value[i] = oracle_decode(t, &bits);
        }
        op_buffer *in = op_given(c, OP_INPUT, t, 65536, want.value);
        op_buffer *wide = op_output(c, YK_F32, 65536), *back = op_output(c, t, 65536);
        OP_RUN(c, yk_cast,
               &((yk_cast_args){.dst = wide->data,
                                .src = in->data,
                                .n = 65536,
                                .dst_dtype = YK_F32,
                                .src_dtype = t}));
        OP_RUN(c, yk_cast,
               &((yk_cast_args){.dst = back->data,
                                .src = wide->data,
                                .n = 65536,
                                .dst_dtype = t,
                                .src_dtype = YK_F32}));
        op_expect(c, wide, "fp32", want);
        op_expect(c, back, "back", want);
    }
}

static void cast_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(cast_family);
}

static void copy_moves_every_byte_and_no_other(void **state)
{
    op_case *c = *state;
    static const int64_t sizes[] = {0, 1, 3, 17, 127, 129, 4097};
    for (int i = 0; i < 7; i++) {
        int64_t n = sizes[i];
        op_case_begin(c, YK_BF16, "copy n=%d", (int)n);
        op_buffer *src = op_input(c, YK_BF16, n, 1), *dst = op_output(c, YK_BF16, n);
        assert_int_equal(yk_copy(c->stream, dst->data, src->data, 2 * n, YK_COPY_DEVICE), YK_OK);
        op_collect(c);
        op_expect_equal(c, dst, src, "copy");
    }
}

static void zero_clears_every_byte_and_no_other(void **state)
{
    op_case *c = *state;
    static const int64_t sizes[] = {0, 1, 3, 17, 127, 129, 4097};
    for (int i = 0; i < 7; i++) {
        op_case_begin(c, YK_BF16, "zero n=%d", (int)sizes[i]);
        op_buffer *b = op_output(c, YK_BF16, sizes[i]);
        assert_int_equal(yk_zero(c->stream, b->data, 2 * sizes[i]), YK_OK);
        op_collect(c);
        op_expect(c, b, "zero", op_out(c, sizes[i]));
    }
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(cast_rounds_to_nearest_even),
        OP_TEST(cast_of_every_half_there_and_back_is_exact),
        cmocka_unit_test(cast_gives_the_same_bits_again),
        OP_TEST(copy_moves_every_byte_and_no_other),
        OP_TEST(zero_clears_every_byte_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
