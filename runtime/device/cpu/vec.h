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
#ifdef __AVX__
#include <immintrin.h>
#endif

#include "runtime/base/dtype.h"

/* Every function here is inlined, so how a vector would be passed to a call is moot. */
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

/* Lanes of a, then of b, by number. */
#ifdef __clang__
#define VEC_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define VEC_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (veci){__VA_ARGS__})
#endif

/* ---- arithmetic --------------------------------------------------------------------------- */

VEC_INLINE vecf vec_set(float x)
{
    return x - (vecf){0};
}

/* Comparisons: all ones in lanes where they hold. Where no register has sixteen lanes the compiler would
 * compare one lane at a time, so it is given what a register has. */
#if defined(__AVX512F__)
#define VEC_COMPARISON(name, type, part, operator)                                                 \
    VEC_INLINE veci name(type a, type b)                                                           \
    {                                                                                              \
        return (veci)(a operator b);                                                               \
    }
#else
#ifdef __AVX__
#define VEC_PART_BYTES 32
#else
#define VEC_PART_BYTES 16
#endif
#define VEC_PARTS (64 / VEC_PART_BYTES)
typedef float vecf_part __attribute__((vector_size(VEC_PART_BYTES)));
typedef int32_t veci_part __attribute__((vector_size(VEC_PART_BYTES)));
#define VEC_COMPARISON(name, type, part, operator)                                                 \
    VEC_INLINE veci name(type a, type b)                                                           \
    {                                                                                              \
        union {                                                                                    \
            type v;                                                                                \
            part p[VEC_PARTS];                                                                     \
        } x = {a}, y = {b};                                                                        \
        union {                                                                                    \
            veci v;                                                                                \
            veci_part p[VEC_PARTS];                                                                \
        } r;                                                                                       \
        for (int i = 0; i < VEC_PARTS; i++) r.p[i] = (veci_part)(x.p[i] operator y.p[i]);          \
        return r.v;                                                                                \
    }
#endif
VEC_COMPARISON(vec_less, vecf, vecf_part, <)
VEC_COMPARISON(vec_up_to, vecf, vecf_part, <=)
VEC_COMPARISON(vec_differ, vecf, vecf_part, !=)
VEC_COMPARISON(vec_lower, veci, veci_part, <)

/* Lanes that are a NaN. */
VEC_INLINE veci vec_nan(vecf a)
{
    return vec_differ(a, a);
}

/* What the language has no operator for: a * b + c, the square root, and the greater and the smaller
 * of two, the second of them where one is NaN. */
#if defined(__AVX512F__)
VEC_INLINE vecf vec_fma(vecf a, vecf b, vecf c)
{
    return (vecf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

VEC_INLINE vecf vec_sqrt(vecf a)
{
    return (vecf)_mm512_sqrt_ps((__m512)a);
}

/* Turn sixteen rows into sixteen columns: four times, rows i and i + 8 are interleaved to become rows
 * 2i and 2i + 1, which rotates one bit of the row's number into the lane's and one back. */
VEC_INLINE void vec_transpose(vecf r[16])
{
#pragma GCC unroll 4
    for (int stage = 0; stage < 4; stage++) {
        vecf t[16];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            t[2 * i] =
                VEC_SHUFFLE(r[i], r[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            t[2 * i + 1] = VEC_SHUFFLE(r[i], r[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                       14, 30, 15, 31);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) r[i] = t[i];
    }
}

VEC_INLINE vecf vec_max(vecf a, vecf b)
{
    return (vecf)_mm512_max_ps((__m512)a, (__m512)b);
}

VEC_INLINE vecf vec_min(vecf a, vecf b)
{
    return (vecf)_mm512_min_ps((__m512)a, (__m512)b);
}
#else
#ifdef __AVX__
typedef union vec_halves {
    vecf v;
    __m256 h[2];
} vec_halves;
#endif

VEC_INLINE vecf vec_fma(vecf a, vecf b, vecf c)
{
#if defined(__FMA__)
    vec_halves x = {a}, y = {b}, z = {c};
    for (int i = 0; i < 2; i++) z.h[i] = _mm256_fmadd_ps(x.h[i], y.h[i], z.h[i]);
    return z.v;
#elif defined(__FP_FAST_FMAF)
    vecf r;
    for (int i = 0; i < VEC_LANES; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#else
    return a * b + c;
#endif
}

VEC_INLINE vecf vec_sqrt(vecf a)
{
#ifdef __AVX__
    vec_halves x = {a};
    for (int i = 0; i < 2; i++) x.h[i] = _mm256_sqrt_ps(x.h[i]);
    return x.v;
#else
    vecf r;
    for (int i = 0; i < VEC_LANES; i++) r[i] = sqrtf(a[i]);
    return r;
#endif
}

/* Turn sixteen rows into sixteen columns. */
VEC_INLINE void vec_transpose(vecf r[16])
{
    float t[16][16];
    for (int i = 0; i < 16; i++) memcpy(t[i], &r[i], sizeof t[i]);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) r[i][j] = t[j][i];
}

VEC_INLINE vecf vec_max(vecf a, vecf b)
{
#ifdef __AVX__
    vec_halves x = {a}, y = {b};
    for (int i = 0; i < 2; i++) x.h[i] = _mm256_max_ps(x.h[i], y.h[i]);
    return x.v;
#else
    veci greater = vec_less(b, a);
    return (vecf)((greater & (veci)a) | (~greater & (veci)b));
#endif
}

VEC_INLINE vecf vec_min(vecf a, vecf b)
{
#ifdef __AVX__
    vec_halves x = {a}, y = {b};
    for (int i = 0; i < 2; i++) x.h[i] = _mm256_min_ps(x.h[i], y.h[i]);
    return x.v;
#else
    veci less = vec_less(a, b);
    return (vecf)((less & (veci)a) | (~less & (veci)b));
#endif
}
#endif

/* x held at or above `low`, at or below `high`; a NaN stays. */
VEC_INLINE vecf vec_at_least(vecf x, float low)
{
    return vec_max(vec_set(low), x);
}

VEC_INLINE vecf vec_at_most(vecf x, float high)
{
    return vec_min(vec_set(high), x);
}

/* a where `mask` is all ones, 0 where it is all zeros. */
VEC_INLINE vecf vec_keep(veci mask, vecf a)
{
    return (vecf)(mask & (veci)a);
}

/* All ones in lanes begin .. end-1, for any begin and end. */
VEC_INLINE veci vec_between(int64_t begin, int64_t end)
{
    const veci lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int32_t from = (int32_t)(begin < VEC_LANES ? begin : VEC_LANES);
    int32_t to = (int32_t)(end < VEC_LANES ? end : VEC_LANES);
    return ~vec_lower(lane, lane - lane + from) & vec_lower(lane, lane - lane + to);
}

/* Lanes before `n` as they are, zeros from there on. */
VEC_INLINE vecf vec_first(vecf a, int64_t n)
{
    const veci lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int32_t count = (int32_t)(n < VEC_LANES ? n : VEC_LANES);
    return vec_keep(vec_lower(lane, lane - lane + count), a);
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
    a = vec_max(a, VEC_SHUFFLE(a, a, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
    a = vec_max(a, VEC_SHUFFLE(a, a, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7));
    a = vec_max(a, VEC_SHUFFLE(a, a, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3));
    return a[0] > a[1] ? a[0] : a[1];
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
    vecu u = (vecu)v, nan = (vecu)vec_nan(v);
    vecu rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (nan & (u >> 16 | 0x40u)) | (~nan & rounded);
}

VEC_INLINE void vec_store_bf16(uint16_t *p, vecf v)
{
    typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));
    *(halves *)p = __builtin_convertvector(vec_to_bf16(v), halves);
}

/* The instructions quiet a signalling NaN and keep a NaN's payload, and dtype.h does not: vectors with
 * a NaN go the slow way. */
#ifdef __F16C__
/* The instruction quiets a signalling NaN and dtype.h does not: vectors with a NaN go this way. */
static __attribute__((noinline, cold, unused)) void vec_widen_nan(float *to, const uint16_t *p)
{
    for (int i = 0; i < VEC_LANES; i++) to[i] = yk_f16_to_f32(p[i]);
}
#endif

VEC_INLINE vecf vec_load_f16(const uint16_t *p)
{
    vecf v = {0};
#if defined(__AVX512F__)
    __m512 w = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)(const void *)p));
    v = (vecf)w;
    if (__builtin_expect(_mm512_cmp_ps_mask(w, w, _CMP_UNORD_Q) != 0, 0))
        vec_widen_nan((float *)&v, p);
#elif defined(__F16C__)
    union {
        __m256 h[2];
        vecf v;
    } u;
    u.h[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
    u.h[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)));
    v = u.v;
    __m256 nan = _mm256_cmp_ps(u.h[0], u.h[1], _CMP_UNORD_Q);
    if (__builtin_expect(_mm256_movemask_ps(nan) != 0, 0)) vec_widen_nan((float *)&v, p);
#else
    for (int i = 0; i < VEC_LANES; i++) v[i] = yk_f16_to_f32(p[i]);
#endif
    return v;
}

VEC_INLINE void vec_store_f16(uint16_t *p, vecf v)
{
#if defined(__F16C__)
    /* The instruction keeps a NaN's payload and dtype.h does not: it goes without one. */
    vecu nan = (vecu)vec_nan(v), u = ((vecu)v & ~(nan & 0x3fffffu)) | (nan & 0x400000u);
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i_u *)(void *)p,
                        _mm512_cvtps_ph((__m512)u, _MM_FROUND_TO_NEAREST_INT));
#else
    union {
        vecu v;
        __m256 h[2];
    } w = {u};
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(w.h[0], _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8),
                     _mm256_cvtps_ph(w.h[1], _MM_FROUND_TO_NEAREST_INT));
#endif
#else
    for (int i = 0; i < VEC_LANES; i++) p[i] = yk_f32_to_f16(v[i]);
#endif
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

/* Elements i .. i+n-1 of p, then zeros; all sixteen when n is greater, none when it is negative. */
VEC_INLINE vecf vec_load_n(const void *p, int64_t i, int64_t n, yk_dtype t)
{
    if (n >= VEC_LANES) return vec_load(p, i, t);
    if (n <= 0) return (vecf){0};
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
    if (n <= 0) return;
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

/* ---- functions ----------------------------------------------------------------------------
 *
 * In place, on n vectors side by side: a function is a long chain of instructions, each waiting for
 * the one before, and several chains at a time keep the processor busy. n is a constant, 1 or
 * VEC_GROUP. */

#define VEC_GROUP   4
#define VEC_EACH(n) _Pragma("GCC unroll 4") for (int i = 0; i < (n); i++)

#define VEC_LOG2_E 1.44269504f
#define VEC_LN_2   0.693147181f

/* 2^t. Relative error under 1e-7; 0 below 2^-125, 2^127 above it.
 *
 * t = m + f with |f| <= 1/2: adding 1.5 * 2^23 leaves m in the low bits, from where it goes to the
 * exponent. 2^f is a polynomial, the minimax one of degree 6 with constant term 1 (relative error
 * 2.6e-9 in exact arithmetic). */
VEC_INLINE void vec_exp2(vecf *t, int n)
{
    static const float c[7] = {0x1.470b4ap-13f,
                               0x1.5f7276p-10f,
                               0x1.3b270ep-7f,
                               0x1.c6ae72p-5f,
                               0x1.ebfbe2p-3f,
                               0x1.62e432p-1f,
                               1.0f};
    const float magic = 0x1.8p23f;
    vecf shifted[VEC_GROUP], f[VEC_GROUP], p[VEC_GROUP];
    veci tiny[VEC_GROUP];
    VEC_EACH(n) tiny[i] = vec_less(t[i], vec_set(-125.0f));
    VEC_EACH(n) f[i] = vec_at_most(vec_at_least(t[i], -125.0f), 127.0f);
    VEC_EACH(n) shifted[i] = f[i] + magic;
    VEC_EACH(n) f[i] -= shifted[i] - magic;
    VEC_EACH(n) p[i] = vec_fma(vec_set(c[0]), f[i], vec_set(c[1]));
    VEC_EACH(n) p[i] = vec_fma(p[i], f[i], vec_set(c[2]));
    VEC_EACH(n) p[i] = vec_fma(p[i], f[i], vec_set(c[3]));
    VEC_EACH(n) p[i] = vec_fma(p[i], f[i], vec_set(c[4]));
    VEC_EACH(n) p[i] = vec_fma(p[i], f[i], vec_set(c[5]));
    VEC_EACH(n) p[i] = vec_fma(p[i], f[i], vec_set(c[6]));
    VEC_EACH(n) t[i] = vec_keep(~tiny[i], (vecf)((vecu)p[i] + ((vecu)shifted[i] << 23)));
}

/* 1 / (1 + e) for 0 <= e <= 2^127. */
VEC_INLINE void vec_one_over(vecf *e, int n)
{
    VEC_EACH(n) e[i] += 1.0f;
#if defined(__AVX512F__)
    /* 14 bits from the processor, 28 after one step of Newton's: a quarter of a division's time. */
    vecf y[VEC_GROUP];
    VEC_EACH(n) y[i] = (vecf)_mm512_rcp14_ps((__m512)e[i]);
    VEC_EACH(n) e[i] = vec_fma(-e[i], y[i], vec_set(1.0f));
    VEC_EACH(n) e[i] = vec_fma(y[i], e[i], y[i]);
#else
    VEC_EACH(n) e[i] = 1.0f / e[i];
#endif
}

/* GELU(z) = z/2 (1 + tanh(u)) = z / (1 + exp(-2u)), u = sqrt(2/pi) (z + 0.044715 z^3); written
 * without a difference of near-equal numbers. In powers of two -2u is z (A + B z^2). Beyond +-16
 * the exponential is 0 or infinite to every precision here. */
#define VEC_GELU_A (-2.30220818f)
#define VEC_GELU_B (-0.102943239f)

VEC_INLINE void vec_gelu(vecf *z, int n)
{
    vecf e[VEC_GROUP], d[VEC_GROUP];
    VEC_EACH(n) z[i] = vec_at_least(z[i], -16.0f);
    VEC_EACH(n) d[i] = vec_at_most(z[i], 16.0f);
    VEC_EACH(n) e[i] = d[i] * vec_fma(d[i] * d[i], vec_set(VEC_GELU_B), vec_set(VEC_GELU_A));
    vec_exp2(e, n);
    vec_one_over(e, n);
    VEC_EACH(n) z[i] *= e[i];
}

/* dGELU/dz = s + z s (1 - s) 2 du/dz, s = 1 / (1 + exp(-2u)). */
VEC_INLINE void vec_gelu_slope(vecf *z, int n)
{
    vecf e[VEC_GROUP], s[VEC_GROUP], slope[VEC_GROUP];
    VEC_EACH(n) z[i] = vec_at_most(vec_at_least(z[i], -16.0f), 16.0f);
    VEC_EACH(n) slope[i] = z[i] * z[i];
    VEC_EACH(n) e[i] = z[i] * vec_fma(slope[i], vec_set(VEC_GELU_B), vec_set(VEC_GELU_A));
    vec_exp2(e, n);
    VEC_EACH(n) s[i] = e[i];
    vec_one_over(s, n);
    VEC_EACH(n)
    slope[i] =
        vec_fma(slope[i], vec_set(-3 * VEC_LN_2 * VEC_GELU_B), vec_set(-VEC_LN_2 * VEC_GELU_A));
    VEC_EACH(n) z[i] = vec_fma(z[i] * slope[i], s[i] * (s[i] * e[i]), s[i]);
}

#endif
