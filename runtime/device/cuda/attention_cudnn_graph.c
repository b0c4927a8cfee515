/* runtime/device/cuda/attention_cudnn_graph.c - attention and its gradient, operation by operation.
 *
 *   forward   s = scale q k^T, -inf where the key lies ahead;  lse = max + log(sum exp(s - max))
 *             y = (exp(s - max) / sum) v
 *   backward  p = exp(s - lse);  r = row sums of dy y;  ds = p (dy v^T - r) scale
 *             dv = p^T dy;  dk = ds^T q;  dq = ds k
 *
 * (Dao 2023, algorithms 1 and 2.) With grouped queries dv and dk are made for each query head, in
 * the tensors' type, and summed over the heads of a group.
 *
 * Legend    B batch, T time, H heads, G key-value heads, D head size.
 */
#include "runtime/device/cuda/attention_cudnn_graph.h"

typedef cudnnBackendDescriptor_t tensor;

/* What the functions here share. */
typedef struct sketch {
    yk_cudnn_graph *g;
    const yk_cudnn_attention_shape *shape;
    cudnnDataType_t narrow;     /* of the tensors of 16 bits */
    yk_cudnn_view scores, rows; /* (B,H,T,T) and (B,H,T,1), dense */
} sketch;

/* ---- views -------------------------------------------------------------------------------- */

static yk_cudnn_view dense(int64_t b, int64_t h, int64_t m, int64_t n)
{
    return (yk_cudnn_view){.size = {b, h, m, n}, .stride = {h * m * n, m * n, n, 1}};
}

/* (B,heads,T,D) of a matrix (B*T, width) whose columns are heads. */
static yk_cudnn_view of_heads(const sketch *s, int64_t heads, int64_t width)
{
    const yk_cudnn_attention_shape *n = s->shape;
    return (yk_cudnn_view){.size = {n->batch, heads, n->seq_len, n->head_size},
                           .stride = {n->seq_len * width, n->head_size, width, 1}};
}

static yk_cudnn_view transposed(yk_cudnn_view v)
{
    return (yk_cudnn_view){.size = {v.size[0], v.size[1], v.size[3], v.size[2]},
                           .stride = {v.stride[0], v.stride[1], v.stride[3], v.stride[2]}};
}

static int64_t qkv_width(const sketch *s)
{
    return (s->shape->heads + 2 * s->shape->kv_heads) * s->shape->head_size;
}

static yk_cudnn_view view_q(const sketch *s)
{
    return of_heads(s, s->shape->heads, qkv_width(s));
}

static yk_cudnn_view view_kv(const sketch *s)
{
    return of_heads(s, s->shape->kv_heads, qkv_width(s));
}

static yk_cudnn_view view_y(const sketch *s)
{
    return of_heads(s, s->shape->heads, s->shape->heads * s->shape->head_size);
}

/* ---- pieces ------------------------------------------------------------------------------- */

static tensor wide(const sketch *s, yk_cudnn_view view)
{
    return yk_cudnn_inner(s->g, CUDNN_DATA_FLOAT, view);
}

static tensor two(const sketch *s, cudnnPointwiseMode_t mode, tensor x, tensor b,
                  yk_cudnn_view view)
{
    tensor y = wide(s, view);
    yk_cudnn_pointwise(s->g, mode, x, b, NULL, y);
    return y;
}

static tensor one(const sketch *s, cudnnPointwiseMode_t mode, tensor x, yk_cudnn_view view)
{
    return two(s, mode, x, NULL, view);
}

static tensor sum_rows(const sketch *s, cudnnReduceTensorOp_t what, tensor x)
{
    tensor y = wide(s, s->rows);
    yk_cudnn_reduce(s->g, what, x, y);
    return y;
}

static tensor product(const sketch *s, tensor a, tensor b)
{
    tensor c = wide(s, s->scores);
    yk_cudnn_product(s->g, a, b, c);
    return c;
}

/* x where the key is not ahead of the query, else -inf. */
static tensor causal(const sketch *s, tensor x)
{
    tensor row = yk_cudnn_inner(s->g, CUDNN_DATA_INT32, s->scores);
    tensor col = yk_cudnn_inner(s->g, CUDNN_DATA_INT32, s->scores);
    tensor seen = yk_cudnn_inner(s->g, CUDNN_DATA_BOOLEAN, s->scores);
    tensor y = wide(s, s->scores);
    yk_cudnn_index(s->g, x, row, 2);
    yk_cudnn_index(s->g, x, col, 3);
    yk_cudnn_at_least(s->g, row, col, seen);
    yk_cudnn_pointwise(s->g, CUDNN_POINTWISE_BINARY_SELECT, x,
                       yk_cudnn_scalar(s->g, YK_CUDNN_MINUS_INFINITY), seen, y);
    return y;
}

static tensor narrow_in(const sketch *s, int64_t id, yk_cudnn_view view)
{
    return yk_cudnn_tensor(s->g, id, s->narrow, view);
}

static tensor lse_of(const sketch *s)
{
    return yk_cudnn_tensor(s->g, YK_CUDNN_LSE, CUDNN_DATA_FLOAT, s->rows);
}

/* ---- forward ------------------------------------------------------------------------------ */

static void describe_forward(const sketch *s)
{
    tensor q = narrow_in(s, YK_CUDNN_Q, view_q(s));
    tensor k = narrow_in(s, YK_CUDNN_K, transposed(view_kv(s)));
    tensor v = narrow_in(s, YK_CUDNN_V, view_kv(s));
    tensor y = narrow_in(s, YK_CUDNN_Y, view_y(s)), lse = lse_of(s);
    tensor scale = yk_cudnn_scalar(s->g, YK_CUDNN_SCALE);

    tensor scores = two(s, CUDNN_POINTWISE_MUL, product(s, q, k), scale, s->scores);
    scores = causal(s, scores);
    tensor max = sum_rows(s, CUDNN_REDUCE_TENSOR_MAX, scores);
    tensor below = two(s, CUDNN_POINTWISE_SUB, scores, max, s->scores);
    tensor e = one(s, CUDNN_POINTWISE_EXP, below, s->scores);
    tensor sum = sum_rows(s, CUDNN_REDUCE_TENSOR_ADD, e);
    tensor log_sum = one(s, CUDNN_POINTWISE_LOG, sum, s->rows);
    yk_cudnn_pointwise(s->g, CUDNN_POINTWISE_ADD, max, log_sum, NULL, lse);
    tensor p = yk_cudnn_inner(s->g, s->narrow, s->scores);
    yk_cudnn_pointwise(s->g, CUDNN_POINTWISE_DIV, e, sum, NULL, p);
    yk_cudnn_product(s->g, p, v, y);
}

/* ---- backward ----------------------------------------------------------------------------- */

/* out (B,G,T,D) = x^T b summed over the heads of a group; x (B,H,T,T), b (B,H,T,D). */
static void gradient_of_kv(const sketch *s, tensor x, tensor b, tensor out)
{
    const yk_cudnn_attention_shape *n = s->shape;
    tensor x_t = yk_cudnn_inner(s->g, s->narrow, transposed(s->scores));
    yk_cudnn_reshape(s->g, x, x_t);
    if (n->heads == n->kv_heads) {
        yk_cudnn_product(s->g, x_t, b, out);
        return;
    }
    tensor each =
        yk_cudnn_inner(s->g, s->narrow, dense(n->batch, n->heads, n->seq_len, n->head_size));
    yk_cudnn_product(s->g, x_t, b, each);
    yk_cudnn_reduce(s->g, CUDNN_REDUCE_TENSOR_ADD, each, out);
}

static tensor row_sums(const sketch *s, tensor dy, tensor y)
{
    const yk_cudnn_attention_shape *n = s->shape;
    tensor out = yk_cudnn_tensor(s->g, YK_CUDNN_ROW_SUM, CUDNN_DATA_FLOAT, s->rows);
    tensor terms =
        two(s, CUDNN_POINTWISE_MUL, dy, y, dense(n->batch, n->heads, n->seq_len, n->head_size));
    tensor sum = sum_rows(s, CUDNN_REDUCE_TENSOR_ADD, terms);
    yk_cudnn_pointwise(s->g, CUDNN_POINTWISE_MUL, sum, yk_cudnn_scalar(s->g, YK_CUDNN_ONE), NULL,
                       out);
    return out;
}

/* dq = ds k, or by way of sums in memory. */
static void gradient_of_q(const sketch *s, tensor ds, tensor k_t)
{
    const yk_cudnn_attention_shape *n = s->shape;
    tensor dq = narrow_in(s, YK_CUDNN_DQ, view_q(s)), k = wide(s, view_kv(s));
    yk_cudnn_reshape(s->g, k_t, k);
    if (n->deterministic) {
        yk_cudnn_product(s->g, ds, k, dq);
        return;
    }
    tensor sum = yk_cudnn_tensor(s->g, YK_CUDNN_DQ_SUM, CUDNN_DATA_FLOAT,
                                 dense(n->batch, n->heads, n->seq_len, n->head_size));
    yk_cudnn_product(s->g, ds, k, sum);
    yk_cudnn_pointwise(s->g, CUDNN_POINTWISE_IDENTITY, sum, NULL, NULL, dq);
}

static void describe_backward(const sketch *s)
{
    tensor q = narrow_in(s, YK_CUDNN_Q, view_q(s));
    tensor k_t = narrow_in(s, YK_CUDNN_K, transposed(view_kv(s)));
    tensor v_t = narrow_in(s, YK_CUDNN_V, transposed(view_kv(s)));
    tensor y = narrow_in(s, YK_CUDNN_Y, view_y(s)), dy = narrow_in(s, YK_CUDNN_DY, view_y(s));
    tensor dk = narrow_in(s, YK_CUDNN_DK, view_kv(s)), dv = narrow_in(s, YK_CUDNN_DV, view_kv(s));
    tensor lse = lse_of(s), scale = yk_cudnn_scalar(s->g, YK_CUDNN_SCALE);

    tensor sums = row_sums(s, dy, y);
    tensor scores = two(s, CUDNN_POINTWISE_MUL, product(s, q, k_t), scale, s->scores);
    scores = causal(s, two(s, CUDNN_POINTWISE_SUB, scores, lse, s->scores));
    tensor p = one(s, CUDNN_POINTWISE_EXP, scores, s->scores);
    gradient_of_kv(s, p, dy, dv);
    tensor dp = two(s, CUDNN_POINTWISE_SUB, product(s, dy, v_t), sums, s->scores);
    tensor ds = two(s, CUDNN_POINTWISE_MUL, dp, p, s->scores);
    ds = two(s, CUDNN_POINTWISE_MUL, ds, scale, s->scores);
    gradient_of_kv(s, ds, q, dk);
    gradient_of_q(s, ds, k_t);
}

void yk_cudnn_attention_describe(yk_cudnn_graph *g, const yk_cudnn_attention_shape *shape)
{
    const sketch s = {
        .g = g,
        .shape = shape,
        .narrow = shape->dtype == YK_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
        .scores = dense(shape->batch, shape->heads, shape->seq_len, shape->seq_len),
        .rows = dense(shape->batch, shape->heads, shape->seq_len, 1),
    };
    if (shape->backward)
        describe_backward(&s);
    else
        describe_forward(&s);
}
