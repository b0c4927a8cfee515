/* models/pass.h - the state of a pass and its operations; included by models/ alone. */
#ifndef YK_MODELS_PASS_H
#define YK_MODELS_PASS_H

#include "models/table.h"

/* A block's activations. */
typedef struct yk_block_act {
    int feed_forward, output; /* marks of the activation arena where these parts of it begin */
    const void *x;            /* (R,C) the block's input, which is what the unit before put out */
    void *n1;                 /* (R,C) */
    float *mean1, *rstd1;     /* (R) */
    void *qkv;                /* (R,(H+2G)D) rotated */
    void *att;                /* (R,HD) */
    float *lse;               /* (B,H,T) */
    void *h;                  /* (R,C) the residual after attention */
    void *n2;                 /* (R,C) */
    float *mean2, *rstd2;     /* (R) */
    void *up;                 /* (R,F) before GELU, or (R,2F) gate and up */
    void *act;                /* (R,F) */
    void *out;                /* (R,C) the residual after the feed-forward */
} yk_block_act;

/* Blocks' inputs on the device, where their home is host memory: one is read, one is written, and
 * one is on its way out or in. */
#define YK_PASS_RING 3

typedef struct yk_pass_inputs {
    yk_host_side host;        /* host.pinned NULL: inputs stay on the device */
    bool on;                  /* in this pass */
    int bottom;               /* mark of the pinned arena when the pass began */
    void *ring[YK_PASS_RING]; /* (R,C) each; number l modulo YK_PASS_RING is the input of block l */
    void **home;              /* (L) pinned, (R,C) each */
    yk_event *made, *gone[YK_PASS_RING], *read[YK_PASS_RING], *here[YK_PASS_RING];
} yk_pass_inputs;

struct yk_pass {
    const yk_model *model;
    yk_pass_options o;
    yk_pass_mode mode;
    yk_batch batch;
    float loss_weight;
    yk_kv_cache *cache;
    void *logits;

    int bottom;           /* mark of the activation arena when the pass began */
    int *marks;           /* (units) mark when each unit's forward began */
    yk_block_act *blocks; /* (L) */
    yk_pass_inputs inputs;
    void *x;       /* (R,C) the residual so far */
    void *grad;    /* (R,C) its gradient; the head's normalised input before that */
    float *losses; /* (R) */
};

static inline int64_t yk_pass_rows(const yk_pass *s)
{
    return s->batch.batch * s->batch.seq_len;
}

yk_status yk_pass_inputs_create(yk_pass *s);
void yk_pass_inputs_destroy(yk_pass *s);

/* Take and leave the memory of a pass. `bytes` is of one block's input. */
yk_status yk_pass_inputs_begin(yk_pass *s, int64_t bytes);
void yk_pass_inputs_end(yk_pass *s);

yk_status yk_layer_norm_forward(yk_pass *s, const yk_param_view *p, yk_norm_ids id, void *y,
                                float *mean, float *rstd, const void *x, int64_t rows);

/* The products whose outputs' gradients are dx and add of a norm's backward pass, which makes those
 * of their biases. */
typedef struct yk_norm_products {
    yk_linear_ids dx, add;
} yk_norm_products;

/* dx = add + the gradient through the norm.
 *
 * products  NULL: the biases are left alone
 */
yk_status yk_layer_norm_backward(yk_pass *s, const yk_param_view *p, const yk_grad_view *g,
                                 yk_norm_ids id, void *dx, const void *add, const void *dy,
                                 const void *x, const float *mean, const float *rstd,
                                 const yk_norm_products *products);

/* The sides of a product are those of its matrix: y (rows,N), x (rows,K), matrix (N,K). */
yk_status yk_layer_linear_forward(yk_pass *s, const yk_param_view *p, yk_linear_ids id, void *y,
                                  const void *x, const void *residual, int64_t rows);

yk_status yk_layer_linear_gelu_forward(yk_pass *s, const yk_param_view *p, yk_linear_ids id,
                                       void *y, void *z, const void *x);

/* dx = dy w */
yk_status yk_layer_linear_backward_input(yk_pass *s, const yk_param_view *p, yk_linear_ids id,
                                         void *dx, const void *dy, int64_t rows);

/* dx = dy w GELU'(z), and the gradient of the bias of `before`, the product that made z. */
yk_status yk_layer_linear_gelu_backward_input(yk_pass *s, const yk_param_view *p,
                                              const yk_grad_view *g, yk_linear_ids id,
                                              yk_linear_ids before, void *dx, const void *dy,
                                              const void *z, bool accumulate);

yk_status yk_layer_linear_backward_weight(yk_pass *s, const yk_grad_view *g, yk_linear_ids id,
                                          const void *dy, const void *x, int64_t rows,
                                          bool accumulate);

/* Rotate q and k in place. */
yk_status yk_layer_rotate(yk_pass *s, void *qkv);

/* Rotate dq and dk back, and the gradient of the bias of `id`, the product that made q, k and v. */
yk_status yk_layer_rotate_backward(yk_pass *s, const yk_grad_view *g, yk_linear_ids id, void *dqkv,
                                   bool accumulate);

yk_status yk_layer_attend(yk_pass *s, yk_block_act *a);

yk_status yk_layer_attend_cached(yk_pass *s, yk_block_act *a, int layer);

yk_status yk_layer_attend_backward(yk_pass *s, const yk_block_act *a, void *dqkv, const void *datt);

/* act = silu(gate) * up */
yk_status yk_layer_swiglu_forward(yk_pass *s, void *act, const void *gate_up);

yk_status yk_layer_swiglu_backward(yk_pass *s, void *gate_up, const void *dact);

#endif
