/* runtime/device/cpu/product.h - a product of two whole matrices with an epilogue on each tile.
 *
 * Idea.     The right operand is copied once, by all threads together, to panels that every tile of
 *           rows then reads; the left one is read where it lies. What follows the product (bias,
 *           GELU, residual) is done by a callback on each tile while it is in the nearest cache, so
 *           a result is rounded and written once.
 * Memory.   The panels lie in the workspace, a block of four to six megabytes at most at a time.
 *           Where k is so long that it comes in blocks, the sums between blocks lie there too.
 *
 * Legend    M N K sides: c (M,N) = a (M,K) b, with b (K,N) or, transposed, (N,K).
 */
#ifndef YK_RUNTIME_DEVICE_CPU_PRODUCT_H
#define YK_RUNTIME_DEVICE_CPU_PRODUCT_H

#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/gemm.h"
#include "runtime/device/cpu/vec.h"

/* Vectors in a row of a tile. */
#define PRODUCT_VECTORS (GEMM_COLS / VEC_LANES)

/* Do what follows the product with a tile of it.
 *
 * args  as in cpu_product
 * c     (rows, cols) fp32 sums, rows c_row apart; up to GEMM_ROWS by GEMM_COLS of them; may be
 *       written over
 * row, col  where the tile lies in the whole result
 */
typedef void (*cpu_finish)(const void *args, float *c, int64_t c_row, int64_t row, int64_t col,
                           int64_t rows, int64_t cols);

typedef struct cpu_product {
    const void *a; /* (M,K) */
    const void *b; /* (K,N), or (N,K) when transposed */
    bool transposed;
    int64_t m, n, k;
    yk_dtype dtype;
    cpu_finish finish;
    const void *args;
    const void *touched[3]; /* (M,N) what `finish` reads or writes, or NULL: fetched beforehand */
} cpu_product;

/* Workspace for an (m,k) by (k,n) product. */
int64_t yk_cpu_product_bytes(int64_t m, int64_t n, int64_t k, yk_dtype dtype);

/* Run the product. ws: yk_cpu_product_bytes() of workspace. */
void yk_cpu_product_run(const yk_stream *s, const cpu_product *p, void *ws);

#endif
