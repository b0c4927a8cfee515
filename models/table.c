/* models/table.c - the parameter table of a decoder.
 *
 * Products that read the same input are one matrix: q, k and v; gate and up. Matrices are (out,in),
 * whatever a family's files hold; hf_tensors.c turns and cuts them. Only matrices decay.
 */
#include "models/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An upper bound: 2 + 12 a block + 3. */
static int max_params(const yk_model_shape *s)
{
    return (int)(12 * s->layers) + 5;
}

static int add(yk_model *m, int unit, const char *name, int64_t rows, int64_t cols)
{
    yk_param *p = &m->params[m->n_params];
    *p = (yk_param){.shape = {rows, cols}, .unit = unit, .shared_unit = -1};
    p->n_dims = cols == 1 ? 1 : 2;
    p->decay = p->n_dims == 2;
    if (unit > 0 && unit < m->n_units - 1)
        snprintf(p->name, sizeof p->name, "block.%d.%s", unit - 1, name);
    else
        snprintf(p->name, sizeof p->name, "%s.%s", unit == 0 ? "embed" : "head", name);
    return m->n_params++;
}

static yk_norm_ids add_norm(yk_model *m, int unit, const char *weight, const char *bias)
{
    bool layer_norm = m->shape.family == YK_FAMILY_GPT2;
    yk_norm_ids ids = {.bias = -1};
    ids.weight = add(m, unit, weight, m->shape.width, 1);
    if (layer_norm) ids.bias = add(m, unit, bias, m->shape.width, 1);
    return ids;
}

static yk_linear_ids add_linear(yk_model *m, int unit, const char *name, int64_t out, int64_t in,
                                bool with_bias)
{
    char full[32];
    yk_linear_ids ids = {.bias = -1};
    snprintf(full, sizeof full, "%s.weight", name);
    ids.weight = add(m, unit, full, out, in);
    m->params[ids.weight].n_dims = 2; /* also with a single column */
    m->params[ids.weight].decay = true;
    snprintf(full, sizeof full, "%s.bias", name);
    if (with_bias) ids.bias = add(m, unit, full, out, 1);
    return ids;
}

static yk_block_ids add_block(yk_model *m, int unit)
{
    const yk_model_shape *s = &m->shape;
    bool gpt2 = s->family == YK_FAMILY_GPT2, qwen2 = s->family == YK_FAMILY_QWEN2;
    int64_t hd = s->heads * s->head_size, gd = s->kv_heads * s->head_size;
    yk_block_ids b;
    b.norm1 = add_norm(m, unit, "norm1.weight", "norm1.bias");
    b.qkv = add_linear(m, unit, "qkv", hd + 2 * gd, s->width, gpt2 || qwen2);
    b.proj = add_linear(m, unit, "proj", s->width, hd, gpt2);
    b.norm2 = add_norm(m, unit, "norm2.weight", "norm2.bias");
    b.up = add_linear(m, unit, "up", gpt2 ? s->ffn : 2 * s->ffn, s->width, gpt2);
    b.down = add_linear(m, unit, "down", s->width, s->ffn, gpt2);
    return b;
}

static void fill_table(yk_model *m)
{
    const yk_model_shape *s = &m->shape;
    int head = m->n_units - 1;
    m->embed.tokens = add_linear(m, 0, "tokens", s->vocab_rows, s->width, false).weight;
    m->embed.positions = -1;
    if (s->family == YK_FAMILY_GPT2)
        m->embed.positions = add_linear(m, 0, "positions", s->max_seq_len, s->width, false).weight;
    for (int i = 0; i < (int)s->layers; i++) m->blocks[i] = add_block(m, 1 + i);
    m->head.norm = add_norm(m, head, "norm.weight", "norm.bias");
    if (s->tied) {
        m->head.out = m->embed.tokens;
        m->params[m->embed.tokens].shared_unit = head;
    } else {
        m->head.out = add_linear(m, head, "out", s->vocab_rows, s->width, false).weight;
    }
}

yk_status yk_model_create(const yk_model_shape *shape, yk_model **model_out)
{
    yk_model_shape checked = *shape;
    YK_TRY(yk_model_shape_check(&checked, "model"));
    yk_model *m = calloc(1, sizeof *m);
    if (!m) goto fail;
    m->shape = checked;
    m->n_units = (int)checked.layers + 2;
    m->params = calloc((size_t)max_params(&checked), sizeof *m->params);
    m->blocks = calloc((size_t)checked.layers, sizeof *m->blocks);
    if (!m->params || !m->blocks) goto fail;
    fill_table(m);
    *model_out = m;
    return YK_OK;
fail:
    yk_model_destroy(m);
    return yk_fail(YK_ENOMEM, "model", "no memory for the parameter table");
}

void yk_model_destroy(yk_model *model)
{
    if (!model) return;
    free(model->params);
    free(model->blocks);
    free(model);
}

const yk_model_shape *yk_model_get_shape(const yk_model *model)
{
    return &model->shape;
}

int yk_model_n_units(const yk_model *model)
{
    return model->n_units;
}

int yk_model_n_params(const yk_model *model)
{
    return model->n_params;
}

const yk_param *yk_model_params(const yk_model *model)
{
    return model->params;
}

bool yk_model_backward_reads(const yk_model *model, int unit)
{
    (void)model;
    return unit > 0;
}

int yk_model_find_param(const yk_model *model, const char *name)
{
    for (int i = 0; i < model->n_params; i++)
        if (strcmp(model->params[i].name, name) == 0) return i;
    return -1;
}
