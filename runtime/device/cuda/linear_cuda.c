/* runtime/device/cuda/linear_cuda.c - linear layers as cuBLASLt products with epilogues.
 *
 * cuBLASLt works by columns, so each row-major product is written as its transpose, whose memory is
 * the same:
 *
 *   y  = x w^T   ->  y^T  (N,M) = w (N,K) x^T (K,M)       w stored (K,N): transposed
 *   dx = dy w    ->  dx^T (K,M) = w^T (K,N) dy^T (N,M)
 *   dw = dy^T x  ->  dw^T (K,N) = x^T (K,M) dy (M,N)      dy stored (N,M): transposed
 *
 * Bias, residual and accumulation ride along in the epilogue. So do GELU and its gradient, unless they
 * were found faster in kernels of our own behind the plain product, or cuBLASLt offers no algorithm
 * with them. Its GELU has a tanh of 11 bits, so fp32 takes our own.
 *
 * The bias gradient beside dw is a kernel of our own: measured on an H200, cuBLASLt's
 * costs more than reading dy once more, and it cannot accumulate. The one of the
 * bias before a GELU can ride on the product that makes its dy.
 */
#include "runtime/device/cuda/kernels.h"
#include "runtime/device/cuda/product_cuda.h"
#include "runtime/device/cuda/sizes.h"
#include "runtime/device/cuda/ways.h"

/* A product that must be offered: nothing is left to take apart. */
static yk_status run_plain(yk_stream *s, const yk_cuda_product *p, void *ws)
{
    bool offered = false;
    YK_TRY(yk_cuda_product_run(s, p, ws, &offered));
    if (offered) return YK_OK;
    return yk_fail(YK_EUNSUPPORTED, "product",
                   "cuBLASLt has no algorithm for sizes %lld, %lld, %lld in %s", (long long)p->m,
                   (long long)p->n, (long long)p->k, yk_dtype_name(p->dtype));
}

/* ---- forward ------------------------------------------------------------------------------- */

/* Whether an epilogue works on the product before it is rounded: it does where all rows are whole
 * accesses of 16 bytes. In fp32 a second rounding is one of the sum's many. */
static bool is_rounded_once(yk_dtype dtype, int64_t n, int64_t k, uintptr_t pointers)
{
    return dtype == YK_F32 || ((n | k) % 8 == 0 && pointers % 16 == 0);
}

typedef struct gelu_call {
    yk_stream *s;
    const yk_linear_forward_args *a;
    yk_cuda_product p; /* plain */
    void *ws;
    yk_status status; /* of the first way that failed */
} gelu_call;

enum { GELU_FUSED, GELU_APART, N_GELU_WAYS };

static yk_status gelu_fused(const gelu_call *g, bool *offered_out)
{
    yk_cuda_product p = g->p;
    p.epilogue = g->a->z ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
    p.aux = g->a->z;
    return yk_cuda_product_run(g->s, &p, g->ws, offered_out);
}

static yk_status gelu_apart(const gelu_call *g)
{
    const yk_linear_forward_args *a = g->a;
    yk_cuda_product p = g->p;
    p.d = a->z ? a->z : a->y;
    YK_TRY(run_plain(g->s, &p, g->ws));
    return yk_cuda_check(
        yk_cuda_gelu_forward(a->y, p.d, a->m * a->n, a->dtype, yk_cuda_stream_of(g->s)),
        "linear_forward");
}

static bool run_gelu_way(void *context, int way)
{
    gelu_call *g = context;
    bool offered = true;
    yk_status status = way == GELU_FUSED ? gelu_fused(g, &offered) : gelu_apart(g);
    if (g->status == YK_OK) g->status = status;
    return status == YK_OK && offered;
}

/* One way for a shape, whether GELU's input is kept or not: the bits must be the same. */
static yk_status gelu_forward(gelu_call *g)
{
    const yk_linear_forward_args *a = g->a;
    bool offered = false;
    int way;
    if (a->dtype == YK_F32 || !a->bias) return gelu_apart(g);
    YK_TRY(yk_cuda_enter(g->s->device));
    YK_TRY(yk_cuda_ways_choose(
        &(yk_cuda_ways){.s = g->s,
                        .n = N_GELU_WAYS,
                        .key = {YK_TUNER_GELU_WAY, a->m, a->n, a->k, (int64_t)a->dtype},
                        .may_race = true,
                        .run = run_gelu_way,
                        .context = g,
                        .out = a->y,
                        .out_bytes = a->m * a->n * yk_dtype_bytes(a->dtype),
                        .digest = g->ws},
        &way));
    YK_TRY(g->status);
    if (way == GELU_FUSED) YK_TRY(gelu_fused(g, &offered));
    return offered ? YK_OK : gelu_apart(g);
}

yk_status yk_cuda_linear_forward(yk_stream *s, const yk_linear_forward_args *a, void *ws)
{
    yk_cuda_product p = {.m = a->n,
                         .n = a->m,
                         .k = a->k,
                         .transpose_a = true,
                         .add = a->residual != NULL,
                         .dtype = a->dtype,
                         .out_dtype = a->dtype,
                         .epilogue = a->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
                         .a = a->w,
                         .b = a->x,
                         .c = a->residual,
                         .d = a->y,
                         .bias = a->bias};
    uintptr_t pointers = (uintptr_t)a->x | (uintptr_t)a->w | (uintptr_t)a->y | (uintptr_t)a->z |
                         (uintptr_t)a->bias | (uintptr_t)a->residual;
    if ((a->bias || a->gelu) && !is_rounded_once(a->dtype, a->n, a->k, pointers)) {
        YK_TRY(yk_cuda_enter(s->device));
        return yk_cuda_check(yk_cuda_linear_plain_forward(a, yk_cuda_stream_of(s)),
                             "linear_forward");
    }
    if (!a->gelu) return run_plain(s, &p, ws);
    return gelu_forward(&(gelu_call){.s = s, .a = a, .p = p, .ws = ws});
}

/* ---- backward ------------------------------------------------------------------------------ */

/* A gradient of the input that goes on through a GELU, and the one of the bias before it. */
typedef struct gradient_call {
    yk_stream *s;
    const yk_linear_backward_input_args *a;
    yk_cuda_product p; /* plain */
    void *ws;
    yk_status status; /* of the first way that failed */
} gradient_call;

/* GELU's gradient in the epilogue and the bias's by reading dx once more; both in the epilogue; both
 * apart. */
enum { BIAS_APART, ALL_FUSED, ALL_APART, N_GRADIENT_WAYS };

static yk_status gradient_apart(const gradient_call *g)
{
    const yk_linear_backward_input_args *a = g->a;
    YK_TRY(run_plain(g->s, &g->p, g->ws));
    return yk_cuda_check(
        yk_cuda_gelu_backward(a->dx, a->z, a->m * a->k, a->dtype, yk_cuda_stream_of(g->s)),
        "linear_backward_input");
}

static yk_status gradient_fused(const gradient_call *g, bool *offered_out)
{
    yk_cuda_product p = g->p;
    p.epilogue = CUBLASLT_EPILOGUE_DGELU;
    p.aux = g->a->z;
    return yk_cuda_product_run(g->s, &p, g->ws, offered_out);
}

static yk_status input_gradient(const gradient_call *g, bool fuses)
{
    const yk_linear_backward_input_args *a = g->a;
    if (!a->z) return run_plain(g->s, &g->p, g->ws);
    uintptr_t pointers = (uintptr_t)a->dx | (uintptr_t)a->dy | (uintptr_t)a->w | (uintptr_t)a->z;
    if (!is_rounded_once(a->dtype, a->n, a->k, pointers)) {
        YK_TRY(yk_cuda_enter(g->s->device));
        return yk_cuda_check(yk_cuda_linear_plain_backward(a, yk_cuda_stream_of(g->s)),
                             "linear_backward_input");
    }
    bool offered = false;
    if (fuses && a->dtype != YK_F32) YK_TRY(gradient_fused(g, &offered));
    return offered ? YK_OK : gradient_apart(g);
}

/* ---- the bias that was added to z ---------------------------------------------------------- */

static yk_status bias_apart(const gradient_call *g, bool fuses)
{
    const yk_linear_backward_input_args *a = g->a;
    YK_TRY(input_gradient(g, fuses));
    return yk_cuda_check(yk_cuda_column_sum(a->dbias, a->dx, a->m, a->k, a->accumulate_dbias,
                                            a->dtype, a->grad_dtype,
                                            (char *)g->ws + YK_CUDA_PRODUCT_BYTES,
                                            yk_cuda_stream_of(g->s)),
                         "linear_backward_input");
}

/* The epilogue writes its sums in the tensors' type and does not accumulate. */
static bool may_fuse(const yk_linear_backward_input_args *a)
{
    return a->grad_dtype == a->dtype && !a->accumulate_dbias && (uintptr_t)a->dbias % 16 == 0;
}

static yk_status all_fused(const gradient_call *g, bool *offered_out)
{
    yk_cuda_product p = g->p;
    *offered_out = false;
    if (!may_fuse(g->a)) return YK_OK;
    p.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
    p.aux = g->a->z;
    p.bias = g->a->dbias;
    return yk_cuda_product_run(g->s, &p, g->ws, offered_out);
}

static bool run_gradient_way(void *context, int way)
{
    gradient_call *g = context;
    bool offered = true;
    yk_status status = way == ALL_FUSED ? all_fused(g, &offered) : bias_apart(g, way == BIAS_APART);
    if (g->status == YK_OK) g->status = status;
    return status == YK_OK && offered;
}

/* Whether there is more than one way. */
static bool has_ways(const yk_linear_backward_input_args *a)
{
    uintptr_t pointers = (uintptr_t)a->dx | (uintptr_t)a->dy | (uintptr_t)a->w | (uintptr_t)a->z;
    return a->z && a->dtype != YK_F32 && is_rounded_once(a->dtype, a->n, a->k, pointers);
}

static yk_status input_and_bias_gradient(gradient_call *g)
{
    const yk_linear_backward_input_args *a = g->a;
    bool offered = false;
    int way = BIAS_APART;
    if (has_ways(a))
        YK_TRY(
            yk_cuda_ways_choose(&(yk_cuda_ways){.s = g->s,
                                                .n = N_GRADIENT_WAYS,
                                                .key = {YK_TUNER_GRADIENT_WAY, a->m, a->n, a->k,
                                                        (int64_t)a->dtype, (int64_t)a->grad_dtype},
                                                .may_race = !a->accumulate && !a->accumulate_dbias,
                                                .run = run_gradient_way,
                                                .context = g,
                                                .out = a->dbias,
                                                .out_bytes = a->k * yk_dtype_bytes(a->grad_dtype),
                                                .digest = g->ws},
                                &way));
    YK_TRY(g->status);
    if (way == ALL_FUSED) YK_TRY(all_fused(g, &offered));
    return offered ? YK_OK : bias_apart(g, way != ALL_APART);
}

yk_status yk_cuda_linear_backward_input(yk_stream *s, const yk_linear_backward_input_args *a,
                                        void *ws)
{
    gradient_call g = {.s = s,
                       .a = a,
                       .p = {.m = a->k,
                             .n = a->m,
                             .k = a->n,
                             .add = a->accumulate,
                             .dtype = a->dtype,
                             .out_dtype = a->dtype,
                             .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                             .a = a->w,
                             .b = a->dy,
                             .c = a->dx,
                             .d = a->dx},
                       .ws = ws};
    if (!a->dbias) return input_gradient(&g, true);
    YK_TRY(yk_cuda_enter(s->device));
    return input_and_bias_gradient(&g);
}

/* The bias gradient as column sums of dy, in the workspace behind the product's. */
static yk_status bias_gradient(yk_stream *s, const yk_linear_backward_weight_args *a, void *ws)
{
    return yk_cuda_check(yk_cuda_column_sum(a->dbias, a->dy, a->m, a->n, a->accumulate, a->dtype,
                                            a->grad_dtype, (char *)ws + YK_CUDA_PRODUCT_BYTES,
                                            yk_cuda_stream_of(s)),
                         "linear_backward_weight");
}

yk_status yk_cuda_linear_backward_weight(yk_stream *s, const yk_linear_backward_weight_args *a,
                                         void *ws)
{
    yk_cuda_product p = {.m = a->k,
                         .n = a->n,
                         .k = a->m,
                         .transpose_b = true,
                         .add = a->accumulate,
                         .dtype = a->dtype,
                         .out_dtype = a->grad_dtype,
                         .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                         .a = a->x,
                         .b = a->dy,
                         .c = a->dw,
                         .d = a->dw};
    YK_TRY(a->k > 0 ? run_plain(s, &p, ws) : yk_cuda_enter(s->device));
    return a->dbias ? bias_gradient(s, a, ws) : YK_OK;
}
