/* runtime/device/cpu/cpu.h - what the files of the cpu backend share; included by cpu/ alone.
 *
 * Threads.  An operation cuts its work into pieces by its shape alone, and threads take pieces. So
 *           the number of threads never changes a bit. No OpenMP setting of the process is touched.
 * Scratch.  Each thread of a stream has a fixed piece of memory of its own, made with the stream,
 *           for tiles. What grows with a shape, or is read by another thread, lies in the workspace.
 */
#ifndef YK_RUNTIME_DEVICE_CPU_CPU_H
#define YK_RUNTIME_DEVICE_CPU_CPU_H

#include "runtime/base/arith.h"
#include "runtime/device/backend.h"
#include "runtime/device/cpu/queue.h"

/* Floats of scratch that each thread of a stream has; aligned to 256 bytes. */
#define CPU_SCRATCH_FLOATS (256 * 1024)

/* Elements that a thread takes at a time in an operation on single elements. */
#define CPU_CHUNK 16384

typedef struct cpu_stream {
    float *scratch; /* (threads, CPU_SCRATCH_FLOATS); owned; NULL on a transfer stream */
    int n_threads;
    cpu_queue *queue; /* of a transfer stream; owned; else NULL */
} cpu_stream;

/* Memory for free(), aligned to 256 bytes, on huge pages where that pays; NULL when there is none. */
void *yk_cpu_allocate(int64_t bytes);

/* What the device was failed with, or YK_OK. */
yk_status yk_cpu_failure(const yk_device *d);
void yk_cpu_fail(yk_device *d, yk_status status);

/* The number of threads that the device was opened with. */
int yk_cpu_n_threads(const yk_device *d);

/* Whether products are made on matrix units. */
bool yk_cpu_uses_amx(const yk_device *d);

/* Threads for `n_pieces` pieces of work. */
static inline int cpu_threads(const yk_stream *s, int64_t n_pieces)
{
    int n = ((const cpu_stream *)s->state)->n_threads;
    return n_pieces < n ? (int)yk_max(n_pieces, 1) : n;
}

/* Scratch of thread `thread`, an omp_get_thread_num() of a region of this stream. */
static inline float *cpu_scratch(const yk_stream *s, int thread)
{
    return ((const cpu_stream *)s->state)->scratch + (int64_t)thread * CPU_SCRATCH_FLOATS;
}

/* Element i of p. */
static inline void *cpu_at(const void *p, int64_t i, yk_dtype t)
{
    return (char *)(uintptr_t)p + i * yk_dtype_bytes(t);
}

/* Streams and events, as in backend.h. A copy goes to the stream's queue where it has one. */
yk_status yk_cpu_stream_create(yk_stream *s);
void yk_cpu_stream_destroy(yk_stream *s);
yk_status yk_cpu_stream_synchronize(yk_stream *s);
yk_status yk_cpu_stream_run(yk_stream *s, yk_stream_fn fn, const void *context, int64_t bytes);
double yk_cpu_stream_now(const yk_stream *s);
yk_status yk_cpu_stream_copy(yk_stream *s, void *dst, const void *src, int64_t bytes,
                             yk_copy_kind kind);
yk_status yk_cpu_stream_zero(yk_stream *s, void *dst, int64_t bytes);
yk_status yk_cpu_event_create(yk_event *e);
void yk_cpu_event_destroy(yk_event *e);
yk_status yk_cpu_event_record(yk_event *e, yk_stream *s);
yk_status yk_cpu_event_wait(yk_event *e, yk_stream *s);
yk_status yk_cpu_event_synchronize(yk_event *e);
yk_status yk_cpu_stream_write_flag(yk_stream *s, uint32_t *flag, uint32_t value);
yk_status yk_cpu_stream_await_flag(yk_stream *s, const uint32_t *flag, uint32_t value);
yk_status yk_cpu_mark(yk_stream *s, yk_mark *m);

yk_status yk_cpu_embed_forward(yk_stream *s, const yk_embed_forward_args *a);
yk_status yk_cpu_embed_backward(yk_stream *s, const yk_embed_backward_args *a, void *ws);
yk_status yk_cpu_norm_forward(yk_stream *s, const yk_norm_forward_args *a);
yk_status yk_cpu_norm_backward(yk_stream *s, const yk_norm_backward_args *a, void *ws);
yk_status yk_cpu_linear_forward(yk_stream *s, const yk_linear_forward_args *a, void *ws);
yk_status yk_cpu_linear_backward_input(yk_stream *s, const yk_linear_backward_input_args *a,
                                       void *ws);
yk_status yk_cpu_linear_backward_weight(yk_stream *s, const yk_linear_backward_weight_args *a,
                                        void *ws);
yk_status yk_cpu_rope(yk_stream *s, const yk_rope_args *a, void *ws);
yk_status yk_cpu_attention_forward(yk_stream *s, const yk_attention_forward_args *a, void *ws);
yk_status yk_cpu_attention_backward(yk_stream *s, const yk_attention_backward_args *a, void *ws);
yk_status yk_cpu_attention_cached(yk_stream *s, const yk_attention_cached_args *a, void *ws);
yk_status yk_cpu_swiglu_forward(yk_stream *s, const yk_swiglu_forward_args *a);
yk_status yk_cpu_swiglu_backward(yk_stream *s, const yk_swiglu_backward_args *a);
yk_status yk_cpu_cross_entropy(yk_stream *s, const yk_cross_entropy_args *a);
yk_status yk_cpu_loss_sum(yk_stream *s, const yk_loss_sum_args *a, void *ws);
yk_status yk_cpu_step_begin(yk_stream *s, const yk_step_begin_args *a);
yk_status yk_cpu_sum_squares(yk_stream *s, const yk_sum_squares_args *a, void *ws);
yk_status yk_cpu_step_finish(yk_stream *s, const yk_step_finish_args *a);
yk_status yk_cpu_adamw(yk_stream *s, const yk_adamw_args *a);
yk_status yk_cpu_draw_normal(yk_stream *s, const yk_draw_normal_args *a);
yk_status yk_cpu_cast(yk_stream *s, const yk_cast_args *a);
yk_status yk_cpu_copy(yk_stream *s, void *dst, const void *src, int64_t bytes, yk_copy_kind kind);
yk_status yk_cpu_zero(yk_stream *s, void *dst, int64_t bytes);
yk_status yk_cpu_greatest(yk_stream *s, const yk_greatest_args *a);
yk_status yk_cpu_pack(yk_stream *s, const yk_pack_args *a);
yk_status yk_cpu_sum_parts(yk_stream *s, const yk_sum_parts_args *a);
yk_status yk_cpu_sum_values(yk_stream *s, const yk_sum_values_args *a);

/* Bytes of workspace, as in backend.h; each beside its operation. */
int64_t yk_cpu_embed_backward_bytes(const yk_embed_backward_args *a);
int64_t yk_cpu_norm_backward_bytes(const yk_norm_backward_args *a);
int64_t yk_cpu_linear_forward_bytes(const yk_linear_forward_args *a);
int64_t yk_cpu_linear_backward_input_bytes(const yk_linear_backward_input_args *a);
int64_t yk_cpu_linear_backward_weight_bytes(const yk_linear_backward_weight_args *a);
int64_t yk_cpu_rope_bytes(const yk_rope_args *a);
int64_t yk_cpu_attention_forward_bytes(const yk_attention_forward_args *a);
int64_t yk_cpu_attention_backward_bytes(const yk_attention_backward_args *a,
                                        const yk_device_spec *spec);
int64_t yk_cpu_sum_squares_bytes(const yk_sum_squares_args *a);

#endif
