/* runtime/device/cuda/workspaces.c - the workspace that each operation takes on a GPU.
 *
 * Pure functions of the arguments and of the fixed budgets in sizes.h, compiled in every build, so
 * that any machine can plan for a GPU. A library's own wish never enters: it chooses within the
 * budget.
 */
#include "runtime/device/backend.h"
#include "runtime/device/cuda/sizes.h"

static bool is_16_bit(yk_dtype t)
{
    return t == YK_BF16 || t == YK_F16;
}

static int64_t cuda_embed_backward(const yk_embed_backward_args *a)
{
    return yk_cuda_embed_plan(a->rows, a->cols).bytes * (a->dwpe ? 2 : 1);
}

/* Partial sums of dweight and dbias, (YK_CUDA_NORM_BLOCKS,2,C) fp32, with those of dx and add 4 of them;
 * or the latter in a pass of its own. */
static int64_t cuda_norm_backward(const yk_norm_backward_args *a)
{
    bool more = a->dx_sum || a->add_sum;
    int64_t sums = yk_min(a->rows, YK_CUDA_NORM_BLOCKS) * (more ? 4 : 2) * a->cols * 4;
    int64_t apart = more ? yk_cuda_column_sum_bytes(a->rows, a->cols) : 0;
    return yk_round_up(yk_max(sums, apart), YK_CUDA_ALIGNMENT);
}

static int64_t cuda_linear_forward(const yk_linear_forward_args *a)
{
    (void)a;
    return YK_CUDA_PRODUCT_BYTES;
}

/* The product's budget, and column sums of dx. */
static int64_t cuda_linear_backward_input(const yk_linear_backward_input_args *a)
{
    return YK_CUDA_PRODUCT_BYTES + (a->dbias ? yk_cuda_column_sum_bytes(a->m, a->k) : 0);
}

/* The product's budget, and column sums of dy. */
static int64_t cuda_linear_backward_weight(const yk_linear_backward_weight_args *a)
{
    return YK_CUDA_PRODUCT_BYTES + (a->dbias ? yk_cuda_column_sum_bytes(a->m, a->n) : 0);
}

/* Partial sums of the rows. */
static int64_t cuda_rope(const yk_rope_args *a)
{
    int64_t parts = yk_min(a->rows, YK_CUDA_ROPE_BLOCKS);
    int64_t bytes = parts * (a->heads + 2 * a->kv_heads) * a->head_size * 4;
    return a->qkv_sum ? yk_round_up(bytes, YK_CUDA_ALIGNMENT) : 0;
}

static int64_t cuda_attention_backward(const yk_attention_backward_args *a,
                                       const yk_device_spec *spec)
{
    (void)spec;
    if (is_16_bit(a->dtype) && a->head_size % 8 == 0 && a->head_size <= 256)
        return yk_cuda_flash_plan(a->batch, a->seq_len, a->heads, a->kv_heads, a->head_size).bytes;
    return yk_round_up(a->batch * a->heads * a->seq_len * 4, YK_CUDA_ALIGNMENT); /* row sums */
}

/* With cuDNN: room for either, since a call that it does not serve falls to our own kernels. */
static int64_t cudnn_attention_forward(const yk_attention_forward_args *a)
{
    if (!is_16_bit(a->dtype) || a->doc_start) return 0;
    return yk_cuda_cudnn_forward_bytes(a->batch, a->seq_len, a->heads);
}

static int64_t cudnn_attention_backward(const yk_attention_backward_args *a,
                                        const yk_device_spec *spec)
{
    int64_t own = cuda_attention_backward(a, spec);
    if (!is_16_bit(a->dtype) || a->doc_start) return own;
    int64_t exact = yk_cuda_cudnn_plan(a->batch, a->seq_len, a->heads, a->kv_heads, a->head_size,
                                       true, spec->attention_bytes)
                        .bytes;
    int64_t loose = yk_cuda_cudnn_plan(a->batch, a->seq_len, a->heads, a->kv_heads, a->head_size,
                                       false, spec->attention_bytes)
                        .bytes;
    return yk_max(own, yk_max(exact, loose));
}

static int64_t cuda_sum_squares(const yk_sum_squares_args *a)
{
    int64_t chunks = 0;
    for (int i = 0; i < a->n_runs; i++) chunks += yk_cuda_squares_chunks(a->runs[i].n, a->piece);
    return yk_round_up(chunks * 8, YK_CUDA_ALIGNMENT);
}

const yk_workspaces yk_cuda_workspaces = {
    .embed_backward = cuda_embed_backward,
    .norm_backward = cuda_norm_backward,
    .linear_forward = cuda_linear_forward,
    .linear_backward_input = cuda_linear_backward_input,
    .linear_backward_weight = cuda_linear_backward_weight,
    .rope = cuda_rope,
    .attention_backward = cuda_attention_backward,
    .sum_squares = cuda_sum_squares,
};

const yk_workspaces yk_cuda_cudnn_workspaces = {
    .embed_backward = cuda_embed_backward,
    .norm_backward = cuda_norm_backward,
    .linear_forward = cuda_linear_forward,
    .linear_backward_input = cuda_linear_backward_input,
    .linear_backward_weight = cuda_linear_backward_weight,
    .rope = cuda_rope,
    .attention_forward = cudnn_attention_forward,
    .attention_backward = cudnn_attention_backward,
    .sum_squares = cuda_sum_squares,
};
