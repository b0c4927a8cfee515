/* tests/runtime/base/test_number.c - numbers as people write them. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/number.h"

typedef struct good_int {
    const char *text;
    int64_t value;
} good_int;

typedef struct bad_text {
    const char *text, *why;
} bad_text;

static void whole_numbers_are_read_exactly(void **state)
{
    static const good_int cases[] = {
        {"0", 0},
        {"-0", 0},
        {"+5", 5},
        {"32", 32},
        {"1e6", 1000000},
        {"1E+6", 1000000},
        {"1.5e3", 1500},
        {"2.0", 2},
        {"3.", 3},
        {"1500e-2", 15},
        {"100000000000000000000000e-20", 1000},
        {"0.000000000000000000000000000001e30", 1},
        {"0e999999999999999999999", 0},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775807", -INT64_MAX},
        {"9007199254740993", 9007199254740993}, /* 2^53 + 1: no double */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value = -77;
        const char *why = yk_number_read_int(cases[i].text, &value);
        if (why || value != cases[i].value) fail_msg("%s: %s, %" PRId64, cases[i].text, why, value);
    }
}

static void what_is_no_whole_number_says_why_and_changes_nothing(void **state)
{
    static const bad_text cases[] = {
        {"", "is not a whole number"},
        {"abc", "is not a whole number"},
        {"-", "is not a whole number"},
        {".", "is not a whole number"},
        {"1.5", "is not a whole number"},
        {"1e-1", "is not a whole number"},
        {"1e", "is not a whole number"},
        {"1e+", "is not a whole number"},
        {" 1", "is not a whole number"},
        {"1 ", "is not a whole number"},
        {"1 2", "is not a whole number"},
        {"1..2", "is not a whole number"},
        {"--1", "is not a whole number"},
        {"1:30", "is not a whole number"},
        {"1.00000000000000000000000000001", "is not a whole number"},
        {"9223372036854775806.5", "is not a whole number"},
        {"1e-999999999999999999999", "is not a whole number"},
        {"010", "begins with a 0, which some read as octal"},
        {"-010", "begins with a 0, which some read as octal"},
        {"00", "begins with a 0, which some read as octal"},
        {"0x10", "is not decimal"},
        {"0xff", "is not decimal"},
        {"0o17", "is not decimal"},
        {"0b11", "is not decimal"},
        {"1_000", "has a separator between its digits"},
        {"1,000", "has a separator between its digits"},
        {"1'000", "has a separator between its digits"},
        {"nan", "is not finite"},
        {".NaN", "is not finite"},
        {"-.inf", "is not finite"},
        {"infinity", "is not finite"},
        {"9223372036854775808", "is too large to be held"},
        {"-9223372036854775808", "is too large to be held"},
        {"1e19", "is too large to be held"},
        {"1e999999999999999999999", "is too large to be held"},
        {"99999999999999999999999", "is too large to be held"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value = -77;
        const char *why = yk_number_read_int(cases[i].text, &value);
        if (!why || strcmp(why, cases[i].why) != 0 || value != -77)
            fail_msg("'%s': %s, not %s; %" PRId64, cases[i].text, why, cases[i].why, value);
    }
}

static void times_are_seconds_from_ten_on_and_without_exponent(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0 ms"},        {0.5944, "594.4 ms"}, {9.9994, "9999 ms"},   {9.9996, "10 s"},
                 {24.404, "24.4 s"}, {1048.2, "1048 s"},   {123456.7, "123457 s"}};
    char text[YK_NUMBER_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yk_number_write_time(cases[i].seconds, text);
        assert_string_equal(text, cases[i].text);
    }
    yk_number_write_plain(110236.4, text);
    assert_string_equal(text, "110236");
    yk_number_write_plain(0.125, text);
    assert_string_equal(text, "0.125");
}

static void reals_are_read_to_the_nearest_double(void **state)
{
    static const struct {
        const char *text;
        double value;
    } cases[] = {
        {"3e-4", 3e-4},
        {".5", 0.5},
        {"5.", 5},
        {"-1.25e+2", -125},
        {"0.1", 0.1},
        {"1e308", 1e308},
        {"5e-324", 5e-324},
        {"0.0", 0},
        {"0e9", 0},
        {"2.2250738585072011e-308", 2.2250738585072011e-308},
        {"1.7976931348623157e308", DBL_MAX},
        {"17976931348623157081452742373170435679807056752584499659891747680315726078002853876058955"
         "8"
         "e219",
         DBL_MAX},
    };
    double zero = 1;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double value = -77;
        const char *why = yk_number_read_real(cases[i].text, &value);
        if (why || value != cases[i].value) fail_msg("%s: %s, %g", cases[i].text, why, value);
    }
    assert_null(yk_number_read_real("-0.0", &zero));
    assert_false(signbit(zero));
}

static void what_is_no_real_says_why_and_changes_nothing(void **state)
{
    static const bad_text cases[] = {
        {"", "is not a number"},
        {"abc", "is not a number"},
        {"1/3", "is not a number"},
        {"3e-4x", "is not a number"},
        {"3 e-4", "is not a number"},
        {"0x1p3", "is not decimal"},
        {"01.5", "begins with a 0, which some read as octal"},
        {"1,5", "has a separator between its digits"},
        {".inf", "is not finite"},
        {"NAN", "is not finite"},
        {"1e309", "is too large to be held"},
        {"-1e309", "is too large to be held"},
        {"1e-400", "is too small to tell from 0"},
        {"0.00000000000000000000000001e-400", "is too small to tell from 0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double value = -77;
        const char *why = yk_number_read_real(cases[i].text, &value);
        if (!why || strcmp(why, cases[i].why) != 0 || value != -77)
            fail_msg("'%s': %s, not %s; %g", cases[i].text, why, cases[i].why, value);
    }
}

static void sizes_are_read_with_their_unit(void **state)
{
    static const good_int cases[] = {
        {"0", 0},
        {"123", 123},
        {"5B", 5},
        {"24GiB", INT64_C(24) << 30},
        {"512MiB", INT64_C(512) << 20},
        {"64 KiB", 65536},
        {"1TiB", INT64_C(1) << 40},
        {"1.5GiB", INT64_C(3) << 29},
        {"0.5KiB", 512},
        {"1.5GB", 1500000000},
        {"2TB", 2000000000000},
        {"3MB", 3000000},
        {"7kB", 7000},
        {"1e3kB", 1000000},
        {"9223372036854775807", INT64_MAX},
        {"8388607TiB", INT64_C(8388607) << 40},
        {"0.0009765625KiB", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value = -77;
        const char *why = yk_number_read_bytes(cases[i].text, &value);
        if (why || value != cases[i].value) fail_msg("%s: %s, %" PRId64, cases[i].text, why, value);
    }
}

static void what_is_no_size_says_why_and_changes_nothing(void **state)
{
    static const bad_text cases[] = {
        {"", "is not a size in bytes"},
        {"GiB", "is not a size in bytes"},
        {"24G", "is not a size in bytes"},
        {"24gib", "is not a size in bytes"},
        {"24Gib", "is not a size in bytes"},
        {"24  GiB", "is not a size in bytes"},
        {"24 ", "is not a size in bytes"},
        {"24GiB ", "is not a size in bytes"},
        {"24KB", "is not a size in bytes"},
        {"0.1GiB", "is not a whole number of bytes"},
        {"0.5", "is not a whole number of bytes"},
        {"1e-30GiB", "is not a whole number of bytes"},
        {"010MiB", "begins with a 0, which some read as octal"},
        {"1,000MiB", "has a separator between its digits"},
        {"inf", "is not finite"},
        {"8388608TiB", "is too large to be held"},
        {"1e18GiB", "is too large to be held"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value = -77;
        const char *why = yk_number_read_bytes(cases[i].text, &value);
        if (!why || strcmp(why, cases[i].why) != 0 || value != -77)
            fail_msg("'%s': %s, not %s; %" PRId64, cases[i].text, why, cases[i].why, value);
    }
}

static void reals_are_written_short(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0"},         {100, "100"},     {-5, "-5"},
        {0.1, "0.1"},     {1e-8, "1e-8"},   {1e12, "1e12"},
        {3e-4, "0.0003"}, {0.95, "0.95"},   {16777216, "16777216"},
        {1e30, "1e30"},   {65536, "65536"}, {1.0 / 3, "0.3333333333333333"},
    };
    char text[YK_NUMBER_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yk_number_write_real(cases[i].value, text);
        assert_string_equal(text, cases[i].text);
    }
}

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void every_finite_double_comes_back(void **state)
{
    uint64_t seed = 88172645463325252u;
    char text[YK_NUMBER_MAX];
    (void)state;
    for (int i = 0; i < 50000; i++) {
        uint64_t bits = next_random(&seed);
        double value, back = -77;
        if (i % 8 == 0) bits &= 0x800fffffffffffffu; /* subnormal */
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        yk_number_write_real(value, text);
        const char *why = yk_number_read_real(text, &back);
        if (why || back != value) fail_msg("%a as %s: %s", value, text, why);
    }
}

static void every_size_comes_back(void **state)
{
    uint64_t seed = 88172645463325252u;
    char text[YK_NUMBER_MAX];
    (void)state;
    for (int i = 0; i < 20000; i++) {
        int64_t bytes = (int64_t)(next_random(&seed) >> (1 + i % 63)), back = -77;
        if (i % 2) bytes &= ~((INT64_C(1) << (i % 50)) - 1);
        yk_number_write_bytes(bytes, text);
        const char *why = yk_number_read_bytes(text, &back);
        if (why || back != bytes) fail_msg("%" PRId64 " as %s: %s", bytes, text, why);
    }
    yk_number_write_bytes(INT64_C(24) << 30, text);
    assert_string_equal(text, "24GiB");
    yk_number_write_bytes(1000000, text);
    assert_string_equal(text, "1000000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_read_exactly),
        cmocka_unit_test(what_is_no_whole_number_says_why_and_changes_nothing),
        cmocka_unit_test(times_are_seconds_from_ten_on_and_without_exponent),
        cmocka_unit_test(reals_are_read_to_the_nearest_double),
        cmocka_unit_test(what_is_no_real_says_why_and_changes_nothing),
        cmocka_unit_test(sizes_are_read_with_their_unit),
        cmocka_unit_test(what_is_no_size_says_why_and_changes_nothing),
        cmocka_unit_test(reals_are_written_short),
        cmocka_unit_test(every_finite_double_comes_back),
        cmocka_unit_test(every_size_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
