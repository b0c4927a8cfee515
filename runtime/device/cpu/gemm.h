/* runtime/device/cpu/gemm.h - the one product that everything else is made of.
 *
 * Idea.     c (rows, GEMM_COLS) = a b, with c in registers from the first to the last k. Operands
 *           are fp32. `a` is read in place, by two strides, so that a matrix and its transpose are
 *           the same call; `b` is a panel of GEMM_COLS columns that lie side by side.
 * Order.    Each element of c is one chain of fused additions over k = 0, 1, 2, ... So its bits do
 *           not depend on how a product is cut into tiles and threads; where it is cut into blocks
 *           of k, these are added in order.
 * Why own.  Matrices here are small (k of 32 to 512), where a library's copying of both operands
 *           shows, where an epilogue wants the tile while it is hot, and where a library that does
 *           not know a new processor falls back to a fifth of its speed.
 */
#ifndef YK_RUNTIME_DEVICE_CPU_GEMM_H
#define YK_RUNTIME_DEVICE_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/dtype.h"

/* Sizes of the tile: as many accumulators as there are registers for, less three or four. */
#if defined(__AVX512F__)
#define GEMM_LANES   16 /* floats in a register */
#define GEMM_VECTORS 2  /* registers in a row of the tile */
#define GEMM_UNIT    4
#elif defined(__AVX__)
#define GEMM_LANES   8
#define GEMM_VECTORS 2
#define GEMM_UNIT    2
#elif defined(__aarch64__)
#define GEMM_LANES   4
#define GEMM_VECTORS 4
#define GEMM_UNIT    2
#else
#define GEMM_LANES   4
#define GEMM_VECTORS 4
#define GEMM_UNIT    1
#endif
#define GEMM_COLS (GEMM_LANES * GEMM_VECTORS) /* a multiple of VEC_LANES */
#define GEMM_ROWS (3 * GEMM_UNIT)

/* c = a b, or c + a b when `add`.
 *
 * rows   GEMM_UNIT, 2 * GEMM_UNIT or GEMM_ROWS
 * a      element (i, l) is a[i * a_row + l * a_k]
 * b      (k, GEMM_COLS) rows b_k apart
 * c      (rows, GEMM_COLS) rows c_row apart
 */
void yk_cpu_gemm_tile(int rows, int64_t k, const float *a, int64_t a_row, int64_t a_k,
                      const float *b, int64_t b_k, float *c, int64_t c_row, bool add);

/* Copy a matrix (k, n) to panels (n / GEMM_COLS rounded up, k, GEMM_COLS), with zeros from column n
 * on.
 *
 * b  rows b_row apart
 */
void yk_cpu_pack_rows(float *panels, const void *b, int64_t b_row, int64_t k, int64_t n,
                      yk_dtype dtype);

/* Copy the transpose of b (n, k) to one panel (k, GEMM_COLS), with zeros from column n on.
 *
 * n  1 .. GEMM_COLS
 * b  rows b_row apart
 */
void yk_cpu_pack_transposed(float *panel, const void *b, int64_t b_row, int64_t k, int64_t n,
                            yk_dtype dtype);

#endif
