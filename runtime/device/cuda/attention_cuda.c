/* runtime/device/cuda/attention_cuda.c - which kernels serve a call of attention.
 *
 * Three are there: cuDNN's, where they were asked for and it serves the shape; our own with matrix
 * instructions; and our plain ones, for fp32, odd head sizes and pointers that are not aligned. They
 * keep the same numbers between forward and backward, so that each call is free to choose.
 */
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/kernels.h"

#define WHY_BYTES 160

/* ---- choosing ----------------------------------------------------------------------------- */

static int compute_capability(int index)
{
    int major = 0;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    return major;
}

/* On sm_90 cuDNN's were faster at every size that was measured (docs/performance.md); elsewhere
 * nothing is known. */
static bool is_wanted(const yk_cuda_state *state, yk_attention_provider provider)
{
    if (provider == YK_ATTENTION_CUDNN) return true;
    return provider == YK_ATTENTION_AUTO && compute_capability(state->index) == 9;
}

yk_status yk_cuda_set_attention(yk_device *d, yk_attention_provider provider, bool deterministic)
{
    yk_cuda_state *state = d->state;
    YK_TRY(yk_cuda_enter(d));
    bool wanted = is_wanted(state, provider);
    if (wanted && !state->cudnn) {
        char why[WHY_BYTES];
        yk_status status = yk_cudnn_attention_open(&state->cudnn, why, sizeof why);
        if (status == YK_EUNSUPPORTED && provider == YK_ATTENTION_CUDNN)
            return yk_fail(YK_EUNSUPPORTED, "attention.provider", "%s, or set it to auto", why);
        if (status == YK_EUNSUPPORTED)
            yk_warn("attention.provider", "%s; our own kernels are used, which are slower", why);
        else
            YK_TRY(status);
    }
    if (!wanted) {
        yk_cudnn_attention_close(state->cudnn);
        state->cudnn = NULL;
    }
    if (state->cudnn) yk_cudnn_attention_set_deterministic(state->cudnn, deterministic);
    state->provider = state->cudnn ? provider : YK_ATTENTION_OWN;
    d->spec.cudnn = state->cudnn != NULL;
    d->workspaces = state->cudnn ? &yk_cuda_cudnn_workspaces : &yk_cuda_workspaces;
    return YK_OK;
}

/* AUTO: the sizes at which it was measured, or nearly. A short sequence is not worth the second
 * that building a plan takes. */
static bool asks_cudnn(const yk_cuda_state *state, int64_t seq_len, int64_t head_size)
{
    if (!state->cudnn) return false;
    if (state->provider == YK_ATTENTION_CUDNN) return true;
    return seq_len >= 512 && head_size >= 64 && head_size <= 128;
}

/* What the kernels with matrix instructions take; the plain ones take the rest. */
static bool is_flash(yk_dtype dtype, int64_t head_size, const void *qkv, const void *y)
{
    bool aligned = (((uintptr_t)qkv | (uintptr_t)y) & 15) == 0;
    return dtype != YK_F32 && head_size % 8 == 0 && head_size <= 256 && aligned;
}

static yk_status refuse_head_size(int64_t head_size)
{
    return yk_fail(YK_EUNSUPPORTED, "attention", "head size %lld; up to 256 is offered",
                   (long long)head_size);
}

/* ---- running ------------------------------------------------------------------------------ */

yk_status yk_cuda_attention_forward(yk_stream *s, const yk_attention_forward_args *a, void *ws)
{
    const yk_cuda_state *state = yk_cuda_state_of(s);
    cudaStream_t stream = yk_cuda_stream_of(s);
    bool done = false;
    if (a->head_size > 256) return refuse_head_size(a->head_size);
    YK_TRY(yk_cuda_enter(s->device));
    if (asks_cudnn(state, a->seq_len, a->head_size))
        YK_TRY(yk_cudnn_attention_forward(state->cudnn, stream, a, ws, &done));
    if (done) return YK_OK;
    bool flash = is_flash(a->dtype, a->head_size, a->qkv, a->y);
    return yk_cuda_check(flash ? yk_cuda_flash_forward(a, stream)
                               : yk_cuda_plain_forward(a, stream),
                         "attention_forward");
}

yk_status yk_cuda_attention_backward(yk_stream *s, const yk_attention_backward_args *a, void *ws)
{
    const yk_cuda_state *state = yk_cuda_state_of(s);
    cudaStream_t stream = yk_cuda_stream_of(s);
    bool done = false;
    if (a->head_size > 256) return refuse_head_size(a->head_size);
    YK_TRY(yk_cuda_enter(s->device));
    if (asks_cudnn(state, a->seq_len, a->head_size))
        YK_TRY(yk_cudnn_attention_backward(state->cudnn, stream, a, ws, &done));
    if (done) return YK_OK;
    bool flash = is_flash(a->dtype, a->head_size, a->qkv, a->y) &&
                 (((uintptr_t)a->dy | (uintptr_t)a->dqkv) & 15) == 0;
    return yk_cuda_check(flash ? yk_cuda_flash_backward(a, state->shared_bytes_max, ws, stream)
                               : yk_cuda_plain_backward(a, ws, stream),
                         "attention_backward");
}

yk_status yk_cuda_attention_cached_run(yk_stream *s, const yk_attention_cached_args *a, void *ws)
{
    (void)ws;
    if (a->head_size > 256) return refuse_head_size(a->head_size);
    YK_TRY(yk_cuda_enter(s->device));
    return yk_cuda_check(yk_cuda_attention_cached(a, yk_cuda_stream_of(s)), "attention_cached");
}
