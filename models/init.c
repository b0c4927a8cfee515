/* models/init.c - initial weights as a function of (seed, parameter name, index).
 *
 * No generator state: each value is a hash of what it belongs to, so ranks, shards and threads can
 * make any part of any tensor in any order and get the same numbers.
 */
#include <math.h>
#include <string.h>

#include "models/table.h"
#include "runtime/base/threads.h"

/* The finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection that mixes all bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t key_of(int64_t seed, const char *name)
{
    uint64_t key = mix((uint64_t)seed + 0x9e3779b97f4a7c15u);
    for (const char *c = name; *c; c++) key = mix(key ^ (unsigned char)*c);
    return key;
}

/* Standard normal by Box and Muller 1958, from two uniform numbers of 32 bits. */
static double normal(uint64_t key, int64_t index)
{
    uint64_t bits = mix(key + (uint64_t)index * 0x9e3779b97f4a7c15u);
    double u = ((double)(bits >> 32) + 0.5) * 0x1p-32, v = (double)(bits & 0xffffffffu) * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
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

/* Rows of a vocabulary matrix from vocab on are padding and stay zero. */
static int64_t rows_in_use(const yk_model *model, int param)
{
    bool vocab = param == model->embed.tokens || param == model->head.out;
    return vocab ? model->shape.vocab : model->params[param].shape[0];
}

void yk_model_init_values(const yk_model *model, int param, int64_t seed, int64_t begin,
                          int64_t end, float *values_out)
{
    const yk_param *p = &model->params[param];
    if (p->n_dims == 1) {
        float value = is_norm_weight(p->name) ? 1.0f : 0.0f;
        for (int64_t i = begin; i < end; i++) values_out[i - begin] = value;
        return;
    }
    double deviation = 0.02;
    if (writes_residual(model, param)) deviation /= sqrt(2.0 * (double)model->shape.layers);
    int64_t in_use = rows_in_use(model, param) * p->shape[1];
    uint64_t key = key_of(seed, p->name);
#pragma omp parallel for num_threads(yk_threads()) schedule(static)
    for (int64_t i = begin; i < end; i++)
        values_out[i - begin] = i < in_use ? (float)(deviation * normal(key, i)) : 0.0f;
}
