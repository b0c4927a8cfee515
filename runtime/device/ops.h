/* runtime/device/ops.h - the operations of a transformer, for every device.
 *
 * Each is one fused operation, not a piece of a tensor algebra. Arguments are a struct with the
 * shape beside each pointer; matrices are row-major and dense. All are enqueued on a stream
 * [stream], borrow their pointers until the stream passes them, allocate nothing, and give the same
 * bits for the same arguments whatever the number of threads. Storage is `dtype` unless a comment
 * says fp32; arithmetic is fp32 or better. Outputs may not overlap inputs except where it is said.
 *
 * Legend    B batch, T time, R rows = B*T, C width, H heads, G key-value heads (H is a multiple),
 *           D head size, F feed-forward width, V vocabulary, M N K sides of a product.
 * Status    YK_EINVAL  a size is negative, a required pointer is NULL, or sizes do not fit together
 *           YK_EUNSUPPORTED  the device does not offer it for these arguments
 *           YK_EDEVICE the device failed
 * A size of zero rows is legal and does nothing, except that gradients that are not accumulated
 * become zero.
 *
 * `accumulate` on a gradient: false overwrites, true adds to what is there.
 */
#ifndef YK_RUNTIME_DEVICE_OPS_H
#define YK_RUNTIME_DEVICE_OPS_H

#include "runtime/device/device.h"
#include "runtime/device/step_values.h"

/* ---- embedding ---------------------------------------------------------------------------- */

/* y[r] = wte[tokens[r]] + wpe[positions[r]] */
typedef struct yk_embed_forward_args {
    void *y;                  /* (R,C) */
    const void *wte;          /* (V,C) */
    const void *wpe;          /* (P,C) or NULL */
    const int32_t *tokens;    /* (R) each 0 <= t < V; checked when the data was read */
    const int32_t *positions; /* (R) each 0 <= p < P */
    int64_t rows, cols, vocab, max_positions;
    yk_dtype dtype;
} yk_embed_forward_args;
yk_status yk_embed_forward(yk_stream *stream, const yk_embed_forward_args *a);

/* dwte[v] (+)= sum of dy[r] over the r with tokens[r] == v, in order of r; dwpe likewise. */
typedef struct yk_embed_backward_args {
    void *dwte;               /* (V,C) grad_dtype */
    void *dwpe;               /* (P,C) grad_dtype, or NULL */
    const void *dy;           /* (R,C) */
    const int32_t *tokens;    /* (R) */
    const int32_t *positions; /* (R) */
    int64_t rows, cols, vocab, max_positions;
    bool accumulate_wte, accumulate_wpe;
    yk_dtype dtype, grad_dtype;
} yk_embed_backward_args;
yk_status yk_embed_backward(yk_stream *stream, const yk_embed_backward_args *a);

/* ---- norm --------------------------------------------------------------------------------- */

typedef enum yk_norm_kind {
    YK_NORM_LAYER, /* (x - mean) * rstd * weight + bias; Ba et al. 2016, eq. 4 */
    YK_NORM_RMS,   /* x * rstd * weight; Zhang and Sennrich 2019, eq. 4 */
} yk_norm_kind;

typedef struct yk_norm_forward_args {
    void *y;            /* (R,C) */
    float *mean;        /* (R) fp32; NULL for RMS */
    float *rstd;        /* (R) fp32: 1 / sqrt(variance or mean square + eps) */
    const void *x;      /* (R,C) */
    const void *weight; /* (C) */
    const void *bias;   /* (C); NULL for RMS */
    int64_t rows, cols;
    float eps;
    yk_norm_kind kind;
    yk_dtype dtype;
} yk_norm_forward_args;
yk_status yk_norm_forward(yk_stream *stream, const yk_norm_forward_args *a);

/* dx = add + the norm's gradient. dx may be add, or dy. Sums over rows are the gradients of biases of
 * products that made what dx and add are gradients of. */
typedef struct yk_norm_backward_args {
    void *dx;           /* (R,C) */
    void *dweight;      /* (C) grad_dtype */
    void *dbias;        /* (C) grad_dtype; NULL for RMS */
    void *dx_sum;       /* (C) grad_dtype: the sum of dx's rows, or NULL */
    void *add_sum;      /* (C) grad_dtype: of add's, or NULL */
    const void *dy;     /* (R,C) */
    const void *add;    /* (R,C) gradient that reaches x past the norm (the residual), or NULL */
    const void *x;      /* (R,C) */
    const void *weight; /* (C) */
    const float *mean;  /* (R) fp32; NULL for RMS */
    const float *rstd;  /* (R) fp32 */
    int64_t rows, cols;
    bool accumulate; /* dweight, dbias and sums */
    yk_norm_kind kind;
    yk_dtype dtype, grad_dtype;
} yk_norm_backward_args;
yk_status yk_norm_backward(yk_stream *stream, const yk_norm_backward_args *a);

/* ---- linear ------------------------------------------------------------------------------- */

/* z = x w^T + bias;  y = gelu ? GELU(z) : z + residual.
 * GELU is the tanh form: Hendrycks and Gimpel 2016, section 2. Without it, rounded once, at the
 * end; with it, z may be rounded to dtype first. y has the same bits whether z is kept or not. */
typedef struct yk_linear_forward_args {
    void *y;              /* (M,N); may be residual */
    void *z;              /* (M,N) kept for the backward pass, or NULL; only with gelu */
    const void *x;        /* (M,K) */
    const void *w;        /* (N,K) */
    const void *bias;     /* (N) or NULL */
    const void *residual; /* (M,N) or NULL; not together with gelu */
    int64_t m, n, k;
    bool gelu;
    yk_dtype dtype;
} yk_linear_forward_args;
yk_status yk_linear_forward(yk_stream *stream, const yk_linear_forward_args *a);

/* dx (+)= dy w, times GELU'(z) when z is given;  dbias (+)= column sums of dx: the gradient of what was
 * added to z. */
typedef struct yk_linear_backward_input_args {
    void *dx;       /* (M,K) */
    void *dbias;    /* (K) grad_dtype, or NULL; only with z */
    const void *dy; /* (M,N) */
    const void *w;  /* (N,K) */
    const void *z;  /* (M,K) what GELU was applied to to make this product's input, or NULL */
    int64_t m, n, k;
    bool accumulate;       /* dx; not together with z */
    bool accumulate_dbias; /* dbias */
    yk_dtype dtype, grad_dtype;
} yk_linear_backward_input_args;
yk_status yk_linear_backward_input(yk_stream *stream, const yk_linear_backward_input_args *a);

/* dw (+)= dy^T x;  dbias (+)= column sums of dy. With K = 0 there is no dw: dbias alone is made. */
typedef struct yk_linear_backward_weight_args {
    void *dw;       /* (N,K) grad_dtype */
    void *dbias;    /* (N) grad_dtype, or NULL */
    const void *x;  /* (M,K) */
    const void *dy; /* (M,N) */
    int64_t m, n, k;
    bool accumulate;
    yk_dtype dtype, grad_dtype;
} yk_linear_backward_weight_args;
yk_status yk_linear_backward_weight(yk_stream *stream, const yk_linear_backward_weight_args *a);

/* ---- rotary positions --------------------------------------------------------------------- */

/* Rotate the heads of q and k in place by the angle of their position: element i < D/2 pairs with
 * i + D/2. Su et al. 2021, eq. 34. `inverse` rotates back: the gradient. qkv_sum is then that of the
 * bias of the product that made q, k and v. */
typedef struct yk_rope_args {
    void *qkv;                /* (R,(H+2G)*D): q heads, k heads, v heads */
    void *qkv_sum;            /* ((H+2G)*D) grad_dtype: (+)= the sum of rotated rows; or NULL */
    const float *cos, *sin;   /* (P,D/2) fp32 */
    const int32_t *positions; /* (R) each 0 <= p < P */
    int64_t rows, heads, kv_heads, head_size, max_positions;
    bool inverse;
    bool accumulate; /* qkv_sum */
    yk_dtype dtype, grad_dtype;
} yk_rope_args;
yk_status yk_rope(yk_stream *stream, const yk_rope_args *a);

/* ---- attention ---------------------------------------------------------------------------- */

/* Causal attention: position i sees doc_start[i] <= j <= i. Head h uses key-value head h / (H/G).
 * y = softmax(scale q k^T) v; the scores are never whole in memory (Dao 2023). */
typedef struct yk_attention_forward_args {
    void *y;                  /* (B,T,H*D) */
    float *lse;               /* (B,H,T) fp32: log of the sum of exp(scale q k^T) */
    const void *qkv;          /* (B,T,(H+2G)*D): q heads, k heads, v heads */
    const int32_t *doc_start; /* (B,T) first position of the document that t lies in, or NULL: 0 */
    int64_t batch, seq_len, heads, kv_heads, head_size;
    float scale;
    yk_dtype dtype;
} yk_attention_forward_args;
yk_status yk_attention_forward(yk_stream *stream, const yk_attention_forward_args *a);

typedef struct yk_attention_backward_args {
    void *dqkv;               /* (B,T,(H+2G)*D) */
    const void *dy;           /* (B,T,H*D) */
    const void *y;            /* (B,T,H*D) */
    const float *lse;         /* (B,H,T) fp32 */
    const void *qkv;          /* (B,T,(H+2G)*D) */
    const int32_t *doc_start; /* (B,T) or NULL */
    int64_t batch, seq_len, heads, kv_heads, head_size;
    float scale;
    yk_dtype dtype;
} yk_attention_backward_args;
yk_status yk_attention_backward(yk_stream *stream, const yk_attention_backward_args *a);

/* Append the new keys and values to the caches, then let the T new positions past .. past+T-1 see
 * everything up to themselves. For generation; there is no backward. */
typedef struct yk_attention_cached_args {
    void *y;       /* (B,T,H*D) */
    void *k_cache; /* (B,S,G*D) rows 0 .. past-1 hold earlier keys; past .. past+T-1 are written */
    void *v_cache; /* (B,S,G*D) */
    const void *qkv; /* (B,T,(H+2G)*D) of the new positions, rotated already */
    int64_t batch, seq_len, past, capacity; /* T, past, S; past + T <= S */
    int64_t heads, kv_heads, head_size;
    float scale;
    yk_dtype dtype;
} yk_attention_cached_args;
yk_status yk_attention_cached(yk_stream *stream, const yk_attention_cached_args *a);

/* ---- activations -------------------------------------------------------------------------- */

/* y = silu(gate) * up. Shazeer 2020, eq. 6. */
typedef struct yk_swiglu_forward_args {
    void *y;             /* (R,F) */
    const void *gate_up; /* (R,2F): gate columns, then up columns */
    int64_t rows, cols;  /* cols is F */
    yk_dtype dtype;
} yk_swiglu_forward_args;
yk_status yk_swiglu_forward(yk_stream *stream, const yk_swiglu_forward_args *a);

/* dgate_up may be gate_up. */
typedef struct yk_swiglu_backward_args {
    void *dgate_up;      /* (R,2F) */
    const void *dy;      /* (R,F) */
    const void *gate_up; /* (R,2F) */
    int64_t rows, cols;
    yk_dtype dtype;
} yk_swiglu_backward_args;
yk_status yk_swiglu_backward(yk_stream *stream, const yk_swiglu_backward_args *a);

/* ---- loss --------------------------------------------------------------------------------- */

/* losses[r] = logsumexp(logits[r]) - logits[r][targets[r]], over the first `vocab` columns; 0 where
 * the target is masked. With `backward`, logits[r] becomes (softmax - onehot) * scale *
 * values->loss_scale, 0 for a masked row and in columns from vocab on. */
typedef struct yk_cross_entropy_args {
    float *losses;                /* (R) fp32 */
    void *logits;                 /* (R,stride), in place */
    const int32_t *targets;       /* (R); -1: masked, else 0 <= t < vocab */
    const yk_step_values *values; /* device memory; NULL when not backward */
    int64_t rows, vocab, stride;  /* stride >= vocab: columns in memory */
    float scale;
    bool backward;
    yk_dtype dtype;
} yk_cross_entropy_args;
yk_status yk_cross_entropy(yk_stream *stream, const yk_cross_entropy_args *a);

/* Add the losses and the number of unmasked targets to values->loss_sum and values->n_tokens, in
 * double and in an order that depends on `rows` alone. */
typedef struct yk_loss_sum_args {
    yk_step_values *values; /* device memory */
    const float *losses;    /* (R) fp32 */
    const int32_t *targets; /* (R) */
    int64_t rows;
} yk_loss_sum_args;
yk_status yk_loss_sum(yk_stream *stream, const yk_loss_sum_args *a);

/* ---- the optimiser's step ----------------------------------------------------------------- */

/* Begin a step: zero the sums, set the learning rate. */
typedef struct yk_step_begin_args {
    yk_step_values *values; /* device memory */
    float lr;
} yk_step_begin_args;
yk_status yk_step_begin(yk_stream *stream, const yk_step_begin_args *a);

/* The most runs of one yk_sum_squares() and of one yk_adamw(). */
#define YK_STEP_RUNS 64

/* Neighbouring elements that are squared. */
typedef struct yk_squares_run {
    const void *x; /* (n) */
    int64_t n;
} yk_squares_run;

/* Add squares to values->sum_squares, in double: of each run in turn, the sum of each piece of `piece`
 * elements in turn, whose own order depends on its length alone. So calls may be cut between pieces and
 * between runs, and give the same bits. Set values->non_finite when an element is infinite or NaN. */
typedef struct yk_sum_squares_args {
    yk_step_values *values;     /* device memory */
    const yk_squares_run *runs; /* (n_runs) host memory, borrowed for the call */
    int n_runs;
    int64_t piece; /* a multiple of 16 */
    yk_dtype dtype;
} yk_sum_squares_args;
yk_status yk_sum_squares(yk_stream *stream, const yk_sum_squares_args *a);

/* Decide the step from the sums. Gradients were made with the constant 1 / expected_tokens, so the
 * mean over unmasked tokens is expected_tokens / n_tokens of them (with no unmasked token the
 * gradients are zero and stay so).
 *
 * non-finite   skip = 1, steps_skipped and skips_in_a_row grow; with dynamic_scale the loss scale
 *              is multiplied by 1/2, not under scale_floor, and good_steps becomes 0
 * otherwise    skip = 0; adam_steps grows; correction1 and 2 are of the new count; grad_scale =
 *              expected_tokens / n_tokens / loss_scale * min(1, clip / grad_norm); with
 *              dynamic_scale, after growth_interval good steps the loss scale doubles
 *
 * grad_norm and grad_scale are of the loss scale that the backward pass used. */
typedef struct yk_step_finish_args {
    yk_step_values *values; /* device memory */
    double expected_tokens; /* batch * seq_len */
    float clip;             /* greatest norm; 0: no clipping */
    float beta1, beta2;
    bool dynamic_scale;
    float scale_floor, scale_ceiling;
    int32_t growth_interval;
} yk_step_finish_args;
yk_status yk_step_finish(yk_stream *stream, const yk_step_finish_args *a);

/* Elements of one tensor among the n of an update: the first run begins at 0, each ends where the next
 * begins, the last at n. */
typedef struct yk_adamw_run {
    int64_t begin; /* a multiple of 16, as is `first` */
    int64_t first; /* index in its tensor of that element. For random bits alone */
    uint64_t key;  /* of seed and tensor. For random bits alone */
    bool decay;
} yk_adamw_run;

/* One AdamW update of n elements; nothing when values->skip. Loshchilov and Hutter 2019, algorithm
 * 2, with decoupled decay lr * weight_decay:
 *     g = grad * grad_scale;  m += (1 - beta1)(g - m);  v += (1 - beta2)(g*g - v)
 *     p -= lr * (m / correction1 / (sqrt(v / correction2) + eps) + weight_decay * p)
 * computed in fp32. What is kept in bf16 is rounded stochastically, by runtime/device/random.h, from
 * the bits that belong to (key, values->adam_steps, index in the tensor): up or down with the chance
 * that makes the mean right. `param` is the master weight as kept, rounded to nearest. */
typedef struct yk_adamw_args {
    void *param;                  /* (n) dtype; NULL when master itself is what the model reads */
    void *master;                 /* (n) master_dtype */
    void *m, *v;                  /* (n) moments_dtype */
    const void *grad;             /* (n) grad_dtype */
    const yk_step_values *values; /* device memory */
    const yk_adamw_run *runs;     /* (n_runs) host memory, borrowed for the call */
    int n_runs;                   /* 0: all is one, whose key is 0 and which decays */
    int64_t n;
    float beta1, beta2, eps, weight_decay;
    yk_dtype dtype, grad_dtype;
    yk_dtype master_dtype, moments_dtype; /* fp32 or bf16 */
} yk_adamw_args;
yk_status yk_adamw(yk_stream *stream, const yk_adamw_args *a);

/* ---- first weights ------------------------------------------------------------------------ */

/* Numbers that follow from (key, index) alone: mean + deviation * a standard normal one. */
typedef struct yk_normal {
    uint64_t key;
    float mean, deviation;
} yk_normal;

/* dst[i] = number first + i of `normal`, made in fp32 and rounded to dtype: the same bits on every
 * device. runtime/device/normal.h has the formula. */
typedef struct yk_draw_normal_args {
    void *dst; /* (n) */
    int64_t n, first;
    yk_normal normal;
    yk_dtype dtype;
} yk_draw_normal_args;
yk_status yk_draw_normal(yk_stream *stream, const yk_draw_normal_args *a);

/* ---- moving ------------------------------------------------------------------------------- */

/* dst = src, rounded to the type of dst. */
typedef struct yk_cast_args {
    void *dst;       /* (n) dst_dtype */
    const void *src; /* (n) src_dtype */
    int64_t n;
    yk_dtype dst_dtype, src_dtype;
} yk_cast_args;
yk_status yk_cast(yk_stream *stream, const yk_cast_args *a);

typedef enum yk_copy_kind {
    YK_COPY_DEVICE,         /* within the device */
    YK_COPY_HOST_TO_DEVICE, /* from host memory, pinned where it is to overlap */
    YK_COPY_DEVICE_TO_HOST,
} yk_copy_kind;

yk_status yk_copy(yk_stream *stream, void *dst, const void *src, int64_t bytes, yk_copy_kind kind);

/* Set `bytes` bytes to zero. */
yk_status yk_zero(yk_stream *stream, void *dst, int64_t bytes);

/* ---- cost --------------------------------------------------------------------------------- */

/* What an operation must do at the least: the floor of its time. */
typedef enum yk_cost_class {
    YK_COST_MATMUL,    /* rate: matmul_flops */
    YK_COST_ATTENTION, /* rate: attention_flops; causal attention counts the half that is seen */
    YK_COST_MEMORY,    /* rate: memory_rate */
    YK_COST_HOST_LINK, /* rate: host_link_rate */
} yk_cost_class;

typedef struct yk_cost {
    yk_cost_class kind;
    yk_dtype dtype;
    double flops; /* floating-point operations of its products */
    double bytes; /* each input read once, each output written once */

    /* What kernels as they are take beside the least, for yk_cost_seconds(). */
    double tail;     /* MATMUL: of `bytes`, those of the result and of what is added to it */
    double again;    /* bytes that are read or written once more */
    int64_t m, n, k; /* MATMUL: sides of the result, depth of its sums; 0: not looked at */
    double pairs;    /* ATTENTION: pairs of positions in the tiles that are computed, all heads' */
    double spread;   /* ATTENTION: bytes that cuDNN's kernels write and read beside */
    bool backward;   /* ATTENTION */
    bool cudnn;      /* ATTENTION: cuDNN's kernels would be taken where they may be */
} yk_cost;

/* Seconds that an operation takes on the device that `spec` describes, its launch left out. */
double yk_cost_seconds(const yk_cost *cost, const yk_device_spec *spec);

/* Is cuDNN, where it may serve attention, asked for such a call? `auto` and the costs go by it: the sizes that it
 * was measured at, or nearly. A short sequence is not worth the second that building a plan takes. */
bool yk_attention_suits_cudnn(yk_dtype dtype, int64_t seq_len, int64_t head_size,
                              const int32_t *doc_start);

yk_cost yk_embed_forward_cost(const yk_embed_forward_args *a);
yk_cost yk_embed_backward_cost(const yk_embed_backward_args *a);
yk_cost yk_norm_forward_cost(const yk_norm_forward_args *a);
yk_cost yk_norm_backward_cost(const yk_norm_backward_args *a);
yk_cost yk_linear_forward_cost(const yk_linear_forward_args *a);
yk_cost yk_linear_backward_input_cost(const yk_linear_backward_input_args *a);
yk_cost yk_linear_backward_weight_cost(const yk_linear_backward_weight_args *a);
yk_cost yk_rope_cost(const yk_rope_args *a);
yk_cost yk_attention_forward_cost(const yk_attention_forward_args *a);
yk_cost yk_attention_backward_cost(const yk_attention_backward_args *a);
yk_cost yk_attention_cached_cost(const yk_attention_cached_args *a);
yk_cost yk_swiglu_forward_cost(const yk_swiglu_forward_args *a);
yk_cost yk_swiglu_backward_cost(const yk_swiglu_backward_args *a);
yk_cost yk_cross_entropy_cost(const yk_cross_entropy_args *a);
yk_cost yk_loss_sum_cost(const yk_loss_sum_args *a);
yk_cost yk_sum_squares_cost(const yk_sum_squares_args *a);
yk_cost yk_adamw_cost(const yk_adamw_args *a);
yk_cost yk_draw_normal_cost(const yk_draw_normal_args *a);
yk_cost yk_cast_cost(const yk_cast_args *a);

#endif
