/* tests/gpu/test_attention_tiles.c - attention on a GPU at every padded head
 * size, over several tiles of queries and keys, held against the oracle. ctest:
 * TIMEOUT 600
 *
 * tests/runtime/device/test_attention.c has the small and odd shapes; these are
 * the ones that reach every kernel, cross tiles, let blocks wait for each other
 * and use places again.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/runtime/device/op_case.h"

typedef struct shape {
    int64_t batch, seq_len, heads, kv_heads, head_size;
} shape;

static int64_t qkv_width(shape s)
{
    return (s.heads + 2 * s.kv_heads) * s.head_size;
}

static op_buffer *documents_of(op_case *c, shape s, int64_t mean_length)
{
    int64_t n = s.batch * s.seq_len;
    int32_t *start = calloc((size_t)n, sizeof *start);
    assert_non_null(start);
    for (int64_t i = 0; i < n; i++) {
        bool begins = i % s.seq_len == 0 || op_random_below(c, mean_length) == 0;
        start[i] = begins ? (int32_t)(i % s.seq_len) : start[i - 1];
    }
    op_buffer *b = op_integers(c, n, start);
    free(start);
    return b;
}

/* Forward and backward of one shape; documents of `length` positions on
 * average, 0: none. */
static void attention_case(op_case *c, yk_dtype t, shape s, int64_t length)
{
    int64_t rows = s.batch * s.seq_len, width = s.heads * s.head_size;
    float scale = 1 / sqrtf((float)s.head_size);
    op_case_begin(c, t, "attention B=%d T=%d H=%d G=%d D=%d documents=%d", (int)s.batch,
                  (int)s.seq_len, (int)s.heads, (int)s.kv_heads, (int)s.head_size, (int)length);
    op_buffer *qkv = op_input(c, t, rows * qkv_width(s), 1);
    op_buffer *documents = length ? documents_of(c, s, length) : NULL;
    const int32_t *doc_start = documents ? documents->data : NULL;
    op_buffer *y = op_output(c, t, rows * width), *lse = op_output(c, YK_F32, rows * s.heads);
    OP_RUN(c, yk_attention_forward,
           &((yk_attention_forward_args){.y = y->data,
                                         .lse = lse->data,
                                         .qkv = qkv->data,
                                         .doc_start = doc_start,
                                         .batch = s.batch,
                                         .seq_len = s.seq_len,
                                         .heads = s.heads,
                                         .kv_heads = s.kv_heads,
                                         .head_size = s.head_size,
                                         .scale = scale,
                                         .dtype = t}));
    oracle_attention o = {.batch = s.batch,
                          .seq_len = s.seq_len,
                          .heads = s.heads,
                          .kv_heads = s.kv_heads,
                          .head_size = s.head_size,
                          .scale = (double)scale,
                          .doc_start = documents ? op_ints(documents) : NULL};
    oracle_out want = op_out(c, rows * width), want_lse = op_out(c, rows * s.heads);
    if (!c->bits_only) {
        oracle_attention_forward(&c->arith, want, want_lse, qkv->value, &o);
        op_expect(c, lse, "lse", want_lse);
        op_expect(c, y, "y", want);
    }

    /* What a forward pass stores; with bits alone at stake, its own output where
   * it lies. */
    op_buffer *y_in = c->bits_only ? y : op_given(c, OP_INPUT, t, rows * width, y->got);
    op_buffer *lse_in =
        c->bits_only ? lse : op_given(c, OP_INPUT, YK_F32, rows * s.heads, lse->got);
    op_buffer *dy = op_input(c, t, rows * width, 1);
    op_buffer *dqkv = op_output(c, t, rows * qkv_width(s));
    OP_RUN(c, yk_attention_backward,
           &((yk_attention_backward_args){.dqkv = dqkv->data,
                                          .dy = dy->data,
                                          .y = y_in->data,
                                          .lse = lse_in->data,
                                          .qkv = qkv->data,
                                          .doc_start = doc_start,
                                          .batch = s.batch,
                                          .seq_len = s.seq_len,
                                          .heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .head_size = s.head_size,
                                          .scale = scale,
                                          .dtype = t}));
    if (c->bits_only) return;
    oracle_out want_dqkv = op_out(c, rows * qkv_width(s));
    oracle_attention_backward(&c->arith, want_dqkv, dy->value, y_in->value, lse_in->value,
                              qkv->value, &o);
    op_expect(c, dqkv, "dqkv", want_dqkv);
}

static void every_head_size(op_case *c)
{
    static const int64_t sizes[] = {8, 32, 40, 64, 72, 96, 112, 128, 136, 192, 200, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int d = YK_BF16; d <= YK_F16; d++) {
            attention_case(c, (yk_dtype)d, (shape){1, 300, 2, 2, sizes[i]}, 0);
            attention_case(c, (yk_dtype)d, (shape){2, 193, 2, 1, sizes[i]}, 40);
        }
}

static void attention_of_every_head_size_agrees_with_the_oracle(void **state)
{
    every_head_size(*state);
}

static void long_sequences(op_case *c)
{
    attention_case(c, YK_BF16, (shape){1, 1024, 3, 3, 64}, 0);
    attention_case(c, YK_BF16, (shape){1, 1000, 4, 2, 64}, 300);
    attention_case(c, YK_F16, (shape){1, 777, 2, 1, 128}, 0);
    attention_case(c, YK_BF16, (shape){1, 640, 3, 1, 128}, 100);
}

static void attention_of_long_sequences_agrees_with_the_oracle(void **state)
{
    long_sequences(*state);
}

/* More heads than there are places for sums under way, so that places are used
 * again. */
static void many_heads(op_case *c)
{
    attention_case(c, YK_BF16, (shape){12, 129, 64, 64, 16}, 0);
    attention_case(c, YK_BF16, (shape){12, 130, 64, 16, 16}, 50);
}

static void attention_of_many_heads_agrees_with_the_oracle(void **state)
{
    many_heads(*state);
}

static void attention_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(every_head_size);
    op_expect_same_bits_again(long_sequences);
    op_expect_same_bits_again(many_heads);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(attention_of_every_head_size_agrees_with_the_oracle),
        OP_TEST(attention_of_long_sequences_agrees_with_the_oracle),
        OP_TEST(attention_of_many_heads_agrees_with_the_oracle),
        cmocka_unit_test(attention_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
