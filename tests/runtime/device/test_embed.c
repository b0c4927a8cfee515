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

/* Some of each table's rows are used often, others never. Of an odd number of rows tokens and
 * positions begin 4 bytes behind a multiple of 16. */
static void backward_case(op_case *c, yk_dtype t, yk_dtype grad, int64_t rows, int64_t cols,
                          int64_t vocab, int often, bool positions, bool add_wte, bool add_wpe)
{
    int64_t max_positions = 257;
    op_case_begin(c, t, "embed_backward %s R=%d C=%d V=%d often=%d positions=%d accumulate=%d,%d",
                  yk_dtype_name(grad), (int)rows, (int)cols, (int)vocab, often, positions, add_wte,
                  add_wpe);
    op_buffer *dy = op_input(c, t, rows * cols, 1);
    int64_t skip = rows % 2;
    op_buffer *tokens = draw_tokens(c, rows + skip, vocab, often);
    op_buffer *at = op_indices(c, rows + skip, max_positions);
    op_buffer *dwte = op_gradient(c, grad, vocab * cols, add_wte);
    op_buffer *dwpe = op_gradient(c, grad, max_positions * cols, add_wpe);
    OP_RUN(c, yk_embed_backward,
           &((yk_embed_backward_args){.dwte = dwte->data,
                                      .dwpe = positions ? dwpe->data : NULL,
                                      .dy = dy->data,
                                      .tokens = (int32_t *)tokens->data + skip,
                                      .positions = positions ? (int32_t *)at->data + skip : NULL,
                                      .rows = rows,
                                      .cols = cols,
                                      .vocab = vocab,
                                      .max_positions = positions ? max_positions : 0,
                                      .accumulate_wte = add_wte,
                                      .accumulate_wpe = add_wpe,
                                      .dtype = t,
                                      .grad_dtype = grad}));
    if (c->bits_only) return;
    oracle_out want = op_out(c, vocab * cols), want_at = op_out(c, max_positions * cols);
    oracle_embed_backward(&c->arith, want, op_before(dwte, add_wte), dy->value,
                          op_ints(tokens) + skip, rows, cols, vocab);
    op_expect(c, dwte, "dwte", want);
    if (!positions) return;
    oracle_embed_backward(&c->arith, want_at, op_before(dwpe, add_wpe), dy->value,
                          op_ints(at) + skip, rows, cols, max_positions);
    op_expect(c, dwpe, "dwpe", want_at);
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
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(embed_forward_agrees_with_the_oracle),
        OP_TEST(embed_backward_agrees_with_the_oracle),
        OP_TEST(embed_backward_of_many_rows_and_tokens_agrees_with_the_oracle),
        OP_TEST(embed_backward_of_a_frequent_token_agrees_with_the_oracle),
        OP_TEST(embed_backward_of_no_rows_is_zero_or_what_was_there),
        OP_TEST(embed_forward_of_no_rows_does_nothing),
        cmocka_unit_test(embed_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
