/* runtime/base/dtype.h - the element types that tensors are stored in, and conversions of one
 * value.
 *
 * Arithmetic is in fp32 whatever the storage. Conversions to 16 bits round to nearest, ties to
 * even; a NaN stays a NaN; fp16 overflows to infinity and keeps subnormals.
 */
#ifndef YK_RUNTIME_BASE_DTYPE_H
#define YK_RUNTIME_BASE_DTYPE_H

#include <stdint.h>
#include <string.h>

typedef enum yk_dtype {
    YK_F32,  /* IEEE binary32 */
    YK_BF16, /* upper half of a binary32 */
    YK_F16,  /* IEEE binary16 */
    YK_I32,  /* token ids, positions */
} yk_dtype;

#define YK_N_FLOAT_DTYPES 3

static inline int64_t yk_dtype_bytes(yk_dtype t)
{
    return t == YK_F32 || t == YK_I32 ? 4 : 2;
}

static inline const char *yk_dtype_name(yk_dtype t)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "int32"};
    return names[t];
}

static inline float yk_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t yk_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* By integer arithmetic, so that it is the same on every machine and compiler. */
static inline float yk_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 0x1fu, m = h & 0x3ffu, u;
    float f;
    if (e == 0) { /* zero or subnormal: m * 2^-24, exact in fp32 */
        f = (float)m * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    } else {
        u = sign | (e == 31 ? 0x7f800000u : (e + 112u) << 23) | m << 13;
    }
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t yk_f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65536 or beyond */
    if (u < 0x38800000u) {                                   /* subnormal: in units of 2^-24 */
        float a, magic = 0.5f;
        memcpy(&a, &u, 4);
        a += magic; /* the addition rounds to a multiple of 2^-24 */
        memcpy(&u, &a, 4);
        return (uint16_t)(sign | (u - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1u);
    return (uint16_t)(sign | ((u >> 13) - (112u << 10)));
}

/* Element i of an array of a float type. */
static inline float yk_load_f32(const void *values, int64_t i, yk_dtype t)
{
    if (t == YK_F32) return ((const float *)values)[i];
    uint16_t half = ((const uint16_t *)values)[i];
    return t == YK_BF16 ? yk_bf16_to_f32(half) : yk_f16_to_f32(half);
}

/* Round `value` into element i of an array of a float type. */
static inline void yk_store_f32(void *values, int64_t i, yk_dtype t, float value)
{
    if (t == YK_F32)
        ((float *)values)[i] = value;
    else
        ((uint16_t *)values)[i] = t == YK_BF16 ? yk_f32_to_bf16(value) : yk_f32_to_f16(value);
}

#endif
