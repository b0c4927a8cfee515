/* runtime/base/arith.h - sizes that cannot wrap around.
 *
 * Every count and every size in bytes is an int64_t. Products that come from a file or a
 * configuration are formed with yk_mul() and yk_add(), which say so when the result does not fit;
 * products of numbers that were checked before are written plainly.
 */
#ifndef YK_RUNTIME_BASE_ARITH_H
#define YK_RUNTIME_BASE_ARITH_H

#include <stdbool.h>
#include <stdint.h>

/* a * b into *out; false, and *out untouched, when it does not fit an int64_t. */
static inline bool yk_mul(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* a + b into *out; false, and *out untouched, when it does not fit an int64_t. */
static inline bool yk_add(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* The smallest multiple of `unit` that is >= n. n >= 0, unit > 0. */
static inline int64_t yk_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* ceil(n / unit). n >= 0, unit > 0. */
static inline int64_t yk_div_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

static inline int64_t yk_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t yk_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
