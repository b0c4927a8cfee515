/* tests/oracle/random.c - Philox as its paper has it, and rounding that draws, by arithmetic on doubles;
 * neither shares anything with runtime/device/. */
#include <math.h>

#include "tests/oracle/oracle.h"

/* Salmon et al. 2011, section 3.3 and figure 4: two products a round, whose halves cross over. */
void oracle_philox(int n_rounds, const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < n_rounds; round++) {
        uint64_t p = UINT64_C(0xD2511F53) * x[0], q = UINT64_C(0xCD9E8D57) * x[2];
        uint32_t next[4] = {(uint32_t)(q >> 32) ^ x[1] ^ k[0], (uint32_t)q,
                            (uint32_t)(p >> 32) ^ x[3] ^ k[1], (uint32_t)p};
        for (int i = 0; i < 4; i++) x[i] = next[i];
        k[0] += 0x9E3779B9u; /* the golden ratio */
        k[1] += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    for (int i = 0; i < 4; i++) out[i] = x[i];
}

oracle_draws oracle_adamw_draws(uint64_t key, int64_t step, int64_t index)
{
    uint64_t pair = (uint64_t)index / 2, s = (uint64_t)step;
    uint32_t out[4];
    oracle_philox(
        7, (uint32_t[]){(uint32_t)pair, (uint32_t)(pair >> 32), (uint32_t)s, (uint32_t)(s >> 32)},
        (uint32_t[]){(uint32_t)key, (uint32_t)(key >> 32)}, out);
    const uint32_t *mine = out + 2 * (index % 2);
    return (oracle_draws){mine[0] >> 16, mine[0] & 0xffffu, mine[1] >> 16};
}

/* x lies between a bf16 number and its neighbour away from zero, some 65536ths of the way along; it
 * goes to the neighbour when these and the draw make a whole. */
double oracle_choose_bf16(double x, uint32_t draw)
{
    if (x == 0 || isnan(x) || isinf(x)) return x;
    int e = ilogb(x) > -126 ? ilogb(x) : -126;
    double unit = ldexp(1, e - 7), units = fabs(x) / unit, below = floor(units);
    bool up = (units - below) * 65536 + draw >= 65536;
    double chosen = (below + (up ? 1 : 0)) * unit;
    return copysign(chosen >= ldexp(1, 128) ? (double)INFINITY : chosen, x);
}
