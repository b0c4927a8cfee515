/* tests/oracle/number.c - the stored types as a textbook defines them: p digits, a least exponent,
 * a greatest number. */
#include <math.h>
#include <string.h>

#include "tests/oracle/oracle.h"

/* A binary format: numbers are integers of `digits` bits times a power of two. */
typedef struct format {
    int digits;       /* of the significand, the hidden one included */
    int min_exponent; /* of the smallest normal number: 2^min_exponent */
    int max_exponent; /* of the largest finite number: below 2^(max_exponent + 1) */
    int exponent_bits;
} format;

static format format_of(yk_dtype t)
{
    static const format formats[YK_N_FLOAT_DTYPES] = {
        [YK_F32] = {24, -126, 127, 8},
        [YK_BF16] = {8, -126, 127, 8},
        [YK_F16] = {11, -14, 15, 5},
    };
    return formats[t];
}

double oracle_unit_roundoff(yk_dtype t)
{
    return ldexp(1, -format_of(t).digits);
}

double oracle_round(yk_dtype t, double x)
{
    format f = format_of(t);
    if (x == 0 || isnan(x) || isinf(x)) return x;
    int e = ilogb(x) > f.min_exponent ? ilogb(x) : f.min_exponent;
    int unit = e - f.digits + 1; /* numbers near x are multiples of 2^unit */
    double rounded = ldexp(nearbyint(ldexp(x, -unit)), unit);
    if (fabs(rounded) >= ldexp(1, f.max_exponent + 1)) return copysign(INFINITY, x);
    return rounded;
}

/* The bits of x: sign, biased exponent, fraction. */
static uint32_t bits_of(format f, double x)
{
    uint32_t sign = signbit(x) ? 1 : 0, exponent, fraction;
    uint32_t last = (1u << f.exponent_bits) - 1;
    int fraction_bits = f.digits - 1;
    x = fabs(x);
    if (isnan(x)) {
        exponent = last;
        fraction = 1u << (fraction_bits - 1);
    } else if (isinf(x)) {
        exponent = last;
        fraction = 0;
    } else if (x < ldexp(1, f.min_exponent)) {
        exponent = 0;
        fraction = (uint32_t)ldexp(x, fraction_bits - f.min_exponent);
    } else {
        int e = ilogb(x);
        exponent = (uint32_t)(e + f.max_exponent);
        fraction = (uint32_t)(ldexp(x, fraction_bits - e) - ldexp(1, fraction_bits));
    }
    return (sign << f.exponent_bits | exponent) << fraction_bits | fraction;
}

void oracle_encode(yk_dtype t, double x, void *at)
{
    uint32_t bits = bits_of(format_of(t), x);
    if (yk_dtype_bytes(t) == 4) {
        memcpy(at, &bits, 4);
    } else {
        uint16_t half = (uint16_t)bits;
        memcpy(at, &half, 2);
    }
}

double oracle_decode(yk_dtype t, const void *at)
{
    format f = format_of(t);
    uint32_t bits = 0;
    uint16_t half;
    if (yk_dtype_bytes(t) == 4) {
        memcpy(&bits, at, 4);
    } else {
        memcpy(&half, at, 2);
        bits = half;
    }
    int fraction_bits = f.digits - 1;
    uint32_t last = (1u << f.exponent_bits) - 1;
    uint32_t fraction = bits & ((1u << fraction_bits) - 1);
    uint32_t exponent = bits >> fraction_bits & last;
    double sign = bits >> (fraction_bits + f.exponent_bits) & 1 ? -1 : 1;
    if (exponent == last) return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, f.min_exponent - fraction_bits);
    return sign * ldexp(fraction + ldexp(1, fraction_bits),
                        (int)exponent - f.max_exponent - fraction_bits);
}

double oracle_stored_bound(yk_dtype t, double want, double bound)
{
    format f = format_of(t);
    double most = fabs(want) + bound;
    return bound + fmax(most * ldexp(1, -f.digits), ldexp(1, f.min_exponent - f.digits));
}
