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
 * A bias gradient is a kernel of our own: measured on an H200, cuBLASLt's costs
 * more than reading dy once more, and it cannot accumulate.
 */
#include "runtime/device/cuda/kernels.h"
#include "runtime/device/cuda/product_cuda.h"
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
