/* tests/runtime/device/test_kernels.c - every operation whose kernels share memory among the threads of a
 * block, without a library's kernel: each twice, for the same bits.
 *
 * It is there for compute-sanitizer's racecheck, which follows each access to shared memory and fails
 * beside kernels of cuBLASLt's (tests/gpu/run.sh); that the numbers are right is shown by the tests of
 * each operation. So sizes are few and small, but with more rows than an H200 has blocks for at one
 * time, where a block takes one row after another: what it leaves behind must not meet what comes.
 *
 * test_kernels [PATTERN] runs the tests whose names match, * standing for any letters.
 */
#include "runtime/device/ops_wire.h"
#include "tests/runtime/device/attention_case.h"
#include "tests/runtime/device/op_case.h"
#include "tests/runtime/device/tested_device.h"

static const yk_step_values some_values = {.grad_scale = 0.037f,
                                           .correction1 = 0.271f,
                                           .correction2 = 0.003f,
                                           .lr = 0.003f,
                                           .loss_scale = 512,
                                           .n_tokens = 7,
                                           .adam_steps = 3};

/* Of a smaller card's blocks where it is a GPU. */
static void limit_blocks(op_case *c)
{
    assert_int_equal(yk_device_limit_shared(c->device, 99 * 1024), YK_OK);
}

/* As many rows as a GPU's blocks take in turns; a processor has enough of fewer. */
static int64_t many(int64_t rows)
{
    return tested_on_cuda() ? rows : 20;
}

/* Numbers from -2 to 2 that each type holds: many are made sooner than normal ones. */
static op_buffer *numbers(op_case *c, op_role role, yk_dtype t, int64_t n)
{
    double *x = op_out(c, n).value;
    for (int64_t i = 0; i < n; i++) x[i] = (double)op_random_below(c, 129) / 32 - 2;
    return op_given(c, role, t, n, x);
}

static op_buffer *input(op_case *c, yk_dtype t, int64_t n)
{
    return numbers(c, OP_INPUT, t, n);
}

/* ---- attention ---------------------------------------------------------------------------- */

/* Several tiles of queries and of keys, the last of them not full. */
static void attention(op_case *c)
{
    attention_case(c, YK_BF16, (attention_shape){1, 200, 2, 2, 64}, 0);
    attention_case(c, YK_BF16, (attention_shape){1, 200, 2, 1, 128}, 40);
    attention_case(c, YK_F32, (attention_shape){1, 100, 2, 1, 64}, 40);
}

static void attention_of_smaller_blocks(op_case *c)
{
    limit_blocks(c);
    attention(c);
}

static void cached(op_case *c, yk_dtype t, int64_t head_size)
{
    enum { B = 2, T = 3, PAST = 150, S = 160, H = 4, G = 2 };
    op_case_begin(c, t, "attention_cached D=%d", (int)head_size);
    op_buffer *k = numbers(c, OP_INOUT, t, B * S * G * head_size);
    op_buffer *v = numbers(c, OP_INOUT, t, B * S * G * head_size);
    op_buffer *qkv = input(c, t, B * T * (H + 2 * G) * head_size);
    op_buffer *y = op_output(c, t, B * T * H * head_size);
    OP_RUN(c, yk_attention_cached,
           &((yk_attention_cached_args){.y = y->data,
                                        .k_cache = k->data,
                                        .v_cache = v->data,
                                        .qkv = qkv->data,
                                        .batch = B,
                                        .seq_len = T,
                                        .past = PAST,
                                        .capacity = S,
                                        .heads = H,
                                        .kv_heads = G,
                                        .head_size = head_size,
                                        .scale = 0.1f,
                                        .dtype = t}));
}

static void attention_cached(op_case *c)
{
    cached(c, YK_BF16, 64);
    cached(c, YK_F32, 6);
}

/* ---- norms -------------------------------------------------------------------------------- */

static void norm_forward(op_case *c, yk_norm_kind kind, int64_t rows, int64_t cols)
{
    op_case_begin(c, YK_BF16, "norm_forward kind=%d R=%d C=%d", (int)kind, (int)rows, (int)cols);
    bool layer = kind == YK_NORM_LAYER;
    op_buffer *x = input(c, YK_BF16, rows * cols), *weight = input(c, YK_BF16, cols);
    op_buffer *bias = input(c, YK_BF16, cols), *y = op_output(c, YK_BF16, rows * cols);
    op_buffer *mean = op_output(c, YK_F32, rows), *rstd = op_output(c, YK_F32, rows);
    OP_RUN(c, yk_norm_forward,
           &((yk_norm_forward_args){.y = y->data,
                                    .mean = layer ? mean->data : NULL,
                                    .rstd = rstd->data,
                                    .x = x->data,
                                    .weight = weight->data,
                                    .bias = layer ? bias->data : NULL,
                                    .rows = rows,
                                    .cols = cols,
                                    .eps = 1e-5f,
                                    .kind = kind,
                                    .dtype = YK_BF16}));
}

/* Sums: of dx and of add too. */
static void norm_backward(op_case *c, yk_norm_kind kind, int64_t rows, int64_t cols, bool sums)
{
    op_case_begin(c, YK_BF16, "norm_backward kind=%d R=%d C=%d sums=%d", (int)kind, (int)rows,
                  (int)cols, sums);
    bool layer = kind == YK_NORM_LAYER;
    op_buffer *x = input(c, YK_BF16, rows * cols), *dy = input(c, YK_BF16, rows * cols);
    op_buffer *add = input(c, YK_BF16, rows * cols), *weight = input(c, YK_BF16, cols);
    op_buffer *mean = input(c, YK_F32, rows), *rstd = input(c, YK_F32, rows);
    op_buffer *dx = op_output(c, YK_BF16, rows * cols), *dweight = op_output(c, YK_F32, cols);
    op_buffer *dbias = op_output(c, YK_F32, cols), *dx_sum = op_output(c, YK_F32, cols);
    op_buffer *add_sum = op_output(c, YK_F32, cols);
    OP_RUN(c, yk_norm_backward,
           &((yk_norm_backward_args){.dx = dx->data,
                                     .dweight = dweight->data,
                                     .dbias = layer ? dbias->data : NULL,
                                     .dx_sum = sums ? dx_sum->data : NULL,
                                     .add_sum = sums ? add_sum->data : NULL,
                                     .dy = dy->data,
                                     .add = add->data,
                                     .x = x->data,
                                     .weight = weight->data,
                                     .mean = layer ? mean->data : NULL,
                                     .rstd = rstd->data,
                                     .rows = rows,
                                     .cols = cols,
                                     .kind = kind,
                                     .dtype = YK_BF16,
                                     .grad_dtype = YK_F32}));
}

/* Rows of a warp, those that a warp takes by parts, and rows that are not aligned. */
static void norms_forward(op_case *c)
{
    norm_forward(c, YK_NORM_LAYER, many(9000), 64);
    norm_forward(c, YK_NORM_RMS, many(9000), 320);
    norm_forward(c, YK_NORM_LAYER, 40, 3584);
    norm_forward(c, YK_NORM_RMS, 17, 127);
}

static void norms_forward_of_smaller_blocks(op_case *c)
{
    limit_blocks(c);
    norm_forward(c, YK_NORM_RMS, many(1800), 3584);
}

static void norms_backward(op_case *c)
{
    norm_backward(c, YK_NORM_LAYER, many(3000), 256, true);
    norm_backward(c, YK_NORM_LAYER, many(1000), 256, false);
    norm_backward(c, YK_NORM_RMS, many(1500), 768, true);
    norm_backward(c, YK_NORM_RMS, many(300), 4096, false);
    norm_backward(c, YK_NORM_LAYER, many(700), 65, true);
}

/* ---- the loss ----------------------------------------------------------------------------- */

static void loss(op_case *c, int64_t rows, int64_t vocab, int64_t stride)
{
    op_case_begin(c, YK_BF16, "cross_entropy R=%d V=%d stride=%d", (int)rows, (int)vocab,
                  (int)stride);
    op_buffer *logits = numbers(c, OP_INOUT, YK_BF16, rows * stride);
    op_buffer *targets = op_indices(c, rows, vocab), *losses = op_output(c, YK_F32, rows);
    op_buffer *values = op_step_values(c, &some_values);
    OP_RUN(c, yk_cross_entropy,
           &((yk_cross_entropy_args){.losses = losses->data,
                                     .logits = logits->data,
                                     .targets = targets->data,
                                     .values = values->data,
                                     .rows = rows,
                                     .vocab = vocab,
                                     .stride = stride,
                                     .scale = 0.01f,
                                     .backward = true,
                                     .dtype = YK_BF16}));
}

static void loss_sum(op_case *c)
{
    enum { R = 5000 };
    op_case_begin(c, YK_F32, "loss_sum R=%d", R);
    op_buffer *losses = input(c, YK_F32, R), *targets = op_indices(c, R, 9);
    op_buffer *values = op_step_values(c, &some_values);
    OP_RUN(c, yk_loss_sum, &((yk_loss_sum_args){values->data, losses->data, targets->data, R}));
}

/* Rows that fill more than half of a block's shared memory, and rows that are not aligned. */
static void losses(op_case *c)
{
    loss(c, many(133), 60001, 60032);
    loss(c, 20, 301, 301);
    loss_sum(c);
}

/* Rows that do not fit into it. */
static void losses_of_smaller_blocks(op_case *c)
{
    limit_blocks(c);
    loss(c, many(270), 51001, 51008);
}

/* ---- sums over rows ----------------------------------------------------------------------- */

/* With one token alone, a class of the sort has more rows than lie in shared memory. */
static void embed(op_case *c, int64_t cols, int64_t n_tokens)
{
    enum { R = 3000, V = 1000, P = 257 };
    op_case_begin(c, YK_BF16, "embed_backward C=%d tokens=%d", (int)cols, (int)n_tokens);
    op_buffer *dy = input(c, YK_BF16, R * cols);
    op_buffer *tokens = op_indices(c, R, n_tokens), *positions = op_indices(c, R, P);
    op_buffer *dwte = op_output(c, YK_F32, V * cols), *dwpe = op_output(c, YK_F32, P * cols);
    OP_RUN(c, yk_embed_backward,
           &((yk_embed_backward_args){.dwte = dwte->data,
                                      .dwpe = dwpe->data,
                                      .dy = dy->data,
                                      .tokens = tokens->data,
                                      .positions = positions->data,
                                      .rows = R,
                                      .cols = cols,
                                      .vocab = V,
                                      .max_positions = P,
                                      .dtype = YK_BF16,
                                      .grad_dtype = YK_F32}));
}

static void embedding(op_case *c)
{
    embed(c, 264, 1000);
    embed(c, 40, 1);
    embed(c, 33, 50);
}

static void rope(op_case *c, int64_t rows, int64_t head_size)
{
    enum { H = 4, G = 2, P = 64 };
    op_case_begin(c, YK_BF16, "rope R=%d D=%d", (int)rows, (int)head_size);
    int64_t width = (H + 2 * G) * head_size;
    op_buffer *qkv = numbers(c, OP_INOUT, YK_BF16, rows * width);
    op_buffer *qkv_sum = op_output(c, YK_F32, width), *at = op_indices(c, rows, P);
    op_buffer *cosines = input(c, YK_F32, P * head_size / 2);
    op_buffer *sines = input(c, YK_F32, P * head_size / 2);
    OP_RUN(c, yk_rope,
           &((yk_rope_args){.qkv = qkv->data,
                            .qkv_sum = qkv_sum->data,
                            .cos = cosines->data,
                            .sin = sines->data,
                            .positions = at->data,
                            .rows = rows,
                            .heads = H,
                            .kv_heads = G,
                            .head_size = head_size,
                            .max_positions = P,
                            .inverse = true,
                            .dtype = YK_BF16,
                            .grad_dtype = YK_F32}));
}

static void rotations(op_case *c)
{
    rope(c, 3000, 64);
    rope(c, 600, 6);
}

static void column_sum(op_case *c, int64_t rows, int64_t cols)
{
    op_case_begin(c, YK_BF16, "column sum M=%d N=%d", (int)rows, (int)cols);
    op_buffer *dy = input(c, YK_BF16, rows * cols), *dbias = op_output(c, YK_F32, cols);
    OP_RUN(c, yk_linear_backward_weight,
           &((yk_linear_backward_weight_args){.dbias = dbias->data,
                                              .dy = dy->data,
                                              .m = rows,
                                              .n = cols,
                                              .dtype = YK_BF16,
                                              .grad_dtype = YK_F32}));
}

static void column_sums(op_case *c)
{
    column_sum(c, 3000, 520);
    column_sum(c, 500, 37);
}

/* ---- odd products ------------------------------------------------------------------------- */

/* Rows that are not aligned, which a library would round twice on the way through GELU. */
static void products_with_gelu(op_case *c)
{
    enum { M = 70, N = 37, K = 33 };
    op_case_begin(c, YK_BF16, "linear M=%d N=%d K=%d", M, N, K);
    op_buffer *x = input(c, YK_BF16, M * K), *w = input(c, YK_BF16, N * K);
    op_buffer *bias = input(c, YK_BF16, N), *y = op_output(c, YK_BF16, M * N);
    OP_RUN(c, yk_linear_forward,
           &((yk_linear_forward_args){.y = y->data,
                                      .x = x->data,
                                      .w = w->data,
                                      .bias = bias->data,
                                      .m = M,
                                      .n = N,
                                      .k = K,
                                      .gelu = true,
                                      .dtype = YK_BF16}));
    op_buffer *dx = op_output(c, YK_BF16, M * K), *dy = input(c, YK_BF16, M * N);
    OP_RUN(c, yk_linear_backward_input,
           &((yk_linear_backward_input_args){.dx = dx->data,
                                             .dy = dy->data,
                                             .w = w->data,
                                             .z = x->data,
                                             .m = M,
                                             .n = N,
                                             .k = K,
                                             .dtype = YK_BF16,
                                             .grad_dtype = YK_F32}));
}

/* ---- the update --------------------------------------------------------------------------- */

static void squares(op_case *c)
{
    enum { N = 100003, PIECE = 4096 };
    op_case_begin(c, YK_BF16, "sum_squares n=%d", N);
    op_buffer *x = input(c, YK_BF16, N), *values = op_step_values(c, &some_values);
    yk_squares_run runs[] = {{x->data, 70000}, {(char *)x->data + 140000, N - 70000}};
    OP_RUN(c, yk_sum_squares, &((yk_sum_squares_args){values->data, runs, 2, PIECE, YK_BF16}));
    OP_RUN(c, yk_sum_squares,
           &((yk_sum_squares_args){values->data, runs, 1, INT64_C(1) << 20, YK_BF16}));
}

/* Its states in bf16. */
static void adamw(op_case *c)
{
    enum { N = 20011 };
    op_case_begin(c, YK_BF16, "adamw n=%d", N);
    op_buffer *param = op_output(c, YK_BF16, N), *master = numbers(c, OP_INOUT, YK_BF16, N);
    op_buffer *m = numbers(c, OP_INOUT, YK_BF16, N), *grad = input(c, YK_BF16, N);
    double *squared = op_out(c, N).value;
    for (int64_t i = 0; i < N; i++) squared[i] = (double)op_random_below(c, 64) / 64;
    op_buffer *v = op_given(c, OP_INOUT, YK_BF16, N, squared);
    op_buffer *values = op_step_values(c, &some_values);
    yk_adamw_run runs[] = {{0, 0, 3, true}, {8000, 160, 5, false}};
    OP_RUN(c, yk_adamw,
           &((yk_adamw_args){.param = param->data,
                             .master = master->data,
                             .m = m->data,
                             .v = v->data,
                             .grad = grad->data,
                             .values = values->data,
                             .runs = runs,
                             .n_runs = 2,
                             .n = N,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .dtype = YK_BF16,
                             .grad_dtype = YK_BF16,
                             .master_dtype = YK_BF16,
                             .moments_dtype = YK_BF16}));
}

static void swiglu(op_case *c)
{
    enum { R = 50, F = 264 };
    op_case_begin(c, YK_BF16, "swiglu R=%d F=%d", R, F);
    op_buffer *gate_up = input(c, YK_BF16, 2 * R * F), *dy = input(c, YK_BF16, R * F);
    op_buffer *y = op_output(c, YK_BF16, R * F), *dgate_up = op_output(c, YK_BF16, 2 * R * F);
    OP_RUN(c, yk_swiglu_forward,
           &((yk_swiglu_forward_args){y->data, gate_up->data, R, F, YK_BF16}));
    OP_RUN(c, yk_swiglu_backward,
           &((yk_swiglu_backward_args){dgate_up->data, dy->data, gate_up->data, R, F, YK_BF16}));
}

/* ---- the wire ----------------------------------------------------------------------------- */

static void wire(op_case *c)
{
    enum { N = 20011, PARTS = 3 };
    op_case_begin(c, YK_F32, "wire n=%d", N);
    op_buffer *x = input(c, YK_F32, N), *greatest = op_output(c, YK_F32, 1);
    op_buffer *packed = op_output(c, YK_F16, N), *parts = input(c, YK_F16, (PARTS - 1) * N);
    op_buffer *sum = op_output(c, YK_F32, N), *values = op_step_values(c, &some_values);
    int64_t *n_flushed = &((yk_step_values *)values->data)->n_tokens;
    yk_wire_scale scale = {greatest->data, PARTS};
    OP_RUN(c, yk_greatest, &((yk_greatest_args){greatest->data, x->data, N, YK_F32}));
    OP_RUN(c, yk_pack,
           &((yk_pack_args){.packed = packed->data,
                            .x = x->data,
                            .scale = scale,
                            .n_flushed = n_flushed,
                            .n = N,
                            .dtype = YK_F32,
                            .wire = YK_F16}));
    OP_RUN(c, yk_sum_parts,
           &((yk_sum_parts_args){.sum = sum->data,
                                 .parts = parts->data,
                                 .own = x->data,
                                 .stride = INT64_C(2) * N,
                                 .n_parts = PARTS,
                                 .own_part = PARTS - 1,
                                 .scale = scale,
                                 .n_flushed = n_flushed,
                                 .n = N,
                                 .dtype = YK_F32,
                                 .wire = YK_F16}));
}

/* ---- all ---------------------------------------------------------------------------------- */

#define AGAIN(family)                                                                              \
    static void the_same_bits_again_from_##family(void **state)                                    \
    {                                                                                              \
        (void)state;                                                                               \
        op_expect_same_bits_again(family);                                                         \
    }
AGAIN(attention)
AGAIN(attention_of_smaller_blocks)
AGAIN(attention_cached)
AGAIN(norms_forward)
AGAIN(norms_forward_of_smaller_blocks)
AGAIN(norms_backward)
AGAIN(losses)
AGAIN(losses_of_smaller_blocks)
AGAIN(embedding)
AGAIN(rotations)
AGAIN(column_sums)
AGAIN(products_with_gelu)
AGAIN(squares)
AGAIN(adamw)
AGAIN(swiglu)
AGAIN(wire)

int main(int argc, char **argv)
{
    if (op_device_missing()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_again_from_attention),
        cmocka_unit_test(the_same_bits_again_from_attention_of_smaller_blocks),
        cmocka_unit_test(the_same_bits_again_from_attention_cached),
        cmocka_unit_test(the_same_bits_again_from_norms_forward),
        cmocka_unit_test(the_same_bits_again_from_norms_forward_of_smaller_blocks),
        cmocka_unit_test(the_same_bits_again_from_norms_backward),
        cmocka_unit_test(the_same_bits_again_from_losses),
        cmocka_unit_test(the_same_bits_again_from_losses_of_smaller_blocks),
        cmocka_unit_test(the_same_bits_again_from_embedding),
        cmocka_unit_test(the_same_bits_again_from_rotations),
        cmocka_unit_test(the_same_bits_again_from_column_sums),
        cmocka_unit_test(the_same_bits_again_from_products_with_gelu),
        cmocka_unit_test(the_same_bits_again_from_squares),
        cmocka_unit_test(the_same_bits_again_from_adamw),
        cmocka_unit_test(the_same_bits_again_from_swiglu),
        cmocka_unit_test(the_same_bits_again_from_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
