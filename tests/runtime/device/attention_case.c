/* tests/runtime/device/attention_case.c - see attention_case.h. */
#include "tests/runtime/device/attention_case.h"

#include <math.h>
#include <stdlib.h>

int64_t attention_rows(attention_shape s)
{
    return s.batch * s.seq_len;
}

int64_t attention_width(attention_shape s)
{
    return s.heads * s.head_size;
}

int64_t attention_qkv_width(attention_shape s)
{
    return (s.heads + 2 * s.kv_heads) * s.head_size;
}

float attention_scale(attention_shape s)
{
    return 1 / sqrtf((float)s.head_size);
}

op_buffer *attention_documents(op_case *c, attention_shape s, int64_t mean_length)
{
    int64_t n = attention_rows(s);
    if (mean_length == 0) return NULL;
    int32_t *start = calloc((size_t)n + 1, sizeof *start);
    assert_non_null(start);
    for (int64_t i = 0; i < n; i++) {
        bool begins = i % s.seq_len == 0 || op_random_below(c, mean_length) == 0;
        start[i] = begins ? (int32_t)(i % s.seq_len) : start[i - 1];
    }
    op_buffer *b = op_integers(c, n, start);
    free(start);
    return b;
}

yk_attention_forward_args attention_forward_args(attention_shape s, yk_dtype t,
                                                 const op_buffer *documents)
{
    return (yk_attention_forward_args){.doc_start = documents ? documents->data : NULL,
                                       .batch = s.batch,
                                       .seq_len = s.seq_len,
                                       .heads = s.heads,
                                       .kv_heads = s.kv_heads,
                                       .head_size = s.head_size,
                                       .scale = attention_scale(s),
                                       .dtype = t};
}

yk_attention_backward_args attention_backward_args(attention_shape s, yk_dtype t,
                                                   const op_buffer *documents)
{
    yk_attention_forward_args f = attention_forward_args(s, t, documents);
    return (yk_attention_backward_args){.doc_start = f.doc_start,
                                        .batch = f.batch,
                                        .seq_len = f.seq_len,
                                        .heads = f.heads,
                                        .kv_heads = f.kv_heads,
                                        .head_size = f.head_size,
                                        .scale = f.scale,
                                        .dtype = t};
}

oracle_attention attention_oracle(attention_shape s, const op_buffer *documents)
{
    return (oracle_attention){.batch = s.batch,
                              .seq_len = s.seq_len,
                              .heads = s.heads,
                              .kv_heads = s.kv_heads,
                              .head_size = s.head_size,
                              .scale = (double)attention_scale(s),
                              .doc_start = documents ? op_ints(documents) : NULL};
}

void attention_case(op_case *c, yk_dtype t, attention_shape s, int64_t mean_length)
{
    int64_t n = attention_rows(s) * attention_width(s), n_lse = attention_rows(s) * s.heads;
    int64_t n_qkv = attention_rows(s) * attention_qkv_width(s);
    op_case_begin(c, t, "attention B=%d T=%d H=%d G=%d D=%d documents=%d", (int)s.batch,
                  (int)s.seq_len, (int)s.heads, (int)s.kv_heads, (int)s.head_size,
                  (int)mean_length);
    op_buffer *qkv = op_input(c, t, n_qkv, 1);
    op_buffer *documents = attention_documents(c, s, mean_length);
    op_buffer *y = op_output(c, t, n), *lse = op_output(c, YK_F32, n_lse);
    yk_attention_forward_args f = attention_forward_args(s, t, documents);
    f.y = y->data;
    f.lse = lse->data;
    f.qkv = qkv->data;
    OP_RUN(c, yk_attention_forward, &f);
    oracle_attention o = attention_oracle(s, documents);
    oracle_out want = op_out(c, n), want_lse = op_out(c, n_lse);
    if (!c->bits_only) {
        oracle_attention_forward(&c->arith, want, want_lse, qkv->value, &o);
        op_expect(c, lse, "lse", want_lse);
        op_expect(c, y, "y", want);
    }

    /* What a forward pass stores; with bits alone at stake, its own output where it lies. */
    op_buffer *y_in = c->bits_only ? y : op_given(c, OP_INPUT, t, n, y->got);
    op_buffer *lse_in = c->bits_only ? lse : op_given(c, OP_INPUT, YK_F32, n_lse, lse->got);
    op_buffer *dy = op_input(c, t, n, 1), *dqkv = op_output(c, t, n_qkv);
    yk_attention_backward_args g = attention_backward_args(s, t, documents);
    g.dqkv = dqkv->data;
    g.dy = dy->data;
    g.y = y_in->data;
    g.lse = lse_in->data;
    g.qkv = qkv->data;
    OP_RUN(c, yk_attention_backward, &g);
    if (c->bits_only) return;
    oracle_out want_dqkv = op_out(c, n_qkv);
    oracle_attention_backward(&c->arith, want_dqkv, dy->value, y_in->value, lse_in->value,
                              qkv->value, &o);
    op_expect(c, dqkv, "dqkv", want_dqkv);
}
