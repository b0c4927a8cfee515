/* models/decoder.c - the units of a decoder, forward and backward.
 *
 * One transformer block serves GPT-2, Llama and Qwen2: norm, attention, residual; norm,
 * feed-forward, residual. The families differ in the kind of norm, in positions (learned or
 * rotary), in the activation (GELU or SwiGLU) and in biases, which are NULL where a family has
 * none.
 *
 * Memory.   A block's tensors are listed once, in `tensors`, each with its half of the block and the
 *           strongest recomputation that still keeps it. Forward pushes what is kept, then what is
 *           not, and pops the latter; backward pushes those again and makes them again with the same
 *           operations, so that the bits do not depend on the policy. Backward goes through the
 *           halves from the top: the feed-forward's tensors are popped before attention's gradients
 *           are pushed, and what attention needs again is made as late as that. Without a backward
 *           pass nothing is kept: the residual is updated in place.
 * Gradient. One buffer (R,C), `grad`, holds the gradient of the residual all the way down; each
 *           norm adds its part to it in place.
 *
 * Legend    B batch, T time, R = B*T rows, C width, H heads, G key-value heads, D head size, F ffn,
 *           V rows of the vocabulary.
 */
#include <stddef.h>
#include <stdlib.h>

#include "models/pass.h"
#include "runtime/base/arith.h"

/* ---- what a block keeps ------------------------------------------------------------------- */

/* Elements a row of a tensor. */
typedef enum row_size { ROW_ONE, ROW_HEADS, ROW_C, ROW_QKV, ROW_HD, ROW_F, ROW_UP } row_size;

/* Of a block, in the order in which they lie: what backward reads last comes first. */
typedef enum block_part { ATTENTION, FEED_FORWARD, OUTPUT } block_part;

typedef struct tensor {
    const char *name;
    block_part part; /* whose backward pass reads it last; OUTPUT: that of the block above */
    size_t offset;   /* of its pointer in yk_block_act */
    row_size row;
    yk_recompute kept_under; /* the strongest policy under which it is kept */
} tensor;

/* GELU rides on its product, so `act` of GPT-2 can only be made again by the whole product, and is
 * dropped with it. SwiGLU is an operation of its own and as cheap as a norm. */
#define ACT_KEPT_GELU   YK_RECOMPUTE_CHEAP
#define ACT_KEPT_SWIGLU YK_RECOMPUTE_NONE

static const tensor tensors[] = {
    {"norm1 mean", ATTENTION, offsetof(yk_block_act, mean1), ROW_ONE, YK_RECOMPUTE_QKV},
    {"norm1 rstd", ATTENTION, offsetof(yk_block_act, rstd1), ROW_ONE, YK_RECOMPUTE_QKV},
    {"qkv", ATTENTION, offsetof(yk_block_act, qkv), ROW_QKV, YK_RECOMPUTE_FFN},
    {"attention", ATTENTION, offsetof(yk_block_act, att), ROW_HD, YK_RECOMPUTE_QKV},
    {"attention lse", ATTENTION, offsetof(yk_block_act, lse), ROW_HEADS, YK_RECOMPUTE_QKV},
    {"norm1", ATTENTION, offsetof(yk_block_act, n1), ROW_C, YK_RECOMPUTE_NONE},
    {"attention residual", FEED_FORWARD, offsetof(yk_block_act, h), ROW_C, YK_RECOMPUTE_QKV},
    {"norm2 mean", FEED_FORWARD, offsetof(yk_block_act, mean2), ROW_ONE, YK_RECOMPUTE_QKV},
    {"norm2 rstd", FEED_FORWARD, offsetof(yk_block_act, rstd2), ROW_ONE, YK_RECOMPUTE_QKV},
    {"ffn up", FEED_FORWARD, offsetof(yk_block_act, up), ROW_UP, YK_RECOMPUTE_CHEAP},
    {"ffn act", FEED_FORWARD, offsetof(yk_block_act, act), ROW_F, ACT_KEPT_GELU},
    {"norm2", FEED_FORWARD, offsetof(yk_block_act, n2), ROW_C, YK_RECOMPUTE_NONE},
    {"block out", OUTPUT, offsetof(yk_block_act, out), ROW_C, YK_RECOMPUTE_BLOCK},
};
#define N_TENSORS (sizeof tensors / sizeof tensors[0])

static bool is_gpt2(const yk_pass *s)
{
    return s->model->shape.family == YK_FAMILY_GPT2;
}

static int64_t tensor_bytes(const yk_pass *s, row_size row)
{
    const yk_model_shape *m = &s->model->shape;
    int64_t rows = yk_pass_rows(s), element = yk_dtype_bytes(s->o.dtype);
    switch (row) {
    case ROW_ONE:
        return rows * 4;
    case ROW_HEADS:
        return rows * m->heads * 4;
    case ROW_C:
        return rows * m->width * element;
    case ROW_QKV:
        return rows * (m->heads + 2 * m->kv_heads) * m->head_size * element;
    case ROW_HD:
        return rows * m->heads * m->head_size * element;
    case ROW_F:
        return rows * m->ffn * element;
    case ROW_UP:
        return rows * m->ffn * (is_gpt2(s) ? 1 : 2) * element;
    }
    return 0;
}

/* The policy of a block. The stronger one comes first: what the last blocks make again lies on top
 * of everything that is kept, what the first ones make again takes the place of what is gone. */
static yk_recompute policy_of(const yk_pass *s, int layer)
{
    bool lighter = layer >= s->model->shape.layers - s->o.n_lighter;
    return lighter && s->o.recompute > YK_RECOMPUTE_NONE ? s->o.recompute - 1 : s->o.recompute;
}

static bool is_kept(const yk_pass *s, const tensor *t, int layer)
{
    yk_recompute kept_under = t->kept_under;
    if (t->offset == offsetof(yk_block_act, act) && !is_gpt2(s)) kept_under = ACT_KEPT_SWIGLU;
    return policy_of(s, layer) <= kept_under;
}

/* Push those of a part's tensors that are kept, or those that are not. */
static yk_status push_tensors(yk_pass *s, yk_block_act *a, int layer, block_part part, bool kept)
{
    for (size_t i = 0; i < N_TENSORS; i++) {
        const tensor *t = &tensors[i];
        void **pointer = (void **)((char *)a + t->offset);
        bool is_mean = t->offset == offsetof(yk_block_act, mean1) ||
                       t->offset == offsetof(yk_block_act, mean2);
        if (t->part != part || is_kept(s, t, layer) != kept || (is_mean && !is_gpt2(s))) continue;
        if (part == OUTPUT && s->inputs.on) {
            *pointer = s->inputs.ring[(layer + 1) % YK_PASS_RING];
            continue;
        }
        YK_TRY(yk_arena_push(s->o.activation, t->name, tensor_bytes(s, t->row), pointer));
    }
    return YK_OK;
}

/* ---- embedding ---------------------------------------------------------------------------- */

static yk_status embed_forward(yk_pass *s, const yk_param_view *p)
{
    const yk_model_shape *m = &s->model->shape;
    bool learned = s->model->embed.positions >= 0;
    if (s->inputs.on)
        s->x = s->inputs.ring[0];
    else
        YK_TRY(yk_arena_push(s->o.activation, "embedding", tensor_bytes(s, ROW_C), &s->x));
    return yk_embed_forward(s->o.stream,
                            &(yk_embed_forward_args){
                                .y = s->x,
                                .wte = p[s->model->embed.tokens].data,
                                .wpe = learned ? p[s->model->embed.positions].data : NULL,
                                .tokens = s->batch.tokens,
                                .positions = s->batch.positions,
                                .rows = yk_pass_rows(s),
                                .cols = m->width,
                                .vocab = m->vocab_rows,
                                .max_positions = m->max_seq_len,
                                .dtype = s->o.dtype,
                            });
}

static yk_status embed_backward(yk_pass *s, const yk_grad_view *g)
{
    const yk_model_shape *m = &s->model->shape;
    const yk_grad_view *wte = &g[s->model->embed.tokens];
    bool learned = s->model->embed.positions >= 0;
    const yk_grad_view *wpe = learned ? &g[s->model->embed.positions] : NULL;
    return yk_embed_backward(s->o.stream, &(yk_embed_backward_args){
                                              .dwte = wte->data,
                                              .dwpe = learned ? wpe->data : NULL,
                                              .dy = s->grad,
                                              .tokens = s->batch.tokens,
                                              .positions = s->batch.positions,
                                              .rows = yk_pass_rows(s),
                                              .cols = m->width,
                                              .vocab = m->vocab_rows,
                                              .max_positions = m->max_seq_len,
                                              .accumulate_wte = wte->accumulate,
                                              .accumulate_wpe = learned && wpe->accumulate,
                                              .dtype = s->o.dtype,
                                              .grad_dtype = wte->dtype,
                                          });
}

/* ---- block -------------------------------------------------------------------------------- */

/* x -> n1 */
static yk_status make_norm1(yk_pass *s, const yk_param_view *p, int layer, yk_block_act *a)
{
    return yk_layer_norm_forward(s, p, s->model->blocks[layer].norm1, a->n1, a->mean1, a->rstd1,
                                 a->x, yk_pass_rows(s));
}

/* n1 -> qkv */
static yk_status make_qkv(yk_pass *s, const yk_param_view *p, int layer, yk_block_act *a)
{
    YK_TRY(yk_layer_linear_forward(s, p, s->model->blocks[layer].qkv, a->qkv, a->n1, NULL,
                                   yk_pass_rows(s)));
    return is_gpt2(s) ? YK_OK : yk_layer_rotate(s, a->qkv);
}

/* qkv -> att -> h */
static yk_status make_attention(yk_pass *s, const yk_param_view *p, int layer, yk_block_act *a)
{
    YK_TRY(s->mode == YK_PASS_GENERATE ? yk_layer_attend_cached(s, a, layer)
                                       : yk_layer_attend(s, a));
    return yk_layer_linear_forward(s, p, s->model->blocks[layer].proj, a->h, a->att, a->x,
                                   yk_pass_rows(s));
}

/* h -> n2 */
static yk_status make_norm2(yk_pass *s, const yk_param_view *p, int layer, yk_block_act *a)
{
    return yk_layer_norm_forward(s, p, s->model->blocks[layer].norm2, a->n2, a->mean2, a->rstd2,
                                 a->h, yk_pass_rows(s));
}

/* n2 -> up -> act; SwiGLU can be made from `up` alone. */
static yk_status make_act(yk_pass *s, const yk_param_view *p, int layer, yk_block_act *a,
                          bool has_up)
{
    const yk_block_ids *id = &s->model->blocks[layer];
    if (is_gpt2(s))
        return has_up ? YK_OK : yk_layer_linear_gelu_forward(s, p, id->up, a->act, a->up, a->n2);
    if (!has_up) YK_TRY(yk_layer_linear_forward(s, p, id->up, a->up, a->n2, NULL, yk_pass_rows(s)));
    return yk_layer_swiglu_forward(s, a->act, a->up);
}

static yk_status block_forward(yk_pass *s, const yk_param_view *p, int layer)
{
    yk_block_act *a = &s->blocks[layer];
    bool train = s->mode == YK_PASS_TRAIN;
    *a = (yk_block_act){.x = s->x};
    int kept = yk_arena_mark(s->o.activation);
    YK_TRY(push_tensors(s, a, layer, ATTENTION, true));
    a->feed_forward = yk_arena_mark(s->o.activation);
    YK_TRY(push_tensors(s, a, layer, FEED_FORWARD, true));
    a->output = yk_arena_mark(s->o.activation);
    YK_TRY(push_tensors(s, a, layer, OUTPUT, true));
    if (train) kept = yk_arena_mark(s->o.activation);
    YK_TRY(push_tensors(s, a, layer, ATTENTION, false));
    YK_TRY(push_tensors(s, a, layer, FEED_FORWARD, false));
    if (!train) a->h = a->out = s->x; /* in place: nobody looks back */

    YK_TRY(make_norm1(s, p, layer, a));
    YK_TRY(make_qkv(s, p, layer, a));
    YK_TRY(make_attention(s, p, layer, a));
    YK_TRY(make_norm2(s, p, layer, a));
    YK_TRY(make_act(s, p, layer, a, false));
    YK_TRY(yk_layer_linear_forward(s, p, s->model->blocks[layer].down, a->out, a->act, a->h,
                                   yk_pass_rows(s)));

    yk_arena_pop(s->o.activation, kept);
    s->x = a->out;
    return YK_OK;
}

/* x -> n1, and qkv, att and h as far as the policy did not keep them */
static yk_status make_attention_again(yk_pass *s, const yk_param_view *p, int layer,
                                      yk_block_act *a)
{
    yk_recompute policy = policy_of(s, layer);
    if (policy <= YK_RECOMPUTE_NONE) return YK_OK;
    YK_TRY(make_norm1(s, p, layer, a));
    if (policy >= YK_RECOMPUTE_QKV) YK_TRY(make_qkv(s, p, layer, a));
    return policy >= YK_RECOMPUTE_BLOCK ? make_attention(s, p, layer, a) : YK_OK;
}

/* h -> n2, and up and act likewise */
static yk_status make_feed_forward_again(yk_pass *s, const yk_param_view *p, int layer,
                                         yk_block_act *a)
{
    yk_recompute policy = policy_of(s, layer);
    if (policy <= YK_RECOMPUTE_NONE) return YK_OK;
    YK_TRY(make_norm2(s, p, layer, a));
    return make_act(s, p, layer, a, policy < YK_RECOMPUTE_FFN);
}

/* The product without its bias, whose gradient is made elsewhere. */
static yk_linear_ids weight_of(yk_linear_ids id)
{
    id.bias = -1;
    return id;
}

/* grad is d out on entry and the gradient of h on return: out and h are what down and proj made, so
 * their biases' gradients are sums over its rows, which the norm between them reads and writes.
 * Buffers are reused once their last reader has run: act takes its own gradient, n2 that of the
 * norm's output. */
static yk_status ffn_backward(yk_pass *s, const yk_param_view *p, const yk_grad_view *g, int layer,
                              yk_block_act *a)
{
    const yk_block_ids *id = &s->model->blocks[layer];
    int64_t rows = yk_pass_rows(s);
    bool again = g[id->down.weight].accumulate;
    YK_TRY(
        yk_layer_linear_backward_weight(s, g, weight_of(id->down), s->grad, a->act, rows, again));
    void *dup = is_gpt2(s) ? a->act : a->up;
    yk_linear_ids up = id->up;
    if (is_gpt2(s)) {
        YK_TRY(yk_layer_linear_gelu_backward_input(s, p, g, id->down, id->up, a->act, s->grad,
                                                   a->up, again));
        up = weight_of(up);
    } else {
        YK_TRY(yk_layer_linear_backward_input(s, p, id->down, a->act, s->grad, rows));
        YK_TRY(yk_layer_swiglu_backward(s, a->up, a->act));
    }
    YK_TRY(yk_layer_linear_backward_weight(s, g, up, dup, a->n2, rows, again));
    YK_TRY(yk_layer_linear_backward_input(s, p, id->up, a->n2, dup, rows));
    return yk_layer_norm_backward(s, p, g, id->norm2, s->grad, s->grad, a->n2, a->h, a->mean2,
                                  a->rstd2, &(yk_norm_products){.dx = id->proj, .add = id->down});
}

/* grad is d h on entry and the gradient of the block's input on return; proj's bias has its own. */
static yk_status attention_backward(yk_pass *s, const yk_param_view *p, const yk_grad_view *g,
                                    int layer, yk_block_act *a)
{
    const yk_block_ids *id = &s->model->blocks[layer];
    int64_t rows = yk_pass_rows(s);
    bool again = g[id->qkv.weight].accumulate;
    void *datt, *dqkv; /* (R,HD), (R,(H+2G)D) */
    YK_TRY(yk_arena_push(s->o.activation, "d attention", tensor_bytes(s, ROW_HD), &datt));
    YK_TRY(yk_arena_push(s->o.activation, "d qkv", tensor_bytes(s, ROW_QKV), &dqkv));

    YK_TRY(
        yk_layer_linear_backward_weight(s, g, weight_of(id->proj), s->grad, a->att, rows, again));
    YK_TRY(yk_layer_linear_backward_input(s, p, id->proj, datt, s->grad, rows));
    YK_TRY(yk_layer_attend_backward(s, a, dqkv, datt));
    yk_linear_ids qkv = id->qkv;
    if (!is_gpt2(s)) {
        YK_TRY(yk_layer_rotate_backward(s, g, qkv, dqkv, again));
        qkv = weight_of(qkv);
    }
    YK_TRY(yk_layer_linear_backward_weight(s, g, qkv, dqkv, a->n1, rows, again));
    YK_TRY(yk_layer_linear_backward_input(s, p, id->qkv, a->n1, dqkv, rows));
    return yk_layer_norm_backward(s, p, g, id->norm1, s->grad, s->grad, a->n1, a->x, a->mean1,
                                  a->rstd1, NULL);
}

/* Attention's tensors are made again where attention is next; if h is not kept, that is before the
 * feed-forward, which reads it. */
static yk_status block_backward(yk_pass *s, const yk_param_view *p, const yk_grad_view *g,
                                int layer)
{
    yk_block_act *a = &s->blocks[layer];
    bool whole = policy_of(s, layer) >= YK_RECOMPUTE_BLOCK;
    yk_arena_pop(s->o.activation, a->output);
    if (whole) {
        YK_TRY(push_tensors(s, a, layer, ATTENTION, false));
        a->feed_forward = yk_arena_mark(s->o.activation);
    }
    YK_TRY(push_tensors(s, a, layer, FEED_FORWARD, false));
    if (whole) YK_TRY(make_attention_again(s, p, layer, a));
    YK_TRY(make_feed_forward_again(s, p, layer, a));
    YK_TRY(ffn_backward(s, p, g, layer, a));
    yk_arena_pop(s->o.activation, a->feed_forward);

    if (!whole) {
        YK_TRY(push_tensors(s, a, layer, ATTENTION, false));
        YK_TRY(make_attention_again(s, p, layer, a));
    }
    return attention_backward(s, p, g, layer, a);
}

/* ---- head --------------------------------------------------------------------------------- */

/* Logits of rows begin .. end-1 and their losses; in training the logits become their gradient. */
static yk_status chunk_loss(yk_pass *s, const yk_param_view *p, void *logits, const void *n,
                            int64_t begin, int64_t end)
{
    yk_linear_ids out = {s->model->head.out, -1};
    YK_TRY(yk_layer_linear_forward(s, p, out, logits, n, NULL, end - begin));
    return yk_cross_entropy(s->o.stream, &(yk_cross_entropy_args){
                                             .losses = s->losses + begin,
                                             .logits = logits,
                                             .targets = s->batch.targets + begin,
                                             .values = s->o.values,
                                             .rows = end - begin,
                                             .vocab = s->model->shape.vocab,
                                             .stride = s->model->shape.vocab_rows,
                                             .scale = s->loss_weight,
                                             .backward = s->mode == YK_PASS_TRAIN,
                                             .dtype = s->o.dtype,
                                         });
}

/* Gradients from those of a chunk's logits: of the head's matrix, and of the chunk's input, which
 * takes the place of the input. */
static yk_status chunk_backward(yk_pass *s, const yk_param_view *p, const yk_grad_view *g,
                                const void *dlogits, void *n, int64_t rows, bool accumulate)
{
    yk_linear_ids out = {s->model->head.out, -1};
    YK_TRY(yk_layer_linear_backward_weight(s, g, out, dlogits, n, rows, accumulate));
    return yk_layer_linear_backward_input(s, p, out, n, dlogits, rows);
}

/* The normalised input, then the loss chunk by chunk, with gradients when `g` is given. */
static yk_status head_loss(yk_pass *s, const yk_param_view *p, const yk_grad_view *g)
{
    const yk_model_shape *m = &s->model->shape;
    yk_norm_ids norm = s->model->head.norm;
    int64_t rows = yk_pass_rows(s), chunk = yk_min(s->o.head_chunk, rows);
    int64_t element = yk_dtype_bytes(s->o.dtype);
    int mark = yk_arena_mark(s->o.activation);
    void *mean = NULL, *rstd, *logits;
    if (is_gpt2(s)) YK_TRY(yk_arena_push(s->o.activation, "norm mean", rows * 4, &mean));
    YK_TRY(yk_arena_push(s->o.activation, "norm rstd", rows * 4, &rstd));
    YK_TRY(yk_arena_push(s->o.activation, "logits", chunk * m->vocab_rows * element, &logits));

    YK_TRY(yk_layer_norm_forward(s, p, norm, s->grad, mean, rstd, s->x, rows));
    for (int64_t r = 0; r < rows; r += chunk) {
        int64_t end = yk_min(r + chunk, rows);
        void *n = (char *)s->grad + r * m->width * element;
        YK_TRY(chunk_loss(s, p, logits, n, r, end));
        if (!g) continue;
        bool accumulate = r > 0 || g[s->model->head.out].accumulate;
        YK_TRY(chunk_backward(s, p, g, logits, n, end - r, accumulate));
    }
    if (g)
        YK_TRY(
            yk_layer_norm_backward(s, p, g, norm, s->grad, NULL, s->grad, s->x, mean, rstd, NULL));
    yk_arena_pop(s->o.activation, mark);
    return yk_loss_sum(s->o.stream, &(yk_loss_sum_args){
                                        .values = s->o.values,
                                        .losses = s->losses,
                                        .targets = s->batch.targets,
                                        .rows = rows,
                                    });
}

/* Logits of the last position. */
static yk_status head_generate(yk_pass *s, const yk_param_view *p)
{
    const yk_model_shape *m = &s->model->shape;
    yk_linear_ids out = {s->model->head.out, -1};
    int64_t row = m->width * yk_dtype_bytes(s->o.dtype);
    int mark = yk_arena_mark(s->o.activation);
    const void *last = (const char *)s->x + (s->batch.seq_len - 1) * row;
    void *n, *mean = NULL, *rstd;
    YK_TRY(yk_arena_push(s->o.activation, "norm", row, &n));
    if (is_gpt2(s)) YK_TRY(yk_arena_push(s->o.activation, "norm mean", 4, &mean));
    YK_TRY(yk_arena_push(s->o.activation, "norm rstd", 4, &rstd));
    YK_TRY(yk_layer_norm_forward(s, p, s->model->head.norm, n, mean, rstd, last, 1));
    YK_TRY(yk_layer_linear_forward(s, p, out, s->logits, n, NULL, 1));
    yk_arena_pop(s->o.activation, mark);
    return YK_OK;
}

static yk_status head_forward(yk_pass *s, const yk_param_view *p)
{
    switch (s->mode) {
    case YK_PASS_TRAIN:
        return YK_OK; /* with the backward pass, so that logits are made once */
    case YK_PASS_EVALUATE:
        return head_loss(s, p, NULL);
    case YK_PASS_GENERATE:
        return head_generate(s, p);
    }
    return YK_OK;
}

/* ---- the pass ----------------------------------------------------------------------------- */

yk_status yk_pass_create(const yk_model *model, const yk_pass_options *options, yk_pass **pass_out)
{
    yk_pass *s = calloc(1, sizeof *s);
    if (!s) goto fail;
    s->model = model;
    s->o = *options;
    s->marks = calloc((size_t)model->n_units, sizeof *s->marks);
    s->blocks = calloc((size_t)model->shape.layers, sizeof *s->blocks);
    if (!s->marks || !s->blocks) goto fail;
    yk_status status = yk_pass_inputs_create(s);
    if (status != YK_OK) {
        yk_pass_destroy(s);
        return status;
    }
    *pass_out = s;
    return YK_OK;
fail:
    yk_pass_destroy(s);
    return yk_fail(YK_ENOMEM, "model", "no memory for a pass of %d units", model->n_units);
}

void yk_pass_destroy(yk_pass *pass)
{
    if (!pass) return;
    yk_pass_inputs_destroy(pass);
    free(pass->marks);
    free(pass->blocks);
    free(pass);
}

yk_status yk_pass_begin(yk_pass *s, yk_pass_mode mode, const yk_batch *batch, float loss_weight,
                        yk_kv_cache *cache, void *logits)
{
    YK_CHECK(mode != YK_PASS_GENERATE || (cache && logits && batch->batch == 1));
    s->mode = mode;
    s->batch = *batch;
    s->loss_weight = loss_weight;
    s->cache = cache;
    s->logits = logits;
    s->bottom = yk_arena_mark(s->o.activation);
    if (mode == YK_PASS_GENERATE) return YK_OK;
    void *losses;
    YK_TRY(yk_arena_push(s->o.activation, "d residual", tensor_bytes(s, ROW_C), &s->grad));
    YK_TRY(yk_arena_push(s->o.activation, "losses", yk_pass_rows(s) * 4, &losses));
    s->losses = losses;
    return yk_pass_inputs_begin(s, tensor_bytes(s, ROW_C));
}

yk_status yk_pass_forward(yk_pass *s, int unit, const yk_param_view *p)
{
    s->marks[unit] = yk_arena_mark(s->o.activation);
    if (unit == 0) return embed_forward(s, p);
    if (unit == s->model->n_units - 1) return head_forward(s, p);
    return block_forward(s, p, unit - 1);
}

yk_status yk_pass_backward(yk_pass *s, int unit, const yk_param_view *p, const yk_grad_view *g)
{
    if (unit == s->model->n_units - 1)
        YK_TRY(head_loss(s, p, g));
    else if (unit == 0)
        YK_TRY(embed_backward(s, g));
    else
        YK_TRY(block_backward(s, p, g, unit - 1));
    yk_arena_pop(s->o.activation, s->marks[unit]);
    return YK_OK;
}

void yk_pass_end(yk_pass *s)
{
    yk_pass_inputs_end(s);
    yk_arena_pop(s->o.activation, s->bottom);
}
