/* tests/gpu/attention_case.c - forward and backward of one shape, against the oracle. */
#include "tests/gpu/attention_case.h"

#include <math.h>
#include <stdlib.h>

static int64_t qkv_width(attention_shape s)
{
    return (s.heads + 2 * s.kv_heads) * s.head_size;
}

static op_buffer *documents_of(op_case *c, attention_shape s, int64_t mean_length)
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
void attention_case(op_case *c, yk_dtype t, attention_shape s, int64_t length)
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
