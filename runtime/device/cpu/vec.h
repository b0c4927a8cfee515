/* runtime/device/cpu/vec.h - sixteen floats at a time, in every storage type.
 *
 * Idea.     One vector type of sixteen lanes whatever the processor has; the compiler splits it
 *           into the registers there are. So the order of every sum is the code's and not the
 *           processor's, and a tail is computed by the same instructions as the body.
 * Fused.    The build forbids the compiler to fuse a multiplication with an addition; vec_fma() is
 *           the place where it is wanted. Without the instruction it is two roundings.
 * Storage.  vec_load() and vec_store() take the type as an argument. Callers are inlined with a
 *           constant type (see YK_CPU_BY_DTYPE), so nothing of it is left at run time. Conversions
 *           give the bits of runtime/base/dtype.h.
 * NaN.      Clamps and selections let a NaN pass, so that a run that has gone astray is seen.
 */
#ifndef YK_RUNTIME_DEVICE_CPU_VEC_H
#define YK_RUNTIME_DEVICE_CPU_VEC_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "runtime/base/dtype.h"

/* Everything here is inlined, so no vector crosses a call and its calling convention is moot. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define VEC_LANES  16
#define VEC_INLINE static inline __attribute__((always_inline))

typedef float vecf __attribute__((vector_size(64)));
typedef uint32_t vecu __attribute__((vector_size(64)));
typedef int32_t veci __attribute__((vector_size(64)));
typedef double vecd __attribute__((vector_size(64))); /* eight lanes */

/* Run `call` with the constant T in place of the type `dtype`. */
#define YK_CPU_BY_DTYPE(dtype, call)                                                               \
    do {                                                                                           \
        if ((dtype) == YK_F32) {                                                                   \
            const yk_dtype T = YK_F32;                                                             \
            call;                                                                                  \
        } else if ((dtype) == YK_BF16) {                                                           \
            const yk_dtype T = YK_BF16;                                                            \
            call;                                                                                  \
        } else {                                                                                   \
            const yk_dtype T = YK_F16;                                                             \
            call;                                                                                  \
        }                                                                                          \
    } while (0)

/* ---- arithmetic --------------------------------------------------------------------------- */

VEC_INLINE vecf vec_set(float x)
{
    return x - (vecf){0};
}

/* a * b + c */
VEC_INLINE vecf vec_fma(vecf a, vecf b, vecf c)
{
#ifdef __FP_FAST_FMAF
    vecf r;
    for (int i = 0; i < VEC_LANES; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#else
    return a * b + c;
#endif
}

VEC_INLINE vecf vec_sqrt(vecf a)
{
    vecf r;
    for (int i = 0; i < VEC_LANES; i++) r[i] = sqrtf(a[i]);
    return r;
}

/* The greater of x and low; x where it is NaN. */
VEC_INLINE vecf vec_at_least(vecf x, float low)
{
    vecf r;
    for (int i = 0; i < VEC_LANES; i++) r[i] = low > x[i] ? low : x[i];
    return r;
}

/* The smaller of x and high; x where it is NaN. */
VEC_INLINE vecf vec_at_most(vecf x, float high)
{
    vecf r;
    for (int i = 0; i < VEC_LANES; i++) r[i] = high < x[i] ? high : x[i];
    return r;
}

/* The greater of a and b; b where one is NaN. */
VEC_INLINE vecf vec_max(vecf a, vecf b)
{
    vecf r;
    for (int i = 0; i < VEC_LANES; i++) r[i] = a[i] > b[i] ? a[i] : b[i];
    return r;
}

/* a where `mask` is all ones, 0 where it is all zeros. */
VEC_INLINE vecf vec_keep(veci mask, vecf a)
{
    return (vecf)(mask & (veci)a);
}

/* Lanes before `n` as they are, zeros from there on. */
VEC_INLINE vecf vec_first(vecf a, int64_t n)
{
    const veci lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return vec_keep(lane < (int32_t)(n < VEC_LANES ? n : VEC_LANES), a);
}

/* Sum of the lanes: halves added until one is left. */
VEC_INLINE float vec_sum(vecf a)
{
    typedef float half __attribute__((vector_size(32)));
    typedef float quarter __attribute__((vector_size(16)));
    union {
        vecf v;
        half h[2];
    } u = {a};
    union {
        half v;
        quarter h[2];
    } w = {u.h[0] + u.h[1]};
    quarter q = w.h[0] + w.h[1];
    return (q[0] + q[2]) + (q[1] + q[3]);
}

VEC_INLINE float vec_greatest(vecf a)
{
    float m = a[0];
    for (int i = 1; i < VEC_LANES; i++) m = a[i] > m ? a[i] : m;
    return m;
}

/* ---- storage ------------------------------------------------------------------------------ */

VEC_INLINE vecf vec_load_f32(const float *p)
{
    typedef float unaligned __attribute__((vector_size(64), aligned(4), may_alias));
    return *(const unaligned *)p;
}

VEC_INLINE void vec_store_f32(float *p, vecf v)
{
    typedef float unaligned __attribute__((vector_size(64), aligned(4), may_alias));
    *(unaligned *)p = v;
}

VEC_INLINE vecf vec_load_bf16(const uint16_t *p)
{
    typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));
    return (vecf)(__builtin_convertvector(*(const halves *)p, vecu) << 16);
}

/* The upper half rounded to nearest, ties to even, as 32 bits. */
VEC_INLINE vecu vec_to_bf16(vecf v)
{
    vecu u = (vecu)v, nan = (vecu)(v != v);
    vecu rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (nan & (u >> 16 | 0x40u)) | (~nan & rounded);
}

VEC_INLINE void vec_store_bf16(uint16_t *p, vecf v)
{
    typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));
    *(halves *)p = __builtin_convertvector(vec_to_bf16(v), halves);
}

VEC_INLINE vecf vec_load_f16(const uint16_t *p)
{
    vecf v = {0};
#ifdef __F16C__
    union {
        __m256 h[2];
        vecf v;
    } u;
    u.h[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
    u.h[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)));
    /* The instruction quiets a signalling NaN and dtype.h does not: those go the slow way. */
    __m256 nan = _mm256_cmp_ps(u.h[0], u.h[1], _CMP_UNORD_Q);
    if (__builtin_expect(_mm256_movemask_ps(nan) == 0, 1)) return u.v;
#endif
    for (int i = 0; i < VEC_LANES; i++) v[i] = yk_f16_to_f32(p[i]);
    return v;
}

VEC_INLINE void vec_store_f16(uint16_t *p, vecf v)
{
#ifdef __F16C__
    union {
        vecf v;
        __m256 h[2];
    } u = {v};
    /* The instruction keeps a NaN's payload and dtype.h does not. */
    __m256 nan = _mm256_cmp_ps(u.h[0], u.h[1], _CMP_UNORD_Q);
    if (__builtin_expect(_mm256_movemask_ps(nan) == 0, 1)) {
        _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(u.h[0], _MM_FROUND_TO_NEAREST_INT));
        _mm_storeu_si128((__m128i *)(void *)(p + 8),
                         _mm256_cvtps_ph(u.h[1], _MM_FROUND_TO_NEAREST_INT));
        return;
    }
#endif
    for (int i = 0; i < VEC_LANES; i++) p[i] = yk_f32_to_f16(v[i]);
}

/* Elements i .. i+15 of p. */
VEC_INLINE vecf vec_load(const void *p, int64_t i, yk_dtype t)
{
    if (t == YK_F32) return vec_load_f32((const float *)p + i);
    if (t == YK_BF16) return vec_load_bf16((const uint16_t *)p + i);
    return vec_load_f16((const uint16_t *)p + i);
}

VEC_INLINE void vec_store(void *p, int64_t i, vecf v, yk_dtype t)
{
    if (t == YK_F32)
        vec_store_f32((float *)p + i, v);
    else if (t == YK_BF16)
        vec_store_bf16((uint16_t *)p + i, v);
    else
        vec_store_f16((uint16_t *)p + i, v);
}

/* Elements i .. i+n-1 of p, then zeros; all sixteen when n is greater. */
VEC_INLINE vecf vec_load_n(const void *p, int64_t i, int64_t n, yk_dtype t)
{
    if (n >= VEC_LANES) return vec_load(p, i, t);
    char part[64] = {0};
    int64_t size = t == YK_F32 ? 4 : 2;
    memcpy(part, (const char *)p + i * size, (size_t)(n * size));
    return vec_load(part, 0, t);
}

VEC_INLINE void vec_store_n(void *p, int64_t i, int64_t n, vecf v, yk_dtype t)
{
    if (n >= VEC_LANES) {
        vec_store(p, i, v, t);
        return;
    }
    char part[64];
    int64_t size = t == YK_F32 ? 4 : 2;
    vec_store(part, 0, v, t);
    memcpy((char *)p + i * size, part, (size_t)(n * size));
}

/* v as it is after having been stored. */
VEC_INLINE vecf vec_round(vecf v, yk_dtype t)
{
    if (t == YK_F32) return v;
    if (t == YK_BF16) return (vecf)(vec_to_bf16(v) << 16);
    uint16_t part[VEC_LANES];
    vec_store_f16(part, v);
    return vec_load_f16(part);
}

/* Eight floats, from lane `first`, as doubles. */
VEC_INLINE vecd vec_widen(vecf v, int first)
{
    vecd d;
    for (int i = 0; i < 8; i++) d[i] = v[first + i];
    return d;
}

/* ---- functions ---------------------------------------------------------------------------- */

#define VEC_LOG2_E 1.44269504f
#define VEC_LN_2   0.693147181f

/* 2^t. Relative error under 1e-7; 0 below 2^-125, 2^127 above it.
 *
 * t = n + f with |f| <= 1/2: adding 1.5 * 2^23 leaves n in the low bits, from where it goes to the
 * exponent. 2^f is a polynomial, the minimax one of degree 6 with constant term 1 (relative error
 * 2.6e-9 in exact arithmetic). */
VEC_INLINE vecf vec_exp2(vecf t)
{
    const float magic = 0x1.8p23f;
    vecf c = vec_at_most(vec_at_least(t, -125.0f), 127.0f);
    vecf shifted = c + magic;
    vecf f = c - (shifted - magic);
    vecf p = vec_fma(vec_set(0x1.470b4ap-13f), f, vec_set(0x1.5f7276p-10f));
    p = vec_fma(p, f, vec_set(0x1.3b270ep-7f));
    p = vec_fma(p, f, vec_set(0x1.c6ae72p-5f));
    p = vec_fma(p, f, vec_set(0x1.ebfbe2p-3f));
    p = vec_fma(p, f, vec_set(0x1.62e432p-1f));
    p = vec_fma(p, f, vec_set(1.0f));
    vecf r = (vecf)((vecu)p + ((vecu)shifted << 23));
    return vec_keep(~(t < -125.0f), r);
}

/* GELU(z) = z/2 (1 + tanh(u)) = z / (1 + exp(-2u)), u = sqrt(2/pi) (z + 0.044715 z^3); written
 * without a difference of near-equal numbers. In powers of two -2u is z (A + B z^2). Beyond +-16
 * the exponential is 0 or infinite to every precision here. */
#define VEC_GELU_A (-2.30220818f)
#define VEC_GELU_B (-0.102943239f)

VEC_INLINE vecf vec_gelu(vecf z)
{
    vecf c = vec_at_least(z, -16.0f), d = vec_at_most(c, 16.0f);
    vecf e = vec_exp2(d * vec_fma(d * d, vec_set(VEC_GELU_B), vec_set(VEC_GELU_A)));
    return c / (1.0f + e);
}

/* dGELU/dz = s + z s (1 - s) 2 du/dz, s = 1 / (1 + exp(-2u)). */
VEC_INLINE vecf vec_gelu_slope(vecf z)
{
    vecf c = vec_at_most(vec_at_least(z, -16.0f), 16.0f), c2 = c * c;
    vecf e = vec_exp2(c * vec_fma(c2, vec_set(VEC_GELU_B), vec_set(VEC_GELU_A)));
    vecf s = 1.0f / (1.0f + e);
    vecf slope = vec_fma(c2, vec_set(-3 * VEC_LN_2 * VEC_GELU_B), vec_set(-VEC_LN_2 * VEC_GELU_A));
    return vec_fma(c * slope, s * (s * e), s);
}

#endif
