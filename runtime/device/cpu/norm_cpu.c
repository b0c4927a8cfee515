/* runtime/device/cpu/norm_cpu.c - LayerNorm and RMSNorm, forward and backward.
 *
 * A row is short and stays in the nearest cache, so it is gone over once per statistic: the variance
 * is of differences from the mean, not a difference of squares.
 * Backward. With g = dy w and h = (x - mean) rstd, dx = rstd (g - mean(g) - h mean(g h)); RMSNorm
 * has no mean(g). dw = sum dy h and db = sum dy are summed over fixed chunks of rows, chunks in
 * order.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

#define ROWS_AT_ONCE 16 /* forward */
#define MAX_CHUNKS   64 /* backward */
#define CHUNK_ROWS   32 /* the least rows of a chunk */

/* ---- forward ------------------------------------------------------------------------------ */

VEC_INLINE float row_sum(const void *x, int64_t at, int64_t cols, yk_dtype t)
{
    vecf sum[2] = {{0}, {0}};
    int64_t c = 0;
    for (; c + VEC_LANES < cols; c += 2 * VEC_LANES) {
        sum[0] += vec_load(x, at + c, t);
        sum[1] += vec_load_n(x, at + c + VEC_LANES, cols - c - VEC_LANES, t);
    }
    if (c < cols) sum[0] += vec_load_n(x, at + c, cols - c, t);
    return vec_sum(sum[0] + sum[1]);
}

/* Differences from the mean of elements c .. c+15 of a row, 0 beyond its end. */
VEC_INLINE vecf difference(const void *x, int64_t at, int64_t n, float mean, yk_dtype t)
{
    return vec_first(vec_load_n(x, at, n, t) - mean, n);
}

/* Sum of (x - mean)^2. */
VEC_INLINE float row_squares(const void *x, int64_t at, int64_t cols, float mean, yk_dtype t)
{
    vecf sum[2] = {{0}, {0}};
    for (int64_t c = 0; c < cols; c += 2 * VEC_LANES) {
        vecf d = difference(x, at + c, cols - c, mean, t), e = {0};
        if (c + VEC_LANES < cols)
            e = difference(x, at + c + VEC_LANES, cols - c - VEC_LANES, mean, t);
        sum[0] = vec_fma(d, d, sum[0]);
        sum[1] = vec_fma(e, e, sum[1]);
    }
    return vec_sum(sum[0] + sum[1]);
}

VEC_INLINE void normalise(const yk_norm_forward_args *a, int64_t row, yk_dtype t)
{
    int64_t cols = a->cols, at = row * cols;
    bool layer = a->kind == YK_NORM_LAYER;
    float mean = layer ? row_sum(a->x, at, cols, t) / (float)cols : 0.0f;
    float rstd = 1.0f / sqrtf(row_squares(a->x, at, cols, mean, t) / (float)cols + a->eps);
    if (layer) a->mean[row] = mean;
    a->rstd[row] = rstd;
    for (int64_t c = 0; c < cols; c += VEC_LANES) {
        int64_t n = cols - c;
        vecf h = (vec_load_n(a->x, at + c, n, t) - mean) * rstd;
        vecf w = vec_load_n(a->weight, c, n, t), b = {0};
        if (layer) b = vec_load_n(a->bias, c, n, t);
        vec_store_n(a->y, at + c, n, vec_fma(h, w, b), t);
    }
}

static void normalise_rows(const yk_norm_forward_args *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) YK_CPU_BY_DTYPE(a->dtype, normalise(a, r, T));
}

yk_status yk_cpu_norm_forward(yk_stream *s, const yk_norm_forward_args *a)
{
    int64_t n_pieces = yk_div_up(a->rows, ROWS_AT_ONCE);
#pragma omp parallel for num_threads(cpu_threads(s, n_pieces)) schedule(static)
    for (int64_t i = 0; i < n_pieces; i++)
        normalise_rows(a, i * ROWS_AT_ONCE, yk_min((i + 1) * ROWS_AT_ONCE, a->rows));
    return YK_OK;
}

/* ---- backward ----------------------------------------------------------------------------- */

static int64_t n_chunks(int64_t rows)
{
    return yk_max(1, yk_min(MAX_CHUNKS, rows / CHUNK_ROWS));
}

/* Sums of dw and db of each chunk, padded to whole vectors. */
static int64_t sum_floats(const yk_norm_backward_args *a)
{
    return yk_round_up(a->cols, VEC_LANES);
}

/* Of dweight, dbias, and where they are wanted of dx and add. */
static int64_t n_sums(const yk_norm_backward_args *a)
{
    return a->dx_sum || a->add_sum ? 4 : 2;
}

int64_t yk_cpu_norm_backward_bytes(const yk_norm_backward_args *a)
{
    return 4 * n_sums(a) * n_chunks(a->rows) * sum_floats(a);
}

/* sums (n_sums, sum_floats) */
VEC_INLINE void backward_row(const yk_norm_backward_args *a, int64_t row, float *sums, yk_dtype t)
{
    int64_t size = sum_floats(a);
    float *dw = sums, *db = sums + size, *of_dx = n_sums(a) > 2 ? db + size : NULL;
    int64_t cols = a->cols, at = row * cols;
    bool layer = a->kind == YK_NORM_LAYER;
    float mean = layer ? a->mean[row] : 0.0f, rstd = a->rstd[row];
    vecf sum_g = {0}, sum_gh = {0};
    for (int64_t c = 0; c < cols; c += VEC_LANES) {
        int64_t n = cols - c;
        vecf g = vec_load_n(a->dy, at + c, n, t) * vec_load_n(a->weight, c, n, t);
        sum_g += g;
        sum_gh = vec_fma(g, (vec_load_n(a->x, at + c, n, t) - mean) * rstd, sum_gh);
    }
    float mean_g = layer ? vec_sum(sum_g) / (float)cols : 0.0f;
    float mean_gh = vec_sum(sum_gh) / (float)cols;
    for (int64_t c = 0; c < cols; c += VEC_LANES) {
        int64_t n = cols - c;
        vecf dy = vec_load_n(a->dy, at + c, n, t), add = {0};
        vecf h = (vec_load_n(a->x, at + c, n, t) - mean) * rstd;
        vec_store_f32(dw + c, vec_fma(dy, h, vec_load_f32(dw + c)));
        vec_store_f32(db + c, dy + vec_load_f32(db + c));
        vecf g = dy * vec_load_n(a->weight, c, n, t) - mean_g;
        if (a->add) add = vec_load_n(a->add, at + c, n, t);
        vecf dx = vec_fma(vec_fma(h, vec_set(-mean_gh), g), vec_set(rstd), add);
        vec_store_n(a->dx, at + c, n, dx, t);
        if (!of_dx) continue;
        vec_store_f32(of_dx + c, dx + vec_load_f32(of_dx + c));
        vec_store_f32(of_dx + size + c, add + vec_load_f32(of_dx + size + c));
    }
}

static void backward_chunk(const yk_norm_backward_args *a, int64_t chunk, float *sums)
{
    int64_t n = n_chunks(a->rows), size = n_sums(a) * sum_floats(a);
    int64_t begin = a->rows * chunk / n, end = a->rows * (chunk + 1) / n;
    float *own = sums + chunk * size;
    memset(own, 0, (size_t)size * sizeof *own);
    for (int64_t r = begin; r < end; r++) YK_CPU_BY_DTYPE(a->dtype, backward_row(a, r, own, T));
}

/* to (+)= the chunks' sums, columns c .. c+15. */
VEC_INLINE void add_chunks(const yk_norm_backward_args *a, void *to, const float *sums, int64_t c,
                           yk_dtype t)
{
    int64_t step = n_sums(a) * sum_floats(a), n = a->cols - c;
    vecf v = vec_load_f32(sums + c);
    for (int64_t i = 1; i < n_chunks(a->rows); i++) v += vec_load_f32(sums + i * step + c);
    if (a->accumulate) v += vec_load_n(to, c, n, t);
    vec_store_n(to, c, n, v, t);
}

static void add_columns(const yk_norm_backward_args *a, const float *sums, int64_t c)
{
    void *const to[] = {a->dweight, a->dbias, a->dx_sum, a->add_sum};
    for (int i = 0; i < 4; i++)
        if (to[i])
            YK_CPU_BY_DTYPE(a->grad_dtype, add_chunks(a, to[i], sums + i * sum_floats(a), c, T));
}

yk_status yk_cpu_norm_backward(yk_stream *s, const yk_norm_backward_args *a, void *ws)
{
    int64_t n = n_chunks(a->rows);
#pragma omp parallel num_threads(cpu_threads(s, n))
    {
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < n; i++) backward_chunk(a, i, ws);
#pragma omp for schedule(static)
        for (int64_t c = 0; c < a->cols; c += VEC_LANES) add_columns(a, ws, c);
    }
    return YK_OK;
}
