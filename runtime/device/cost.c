/* runtime/device/cost.c - what each operation must do at the least: the floor of its time.
 *
 * Operations are those of matrix products and of attention (a multiplication and an addition count
 * two); everything else is bound by memory, and its arithmetic is not counted. Bytes take each
 * input read once and each output written once; a gradient that accumulates is read as well. Beside
 * the floor stands what cost_time.c needs to know of how kernels go about it.
 */
#include <math.h>

#include "runtime/base/arith.h"
#include "runtime/device/ops.h"

/* n elements of type t, in bytes. */
static double bytes_of(yk_dtype t, int64_t n)
{
    return (double)yk_dtype_bytes(t) * (double)n;
}

/* A gradient of n elements: written, and read before where it accumulates. */
static double gradient_bytes(yk_dtype t, int64_t n, bool accumulate)
{
    return bytes_of(t, n) * (accumulate ? 2 : 1);
}

static yk_cost memory_cost(yk_dtype t, double bytes)
{
    return (yk_cost){.kind = YK_COST_MEMORY, .dtype = t, .flops = 0, .bytes = bytes};
}

/* A product whose result is (m,n), with sums over k. */
static yk_cost matmul_cost(yk_dtype t, int64_t m, int64_t n, int64_t k, double bytes, double tail)
{
    return (yk_cost){.kind = YK_COST_MATMUL,
                     .dtype = t,
                     .flops = 2.0 * (double)m * (double)n * (double)k,
                     .bytes = bytes,
                     .tail = tail,
                     .m = m,
                     .n = n,
                     .k = k};
}

yk_cost yk_embed_forward_cost(const yk_embed_forward_args *a)
{
    int64_t tables = a->wpe ? 2 : 1;
    return memory_cost(a->dtype, bytes_of(a->dtype, a->rows * a->cols * (1 + tables)) +
                                     bytes_of(YK_I32, a->rows * tables));
}

/* Every row of a table is written when it does not accumulate; where it does, only those named: as
 * many as `rows` draws name on the average. */
static double table_gradient_bytes(const yk_embed_backward_args *a, int64_t n_values,
                                   bool accumulate)
{
    double n = (double)n_values, named = accumulate ? -n * expm1(-(double)a->rows / n) : n;
    return named * gradient_bytes(a->grad_dtype, a->cols, accumulate) + bytes_of(YK_I32, a->rows);
}

yk_cost yk_embed_backward_cost(const yk_embed_backward_args *a)
{
    double bytes = bytes_of(a->dtype, a->rows * a->cols) +
                   table_gradient_bytes(a, a->vocab, a->accumulate_wte);
    if (a->dwpe) bytes += table_gradient_bytes(a, a->max_positions, a->accumulate_wpe);
    return memory_cost(a->dtype, bytes);
}

yk_cost yk_norm_forward_cost(const yk_norm_forward_args *a)
{
    int64_t vectors = a->kind == YK_NORM_LAYER ? 2 : 1;
    return memory_cost(a->dtype, bytes_of(a->dtype, (2 * a->rows + vectors) * a->cols) +
                                     bytes_of(YK_F32, vectors * a->rows));
}

yk_cost yk_norm_backward_cost(const yk_norm_backward_args *a)
{
    int64_t vectors = a->kind == YK_NORM_LAYER ? 2 : 1, matrices = a->add ? 4 : 3;
    int64_t sums = vectors + (a->dx_sum ? 1 : 0) + (a->add_sum ? 1 : 0);
    return memory_cost(a->dtype, bytes_of(a->dtype, (matrices * a->rows + 1) * a->cols) +
                                     bytes_of(YK_F32, vectors * a->rows) +
                                     gradient_bytes(a->grad_dtype, sums * a->cols, a->accumulate));
}

yk_cost yk_linear_forward_cost(const yk_linear_forward_args *a)
{
    int64_t outputs = 1 + (a->z ? 1 : 0) + (a->residual ? 1 : 0);
    int64_t elements = a->m * a->k + a->n * a->k + outputs * a->m * a->n + (a->bias ? a->n : 0);
    return matmul_cost(a->dtype, a->m, a->n, a->k, bytes_of(a->dtype, elements),
                       bytes_of(a->dtype, outputs * a->m * a->n));
}

yk_cost yk_linear_backward_input_cost(const yk_linear_backward_input_args *a)
{
    int64_t inputs = a->m * a->n + a->n * a->k;
    double tail = gradient_bytes(a->dtype, a->m * a->k, a->accumulate) +
                  (a->z ? bytes_of(a->dtype, a->m * a->k) : 0) +
                  (a->dbias ? gradient_bytes(a->grad_dtype, a->k, a->accumulate_dbias) : 0);
    yk_cost cost = matmul_cost(a->dtype, a->m, a->k, a->n, bytes_of(a->dtype, inputs) + tail, tail);
    cost.again = a->dbias ? bytes_of(a->dtype, a->m * a->k) : 0;
    return cost;
}

/* The column sums of dy are taken in a pass of their own. */
yk_cost yk_linear_backward_weight_cost(const yk_linear_backward_weight_args *a)
{
    int64_t gradients = a->n * a->k + (a->dbias ? a->n : 0);
    double tail = gradient_bytes(a->grad_dtype, gradients, a->accumulate);
    if (a->k == 0) return memory_cost(a->dtype, bytes_of(a->dtype, a->m * a->n) + tail);
    yk_cost cost = matmul_cost(a->dtype, a->n, a->k, a->m,
                               bytes_of(a->dtype, a->m * (a->n + a->k)) + tail, tail);
    cost.again = a->dbias ? bytes_of(a->dtype, a->m * a->n) : 0;
    return cost;
}

yk_cost yk_rope_cost(const yk_rope_args *a)
{
    int64_t turned = a->rows * (a->heads + a->kv_heads) * a->head_size;
    int64_t angles = yk_min(a->rows, a->max_positions) * a->head_size; /* cos and sin */
    double bytes =
        bytes_of(a->dtype, 2 * turned) + bytes_of(YK_F32, angles) + bytes_of(YK_I32, a->rows);
    if (a->qkv_sum) /* v is read, too */
        bytes += bytes_of(a->dtype, a->rows * a->kv_heads * a->head_size) +
                 gradient_bytes(a->grad_dtype, (a->heads + 2 * a->kv_heads) * a->head_size,
                                a->accumulate);
    return memory_cost(a->dtype, bytes);
}

/* Pairs of a position and one that it sees, when T positions follow `past` others. */
static double seen_pairs(int64_t seq_len, int64_t past)
{
    return (double)seq_len * ((double)past + ((double)seq_len + 1) / 2);
}

/* Positions that a kernel of fused attention looks at together, and so many keys. */
#define ATTENTION_TILE 128

/* Pairs of the tiles that hold a seen pair. */
static double tiled_pairs(int64_t seq_len)
{
    double tiles = (double)yk_div_up(seq_len, ATTENTION_TILE);
    double all = (double)seq_len * (double)seq_len;
    double pairs = tiles * (tiles + 1) / 2 * ATTENTION_TILE * ATTENTION_TILE;
    return pairs < all ? pairs : all;
}

/* `products` of D multiplications and additions for every pair and head. */
static yk_cost attention_cost(yk_dtype t, double products, double pairs, double head_widths,
                              double bytes)
{
    return (yk_cost){.kind = YK_COST_ATTENTION,
                     .dtype = t,
                     .flops = 2 * products * pairs * head_widths,
                     .bytes = bytes};
}

bool yk_attention_suits_cudnn(yk_dtype dtype, int64_t seq_len, int64_t head_size,
                              const int32_t *doc_start)
{
    return dtype != YK_F32 && seq_len >= 512 && head_size >= 64 && head_size <= 128 && !doc_start;
}

yk_cost yk_attention_forward_cost(const yk_attention_forward_args *a)
{
    int64_t rows = a->batch * a->seq_len, width = a->heads * a->head_size;
    int64_t qkv = (a->heads + 2 * a->kv_heads) * a->head_size;
    double bytes = bytes_of(a->dtype, rows * (qkv + width)) + bytes_of(YK_F32, rows * a->heads) +
                   (a->doc_start ? bytes_of(YK_I32, rows) : 0);
    yk_cost cost =
        attention_cost(a->dtype, 2, seen_pairs(a->seq_len, 0), (double)(a->batch * width), bytes);
    cost.pairs = (double)(a->batch * a->heads) * tiled_pairs(a->seq_len);
    cost.cudnn = yk_attention_suits_cudnn(a->dtype, a->seq_len, a->head_size, a->doc_start);
    return cost;
}

/* Five products: the scores again, dP, dV, dK, dQ. Of grouped queries cuDNN's takes dK and dV for each head,
 * and sums them over a group's heads afterwards. */
yk_cost yk_attention_backward_cost(const yk_attention_backward_args *a)
{
    int64_t rows = a->batch * a->seq_len, width = a->heads * a->head_size;
    int64_t qkv = (a->heads + 2 * a->kv_heads) * a->head_size;
    double bytes = bytes_of(a->dtype, rows * 2 * (qkv + width)) +
                   bytes_of(YK_F32, rows * a->heads) + (a->doc_start ? bytes_of(YK_I32, rows) : 0);
    yk_cost cost =
        attention_cost(a->dtype, 5, seen_pairs(a->seq_len, 0), (double)(a->batch * width), bytes);
    cost.pairs = (double)(a->batch * a->heads) * tiled_pairs(a->seq_len);
    cost.cudnn = yk_attention_suits_cudnn(a->dtype, a->seq_len, a->head_size, a->doc_start);
    cost.spread = a->heads == a->kv_heads ? 0 : bytes_of(a->dtype, 2 * rows * width);
    cost.backward = true;
    return cost;
}

yk_cost yk_attention_cached_cost(const yk_attention_cached_args *a)
{
    int64_t width = a->heads * a->head_size, kv_width = a->kv_heads * a->head_size;
    int64_t row = a->seq_len * (2 * width + 2 * kv_width)  /* qkv in, y out */
                  + 2 * (a->past + a->seq_len) * kv_width; /* the caches, read and written */
    double pairs = seen_pairs(a->seq_len, a->past);
    yk_cost cost = attention_cost(a->dtype, 2, pairs, (double)(a->batch * width),
                                  bytes_of(a->dtype, a->batch * row));
    cost.pairs = (double)(a->batch * a->heads) * pairs;
    return cost;
}

yk_cost yk_swiglu_forward_cost(const yk_swiglu_forward_args *a)
{
    return memory_cost(a->dtype, bytes_of(a->dtype, 3 * a->rows * a->cols));
}

yk_cost yk_swiglu_backward_cost(const yk_swiglu_backward_args *a)
{
    return memory_cost(a->dtype, bytes_of(a->dtype, 5 * a->rows * a->cols));
}

yk_cost yk_cross_entropy_cost(const yk_cross_entropy_args *a)
{
    int64_t logits = a->rows * (a->vocab + (a->backward ? a->stride : 0));
    return memory_cost(a->dtype, bytes_of(a->dtype, logits) + bytes_of(YK_F32, a->rows) +
                                     bytes_of(YK_I32, a->rows));
}

yk_cost yk_loss_sum_cost(const yk_loss_sum_args *a)
{
    return memory_cost(YK_F32, bytes_of(YK_F32, a->rows) + bytes_of(YK_I32, a->rows));
}

yk_cost yk_sum_squares_cost(const yk_sum_squares_args *a)
{
    double bytes = 0;
    for (int i = 0; i < a->n_runs; i++) bytes += bytes_of(a->dtype, a->runs[i].n);
    return memory_cost(a->dtype, bytes);
}

/* master, m and v are read and written; the gradient is read; the parameter is written. */
yk_cost yk_adamw_cost(const yk_adamw_args *a)
{
    double states = bytes_of(a->master_dtype, 2 * a->n) + bytes_of(a->moments_dtype, 4 * a->n);
    return memory_cost(a->dtype, states + bytes_of(a->grad_dtype, a->n) +
                                     (a->param ? bytes_of(a->dtype, a->n) : 0));
}

yk_cost yk_draw_normal_cost(const yk_draw_normal_args *a)
{
    return memory_cost(a->dtype, bytes_of(a->dtype, a->n));
}

yk_cost yk_cast_cost(const yk_cast_args *a)
{
    return memory_cost(a->dst_dtype, bytes_of(a->dst_dtype, a->n) + bytes_of(a->src_dtype, a->n));
}
