/* tests/ranks/comm/reference.c - inputs and sums, one element at a time. */
#include "tests/ranks/comm/reference.h"

#include <math.h>

/* Steele, Lea and Flood 2014: the finaliser of SplitMix64. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t ref_random(uint64_t seed, uint64_t a, uint64_t b)
{
    return mix(mix(mix(seed + 0x9e3779b97f4a7c15u) + a) * 0x9e3779b97f4a7c15u + b);
}

/* ---- inputs ------------------------------------------------------------------------------- */

/* The exponents of the least and the greatest finite value of a type. */
static int least_exponent(yk_dtype t)
{
    return t == YK_F32 ? -149 : t == YK_BF16 ? -133 : -24;
}

static int greatest_exponent(yk_dtype t)
{
    return t == YK_F16 ? 15 : 127;
}

static float special(uint64_t h, float otherwise)
{
    if (h % 8 == 0) return INFINITY;
    if (h % 8 == 1) return -INFINITY;
    return h % 8 == 2 ? NAN : otherwise;
}

static float unrounded(const ref_case *c, int rank, int64_t i)
{
    uint64_t h = ref_random(c->seed, (uint64_t)rank, (uint64_t)i);
    float u = (float)((double)(h >> 40) / 0x1p23 - 1); /* -1 .. 1 */
    int low = least_exponent(c->dtype), high = greatest_exponent(c->dtype);
    switch (c->values) {
    case REF_NORMAL:
        return ldexpf(u, (int)(h % 5) - 2);
    case REF_TINY:
        return ldexpf(u, low + (int)(h % 6));
    case REF_WIDE:
        return ldexpf(u, low + (int)(h % (uint64_t)(high - 8 - low)));
    case REF_HUGE:
        return ldexpf(u < 0 ? -1 - fabsf(u) * 0.999f : 1 + u * 0.999f, high);
    case REF_SPECIAL:
        return h >> 8 & 15 ? u : special(h, u);
    default:
        return h % 2 ? 0.0f : -0.0f;
    }
}

float ref_input(const ref_case *c, int rank, int64_t i)
{
    uint16_t half[2] = {0};
    if (c->dtype == YK_F32) return unrounded(c, rank, i);
    yk_store_f32(half, 0, c->dtype, unrounded(c, rank, i));
    return yk_load_f32(half, 0, c->dtype);
}

void ref_fill(const ref_case *c, int rank, int64_t begin, int64_t n, void *x)
{
    for (int64_t i = 0; i < n; i++) yk_store_f32(x, i, c->dtype, ref_input(c, rank, begin + i));
}

/* ---- the wire ----------------------------------------------------------------------------- */

/* What is finite stays finite. */
static float rounded(float x, yk_dtype wire)
{
    if (wire == YK_F32) return x;
    if (wire == YK_F16) return yk_f16_to_f32(yk_f32_to_f16(x));
    float y = yk_bf16_to_f32(yk_f32_to_bf16(x));
    return isinf(y) && !isinf(x) ? copysignf(0x1.fep127f, x) : y;
}

int ref_exponent(const ref_case *c)
{
    if (c->wire != YK_F16) return 0;
    float greatest = 0;
    int size = c->n_local * c->n_nodes, exponent, bits = 0;
    for (int r = 0; r < size; r++)
        for (int64_t i = 0; i < c->n; i++) {
            float x = fabsf(ref_input(c, c->ranks[r], i));
            if (isfinite(x) && x > greatest) greatest = x;
        }
    if (greatest == 0) return 0;
    frexpf(greatest, &exponent);
    while (1 << bits < size) bits++;
    exponent = 15 - bits - exponent;
    return exponent < 126 ? exponent : 126;
}

float ref_sum(const ref_case *c, int64_t i, int exponent)
{
    float total = 0;
    for (int k = 0; k < c->n_nodes; k++) {
        float node = 0;
        for (int l = 0; l < c->n_local; l++) {
            float x = ref_input(c, c->ranks[l * c->n_nodes + k], i);
            x = rounded(ldexpf(x, exponent), c->wire);
            node = l == 0 ? x : node + x;
        }
        node = rounded(node, c->wire);
        total = k == 0 ? node : total + node;
    }
    return ldexpf(rounded(total, c->wire), -exponent);
}

int64_t ref_n_flushed(const ref_case *c, int rank, int exponent)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        float x = ref_input(c, rank, i);
        n += x != 0 && rounded(ldexpf(x, exponent), c->wire) == 0;
    }
    return n;
}

bool ref_same(yk_dtype dtype, const void *buffer, int64_t i, float expected)
{
    float stored[1] = {0};
    yk_store_f32(stored, 0, dtype, expected);
    if (isnan(expected)) return isnan(yk_load_f32(buffer, i, dtype));
    int64_t bytes = yk_dtype_bytes(dtype);
    return memcmp((const char *)buffer + i * bytes, stored, (size_t)bytes) == 0;
}
