/* runtime/device/normal.h - normal numbers as every device makes them, to the last bit.
 *
 * Bits.     64 of them for each number: the finaliser of splitmix64 (Steele, Lea and Flood 2014) of
 *           key + index * YK_NORMAL_STEP. So a number follows from (key, index) and from nothing
 *           else: not from ranks, threads, shards or the device.
 * Formula.  Box and Muller 1958: sqrt(-2 ln u) cos(2 pi v), with u and v from the upper and the lower
 *           32 bits, `high` and `low`, as follows.
 *     u = (high + 1/2) 2^-32 = 2^-k (1 - w)   0 < w <= 1/2, and k = 0 from u = 1/2 on, where w is made
 *                                            of the distance to 1, so that it is exact at both ends
 *     -2 ln u = 2 ln 2 k + w P(w)            both parts positive: nothing cancels
 *     v = low 2^-32 as a signed number, x = 1 - 4 |v|, cos(2 pi v) = sin(pi/2 x) = x Q(x^2)
 *           P and Q are the polynomials of degree 9 and 4 with the least relative error (Remez):
 *           3.6e-9 and 5.4e-9, less than what fp32 rounds away.
 * Equal.    The code below is what a GPU and a CPU compile. Apart from integers it has fp32 additions,
 *           multiplications, conversions and one square root, each rounded to nearest as IEEE 754 has
 *           it, none of them fused and none a library's; so a device cannot help but give these bits.
 * Errors.   A number is within 3.5e-7 of itself from the formula's, the greatest is
 *           sqrt(66 ln 2) = 6.76, and the distribution is otherwise as fine as 32 bits of u and v.
 */
#ifndef YK_RUNTIME_DEVICE_NORMAL_H
#define YK_RUNTIME_DEVICE_NORMAL_H

#include <math.h>
#include <string.h>

#include "runtime/device/ops.h"

/* A compiler of CUDA fuses what is written with operators; one of C is told not to, everywhere. */
#ifdef __CUDACC__
#define YK_NORMAL_INLINE    static __device__ inline
#define YK_NORMAL_ADD(a, b) __fadd_rn(a, b)
#define YK_NORMAL_MUL(a, b) __fmul_rn(a, b)
#define YK_NORMAL_ROOT(a)   __fsqrt_rn(a)
#else
#define YK_NORMAL_INLINE    static inline
#define YK_NORMAL_ADD(a, b) ((a) + (b))
#define YK_NORMAL_MUL(a, b) ((a) * (b))
#define YK_NORMAL_ROOT(a)   sqrtf(a)
#endif

#define YK_NORMAL_STEP UINT64_C(0x9e3779b97f4a7c15)

YK_NORMAL_INLINE uint64_t yk_normal_bits(uint64_t key, uint64_t index)
{
    uint64_t x = key + index * YK_NORMAL_STEP;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* y * x + c, rounded twice. */
YK_NORMAL_INLINE float yk_normal_horner(float y, float x, float c)
{
    return YK_NORMAL_ADD(YK_NORMAL_MUL(y, x), c);
}

/* sqrt(-2 ln u) */
YK_NORMAL_INLINE float yk_normal_radius(uint32_t high)
{
    uint32_t upper = 0u - (high >> 31);                                   /* all ones: u >= 1/2 */
    float distance = YK_NORMAL_ADD((float)(int32_t)(high ^ upper), 0.5f); /* to 0 or to 1 */
    uint32_t bits, mantissa, chosen;
    float fraction, below, above = YK_NORMAL_MUL(distance, 0x1p-32f), w, y;
    memcpy(&bits, &distance, sizeof bits);
    mantissa = (bits & 0x7fffffu) | 0x3f000000u; /* of a number from 1/2 to 1 */
    memcpy(&fraction, &mantissa, sizeof fraction);
    below = YK_NORMAL_ADD(1.0f, -fraction);
    memcpy(&bits, &above, sizeof bits);
    memcpy(&chosen, &below, sizeof chosen);
    chosen = (bits & upper) | (chosen & ~upper);
    memcpy(&w, &chosen, sizeof w);
    /* The exponent of `above` is 126 for a number from 1/2 to 1. */
    float whole = (float)(int32_t)((126u - (bits >> 23)) & ~upper);
    y = yk_normal_horner(0x1.c6903ep+1f, w, -0x1.46bc7cp+2f);
    y = yk_normal_horner(y, w, 0x1.05fbdep+2f);
    y = yk_normal_horner(y, w, -0x1.4457e8p+0f);
    y = yk_normal_horner(y, w, 0x1.69d688p-1f);
    y = yk_normal_horner(y, w, 0x1.62e722p-2f);
    y = yk_normal_horner(y, w, 0x1.0236b8p-1f);
    y = yk_normal_horner(y, w, 0x1.553e48p-1f);
    y = yk_normal_horner(y, w, 0x1.00002ep+0f);
    y = yk_normal_horner(y, w, 0x1p+1f);
    y = YK_NORMAL_ADD(YK_NORMAL_MUL(whole, 0x1.62e430p+0f), YK_NORMAL_MUL(w, y));
    return YK_NORMAL_ROOT(y);
}

/* cos(2 pi v) */
YK_NORMAL_INLINE float yk_normal_cosine(uint32_t low)
{
    uint32_t negative = 0u - (low >> 31), size = (low ^ negative) - negative;
    float x = YK_NORMAL_MUL((float)(int32_t)(0x40000000u - size), 0x1p-30f);
    float square = YK_NORMAL_MUL(x, x), y;
    y = yk_normal_horner(0x1.3daff6p-13f, square, -0x1.324ccap-8f);
    y = yk_normal_horner(y, square, 0x1.4668b0p-4f);
    y = yk_normal_horner(y, square, -0x1.4abbc2p-1f);
    y = yk_normal_horner(y, square, 0x1.921fb6p+0f);
    return YK_NORMAL_MUL(x, y);
}

/* The standard normal number of these bits. */
YK_NORMAL_INLINE float yk_normal_of(uint32_t high, uint32_t low)
{
    return YK_NORMAL_MUL(yk_normal_radius(high), yk_normal_cosine(low));
}

/* That number as `normal` has it. */
YK_NORMAL_INLINE float yk_normal_place(float z, float mean, float deviation)
{
    return YK_NORMAL_ADD(YK_NORMAL_MUL(z, deviation), mean);
}

#ifndef __CUDACC__
/* Write what yk_draw_normal() would, to host memory, by `n_threads` threads. */
void yk_normal_fill(const yk_draw_normal_args *a, int n_threads);
#endif

#endif
