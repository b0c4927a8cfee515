/* tests/runtime/device/test_normal.c - normal numbers: the formula's, normal, and the same bits on
 * every device, in every piece and with any number of threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/device/normal.h"
#include "tests/runtime/device/op_case.h"

/* ---- the formula -------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The key whose number 0 has these bits: mix() is a bijection, undone factor by factor. */
static uint64_t key_for(uint64_t bits)
{
    uint64_t x = bits ^ bits >> 31 ^ bits >> 62;
    x *= UINT64_C(0x319642b2d24d8ec3); /* inverses modulo 2^64 */
    x = x ^ x >> 27 ^ x >> 54;
    x *= UINT64_C(0x96de1b173f119089);
    return x ^ x >> 30 ^ x >> 60;
}

/* Box and Muller 1958, as close as double can. */
static double exact(uint64_t bits)
{
    double u = ((double)(bits >> 32) + 0.5) * 0x1p-32, v = (double)(bits & 0xffffffffu) * 0x1p-32;
    double log_u = u < 0.5 ? log(u) : log1p(-((double)(~bits >> 32) + 0.5) * 0x1p-32);
    return sqrt(-2 * log_u) * cos(6.283185307179586 * v);
}

/* By the code that all devices have, alone. */
static double alone(uint64_t bits)
{
    return (double)yk_normal_of((uint32_t)(bits >> 32), (uint32_t)bits);
}

static const yk_normal standard = {.key = 0x0123456789abcdefu, .deviation = 1};

/* n numbers from `first` on, at `skip` elements into a buffer. */
static op_buffer *draw(op_case *c, const yk_normal *normal, int64_t first, int64_t n, int64_t skip,
                       yk_dtype t)
{
    op_case_begin(c, t, "draw_normal first=%lld n=%lld", (long long)first, (long long)n);
    op_buffer *b = op_output(c, t, n + skip);
    OP_RUN(c, yk_draw_normal,
           &((yk_draw_normal_args){.dst = (uint8_t *)b->data + skip * yk_dtype_bytes(t),
                                   .n = n,
                                   .first = first,
                                   .normal = *normal,
                                   .dtype = t}));
    return b;
}

/* Within 3.5e-7 of itself; double's cosine of a quarter turn is 6e-17 and not 0, three of them 2e-16. */
static void expect_near(double got, uint64_t bits)
{
    double want = exact(bits);
    if (!(fabs(got - want) <= fabs(want) * 3.5e-7 + 2e-15))
        fail_msg("%016llx: %.9g is not %.9g", (unsigned long long)bits, got, want);
}

static void numbers_are_near_the_formula_s(void **state)
{
    op_case *c = *state;
    enum { N = 300000 };
    yk_normal normal = {.key = op_random(c), .deviation = 1};
    op_buffer *b = draw(c, &normal, 0, N, 0, YK_F32);
    for (int i = 0; i < N; i++) {
        uint64_t bits = mix(normal.key + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15));
        assert_true(b->got[i] == alone(bits));
        expect_near(b->got[i], bits);
    }
}

/* Bits that chance does not bring: both ends of u, where its two forms meet, and the quarters of a
 * turn. */
static void ends_of_the_range_are_as_exact(void **state)
{
    op_case *c = *state;
    static const uint32_t highs[] = {0,           1,           2,           0x00ffffff, 0x01000000,
                                     0x3fffffff,  0x40000000,  0x7fffffff,  0x80000000, 0x80000001,
                                     0xfffffffdu, 0xfffffffeu, 0xffffffffu, 0x7ffffeff};
    static const uint32_t lows[] = {0,          1,          0x3fffffff, 0x40000000, 0x40000001,
                                    0x7fffffff, 0x80000000, 0x80000001, 0xc0000000, 0xffffffff};
    double greatest = 0, least = 1;
    for (size_t i = 0; i < sizeof highs / sizeof *highs; i++)
        for (size_t j = 0; j < sizeof lows / sizeof *lows; j++) {
            uint64_t bits = (uint64_t)highs[i] << 32 | lows[j];
            yk_normal normal = {.key = key_for(bits), .deviation = 1};
            assert_true(mix(normal.key) == bits);
            double got = draw(c, &normal, 0, 1, 0, YK_F32)->got[0];
            assert_true(got == alone(bits));
            expect_near(got, bits);
            greatest = fmax(greatest, got);
            least = got != 0 ? fmin(least, fabs(got)) : least;
        }
    assert_true(greatest > 6.76 && least < 1e-13);
}

/* ---- bits --------------------------------------------------------------------------------- */

/* Against the host's, at sizes and places where a device goes other ways. */
static void every_device_gives_the_host_s_bits(void **state)
{
    op_case *c = *state;
    static const int64_t sizes[] = {1, 7, 8, 9, 15, 16, 17, 2047, 70001, 1 << 20};
    static const int64_t firsts[] = {0, 1, 12345, INT64_C(1) << 33};
    static const yk_normal normals[] = {
        {.key = 5, .deviation = 0.02f},
        {.key = ~UINT64_C(0), .mean = -3, .deviation = 1.5f},
        {.mean = 1},
        {0},
    };
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 10; i++) {
            yk_dtype t = op_dtypes[d];
            int64_t n = sizes[i], skip = i % 3 == 2, size = yk_dtype_bytes(t);
            const yk_normal *normal = &normals[(d + i) % 4];
            op_buffer *b = draw(c, normal, firsts[i % 4], n, skip, t);
            void *want = malloc((size_t)(n * size));
            assert_non_null(want);
            yk_normal_fill(
                &(yk_draw_normal_args){
                    .dst = want, .n = n, .first = firsts[i % 4], .normal = *normal, .dtype = t},
                2);
            assert_memory_equal(op_bytes(b) + skip * size, want, (size_t)(n * size));
            free(want);
        }
}

static void sixteen_bits_are_those_of_fp32_rounded_once(void **state)
{
    op_case *c = *state;
    enum { N = 5000 };
    float *wide = malloc(N * sizeof *wide);
    assert_non_null(wide);
    yk_normal normal = {.key = 77, .mean = 0.25f, .deviation = 0.02f};
    memcpy(wide, op_bytes(draw(c, &normal, 3, N, 0, YK_F32)), N * sizeof *wide);
    for (int d = 1; d < 3; d++) {
        const uint8_t *got = op_bytes(draw(c, &normal, 3, N, 0, op_dtypes[d]));
        for (int i = 0; i < N; i++) {
            float want; /* room for any type */
            yk_store_f32(&want, 0, op_dtypes[d], wide[i]);
            assert_memory_equal(got + 2 * i, &want, 2);
        }
    }
    free(wide);
}

static void any_piece_has_the_bits_of_the_whole(void **state)
{
    op_case *c = *state;
    enum { N = 3000 };
    float *whole = malloc(N * sizeof *whole);
    assert_non_null(whole);
    memcpy(whole, op_bytes(draw(c, &standard, 0, N, 0, YK_F32)), N * sizeof *whole);
    for (int64_t begin = 0, n = 1; begin < N; begin += n, n = n * 3 % 331 + 1) {
        if (n > N - begin) n = N - begin;
        op_buffer *b = draw(c, &standard, begin, n, begin % 2, YK_F32);
        assert_memory_equal(op_bytes(b) + begin % 2 * 4, whole + begin, (size_t)n * 4);
    }
    free(whole);
}

static void a_deviation_of_zero_gives_the_mean(void **state)
{
    op_case *c = *state;
    static const float means[] = {0, 1, -0.5f};
    for (int k = 0; k < 3; k++) {
        op_buffer *b = draw(c, &(yk_normal){.key = 9, .mean = means[k]}, 0, 999, 0, YK_F32);
        for (int i = 0; i < 999; i++)
            assert_true(b->got[i] == (double)means[k] && !(means[k] == 0 && signbit(b->got[i])));
    }
}

static void family(op_case *c)
{
    for (int d = 0; d < 3; d++) (void)draw(c, &standard, 11, 100001, 0, op_dtypes[d]);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    op_expect_same_bits_again(family);
}

/* ---- the distribution --------------------------------------------------------------------- */

/* Of a fixed key, so that what holds once holds always. */
#define MANY   (1 << 25)
#define SORTED (1 << 21)

static float *many_numbers(void)
{
    float *x = malloc(MANY * sizeof *x);
    assert_non_null(x);
    yk_normal_fill(&(yk_draw_normal_args){.dst = x, .n = MANY, .normal = standard, .dtype = YK_F32},
                   2);
    return x;
}

static void expect_within(double got, double want, double deviation, const char *what)
{
    if (!(fabs(got - want) < 4 * deviation))
        fail_msg("%s is %.9g, should be %.9g, give or take %.3g", what, got, want, deviation);
}

/* Of a standard normal number: E z^2k = (2k-1)!!, odd moments 0. */
static void moments_are_those_of_a_normal_distribution(void **state)
{
    (void)state;
    static const double even[] = {1, 1, 3, 15, 105, 945, 10395, 135135, 2027025};
    float *x = many_numbers();
    double sums[9] = {0};
    for (int i = 0; i < MANY; i++) {
        double power = 1, z = (double)x[i];
        for (int k = 1; k <= 8; k++) sums[k] += power *= z;
    }
    for (int k = 1; k <= 8; k++) {
        double want = k % 2 ? 0 : even[k / 2], variance = even[k] - want * want;
        char what[32];
        snprintf(what, sizeof what, "moment %d", k);
        expect_within(sums[k] / MANY, want, sqrt(variance / MANY), what);
    }
    free(x);
}

static void tails_have_their_share_beyond_five_deviations(void **state)
{
    (void)state;
    float *x = many_numbers();
    double greatest = 0;
    int64_t beyond[6][2] = {{0}};
    for (int i = 0; i < MANY; i++) {
        float size = fabsf(x[i]);
        greatest = fmax(greatest, (double)size);
        for (int k = 0; k < 6; k++) beyond[k][x[i] < 0] += size > (float)k;
    }
    for (int k = 0; k < 6; k++)
        for (int sign = 0; sign < 2; sign++) {
            double want = MANY * erfc(k / sqrt(2)) / 2;
            expect_within((double)beyond[k][sign], want, sqrt(want), "numbers in a tail");
        }
    assert_true(greatest > 5.3);
    free(x);
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Kolmogorov's distance: beyond 1.63 / sqrt(n) in one of a hundred samples. */
static void the_distribution_is_nowhere_far_from_normal(void **state)
{
    (void)state;
    float *x = many_numbers();
    double distance = 0;
    qsort(x, SORTED, sizeof *x, ascending);
    for (int i = 0; i < SORTED; i++) {
        double below = erfc(-(double)x[i] / sqrt(2)) / 2;
        distance = fmax(distance, fmax(below - (double)i / SORTED, (i + 1.0) / SORTED - below));
    }
    print_message("distance %.3g / sqrt(n)\n", distance * sqrt(SORTED));
    assert_true(distance < 1.63 / sqrt(SORTED));
    free(x);
}

/* Numbers with neighbouring indices, and those of neighbouring keys. */
static void neighbours_are_independent(void **state)
{
    (void)state;
    enum { N = 1 << 22 };
    float *x = many_numbers(), *y = x + N;
    yk_normal next = standard;
    next.key++;
    yk_normal_fill(&(yk_draw_normal_args){.dst = y, .n = N, .normal = next, .dtype = YK_F32}, 2);
    double along = 0, across = 0, squares = 0;
    for (int i = 0; i + 1 < N; i++) {
        double z = (double)x[i], after = (double)x[i + 1];
        along += z * after;
        across += z * (double)y[i];
        squares += (z * z - 1) * (after * after - 1) / 2;
    }
    expect_within(along / N, 0, 1 / sqrt(N), "correlation of neighbours");
    expect_within(across / N, 0, 1 / sqrt(N), "correlation of keys");
    expect_within(squares / N, 0, 1 / sqrt(N), "correlation of neighbours' squares");
    free(x);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(numbers_are_near_the_formula_s),
        OP_TEST(ends_of_the_range_are_as_exact),
        OP_TEST(every_device_gives_the_host_s_bits),
        OP_TEST(sixteen_bits_are_those_of_fp32_rounded_once),
        OP_TEST(any_piece_has_the_bits_of_the_whole),
        OP_TEST(a_deviation_of_zero_gives_the_mean),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(moments_are_those_of_a_normal_distribution),
        cmocka_unit_test(tails_have_their_share_beyond_five_deviations),
        cmocka_unit_test(the_distribution_is_nowhere_far_from_normal),
        cmocka_unit_test(neighbours_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
