/* runtime/device/cpu/wire_cpu.c - the loops behind wire.h.
 *
 * Each reads and writes an element once, so they run at the speed of memory: packing fp32 to 16 bits
 * moves 6 bytes an element, adding N parts of 16 bits 2 N + 2. Sums are formed a block at a time, so
 * that the block stays in the nearest cache whatever the number of parts.
 */
#include "runtime/device/wire.h"

#include <math.h>

#include "runtime/base/arith.h"
#include "runtime/device/cpu/vec.h"

#define BLOCK 1024 /* elements of a sum formed at a time */

VEC_INLINE vecf magnitude(vecf v)
{
    return (vecf)((vecu)v & 0x7fffffffu);
}

/* ---- the scale ---------------------------------------------------------------------------- */

VEC_INLINE float greatest_of(const void *x, int64_t n, yk_dtype t)
{
    vecf most = {0};
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vecf v = magnitude(vec_load_n(x, i, n - i, t));
        most = vec_max(vec_keep(vec_less(v, vec_set(INFINITY)), v), most);
    }
    return vec_greatest(most);
}

float yk_wire_greatest(const void *x, int64_t n, yk_dtype dtype)
{
    float most;
    YK_CPU_BY_DTYPE(dtype, most = greatest_of(x, n, T));
    return most;
}

int yk_wire_scale_exponent(float greatest, int n_ranks)
{
    if (greatest == 0) return 0;
    int exponent, headroom = 0;
    frexpf(greatest, &exponent); /* greatest < 2^exponent */
    while (((int64_t)1 << headroom) < n_ranks) headroom++;
    return (int)yk_min(15 - headroom - exponent, 126); /* 2^126 is as far as fp32 goes both ways */
}

/* ---- packing ------------------------------------------------------------------------------ */

/* v as it is stored in the wire format, but that what is finite stays so. */
VEC_INLINE vecf saturate(vecf v, yk_dtype to)
{
    if (to != YK_BF16) return v;
    veci sign = (veci)v & INT32_MIN, bits = (veci)v & INT32_MAX;
    veci over =
        vec_lower(bits - bits + 0x7f7f7fff, bits) & vec_lower(bits, bits - bits + 0x7f800000);
    return (vecf)((over & (sign | 0x7f7f0000)) | (~over & (veci)v));
}

VEC_INLINE int64_t pack(void *wire, yk_dtype to, const void *x, yk_dtype from, int64_t n,
                        float scale)
{
    /* Half of the format's least number: rounds to zero, a tie being even. */
    const float gone = to == YK_F16 ? 0x1p-25f : to == YK_BF16 ? 0x1p-134f : 0;
    int64_t flushed = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t end = yk_min(begin + BLOCK, n);
        veci count = {0};
        for (int64_t i = begin; i < end; i += VEC_LANES) {
            vecf v = vec_load_n(x, i, n - i, from), scaled = v * scale;
            count += vec_up_to(magnitude(scaled), vec_set(gone)) & vec_differ(v, vec_set(0));
            vec_store_n(wire, i, n - i, saturate(scaled, to), to);
        }
        for (int i = 0; i < VEC_LANES; i++) flushed -= count[i];
    }
    return flushed;
}

VEC_INLINE int64_t pack_to(void *wire, yk_dtype to, const void *x, yk_dtype from, int64_t n,
                           float scale)
{
    int64_t flushed;
    YK_CPU_BY_DTYPE(to, flushed = pack(wire, T, x, from, n, scale));
    return flushed;
}

int64_t yk_wire_pack(void *wire, yk_dtype to, const void *x, yk_dtype from, int64_t n, int exponent)
{
    float scale = ldexpf(1, exponent);
    int64_t flushed;
    YK_CPU_BY_DTYPE(from, flushed = pack_to(wire, to, x, T, n, scale));
    return flushed;
}

/* ---- unpacking ---------------------------------------------------------------------------- */

/* From the end, so that a wider buffer can be unpacked into from its own first half. */
VEC_INLINE void unpack(void *x, yk_dtype to, const void *wire, yk_dtype from, int64_t n,
                       float unscale, bool accumulate)
{
    for (int64_t i = (n - 1) / VEC_LANES * VEC_LANES; n > 0 && i >= 0; i -= VEC_LANES) {
        vecf v = vec_load_n(wire, i, n - i, from) * unscale;
        if (accumulate) v = vec_load_n(x, i, n - i, to) + v;
        vec_store_n(x, i, n - i, v, to);
    }
}

VEC_INLINE void unpack_from(void *x, yk_dtype to, const void *wire, yk_dtype from, int64_t n,
                            float unscale, bool accumulate)
{
    YK_CPU_BY_DTYPE(from, unpack(x, to, wire, T, n, unscale, accumulate));
}

void yk_wire_unpack(void *x, yk_dtype to, const void *wire, yk_dtype from, int64_t n, int exponent,
                    bool accumulate)
{
    float unscale = ldexpf(1, -exponent);
    YK_CPU_BY_DTYPE(to, unpack_from(x, T, wire, from, n, unscale, accumulate));
}

/* ---- adding ------------------------------------------------------------------------------- */

VEC_INLINE void sum_block(void *sum, const void *const *parts, int n_parts, int64_t begin,
                          int64_t end, yk_dtype t)
{
    float block[BLOCK];
    for (int p = 0; p < n_parts; p++)
        for (int64_t i = begin; i < end; i += VEC_LANES) {
            float *at = block + (i - begin);
            vecf v = vec_load_n(parts[p], i, end - i, t);
            vec_store_f32(at, p == 0 ? v : vec_load_f32(at) + v);
        }
    for (int64_t i = begin; i < end; i += VEC_LANES)
        vec_store_n(sum, i, end - i, saturate(vec_load_f32(block + (i - begin)), t), t);
}

void yk_wire_sum(void *sum, const void *const *parts, int n_parts, int64_t n, yk_dtype wire)
{
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t end = yk_min(begin + BLOCK, n);
        YK_CPU_BY_DTYPE(wire, sum_block(sum, parts, n_parts, begin, end, T));
    }
}
