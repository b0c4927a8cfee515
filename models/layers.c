/* models/layers.c - the operations of a decoder with the sizes of a pass filled in.
 *
 * Each function here is one operation of ops.h; what it adds is where the sizes come from: the
 * shape of the model, the rows of the batch, the sides of a matrix.
 */
#include <math.h>

#include "models/pass.h"

static const void *weight(const yk_param_view *p, int id)
{
    return id < 0 ? NULL : p[id].data;
}

yk_status yk_layer_norm_forward(yk_pass *s, const yk_param_view *p, yk_norm_ids id, void *y,
                                float *mean, float *rstd, const void *x, int64_t rows)
{
    return yk_norm_forward(s->o.stream, &(yk_norm_forward_args){
                                            .y = y,
                                            .mean = mean,
                                            .rstd = rstd,
                                            .x = x,
                                            .weight = weight(p, id.weight),
                                            .bias = weight(p, id.bias),
                                            .rows = rows,
                                            .cols = s->model->shape.width,
                                            .eps = (float)s->model->shape.norm_eps,
                                            .kind = id.bias < 0 ? YK_NORM_RMS : YK_NORM_LAYER,
                                            .dtype = s->o.dtype,
                                        });
}

static void *bias_gradient(const yk_grad_view *g, yk_linear_ids id)
{
    return id.bias < 0 ? NULL : g[id.bias].data;
}

/* dx = add + the gradient through the norm. */
yk_status yk_layer_norm_backward(yk_pass *s, const yk_param_view *p, const yk_grad_view *g,
                                 yk_norm_ids id, void *dx, const void *add, const void *dy,
                                 const void *x, const float *mean, const float *rstd,
                                 const yk_norm_products *products)
{
    return yk_norm_backward(s->o.stream,
                            &(yk_norm_backward_args){
                                .dx = dx,
                                .dweight = g[id.weight].data,
                                .dbias = id.bias < 0 ? NULL : g[id.bias].data,
                                .dx_sum = products ? bias_gradient(g, products->dx) : NULL,
                                .add_sum = products ? bias_gradient(g, products->add) : NULL,
                                .dy = dy,
                                .add = add,
                                .x = x,
                                .weight = weight(p, id.weight),
                                .mean = mean,
                                .rstd = rstd,
                                .rows = yk_pass_rows(s),
                                .cols = s->model->shape.width,
                                .accumulate = g[id.weight].accumulate,
                                .kind = id.bias < 0 ? YK_NORM_RMS : YK_NORM_LAYER,
                                .dtype = s->o.dtype,
                                .grad_dtype = g[id.weight].dtype,
                            });
}

/* The sides of a product are those of its matrix: y (rows,N), x (rows,K), matrix (N,K). */
yk_status yk_layer_linear_forward(yk_pass *s, const yk_param_view *p, yk_linear_ids id, void *y,
                                  const void *x, const void *residual, int64_t rows)
{
    const yk_param *w = &s->model->params[id.weight];
    return yk_linear_forward(s->o.stream, &(yk_linear_forward_args){
                                              .y = y,
                                              .x = x,
                                              .w = weight(p, id.weight),
                                              .bias = weight(p, id.bias),
                                              .residual = residual,
                                              .m = rows,
                                              .n = w->shape[0],
                                              .k = w->shape[1],
                                              .dtype = s->o.dtype,
                                          });
}

yk_status yk_layer_linear_gelu_forward(yk_pass *s, const yk_param_view *p, yk_linear_ids id,
                                       void *y, void *z, const void *x)
{
    const yk_param *w = &s->model->params[id.weight];
    return yk_linear_forward(s->o.stream, &(yk_linear_forward_args){
                                              .y = y,
                                              .z = z,
                                              .x = x,
                                              .w = weight(p, id.weight),
                                              .bias = weight(p, id.bias),
                                              .m = yk_pass_rows(s),
                                              .n = w->shape[0],
                                              .k = w->shape[1],
                                              .gelu = true,
                                              .dtype = s->o.dtype,
                                          });
}

/* dx = dy w */
yk_status yk_layer_linear_backward_input(yk_pass *s, const yk_param_view *p, yk_linear_ids id,
                                         void *dx, const void *dy, int64_t rows)
{
    const yk_param *w = &s->model->params[id.weight];
    return yk_linear_backward_input(s->o.stream, &(yk_linear_backward_input_args){
                                                     .dx = dx,
                                                     .dy = dy,
                                                     .w = weight(p, id.weight),
                                                     .m = rows,
                                                     .n = w->shape[0],
                                                     .k = w->shape[1],
                                                     .dtype = s->o.dtype,
                                                 });
}

/* dx = dy w GELU'(z), and the gradient of the bias of `before`, the product that made z. */
yk_status yk_layer_linear_gelu_backward_input(yk_pass *s, const yk_param_view *p,
                                              const yk_grad_view *g, yk_linear_ids id,
                                              yk_linear_ids before, void *dx, const void *dy,
                                              const void *z, bool accumulate)
{
    const yk_param *w = &s->model->params[id.weight];
    return yk_linear_backward_input(s->o.stream, &(yk_linear_backward_input_args){
                                                     .dx = dx,
                                                     .dbias = g[before.bias].data,
                                                     .dy = dy,
                                                     .w = weight(p, id.weight),
                                                     .z = z,
                                                     .m = yk_pass_rows(s),
                                                     .n = w->shape[0],
                                                     .k = w->shape[1],
                                                     .accumulate_dbias = accumulate,
                                                     .dtype = s->o.dtype,
                                                     .grad_dtype = g[before.bias].dtype,
                                                 });
}

yk_status yk_layer_linear_backward_weight(yk_pass *s, const yk_grad_view *g, yk_linear_ids id,
                                          const void *dy, const void *x, int64_t rows,
                                          bool accumulate)
{
    const yk_param *w = &s->model->params[id.weight];
    return yk_linear_backward_weight(s->o.stream, &(yk_linear_backward_weight_args){
                                                      .dw = g[id.weight].data,
                                                      .dbias = bias_gradient(g, id),
                                                      .x = x,
                                                      .dy = dy,
                                                      .m = rows,
                                                      .n = w->shape[0],
                                                      .k = w->shape[1],
                                                      .accumulate = accumulate,
                                                      .dtype = s->o.dtype,
                                                      .grad_dtype = g[id.weight].dtype,
                                                  });
}

static yk_rope_args rotation(const yk_pass *s, void *qkv)
{
    const yk_model_shape *m = &s->model->shape;
    return (yk_rope_args){.qkv = qkv,
                          .cos = s->o.rope_cos,
                          .sin = s->o.rope_sin,
                          .positions = s->batch.positions,
                          .rows = yk_pass_rows(s),
                          .heads = m->heads,
                          .kv_heads = m->kv_heads,
                          .head_size = m->head_size,
                          .max_positions = s->o.n_positions,
                          .dtype = s->o.dtype};
}

/* Rotate q and k in place. */
yk_status yk_layer_rotate(yk_pass *s, void *qkv)
{
    yk_rope_args a = rotation(s, qkv);
    return yk_rope(s->o.stream, &a);
}

/* Rotate dq and dk back, and the gradient of the bias of `id`, the product that made q, k and v. */
yk_status yk_layer_rotate_backward(yk_pass *s, const yk_grad_view *g, yk_linear_ids id, void *dqkv,
                                   bool accumulate)
{
    yk_rope_args a = rotation(s, dqkv);
    a.inverse = true;
    a.qkv_sum = bias_gradient(g, id);
    a.accumulate = accumulate;
    a.grad_dtype = g[id.weight].dtype;
    return yk_rope(s->o.stream, &a);
}

static float attention_scale(const yk_pass *s)
{
    return (float)(1.0 / sqrt((double)s->model->shape.head_size));
}

yk_status yk_layer_attend(yk_pass *s, yk_block_act *a)
{
    const yk_model_shape *m = &s->model->shape;
    return yk_attention_forward(s->o.stream, &(yk_attention_forward_args){
                                                 .y = a->att,
                                                 .lse = a->lse,
                                                 .qkv = a->qkv,
                                                 .doc_start = s->batch.doc_start,
                                                 .batch = s->batch.batch,
                                                 .seq_len = s->batch.seq_len,
                                                 .heads = m->heads,
                                                 .kv_heads = m->kv_heads,
                                                 .head_size = m->head_size,
                                                 .scale = attention_scale(s),
                                                 .dtype = s->o.dtype,
                                             });
}

yk_status yk_layer_attend_cached(yk_pass *s, yk_block_act *a, int layer)
{
    const yk_model_shape *m = &s->model->shape;
    return yk_attention_cached(s->o.stream, &(yk_attention_cached_args){
                                                .y = a->att,
                                                .k_cache = s->cache->k[layer],
                                                .v_cache = s->cache->v[layer],
                                                .qkv = a->qkv,
                                                .batch = s->batch.batch,
                                                .seq_len = s->batch.seq_len,
                                                .past = s->cache->past,
                                                .capacity = s->cache->capacity,
                                                .heads = m->heads,
                                                .kv_heads = m->kv_heads,
                                                .head_size = m->head_size,
                                                .scale = attention_scale(s),
                                                .dtype = s->o.dtype,
                                            });
}

yk_status yk_layer_attend_backward(yk_pass *s, const yk_block_act *a, void *dqkv, const void *datt)
{
    const yk_model_shape *m = &s->model->shape;
    return yk_attention_backward(s->o.stream, &(yk_attention_backward_args){
                                                  .dqkv = dqkv,
                                                  .dy = datt,
                                                  .y = a->att,
                                                  .lse = a->lse,
                                                  .qkv = a->qkv,
                                                  .doc_start = s->batch.doc_start,
                                                  .batch = s->batch.batch,
                                                  .seq_len = s->batch.seq_len,
                                                  .heads = m->heads,
                                                  .kv_heads = m->kv_heads,
                                                  .head_size = m->head_size,
                                                  .scale = attention_scale(s),
                                                  .dtype = s->o.dtype,
                                              });
}

/* act = silu(gate) * up */
yk_status yk_layer_swiglu_forward(yk_pass *s, void *act, const void *gate_up)
{
    return yk_swiglu_forward(s->o.stream, &(yk_swiglu_forward_args){
                                              .y = act,
                                              .gate_up = gate_up,
                                              .rows = yk_pass_rows(s),
                                              .cols = s->model->shape.ffn,
                                              .dtype = s->o.dtype,
                                          });
}

yk_status yk_layer_swiglu_backward(yk_pass *s, void *gate_up, const void *dact)
{
    return yk_swiglu_backward(s->o.stream, &(yk_swiglu_backward_args){
                                               .dgate_up = gate_up,
                                               .dy = dact,
                                               .gate_up = gate_up,
                                               .rows = yk_pass_rows(s),
                                               .cols = s->model->shape.ffn,
                                               .dtype = s->o.dtype,
                                           });
}
