/* tests/runtime/device/test_norm.c - LayerNorm and RMSNorm against the oracle.
 *
 * Bounds. A mean over C numbers has (C + 1) eps of mean |x|; a variance (C + 4) eps of itself and
 * the square of the mean's error; rstd half the relative error of that and 3 eps; y what follows
 * from these and 4 eps. The gradient's two row means have (C + 2) and (C + 6) eps of their absolute
 * terms, the column sums (R + 5) eps. tests/oracle/rows.c has them term by term.
 */
#include <math.h>

#include "tests/runtime/device/op_case.h"

static const int64_t sizes[][2] = {{1, 1},   {1, 127},  {3, 17},   {17, 129},
                                   {129, 3}, {257, 64}, {2, 5003}, {2500, 5}};
#define N_SIZES 8

/* `offset` makes rows whose mean is far from zero, where a careless variance cancels. */
static op_buffer *rows_of(op_case *c, yk_dtype t, int64_t n, double scale, double offset)
{
    double *x = op_out(c, n).value;
    for (int64_t i = 0; i < n; i++) x[i] = oracle_round(t, op_random_normal(c) * scale + offset);
    return op_given(c, OP_INPUT, t, n, x);
}

static void forward_case(op_case *c, yk_norm_kind kind, yk_dtype t, int64_t rows, int64_t cols,
                         double scale, double offset)
{
    bool layer = kind == YK_NORM_LAYER;
    float eps = 1e-5f;
    op_case_begin(c, t, "norm_forward %s R=%d C=%d x=%g+-%g", layer ? "layer" : "rms", (int)rows,
                  (int)cols, offset, scale);
    op_buffer *x = rows_of(c, t, rows * cols, scale, offset);
    op_buffer *weight = op_input(c, t, cols, 1), *bias = op_input(c, t, cols, 1);
    op_buffer *y = op_output(c, t, rows * cols), *rstd = op_output(c, YK_F32, rows);
    op_buffer *mean = layer ? op_output(c, YK_F32, rows) : NULL;
    OP_RUN(c, yk_norm_forward,
           &((yk_norm_forward_args){.y = y->data,
                                    .mean = layer ? mean->data : NULL,
                                    .rstd = rstd->data,
                                    .x = x->data,
                                    .weight = weight->data,
                                    .bias = layer ? bias->data : NULL,
                                    .rows = rows,
                                    .cols = cols,
                                    .eps = eps,
                                    .kind = kind,
                                    .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, rows * cols), want_rstd = op_out(c, rows),
               want_mean = op_out(c, rows);
    oracle_norm_forward(&c->arith, kind, want, layer ? want_mean : (oracle_out){0}, want_rstd,
                        x->value, weight->value, layer ? bias->value : NULL, rows, cols,
                        (double)eps);
    if (layer) op_expect(c, mean, "mean", want_mean);
    op_expect(c, rstd, "rstd", want_rstd);
    op_expect(c, y, "y", want);
}

static void norm_forward_family(op_case *c)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_SIZES; i++)
            for (int kind = 0; kind < 2; kind++) {
                forward_case(c, (yk_norm_kind)kind, op_dtypes[d], sizes[i][0], sizes[i][1], 1, 0);
                forward_case(c, (yk_norm_kind)kind, op_dtypes[d], sizes[i][0], sizes[i][1], 1, 60);
            }
}

/* Which buffer dx shares. */
typedef enum sharing { ALONE, IS_ADD, IS_DY } sharing;

typedef struct backward_how {
    yk_norm_kind kind;
    yk_dtype dtype, grad;
    bool add, accumulate;
    sharing dx;
    bool sums; /* of dx and, where it is there, of add */
} backward_how;

/* mean and rstd as the forward pass makes them, rounded to fp32. */
static void row_statistics(op_case *c, backward_how how, const op_buffer *x, int64_t rows,
                           int64_t cols, op_buffer **mean, op_buffer **rstd)
{
    oracle_out y = op_out(c, rows * cols), m = op_out(c, rows), r = op_out(c, rows);
    double *ones = op_out(c, cols).value;
    for (int64_t i = 0; i < cols; i++) ones[i] = 1;
    oracle_norm_forward(NULL, how.kind, y, m, r, x->value, ones, NULL, rows, cols, 1e-5);
    for (int64_t i = 0; i < rows; i++) {
        m.value[i] = oracle_round(YK_F32, m.value[i]);
        r.value[i] = oracle_round(YK_F32, r.value[i]);
    }
    *mean = how.kind == YK_NORM_LAYER ? op_given(c, OP_INPUT, YK_F32, rows, m.value) : NULL;
    *rstd = op_given(c, OP_INPUT, YK_F32, rows, r.value);
}

/* `sum` holds the sums of the rows of `of`, which may have been rounded to t before. */
static void expect_row_sums(op_case *c, const op_buffer *sum, const char *name, oracle_out of,
                            yk_dtype t, bool accumulate, int64_t rows, int64_t cols)
{
    oracle_out want = op_out(c, cols);
    for (int64_t col = 0; col < cols; col++) {
        double terms = accumulate ? fabs(sum->value[col]) : 0;
        want.value[col] = accumulate ? sum->value[col] : 0;
        for (int64_t i = col; i < rows * cols; i += cols) {
            want.value[col] += of.value[i];
            want.bound[col] += oracle_stored_bound(t, of.value[i], of.bound[i]);
            terms += fabs(of.value[i]);
        }
        want.bound[col] += (double)(rows + 1) * c->arith.eps * terms;
    }
    op_expect(c, sum, name, want);
}

static void backward_case(op_case *c, backward_how how, int64_t rows, int64_t cols)
{
    yk_dtype t = how.dtype;
    bool layer = how.kind == YK_NORM_LAYER;
    op_case_begin(c, t, "norm_backward %s %s R=%d C=%d add=%d accumulate=%d dx=%d sums=%d",
                  layer ? "layer" : "rms", yk_dtype_name(how.grad), (int)rows, (int)cols, how.add,
                  how.accumulate, (int)how.dx, how.sums);
    op_buffer *x = rows_of(c, t, rows * cols, 1, 3), *weight = op_input(c, t, cols, 1);
    op_buffer *mean, *rstd;
    row_statistics(c, how, x, rows, cols, &mean, &rstd);
    op_buffer *dy = (how.dx == IS_DY ? op_inout : op_input)(c, t, rows * cols, 1);
    op_buffer *add =
        how.add ? (how.dx == IS_ADD ? op_inout : op_input)(c, t, rows * cols, 1) : NULL;
    op_buffer *dx = how.dx == IS_DY ? dy : how.dx == IS_ADD ? add : op_output(c, t, rows * cols);
    op_buffer *dweight = op_gradient(c, how.grad, cols, how.accumulate);
    op_buffer *dbias = layer ? op_gradient(c, how.grad, cols, how.accumulate) : NULL;
    op_buffer *dx_sum = how.sums ? op_gradient(c, how.grad, cols, how.accumulate) : NULL;
    op_buffer *add_sum = how.sums && add ? op_gradient(c, how.grad, cols, how.accumulate) : NULL;
    OP_RUN(c, yk_norm_backward,
           &((yk_norm_backward_args){.dx = dx->data,
                                     .dweight = dweight->data,
                                     .dbias = layer ? dbias->data : NULL,
                                     .dx_sum = dx_sum ? dx_sum->data : NULL,
                                     .add_sum = add_sum ? add_sum->data : NULL,
                                     .dy = dy->data,
                                     .add = add ? add->data : NULL,
                                     .x = x->data,
                                     .weight = weight->data,
                                     .mean = layer ? mean->data : NULL,
                                     .rstd = rstd->data,
                                     .rows = rows,
                                     .cols = cols,
                                     .accumulate = how.accumulate,
                                     .kind = how.kind,
                                     .dtype = t,
                                     .grad_dtype = how.grad}));
    if (c->bits_only) return;
    oracle_out want_dx = op_out(c, rows * cols), want_dw = op_out(c, cols),
               want_db = layer ? op_out(c, cols) : (oracle_out){0};
    oracle_norm_backward(
        &c->arith, want_dx, want_dw, want_db,
        &(oracle_norm_gradient_in){.dy = dy->value,
                                   .add = add ? add->value : NULL,
                                   .x = x->value,
                                   .weight = weight->value,
                                   .mean = layer ? mean->value : NULL,
                                   .rstd = rstd->value,
                                   .dweight_before = op_before(dweight, how.accumulate),
                                   .dbias_before = layer ? op_before(dbias, how.accumulate) : NULL,
                                   .rows = rows,
                                   .cols = cols,
                                   .kind = how.kind});
    op_expect(c, dx, "dx", want_dx);
    op_expect(c, dweight, "dweight", want_dw);
    if (layer) op_expect(c, dbias, "dbias", want_db);
    if (dx_sum) expect_row_sums(c, dx_sum, "dx_sum", want_dx, t, how.accumulate, rows, cols);
    if (!add_sum) return;
    oracle_out adds = op_out(c, rows * cols);
    for (int64_t i = 0; i < rows * cols; i++) adds.value[i] = add->value[i];
    expect_row_sums(c, add_sum, "add_sum", adds, YK_F32, how.accumulate, rows, cols);
}

static void norm_backward_family(op_case *c)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < N_SIZES; i++)
            for (int way = 0; way < 16; way++) {
                backward_how how = {.kind = (yk_norm_kind)(way & 1),
                                    .dtype = op_dtypes[d],
                                    .grad = way & 2 ? YK_F32 : op_dtypes[d],
                                    .accumulate = way & 4,
                                    .add = way & 8,
                                    .sums = (way + i) % 3 == 0};
                backward_case(c, how, sizes[i][0], sizes[i][1]);
            }
}

static void norm_forward_agrees_with_the_oracle(void **state)
{
    norm_forward_family(*state);
}

static void norm_backward_agrees_with_the_oracle(void **state)
{
    norm_backward_family(*state);
}

static void norm_backward_may_write_over_add_or_dy(void **state)
{
    for (int d = 0; d < 3; d++)
        for (int kind = 0; kind < 2; kind++) {
            backward_how how = {.kind = (yk_norm_kind)kind,
                                .dtype = op_dtypes[d],
                                .grad = op_dtypes[d],
                                .add = true,
                                .dx = IS_ADD};
            backward_case(*state, how, 17, 129);
            how.dx = IS_DY;
            backward_case(*state, how, 17, 129);
            how.add = false;
            backward_case(*state, how, 17, 129);
        }
}

/* Widths of real models, at each of which a GPU's warp has another number of packs; dx in place. */
static void norm_of_wide_rows_agrees_with_the_oracle(void **state)
{
    static const int64_t widths[] = {256, 768, 896, 1280, 1536, 1792, 2048, 3584, 4104, 8192, 8200};
    for (int i = 0; i < 11; i++)
        for (int kind = 0; kind < 2; kind++) {
            yk_dtype t = op_dtypes[i % 3];
            backward_how how = {
                .kind = (yk_norm_kind)kind, .dtype = t, .grad = t, .add = true, .dx = IS_ADD};
            forward_case(*state, (yk_norm_kind)kind, t, 37, widths[i], 1, 1);
            backward_case(*state, how, 37, widths[i]);
            how.sums = true;
            backward_case(*state, how, 37, widths[i]);
            how.dx = IS_DY;
            backward_case(*state, how, 37, widths[i]);
        }
}

/* Rows of which a smaller card's shared memory holds those of fewer warps, of one or, of the longest, of
 * none. */
static void norm_forward_on_a_smaller_card_agrees_with_the_oracle(void **state)
{
    static const int64_t widths[] = {2304, 3584, 4104, 8192, 8200, 12288};
    op_be_smaller_card(*state);
    for (int i = 0; i < 6; i++)
        for (int d = 0; d < 3; d++)
            for (int kind = 0; kind < 2; kind++)
                forward_case(*state, (yk_norm_kind)kind, op_dtypes[d], 37, widths[i], 1, 1);
    forward_case(*state, YK_NORM_RMS, YK_BF16, 1300, 3584, 1, 1);
}

/* More rows than a GPU works at or has on their way, so that places are used again, with and without
 * `add`; narrow rows, of which most are under way, and some that leave lanes without columns. */
static void norm_of_many_rows_agrees_with_the_oracle(void **state)
{
    static const int64_t few[][2] = {
        {5000, 8}, {3000, 264}, {1100, 1600}, {560, 3584}, {290, 5120}};
    static const int64_t many[][2] = {{26000, 24}, {6500, 520}};
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < 5; i++) {
            yk_dtype t = (i + kind) % 2 ? YK_F16 : YK_BF16;
            backward_how how = {
                .kind = (yk_norm_kind)kind, .dtype = t, .grad = YK_F32, .add = i % 2 == 0};
            backward_case(*state, how, few[i][0], few[i][1]);
            how.sums = how.add = true;
            backward_case(*state, how, few[i][0], few[i][1]);
        }
        for (int i = 0; i < 2; i++)
            forward_case(*state, (yk_norm_kind)kind, (i + kind) % 2 ? YK_BF16 : YK_F16, many[i][0],
                         many[i][1], 1, 1);
    }
    backward_how single = {.dtype = YK_F32, .grad = YK_F32, .add = true, .dx = IS_ADD};
    backward_case(*state, single, 1900, 800);
    forward_case(*state, YK_NORM_LAYER, YK_F32, 4300, 900, 1, 1);
    forward_case(*state, YK_NORM_LAYER, YK_BF16, 6400, 1600, 1, 1);
}

/* With variance 0, rstd is 1 / sqrt(eps) and y is the bias. */
static void norm_forward_of_equal_numbers_is_finite(void **state)
{
    for (int d = 0; d < 3; d++) {
        forward_case(*state, YK_NORM_LAYER, op_dtypes[d], 3, 17, 0, 0);
        forward_case(*state, YK_NORM_RMS, op_dtypes[d], 3, 17, 0, 0);
    }
}

static void norm_backward_of_no_rows_is_zero_or_what_was_there(void **state)
{
    for (int way = 0; way < 4; way++) {
        backward_how how = {.kind = (yk_norm_kind)(way & 1),
                            .dtype = YK_BF16,
                            .grad = YK_BF16,
                            .accumulate = way & 2,
                            .sums = true};
        backward_case(*state, how, 0, 17);
    }
}

static void norm_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(norm_forward_family);
    op_expect_same_bits_again(norm_backward_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(norm_forward_agrees_with_the_oracle),
        OP_TEST(norm_backward_agrees_with_the_oracle),
        OP_TEST(norm_backward_may_write_over_add_or_dy),
        OP_TEST(norm_of_wide_rows_agrees_with_the_oracle),
        OP_TEST(norm_forward_on_a_smaller_card_agrees_with_the_oracle),
        OP_TEST(norm_of_many_rows_agrees_with_the_oracle),
        OP_TEST(norm_forward_of_equal_numbers_is_finite),
        OP_TEST(norm_backward_of_no_rows_is_zero_or_what_was_there),
        cmocka_unit_test(norm_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
