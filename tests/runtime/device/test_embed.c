/* tests/runtime/device/test_embed.c - embedding against the oracle.
 *
 * Bounds. Forward: without positions a copy, to the bit; with them one fp32 addition, then the
 * rounding of storage. Backward: n eps of the sum of |terms| for a row that n rows of dy reach; a
 * row that none reaches is exactly zero, or exactly what it was.
 */
#include <stdlib.h>

#include "tests/runtime/device/op_case.h"

static void forward_case(op_case *c, yk_dtype t, int64_t rows, int64_t cols, bool positions)
{
    int64_t vocab = 31, max_positions = 19;
    op_case_begin(c, t, "embed_forward R=%d C=%d positions=%d", (int)rows, (int)cols, positions);
    op_buffer *wte = op_input(c, t, vocab * cols, 1),
              *wpe = op_input(c, t, max_positions * cols, 1);
    op_buffer *tokens = op_indices(c, rows, vocab), *at = op_indices(c, rows, max_positions);
    op_buffer *y = op_output(c, t, rows * cols);
    OP_RUN(c, yk_embed_forward,
           &((yk_embed_forward_args){.y = y->data,
                                     .wte = wte->data,
                                     .wpe = positions ? wpe->data : NULL,
                                     .tokens = tokens->data,
                                     .positions = positions ? at->data : NULL,
                                     .rows = rows,
                                     .cols = cols,
                                     .vocab = vocab,
                                     .max_positions = positions ? max_positions : 0,
                                     .dtype = t}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, rows * cols);
    oracle_embed_forward(&c->arith, want, wte->value, positions ? wpe->value : NULL,
                         op_ints(tokens), op_ints(at), rows, cols);
    op_expect(c, y, "y", want);
}

static void embed_forward_family(op_case *c)
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 17}, {17, 129}, {129, 127}, {300, 65}};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 5; i++)
            for (int positions = 0; positions < 2; positions++)
                forward_case(c, op_dtypes[d], sizes[i][0], sizes[i][1], positions);
}

/* Of a hundred rows `often` have one token, the others any. */
static op_buffer *draw_tokens(op_case *c, int64_t rows, int64_t vocab, int often)
{
    int32_t *values = calloc((size_t)rows + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < rows; i++)
        values[i] = (int32_t)(i * 37 % 100 < often ? vocab / 3 : op_random_below(c, vocab));
    op_buffer *b = op_integers(c, rows, values);
    free(values);
    return b;
}

/* Positions of sequences, the last of which is cut off; `odd` rows before the last one has another
 * than its place gives, if it is not 0. */
static op_buffer *draw_sequences(op_case *c, int64_t rows, int64_t length, int64_t odd)
{
    int32_t *values = calloc((size_t)rows + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < rows; i++) values[i] = (int32_t)(i % length);
    if (odd) values[rows - 1 - odd] ^= 1;
    op_buffer *b = op_integers(c, rows, values);
    free(values);
    return b;
}

/* Rows of dy, and to which rows of the tables they belong. */
typedef struct batch {
    int64_t rows, cols, vocab, max_positions;
    op_buffer *dy, *tokens, *positions; /* positions may be NULL */
    int64_t skip;                       /* tokens and positions that come before the first row's */
} batch;

static void run_backward(op_case *c, const batch *b, yk_dtype t, yk_dtype grad, bool add_wte,
                         bool add_wpe)
{
    op_buffer *dwte = op_gradient(c, grad, b->vocab * b->cols, add_wte);
    op_buffer *dwpe = op_gradient(c, grad, b->max_positions * b->cols, add_wpe);
    OP_RUN(c, yk_embed_backward,
           &((yk_embed_backward_args){
               .dwte = dwte->data,
               .dwpe = b->positions ? dwpe->data : NULL,
               .dy = b->dy->data,
               .tokens = (int32_t *)b->tokens->data + b->skip,
               .positions = b->positions ? (int32_t *)b->positions->data + b->skip : NULL,
               .rows = b->rows,
               .cols = b->cols,
               .vocab = b->vocab,
               .max_positions = b->positions ? b->max_positions : 0,
               .accumulate_wte = add_wte,
               .accumulate_wpe = add_wpe,
               .dtype = t,
               .grad_dtype = grad}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, b->vocab * b->cols),
               want_at = op_out(c, b->max_positions * b->cols);
    oracle_embed_backward(&c->arith, want, op_before(dwte, add_wte), b->dy->value,
                          op_ints(b->tokens) + b->skip, b->rows, b->cols, b->vocab);
    op_expect(c, dwte, "dwte", want);
    if (!b->positions) return;
    oracle_embed_backward(&c->arith, want_at, op_before(dwpe, add_wpe), b->dy->value,
                          op_ints(b->positions) + b->skip, b->rows, b->cols, b->max_positions);
    op_expect(c, dwpe, "dwpe", want_at);
}

/* Some of each table's rows are used often, others never. Of an odd number of rows tokens and
 * positions begin 4 bytes behind a multiple of 16. */
static void backward_case(op_case *c, yk_dtype t, yk_dtype grad, int64_t rows, int64_t cols,
                          int64_t vocab, int often, bool positions, bool add_wte, bool add_wpe)
{
    op_case_begin(c, t, "embed_backward %s R=%d C=%d V=%d often=%d positions=%d accumulate=%d,%d",
                  yk_dtype_name(grad), (int)rows, (int)cols, (int)vocab, often, positions, add_wte,
                  add_wpe);
    batch b = {.rows = rows, .cols = cols, .vocab = vocab, .max_positions = 257, .skip = rows % 2};
    b.dy = op_input(c, t, rows * cols, 1);
    b.tokens = draw_tokens(c, rows + b.skip, vocab, often);
    op_buffer *at = op_indices(c, rows + b.skip, b.max_positions);
    if (positions) b.positions = at;
    run_backward(c, &b, t, grad, add_wte, add_wpe);
}

/* Positions that go up from 0 again and again, all of them but one, if `odd` is not 0. */
static void sequences_case(op_case *c, yk_dtype t, yk_dtype grad, int64_t rows, int64_t length,
                           int64_t cols, int64_t odd, bool add_wte, bool add_wpe)
{
    op_case_begin(c, t, "embed_backward %s R=%d C=%d length=%d odd=%d accumulate=%d,%d",
                  yk_dtype_name(grad), (int)rows, (int)cols, (int)length, (int)odd, add_wte,
                  add_wpe);
    batch b = {.rows = rows, .cols = cols, .vocab = 157, .max_positions = 131};
    b.dy = op_input(c, t, rows * cols, 1);
    b.tokens = draw_tokens(c, rows, b.vocab, 5);
    b.positions = draw_sequences(c, rows, length, odd);
    run_backward(c, &b, t, grad, add_wte, add_wpe);
}

static void embed_backward_family(op_case *c)
{
    static const int64_t sizes[][2] = {{1, 1},    {3, 17},   {17, 129}, {129, 127},
                                       {300, 65}, {200, 40}, {17, 264}};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 7; i++)
            for (int wide = 0; wide < 2; wide++)
                for (int how = 0; how < 5; how++)
                    backward_case(c, op_dtypes[d], wide ? YK_F32 : op_dtypes[d], sizes[i][0],
                                  sizes[i][1], 31, 0, how < 4, how & 1, how & 2);
}

/* More tokens and rows than one block or warp of a GPU takes at a time, and numbers of three bytes. */
static void embed_backward_large_family(op_case *c)
{
    for (int add = 0; add < 2; add++) {
        backward_case(c, YK_BF16, YK_BF16, 20011, 8, 31, 0, true, add, add);
        backward_case(c, YK_BF16, YK_BF16, 40004, 8, 3001, 5, true, add, add);
        backward_case(c, YK_BF16, YK_BF16, 15004, 8, 257, 1, true, add, add);
        backward_case(c, YK_BF16, YK_F32, 600, 16, 601, 0, false, add, false);
        backward_case(c, YK_F32, YK_F32, 300, 4, 70001, 0, false, add, false);
    }
    backward_case(c, YK_F32, YK_F32, 300, 1, 1100001, 0, false, true, false);
}

/* A token that has some of the rows, more than a block of a GPU lists in its own memory, or all. */
static void embed_backward_frequent_family(op_case *c)
{
    static const int often[] = {5, 60, 100};
    for (int i = 0; i < 3; i++)
        for (int add = 0; add < 2; add++) {
            backward_case(c, YK_BF16, YK_BF16, 1203, 264, 301, often[i], true, add, !add);
            backward_case(c, YK_F32, YK_F32, 5003, 3, 9001, often[i], false, add, false);
        }
}

/* Whole sequences, one that is cut off, as many as tokens, and positions that look like sequences
 * but for one, at either end of what a GPU's thread looks at. */
static void embed_backward_sequences_family(op_case *c)
{
    static const int64_t all[][3] = {{256, 64, 0}, {256, 128, 0}, {250, 64, 0}, {128, 128, 0},
                                     {256, 1, 0},  {252, 7, 0},   {256, 64, 1}, {256, 64, 254}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int how = 0; how < 4; how++) {
            int64_t rows = all[i][0], length = all[i][1], odd = all[i][2];
            bool wte = how & 1, wpe = how & 2;
            sequences_case(c, YK_BF16, YK_BF16, rows, length, 264, odd, wte, wpe);
            if (how == 0 || how == 3) continue;
            sequences_case(c, YK_F16, YK_F16, rows, length, 40, odd, wte, wpe);
            sequences_case(c, YK_F32, YK_F32, rows, length, 132, odd, wte, wpe);
            sequences_case(c, YK_BF16, YK_F32, rows, length, 24, odd, wte, wpe);
        }
    for (int64_t odd = 0; odd < 8192; odd += 4000)
        sequences_case(c, YK_BF16, YK_BF16, 8192, 64, 8, odd, odd < 8000, odd < 4000);
}

static void embed_forward_agrees_with_the_oracle(void **state)
{
    embed_forward_family(*state);
}

static void embed_backward_agrees_with_the_oracle(void **state)
{
    embed_backward_family(*state);
}

static void embed_backward_of_many_rows_and_tokens_agrees_with_the_oracle(void **state)
{
    embed_backward_large_family(*state);
}

static void embed_backward_of_a_frequent_token_agrees_with_the_oracle(void **state)
{
    embed_backward_frequent_family(*state);
}

static void embed_backward_of_sequences_agrees_with_the_oracle(void **state)
{
    embed_backward_sequences_family(*state);
}

static void embed_backward_of_no_rows_is_zero_or_what_was_there(void **state)
{
    for (int how = 0; how < 4; how++)
        backward_case(*state, YK_BF16, YK_F32, 0, 17, 31, 0, true, how & 1, how & 2);
}

static void embed_forward_of_no_rows_does_nothing(void **state)
{
    forward_case(*state, YK_F32, 0, 17, true);
}

static void embed_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(embed_forward_family);
    op_expect_same_bits_again(embed_backward_family);
    op_expect_same_bits_again(embed_backward_large_family);
    op_expect_same_bits_again(embed_backward_frequent_family);
    op_expect_same_bits_again(embed_backward_sequences_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(embed_forward_agrees_with_the_oracle),
        OP_TEST(embed_backward_agrees_with_the_oracle),
        OP_TEST(embed_backward_of_many_rows_and_tokens_agrees_with_the_oracle),
        OP_TEST(embed_backward_of_a_frequent_token_agrees_with_the_oracle),
        OP_TEST(embed_backward_of_sequences_agrees_with_the_oracle),
        OP_TEST(embed_backward_of_no_rows_is_zero_or_what_was_there),
        OP_TEST(embed_forward_of_no_rows_does_nothing),
        cmocka_unit_test(embed_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
