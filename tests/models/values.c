/* tests/models/values.c - see values.h. */
#include "tests/models/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double values_uniform(uint64_t seed, uint64_t index)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + (index + 1) * 0xd1342543de82ef95u;
    for (int i = 0; i < 3; i++) x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (double)(x >> 11) * 0x1p-53;
}

double values_normal(uint64_t seed, uint64_t index)
{
    double u = values_uniform(seed, 2 * index), v = values_uniform(seed, 2 * index + 1);
    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

static double *grab(int64_t n)
{
    double *values = calloc((size_t)n, sizeof *values);
    YK_CHECK(values);
    return values;
}

double **values_zero(const yk_model *model)
{
    int n = yk_model_n_params(model);
    double **values = calloc((size_t)n, sizeof *values);
    YK_CHECK(values);
    for (int i = 0; i < n; i++) values[i] = grab(yk_param_count(&yk_model_params(model)[i]));
    return values;
}

void values_free(const yk_model *model, double **values)
{
    for (int i = 0; i < yk_model_n_params(model); i++) free(values[i]);
    free(values);
}

/* A multiple of 2^-8 with at most 8 bits of fraction and integer together. */
static double short_number(double x)
{
    return (double)yk_bf16_to_f32(yk_f32_to_bf16((float)(round(x * 256) / 256)));
}

static double value_of(const yk_param *p, uint64_t seed, int64_t i)
{
    double normal = values_normal(seed, (uint64_t)i);
    if (p->n_dims == 2) return short_number(normal * (strncmp(p->name, "embed", 5) ? 0.2 : 0.4));
    return short_number(strstr(p->name, ".weight") ? 1 + 0.2 * normal : 0.1 * normal);
}

int64_t values_in_use(const yk_model *model, int param)
{
    const yk_param *p = &yk_model_params(model)[param];
    bool vocabulary =
        strcmp(p->name, "embed.tokens.weight") == 0 || strcmp(p->name, "head.out.weight") == 0;
    return (vocabulary ? yk_model_get_shape(model)->vocab : p->shape[0]) * p->shape[1];
}

double **values_of_params(const yk_model *model, uint64_t seed)
{
    double **values = values_zero(model);
    for (int k = 0; k < yk_model_n_params(model); k++)
        for (int64_t i = 0; i < values_in_use(model, k); i++)
            values[k][i] = value_of(&yk_model_params(model)[k], seed * 1000 + (uint64_t)k, i);
    return values;
}

static int32_t *grab_ints(int64_t n)
{
    int32_t *values = calloc((size_t)n, sizeof *values);
    YK_CHECK(values);
    return values;
}

values_batch values_batch_create(const yk_model *model, int64_t batch, int64_t seq_len,
                                 uint64_t seed)
{
    int64_t n = batch * seq_len, vocab = yk_model_get_shape(model)->vocab;
    values_batch b = {.tokens = grab_ints(n),
                      .targets = grab_ints(n),
                      .positions = grab_ints(n),
                      .doc_start = grab_ints(n)};
    for (int64_t i = 0; i < n; i++) {
        b.tokens[i] = (int32_t)(values_uniform(seed, (uint64_t)i) * (double)vocab);
        b.positions[i] = (int32_t)(i % seq_len);
    }
    for (int64_t i = 0; i < n; i++) b.targets[i] = i % 7 == 3 ? -1 : b.tokens[(i + 1) % n];
    b.batch = (yk_batch){.tokens = b.tokens,
                         .targets = b.targets,
                         .positions = b.positions,
                         .batch = batch,
                         .seq_len = seq_len};
    return b;
}

void values_batch_split(values_batch *b, int64_t t)
{
    int64_t seq_len = b->batch.seq_len;
    for (int64_t i = 0; i < b->batch.batch * seq_len; i++) {
        if (i % seq_len < t) continue;
        b->doc_start[i] = (int32_t)t;
        b->positions[i] = (int32_t)(i % seq_len - t);
    }
    b->batch.doc_start = b->doc_start;
}

void values_batch_destroy(values_batch *b)
{
    free(b->tokens);
    free(b->targets);
    free(b->positions);
    free(b->doc_start);
}

double values_distance(const double *a, const double *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(difference) / (size > 0 ? sqrt(size) : 1);
}
