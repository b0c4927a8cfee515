/* runtime/data/sampler.c - see sampler.h. */
#include "runtime/data/sampler.h"

#include "runtime/base/mix.h"

/* Halves of a bit or two reach few permutations, and not evenly; a network that is wider than n
 * needs costs turns of cycle walking instead, 256 / n of them. */
#define BITS_MIN 8
#define ROUNDS   8

/* Bits of the numbers that are permuted: those that 0 .. n-1 need, at least. */
static int bits_of(int64_t n)
{
    int bits = n <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)n - 1);
    return bits < BITS_MIN ? BITS_MIN : bits;
}

/* A bijection of the numbers of `high_bits` + `low_bits` bits: each round changes one half by a
 * hash of the other. */
static uint64_t encrypt(uint64_t x, int high_bits, int low_bits, uint64_t key)
{
    uint64_t high_mask = (UINT64_C(1) << high_bits) - 1, low_mask = (UINT64_C(1) << low_bits) - 1;
    uint64_t high = x >> low_bits, low = x & low_mask;
    for (uint64_t r = 0; r < ROUNDS; r += 2) {
        low ^= yk_mix(key + r * YK_MIX_STEP + high) >> 32 & low_mask;
        high ^= yk_mix(key + (r + 1) * YK_MIX_STEP + low) >> 32 & high_mask;
    }
    return high << low_bits | low;
}

int64_t yk_sampler_at(const yk_sampler *sampler, int64_t position)
{
    int64_t epoch = position / sampler->n, index = position % sampler->n;
    int bits = bits_of(sampler->n);
    uint64_t key = yk_mix(yk_mix((uint64_t)sampler->seed + YK_MIX_STEP) + (uint64_t)epoch);
    uint64_t x = (uint64_t)index;
    do { /* fewer than two turns on average where n > 128: the domain is less than 2n */
        x = encrypt(x, bits / 2, bits - bits / 2, key);
    } while (x >= (uint64_t)sampler->n);
    return (int64_t)x;
}
