/* runtime/base/mix.h - numbers that look random and follow from others, without a generator's
 * state.
 *
 * Of counters a step apart the mixed ones are independent for all that samples and orders need.
 */
#ifndef YK_RUNTIME_BASE_MIX_H
#define YK_RUNTIME_BASE_MIX_H

#include <stdint.h>

/* An odd number near 2^64 over the golden ratio: multiples of it lie apart in all bits. */
#define YK_MIX_STEP UINT64_C(0x9e3779b97f4a7c15)

/* The finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection that mixes all bits. */
static inline uint64_t yk_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#endif
