/* runtime/device/cpu/linear_forward_cpu.c - y = epilogue(x w^T).
 *
 * The epilogue is done on each tile of sums in fp32. GELU is applied to z as it is stored, so that
 * an activation made again from a kept z has the bits of the first one.
 */
#include <omp.h>

#include "runtime/device/cpu/product.h"
#include "runtime/device/cpu/vec.h"

/* Up to so many rows, dot products with w as it lies are faster than making panels of it. */
#define FEW_ROWS 4

/* n vectors of a tile from number `v` on. */
VEC_INLINE void finish_vectors(const yk_linear_forward_args *a, const float *c, int64_t c_row,
                               int64_t row, int64_t col, int64_t cols, int64_t v, int n, yk_dtype t)
{
    vecf z[VEC_GROUP];
    int64_t at[VEC_GROUP], left[VEC_GROUP];
    VEC_EACH(n)
    {
        int64_t r = (v + i) / PRODUCT_VECTORS, j = (v + i) % PRODUCT_VECTORS * VEC_LANES;
        at[i] = (row + r) * a->n + col + j;
        left[i] = cols - j;
        z[i] = vec_load_f32(c + r * c_row + j);
        if (a->bias) z[i] += vec_load_n(a->bias, col + j, left[i], t);
    }
    if (a->gelu) {
        VEC_EACH(n) z[i] = vec_round(z[i], t);
        if (a->z) VEC_EACH(n) vec_store_n(a->z, at[i], left[i], z[i], t);
        vec_gelu(z, n);
    }
    if (a->residual) VEC_EACH(n) z[i] += vec_load_n(a->residual, at[i], left[i], t);
    VEC_EACH(n) vec_store_n(a->y, at[i], left[i], z[i], t);
}

VEC_INLINE void finish(const yk_linear_forward_args *a, const float *c, int64_t c_row, int64_t row,
                       int64_t col, int64_t rows, int64_t cols, yk_dtype t)
{
    int64_t v = 0, n_vectors = rows * PRODUCT_VECTORS;
    for (; v + VEC_GROUP <= n_vectors; v += VEC_GROUP)
        finish_vectors(a, c, c_row, row, col, cols, v, VEC_GROUP, t);
    for (; v < n_vectors; v++) finish_vectors(a, c, c_row, row, col, cols, v, 1, t);
}

static void linear_finish(const void *args, float *c, int64_t c_row, int64_t row, int64_t col,
                          int64_t rows, int64_t cols)
{
    const yk_linear_forward_args *a = args;
    YK_CPU_BY_DTYPE(a->dtype, finish(a, c, c_row, row, col, rows, cols, T));
}

VEC_INLINE float dot(const yk_linear_forward_args *a, int64_t row, int64_t col, yk_dtype t)
{
    vecf sum[2] = {{0}, {0}};
    int64_t k = a->k, x = row * k, w = col * k;
    for (int64_t l = 0; l < k; l += 2 * VEC_LANES)
        for (int h = 0; h < 2; h++) {
            int64_t n = k - l - h * VEC_LANES, at = l + h * VEC_LANES;
            if (n > 0)
                sum[h] =
                    vec_fma(vec_load_n(a->x, x + at, n, t), vec_load_n(a->w, w + at, n, t), sum[h]);
        }
    return vec_sum(sum[0] + sum[1]);
}

VEC_INLINE void few_rows(const yk_linear_forward_args *a, int64_t col, yk_dtype t)
{
    float tile[FEW_ROWS * GEMM_COLS] __attribute__((aligned(64)));
    int64_t cols = yk_min(GEMM_COLS, a->n - col);
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < a->m; i++) tile[i * GEMM_COLS + j] = dot(a, i, col + j, t);
    finish(a, tile, GEMM_COLS, 0, col, a->m, cols, t);
}

static void few_rows_panel(const yk_linear_forward_args *a, int64_t col)
{
    YK_CPU_BY_DTYPE(a->dtype, few_rows(a, col, T));
}

int64_t yk_cpu_linear_forward_bytes(const yk_linear_forward_args *a)
{
    return a->m <= FEW_ROWS ? 0 : yk_cpu_product_bytes(a->m, a->n, a->k, a->dtype);
}

yk_status yk_cpu_linear_forward(yk_stream *s, const yk_linear_forward_args *a, void *ws)
{
    if (a->m <= FEW_ROWS) {
        int64_t n_panels = yk_div_up(a->n, GEMM_COLS);
#pragma omp parallel for num_threads(cpu_threads(s, n_panels)) schedule(static)
        for (int64_t i = 0; i < n_panels; i++) few_rows_panel(a, i * GEMM_COLS);
        return YK_OK;
    }
    cpu_product p = {.a = a->x,
                     .b = a->w,
                     .transposed = true,
                     .m = a->m,
                     .n = a->n,
                     .k = a->k,
                     .dtype = a->dtype,
                     .finish = linear_finish,
                     .args = a,
                     .touched = {a->y, a->z, a->residual}};
    yk_cpu_product_run(s, &p, ws);
    return YK_OK;
}
