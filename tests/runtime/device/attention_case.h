/* tests/runtime/device/attention_case.h - attention of one shape: the arguments of its calls, and all
 * of it held against the oracle.
 *
 * Legend: B batch, T seq_len, H heads, G kv_heads, D head_size.
 */
#ifndef YK_TESTS_RUNTIME_DEVICE_ATTENTION_CASE_H
#define YK_TESTS_RUNTIME_DEVICE_ATTENTION_CASE_H

#include "tests/runtime/device/op_case.h"

typedef struct attention_shape {
    int64_t batch, seq_len, heads, kv_heads, head_size;
} attention_shape;

int64_t attention_rows(attention_shape s);      /* B*T */
int64_t attention_width(attention_shape s);     /* H*D */
int64_t attention_qkv_width(attention_shape s); /* (H+2G)*D */
float attention_scale(attention_shape s);

/* (B,T) where the document of each position begins, of random lengths about `mean_length`; NULL with
 * 0. */
op_buffer *attention_documents(op_case *c, attention_shape s, int64_t mean_length);

/* The arguments that say how large: the caller adds tensors. documents  NULL: none */
yk_attention_forward_args attention_forward_args(attention_shape s, yk_dtype t,
                                                 const op_buffer *documents);
yk_attention_backward_args attention_backward_args(attention_shape s, yk_dtype t,
                                                   const op_buffer *documents);
oracle_attention attention_oracle(attention_shape s, const op_buffer *documents);

/* Forward and backward in numbers of type t; documents of `mean_length`, 0: none. */
void attention_case(op_case *c, yk_dtype t, attention_shape s, int64_t mean_length);

#endif
