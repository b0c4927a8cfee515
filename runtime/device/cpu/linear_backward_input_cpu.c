/* runtime/device/cpu/linear_backward_input_cpu.c - dx = dy w, times the slope of the GELU that made
 * x, or added to what is there. */
#include "runtime/device/cpu/product.h"
#include "runtime/device/cpu/vec.h"

VEC_INLINE void finish(const yk_linear_backward_input_args *a, const float *c, int64_t c_row,
                       int64_t row, int64_t col, int64_t rows, int64_t cols, yk_dtype t)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += VEC_LANES) {
            int64_t n = cols - j, at = (row + i) * a->k + col + j;
            vecf d = vec_load_n(c + i * c_row, j, n, YK_F32);
            if (a->z) d *= vec_gelu_slope(vec_load_n(a->z, at, n, t));
            if (a->accumulate) d += vec_load_n(a->dx, at, n, t);
            vec_store_n(a->dx, at, n, d, t);
        }
}

static void linear_finish(const void *args, const float *c, int64_t c_row, int64_t row, int64_t col,
                          int64_t rows, int64_t cols)
{
    const yk_linear_backward_input_args *a = args;
    YK_CPU_BY_DTYPE(a->dtype, finish(a, c, c_row, row, col, rows, cols, T));
}

int64_t yk_cpu_linear_backward_input_bytes(const yk_linear_backward_input_args *a)
{
    return yk_cpu_product_bytes(a->m, a->k, a->n);
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
                     .args = a};
    yk_cpu_product_run(s, &p, ws);
    return YK_OK;
}
