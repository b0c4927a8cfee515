/* runtime/device/cpu/linear_backward_weight_cpu.c - dw (+)= dy^T x and dbias (+)= column sums of dy.
 *
 * The sum runs over all rows of a batch, the result is small. So the result is cut into tiles and,
 * where these are too few to share out, the rows into slices; a piece is a tile of one slice. It
 * keeps its sums in scratch and takes DEPTH rows at a time, which the columns' sums bring near.
 * Both operands are read where they lie, or, where they are not fp32, end within a tile of registers,
 * or have rows so long that few of them share the nearest cache, from a copy in scratch. Slices are
 * added in order.
 */
#include <omp.h>

#include "runtime/device/cpu/amx.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/gemm.h"
#include "runtime/device/cpu/vec.h"

#define DEPTH      128 /* rows at a time */
#define MAX_TILE_N 512 /* rows of a tile; one more strip lies beyond */
#define MAX_TILE_K 256 /* columns of a tile: a multiple of every GEMM_COLS */
#define SUM_FLOATS                                                                                 \
    (64 * 1024)        /* of a tile: a quarter of a large second-level cache with the rows */
#define MAX_ROW   512  /* floats: operands with longer rows are copied to shorter ones */
#define PIECES    32   /* enough for many threads and even shares */
#define MIN_SLICE 1024 /* rows: what adding the slices costs is far under what they take */

/* In a thread's scratch: sums with what a strip may write beyond, the columns' sums, and copies, which
 * as strips for matrix units take up to 6 bytes a number. */
#define ALL_SUM_FLOATS (SUM_FLOATS + MAX_TILE_K * AMX_STRIP)
#define BIAS_FLOATS    (MAX_TILE_N + VEC_LANES)
#define LEFT_FLOATS    (DEPTH * (MAX_TILE_N + AMX_STRIP) * 3 / 2)
#define RIGHT_FLOATS   (DEPTH * MAX_TILE_K * 3 / 2)
_Static_assert(ALL_SUM_FLOATS + BIAS_FLOATS + LEFT_FLOATS + RIGHT_FLOATS <= CPU_SCRATCH_FLOATS,
               "a piece fits the scratch");

typedef struct plan {
    int64_t n_n, tile_n; /* tiles along N and their size */
    int64_t n_k, tile_k;
    int64_t n_slices, slice; /* rows */
} plan;

static plan make_plan(const yk_linear_backward_weight_args *a)
{
    plan p;
    int64_t k = yk_max(1, a->k);
    p.n_k = yk_div_up(k, MAX_TILE_K);
    p.tile_k = yk_round_up(yk_div_up(k, p.n_k), GEMM_COLS);
    p.n_k = yk_div_up(k, p.tile_k);
    p.n_n = yk_div_up(a->n, yk_min(MAX_TILE_N, SUM_FLOATS / p.tile_k));
    p.tile_n = yk_round_up(yk_div_up(a->n, p.n_n), GEMM_UNIT);
    p.n_n = yk_div_up(a->n, p.tile_n);
    p.n_slices = yk_max(1, yk_min(yk_div_up(PIECES, p.n_n * p.n_k), a->m / MIN_SLICE));
    p.slice = yk_div_up(a->m, p.n_slices);
    p.n_slices = yk_div_up(a->m, p.slice);
    return p;
}

/* Slices' sums (n_slices,N,K), then their column sums (n_slices,N). */
int64_t yk_cpu_linear_backward_weight_bytes(const yk_linear_backward_weight_args *a)
{
    plan p = make_plan(a);
    return p.n_slices == 1 ? 0 : 4 * p.n_slices * (a->n * a->k + a->n);
}

/* One operand's rows of a block as fp32. */
typedef struct rows {
    const float *at;
    int64_t row; /* floats between rows */
} rows;

VEC_INLINE void copy(float *to, int64_t to_row, const void *from, int64_t at, int64_t from_row,
                     int64_t depth, int64_t n, yk_dtype t)
{
    for (int64_t r = 0; r < depth; r++)
        for (int64_t i = 0; i < n; i += VEC_LANES)
            vec_store_f32(to + r * to_row + i, vec_load_n(from, at + r * from_row + i, n - i, t));
}

/* `depth` rows of n columns from element `at` of a matrix with rows of `from_row`; a whole number of
 * `unit` columns can be read of each. Columns that are not there count as 0. */
static rows take_rows(const void *from, yk_dtype dtype, int64_t at, int64_t from_row, int64_t depth,
                      int64_t n, int64_t unit, float *scratch)
{
    if (dtype == YK_F32 && n % unit == 0 && from_row <= MAX_ROW)
        return (rows){.at = (const float *)from + at, .row = from_row};
    int64_t to_row = yk_round_up(n, VEC_LANES > unit ? VEC_LANES : unit);
    if (to_row % 64 == 0) to_row += VEC_LANES; /* keeps rows off equal cache sets */
    YK_CPU_BY_DTYPE(dtype, copy(scratch, to_row, from, at, from_row, depth, n, T));
    return (rows){.at = scratch, .row = to_row};
}

/* bias += the rows' sums, from element `at` of dy. */
VEC_INLINE void add_columns(float *bias, const void *dy, int64_t at, int64_t dy_row, int64_t depth,
                            int64_t n, yk_dtype t)
{
    for (int64_t r = 0; r < depth; r++)
        for (int64_t i = 0; i < n; i += VEC_LANES)
            vec_store_f32(bias + i,
                          vec_load_f32(bias + i) + vec_load_n(dy, at + r * dy_row + i, n - i, t));
}

/* A tile of the result and where it is made. */
typedef struct patch {
    int64_t n0, n, k0, k; /* where it lies and what there is of it */
    int64_t sums_row;     /* floats between rows of its sums */
    float *sums, *left, *right;
} patch;

/* sums (+)= dy^T x over rows row .. row+depth-1. */
static void add_vector(const yk_linear_backward_weight_args *a, const patch *t, int64_t row,
                       int64_t depth, bool add)
{
    rows dy = take_rows(a->dy, a->dtype, row * a->n + t->n0, a->n, depth, t->n, GEMM_UNIT, t->left);
    rows x = take_rows(a->x, a->dtype, row * a->k + t->k0, a->k, depth, t->k, GEMM_COLS, t->right);
    for (int64_t i = 0; i < t->n; i += GEMM_ROWS) {
        int height = (int)yk_round_up(yk_min(GEMM_ROWS, t->n - i), GEMM_UNIT);
        for (int64_t j = 0; j < t->k; j += GEMM_COLS)
            yk_cpu_gemm_tile(height, depth, dy.at + i, 1, dy.row, x.at + j, x.row,
                             t->sums + i * t->sums_row + j, t->sums_row, add);
    }
}

/* The same on matrix units. */
static void add_matrix(const yk_linear_backward_weight_args *a, const patch *t, int64_t row,
                       int64_t depth, bool add)
{
    int64_t strip = amx_strip_size(depth, a->dtype) / 2; /* floats */
    for (int64_t j = 0; j < t->k; j += AMX_STRIP)
        yk_cpu_amx_pack(t->right + j / AMX_STRIP * strip, AMX_RIGHT, a->x, row * a->k + t->k0 + j,
                        1, a->k, yk_min(AMX_STRIP, t->k - j), depth, a->dtype);
    for (int64_t i = 0; i < t->n; i += AMX_STRIP) {
        yk_cpu_amx_pack(t->left, AMX_LEFT, a->dy, row * a->n + t->n0 + i, 1, a->n,
                        yk_min(AMX_STRIP, t->n - i), depth, a->dtype);
        for (int64_t j = 0; j < t->k; j += AMX_STRIP)
            yk_cpu_amx_tile(t->left, t->right + j / AMX_STRIP * strip, depth, a->dtype,
                            t->sums + i * t->sums_row + j, t->sums_row, add);
    }
}

/* The tile at (n0,k0) of rows begin .. end-1: sums (n, tile_k) and their column sums (n) behind. */
static void sum_tile(const yk_linear_backward_weight_args *a, const plan *p, int64_t n0, int64_t k0,
                     int64_t begin, int64_t end, float *scratch, bool amx)
{
    float *bias = scratch + ALL_SUM_FLOATS, *left = bias + BIAS_FLOATS;
    patch t = {.n0 = n0,
               .n = yk_min(p->tile_n, a->n - n0),
               .k0 = k0,
               .k = yk_min(p->tile_k, a->k - k0),
               .sums_row = p->tile_k,
               .sums = scratch,
               .left = left,
               .right = left + LEFT_FLOATS};
    memset(bias, 0, BIAS_FLOATS * sizeof *bias);
    for (int64_t row = begin; row < end; row += DEPTH) {
        int64_t depth = yk_min(DEPTH, end - row);
        if (amx && t.k > 0)
            add_matrix(a, &t, row, depth, row > begin);
        else if (t.k > 0)
            add_vector(a, &t, row, depth, row > begin);
        if (a->dbias && k0 == 0)
            YK_CPU_BY_DTYPE(a->dtype,
                            add_columns(bias, a->dy, row * a->n + n0, a->n, depth, t.n, T));
    }
}

/* to (+)= sums, n of them; both grad_dtype and fp32 know no gap. */
VEC_INLINE void put(void *to, int64_t at, const float *sums, int64_t n, bool accumulate, yk_dtype t)
{
    for (int64_t j = 0; j < n; j += VEC_LANES) {
        vecf v = vec_load_n(sums, j, n - j, YK_F32);
        if (accumulate) v += vec_load_n(to, at + j, n - j, t);
        vec_store_n(to, at + j, n - j, v, t);
    }
}

static void put_row(void *to, int64_t at, const float *sums, int64_t n, bool accumulate,
                    yk_dtype dtype)
{
    YK_CPU_BY_DTYPE(dtype, put(to, at, sums, n, accumulate, T));
}

static void run_piece(const yk_linear_backward_weight_args *a, const plan *p, int64_t piece,
                      float *slices, float *scratch, bool amx)
{
    int64_t slice = piece / (p->n_n * p->n_k), tile = piece % (p->n_n * p->n_k);
    int64_t n0 = tile / p->n_k * p->tile_n, k0 = tile % p->n_k * p->tile_k;
    int64_t n = yk_min(p->tile_n, a->n - n0), k = yk_min(p->tile_k, a->k - k0);
    int64_t begin = slice * p->slice;
    sum_tile(a, p, n0, k0, begin, yk_min(begin + p->slice, a->m), scratch, amx);
    const float *sums = scratch, *bias = scratch + ALL_SUM_FLOATS;
    bool whole = p->n_slices == 1, bias_here = a->dbias && k0 == 0;
    if (whole) {
        for (int64_t i = 0; i < n; i++)
            put_row(a->dw, (n0 + i) * a->k + k0, sums + i * p->tile_k, k, a->accumulate,
                    a->grad_dtype);
        if (bias_here) put_row(a->dbias, n0, bias, n, a->accumulate, a->grad_dtype);
        return;
    }
    float *dw = slices + slice * a->n * a->k;
    float *dbias = slices + p->n_slices * a->n * a->k + slice * a->n;
    for (int64_t i = 0; i < n; i++)
        put_row(dw, (n0 + i) * a->k + k0, sums + i * p->tile_k, k, false, YK_F32);
    if (bias_here) put_row(dbias, n0, bias, n, false, YK_F32);
}

/* to (+)= the slices' sums in order, elements begin .. end-1 of `size`. */
VEC_INLINE void add_slices(void *to, const float *slices, int64_t n_slices, int64_t size,
                           int64_t begin, int64_t end, bool accumulate, yk_dtype t)
{
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        int64_t n = end - i;
        vecf v = vec_load_n(slices, i, n, YK_F32);
        for (int64_t s = 1; s < n_slices; s++) v += vec_load_n(slices + s * size, i, n, YK_F32);
        if (accumulate) v += vec_load_n(to, i, n, t);
        vec_store_n(to, i, n, v, t);
    }
}

static void add_chunk(const yk_linear_backward_weight_args *a, const plan *p, const float *slices,
                      int64_t chunk)
{
    int64_t size = a->n * a->k, begin = chunk * CPU_CHUNK, end = yk_min(begin + CPU_CHUNK, size);
    YK_CPU_BY_DTYPE(a->grad_dtype,
                    add_slices(a->dw, slices, p->n_slices, size, begin, end, a->accumulate, T));
}

static void add_slices_bias(const yk_linear_backward_weight_args *a, const plan *p,
                            const float *slices)
{
    YK_CPU_BY_DTYPE(a->grad_dtype,
                    add_slices(a->dbias, slices, p->n_slices, a->n, 0, a->n, a->accumulate, T));
}

yk_status yk_cpu_linear_backward_weight(yk_stream *s, const yk_linear_backward_weight_args *a,
                                        void *ws)
{
    plan p = make_plan(a);
    int64_t n_pieces = p.n_slices * p.n_n * p.n_k, size = a->n * a->k;
    const float *slices = ws;
    bool amx = yk_cpu_uses_amx(s->device);
#pragma omp parallel num_threads(cpu_threads(s, n_pieces))
    {
        if (amx) yk_cpu_amx_begin();
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < n_pieces; i++)
            run_piece(a, &p, i, ws, cpu_scratch(s, omp_get_thread_num()), amx);
        if (amx) yk_cpu_amx_end();
        if (p.n_slices > 1) {
#pragma omp for schedule(static) nowait
            for (int64_t i = 0; i < yk_div_up(size, CPU_CHUNK); i++) add_chunk(a, &p, slices, i);
#pragma omp single
            if (a->dbias) add_slices_bias(a, &p, slices + p.n_slices * size);
        }
    }
    return YK_OK;
}
