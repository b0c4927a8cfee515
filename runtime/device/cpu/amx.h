/* runtime/device/cpu/amx.h - products on a processor's matrix units (Intel AMX, bf16).
 *
 * Idea.     A unit multiplies 16 by 16 tiles of bf16, 32 deep, and adds in fp32: thirty times the
 *           rate of the vector units. A bf16 operand is used as it is. Any other is written as a sum
 *           of bf16 pieces, each the rounded rest of those before: fp16 is two of them exactly, fp32
 *           three. Of the nine products of the pieces of two fp32 numbers the three smallest are
 *           under 2^-24 of the whole and left out (Henry, Tang and Heinecke 2019), so that a product
 *           is as near to the true one as one made in fp32, at twice its rate or more.
 * Order.    For each 32 of k in turn, smaller products before larger. So bits do not depend on how a
 *           product is cut into tiles and threads, but differ from those of vector units.
 * Limits.   Numbers under 2^-126 count as 0. An infinite operand that is not bf16 gives a NaN, which
 *           is as loud.
 * Threads.  Each thread calls yk_cpu_amx_begin() before and yk_cpu_amx_end() after.
 *
 * Form.     A strip is up to 32 rows of the left operand or columns of the right one. It is kept as
 *           (k / 32 rounded up, pieces, 2 halves) tiles of 16 by 32 numbers, in the order in which
 *           the unit wants them; what lies beyond the strip or beyond k is zero.
 */
#ifndef YK_RUNTIME_DEVICE_CPU_AMX_H
#define YK_RUNTIME_DEVICE_CPU_AMX_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512BF16__)
#define CPU_HAS_AMX 1
#else
#define CPU_HAS_AMX 0
#endif

#define AMX_STRIP 32
#define AMX_DEPTH 32

static inline int amx_pieces(yk_dtype dtype)
{
    return dtype == YK_F32 ? 3 : dtype == YK_F16 ? 2 : 1;
}

/* bf16 numbers in a strip of depth k. */
static inline int64_t amx_strip_size(int64_t k, yk_dtype dtype)
{
    return yk_round_up(k, AMX_DEPTH) * AMX_STRIP * amx_pieces(dtype);
}

typedef enum amx_side { AMX_LEFT, AMX_RIGHT } amx_side;

#if CPU_HAS_AMX
/* Ask the system for the units; false: this process may not use them. */
bool yk_cpu_amx_allow(void);

void yk_cpu_amx_begin(void);
void yk_cpu_amx_end(void);

/* Make a strip of an operand.
 *
 * to      amx_strip_size(), aligned to 64 bytes
 * from    element (i, l), of row or column i and depth l, is number at + i * i_step + l * l_step of
 *         it; one of the steps is 1
 * n       rows or columns that there are: 1 .. AMX_STRIP
 */
void yk_cpu_amx_pack(void *to, amx_side side, const void *from, int64_t at, int64_t i_step,
                     int64_t l_step, int64_t n, int64_t k, yk_dtype dtype);

/* c = left right, or c + left right when `add`.
 *
 * left, right  strips of depth k
 * c            (AMX_STRIP, AMX_STRIP) rows c_row apart, all of it written
 */
void yk_cpu_amx_tile(const void *left, const void *right, int64_t k, yk_dtype dtype, float *c,
                     int64_t c_row, bool add);
#else
/* Without them nothing but the first is ever called. */
static inline bool yk_cpu_amx_allow(void)
{
    return false;
}

static inline void yk_cpu_amx_begin(void)
{
}

static inline void yk_cpu_amx_end(void)
{
}

static inline void yk_cpu_amx_pack(void *to, amx_side side, const void *from, int64_t at,
                                   int64_t i_step, int64_t l_step, int64_t n, int64_t k,
                                   yk_dtype dtype)
{
    (void)to, (void)side, (void)from, (void)at, (void)i_step, (void)l_step, (void)n, (void)k;
    (void)dtype;
}

static inline void yk_cpu_amx_tile(const void *left, const void *right, int64_t k, yk_dtype dtype,
                                   float *c, int64_t c_row, bool add)
{
    (void)left, (void)right, (void)k, (void)dtype, (void)c, (void)c_row, (void)add;
}
#endif

#endif
