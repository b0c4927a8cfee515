/* runtime/device/cpu/gemm_cpu.c - the tile product and the packing of its right operand.
 *
 * Cost. Per k: 2 * GEMM_ROWS fused multiply-adds on 2 loaded vectors and GEMM_ROWS broadcasts, so
 * the multipliers and not the loads are what is waited for; the accumulators are enough to hide
 * their latency.
 */
#include "runtime/device/cpu/gemm.h"

#include "runtime/device/cpu/vec.h"

typedef float lanes __attribute__((vector_size(4 * GEMM_LANES)));
typedef float lanes_at __attribute__((vector_size(4 * GEMM_LANES), aligned(4), may_alias));

VEC_INLINE lanes multiply_add(lanes a, lanes b, lanes c)
{
#ifdef __FP_FAST_FMAF
    lanes r;
    for (int i = 0; i < GEMM_LANES; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#else
    return a * b + c;
#endif
}

/* Three rows hang on each pointer of `at`: their addresses are base, base + stride and base + 2
 * strides, which takes no more integer registers than there are. `rows` is a constant here. */
VEC_INLINE void tile(int rows, int64_t k, const float *a, int64_t a_row, int64_t a_k,
                     const float *b, int64_t b_k, float *c, int64_t c_row, bool add)
{
    lanes acc[GEMM_ROWS][2];
    const float *at[(GEMM_ROWS + 2) / 3];
#pragma GCC unroll 4
    for (int g = 0; g < (rows + 2) / 3; g++) at[g] = a + 3 * g * a_row;
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        acc[i][0] = acc[i][1] = (lanes){0};
        if (add) {
            acc[i][0] = *(const lanes_at *)(c + i * c_row);
            acc[i][1] = *(const lanes_at *)(c + i * c_row + GEMM_LANES);
        }
    }
    for (int64_t l = 0; l < k; l++) {
        lanes b0 = *(const lanes_at *)b, b1 = *(const lanes_at *)(b + GEMM_LANES);
        b += b_k;
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            lanes x = at[i / 3][i % 3 * a_row] - (lanes){0};
            acc[i][0] = multiply_add(x, b0, acc[i][0]);
            acc[i][1] = multiply_add(x, b1, acc[i][1]);
        }
#pragma GCC unroll 4
        for (int g = 0; g < (rows + 2) / 3; g++) at[g] += a_k;
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        *(lanes_at *)(c + i * c_row) = acc[i][0];
        *(lanes_at *)(c + i * c_row + GEMM_LANES) = acc[i][1];
    }
}

void yk_cpu_gemm_tile(int rows, int64_t k, const float *a, int64_t a_row, int64_t a_k,
                      const float *b, int64_t b_k, float *c, int64_t c_row, bool add)
{
    if (rows == GEMM_ROWS)
        tile(GEMM_ROWS, k, a, a_row, a_k, b, b_k, c, c_row, add);
    else if (rows == 2 * GEMM_UNIT)
        tile(2 * GEMM_UNIT, k, a, a_row, a_k, b, b_k, c, c_row, add);
    else
        tile(GEMM_UNIT, k, a, a_row, a_k, b, b_k, c, c_row, add);
}

VEC_INLINE void pack_rows(float *panel, const void *b, int64_t b_row, int64_t k, int64_t n,
                          yk_dtype t)
{
    for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < GEMM_COLS; j += VEC_LANES) {
            vecf v = {0};
            if (j < n) v = vec_load_n(b, l * b_row + j, n - j, t);
            vec_store_n(panel + l * GEMM_COLS, j, GEMM_COLS - j, v, YK_F32);
        }
}

void yk_cpu_pack_rows(float *panel, const void *b, int64_t b_row, int64_t k, int64_t n,
                      yk_dtype dtype)
{
    YK_CPU_BY_DTYPE(dtype, pack_rows(panel, b, b_row, k, n, T));
}

/* Sixteen k of every column at a time: whole cache lines are read, and written before they leave. */
VEC_INLINE void pack_transposed(float *panel, const void *b, int64_t b_row, int64_t k, int64_t n,
                                yk_dtype t)
{
    for (int64_t l = 0; l < k; l += VEC_LANES) {
        int64_t depth = k - l < VEC_LANES ? k - l : VEC_LANES;
        for (int64_t j = 0; j < GEMM_COLS; j++) {
            vecf v = {0};
            if (j < n) v = vec_load_n(b, j * b_row + l, depth, t);
            float *to = panel + l * GEMM_COLS + j;
            if (depth == VEC_LANES)
                for (int64_t i = 0; i < VEC_LANES; i++) to[i * GEMM_COLS] = v[i];
            else
                for (int64_t i = 0; i < depth; i++) to[i * GEMM_COLS] = v[i];
        }
    }
}

void yk_cpu_pack_transposed(float *panel, const void *b, int64_t b_row, int64_t k, int64_t n,
                            yk_dtype dtype)
{
    YK_CPU_BY_DTYPE(dtype, pack_transposed(panel, b, b_row, k, n, T));
}
