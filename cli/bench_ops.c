/* cli/bench_ops.c - every operation of a training step, at the sizes of a
 * model.
 *
 * Legend: R rows = batch * seq_len, C width, F feed-forward width, V columns of
 * the logits. Weights and activations are of b->dtype, gradients too; master
 * weights and moments fp32.
 */
#include <math.h>
#include <stdio.h>

#include "cli/bench.h"
#include "runtime/base/arith.h"

#define SETS YK_BENCH_MAX_SETS

/* An operation as a yk_bench_fn. */
#define RUNNER(op)                                                                                 \
    static yk_status run_##op(yk_stream *s, const void *a)                                         \
    {                                                                                              \
        return yk_##op(s, a);                                                                      \
    }
RUNNER(embed_forward)
RUNNER(embed_backward)
RUNNER(norm_forward)
RUNNER(norm_backward)
RUNNER(linear_forward)
RUNNER(linear_backward_input)
RUNNER(linear_backward_weight)
RUNNER(rope)
RUNNER(attention_forward)
RUNNER(attention_backward)
RUNNER(swiglu_forward)
RUNNER(swiglu_backward)
RUNNER(cross_entropy)
RUNNER(loss_sum)
RUNNER(sum_squares)
RUNNER(adamw)
RUNNER(draw_normal)
RUNNER(cast)

typedef struct copy_args {
    void *dst;
    const void *src;
    int64_t bytes;
} copy_args;

static yk_status run_copy(yk_stream *s, const void *args)
{
    const copy_args *a = args;
    return yk_copy(s, a->dst, a->src, a->bytes, YK_COPY_DEVICE);
}

static yk_status run_zero(yk_stream *s, const void *args)
{
    const copy_args *a = args;
    return yk_zero(s, a->dst, a->bytes);
}

static bool is_gpt2(const yk_bench *b)
{
    return b->shape.family == YK_FAMILY_GPT2;
}

static int64_t rows_of(const yk_bench *b)
{
    return b->batch * b->seq_len;
}

/* ---- ceilings ----------------------------------------------------------------------------- */

static yk_status bench_moving(yk_bench *b)
{
    copy_args a[1];
    int64_t most = INT64_C(256) << (yk_device_get_kind(b->device) == YK_DEVICE_CPU ? 20 : 23);
    int64_t bytes = yk_min(most, (b->memory_bytes - b->workspace_bytes) / 4);
    char size[48];
    snprintf(size, sizeof size, "%lld MiB", (long long)(bytes >> 20));
    a[0] = (copy_args){.dst = yk_bench_space(b, YK_F32, bytes / 4),
                       .src = yk_bench_random(b, YK_F32, bytes / 4),
                       .bytes = bytes};
    yk_cost copied = {.kind = YK_COST_MEMORY, .dtype = YK_F32, .bytes = 2.0 * (double)bytes};
    YK_TRY(yk_bench_run(b, "copy", size, run_copy, a, sizeof *a, 1, copied));
    b->memory_rate = copied.bytes / b->rows[b->n_rows - 1].low;
    yk_cost zeroed = {.kind = YK_COST_MEMORY, .dtype = YK_F32, .bytes = (double)bytes};
    return yk_bench_run(b, "zero", size, run_zero, a, sizeof *a, 1, zeroed);
}

static yk_status bench_square(yk_bench *b)
{
    int64_t n = yk_device_get_kind(b->device) == YK_DEVICE_CPU ? 1024 : 8192;
    char size[48];
    snprintf(size, sizeof size, "M=N=K=%lld", (long long)n);
    yk_linear_forward_args a = {.y = yk_bench_space(b, b->dtype, n * n),
                                .x = yk_bench_random(b, b->dtype, n * n),
                                .w = yk_bench_random(b, b->dtype, n * n),
                                .m = n,
                                .n = n,
                                .k = n,
                                .dtype = b->dtype};
    yk_cost cost = yk_linear_forward_cost(&a);
    YK_TRY(yk_bench_run(b, "product", size, run_linear_forward, &a, sizeof a, 1, cost));
    b->matmul_rate = cost.flops / b->rows[b->n_rows - 1].low;
    return YK_OK;
}

/* ---- embedding and norms ------------------------------------------------------------------ */

static yk_status bench_embed(yk_bench *b)
{
    int64_t rows = rows_of(b), cols = b->shape.width, vocab = b->shape.vocab_rows;
    char size[48];
    snprintf(size, sizeof size, "R=%lld C=%lld V=%lld", (long long)rows, (long long)cols,
             (long long)vocab);
    yk_embed_forward_args f = {.y = yk_bench_space(b, b->dtype, rows * cols),
                               .wte = yk_bench_random(b, b->dtype, vocab * cols),
                               .tokens = yk_bench_indices(b, rows, b->shape.vocab),
                               .positions = yk_bench_positions(b, rows, b->seq_len),
                               .rows = rows,
                               .cols = cols,
                               .vocab = vocab,
                               .max_positions = b->seq_len,
                               .dtype = b->dtype};
    if (is_gpt2(b)) f.wpe = yk_bench_random(b, b->dtype, b->seq_len * cols);
    YK_TRY(yk_bench_run(b, "embed_forward", size, run_embed_forward, &f, sizeof f, 1,
                        yk_embed_forward_cost(&f)));
    yk_embed_backward_args g = {.dwte = yk_bench_space(b, b->dtype, vocab * cols),
                                .dy = yk_bench_random(b, b->dtype, rows * cols),
                                .tokens = yk_bench_indices(b, rows, b->shape.vocab),
                                .positions = yk_bench_positions(b, rows, b->seq_len),
                                .rows = rows,
                                .cols = cols,
                                .vocab = vocab,
                                .max_positions = b->seq_len,
                                .dtype = b->dtype,
                                .grad_dtype = b->dtype};
    if (is_gpt2(b)) g.dwpe = yk_bench_space(b, b->dtype, b->seq_len * cols);
    return yk_bench_run(b, "embed_backward", size, run_embed_backward, &g, sizeof g, 1,
                        yk_embed_backward_cost(&g));
}

static yk_status bench_norm(yk_bench *b)
{
    int64_t rows = rows_of(b), cols = b->shape.width, n = rows * cols;
    bool layer = is_gpt2(b);
    yk_norm_forward_args f[SETS];
    yk_norm_backward_args g[SETS];
    char size[48];
    snprintf(size, sizeof size, "R=%lld C=%lld", (long long)rows, (long long)cols);
    int sets = yk_bench_sets(b, 2 * n * yk_dtype_bytes(b->dtype));
    for (int i = 0; i < sets; i++)
        f[i] = (yk_norm_forward_args){.y = yk_bench_space(b, b->dtype, n),
                                      .mean = layer ? yk_bench_space(b, YK_F32, rows) : NULL,
                                      .rstd = yk_bench_space(b, YK_F32, rows),
                                      .x = yk_bench_random(b, b->dtype, n),
                                      .weight = yk_bench_random(b, b->dtype, cols),
                                      .bias = layer ? yk_bench_random(b, b->dtype, cols) : NULL,
                                      .rows = rows,
                                      .cols = cols,
                                      .eps = 1e-5f,
                                      .kind = layer ? YK_NORM_LAYER : YK_NORM_RMS,
                                      .dtype = b->dtype};
    YK_TRY(yk_bench_run(b, "norm_forward", size, run_norm_forward, f, sizeof *f, sets,
                        yk_norm_forward_cost(f)));
    sets = yk_bench_sets(b, 4 * n * yk_dtype_bytes(b->dtype));
    for (int i = 0; i < sets; i++)
        g[i] = (yk_norm_backward_args){.dx = yk_bench_space(b, b->dtype, n),
                                       .dweight = yk_bench_space(b, b->dtype, cols),
                                       .dbias = layer ? yk_bench_space(b, b->dtype, cols) : NULL,
                                       .dy = yk_bench_random(b, b->dtype, n),
                                       .add = yk_bench_random(b, b->dtype, n),
                                       .x = yk_bench_random(b, b->dtype, n),
                                       .weight = yk_bench_random(b, b->dtype, cols),
                                       .mean = layer ? yk_bench_random(b, YK_F32, rows) : NULL,
                                       .rstd = yk_bench_random(b, YK_F32, rows),
                                       .rows = rows,
                                       .cols = cols,
                                       .kind = layer ? YK_NORM_LAYER : YK_NORM_RMS,
                                       .dtype = b->dtype,
                                       .grad_dtype = b->dtype};
    int64_t kept = b->used;
    YK_TRY(yk_bench_run(b, "norm_backward", size, run_norm_backward, g, sizeof *g, sets,
                        yk_norm_backward_cost(g)));
    if (!layer) return YK_OK; /* no product beside it has a bias */
    b->used = kept;
    for (int i = 0; i < sets; i++) {
        g[i].dx_sum = yk_bench_space(b, b->dtype, cols);
        g[i].add_sum = yk_bench_space(b, b->dtype, cols);
    }
    return yk_bench_run(b, "norm_backward sums", size, run_norm_backward, g, sizeof *g, sets,
                        yk_norm_backward_cost(g));
}

/* ---- linear layers ------------------------------------------------------------------------ */

typedef struct layer {
    const char *name;
    int64_t n, k;
    bool bias, residual, gelu; /* gelu: forward applies it */
    bool after_gelu;           /* its input was made by GELU */
} layer;

static yk_status bench_forward(yk_bench *b, const layer *l, const char *size)
{
    int64_t m = rows_of(b);
    yk_linear_forward_args a[SETS];
    char name[32];
    snprintf(name, sizeof name, "%s forward", l->name);
    int sets = yk_bench_sets(b, m * (l->n + l->k) * yk_dtype_bytes(b->dtype));
    for (int i = 0; i < sets; i++)
        a[i] = (yk_linear_forward_args){
            .y = yk_bench_space(b, b->dtype, m * l->n),
            .z = l->gelu ? yk_bench_space(b, b->dtype, m * l->n) : NULL,
            .x = yk_bench_random(b, b->dtype, m * l->k),
            .w = yk_bench_random(b, b->dtype, l->n * l->k),
            .bias = l->bias ? yk_bench_random(b, b->dtype, l->n) : NULL,
            .residual = l->residual ? yk_bench_random(b, b->dtype, m * l->n) : NULL,
            .m = m,
            .n = l->n,
            .k = l->k,
            .gelu = l->gelu,
            .dtype = b->dtype};
    return yk_bench_run(b, name, size, run_linear_forward, a, sizeof *a, sets,
                        yk_linear_forward_cost(a));
}

static yk_status bench_backward(yk_bench *b, const layer *l, const char *size)
{
    int64_t m = rows_of(b);
    yk_linear_backward_input_args x[SETS];
    yk_linear_backward_weight_args w[SETS];
    char name[32];
    int sets = yk_bench_sets(b, m * (l->n + l->k) * yk_dtype_bytes(b->dtype));
    for (int i = 0; i < sets; i++)
        x[i] = (yk_linear_backward_input_args){
            .dx = yk_bench_space(b, b->dtype, m * l->k),
            .dy = yk_bench_random(b, b->dtype, m * l->n),
            .w = yk_bench_random(b, b->dtype, l->n * l->k),
            .dbias = l->after_gelu ? yk_bench_space(b, b->dtype, l->k) : NULL,
            .z = l->after_gelu ? yk_bench_random(b, b->dtype, m * l->k) : NULL,
            .m = m,
            .n = l->n,
            .k = l->k,
            .dtype = b->dtype,
            .grad_dtype = b->dtype};
    snprintf(name, sizeof name, "%s input", l->name);
    YK_TRY(yk_bench_run(b, name, size, run_linear_backward_input, x, sizeof *x, sets,
                        yk_linear_backward_input_cost(x)));
    for (int way = 0; way < (l->bias ? 3 : 1); way++) {
        static const char *const ways[] = {"weight", "weight bias", "weight bias +="};
        for (int i = 0; i < sets; i++)
            w[i] = (yk_linear_backward_weight_args){.dw = yk_bench_space(b, b->dtype, l->n * l->k),
                                                    .dbias = way ? yk_bench_space(b, b->dtype, l->n)
                                                                 : NULL,
                                                    .x = yk_bench_random(b, b->dtype, m * l->k),
                                                    .dy = yk_bench_random(b, b->dtype, m * l->n),
                                                    .m = m,
                                                    .n = l->n,
                                                    .k = l->k,
                                                    .accumulate = way == 2,
                                                    .dtype = b->dtype,
                                                    .grad_dtype = b->dtype};
        snprintf(name, sizeof name, "%s %s", l->name, ways[way]);
        YK_TRY(yk_bench_run(b, name, size, run_linear_backward_weight, w, sizeof *w, sets,
                            yk_linear_backward_weight_cost(w)));
    }
    return YK_OK;
}

static yk_status bench_layers(yk_bench *b)
{
    const yk_model_shape *s = &b->shape;
    bool gpt2 = is_gpt2(b);
    int64_t heads_width = s->heads * s->head_size;
    const layer layers[] = {
        {.name = "qkv",
         .n = heads_width + 2 * s->kv_heads * s->head_size,
         .k = s->width,
         .bias = s->family != YK_FAMILY_LLAMA},
        {.name = "attention out", .n = s->width, .k = heads_width, .bias = gpt2, .residual = true},
        {.name = "up", .n = gpt2 ? s->ffn : 2 * s->ffn, .k = s->width, .bias = gpt2, .gelu = gpt2},
        {.name = "down",
         .n = s->width,
         .k = s->ffn,
         .bias = gpt2,
         .residual = true,
         .after_gelu = gpt2},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char size[48];
        snprintf(size, sizeof size, "M=%lld N=%lld K=%lld", (long long)rows_of(b),
                 (long long)layers[i].n, (long long)layers[i].k);
        YK_TRY(bench_forward(b, &layers[i], size));
        YK_TRY(bench_backward(b, &layers[i], size));
    }
    return YK_OK;
}

/* ---- attention ---------------------------------------------------------------------------- */

static yk_status bench_rope(yk_bench *b)
{
    const yk_model_shape *s = &b->shape;
    int64_t rows = rows_of(b), width = (s->heads + 2 * s->kv_heads) * s->head_size;
    yk_rope_args a[SETS];
    char size[48];
    snprintf(size, sizeof size, "R=%lld H=%lld G=%lld D=%lld", (long long)rows, (long long)s->heads,
             (long long)s->kv_heads, (long long)s->head_size);
    int sets = yk_bench_sets(b, rows * width * yk_dtype_bytes(b->dtype));
    for (int i = 0; i < sets; i++)
        a[i] = (yk_rope_args){.qkv = yk_bench_random(b, b->dtype, rows * width),
                              .cos = yk_bench_random(b, YK_F32, b->seq_len * s->head_size / 2),
                              .sin = yk_bench_random(b, YK_F32, b->seq_len * s->head_size / 2),
                              .positions = yk_bench_positions(b, rows, b->seq_len),
                              .rows = rows,
                              .heads = s->heads,
                              .kv_heads = s->kv_heads,
                              .head_size = s->head_size,
                              .max_positions = b->seq_len,
                              .dtype = b->dtype};
    int64_t kept = b->used;
    YK_TRY(yk_bench_run(b, "rope", size, run_rope, a, sizeof *a, sets, yk_rope_cost(a)));
    if (s->family != YK_FAMILY_QWEN2) return YK_OK; /* its product has no bias */
    b->used = kept;
    for (int i = 0; i < sets; i++) {
        a[i].qkv_sum = yk_bench_space(b, b->dtype, width);
        a[i].inverse = true;
        a[i].grad_dtype = b->dtype;
    }
    return yk_bench_run(b, "rope sums", size, run_rope, a, sizeof *a, sets, yk_rope_cost(a));
}

static yk_status bench_attention(yk_bench *b)
{
    const yk_model_shape *s = &b->shape;
    int64_t rows = rows_of(b), width = s->heads * s->head_size;
    int64_t qkv_width = width + 2 * s->kv_heads * s->head_size;
    char size[48];
    snprintf(size, sizeof size, "B=%lld T=%lld H=%lld G=%lld D=%lld", (long long)b->batch,
             (long long)b->seq_len, (long long)s->heads, (long long)s->kv_heads,
             (long long)s->head_size);
    float scale = 1 / sqrtf((float)s->head_size);
    void *qkv = yk_bench_random(b, b->dtype, rows * qkv_width);
    void *y = yk_bench_space(b, b->dtype, rows * width);
    float *lse = yk_bench_space(b, YK_F32, rows * s->heads);
    yk_attention_forward_args f = {.y = y,
                                   .lse = lse,
                                   .qkv = qkv,
                                   .batch = b->batch,
                                   .seq_len = b->seq_len,
                                   .heads = s->heads,
                                   .kv_heads = s->kv_heads,
                                   .head_size = s->head_size,
                                   .scale = scale,
                                   .dtype = b->dtype};
    int64_t kept = b->used;
    YK_TRY(yk_bench_run(b, "attention_forward", size, run_attention_forward, &f, sizeof f, 1,
                        yk_attention_forward_cost(&f)));
    b->used = kept; /* qkv, y and lse belong together */
    yk_attention_backward_args g = {.dqkv = yk_bench_space(b, b->dtype, rows * qkv_width),
                                    .dy = yk_bench_random(b, b->dtype, rows * width),
                                    .y = y,
                                    .lse = lse,
                                    .qkv = qkv,
                                    .batch = b->batch,
                                    .seq_len = b->seq_len,
                                    .heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .head_size = s->head_size,
                                    .scale = scale,
                                    .dtype = b->dtype};
    return yk_bench_run(b, "attention_backward", size, run_attention_backward, &g, sizeof g, 1,
                        yk_attention_backward_cost(&g));
}

/* ---- activations and loss ----------------------------------------------------------------- */

static yk_status bench_activation(yk_bench *b)
{
    if (is_gpt2(b)) return YK_OK; /* GELU belongs to its products */
    int64_t rows = rows_of(b), cols = b->shape.ffn, n = rows * cols;
    char size[48];
    snprintf(size, sizeof size, "R=%lld F=%lld", (long long)rows, (long long)cols);
    yk_swiglu_forward_args f = {.y = yk_bench_space(b, b->dtype, n),
                                .gate_up = yk_bench_random(b, b->dtype, 2 * n),
                                .rows = rows,
                                .cols = cols,
                                .dtype = b->dtype};
    YK_TRY(yk_bench_run(b, "swiglu_forward", size, run_swiglu_forward, &f, sizeof f, 1,
                        yk_swiglu_forward_cost(&f)));
    yk_swiglu_backward_args g = {.dgate_up = yk_bench_space(b, b->dtype, 2 * n),
                                 .dy = yk_bench_random(b, b->dtype, n),
                                 .gate_up = yk_bench_random(b, b->dtype, 2 * n),
                                 .rows = rows,
                                 .cols = cols,
                                 .dtype = b->dtype};
    return yk_bench_run(b, "swiglu_backward", size, run_swiglu_backward, &g, sizeof g, 1,
                        yk_swiglu_backward_cost(&g));
}

static yk_status bench_loss(yk_bench *b)
{
    int64_t rows = yk_min(rows_of(b), 8192), vocab = b->shape.vocab, stride = b->shape.vocab_rows;
    char size[48];
    snprintf(size, sizeof size, "R=%lld V=%lld", (long long)rows, (long long)stride);
    yk_cross_entropy_args a = {.losses = yk_bench_space(b, YK_F32, rows),
                               .logits = yk_bench_random(b, b->dtype, rows * stride),
                               .targets = yk_bench_indices(b, rows, vocab),
                               .values = b->values,
                               .rows = rows,
                               .vocab = vocab,
                               .stride = stride,
                               .scale = 1.0f,
                               .backward = true,
                               .dtype = b->dtype};
    YK_TRY(yk_bench_run(b, "cross_entropy", size, run_cross_entropy, &a, sizeof a, 1,
                        yk_cross_entropy_cost(&a)));
    yk_loss_sum_args l = {.values = b->values,
                          .losses = yk_bench_random(b, YK_F32, rows_of(b)),
                          .targets = yk_bench_indices(b, rows_of(b), vocab),
                          .rows = rows_of(b)};
    return yk_bench_run(b, "loss_sum", "", run_loss_sum, &l, sizeof l, 1, yk_loss_sum_cost(&l));
}

/* ---- the optimiser ------------------------------------------------------------------------ */

static yk_status bench_step(yk_bench *b)
{
    int64_t n = yk_min(yk_model_shape_count(&b->shape), INT64_C(200000000));
    char size[48];
    snprintf(size, sizeof size, "n=%lld", (long long)n);
    void *grad = yk_bench_random(b, b->dtype, n), *param = yk_bench_space(b, b->dtype, n);
    float *master = yk_bench_random(b, YK_F32, n), *m = yk_bench_random(b, YK_F32, n);
    float *v = yk_bench_space(b, YK_F32, n);
    int64_t kept = b->used;
    if (v) YK_TRY(yk_zero(b->stream, v, n * 4));
    yk_adamw_args a = {.param = param,
                       .master = master,
                       .m = m,
                       .v = v,
                       .grad = grad,
                       .values = b->values,
                       .n = n,
                       .beta1 = 0.9f,
                       .beta2 = 0.95f,
                       .eps = 1e-8f,
                       .weight_decay = 0.1f,
                       .dtype = b->dtype,
                       .grad_dtype = b->dtype};
    YK_TRY(yk_bench_run(b, "adamw", size, run_adamw, &a, sizeof a, 1, yk_adamw_cost(&a)));
    if (b->dtype == YK_BF16) { /* all in bf16, and what the model reads updated in place */
        a.param = NULL;
        a.master = param;
        a.m = yk_bench_random(b, YK_BF16, n);
        if (v) YK_TRY(yk_zero(b->stream, v, n * 2)); /* halves of fp32 numbers are NaNs, too */
        a.master_dtype = a.moments_dtype = YK_BF16;
        YK_TRY(yk_bench_run(b, "adamw bf16 states", size, run_adamw, &a, sizeof a, 1,
                            yk_adamw_cost(&a)));
    }
    b->used = kept;
    const yk_squares_run run = {grad, n};
    yk_sum_squares_args q = {.values = b->values,
                             .runs = &run,
                             .n_runs = 1,
                             .piece = INT64_C(1) << 23,
                             .dtype = b->dtype};
    YK_TRY(yk_bench_run(b, "sum_squares", size, run_sum_squares, &q, sizeof q, 1,
                        yk_sum_squares_cost(&q)));
    b->used = kept;
    yk_draw_normal_args w = {.dst = param, .n = n, .normal = {.deviation = 1}, .dtype = b->dtype};
    int rows = b->n_rows;
    YK_TRY(yk_bench_run(b, "draw_normal", size, run_draw_normal, &w, sizeof w, 1,
                        yk_draw_normal_cost(&w)));
    if (b->n_rows > rows) b->rows[rows].no_limit = true; /* arithmetic on integers */
    b->used = kept;
    yk_cast_args c = {
        .dst = param, .src = master, .n = n, .dst_dtype = b->dtype, .src_dtype = YK_F32};
    return yk_bench_run(b, "cast from fp32", size, run_cast, &c, sizeof c, 1, yk_cast_cost(&c));
}

yk_status yk_bench_ops(yk_bench *b)
{
    YK_TRY(bench_moving(b));
    YK_TRY(bench_square(b));
    YK_TRY(bench_embed(b));
    YK_TRY(bench_norm(b));
    YK_TRY(bench_layers(b));
    if (!is_gpt2(b)) YK_TRY(bench_rope(b));
    YK_TRY(bench_attention(b));
    YK_TRY(bench_activation(b));
    YK_TRY(bench_loss(b));
    YK_TRY(bench_step(b));
    return yk_bench_wire(b);
}
