/* runtime/device/cuda/attention_cuda.c - which kernels serve a call of attention.
 *
 * Three are there: cuDNN's, where it is found and serves the shape; our own with matrix instructions;
 * and our plain ones, for fp32, odd head sizes and pointers that are not aligned. They keep the same
 * numbers between forward and backward, so that each call is free to choose: where both of the first
 * two serve a shape, and the tuner may time them, the faster one does.
 */
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/kernels.h"
#include "runtime/device/cuda/ways.h"

#define WHY_BYTES 160

/* ---- choosing ----------------------------------------------------------------------------- */

/* Whether cuDNN goes first, and is taken where nothing may be timed: on sm_90 it was faster at most
 * sizes that were measured (docs/performance.md); elsewhere nothing is known. */
static bool goes_first(int index)
{
    int major = 0;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    return major == 9;
}

yk_status yk_cuda_set_attention(yk_device *d, yk_attention_provider provider, bool deterministic)
{
    yk_cuda_state *state = d->state;
    YK_TRY(yk_cuda_enter(d));
    bool wanted = provider != YK_ATTENTION_OWN;
    if (wanted && !state->cudnn) {
        char why[WHY_BYTES];
        yk_status status = yk_cudnn_attention_open(&state->cudnn, why, sizeof why);
        if (status == YK_EUNSUPPORTED && provider == YK_ATTENTION_CUDNN)
            return yk_fail(YK_EUNSUPPORTED, "attention.provider", "%s, or set it to auto", why);
        if (status != YK_EUNSUPPORTED) YK_TRY(status);
        if (status == YK_EUNSUPPORTED && goes_first(state->index))
            yk_warn("attention.provider", "%s; our own kernels are used, which are slower", why);
    }
    if (!wanted) {
        yk_cudnn_attention_close(state->cudnn);
        state->cudnn = NULL;
    }
    if (state->cudnn) yk_cudnn_attention_set_deterministic(state->cudnn, deterministic);
    state->provider = state->cudnn ? provider : YK_ATTENTION_OWN;
    state->cudnn_first = state->cudnn && goes_first(state->index);
    state->deterministic = deterministic;
    d->spec.cudnn = state->cudnn != NULL;
    d->workspaces = state->cudnn ? &yk_cuda_cudnn_workspaces : &yk_cuda_workspaces;
    return YK_OK;
}

/* Who may serve a call. */
typedef enum server { CUDNN, OWN } server;

#define N_SERVERS 2

/* A call of either kind. */
typedef struct call {
    yk_stream *s;
    const yk_attention_forward_args *forward; /* or NULL */
    const yk_attention_backward_args *backward;
    void *ws;
    server servers[N_SERVERS]; /* in the order of the ways */
    int n_servers;
    yk_status status; /* of the first that failed */
} call;

/* CUDNN: all that it may be able to serve. */
static bool asks_cudnn(const yk_cuda_state *state, yk_dtype dtype, int64_t seq_len,
                       int64_t head_size, const int32_t *doc_start)
{
    if (!state->cudnn) return false;
    if (state->provider == YK_ATTENTION_CUDNN) return dtype != YK_F32 && !doc_start;
    return yk_attention_suits_cudnn(dtype, seq_len, head_size, doc_start);
}

/* What the kernels with matrix instructions take; the plain ones take the rest. */
static bool is_flash(yk_dtype dtype, int64_t head_size, uintptr_t pointers)
{
    return dtype != YK_F32 && head_size % 8 == 0 && head_size <= 256 && pointers % 16 == 0;
}

static void add_server(call *c, server who)
{
    c->servers[c->n_servers++] = who;
}

static void list_servers(call *c, bool cudnn, bool flash)
{
    const yk_cuda_state *state = yk_cuda_state_of(c->s);
    bool own = flash && state->provider != YK_ATTENTION_CUDNN;
    c->n_servers = 0;
    if (own && !state->cudnn_first) add_server(c, OWN);
    if (cudnn) add_server(c, CUDNN);
    if (own && state->cudnn_first) add_server(c, OWN);
    if (c->n_servers == 0) add_server(c, OWN);
}

static yk_status refuse_head_size(int64_t head_size)
{
    return yk_fail(YK_EUNSUPPORTED, "attention", "head size %lld; up to 256 is offered",
                   (long long)head_size);
}

/* ---- running ------------------------------------------------------------------------------ */

static yk_status run_forward(const call *c, server who, bool *done_out)
{
    const yk_cuda_state *state = yk_cuda_state_of(c->s);
    const yk_attention_forward_args *a = c->forward;
    cudaStream_t stream = yk_cuda_stream_of(c->s);
    if (who != OWN) return yk_cudnn_attention_forward(state->cudnn, stream, a, c->ws, done_out);
    *done_out = true;
    bool flash = is_flash(a->dtype, a->head_size, (uintptr_t)a->qkv | (uintptr_t)a->y);
    return yk_cuda_check(flash ? yk_cuda_flash_forward(a, stream)
                               : yk_cuda_plain_forward(a, stream),
                         "attention_forward");
}

static bool is_flash_backward(const yk_attention_backward_args *a)
{
    uintptr_t pointers =
        (uintptr_t)a->qkv | (uintptr_t)a->y | (uintptr_t)a->dy | (uintptr_t)a->dqkv;
    return is_flash(a->dtype, a->head_size, pointers);
}

static yk_status run_backward(const call *c, server who, bool *done_out)
{
    const yk_cuda_state *state = yk_cuda_state_of(c->s);
    const yk_attention_backward_args *a = c->backward;
    cudaStream_t stream = yk_cuda_stream_of(c->s);
    if (who != OWN)
        return yk_cudnn_attention_backward(state->cudnn, stream, a,
                                           c->s->device->spec.attention_bytes, c->ws, done_out);
    *done_out = true;
    return yk_cuda_check(is_flash_backward(a)
                             ? yk_cuda_flash_backward(a, state->shared_bytes_max, c->ws, stream)
                             : yk_cuda_plain_backward(a, c->ws, stream),
                         "attention_backward");
}

/* What a choice depends on beside the shape. */
static int64_t conditions(const yk_cuda_state *state, yk_dtype dtype, bool backward)
{
    return (int64_t)dtype | (backward ? 256 : 0) | (state->deterministic ? 512 : 0) |
           (state->provider == YK_ATTENTION_CUDNN ? 1024 : 0) |
           (state->cudnn ? yk_cudnn_attention_version(state->cudnn) * 65536 : 0);
}

static yk_status run(const call *c, server who, bool *done_out)
{
    *done_out = false;
    return c->forward ? run_forward(c, who, done_out) : run_backward(c, who, done_out);
}

static bool run_way(void *context, int way)
{
    call *c = context;
    bool done = false;
    yk_status status = run(c, c->servers[way], &done);
    if (c->status == YK_OK) c->status = status;
    return status == YK_OK && done;
}

/* By whoever was found fastest, or else our own kernels. */
static yk_status serve(call *c, yk_cuda_ways *ways)
{
    int way = 0;
    bool done = false;
    ways->n = c->n_servers;
    ways->may_race = c->n_servers > 1;
    ways->run = run_way;
    ways->context = c;
    if (c->n_servers > 1) YK_TRY(yk_cuda_ways_choose(ways, &way));
    YK_TRY(c->status);
    YK_TRY(run(c, c->servers[way], &done));
    return done ? YK_OK : run(c, OWN, &done);
}

yk_status yk_cuda_attention_forward(yk_stream *s, const yk_attention_forward_args *a, void *ws)
{
    const yk_cuda_state *state = yk_cuda_state_of(s);
    call c = {.s = s, .forward = a, .ws = ws};
    if (a->head_size > 256) return refuse_head_size(a->head_size);
    YK_TRY(yk_cuda_enter(s->device));
    list_servers(&c, asks_cudnn(state, a->dtype, a->seq_len, a->head_size, a->doc_start),
                 is_flash(a->dtype, a->head_size, (uintptr_t)a->qkv | (uintptr_t)a->y));
    return serve(
        &c, &(yk_cuda_ways){.s = s,
                            .key = {YK_TUNER_ATTENTION_WAY, a->batch, a->seq_len, a->heads,
                                    a->kv_heads, a->head_size, conditions(state, a->dtype, false)},
                            .out = a->y,
                            .out_bytes = a->batch * a->seq_len * a->heads * a->head_size * 2,
                            .digest = ws});
}

yk_status yk_cuda_attention_backward(yk_stream *s, const yk_attention_backward_args *a, void *ws)
{
    const yk_cuda_state *state = yk_cuda_state_of(s);
    call c = {.s = s, .backward = a, .ws = ws};
    if (a->head_size > 256) return refuse_head_size(a->head_size);
    YK_TRY(yk_cuda_enter(s->device));
    list_servers(&c, asks_cudnn(state, a->dtype, a->seq_len, a->head_size, a->doc_start),
                 is_flash_backward(a));
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_size;
    return serve(
        &c, &(yk_cuda_ways){.s = s,
                            .key = {YK_TUNER_ATTENTION_WAY, a->batch, a->seq_len, a->heads,
                                    a->kv_heads, a->head_size, conditions(state, a->dtype, true)},
                            .out = a->dqkv,
                            .out_bytes = a->batch * a->seq_len * width * 2,
                            .digest = ws});
}

yk_status yk_cuda_attention_cached_run(yk_stream *s, const yk_attention_cached_args *a, void *ws)
{
    (void)ws;
    if (a->head_size > 256) return refuse_head_size(a->head_size);
    YK_TRY(yk_cuda_enter(s->device));
    return yk_cuda_check(yk_cuda_attention_cached(a, yk_cuda_stream_of(s)), "attention_cached");
}
