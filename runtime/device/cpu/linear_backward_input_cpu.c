/* runtime/device/cpu/linear_backward_input_cpu.c - dx = dy w, times the slope of the GELU that made
 * x, or added to what is there; and the column sums of it. */
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

/* ---- the bias that was added to z ---------------------------------------------------------- */

#define SUM_VECTORS 4 /* columns that one thread adds up at a time */

/* Column sums of dx as it is stored, each one chain over the rows, so that threads change no bit. */
VEC_INLINE void sum_columns(const yk_linear_backward_input_args *a, int64_t col, yk_dtype t)
{
    vecf sum[SUM_VECTORS];
    int64_t n = yk_min(a->k - col, SUM_VECTORS * VEC_LANES);
    for (int v = 0; v < SUM_VECTORS; v++) sum[v] = vec_set(0);
    for (int64_t row = 0; row < a->m; row++)
        for (int64_t j = 0; j < n; j += VEC_LANES)
            sum[j / VEC_LANES] += vec_load_n(a->dx, row * a->k + col + j, n - j, t);
    for (int64_t j = 0; j < n; j += VEC_LANES) {
        vecf total = sum[j / VEC_LANES];
        if (a->accumulate_dbias) total += vec_load_n(a->dbias, col + j, n - j, a->grad_dtype);
        vec_store_n(a->dbias, col + j, n - j, total, a->grad_dtype);
    }
}

static void sum_bias(yk_stream *s, const yk_linear_backward_input_args *a)
{
    const int64_t stripe = SUM_VECTORS * VEC_LANES, n = yk_div_up(a->k, stripe);
#pragma omp parallel for num_threads(cpu_threads(s, n)) schedule(static)
    for (int64_t i = 0; i < n; i++) YK_CPU_BY_DTYPE(a->dtype, sum_columns(a, i * stripe, T));
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
    if (a->dbias) sum_bias(s, a);
    return YK_OK;
}
