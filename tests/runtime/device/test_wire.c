/* tests/runtime/device/test_wire.c - packing, unpacking and adding in host memory, against the
 * conversions of one value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "runtime/device/wire.h"

#define N_HALVES 65536

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static float bits_to_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static bool same_f32(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, 4) == 0;
}

static float half_to_f32(yk_dtype t, uint16_t h)
{
    return t == YK_BF16 ? yk_bf16_to_f32(h) : yk_f16_to_f32(h);
}

static bool same_half(yk_dtype t, uint16_t a, uint16_t b)
{
    return a == b || (isnan(half_to_f32(t, a)) && isnan(half_to_f32(t, b)));
}

/* What x travels as: rounded, but what is finite stays so. */
static uint16_t expected_half(yk_dtype t, float x)
{
    if (t == YK_F16) return yk_f32_to_f16(x);
    uint16_t h = yk_f32_to_bf16(x);
    bool overflows = (h & 0x7fff) == 0x7f80 && !isinf(x);
    return overflows ? (uint16_t)((h & 0x8000) | 0x7f7f) : h;
}

/* ---- every value -------------------------------------------------------------------------- */

static void every_half_unpacks_to_its_value(void **state)
{
    (void)state;
    static uint16_t wire[N_HALVES];
    static float x[N_HALVES];
    for (int i = 0; i < N_HALVES; i++) wire[i] = (uint16_t)i;
    for (yk_dtype t = YK_BF16; t <= YK_F16; t++) {
        yk_wire_unpack(x, YK_F32, wire, t, N_HALVES, 0, false);
        for (int i = 0; i < N_HALVES; i++) assert_true(same_f32(x[i], yk_load_f32(wire, i, t)));
    }
}

static void every_half_travels_as_itself(void **state)
{
    (void)state;
    static uint16_t in[N_HALVES], wire[N_HALVES];
    for (int i = 0; i < N_HALVES; i++) in[i] = (uint16_t)i;
    for (yk_dtype t = YK_BF16; t <= YK_F16; t++) {
        assert_int_equal(yk_wire_pack(wire, t, in, t, N_HALVES, 0), 0);
        for (int i = 0; i < N_HALVES; i++) assert_true(same_half(t, wire[i], in[i]));
    }
}

/* Each half, the fp32 values next to it, and those at and next to the middle between it and the next. */
static void every_rounding_is_to_the_nearest_half(void **state)
{
    (void)state;
    enum { PER = 6 };
    static float x[N_HALVES * PER];
    static uint16_t wire[N_HALVES * PER];
    for (yk_dtype t = YK_BF16; t <= YK_F16; t++) {
        int64_t n_lost = 0;
        for (int i = 0; i < N_HALVES; i++) {
            float a = half_to_f32(t, (uint16_t)i), b = half_to_f32(t, (uint16_t)(i + 1));
            float middle = (float)(((double)a + (double)b) / 2);
            float *v = x + i * PER;
            v[0] = a;
            v[1] = nextafterf(a, INFINITY);
            v[2] = nextafterf(a, -INFINITY);
            v[3] = middle;
            v[4] = nextafterf(middle, INFINITY);
            v[5] = nextafterf(middle, -INFINITY);
        }
        for (int i = 0; i < N_HALVES * PER; i++)
            n_lost += x[i] != 0 && (expected_half(t, x[i]) & 0x7fff) == 0;
        assert_true(n_lost > 4);
        assert_int_equal(yk_wire_pack(wire, t, x, YK_F32, N_HALVES * PER, 0), n_lost);
        for (int i = 0; i < N_HALVES * PER; i++)
            assert_true(same_half(t, wire[i], expected_half(t, x[i])));
    }
}

static void a_half_of_one_kind_travels_as_the_other(void **state)
{
    (void)state;
    static uint16_t in[N_HALVES], wire[N_HALVES];
    for (int i = 0; i < N_HALVES; i++) in[i] = (uint16_t)i;
    for (yk_dtype from = YK_BF16; from <= YK_F16; from++) {
        yk_dtype to = from == YK_F16 ? YK_BF16 : YK_F16;
        for (int exponent = -20; exponent <= 20; exponent += 20) {
            if (to == YK_BF16 && exponent != 0) continue;
            int64_t n_lost = 0;
            for (int i = 0; i < N_HALVES; i++) {
                float v = yk_load_f32(in, i, from);
                n_lost += v != 0 && (expected_half(to, ldexpf(v, exponent)) & 0x7fff) == 0;
            }
            assert_int_equal(yk_wire_pack(wire, to, in, from, N_HALVES, exponent), n_lost);
            for (int i = 0; i < N_HALVES; i++) {
                float scaled = ldexpf(yk_load_f32(in, i, from), exponent);
                assert_true(same_half(to, wire[i], expected_half(to, scaled)));
            }
        }
    }
}

static void infinities_and_nans_travel_as_such(void **state)
{
    (void)state;
    float x[] = {INFINITY, -INFINITY, NAN, 3.4028235e38f, -3.4028235e38f, 1e-45f};
    uint16_t wire[6];
    for (yk_dtype t = YK_BF16; t <= YK_F16; t++) {
        int exponent = t == YK_F16 ? yk_wire_scale_exponent(3.4028235e38f, 4) : 0;
        assert_int_equal(yk_wire_pack(wire, t, x, YK_F32, 6, exponent), 1);
        assert_true(yk_load_f32(wire, 0, t) == INFINITY && yk_load_f32(wire, 1, t) == -INFINITY);
        assert_true(isnan(yk_load_f32(wire, 2, t)));
        assert_true(isfinite(yk_load_f32(wire, 3, t)) && yk_load_f32(wire, 3, t) > 0);
        assert_true(isfinite(yk_load_f32(wire, 4, t)) && yk_load_f32(wire, 4, t) < 0);
        assert_true(yk_load_f32(wire, 5, t) == 0);
    }
}

/* ---- the scale ---------------------------------------------------------------------------- */

static void the_greatest_is_found_wherever_it_lies(void **state)
{
    (void)state;
    float x[100];
    uint16_t h[100];
    for (int n = 1; n <= 100; n += n < 40 ? 1 : 7)
        for (int at = 0; at < n; at++) {
            for (int i = 0; i < n; i++) x[i] = i % 3 ? NAN : i % 2 ? -INFINITY : 0.25f;
            x[at] = at % 2 ? -2.5f : 2.5f;
            assert_true(yk_wire_greatest(x, n, YK_F32) == 2.5f);
            for (yk_dtype t = YK_BF16; t <= YK_F16; t++) {
                for (int i = 0; i < n; i++) yk_store_f32(h, i, t, x[i]);
                assert_true(yk_wire_greatest(h, n, t) == 2.5f);
            }
        }
    float none[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f};
    assert_true(same_f32(yk_wire_greatest(none, 5, YK_F32), 0.0f));
    assert_true(yk_wire_greatest(none, 0, YK_F32) == 0);
    float edge[] = {3.4028235e38f, 1e-45f};
    assert_true(yk_wire_greatest(edge, 2, YK_F32) == 3.4028235e38f);
    assert_true(yk_wire_greatest(edge + 1, 1, YK_F32) == 1e-45f);
}

/* However great the values and however many the ranks: their sum fits, and half the scale would be
 * wasteful. */
static void the_scale_fits_the_sum_just_so(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 8, 64, 1000, 8192};
    assert_int_equal(yk_wire_scale_exponent(0, 8), 0);
    for (int e = -149; e <= 127; e++)
        for (int part = 0; part < 3; part++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
                float greatest = ldexpf(part == 0 ? 1.0f : part == 1 ? 1.25f : 0x1.fffffep0f, e);
                int k = yk_wire_scale_exponent(greatest, sizes[s]);
                assert_true(k >= -126 && k <= 126);
                double sum = ldexp((double)greatest, k) * sizes[s];
                assert_true(sum <= 0x1p15);
                if (k < 126) assert_true(sum > 0x1p12);
            }
}

/* The worst case: every rank has the greatest value, rounded up on the wire, and sums are rounded at two
 * levels. */
static void a_sum_of_greatest_values_stays_finite(void **state)
{
    (void)state;
    for (int n = 1; n <= 64; n++)
        for (int e = -140; e <= 127; e += 3) {
            float greatest = ldexpf(0x1.fffffep0f, e);
            int k = yk_wire_scale_exponent(greatest, n * n);
            uint16_t one, node, total;
            const void *parts[64];
            yk_wire_pack(&one, YK_F16, &greatest, YK_F32, 1, k);
            for (int i = 0; i < n; i++) parts[i] = &one;
            yk_wire_sum(&node, parts, n, 1, YK_F16);
            for (int i = 0; i < n; i++) parts[i] = &node;
            yk_wire_sum(&total, parts, n, 1, YK_F16);
            assert_true(isfinite(yk_f16_to_f32(total)));
        }
}

static void small_gradients_survive_by_the_scale(void **state)
{
    (void)state;
    float x[] = {1e-12f, -3e-13f, 1e-25f}, back[3];
    uint16_t wire[3];
    int k = yk_wire_scale_exponent(yk_wire_greatest(x, 3, YK_F32), 2);
    assert_int_equal(yk_wire_pack(wire, YK_F16, x, YK_F32, 3, k), 1); /* the last is lost */
    yk_wire_unpack(back, YK_F32, wire, YK_F16, 3, k, false);
    assert_true(fabsf(back[0] - x[0]) <= 0x1p-11f * x[0]);
    assert_true(fabsf(back[1] - x[1]) <= 0x1p-11f * x[0]);
    assert_true(back[2] == 0);
    assert_int_equal(yk_wire_pack(wire, YK_F16, x, YK_F32, 3, 0), 3);
}

/* ---- shapes ------------------------------------------------------------------------------- */

/* A buffer between guards, at an odd place. */
typedef struct guarded {
    unsigned char bytes[16384];
} guarded;

#define GUARD 0x5b

static void *guarded_begin(guarded *g)
{
    memset(g->bytes, GUARD, sizeof g->bytes);
    return g->bytes + 64 + 4;
}

static void check_guards(const guarded *g, int64_t bytes)
{
    for (size_t i = 0; i < sizeof g->bytes; i++)
        if (i < 68 || i >= 68 + (size_t)bytes) assert_int_equal(g->bytes[i], GUARD);
}

static void packing_in_place_is_packing(void **state)
{
    (void)state;
    uint64_t seed = 1;
    guarded g;
    float x[2100];
    uint16_t apart[2100];
    for (int64_t n = 0; n < 2100; n += n < 70 ? 1 : 203)
        for (yk_dtype t = YK_BF16; t <= YK_F16; t++) {
            float *in_place = guarded_begin(&g);
            for (int64_t i = 0; i < n; i++) x[i] = bits_to_f32((uint32_t)random_next(&seed));
            memcpy(in_place, x, (size_t)n * 4);
            int exponent = t == YK_F16 ? -9 : 0;
            int64_t lost = yk_wire_pack(apart, t, x, YK_F32, n, exponent);
            assert_int_equal(yk_wire_pack(in_place, t, in_place, YK_F32, n, exponent), lost);
            check_guards(&g, n * 4);
            assert_memory_equal(in_place, apart, (size_t)n * 2);
        }
}

static void unpacking_in_place_is_unpacking(void **state)
{
    (void)state;
    uint64_t seed = 2;
    guarded g;
    uint16_t wire[2100];
    for (int64_t n = 0; n < 2100; n += n < 70 ? 1 : 203)
        for (yk_dtype t = YK_BF16; t <= YK_F16; t++) {
            float *in_place = guarded_begin(&g);
            for (int64_t i = 0; i < n; i++) wire[i] = (uint16_t)random_next(&seed);
            memcpy(in_place, wire, (size_t)n * 2);
            int exponent = t == YK_F16 ? 31 : 0;
            yk_wire_unpack(in_place, YK_F32, in_place, t, n, exponent, false);
            check_guards(&g, n * 4);
            for (int64_t i = 0; i < n; i++)
                assert_true(same_f32(in_place[i], ldexpf(yk_load_f32(wire, i, t), -exponent)));
        }
}

static void accumulating_adds_in_fp32_and_rounds_once(void **state)
{
    (void)state;
    uint64_t seed = 3;
    guarded g;
    float wire[300], old[300];
    for (int64_t n = 1; n < 300; n += 13)
        for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) {
            void *x = guarded_begin(&g);
            for (int64_t i = 0; i < n; i++) {
                wire[i] = (float)((double)random_next(&seed) / 0x1p60);
                yk_store_f32(x, i, (yk_dtype)t, (float)((double)random_next(&seed) / 0x1p62));
                old[i] = yk_load_f32(x, i, (yk_dtype)t);
            }
            uint16_t half[300];
            bool narrow = t != YK_F32;
            if (narrow) yk_wire_pack(half, (yk_dtype)t, wire, YK_F32, n, 0);
            yk_wire_unpack(x, (yk_dtype)t, narrow ? (void *)half : wire, (yk_dtype)t, n, 0, true);
            check_guards(&g, n * yk_dtype_bytes((yk_dtype)t));
            for (int64_t i = 0; i < n; i++) {
                float add = narrow ? yk_load_f32(half, i, (yk_dtype)t) : wire[i], expected;
                yk_store_f32(&expected, 0, (yk_dtype)t, old[i] + add);
                assert_memory_equal((char *)x + i * yk_dtype_bytes((yk_dtype)t), &expected,
                                    (size_t)yk_dtype_bytes((yk_dtype)t));
            }
        }
}

/* Values of very different magnitude, so that another order gives other bits. */
static void sums_are_formed_in_order(void **state)
{
    (void)state;
    enum { N_MAX = 1400, PARTS = 70 };
    uint64_t seed = 4;
    static float rows[PARTS][N_MAX], sum[N_MAX];
    static uint16_t halves[PARTS][N_MAX], half_sum[N_MAX];
    const void *parts[PARTS], *half_parts[PARTS];
    for (int p = 0; p < PARTS; p++) {
        parts[p] = rows[p];
        half_parts[p] = halves[p];
        for (int i = 0; i < N_MAX; i++)
            rows[p][i] = ldexpf((float)((double)random_next(&seed) / 0x1p63 - 1),
                                (int)(random_next(&seed) % 40) - 20);
    }
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++)
        for (int n_parts = 1; n_parts <= PARTS; n_parts += n_parts < 5 ? 1 : 13)
            for (int64_t n = 1; n <= N_MAX; n = n < 33 ? n + 8 : n * 3) {
                bool narrow = t != YK_F32;
                for (int p = 0; p < n_parts && narrow; p++)
                    yk_wire_pack(halves[p], (yk_dtype)t, rows[p], YK_F32, n, t == YK_F16 ? -12 : 0);
                if (narrow)
                    yk_wire_sum(half_sum, half_parts, n_parts, n, (yk_dtype)t);
                else
                    yk_wire_sum(sum, parts, n_parts, n, YK_F32);
                for (int64_t i = 0; i < n; i++) {
                    const void *const *from = narrow ? half_parts : parts;
                    float expected = yk_load_f32(from[0], i, (yk_dtype)t);
                    for (int p = 1; p < n_parts; p++)
                        expected += yk_load_f32(from[p], i, (yk_dtype)t);
                    if (narrow)
                        assert_int_equal(half_sum[i], expected_half((yk_dtype)t, expected));
                    else
                        assert_true(same_f32(sum[i], expected));
                }
            }
}

static void a_sum_may_replace_a_part(void **state)
{
    (void)state;
    for (int replaced = 0; replaced < 3; replaced++) {
        float a[3][2000];
        const void *parts[] = {a[0], a[1], a[2]};
        for (int i = 0; i < 2000; i++) {
            a[0][i] = (float)i;
            a[1][i] = 0x1p26f;
            a[2][i] = -0x1p26f;
        }
        yk_wire_sum(a[replaced], parts, 3, 2000, YK_F32);
        for (int i = 0; i < 2000; i++)
            assert_true(a[replaced][i] == ((float)i + 0x1p26f) - 0x1p26f);
    }
}

static void negative_zero_stays_negative(void **state)
{
    (void)state;
    float a = -0.0f, b = -0.0f, sum = 1;
    const void *parts[] = {&a, &b};
    yk_wire_sum(&sum, parts, 2, 1, YK_F32);
    assert_true(sum == 0 && signbit(sum));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_unpacks_to_its_value),
        cmocka_unit_test(every_half_travels_as_itself),
        cmocka_unit_test(every_rounding_is_to_the_nearest_half),
        cmocka_unit_test(a_half_of_one_kind_travels_as_the_other),
        cmocka_unit_test(infinities_and_nans_travel_as_such),
        cmocka_unit_test(the_greatest_is_found_wherever_it_lies),
        cmocka_unit_test(the_scale_fits_the_sum_just_so),
        cmocka_unit_test(a_sum_of_greatest_values_stays_finite),
        cmocka_unit_test(small_gradients_survive_by_the_scale),
        cmocka_unit_test(packing_in_place_is_packing),
        cmocka_unit_test(unpacking_in_place_is_unpacking),
        cmocka_unit_test(accumulating_adds_in_fp32_and_rounds_once),
        cmocka_unit_test(sums_are_formed_in_order),
        cmocka_unit_test(a_sum_may_replace_a_part),
        cmocka_unit_test(negative_zero_stays_negative),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
