/* models/hf_tensors.c - which tensor of a file is which part of a parameter; see hf.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/hf.h"
#include "models/table.h"

/* The longest prefix: what stands before a name within its block or model. */
#define PREFIX_MAX 40

typedef struct list {
    const yk_model *model;
    yk_hf_tensor *tensors;
    int n;
    char prefix[PREFIX_MAX];
} list;

/* The whole parameter `param`, or those of its rows that begin at `row`. */
static void add(list *l, const char *name, int param, int64_t row, int64_t rows, bool transposed)
{
    if (param < 0) return;
    const yk_param *p = &l->model->params[param];
    yk_hf_tensor *t = &l->tensors[l->n++];
    *t = (yk_hf_tensor){.n_dims = p->n_dims, .param = param, .row = row, .transposed = transposed};
    t->shape[0] = transposed ? p->shape[1] : rows;
    t->shape[1] = transposed ? rows : p->shape[1];
    snprintf(t->name, sizeof t->name, "%s%s", l->prefix, name);
}

static void add_all(list *l, const char *name, int param, bool transposed)
{
    if (param >= 0) add(l, name, param, 0, l->model->params[param].shape[0], transposed);
}

/* Weight and bias, called `name`.weight and `name`.bias. */
static void add_pair(list *l, const char *name, int weight, int bias, int64_t row, int64_t rows,
                     bool transposed)
{
    char full[YK_HF_NAME_MAX / 2];
    snprintf(full, sizeof full, "%s.weight", name);
    add(l, full, weight, row, rows, transposed);
    snprintf(full, sizeof full, "%s.bias", name);
    add(l, full, bias, row, rows, false);
}

static void add_norm(list *l, const char *name, yk_norm_ids id)
{
    add_pair(l, name, id.weight, id.bias, 0, l->model->shape.width, false);
}

static void add_rows(list *l, const char *name, yk_linear_ids id, int64_t row, int64_t rows)
{
    add_pair(l, name, id.weight, id.bias, row, rows, false);
}

/* GPT-2's Conv1D: the weight is (in,out). */
static void add_conv1d(list *l, const char *name, yk_linear_ids id)
{
    add_pair(l, name, id.weight, id.bias, 0, l->model->params[id.weight].shape[0], true);
}

static void add_gpt2_block(list *l, const yk_block_ids *b)
{
    add_norm(l, "ln_1", b->norm1);
    add_conv1d(l, "attn.c_attn", b->qkv);
    add_conv1d(l, "attn.c_proj", b->proj);
    add_norm(l, "ln_2", b->norm2);
    add_conv1d(l, "mlp.c_fc", b->up);
    add_conv1d(l, "mlp.c_proj", b->down);
}

static void add_rotary_block(list *l, const yk_block_ids *b)
{
    const yk_model_shape *s = &l->model->shape;
    int64_t hd = s->heads * s->head_size, gd = s->kv_heads * s->head_size;
    add_norm(l, "input_layernorm", b->norm1);
    add_rows(l, "self_attn.q_proj", b->qkv, 0, hd);
    add_rows(l, "self_attn.k_proj", b->qkv, hd, gd);
    add_rows(l, "self_attn.v_proj", b->qkv, hd + gd, gd);
    add_rows(l, "self_attn.o_proj", b->proj, 0, s->width);
    add_norm(l, "post_attention_layernorm", b->norm2);
    add_rows(l, "mlp.gate_proj", b->up, 0, s->ffn);
    add_rows(l, "mlp.up_proj", b->up, s->ffn, s->ffn);
    add_rows(l, "mlp.down_proj", b->down, 0, s->width);
}

static bool is_gpt2(const yk_model *m)
{
    return m->shape.family == YK_FAMILY_GPT2;
}

static void fill(list *l)
{
    const yk_model *m = l->model;
    const char *top = is_gpt2(m) ? "transformer." : "model.";
    strcpy(l->prefix, top);
    add(l, is_gpt2(m) ? "wte.weight" : "embed_tokens.weight", m->embed.tokens, 0, m->shape.vocab,
        false);
    add_all(l, "wpe.weight", m->embed.positions, false);
    for (int i = 0; i < (int)m->shape.layers; i++) {
        snprintf(l->prefix, sizeof l->prefix, "%s%s.%d.", top, is_gpt2(m) ? "h" : "layers", i);
        if (is_gpt2(m))
            add_gpt2_block(l, &m->blocks[i]);
        else
            add_rotary_block(l, &m->blocks[i]);
    }
    strcpy(l->prefix, top);
    add_norm(l, is_gpt2(m) ? "ln_f" : "norm", m->head.norm);
    l->prefix[0] = 0;
    if (!m->shape.tied) add(l, YK_HF_HEAD_NAME, m->head.out, 0, m->shape.vocab, false);
}

yk_status yk_hf_tensors_create(const yk_model *model, yk_hf_tensor **tensors_out, int *n_out)
{
    /* No parameter is cut into more than three. */
    list l = {.model = model};
    l.tensors = calloc((size_t)model->n_params * 3, sizeof *l.tensors);
    if (!l.tensors) return yk_fail(YK_ENOMEM, "model", "no memory for the names of its tensors");
    fill(&l);
    *tensors_out = l.tensors;
    *n_out = l.n;
    return YK_OK;
}

const char *yk_hf_short_name(const yk_model *model, const char *name)
{
    static const char prefix[] = "transformer.";
    bool shorter = is_gpt2(model) && strncmp(name, prefix, sizeof prefix - 1) == 0;
    return shorter ? name + sizeof prefix - 1 : name;
}

bool yk_hf_is_derived(const char *name)
{
    static const char *const endings[] = {".attn.bias", ".attn.masked_bias",
                                          ".rotary_emb.inv_freq"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t k = strlen(endings[i]);
        if (n >= k && strcmp(name + n - k, endings[i]) == 0) return true;
    }
    return false;
}
