/* runtime/device/cuda/linear_cuda.c - linear layers as cuBLASLt products with
 * epilogues.
 *
 * cuBLASLt works by columns, so each row-major product is written as its
 * transpose, whose memory is the same: y  = x w^T    ->  y^T  (N,M) = w (N,K)
 * x^T (K,M)      w stored (K,N): transposed dx = dy w     ->  dx^T (K,M) = w^T
 * (K,N) dy^T (N,M) dw = dy^T x   ->  dw^T (K,N) = x^T (K,M) dy (M,N)     dy
 * stored (N,M): transposed Bias, residual, accumulation, GELU and its gradient
 * ride along in the epilogue; where cuBLASLt offers no algorithm for that, the
 * plain product runs and our own kernel follows. Its GELU has a tanh of 11
 * bits, so fp32 takes our own.
 *
 * The bias gradient beside dw is a kernel of our own: measured on an H200, cuBLASLt's
 * costs more than reading dy once more, and it cannot accumulate. The one of the
 * bias before a GELU can ride on the product that makes its dy.
 */
#include "runtime/device/cuda/kernels.h"
#include "runtime/device/cuda/product_cuda.h"
#include "runtime/device/cuda/race.h"
#include "runtime/device/cuda/sizes.h"

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

/* ---- forward
 * ------------------------------------------------------------------------------
 */

/* Whether an epilogue works on the product before it is rounded: it does where
 * all rows are whole accesses of 16 bytes. In fp32 a second rounding is one of
 * the sum's many. */
static bool is_rounded_once(yk_dtype dtype, int64_t n, int64_t k, uintptr_t pointers)
{
    return dtype == YK_F32 || ((n | k) % 8 == 0 && pointers % 16 == 0);
}

static yk_status gelu_apart(yk_stream *s, const yk_linear_forward_args *a, yk_cuda_product *p,
                            void *ws)
{
    p->epilogue = a->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    p->d = a->z ? a->z : a->y;
    p->aux = NULL;
    YK_TRY(run_plain(s, p, ws));
    return yk_cuda_check(
        yk_cuda_gelu_forward(a->y, p->d, a->m * a->n, a->dtype, yk_cuda_stream_of(s)),
        "linear_forward");
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
    if (a->dtype == YK_F32 || !a->bias) return gelu_apart(s, a, &p, ws);
    bool offered = false;
    p.epilogue = a->z ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
    p.aux = a->z;
    YK_TRY(yk_cuda_product_run(s, &p, ws, &offered));
    return offered ? YK_OK : gelu_apart(s, a, &p, ws);
}

/* ---- backward
 * -----------------------------------------------------------------------------
 */

/* dx = dy w, times GELU'(z) when z is given; the epilogue of `p` does the latter where it can. */
static yk_status input_gradient(yk_stream *s, const yk_linear_backward_input_args *a,
                                yk_cuda_product p, void *ws)
{
    if (!a->z) return run_plain(s, &p, ws);
    uintptr_t pointers = (uintptr_t)a->dx | (uintptr_t)a->dy | (uintptr_t)a->w | (uintptr_t)a->z;
    if (!is_rounded_once(a->dtype, a->n, a->k, pointers)) {
        YK_TRY(yk_cuda_enter(s->device));
        return yk_cuda_check(yk_cuda_linear_plain_backward(a, yk_cuda_stream_of(s)),
                             "linear_backward_input");
    }
    bool offered = false;
    if (a->dtype != YK_F32) YK_TRY(yk_cuda_product_run(s, &p, ws, &offered));
    if (offered) return YK_OK;
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    p.aux = NULL;
    YK_TRY(run_plain(s, &p, ws));
    return yk_cuda_check(
        yk_cuda_gelu_backward(a->dx, a->z, a->m * a->k, a->dtype, yk_cuda_stream_of(s)),
        "linear_backward_input");
}

/* ---- the bias that was added to z
 * ---------------------------------------------------------
 */

/* Two ways to the column sums of dx: in the product's epilogue, or by reading dx once more. Which is
 * faster depends on the shape, so they race where the tuner lets them; apart until then. */
typedef struct bias_ways {
    yk_stream *s;
    const yk_linear_backward_input_args *a;
    yk_cuda_product p; /* with GELU's gradient in its epilogue */
    void *ws;
    yk_status status; /* of the first way that failed */
} bias_ways;

enum { APART, FUSED, N_WAYS };

static yk_status bias_apart(const bias_ways *w)
{
    const yk_linear_backward_input_args *a = w->a;
    YK_TRY(input_gradient(w->s, a, w->p, w->ws));
    return yk_cuda_check(yk_cuda_column_sum(a->dbias, a->dx, a->m, a->k, a->accumulate_dbias,
                                            a->dtype, a->grad_dtype,
                                            (char *)w->ws + YK_CUDA_PRODUCT_BYTES,
                                            yk_cuda_stream_of(w->s)),
                         "linear_backward_input");
}

static yk_status bias_fused(const bias_ways *w, bool *offered_out)
{
    yk_cuda_product p = w->p;
    p.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
    p.bias = w->a->dbias;
    return yk_cuda_product_run(w->s, &p, w->ws, offered_out);
}

static bool run_way(void *context, int way)
{
    bias_ways *w = context;
    bool offered = true;
    yk_status status = way == FUSED ? bias_fused(w, &offered) : bias_apart(w);
    if (w->status == YK_OK) w->status = status;
    return status == YK_OK && offered;
}

/* The epilogue writes its sums in the tensors' type and does not accumulate. */
static bool may_fuse(const yk_linear_backward_input_args *a)
{
    uintptr_t pointers = (uintptr_t)a->dx | (uintptr_t)a->dy | (uintptr_t)a->w | (uintptr_t)a->z |
                         (uintptr_t)a->dbias;
    return a->dtype != YK_F32 && a->grad_dtype == a->dtype && !a->accumulate_dbias &&
           is_rounded_once(a->dtype, a->n, a->k, pointers);
}

static yk_status choose_way(bias_ways *w, int *way_out)
{
    yk_tuner *tuner = w->s->device->tuner;
    const int64_t key[] = {YK_TUNER_BIAS_WAY, w->a->m, w->a->n, w->a->k, (int64_t)w->a->dtype};
    unsigned char way = APART;
    *way_out = APART;
    if (!may_fuse(w->a)) return YK_OK;
    if (!yk_tuner_find(tuner, key, sizeof key, &way, sizeof way)) {
        int winner = APART;
        if (!yk_tuner_races(tuner) || yk_race_is_captured(yk_cuda_stream_of(w->s))) return YK_OK;
        YK_TRY(yk_race_run(&(yk_race){.stream = yk_cuda_stream_of(w->s),
                                      .n = N_WAYS,
                                      .run = run_way,
                                      .context = w,
                                      .out = w->a->dbias,
                                      .out_bytes = w->a->k * yk_dtype_bytes(w->a->grad_dtype),
                                      .digest = w->ws},
                           &winner));
        YK_TRY(w->status);
        way = (unsigned char)winner;
        yk_tuner_add(tuner, key, sizeof key, &way, sizeof way);
    }
    *way_out = way == FUSED ? FUSED : APART;
    return YK_OK;
}

static yk_status input_and_bias_gradient(bias_ways *w)
{
    bool offered = false;
    int way;
    YK_TRY(choose_way(w, &way));
    if (way == FUSED) YK_TRY(bias_fused(w, &offered));
    return offered ? YK_OK : bias_apart(w);
}

yk_status yk_cuda_linear_backward_input(yk_stream *s, const yk_linear_backward_input_args *a,
                                        void *ws)
{
    yk_cuda_product p = {.m = a->k,
                         .n = a->m,
                         .k = a->n,
                         .add = a->accumulate,
                         .dtype = a->dtype,
                         .out_dtype = a->dtype,
                         .epilogue = a->z ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DEFAULT,
                         .a = a->w,
                         .b = a->dy,
                         .c = a->dx,
                         .d = a->dx,
                         .aux = a->z};
    if (!a->dbias) return input_gradient(s, a, p, ws);
    YK_TRY(yk_cuda_enter(s->device));
    return input_and_bias_gradient(&(bias_ways){.s = s, .a = a, .p = p, .ws = ws});
}

/* The bias gradient as column sums of dy, in the workspace behind the
 * product's. */
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
    YK_TRY(run_plain(s, &p, ws));
    return a->dbias ? bias_gradient(s, a, ws) : YK_OK;
}
