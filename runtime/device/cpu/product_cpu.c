/* runtime/device/cpu/product_cpu.c - cutting a product into tiles by its shape.
 *
 * Blocks of k (outermost but for blocks of columns), so that a panel and a few strips of rows fit
 * the caches; tiles of rows by panels of columns as pieces for the threads. Bits depend on the blocks
 * of k alone (gemm.h), so the other sizes below are free to be whatever is fast.
 */
#include "runtime/device/cpu/product.h"

#include <omp.h>

#include "runtime/device/cpu/amx.h"

#define PANEL_FLOATS (1024 * 1024) /* of the workspace: half of a large second-level cache */
#define MAX_DEPTH    1024          /* k in a block */
#define LEFT_FLOATS  (48 * 1024)   /* a tile of the left operand: fits the second-level cache */
#define MAX_STRIPS   8             /* of GEMM_ROWS rows in a tile */
#define GROUP_FLOATS (256 * 1024)  /* panels of a piece: a quarter of a large second-level cache */
#define BAND         2048          /* rows whose sums are kept between blocks of k */
#define PIECES       64            /* enough for many threads and even shares */
#define LEFT_PAD     16            /* keeps rows of the copied left operand off equal cache sets */

typedef struct plan {
    int64_t n_depths, depth;     /* blocks of k and the size of all but the last */
    int64_t n_widths, width;     /* blocks of columns; a multiple of GEMM_COLS */
    int64_t n_bands, band;       /* bands of rows: one where k is one block */
    int64_t n_heights, height;   /* tiles of rows of a band; a multiple of the kernel's rows */
    int64_t n_groups, per_group; /* pieces of a block of columns, in panels */
    int64_t panel;               /* floats of a panel */
    bool amx;                    /* tiles are made on matrix units */
} plan;

/* Cut `total` into the fewest equal parts of at most `most`, each a multiple of `unit`. */
static int64_t even_part(int64_t total, int64_t most, int64_t unit)
{
    int64_t n = yk_div_up(total, yk_max(most / unit * unit, unit));
    return yk_round_up(yk_div_up(total, n), unit);
}

/* On vector units a tile is several strips of rows that lie where they lie. On matrix units it is one
 * strip: this is copied anew for each group of panels, and these can be read from farther away. */
static plan make_plan(int64_t m, int64_t n, int64_t k, yk_dtype dtype, bool amx)
{
    plan p = {.amx = amx};
    p.depth = even_part(k, MAX_DEPTH, 1);
    p.n_depths = yk_div_up(k, p.depth);
    p.width = even_part(n, PANEL_FLOATS / p.depth, GEMM_COLS);
    p.n_widths = yk_div_up(n, p.width);
    int64_t strips = yk_max(1, yk_min(MAX_STRIPS, LEFT_FLOATS / (GEMM_ROWS * p.depth)));
    p.height = amx ? AMX_STRIP : strips * GEMM_ROWS;
    p.band = p.n_depths == 1 ? m : even_part(m, BAND, p.height);
    p.n_bands = yk_div_up(m, p.band);
    p.n_heights = yk_div_up(p.band, p.height);
    int64_t panels = p.width / GEMM_COLS;
    p.panel = amx ? amx_strip_size(p.depth, dtype) / 2 : p.depth * GEMM_COLS;
    p.n_groups = yk_max(yk_div_up(PIECES, p.n_heights), yk_div_up(panels * p.panel, GROUP_FLOATS));
    p.per_group = yk_div_up(panels, yk_min(panels, p.n_groups));
    p.n_groups = yk_div_up(panels, p.per_group);
    return p;
}

static int64_t panel_floats(const plan *p)
{
    return p->width / GEMM_COLS * p->panel;
}

static int64_t plan_bytes(const plan *p)
{
    int64_t sums = p->n_depths > 1 ? p->n_heights * p->height * p->width : 0;
    return 4 * (panel_floats(p) + sums);
}

int64_t yk_cpu_product_bytes(int64_t m, int64_t n, int64_t k, yk_dtype dtype)
{
    plan vector = make_plan(m, n, k, dtype, false), matrix = make_plan(m, n, k, dtype, true);
    return yk_max(plan_bytes(&vector), CPU_HAS_AMX ? plan_bytes(&matrix) : 0);
}

/* One block: rows from row, columns from col, k from first. */
typedef struct block {
    int64_t row, rows, col, cols, first, depth;
    bool begins, ends; /* the first, the last of the blocks of k */
    float *panels;     /* (panels, depth, GEMM_COLS), or as many strips */
    float *sums;       /* (band, width) between blocks of k, or NULL when there is one */
} block;

static void pack_panel(const cpu_product *p, const plan *q, const block *b, int64_t i)
{
    int64_t col = b->col + i * GEMM_COLS, n = yk_min(GEMM_COLS, b->col + b->cols - col);
    float *panel = b->panels + i * q->panel;
    int64_t at = p->transposed ? col * p->k + b->first : b->first * p->n + col;
    if (q->amx)
        yk_cpu_amx_pack(panel, AMX_RIGHT, p->b, at, p->transposed ? p->k : 1,
                        p->transposed ? 1 : p->n, n, b->depth, p->dtype);
    else if (p->transposed)
        yk_cpu_pack_transposed(panel, cpu_at(p->b, at, p->dtype), p->k, b->depth, n, p->dtype);
    else
        yk_cpu_pack_rows(panel, cpu_at(p->b, at, p->dtype), p->n, b->depth, n, p->dtype);
}

VEC_INLINE void copy_rows(float *to, int64_t to_row, const cpu_product *p, const block *b,
                          int64_t row, int64_t rows, yk_dtype t)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t l = 0; l < b->depth; l += VEC_LANES)
            vec_store_f32(to + i * to_row + l,
                          vec_load_n(p->a, (row + i) * p->k + b->first + l, b->depth - l, t));
}

/* The left operand's rows as fp32 with GEMM_UNIT rows there for every one asked for: where they lie
 * when they can be used so, else a copy in `scratch`. Rows a multiple of 4096 bytes apart would all
 * fall into one set of the nearest cache. */
static const float *left_rows(const cpu_product *p, const block *b, int64_t row, int64_t rows,
                              float *scratch, int64_t *a_row_out)
{
    if (p->dtype == YK_F32 && rows % GEMM_UNIT == 0 && p->k % 1024 != 0) {
        *a_row_out = p->k;
        return (const float *)p->a + row * p->k + b->first;
    }
    int64_t a_row = yk_round_up(b->depth, VEC_LANES) + LEFT_PAD;
    YK_CPU_BY_DTYPE(p->dtype, copy_rows(scratch, a_row, p, b, row, rows, T));
    for (int64_t i = rows; i < yk_round_up(rows, GEMM_UNIT); i++)
        memset(scratch + i * a_row, 0, 4 * (size_t)b->depth);
    *a_row_out = a_row;
    return scratch;
}

/* Ask for the memory that `finish` will want for a tile, so that it comes while the tile is computed.
 * A row of a tile is one or two cache lines. */
static void fetch(const cpu_product *p, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    for (int i = 0; i < 3; i++) {
        if (!p->touched[i]) continue;
        for (int64_t r = 0; r < rows; r++) {
            int64_t at = (row + r) * p->n + col;
            __builtin_prefetch(cpu_at(p->touched[i], at, p->dtype), 1);
            __builtin_prefetch(cpu_at(p->touched[i], at + cols - 1, p->dtype), 1);
        }
    }
}

/* Where the sums of a tile `row` rows and `col` columns into a block lie between blocks of k. */
static float *sums_at(const plan *q, const block *b, int64_t row, int64_t col)
{
    return b->sums + row * q->width + col;
}

/* A tile of rows by a group of panels: rows from `top`, panels i .. end-1. */
static void run_vector(const cpu_product *p, const plan *q, const block *b, int64_t top, int64_t i,
                       int64_t end, float *scratch)
{
    int64_t rows = yk_min(q->height, b->rows - top), a_row;
    float tile[GEMM_ROWS * GEMM_COLS] __attribute__((aligned(64)));
    const float *a = left_rows(p, b, b->row + top, rows, scratch, &a_row);
    for (int64_t r = 0; r < rows; r += GEMM_ROWS)
        for (int64_t j = i; j < end; j++) {
            int64_t col = j * GEMM_COLS, cols = yk_min(GEMM_COLS, b->cols - col);
            int64_t row = b->row + top + r, n = yk_min(GEMM_ROWS, rows - r);
            float *c = b->sums ? sums_at(q, b, top + r, col) : tile;
            int64_t c_row = b->sums ? q->width : GEMM_COLS;
            if (b->ends) fetch(p, row, b->col + col, n, cols);
            yk_cpu_gemm_tile((int)yk_round_up(n, GEMM_UNIT), b->depth, a + r * a_row, a_row, 1,
                             b->panels + j * q->panel, GEMM_COLS, c, c_row, !b->begins);
            if (b->ends) p->finish(p->args, c, c_row, row, b->col + col, n, cols);
        }
}

/* The same on matrix units; what follows the product takes fewer rows at a time. */
static void run_matrix(const cpu_product *p, const plan *q, const block *b, int64_t top, int64_t i,
                       int64_t end, float *left)
{
    int64_t rows = yk_min(AMX_STRIP, b->rows - top), row = b->row + top;
    float tile[AMX_STRIP * AMX_STRIP] __attribute__((aligned(64)));
    yk_cpu_amx_pack(left, AMX_LEFT, p->a, row * p->k + b->first, p->k, 1, rows, b->depth, p->dtype);
    for (int64_t j = i; j < end; j++) {
        int64_t col = j * AMX_STRIP, cols = yk_min(AMX_STRIP, b->cols - col);
        float *c = b->sums ? sums_at(q, b, top, col) : tile;
        int64_t c_row = b->sums ? q->width : AMX_STRIP;
        if (b->ends) fetch(p, row, b->col + col, rows, cols);
        yk_cpu_amx_tile(left, b->panels + j * q->panel, b->depth, p->dtype, c, c_row, !b->begins);
        for (int64_t r = 0; b->ends && r < rows; r += GEMM_ROWS)
            p->finish(p->args, c + r * c_row, c_row, row + r, b->col + col,
                      yk_min(GEMM_ROWS, rows - r), cols);
    }
}

static void run_piece(const cpu_product *p, const plan *q, const block *b, int64_t piece,
                      float *scratch)
{
    int64_t top = piece / q->n_groups * q->height, n_panels = yk_div_up(b->cols, GEMM_COLS);
    int64_t i = piece % q->n_groups * q->per_group, end = yk_min(i + q->per_group, n_panels);
    if (i >= end || top >= b->rows) return;
    if (q->amx)
        run_matrix(p, q, b, top, i, end, scratch);
    else
        run_vector(p, q, b, top, i, end, scratch);
}

/* Block number n of the plan: k fastest, then columns, then bands of rows. */
static block block_at(const cpu_product *p, const plan *q, int64_t n, float *ws)
{
    int64_t at = n % q->n_depths, width = n / q->n_depths % q->n_widths;
    block b = {.row = n / q->n_depths / q->n_widths * q->band,
               .col = width * q->width,
               .first = at * q->depth,
               .begins = at == 0,
               .ends = at == q->n_depths - 1,
               .panels = ws};
    b.rows = yk_min(q->band, p->m - b.row);
    b.cols = yk_min(q->width, p->n - b.col);
    b.depth = yk_min(q->depth, p->k - b.first);
    if (q->n_depths > 1) b.sums = ws + panel_floats(q);
    return b;
}

void yk_cpu_product_run(const yk_stream *s, const cpu_product *p, void *ws)
{
    plan q = make_plan(p->m, p->n, p->k, p->dtype, yk_cpu_uses_amx(s->device));
    int64_t n_pieces = q.n_heights * q.n_groups, n_blocks = q.n_bands * q.n_widths * q.n_depths;
#pragma omp parallel num_threads(cpu_threads(s, n_pieces))
    {
        if (q.amx) yk_cpu_amx_begin();
        for (int64_t n = 0; n < n_blocks; n++) {
            block b = block_at(p, &q, n, ws);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < yk_div_up(b.cols, GEMM_COLS); i++) pack_panel(p, &q, &b, i);
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < n_pieces; i++)
                run_piece(p, &q, &b, i, cpu_scratch(s, omp_get_thread_num()));
        }
        if (q.amx) yk_cpu_amx_end();
    }
}
