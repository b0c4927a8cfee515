/* runtime/device/cpu/gemm_cpu.c - the tile product and the packing of its right operand.
 *
 * Cost. Per k: GEMM_VECTORS * GEMM_ROWS fused multiply-adds on GEMM_VECTORS loaded vectors and
 * GEMM_ROWS broadcasts, so the multipliers and not the loads are what is waited for; there are
 * accumulators enough to hide their latency.
 */
#include "runtime/device/cpu/gemm.h"

#include "runtime/base/arith.h"
#include "runtime/device/cpu/vec.h"

typedef float lanes __attribute__((vector_size(4 * GEMM_LANES)));
typedef float lanes_at __attribute__((vector_size(4 * GEMM_LANES), aligned(4), may_alias));

_Static_assert(GEMM_COLS % VEC_LANES == 0, "panels are copied and finished by vectors");

VEC_INLINE lanes multiply_add(lanes a, lanes b, lanes c)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__FP_FAST_FMAF)
    lanes r;
    for (int i = 0; i < GEMM_LANES; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#else
    return a * b + c;
#endif
}

#define EACH_ROW    _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++)
#define EACH_VECTOR _Pragma("GCC unroll 4") for (int j = 0; j < GEMM_VECTORS; j++)

/* Three rows hang on each pointer of `at`: their addresses are base, base + stride and base + 2
 * strides, which takes no more integer registers than there are. `rows` is a constant here. */
VEC_INLINE void tile(int rows, int64_t k, const float *a, int64_t a_row, int64_t a_k,
                     const float *b, int64_t b_k, float *c, int64_t c_row, bool add)
{
    lanes acc[GEMM_ROWS][GEMM_VECTORS];
    const float *at[(GEMM_ROWS + 2) / 3];
    EACH_ROW EACH_VECTOR acc[i][j] = (lanes){0};
    EACH_ROW if (i % 3 == 0) at[i / 3] = a + i * a_row;
    for (int64_t l = 0; l < k; l++, b += b_k) {
        lanes right[GEMM_VECTORS];
        EACH_VECTOR right[j] = *(const lanes_at *)(b + j * GEMM_LANES);
        EACH_ROW
        {
            lanes left = at[i / 3][i % 3 * a_row] - (lanes){0};
            EACH_VECTOR acc[i][j] = multiply_add(left, right[j], acc[i][j]);
        }
        EACH_ROW if (i % 3 == 0) at[i / 3] += a_k;
    }
    if (add) {
        const float *from = c;
        EACH_ROW
        {
            EACH_VECTOR acc[i][j] += *(const lanes_at *)(from + j * GEMM_LANES);
            from += c_row;
        }
    }
    EACH_ROW
    {
        EACH_VECTOR *(lanes_at *)(c + j * GEMM_LANES) = acc[i][j];
        c += c_row;
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

/* Row by row, as memory lies. */
VEC_INLINE void pack_rows(float *panels, const void *b, int64_t b_row, int64_t k, int64_t n,
                          yk_dtype t)
{
    int64_t wide = yk_round_up(n, GEMM_COLS);
    for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < wide; j += VEC_LANES) {
            float *to = panels + (j / GEMM_COLS * k + l) * GEMM_COLS + j % GEMM_COLS;
            vecf v = {0};
            if (j < n) v = vec_load_n(b, l * b_row + j, n - j, t);
            vec_store_f32(to, v);
        }
}

void yk_cpu_pack_rows(float *panels, const void *b, int64_t b_row, int64_t k, int64_t n,
                      yk_dtype dtype)
{
    YK_CPU_BY_DTYPE(dtype, pack_rows(panels, b, b_row, k, n, T));
}

/* Squares of sixteen k and sixteen columns. */
VEC_INLINE void pack_transposed(float *panel, const void *b, int64_t b_row, int64_t k, int64_t n,
                                yk_dtype t)
{
    for (int64_t j = 0; j < GEMM_COLS; j += VEC_LANES)
        for (int64_t l = 0; l < k; l += VEC_LANES) {
            int64_t depth = yk_min(k - l, VEC_LANES);
            vecf square[VEC_LANES];
            for (int64_t i = 0; i < VEC_LANES; i++) {
                square[i] = (vecf){0};
                if (j + i < n) square[i] = vec_load_n(b, (j + i) * b_row + l, depth, t);
            }
            vec_transpose(square);
            for (int64_t i = 0; i < depth; i++)
                vec_store_f32(panel + (l + i) * GEMM_COLS + j, square[i]);
        }
}

void yk_cpu_pack_transposed(float *panel, const void *b, int64_t b_row, int64_t k, int64_t n,
                            yk_dtype dtype)
{
    YK_CPU_BY_DTYPE(dtype, pack_transposed(panel, b, b_row, k, n, T));
}
