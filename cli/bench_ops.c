/* cli/bench_ops.c - the operations of a training step's passes, at the sizes of a model, and what
 * generation has beside them. Those of the update are in bench_update.c.
 *
 * Legend: R rows = batch * seq_len, C width, F feed-forward width, V columns of the logits. Weights
 * and activations are of b->dtype, gradients too.
 */
#include <math.h>
#include <stdio.h>

#include "cli/bench.h"
#include "runtime/base/arith.h"

#define SETS YK_BENCH_MAX_SETS

YK_BENCH_RUNNER(embed_forward)
YK_BENCH_RUNNER(embed_backward)
YK_BENCH_RUNNER(norm_forward)
YK_BENCH_RUNNER(norm_backward)
YK_BENCH_RUNNER(linear_forward)
YK_BENCH_RUNNER(linear_backward_input)
YK_BENCH_RUNNER(linear_backward_weight)
YK_BENCH_RUNNER(rope)
YK_BENCH_RUNNER(attention_forward)
YK_BENCH_RUNNER(attention_backward)
YK_BENCH_RUNNER(attention_cached)
YK_BENCH_RUNNER(swiglu_forward)
YK_BENCH_RUNNER(swiglu_backward)
YK_BENCH_RUNNER(cross_entropy)
YK_BENCH_RUNNER(loss_sum)

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
    YK_TRY(yk_bench_run(b, "embed_backward", size, run_embed_backward, &g, sizeof g, 1,
                        yk_embed_backward_cost(&g)));
    g.accumulate_wte = true; /* on the head's gradient, where both are one matrix */
    return yk_bench_run(b, "embed_backward tied", size, run_embed_backward, &g, sizeof g, 1,
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

static yk_status bench_forward(yk_bench *b, const layer *l, bool gelu, const char *size)
{
    int64_t m = rows_of(b);
    yk_linear_forward_args a[SETS];
    char name[32];
    snprintf(name, sizeof name, "%s forward%s", l->name, l->gelu && !gelu ? " no gelu" : "");
    int sets = yk_bench_sets(b, m * (l->n + l->k) * yk_dtype_bytes(b->dtype));
    for (int i = 0; i < sets; i++)
        a[i] = (yk_linear_forward_args){
            .y = yk_bench_space(b, b->dtype, m * l->n),
            .z = gelu ? yk_bench_space(b, b->dtype, m * l->n) : NULL,
            .x = yk_bench_random(b, b->dtype, m * l->k),
            .w = yk_bench_random(b, b->dtype, l->n * l->k),
            .bias = l->bias ? yk_bench_random(b, b->dtype, l->n) : NULL,
            .residual = l->residual ? yk_bench_random(b, b->dtype, m * l->n) : NULL,
            .m = m,
            .n = l->n,
            .k = l->k,
            .gelu = gelu,
            .dtype = b->dtype};
    return yk_bench_run(b, name, size, run_linear_forward, a, sizeof *a, sets,
                        yk_linear_forward_cost(a));
}

static yk_status bench_input(yk_bench *b, const layer *l, bool gelu, const char *size)
{
    int64_t m = rows_of(b);
    yk_linear_backward_input_args x[SETS];
    char name[32];
    snprintf(name, sizeof name, "%s input%s", l->name, l->after_gelu && !gelu ? " no gelu" : "");
    int sets = yk_bench_sets(b, m * (l->n + l->k) * yk_dtype_bytes(b->dtype));
    for (int i = 0; i < sets; i++)
        x[i] = (yk_linear_backward_input_args){
            .dx = yk_bench_space(b, b->dtype, m * l->k),
            .dy = yk_bench_random(b, b->dtype, m * l->n),
            .w = yk_bench_random(b, b->dtype, l->n * l->k),
            .dbias = gelu ? yk_bench_space(b, b->dtype, l->k) : NULL,
            .z = gelu ? yk_bench_random(b, b->dtype, m * l->k) : NULL,
            .m = m,
            .n = l->n,
            .k = l->k,
            .dtype = b->dtype,
            .grad_dtype = b->dtype};
    return yk_bench_run(b, name, size, run_linear_backward_input, x, sizeof *x, sets,
                        yk_linear_backward_input_cost(x));
}

typedef struct weight_way {
    const char *name;
    bool weight, bias, accumulate;
} weight_way;

static yk_status bench_weight(yk_bench *b, const layer *l, weight_way way, const char *size)
{
    int64_t m = rows_of(b), k = way.weight ? l->k : 0;
    yk_linear_backward_weight_args w[SETS];
    char name[32], sums[48];
    snprintf(name, sizeof name, "%s %s", l->name, way.name);
    snprintf(sums, sizeof sums, "M=%lld N=%lld", (long long)m, (long long)l->n);
    int sets = yk_bench_sets(b, m * (l->n + k) * yk_dtype_bytes(b->dtype));
    for (int i = 0; i < sets; i++)
        w[i] = (yk_linear_backward_weight_args){
            .dw = way.weight ? yk_bench_space(b, b->dtype, l->n * k) : NULL,
            .dbias = way.bias ? yk_bench_space(b, b->dtype, l->n) : NULL,
            .x = way.weight ? yk_bench_random(b, b->dtype, m * k) : NULL,
            .dy = yk_bench_random(b, b->dtype, m * l->n),
            .m = m,
            .n = l->n,
            .k = k,
            .accumulate = way.accumulate,
            .dtype = b->dtype,
            .grad_dtype = b->dtype};
    return yk_bench_run(b, name, way.weight ? size : sums, run_linear_backward_weight, w, sizeof *w,
                        sets, yk_linear_backward_weight_cost(w));
}

static yk_status bench_layer(yk_bench *b, const layer *l)
{
    static const weight_way ways[] = {{"weight", true, false, false},
                                      {"weight bias", true, true, false},
                                      {"weight bias +=", true, true, true},
                                      {"bias alone", false, true, false}};
    char size[48];
    snprintf(size, sizeof size, "M=%lld N=%lld K=%lld", (long long)rows_of(b), (long long)l->n,
             (long long)l->k);
    YK_TRY(bench_forward(b, l, l->gelu, size));
    if (l->gelu) YK_TRY(bench_forward(b, l, false, size));
    YK_TRY(bench_input(b, l, l->after_gelu, size));
    if (l->after_gelu) YK_TRY(bench_input(b, l, false, size));
    for (int i = 0; i < (l->bias ? 4 : 1); i++) YK_TRY(bench_weight(b, l, ways[i], size));
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
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) YK_TRY(bench_layer(b, &layers[i]));
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

/* Of generation: a prompt, and the token behind it. */
static yk_status bench_cached(yk_bench *b)
{
    const yk_model_shape *s = &b->shape;
    int64_t width = s->heads * s->head_size, kv_width = s->kv_heads * s->head_size;
    for (int token = 0; token < 2; token++) {
        int64_t n = token ? 1 : b->seq_len, caches = b->batch * (b->seq_len + 1) * kv_width;
        char size[48];
        snprintf(size, sizeof size, "B=%lld T=%lld past=%lld", (long long)b->batch, (long long)n,
                 (long long)(token ? b->seq_len : 0));
        yk_attention_cached_args a = {
            .y = yk_bench_space(b, b->dtype, b->batch * n * width),
            .k_cache = yk_bench_random(b, b->dtype, caches),
            .v_cache = yk_bench_random(b, b->dtype, caches),
            .qkv = yk_bench_random(b, b->dtype, b->batch * n * (width + 2 * kv_width)),
            .batch = b->batch,
            .seq_len = n,
            .past = token ? b->seq_len : 0,
            .capacity = b->seq_len + 1,
            .heads = s->heads,
            .kv_heads = s->kv_heads,
            .head_size = s->head_size,
            .scale = 1 / sqrtf((float)s->head_size),
            .dtype = b->dtype};
        YK_TRY(yk_bench_run(b, token ? "attention_cached token" : "attention_cached prompt", size,
                            run_attention_cached, &a, sizeof a, 1, yk_attention_cached_cost(&a)));
    }
    return YK_OK;
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

yk_status yk_bench_ops(yk_bench *b)
{
    YK_TRY(bench_moving(b));
    YK_TRY(bench_square(b));
    YK_TRY(bench_embed(b));
    YK_TRY(bench_norm(b));
    YK_TRY(bench_layers(b));
    if (!is_gpt2(b)) YK_TRY(bench_rope(b));
    YK_TRY(bench_attention(b));
    YK_TRY(bench_cached(b));
    YK_TRY(bench_activation(b));
    YK_TRY(bench_loss(b));
    YK_TRY(yk_bench_update(b));
    return yk_bench_wire(b);
}
