/* runtime/device/cuda/ops_cuda.c - the table of operations, and those that are kernels of our own.
 *
 * Each enqueues and reports what the launch said. Errors that a kernel meets while it runs surface
 * at the next synchronisation, as CUDA has it.
 */
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/kernels.h"

/* Launch and report: `launch` sees the CUDA stream as `cs`. */
#define LAUNCH(what, launch)                                                                       \
    do {                                                                                           \
        cudaStream_t cs = yk_cuda_stream_of(s);                                                    \
        YK_TRY(yk_cuda_enter(s->device));                                                          \
        return yk_cuda_check(launch, what);                                                        \
    } while (0)

static yk_status cuda_embed_forward(yk_stream *s, const yk_embed_forward_args *a)
{
    LAUNCH("embed_forward", yk_cuda_embed_forward(a, cs));
}

static yk_status cuda_embed_backward(yk_stream *s, const yk_embed_backward_args *a, void *ws)
{
    LAUNCH("embed_backward", yk_cuda_embed_backward(a, ws, cs));
}

static yk_status cuda_norm_forward(yk_stream *s, const yk_norm_forward_args *a)
{
    int shared = yk_cuda_state_of(s)->shared_bytes_max;
    LAUNCH("norm_forward", yk_cuda_norm_forward(a, shared, cs));
}

static yk_status cuda_norm_backward(yk_stream *s, const yk_norm_backward_args *a, void *ws)
{
    LAUNCH("norm_backward", yk_cuda_norm_backward(a, ws, cs));
}

static yk_status cuda_rope(yk_stream *s, const yk_rope_args *a, void *ws)
{
    LAUNCH("rope", yk_cuda_rope(a, ws, cs));
}

static yk_status cuda_swiglu_forward(yk_stream *s, const yk_swiglu_forward_args *a)
{
    LAUNCH("swiglu_forward", yk_cuda_swiglu_forward(a, cs));
}

static yk_status cuda_swiglu_backward(yk_stream *s, const yk_swiglu_backward_args *a)
{
    LAUNCH("swiglu_backward", yk_cuda_swiglu_backward(a, cs));
}

static yk_status cuda_cross_entropy(yk_stream *s, const yk_cross_entropy_args *a)
{
    int shared = yk_cuda_state_of(s)->shared_bytes_max;
    LAUNCH("cross_entropy", yk_cuda_cross_entropy(a, shared, cs));
}

static yk_status cuda_loss_sum(yk_stream *s, const yk_loss_sum_args *a, void *ws)
{
    (void)ws;
    LAUNCH("loss_sum", yk_cuda_loss_sum(a, cs));
}

static yk_status cuda_step_begin(yk_stream *s, const yk_step_begin_args *a)
{
    LAUNCH("step_begin", yk_cuda_step_begin(a, cs));
}

static yk_status cuda_sum_squares(yk_stream *s, const yk_sum_squares_args *a, void *ws)
{
    LAUNCH("sum_squares", yk_cuda_sum_squares(a, ws, cs));
}

static yk_status cuda_step_finish(yk_stream *s, const yk_step_finish_args *a)
{
    LAUNCH("step_finish", yk_cuda_step_finish(a, cs));
}

static yk_status cuda_adamw(yk_stream *s, const yk_adamw_args *a)
{
    LAUNCH("adamw", yk_cuda_adamw(a, cs));
}

static yk_status cuda_draw_normal(yk_stream *s, const yk_draw_normal_args *a)
{
    LAUNCH("draw_normal", yk_cuda_draw_normal(a, cs));
}

static yk_status cuda_cast(yk_stream *s, const yk_cast_args *a)
{
    LAUNCH("cast", yk_cuda_cast(a, cs));
}

static yk_status cuda_copy(yk_stream *s, void *dst, const void *src, int64_t bytes,
                           yk_copy_kind kind)
{
    static const enum cudaMemcpyKind kinds[] = {
        [YK_COPY_DEVICE] = cudaMemcpyDeviceToDevice,
        [YK_COPY_HOST_TO_DEVICE] = cudaMemcpyHostToDevice,
        [YK_COPY_DEVICE_TO_HOST] = cudaMemcpyDeviceToHost,
    };
    LAUNCH("copy", cudaMemcpyAsync(dst, src, (size_t)bytes, kinds[kind], cs));
}

static yk_status cuda_zero(yk_stream *s, void *dst, int64_t bytes)
{
    LAUNCH("zero", cudaMemsetAsync(dst, 0, (size_t)bytes, cs));
}

static yk_status cuda_greatest(yk_stream *s, const yk_greatest_args *a)
{
    LAUNCH("greatest", yk_cuda_greatest(a, cs));
}

static yk_status cuda_pack(yk_stream *s, const yk_pack_args *a)
{
    LAUNCH("pack", yk_cuda_wire_pack(a, cs));
}

static yk_status cuda_sum_parts(yk_stream *s, const yk_sum_parts_args *a)
{
    LAUNCH("sum_parts", yk_cuda_wire_sum(a, cs));
}

static yk_status cuda_sum_values(yk_stream *s, const yk_sum_values_args *a)
{
    LAUNCH("sum_values", yk_cuda_sum_values(a, cs));
}

cudaError_t yk_cuda_kernels_prepare(int shared_bytes_max)
{
    cudaError_t e = yk_cuda_cross_entropy_prepare(shared_bytes_max);
    if (e == cudaSuccess) e = yk_cuda_norm_forward_prepare(shared_bytes_max);
    if (e == cudaSuccess) e = yk_cuda_norm_backward_prepare();
    if (e == cudaSuccess) e = yk_cuda_plain_prepare();
    if (e == cudaSuccess) e = yk_cuda_flash_forward_prepare(shared_bytes_max);
    return e != cudaSuccess ? e : yk_cuda_flash_backward_prepare(shared_bytes_max);
}

static yk_status cuda_limit_shared(yk_device *d, int64_t bytes)
{
    yk_cuda_state *state = d->state;
    int own = 0;
    YK_TRY(yk_cuda_enter(d));
    YK_TRY(yk_cuda_check(
        cudaDeviceGetAttribute(&own, cudaDevAttrMaxSharedMemoryPerBlockOptin, state->index),
        "shared memory"));
    state->shared_bytes_max = bytes > 0 && bytes < own ? (int)bytes : own;
    return yk_cuda_check(yk_cuda_kernels_prepare(state->shared_bytes_max), "shared memory");
}

const yk_backend yk_cuda_backend = {
    .workspaces = &yk_cuda_workspaces,
    .close = yk_cuda_close,
    .set_tf32 = yk_cuda_set_tf32,
    .set_attention = yk_cuda_set_attention,
    .limit_shared = cuda_limit_shared,
    .alloc = yk_cuda_alloc,
    .room = yk_cuda_room,
    .free = yk_cuda_free,
    .used_bytes = yk_cuda_used_bytes,
    .held_bytes = yk_cuda_held_bytes,
    .stream_create = yk_cuda_stream_create,
    .stream_destroy = yk_cuda_stream_destroy,
    .stream_synchronize = yk_cuda_stream_synchronize,
    .stream_run = yk_cuda_stream_run,
    .stream_now = yk_cuda_stream_now,
    .event_create = yk_cuda_event_create,
    .event_destroy = yk_cuda_event_destroy,
    .event_record = yk_cuda_event_record,
    .event_wait = yk_cuda_event_wait,
    .event_synchronize = yk_cuda_event_synchronize,
    .reaches_peers = yk_cuda_reaches_peers,
    .share = yk_cuda_share,
    .unshare = yk_cuda_unshare,
    .stream_write_flag = yk_cuda_stream_write_flag,
    .stream_await_flag = yk_cuda_stream_await_flag,
    .fail = yk_cuda_fail,
    .capture_begin = yk_cuda_capture_begin,
    .capture_end = yk_cuda_capture_end,
    .graph_launch = yk_cuda_graph_launch,
    .graph_destroy = yk_cuda_graph_destroy,
    .mark = yk_cuda_mark,
    .mark_read = yk_cuda_mark_read,
    .mark_passed = yk_cuda_mark_passed,
    .mark_destroy = yk_cuda_mark_destroy,
    .set_part = yk_cuda_set_part,
    .embed_forward = cuda_embed_forward,
    .embed_backward = cuda_embed_backward,
    .norm_forward = cuda_norm_forward,
    .norm_backward = cuda_norm_backward,
    .linear_forward = yk_cuda_linear_forward,
    .linear_backward_input = yk_cuda_linear_backward_input,
    .linear_backward_weight = yk_cuda_linear_backward_weight,
    .rope = cuda_rope,
    .attention_forward = yk_cuda_attention_forward,
    .attention_backward = yk_cuda_attention_backward,
    .attention_cached = yk_cuda_attention_cached_run,
    .swiglu_forward = cuda_swiglu_forward,
    .swiglu_backward = cuda_swiglu_backward,
    .cross_entropy = cuda_cross_entropy,
    .loss_sum = cuda_loss_sum,
    .step_begin = cuda_step_begin,
    .sum_squares = cuda_sum_squares,
    .step_finish = cuda_step_finish,
    .adamw = cuda_adamw,
    .draw_normal = cuda_draw_normal,
    .cast = cuda_cast,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .greatest = cuda_greatest,
    .pack = cuda_pack,
    .sum_parts = cuda_sum_parts,
    .sum_values = cuda_sum_values,
};
