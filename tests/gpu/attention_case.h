/* tests/gpu/attention_case.h - attention of one shape on a GPU, held against the oracle. */
#ifndef YK_TESTS_GPU_ATTENTION_CASE_H
#define YK_TESTS_GPU_ATTENTION_CASE_H

#include "tests/runtime/device/op_case.h"

typedef struct attention_shape {
    int64_t batch, seq_len, heads, kv_heads, head_size;
} attention_shape;

/* Forward and backward of one shape in numbers of type t; documents of `length` positions on
 * average, 0: none. */
void attention_case(op_case *c, yk_dtype t, attention_shape s, int64_t length);

#endif
