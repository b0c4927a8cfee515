/* tests/oracle/oracle_model.c - see oracle_model.h.
 *
 * Legend    R rows = B*T, C width, H heads, G key-value heads, D head size, F ffn, V vocabulary rows.
 */
#include "tests/oracle/oracle_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/table.h"
#include "tests/oracle/oracle.h"

/* What a block computes, in order. */
typedef struct block_values {
    const double *x;            /* (R,C) the block before */
    double *n1, *mean1, *rstd1; /* (R,C) (R) (R) */
    double *qkv;                /* (R,(H+2G)D) */
    double *att, *lse;          /* (R,HD) (B,H,T) */
    double *h;                  /* (R,C) */
    double *n2, *mean2, *rstd2; /* (R,C) (R) (R) */
    double *up, *act;           /* (R,F or 2F) (R,F) */
    double *out;                /* (R,C) */
} block_values;

struct oracle_model {
    const yk_model *model;
    yk_batch batch;
    int64_t rows;
    double *cosines, *sines; /* (T,D/2) */
    double *x;               /* (R,C) embedded */
    block_values *blocks;    /* (L) */
    double *n, *mean, *rstd; /* (R,C) (R) (R) of the head's norm */
    double *logits, *losses; /* (R,V) (R) */
    double *grad;            /* (R,C) gradient of the residual */
    double *wide, *narrow;   /* scratch: the widest row, (R,.) */
    double *dlogits;         /* (R,V) */
};

static double *grab(int64_t n)
{
    double *values = calloc((size_t)n + 1, sizeof *values);
    YK_CHECK(values);
    return values;
}

static oracle_out to(double *values)
{
    return (oracle_out){values, NULL};
}

static const oracle_out nowhere = {NULL, NULL};

static double *at(double *const *p, int id)
{
    return id < 0 ? NULL : p[id];
}

static bool is_gpt2(const oracle_model *m)
{
    return m->model->shape.family == YK_FAMILY_GPT2;
}

static yk_norm_kind norm_kind(const oracle_model *m)
{
    return is_gpt2(m) ? YK_NORM_LAYER : YK_NORM_RMS;
}

/* ---- life --------------------------------------------------------------------------------- */

static void fill_angles(oracle_model *m)
{
    const yk_model_shape *s = &m->model->shape;
    int64_t half = s->head_size / 2;
    m->cosines = grab(s->max_seq_len * half);
    m->sines = grab(s->max_seq_len * half);
    if (is_gpt2(m)) return;
    YK_CHECK(s->rope_scaling == YK_ROPE_PLAIN);
    for (int64_t i = 0; i < s->max_seq_len * half; i++) {
        double exponent = -2.0 * (double)(i % half) / (double)s->head_size;
        double angle = (double)(i / half) * pow(s->rope_theta, exponent);
        m->cosines[i] = cos(angle);
        m->sines[i] = sin(angle);
    }
}

static void create_block(oracle_model *m, block_values *b)
{
    const yk_model_shape *s = &m->model->shape;
    int64_t r = m->rows, hd = s->heads * s->head_size, gd = s->kv_heads * s->head_size;
    b->n1 = grab(r * s->width);
    b->mean1 = grab(r);
    b->rstd1 = grab(r);
    b->qkv = grab(r * (hd + 2 * gd));
    b->att = grab(r * hd);
    b->lse = grab(r * s->heads);
    b->h = grab(r * s->width);
    b->n2 = grab(r * s->width);
    b->mean2 = grab(r);
    b->rstd2 = grab(r);
    b->up = grab(r * 2 * s->ffn);
    b->act = grab(r * s->ffn);
    b->out = grab(r * s->width);
}

static void destroy_block(block_values *b)
{
    double *all[] = {b->n1, b->mean1, b->rstd1, b->qkv, b->att, b->lse, b->h,
                     b->n2, b->mean2, b->rstd2, b->up,  b->act, b->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

oracle_model *oracle_model_create(const yk_model *model, const yk_batch *batch)
{
    const yk_model_shape *s = &model->shape;
    oracle_model *m = calloc(1, sizeof *m);
    YK_CHECK(m);
    *m = (oracle_model){.model = model, .batch = *batch, .rows = batch->batch * batch->seq_len};
    int64_t r = m->rows, qkv = (s->heads + 2 * s->kv_heads) * s->head_size;
    int64_t widest = s->width + qkv + 2 * s->ffn;
    fill_angles(m);
    m->x = grab(r * s->width);
    m->blocks = calloc((size_t)s->layers, sizeof *m->blocks);
    YK_CHECK(m->blocks);
    for (int64_t i = 0; i < s->layers; i++) create_block(m, &m->blocks[i]);
    m->n = grab(r * s->width);
    m->mean = grab(r);
    m->rstd = grab(r);
    m->logits = grab(r * s->vocab_rows);
    m->dlogits = grab(r * s->vocab_rows);
    m->losses = grab(r);
    m->grad = grab(r * s->width);
    m->wide = grab(r * widest);
    m->narrow = grab(r * widest);
    return m;
}

void oracle_model_destroy(oracle_model *m)
{
    for (int64_t i = 0; i < m->model->shape.layers; i++) destroy_block(&m->blocks[i]);
    double *all[] = {m->cosines, m->sines,  m->x,    m->n,    m->mean,   m->rstd,
                     m->logits,  m->losses, m->grad, m->wide, m->narrow, m->dlogits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    free(m->blocks);
    free(m);
}

/* ---- one operation each ------------------------------------------------------------------- */

static void norm(const oracle_model *m, double *const *p, yk_norm_ids id, double *y, double *mean,
                 double *rstd, const double *x)
{
    oracle_norm_forward(NULL, norm_kind(m), to(y), is_gpt2(m) ? to(mean) : nowhere, to(rstd), x,
                        p[id.weight], at(p, id.bias), m->rows, m->model->shape.width,
                        m->model->shape.norm_eps);
}

/* grad = add + the gradient through the norm. */
static void norm_backward(oracle_model *m, double *const *p, double *const *g, yk_norm_ids id,
                          const double *dy, const double *add, const double *x, const double *mean,
                          const double *rstd)
{
    int64_t n = m->rows * m->model->shape.width;
    double *dx = grab(n);
    oracle_norm_gradient_in in = {.dy = dy,
                                  .add = add,
                                  .x = x,
                                  .weight = p[id.weight],
                                  .mean = is_gpt2(m) ? mean : NULL,
                                  .rstd = rstd,
                                  .rows = m->rows,
                                  .cols = m->model->shape.width,
                                  .kind = norm_kind(m)};
    oracle_norm_backward(NULL, to(dx), to(g[id.weight]), to(at(g, id.bias)), &in);
    memcpy(m->grad, dx, (size_t)n * sizeof *dx);
    free(dx);
}

static void linear(const oracle_model *m, double *const *p, yk_linear_ids id, double *y,
                   const double *x, const double *residual)
{
    const int64_t *shape = m->model->params[id.weight].shape;
    oracle_linear_forward(NULL, to(y), nowhere, x, p[id.weight], at(p, id.bias), residual, m->rows,
                          shape[0], shape[1], false, YK_F32);
}

/* Both gradients of a product: of its weights, and of its input into dx, times GELU'(z) if z. */
static void linear_backward(const oracle_model *m, double *const *p, double *const *g,
                            yk_linear_ids id, double *dx, const double *dy, const double *x,
                            const double *z)
{
    const int64_t *shape = m->model->params[id.weight].shape;
    oracle_linear_backward_weight(NULL, to(g[id.weight]), to(at(g, id.bias)), NULL, NULL, x, dy,
                                  m->rows, shape[0], shape[1]);
    oracle_linear_backward_input(NULL, to(dx), NULL, dy, p[id.weight], z, m->rows, shape[0],
                                 shape[1]);
}

/* out = qkv rotated, or as it is where positions are learned. */
static void rotate(const oracle_model *m, double *out, const double *qkv, bool inverse)
{
    const yk_model_shape *s = &m->model->shape;
    int64_t n = m->rows * (s->heads + 2 * s->kv_heads) * s->head_size;
    if (is_gpt2(m))
        memcpy(out, qkv, (size_t)n * sizeof *out);
    else
        oracle_rope(NULL, to(out), qkv, m->cosines, m->sines, m->batch.positions, m->rows, s->heads,
                    s->kv_heads, s->head_size, inverse);
}

static oracle_attention attention_of(const oracle_model *m)
{
    const yk_model_shape *s = &m->model->shape;
    return (oracle_attention){m->batch.batch,    m->batch.seq_len, s->heads,
                              s->kv_heads,       s->head_size,     1 / sqrt((double)s->head_size),
                              m->batch.doc_start};
}

/* ---- forward ------------------------------------------------------------------------------ */

static void block_forward(oracle_model *m, double *const *p, const yk_block_ids *id,
                          block_values *b)
{
    oracle_attention attention = attention_of(m);
    int64_t ffn = m->model->shape.ffn;
    norm(m, p, id->norm1, b->n1, b->mean1, b->rstd1, b->x);
    linear(m, p, id->qkv, m->wide, b->n1, NULL);
    rotate(m, b->qkv, m->wide, false);
    oracle_attention_forward(NULL, to(b->att), to(b->lse), b->qkv, &attention);
    linear(m, p, id->proj, b->h, b->att, b->x);
    norm(m, p, id->norm2, b->n2, b->mean2, b->rstd2, b->h);
    linear(m, p, id->up, b->up, b->n2, NULL);
    if (is_gpt2(m))
        oracle_gelu_forward(NULL, to(b->act), b->up, m->rows * ffn);
    else
        oracle_swiglu_forward(NULL, to(b->act), b->up, m->rows, ffn);
    linear(m, p, id->down, b->out, b->act, b->h);
}

static const double *forward(oracle_model *m, double *const *p)
{
    const yk_model *model = m->model;
    const double *x = m->x;
    oracle_embed_forward(NULL, to(m->x), p[model->embed.tokens], at(p, model->embed.positions),
                         m->batch.tokens, m->batch.positions, m->rows, model->shape.width);
    for (int64_t i = 0; i < model->shape.layers; i++) {
        m->blocks[i].x = x;
        block_forward(m, p, &model->blocks[i], &m->blocks[i]);
        x = m->blocks[i].out;
    }
    norm(m, p, model->head.norm, m->n, m->mean, m->rstd, x);
    linear(m, p, (yk_linear_ids){model->head.out, -1}, m->logits, m->n, NULL);
    return x;
}

/* Losses from the logits, and the logits' gradient of their mean where `dlogits` is asked for. */
static double mean_loss(oracle_model *m, double *dlogits)
{
    int64_t n = 0;
    double sum = 0;
    for (int64_t r = 0; r < m->rows; r++) n += m->batch.targets[r] >= 0;
    double factor = n ? 1 / (double)n : 0;
    oracle_cross_entropy(NULL, to(m->losses), to(dlogits), m->logits, m->batch.targets, m->rows,
                         m->model->shape.vocab, m->model->shape.vocab_rows, factor);
    for (int64_t r = 0; r < m->rows; r++) sum += m->losses[r];
    return sum * factor;
}

double oracle_model_loss(oracle_model *m, double *const *p)
{
    forward(m, p);
    return mean_loss(m, NULL);
}

/* ---- backward ----------------------------------------------------------------------------- */

static void ffn_backward(oracle_model *m, double *const *p, double *const *g,
                         const yk_block_ids *id, const block_values *b)
{
    if (is_gpt2(m)) {
        linear_backward(m, p, g, id->down, m->wide, m->grad, b->act, b->up);
    } else {
        linear_backward(m, p, g, id->down, m->narrow, m->grad, b->act, NULL);
        oracle_swiglu_backward(NULL, to(m->wide), m->narrow, b->up, m->rows, m->model->shape.ffn);
    }
    linear_backward(m, p, g, id->up, m->narrow, m->wide, b->n2, NULL);
    norm_backward(m, p, g, id->norm2, m->narrow, m->grad, b->h, b->mean2, b->rstd2);
}

static void attention_backward(oracle_model *m, double *const *p, double *const *g,
                               const yk_block_ids *id, const block_values *b)
{
    oracle_attention attention = attention_of(m);
    linear_backward(m, p, g, id->proj, m->narrow, m->grad, b->att, NULL);
    oracle_attention_backward(NULL, to(m->wide), m->narrow, b->att, b->lse, b->qkv, &attention);
    rotate(m, m->narrow, m->wide, true);
    linear_backward(m, p, g, id->qkv, m->wide, m->narrow, b->n1, NULL);
    norm_backward(m, p, g, id->norm1, m->wide, m->grad, b->x, b->mean1, b->rstd1);
}

static void embed_backward(oracle_model *m, double *const *g)
{
    const yk_model_shape *s = &m->model->shape;
    const yk_embed_ids *id = &m->model->embed;
    double *before = grab(s->vocab_rows * s->width);
    if (s->tied) /* the head has written its part */
        memcpy(before, g[id->tokens], (size_t)(s->vocab_rows * s->width) * sizeof *before);
    oracle_embed_backward(NULL, to(g[id->tokens]), before, m->grad, m->batch.tokens, m->rows,
                          s->width, s->vocab_rows);
    if (id->positions >= 0)
        oracle_embed_backward(NULL, to(g[id->positions]), NULL, m->grad, m->batch.positions,
                              m->rows, s->width, s->max_seq_len);
    free(before);
}

double oracle_model_gradient(oracle_model *m, double *const *p, double *const *g)
{
    const yk_model *model = m->model;
    const double *last = forward(m, p);
    double loss = mean_loss(m, m->dlogits);
    linear_backward(m, p, g, (yk_linear_ids){model->head.out, -1}, m->narrow, m->dlogits, m->n,
                    NULL);
    norm_backward(m, p, g, model->head.norm, m->narrow, NULL, last, m->mean, m->rstd);
    for (int64_t i = model->shape.layers - 1; i >= 0; i--) {
        ffn_backward(m, p, g, &model->blocks[i], &m->blocks[i]);
        attention_backward(m, p, g, &model->blocks[i], &m->blocks[i]);
    }
    embed_backward(m, g);
    return loss;
}

const double *oracle_model_logits(const oracle_model *m)
{
    return m->logits;
}

const double *oracle_model_losses(const oracle_model *m)
{
    return m->losses;
}
