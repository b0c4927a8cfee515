/* runtime/base/number.c - one grammar for every number, taken apart before it is computed.
 *
 * A text is first cut into sign, digits, point and exponent; only what passes is given a value. The
 * value of a whole number or a size is (significant digits) * 10^exponent * unit, with the zeros at
 * both ends of the digits removed: then 10^exponent with a negative exponent can only be cancelled
 * by the unit, and at most 19 digits can fit an int64_t, so that 128 bits are enough for all of it.
 * More than 19 digits are too large or, with decimals, taken for a fraction.
 */
#include "runtime/base/number.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

__extension__ typedef unsigned __int128 u128;

#define MAX_DIGITS 19 /* of an int64_t */

static const char not_finite[] = "is not finite";
static const char not_whole[] = "is not a whole number";
static const char too_large[] = "is too large to be held";

/* digits * 10^exponent, with neither a leading nor a trailing zero in the digits. */
typedef struct decimal {
    bool negative;
    bool too_long;   /* more than MAX_DIGITS significant digits; `digits` is then not complete */
    uint64_t digits; /* 0 for zero */
    int n_digits;
    int64_t exponent;
    size_t length; /* of the text that was used */
} decimal;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Why a text that does not begin with a decimal number is none: the cases where people mean one. */
static const char *explain(const char *text, const char *otherwise)
{
    static const char *const infinities[] = {"inf", ".inf", "infinity", "nan", ".nan"};
    if (*text == '+' || *text == '-') text++;
    for (size_t i = 0; i < sizeof infinities / sizeof infinities[0]; i++)
        if (strcasecmp(text, infinities[i]) == 0) return not_finite;
    return otherwise;
}

/* What follows digits and makes the text something else to another reader. */
static const char *find_trap(const char *text, size_t length)
{
    const char *first = text + (*text == '+' || *text == '-');
    const char *rest = text + length;
    if (first[0] == '0' && first[1] != '\0' && strchr("xXoObB", first[1]) &&
        isxdigit((unsigned char)first[2]))
        return "is not decimal";
    if (first[0] == '0' && is_digit(first[1])) return "begins with a 0, which some read as octal";
    if ((rest[0] == '_' || rest[0] == ',' || rest[0] == '\'') && is_digit(rest[1]))
        return "has a separator between its digits";
    return NULL;
}

/* The exponent of a number at `s`, "e-4"; 0 and *length untouched when there is none. */
static int64_t scan_exponent(const char *s, size_t *length)
{
    if (s[0] != 'e' && s[0] != 'E') return 0;
    size_t i = 1;
    bool negative = s[i] == '-';
    if (s[i] == '-' || s[i] == '+') i++;
    if (!is_digit(s[i])) return 0;
    int64_t value = 0;
    for (; is_digit(s[i]); i++)
        if (value < 1000000) value = value * 10 + (s[i] - '0'); /* beyond that it is all the same */
    *length += i;
    return negative ? -value : value;
}

/* Cut the longest decimal number from the beginning of `text`; false when there is none. */
static bool scan_decimal(const char *text, decimal *out)
{
    decimal d = {.negative = *text == '-'};
    size_t i = *text == '-' || *text == '+';
    bool point = false, any = false;
    int64_t zeros = 0; /* zeros passed since the last other digit: trailing unless one follows */
    for (;; i++) {
        char c = text[i];
        if (c == '.' && !point) {
            point = true;
            continue;
        }
        if (!is_digit(c)) break;
        any = true;
        if (point) d.exponent--;
        if (c == '0') {
            zeros++;
            continue;
        }
        if (d.n_digits == 0) zeros = 0;
        if (zeros >= MAX_DIGITS || d.n_digits + zeros + 1 > MAX_DIGITS) d.too_long = true;
        if (!d.too_long) {
            for (; zeros > 0; zeros--, d.n_digits++) d.digits *= 10;
            d.digits = d.digits * 10 + (uint64_t)(c - '0');
            d.n_digits++;
        }
        zeros = 0;
    }
    if (!any) return false;
    d.exponent += zeros;
    d.length = i;
    d.exponent += scan_exponent(text + i, &d.length);
    *out = d;
    return true;
}

/* d * unit, exactly. `not_exact` is the answer when that is not whole. */
static const char *compute(const decimal *d, uint64_t unit, const char *not_exact, int64_t *out)
{
    if (d->digits == 0 && !d->too_long) {
        *out = 0;
        return NULL;
    }
    if (d->too_long) return d->exponent < 0 ? not_exact : too_large;
    if (d->exponent < -MAX_DIGITS) return not_exact;
    if (d->exponent > MAX_DIGITS || d->n_digits + d->exponent > MAX_DIGITS) return too_large;
    u128 value = (u128)d->digits * unit, power = 1;
    for (int64_t e = d->exponent < 0 ? -d->exponent : d->exponent; e > 0; e--) power *= 10;
    if (d->exponent < 0 && value % power != 0) return not_exact;
    if (d->exponent < 0)
        value /= power;
    else
        value *= power;
    if (value > (u128)INT64_MAX) return too_large;
    *out = d->negative ? -(int64_t)value : (int64_t)value;
    return NULL;
}

const char *yk_number_read_int(const char *text, int64_t *out)
{
    decimal d;
    if (!scan_decimal(text, &d)) return explain(text, not_whole);
    const char *trap = find_trap(text, d.length);
    if (trap) return trap;
    if (text[d.length] != '\0') return not_whole;
    return compute(&d, 1, not_whole, out);
}

const char *yk_number_read_real(const char *text, double *out)
{
    decimal d;
    if (!scan_decimal(text, &d)) return explain(text, "is not a number");
    const char *trap = find_trap(text, d.length);
    if (trap) return trap;
    if (text[d.length] != '\0') return "is not a number";
    char *end;
    double value = strtod(text, &end);
    if (*end != '\0') return "is not a number";
    if (!isfinite(value)) return too_large;
    if (value == 0 && (d.digits != 0 || d.too_long)) return "is too small to tell from 0";
    *out = value == 0 ? 0 : value; /* -0 is 0 */
    return NULL;
}

static const struct {
    const char *name;
    uint64_t bytes;
} units[] = {
    {"TiB", UINT64_C(1) << 40},
    {"GiB", UINT64_C(1) << 30},
    {"MiB", UINT64_C(1) << 20},
    {"KiB", UINT64_C(1) << 10},
    {"TB", 1000000000000},
    {"GB", 1000000000},
    {"MB", 1000000},
    {"kB", 1000},
    {"B", 1},
    {"", 1},
};
#define N_UNITS        (sizeof units / sizeof units[0])
#define N_BINARY_UNITS 4

const char *yk_number_read_bytes(const char *text, int64_t *out)
{
    static const char not_size[] = "is not a size in bytes";
    decimal d;
    if (!scan_decimal(text, &d)) return explain(text, not_size);
    const char *trap = find_trap(text, d.length);
    if (trap) return trap;
    const char *unit = text + d.length;
    if (unit[0] == ' ' && unit[1] != '\0') unit++;
    for (size_t i = 0; i < N_UNITS; i++)
        if (strcmp(unit, units[i].name) == 0)
            return compute(&d, units[i].bytes, "is not a whole number of bytes", out);
    return not_size;
}

/* "1e-08" -> "1e-8", "7e+05" -> "7e5". */
static void tidy_exponent(char *text)
{
    char *e = strchr(text, 'e');
    if (!e) return;
    char *to = e + 1, *from = e + 1;
    if (*from == '-') to++;
    from++;
    while (*from == '0') from++;
    memmove(to, from, strlen(from) + 1);
}

void yk_number_write_real(double value, char text_out[YK_NUMBER_MAX])
{
    if (value > -1e6 && value < 1e6 && value == (double)(int64_t)value) {
        snprintf(text_out, YK_NUMBER_MAX, "%" PRId64, (int64_t)value); /* 100 rather than 1e2 */
        return;
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text_out, YK_NUMBER_MAX, "%.*g", precision, value);
        if (strtod(text_out, NULL) == value) break;
    }
    tidy_exponent(text_out);
}

void yk_number_write_bytes(int64_t bytes, char text_out[YK_NUMBER_MAX])
{
    for (size_t i = 0; i < N_BINARY_UNITS && bytes > 0; i++) {
        int64_t unit = (int64_t)units[i].bytes;
        if (bytes % unit != 0) continue;
        snprintf(text_out, YK_NUMBER_MAX, "%" PRId64 "%s", bytes / unit, units[i].name);
        return;
    }
    snprintf(text_out, YK_NUMBER_MAX, "%" PRId64, bytes);
}

void yk_number_write_plain(double value, char text_out[YK_NUMBER_MAX])
{
    snprintf(text_out, YK_NUMBER_MAX, value < 9999.5 ? "%.4g" : "%.0f", value);
}

void yk_number_write_time(double seconds, char text_out[YK_NUMBER_MAX])
{
    bool is_long = seconds >= 9.9995;
    yk_number_write_plain(is_long ? seconds : 1e3 * seconds, text_out);
    strcat(text_out, is_long ? " s" : " ms");
}
