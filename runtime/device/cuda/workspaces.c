/* runtime/device/cuda/workspaces.c - the workspace that each operation takes on a GPU.
 *
 * Pure functions of the arguments and of the fixed budgets below, compiled in every build, so that
 * any machine can plan for a GPU. A library's own wish never enters: it chooses within the budget.
 */
#include "runtime/base/arith.h"
#include "runtime/device/backend.h"

/* What a matrix product's algorithm may use: what NVIDIA advises for cuBLASLt on sm_90; other
 * architectures ask for less. */
#define PRODUCT_BYTES (INT64_C(32) << 20)

/* Blocks of a column or whole sum, and so partial results: enough to fill the largest GPU. */
#define SUM_BLOCKS  1024
#define NORM_BLOCKS 256

/* Each part of a workspace begins at a multiple of this. */
#define ALIGNMENT 256

/* The sum over equal tokens goes in order of rows: rows sorted by token, and by position, each with
 * a table of where a value's rows begin. */
static int64_t sorted_rows_bytes(int64_t rows, int64_t n_values)
{
    return yk_round_up(rows * 4, ALIGNMENT) + yk_round_up((n_values + 1) * 4, ALIGNMENT);
}

static int64_t cuda_embed_backward(const yk_embed_backward_args *a)
{
    int64_t bytes = sorted_rows_bytes(a->rows, a->vocab);
    return a->dwpe ? bytes + sorted_rows_bytes(a->rows, a->max_positions) : bytes;
}

/* Partial sums over rows of dweight and dbias, (NORM_BLOCKS,C) fp32 each. */
static int64_t cuda_norm_backward(const yk_norm_backward_args *a)
{
    int64_t sum = yk_round_up(NORM_BLOCKS * a->cols * 4, ALIGNMENT);
    return a->kind == YK_NORM_LAYER ? 2 * sum : sum;
}

static int64_t cuda_linear_forward(const yk_linear_forward_args *a)
{
    (void)a;
    return PRODUCT_BYTES;
}

static int64_t cuda_linear_backward_input(const yk_linear_backward_input_args *a)
{
    (void)a;
    return PRODUCT_BYTES;
}

/* The product's budget, and partial column sums of dy, (SUM_BLOCKS/8,N) fp32. */
static int64_t cuda_linear_backward_weight(const yk_linear_backward_weight_args *a)
{
    return PRODUCT_BYTES + (a->dbias ? yk_round_up(SUM_BLOCKS / 8 * a->n * 4, ALIGNMENT) : 0);
}

/* The row sums of dy y, (B,H,T) fp32, and the score gradients of one batch entry, (H,T,T) of 2
 * bytes: the backward pass whose bits repeat goes through them. */
static int64_t cuda_attention_backward(const yk_attention_backward_args *a)
{
    int64_t row_sums = yk_round_up(a->batch * a->heads * a->seq_len * 4, ALIGNMENT);
    return row_sums + yk_round_up(a->heads * a->seq_len * a->seq_len * 2, ALIGNMENT);
}

static int64_t cuda_loss_sum(const yk_loss_sum_args *a)
{
    (void)a;
    return SUM_BLOCKS * (int64_t)(sizeof(double) + sizeof(int64_t));
}

static int64_t cuda_sum_squares(const yk_sum_squares_args *a)
{
    (void)a;
    return SUM_BLOCKS * (int64_t)(sizeof(double) + sizeof(int64_t));
}

const yk_workspaces yk_cuda_workspaces = {
    .embed_backward = cuda_embed_backward,
    .norm_backward = cuda_norm_backward,
    .linear_forward = cuda_linear_forward,
    .linear_backward_input = cuda_linear_backward_input,
    .linear_backward_weight = cuda_linear_backward_weight,
    .attention_backward = cuda_attention_backward,
    .loss_sum = cuda_loss_sum,
    .sum_squares = cuda_sum_squares,
};
