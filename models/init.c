/* models/init.c - first weights as numbers that follow from (seed, parameter name, index).
 *
 * No generator state: each value is a hash of what it belongs to, so ranks, shards and threads can
 * make any part of any tensor in any order and get the same numbers. A model says which numbers;
 * yk_draw_normal() makes them.
 */
#include <math.h>
#include <string.h>

#include "models/table.h"

#include "runtime/base/mix.h"

static uint64_t key_of(int64_t seed, const char *name)
{
    uint64_t key = yk_mix((uint64_t)seed + YK_MIX_STEP);
    for (const char *c = name; *c; c++) key = yk_mix(key ^ (unsigned char)*c);
    return key;
}

/* Is `param` the matrix of a product that writes to the residual? */
static bool writes_residual(const yk_model *model, int param)
{
    int unit = model->params[param].unit;
    if (unit == 0 || unit == model->n_units - 1) return false;
    const yk_block_ids *b = &model->blocks[unit - 1];
    return param == b->proj.weight || param == b->down.weight;
}

static bool is_norm_weight(const char *name)
{
    const char *norm = strstr(name, "norm");
    return norm && strstr(norm, ".weight");
}

/* Rows of a vocabulary matrix from vocab on are padding. */
static int64_t rows_in_use(const yk_model *model, int param)
{
    bool vocab = param == model->embed.tokens || param == model->head.out;
    return vocab ? model->shape.vocab : model->params[param].shape[0];
}

yk_normal yk_model_first_values(const yk_model *model, int param, int64_t seed, int64_t *n_used_out)
{
    const yk_param *p = &model->params[param];
    *n_used_out = rows_in_use(model, param) * p->shape[1];
    if (p->n_dims == 1) return (yk_normal){.mean = is_norm_weight(p->name) ? 1.0f : 0.0f};
    double deviation = 0.02;
    if (writes_residual(model, param)) deviation /= sqrt(2.0 * (double)model->shape.layers);
    return (yk_normal){.key = key_of(seed, p->name), .deviation = (float)deviation};
}
