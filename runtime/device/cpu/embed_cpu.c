/* runtime/device/cpu/embed_cpu.c - rows gathered from tables, and their gradients scattered back.
 *
 * Backward. The rows of dy that belong to one row of a table are chained in ascending order, so that
 * a row of the table is summed in that order by one thread, in fp32, and rounded once. Pieces are
 * rows of the table by blocks of columns: text has words that take a large share of all rows.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

#define ROWS_AT_ONCE  64  /* forward */
#define TABLE_ROWS    32  /* of a piece, backward */
#define TABLE_COLUMNS 128 /* of a piece, backward */

VEC_INLINE void gather(const yk_embed_forward_args *a, int64_t begin, int64_t end, yk_dtype t)
{
    for (int64_t r = begin; r < end; r++) {
        int64_t token = a->tokens[r] * a->cols, position = a->wpe ? a->positions[r] * a->cols : 0;
        for (int64_t c = 0; c < a->cols; c += VEC_LANES) {
            int64_t n = a->cols - c;
            vecf v = vec_load_n(a->wte, token + c, n, t);
            if (a->wpe) v += vec_load_n(a->wpe, position + c, n, t);
            vec_store_n(a->y, r * a->cols + c, n, v, t);
        }
    }
}

static void gather_piece(const yk_embed_forward_args *a, int64_t piece)
{
    int64_t begin = piece * ROWS_AT_ONCE, end = yk_min(begin + ROWS_AT_ONCE, a->rows);
    YK_CPU_BY_DTYPE(a->dtype, gather(a, begin, end, T));
}

yk_status yk_cpu_embed_forward(yk_stream *s, const yk_embed_forward_args *a)
{
    int64_t n_pieces = yk_div_up(a->rows, ROWS_AT_ONCE);
#pragma omp parallel for num_threads(cpu_threads(s, n_pieces)) schedule(static)
    for (int64_t i = 0; i < n_pieces; i++) gather_piece(a, i);
    return YK_OK;
}

/* One table's share of the work. */
typedef struct table {
    void *grad;         /* (n_rows,C) grad_dtype */
    const int32_t *ids; /* (R) the row of the table that each row of dy belongs to */
    int64_t n_rows;
    bool accumulate;
    int32_t *first; /* (n_rows) first row of dy of each row of the table, or -1 */
    int32_t *next;  /* (R) the next row of dy of the same, or -1 */
} table;

static void chain(const table *b, int64_t rows)
{
    for (int64_t v = 0; v < b->n_rows; v++) b->first[v] = -1;
    for (int64_t r = rows - 1; r >= 0; r--) {
        b->next[r] = b->first[b->ids[r]];
        b->first[b->ids[r]] = (int32_t)r;
    }
}

VEC_INLINE void add_chain(const yk_embed_backward_args *a, const table *b, int64_t row, int64_t col,
                          int64_t cols, yk_dtype t, float *sum)
{
    memset(sum, 0, sizeof(float) * TABLE_COLUMNS);
    for (int32_t r = b->first[row]; r >= 0; r = b->next[r])
        for (int64_t c = 0; c < cols; c += VEC_LANES)
            vec_store_f32(sum + c, vec_load_f32(sum + c) +
                                       vec_load_n(a->dy, r * a->cols + col + c, cols - c, t));
}

VEC_INLINE void put_sum(const table *b, int64_t at, int64_t cols, const float *sum, yk_dtype t)
{
    for (int64_t c = 0; c < cols; c += VEC_LANES) {
        vecf v = vec_load_f32(sum + c);
        if (b->accumulate) v += vec_load_n(b->grad, at + c, cols - c, t);
        vec_store_n(b->grad, at + c, cols - c, v, t);
    }
}

static void scatter_piece(const yk_embed_backward_args *a, const table *b, int64_t rows_piece,
                          int64_t cols_piece)
{
    float sum[TABLE_COLUMNS] __attribute__((aligned(64)));
    int64_t begin = rows_piece * TABLE_ROWS, end = yk_min(begin + TABLE_ROWS, b->n_rows);
    int64_t col = cols_piece * TABLE_COLUMNS, cols = yk_min(TABLE_COLUMNS, a->cols - col);
    for (int64_t row = begin; row < end; row++) {
        if (b->first[row] < 0 && b->accumulate) continue;
        YK_CPU_BY_DTYPE(a->dtype, add_chain(a, b, row, col, cols, T, sum));
        YK_CPU_BY_DTYPE(a->grad_dtype, put_sum(b, row * a->cols + col, cols, sum, T));
    }
}

static void scatter(const yk_stream *s, const yk_embed_backward_args *a, const table *b)
{
    chain(b, a->rows);
    int64_t n_cols = yk_div_up(a->cols, TABLE_COLUMNS);
    int64_t n_pieces = n_cols * yk_div_up(b->n_rows, TABLE_ROWS);
#pragma omp parallel for num_threads(cpu_threads(s, n_pieces)) schedule(dynamic)
    for (int64_t i = 0; i < n_pieces; i++) scatter_piece(a, b, i / n_cols, i % n_cols);
}

int64_t yk_cpu_embed_backward_bytes(const yk_embed_backward_args *a)
{
    int64_t n_rows = yk_max(a->vocab, a->dwpe ? a->max_positions : 0);
    return (int64_t)sizeof(int32_t) * (n_rows + a->rows);
}

yk_status yk_cpu_embed_backward(yk_stream *s, const yk_embed_backward_args *a, void *ws)
{
    table tokens = {.grad = a->dwte,
                    .ids = a->tokens,
                    .n_rows = a->vocab,
                    .accumulate = a->accumulate_wte,
                    .first = ws,
                    .next = (int32_t *)ws + a->vocab};
    scatter(s, a, &tokens);
    if (!a->dwpe) return YK_OK;
    table positions = {.grad = a->dwpe,
                       .ids = a->positions,
                       .n_rows = a->max_positions,
                       .accumulate = a->accumulate_wpe,
                       .first = ws,
                       .next = (int32_t *)ws + a->max_positions};
    scatter(s, a, &positions);
    return YK_OK;
}
