/* runtime/device/cuda/attention_cudnn_graph.h - attention as cuDNN's graphs of operations.
 *
 * cuDNN 9 before 9.21 has no single operation with a causal mask, but it recognises the operations
 * that attention consists of and runs them as one kernel. The order and the types here are those
 * that it recognises.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_ATTENTION_CUDNN_GRAPH_H
#define YK_RUNTIME_DEVICE_CUDA_ATTENTION_CUDNN_GRAPH_H

#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cudnn_graph.h"

/* Which graph, and its sizes; of ops.h's tensors. */
typedef struct yk_cudnn_attention_shape {
    int64_t batch, seq_len, heads, kv_heads, head_size;
    yk_dtype dtype; /* 16 bits */
    bool backward;
    bool deterministic; /* backward: dq is not accumulated in memory */
} yk_cudnn_attention_shape;

/* The tensors in memory and the scalars, as ids of cudnn_graph.h. */
typedef enum yk_cudnn_attention_id {
    YK_CUDNN_Q = 1, /* parts of qkv */
    YK_CUDNN_K,
    YK_CUDNN_V,
    YK_CUDNN_Y,
    YK_CUDNN_LSE,
    YK_CUDNN_SCALE,
    YK_CUDNN_MINUS_INFINITY,
    YK_CUDNN_DY, /* backward alone, from here on */
    YK_CUDNN_DQ,
    YK_CUDNN_DK,
    YK_CUDNN_DV,
    YK_CUDNN_ROW_SUM, /* (B,H,T) fp32, scratch: the sums of dy y */
    YK_CUDNN_ONE,
    YK_CUDNN_DQ_SUM, /* (B,H,T,D) fp32, scratch; where it need not be deterministic */
} yk_cudnn_attention_id;

/* Describe the graph of `shape` in `g`, which is fresh. */
void yk_cudnn_attention_describe(yk_cudnn_graph *g, const yk_cudnn_attention_shape *shape);

#endif
