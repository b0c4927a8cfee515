/* tests/models/rig.c - see rig.h. */
#include "tests/models/rig.h"

#include <stdlib.h>
#include <string.h>

#include "models/pass.h"
#include "tests/runtime/device/tested_device.h"

#define MEMORY_BYTES     (INT64_C(64) << 20)
#define ACTIVATION_BYTES (INT64_C(64) << 20)
#define WORKSPACE_BYTES  (INT64_C(64) << 20)
#define RED_ZONE         256

static void must(yk_status status)
{
    if (status != YK_OK) abort();
}

int rig_missing(void)
{
    return tested_device_missing() ? 77 : 0;
}

/* ---- moving numbers ----------------------------------------------------------------------- */

static void upload(rig *r, void *to, const void *from, int64_t bytes)
{
    must(yk_copy(r->stream, to, from, bytes, YK_COPY_HOST_TO_DEVICE));
    must(yk_stream_synchronize(r->stream));
}

/* The caller owns what comes. */
static void *download(rig *r, const void *from, int64_t bytes)
{
    void *to = malloc((size_t)bytes + 1);
    YK_CHECK(to);
    must(yk_copy(r->stream, to, from, bytes, YK_COPY_DEVICE_TO_HOST));
    must(yk_stream_synchronize(r->stream));
    return to;
}

static void download_real(rig *r, const void *from, int64_t n, yk_dtype dtype, double *values)
{
    void *copy = download(r, from, n * yk_dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++) values[i] = (double)yk_load_f32(copy, i, dtype);
    free(copy);
}

static void *push(rig *r, const char *name, int64_t bytes)
{
    void *piece;
    must(yk_arena_push(r->memory, name, bytes, &piece));
    must(yk_zero(r->stream, piece, bytes));
    return piece;
}

/* ---- life --------------------------------------------------------------------------------- */

static void place_params(rig *r)
{
    int n = yk_model_n_params(r->model);
    r->p = calloc((size_t)n, sizeof *r->p);
    r->g = calloc((size_t)n, sizeof *r->g);
    YK_CHECK(r->p && r->g);
    for (int i = 0; i < n; i++) {
        const yk_param *param = &yk_model_params(r->model)[i];
        int64_t count = yk_param_count(param);
        r->p[i].dtype = r->o.dtype;
        r->p[i].data = push(r, param->name, count * yk_dtype_bytes(r->o.dtype));
        r->g[i].dtype = r->o.grad_dtype;
        r->g[i].data = push(r, param->name, count * yk_dtype_bytes(r->o.grad_dtype));
    }
}

static void place_cache(rig *r)
{
    const yk_model_shape *s = yk_model_get_shape(r->model);
    int64_t element = yk_dtype_bytes(r->o.dtype);
    r->cache = (yk_kv_cache){.capacity = s->max_seq_len};
    r->cache.k = calloc((size_t)s->layers, sizeof *r->cache.k);
    r->cache.v = calloc((size_t)s->layers, sizeof *r->cache.v);
    YK_CHECK(r->cache.k && r->cache.v);
    for (int64_t i = 0; i < s->layers; i++) {
        int64_t bytes = s->max_seq_len * s->kv_heads * s->head_size * element;
        r->cache.k[i] = push(r, "key cache", bytes);
        r->cache.v[i] = push(r, "value cache", bytes);
    }
    r->logits = push(r, "logits", s->vocab_rows * element);
}

/* Angles of every position, on the device; NULL where positions are learned. */
static void place_angles(rig *r, yk_pass_options *o)
{
    const yk_model_shape *s = yk_model_get_shape(r->model);
    o->n_positions = s->max_seq_len;
    if (s->family == YK_FAMILY_GPT2) return;
    int64_t n = s->max_seq_len * (s->head_size / 2), bytes = n * (int64_t)sizeof(float);
    float *host = malloc((size_t)bytes * 2), *cosines = push(r, "rope cos", bytes),
          *sines = push(r, "rope sin", bytes);
    YK_CHECK(host);
    yk_rope_table(s, s->max_seq_len, host, host + n);
    upload(r, cosines, host, bytes);
    upload(r, sines, host + n, bytes);
    o->rope_cos = cosines;
    o->rope_sin = sines;
    free(host);
}

static void place_values(rig *r)
{
    yk_step_values values = {.loss_scale = r->o.loss_scale != 0 ? r->o.loss_scale : 1};
    r->values = push(r, "step values", sizeof values);
    upload(r, r->values, &values, sizeof values);
}

void rig_open(rig *r, const yk_model_shape *shape, const rig_options *o)
{
    *r = (rig){.o = *o};
    must(tested_device_open(o->threads, &r->device));
    must(yk_stream_create(r->device, YK_STREAM_COMPUTE, "test", &r->stream));
    must(yk_device_alloc(r->device, YK_MEMORY_DEVICE, WORKSPACE_BYTES, &r->workspace));
    yk_stream_set_workspace(r->stream, r->workspace, WORKSPACE_BYTES);
    must(
        yk_arena_create(r->device, "memory", YK_MEMORY_DEVICE, MEMORY_BYTES, RED_ZONE, &r->memory));
    must(yk_arena_create(r->device, "activation", YK_MEMORY_DEVICE, ACTIVATION_BYTES, RED_ZONE,
                         &r->activation));
    must(yk_model_create(shape, &r->model));
    place_params(r);
    place_cache(r);
    place_values(r);
    yk_pass_options pass = {.stream = r->stream,
                            .activation = r->activation,
                            .values = r->values,
                            .dtype = o->dtype,
                            .recompute = o->recompute,
                            .n_lighter = o->n_lighter,
                            .head_chunk = o->head_chunk ? o->head_chunk : INT64_MAX};
    place_angles(r, &pass);
    must(yk_pass_create(r->model, &pass, &r->pass));
    r->batch_mark = yk_arena_mark(r->memory);
}

void rig_close(rig *r)
{
    YK_CHECK(yk_arena_mark(r->activation) == 0);
    yk_pass_destroy(r->pass);
    yk_model_destroy(r->model);
    yk_arena_destroy(r->activation);
    yk_arena_destroy(r->memory);
    yk_stream_destroy(r->stream);
    yk_device_free(r->device, YK_MEMORY_DEVICE, WORKSPACE_BYTES, r->workspace);
    yk_device_close(r->device);
    free(r->p);
    free(r->g);
    free(r->cache.k);
    free(r->cache.v);
}

void rig_set_params(rig *r, double *const *values)
{
    for (int i = 0; i < yk_model_n_params(r->model); i++) {
        int64_t n = yk_param_count(&yk_model_params(r->model)[i]);
        float *rounded = malloc((size_t)n * sizeof *rounded); /* room for any type */
        YK_CHECK(rounded);
        for (int64_t k = 0; k < n; k++) yk_store_f32(rounded, k, r->o.dtype, (float)values[i][k]);
        upload(r, (void *)(uintptr_t)r->p[i].data, rounded, n * yk_dtype_bytes(r->o.dtype));
        free(rounded);
    }
}

static const int32_t *push_ints(rig *r, const int32_t *values, int64_t n)
{
    if (!values) return NULL;
    int32_t *piece = push(r, "batch", n * 4);
    upload(r, piece, values, n * 4);
    return piece;
}

void rig_set_batch(rig *r, const yk_batch *b)
{
    int64_t n = b->batch * b->seq_len;
    yk_arena_pop(r->memory, r->batch_mark);
    r->batch = (yk_batch){.tokens = push_ints(r, b->tokens, n),
                          .targets = push_ints(r, b->targets, n),
                          .positions = push_ints(r, b->positions, n),
                          .doc_start = push_ints(r, b->doc_start, n),
                          .batch = b->batch,
                          .seq_len = b->seq_len};
}

/* ---- passes ------------------------------------------------------------------------------- */

static void forward(rig *r)
{
    for (int u = 0; u < yk_model_n_units(r->model); u++) must(yk_pass_forward(r->pass, u, r->p));
}

static void take_losses(rig *r, double *losses)
{
    if (losses)
        download_real(r, r->pass->losses, r->batch.batch * r->batch.seq_len, YK_F32, losses);
}

void rig_clear_gradients(rig *r)
{
    for (int i = 0; i < yk_model_n_params(r->model); i++) r->g[i].accumulate = false;
}

void rig_train(rig *r, float loss_weight, double *losses)
{
    const yk_param *params = yk_model_params(r->model);
    must(yk_pass_begin(r->pass, YK_PASS_TRAIN, &r->batch, loss_weight, NULL, NULL));
    forward(r);
    for (int u = yk_model_n_units(r->model) - 1; u >= 0; u--) {
        must(yk_pass_backward(r->pass, u, r->p, r->g));
        for (int i = 0; i < yk_model_n_params(r->model); i++)
            if (params[i].unit == u || params[i].shared_unit == u) r->g[i].accumulate = true;
    }
    take_losses(r, losses);
    yk_pass_end(r->pass);
}

void rig_evaluate(rig *r, double *losses)
{
    must(yk_pass_begin(r->pass, YK_PASS_EVALUATE, &r->batch, 0.0f, NULL, NULL));
    forward(r);
    take_losses(r, losses);
    yk_pass_end(r->pass);
}

void rig_take_sums(rig *r, double *loss_sum_out, int64_t *n_tokens_out)
{
    yk_step_values *values = download(r, r->values, sizeof *values);
    *loss_sum_out = values->loss_sum;
    *n_tokens_out = values->n_tokens;
    values->loss_sum = 0;
    values->n_tokens = 0;
    upload(r, r->values, values, sizeof *values);
    free(values);
}

void rig_restart(rig *r)
{
    r->cache.past = 0;
}

void rig_generate(rig *r, const int32_t *tokens, int64_t n, double *logits)
{
    const yk_model_shape *s = yk_model_get_shape(r->model);
    int32_t *positions = malloc((size_t)n * sizeof *positions);
    YK_CHECK(positions);
    for (int64_t i = 0; i < n; i++) positions[i] = (int32_t)(r->cache.past + i);
    rig_set_batch(r,
                  &(yk_batch){.tokens = tokens, .positions = positions, .batch = 1, .seq_len = n});
    must(yk_pass_begin(r->pass, YK_PASS_GENERATE, &r->batch, 0.0f, &r->cache, r->logits));
    forward(r);
    yk_pass_end(r->pass);
    r->cache.past += n;
    download_real(r, r->logits, s->vocab_rows, r->o.dtype, logits);
    free(positions);
}

void rig_get_gradient(rig *r, int param, double *values)
{
    download_real(r, r->g[param].data, yk_param_count(&yk_model_params(r->model)[param]),
                  r->o.grad_dtype, values);
}
