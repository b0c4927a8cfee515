/* runtime/device/cpu/linear_backward_input_cpu.c - dx = dy w, times the slope of the GELU that made
 * x, or added to what is there. */
#include "runtime/device/cpu/product.h"
#include "runtime/device/cpu/vec.h"

/* Times the slope at z. z is fetched to the stack first: where it is read after dx was written, a row
 * or two before, the processor takes the one for the other (equal addresses modulo 4096) and waits. */
VEC_INLINE void multiply_slope(const yk_linear_backward_input_args *a, float *c, int64_t c_row,
                               int64_t row, int64_t col, int64_t rows, int64_t cols, yk_dtype t)
{
    vecf z[GEMM_ROWS * PRODUCT_VECTORS];
    int64_t v = 0, n_vectors = rows * PRODUCT_VECTORS;
    for (int64_t i = 0; i < n_vectors; i++) {
        int64_t j = i % PRODUCT_VECTORS * VEC_LANES;
        z[i] = vec_load_n(a->z, (row + i / PRODUCT_VECTORS) * a->k + col + j, cols - j, t);
    }
    for (; v + VEC_GROUP <= n_vectors; v += VEC_GROUP) vec_gelu_slope(z + v, VEC_GROUP);
    for (; v < n_vectors; v++) vec_gelu_slope(z + v, 1);
    for (int64_t i = 0; i < n_vectors; i++) {
        float *d = c + i / PRODUCT_VECTORS * c_row + i % PRODUCT_VECTORS * VEC_LANES;
        vec_store_f32(d, vec_load_f32(d) * z[i]);
    }
}

VEC_INLINE void finish(const yk_linear_backward_input_args *a, float *c, int64_t c_row, int64_t row,
                       int64_t col, int64_t rows, int64_t cols, yk_dtype t)
{
    if (a->z) multiply_slope(a, c, c_row, row, col, rows, cols, t);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += VEC_LANES) {
            int64_t n = cols - j, at = (row + i) * a->k + col + j;
            vecf d = vec_load_f32(c + i * c_row + j);
            if (a->accumulate) d += vec_load_n(a->dx, at, n, t);
            vec_store_n(a->dx, at, n, d, t);
        }
}

static void linear_finish(const void *args, float *c, int64_t c_row, int64_t row, int64_t col,
                          int64_t rows, int64_t cols)
{
    const yk_linear_backward_input_args *a = args;
    YK_CPU_BY_DTYPE(a->dtype, finish(a, c, c_row, row, col, rows, cols, T));
}

int64_t yk_cpu_linear_backward_input_bytes(const yk_linear_backward_input_args *a)
{
    return yk_cpu_product_bytes(a->m, a->k, a->n, a->dtype);
}

yk_status yk_cpu_linear_backward_input(yk_stream *s, const yk_linear_backward_input_args *a,
                                       void *ws)
{
    cpu_product p = {.a = a->dy,
                     .b = a->w,
                     .transposed = false,
                     .m = a->m,
                     .n = a->k,
                     .k = a->n,
                     .dtype = a->dtype,
                     .finish = linear_finish,
                     .args = a,
                     .touched = {a->dx, a->z}};
    yk_cpu_product_run(s, &p, ws);
    return YK_OK;
}
