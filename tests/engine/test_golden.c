/* tests/engine/test_golden.c - whole models against values recorded from PyTorch (tests/golden):
 * logits, losses, every gradient, and the losses of twenty AdamW steps, to 1e-5 relative.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/weights.h"
#include "models/pass.h"
#include "runtime/storage/safetensors.h"
#include "tests/engine/stored.h"
#include "tests/models/values.h"

#define BOUND 1e-5
#define STEPS 20

static const char *const folders[] = {"gpt2",        "gpt2-inner", "llama",     "llama-linear",
                                      "llama3-tied", "qwen2",      "qwen2-tied"};
#define N_FOLDERS (int)(sizeof folders / sizeof folders[0])

typedef struct golden {
    char dir[64];
    stored s;
    yk_safetensors *inputs, *expected;
    yk_batch batch;        /* device memory */
    const int32_t *tokens; /* (B,T) host memory */
    int64_t rows, n_tokens;
    yk_step_values *values;
    yk_pass *pass;
    yk_pass_options options;
} golden;

/* ---- opening ------------------------------------------------------------------------------ */

static yk_safetensors *open_file(const golden *g, const char *name)
{
    char path[128];
    yk_safetensors *file;
    snprintf(path, sizeof path, "%s/%s", g->dir, name);
    assert_int_equal(yk_safetensors_open(path, &file), YK_OK);
    return file;
}

static const yk_st_tensor *find(const yk_safetensors *file, const char *name, int64_t count)
{
    const yk_st_tensor *t = yk_safetensors_find(file, name);
    if (!t) fail_msg("no tensor %s", name);
    if (count >= 0) assert_int_equal(t->count, count);
    return t;
}

/* An expected fp32 tensor in double. The caller owns it. */
static double *expected(const golden *g, const char *name, int64_t count)
{
    const yk_st_tensor *t = find(g->expected, name, count);
    double *values = calloc((size_t)t->count, sizeof *values);
    assert_int_equal(t->info.dtype, YK_ST_F32);
    for (int64_t i = 0; i < t->count; i++) {
        float value;
        memcpy(&value, (const char *)t->data + 4 * i, 4);
        values[i] = (double)value;
    }
    return values;
}

static void load_batch(golden *g)
{
    const yk_st_tensor *tokens = find(g->inputs, "tokens", -1);
    const yk_st_tensor *targets = find(g->inputs, "targets", tokens->count);
    int32_t *positions = calloc((size_t)tokens->count, sizeof *positions);
    int64_t seq_len = tokens->info.shape[1];
    g->rows = tokens->count;
    g->tokens = tokens->data;
    for (int64_t i = 0; i < g->rows; i++) {
        positions[i] = (int32_t)(i % seq_len);
        g->n_tokens += ((const int32_t *)targets->data)[i] >= 0;
    }
    g->batch = (yk_batch){.tokens = stored_push(&g->s, tokens->data, tokens->bytes),
                          .targets = stored_push(&g->s, targets->data, targets->bytes),
                          .positions = stored_push(&g->s, positions, g->rows * 4),
                          .batch = tokens->info.shape[0],
                          .seq_len = seq_len};
    free(positions);
}

static void make_pass(golden *g, yk_recompute recompute, int64_t head_chunk)
{
    g->options.recompute = recompute;
    g->options.head_chunk = head_chunk;
    yk_pass_destroy(g->pass);
    assert_int_equal(yk_pass_create(g->s.model, &g->options, &g->pass), YK_OK);
}

static void prepare_pass(golden *g)
{
    const yk_model_shape *shape = yk_model_get_shape(g->s.model);
    yk_step_values values = {.loss_scale = 1};
    g->values = stored_push(&g->s, &values, sizeof values);
    g->options = (yk_pass_options){.stream = g->s.stream,
                                   .activation = g->s.activation,
                                   .n_positions = g->batch.seq_len,
                                   .values = g->values,
                                   .dtype = YK_F32};
    if (shape->family != YK_FAMILY_GPT2) {
        int64_t n = g->batch.seq_len * shape->head_size / 2;
        float *angles = calloc((size_t)(2 * n), sizeof *angles);
        yk_rope_table(shape, g->batch.seq_len, angles, angles + n);
        g->options.rope_cos = stored_push(&g->s, angles, n * 4);
        g->options.rope_sin = stored_push(&g->s, angles + n, n * 4);
        free(angles);
    }
    make_pass(g, YK_RECOMPUTE_NONE, g->rows);
}

static void load_weights(golden *g)
{
    assert_int_equal(yk_weights_load(g->s.store, g->s.model, g->dir, g->s.stream), YK_OK);
}

static void golden_open(golden *g, int folder)
{
    yk_model_shape shape;
    *g = (golden){0};
    snprintf(g->dir, sizeof g->dir, "tests/golden/%s", folders[folder]);
    assert_int_equal(yk_hf_config_read(g->dir, &shape), YK_OK);
    stored_open(&g->s, &shape, YK_F32, true);
    g->inputs = open_file(g, "batch.safetensors");
    g->expected = open_file(g, "expected.safetensors");
    load_batch(g);
    prepare_pass(g);
    load_weights(g);
}

static void golden_close(golden *g)
{
    yk_pass_destroy(g->pass);
    yk_safetensors_close(g->inputs);
    yk_safetensors_close(g->expected);
    stored_close(&g->s);
}

/* ---- passes ------------------------------------------------------------------------------- */

static yk_step_values values_now(const golden *g)
{
    yk_step_values values;
    assert_int_equal(
        yk_copy(g->s.stream, &values, g->values, sizeof values, YK_COPY_DEVICE_TO_HOST), YK_OK);
    assert_int_equal(yk_stream_synchronize(g->s.stream), YK_OK);
    return values;
}

static void forward(golden *g)
{
    for (int u = 0; u < yk_model_n_units(g->s.model); u++) {
        const yk_param_view *p;
        assert_int_equal(yk_store_acquire(g->s.store, u, -1, g->s.stream, &p), YK_OK);
        assert_int_equal(yk_pass_forward(g->pass, u, p), YK_OK);
        assert_int_equal(yk_store_release(g->s.store, u, g->s.stream), YK_OK);
    }
}

static void backward(golden *g)
{
    for (int u = yk_model_n_units(g->s.model) - 1; u >= 0; u--) {
        const yk_param_view *p;
        const yk_grad_view *grads;
        assert_int_equal(yk_store_acquire(g->s.store, u, -1, g->s.stream, &p), YK_OK);
        assert_int_equal(yk_store_grad(g->s.store, u, g->s.stream, &grads), YK_OK);
        assert_int_equal(yk_pass_backward(g->pass, u, p, grads), YK_OK);
        assert_int_equal(yk_store_grad_ready(g->s.store, u, g->s.stream), YK_OK);
        assert_int_equal(yk_store_release(g->s.store, u, g->s.stream), YK_OK);
    }
}

static void read_losses(golden *g, double *losses)
{
    float *copy = calloc((size_t)g->rows, sizeof *copy);
    assert_int_equal(
        yk_copy(g->s.stream, copy, g->pass->losses, g->rows * 4, YK_COPY_DEVICE_TO_HOST), YK_OK);
    assert_int_equal(yk_stream_synchronize(g->s.stream), YK_OK);
    for (int64_t i = 0; i < g->rows; i++) losses[i] = (double)copy[i];
    free(copy);
}

/* The batch forward and backward; returns the mean loss. `losses` (B,T) may be NULL. */
static double train_pass(golden *g, double *losses)
{
    yk_step_begin_args begin = {.values = g->values, .lr = 1e-3f};
    assert_int_equal(yk_step_begin(g->s.stream, &begin), YK_OK);
    yk_store_begin(g->s.store, 1, g->values);
    assert_int_equal(
        yk_pass_begin(g->pass, YK_PASS_TRAIN, &g->batch, 1.0f / (float)g->rows, NULL, NULL), YK_OK);
    forward(g);
    backward(g);
    if (losses) read_losses(g, losses);
    yk_pass_end(g->pass);
    yk_step_values values = values_now(g);
    assert_int_equal(values.n_tokens, g->n_tokens);
    return values.loss_sum / (double)values.n_tokens;
}

static double evaluate(golden *g)
{
    yk_step_begin_args begin = {.values = g->values};
    assert_int_equal(yk_step_begin(g->s.stream, &begin), YK_OK);
    assert_int_equal(yk_pass_begin(g->pass, YK_PASS_EVALUATE, &g->batch, 0.0f, NULL, NULL), YK_OK);
    forward(g);
    yk_pass_end(g->pass);
    yk_step_values values = values_now(g);
    return values.loss_sum / (double)values.n_tokens;
}

/* ---- what is compared --------------------------------------------------------------------- */

static void expect_near(double got, double want, const char *what)
{
    if (!(fabs(got - want) <= BOUND * fabs(want)))
        fail_msg("%s is %.9g, not %.9g", what, got, want);
}

/* Our gradient of a tensor, in the file's layout, of the mean over unmasked targets. */
static double *gradient_of(golden *g, const yk_hf_tensor *t)
{
    int64_t cols = yk_hf_cols(t);
    double factor = (double)g->rows / (double)g->n_tokens;
    float *ours = stored_get(&g->s, YK_STORE_GRAD, t->param);
    double *file = calloc((size_t)(t->shape[0] * t->shape[1]), sizeof *file);
    for (int64_t i = 0; i < t->shape[0]; i++) {
        for (int64_t k = 0; k < t->shape[1]; k++) {
            int64_t r = t->transposed ? k : i, c = t->transposed ? i : k;
            file[i * t->shape[1] + k] = factor * (double)ours[(t->row + r) * cols + c];
        }
    }
    free(ours);
    return file;
}

static double expect_gradients(golden *g)
{
    yk_hf_tensor *tensors;
    int n;
    double worst = 0;
    assert_int_equal(yk_hf_tensors_create(g->s.model, &tensors, &n), YK_OK);
    for (int i = 0; i < n; i++) {
        char name[YK_HF_NAME_MAX + 8];
        int64_t count = tensors[i].shape[0] * tensors[i].shape[1];
        snprintf(name, sizeof name, "grad.%s", tensors[i].name);
        double *got = gradient_of(g, &tensors[i]), *want = expected(g, name, count);
        double distance = values_distance(got, want, count);
        if (!(distance <= BOUND)) fail_msg("%s: %s is off by %g", g->dir, name, distance);
        worst = fmax(worst, distance);
        free(got);
        free(want);
    }
    free(tensors);
    return worst;
}

/* The loss of each target, from the expected logits. */
static double *losses_of_logits(const golden *g)
{
    int64_t vocab = yk_model_get_shape(g->s.model)->vocab;
    const int32_t *targets = find(g->inputs, "targets", g->rows)->data;
    double *logits = expected(g, "logits", g->rows * vocab);
    double *losses = calloc((size_t)g->rows, sizeof *losses);
    for (int64_t r = 0; r < g->rows; r++) {
        double max = -INFINITY, sum = 0;
        for (int64_t v = 0; v < vocab; v++) max = fmax(max, logits[r * vocab + v]);
        for (int64_t v = 0; v < vocab; v++) sum += exp(logits[r * vocab + v] - max);
        if (targets[r] >= 0) losses[r] = max + log(sum) - logits[r * vocab + targets[r]];
    }
    free(logits);
    return losses;
}

/* Each target's loss, their mean in training and evaluation, and every gradient. */
static double expect_pass(golden *g)
{
    double *loss = expected(g, "loss", 1), *want = losses_of_logits(g);
    double *losses = calloc((size_t)g->rows, sizeof *losses);
    expect_near(train_pass(g, losses), loss[0], "the loss in training");
    double distance = values_distance(losses, want, g->rows);
    if (!(distance <= BOUND)) fail_msg("%s: losses are off by %g", g->dir, distance);
    double worst = expect_gradients(g);
    expect_near(evaluate(g), loss[0], "the loss in evaluation");
    free(loss);
    free(losses);
    free(want);
    return worst;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void losses_and_gradients_are_pytorchs(void **state)
{
    (void)state;
    for (int i = 0; i < N_FOLDERS; i++) {
        golden g;
        golden_open(&g, i);
        for (int policy = YK_RECOMPUTE_NONE; policy <= YK_RECOMPUTE_BLOCK; policy++) {
            make_pass(&g, (yk_recompute)policy, g.rows);
            double whole = expect_pass(&g);
            make_pass(&g, (yk_recompute)policy, 10);
            double chunks = expect_pass(&g);
            print_message("%s: gradients off by %.1e, with a chunked head %.1e\n", g.dir, whole,
                          chunks);
        }
        golden_close(&g);
    }
}

/* Run `n` tokens after the `past` that are in the cache; logits (V) are those of the last. */
static void generate(golden *g, yk_kv_cache *cache, void *device_logits, const int32_t *positions,
                     const int32_t *tokens, int64_t n, float *logits)
{
    int64_t bytes = yk_model_get_shape(g->s.model)->vocab_rows * 4;
    int mark = yk_arena_mark(g->s.memory);
    yk_batch batch = {.tokens = stored_push(&g->s, tokens, n * 4),
                      .positions = stored_push(&g->s, positions + cache->past, n * 4),
                      .batch = 1,
                      .seq_len = n};
    assert_int_equal(yk_pass_begin(g->pass, YK_PASS_GENERATE, &batch, 0.0f, cache, device_logits),
                     YK_OK);
    forward(g);
    yk_pass_end(g->pass);
    yk_arena_pop(g->s.memory, mark);
    cache->past += n;
    assert_int_equal(yk_copy(g->s.stream, logits, device_logits, bytes, YK_COPY_DEVICE_TO_HOST),
                     YK_OK);
    assert_int_equal(yk_stream_synchronize(g->s.stream), YK_OK);
}

/* Logits of every position of the batch: each time the text from its beginning, or one token after
 * the other over the cache. */
static void expect_logits(golden *g, bool from_beginning)
{
    const yk_model_shape *s = yk_model_get_shape(g->s.model);
    int64_t t = g->batch.seq_len, row = t * s->kv_heads * s->head_size * 4;
    void *k[8], *v[8];
    yk_kv_cache cache = {.k = k, .v = v, .capacity = t};
    float *zeros = calloc((size_t)(row + s->vocab_rows * 4), 1);
    for (int64_t l = 0; l < s->layers; l++) {
        k[l] = stored_push(&g->s, zeros, row);
        v[l] = stored_push(&g->s, zeros, row);
    }
    void *device_logits = stored_push(&g->s, zeros, s->vocab_rows * 4);
    int32_t *positions = calloc((size_t)t, sizeof *positions);
    for (int64_t i = 0; i < t; i++) positions[i] = (int32_t)i;

    double *want = expected(g, "logits", g->rows * s->vocab);
    double *got = calloc((size_t)(g->rows * s->vocab), sizeof *got);
    float *logits = calloc((size_t)s->vocab_rows, sizeof *logits);
    for (int64_t r = 0; r < g->rows; r++) {
        const int32_t *text = g->tokens + r / t * t;
        if (from_beginning || r % t == 0) cache.past = 0;
        generate(g, &cache, device_logits, positions, text + cache.past, r % t + 1 - cache.past,
                 logits);
        for (int64_t i = 0; i < s->vocab; i++) got[r * s->vocab + i] = (double)logits[i];
    }
    double distance = values_distance(got, want, g->rows * s->vocab);
    print_message("%s: logits off by %.1e\n", g->dir, distance);
    if (!(distance <= BOUND)) fail_msg("off by %g", distance);
    free(zeros);
    free(positions);
    free(want);
    free(got);
    free(logits);
}

static void logits_are_pytorchs(void **state)
{
    (void)state;
    for (int i = 0; i < N_FOLDERS; i++) {
        golden g;
        golden_open(&g, i);
        expect_logits(&g, true);
        expect_logits(&g, false);
        golden_close(&g);
    }
}

static void update(golden *g)
{
    yk_step_finish_args finish = {.values = g->values,
                                  .expected_tokens = (double)g->rows,
                                  .clip = 1.0f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f};
    yk_adamw_options adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
    assert_int_equal(yk_store_sum_squares(g->s.store, g->s.stream, g->values), YK_OK);
    assert_int_equal(yk_step_finish(g->s.stream, &finish), YK_OK);
    assert_int_equal(yk_store_update(g->s.store, g->s.stream, &adamw, g->values), YK_OK);
}

static void losses_of_twenty_steps_are_pytorchs(void **state)
{
    (void)state;
    for (int i = 0; i < N_FOLDERS; i++) {
        golden g;
        golden_open(&g, i);
        double *losses = expected(&g, "losses", STEPS), worst = 0;
        for (int step = 0; step < STEPS; step++) {
            double loss = train_pass(&g, NULL);
            expect_near(loss, losses[step], "the loss of a step");
            worst = fmax(worst, fabs(loss / losses[step] - 1));
            update(&g);
        }
        print_message("%s: losses %.4f to %.4f, off by %.1e\n", g.dir, losses[0], losses[STEPS - 1],
                      worst);
        free(losses);
        golden_close(&g);
    }
}

int main(void)
{
    if (stored_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_are_pytorchs),
        cmocka_unit_test(logits_are_pytorchs),
        cmocka_unit_test(losses_of_twenty_steps_are_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
