/* runtime/device/cuda/cuda_device.h - what the C files of the cuda backend share.
 *
 * The state of a device: its number, what its limits are, the cuBLASLt handle, and the products
 * whose descriptors and algorithms have been chosen (linear_cuda.c).
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_CUDA_DEVICE_H
#define YK_RUNTIME_DEVICE_CUDA_CUDA_DEVICE_H

#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>

#include "runtime/device/backend.h"
#include "runtime/device/cuda/attention_cudnn.h"

typedef struct yk_cuda_products yk_cuda_products;

/* Host memory that is shared with other processes, and where the GPU sees it. */
typedef struct yk_cuda_shared {
    uintptr_t host, device, bytes;
} yk_cuda_shared;

#define YK_CUDA_SHARED_MAX 16

/* cuStreamWriteValue32() or cuStreamWaitValue32(). */
typedef CUresult (*yk_cuda_flag_fn)(CUstream stream, CUdeviceptr at, cuuint32_t value,
                                    unsigned flags);

typedef struct yk_cuda_state {
    int index;            /* CUDA's number of the GPU */
    int shared_bytes_max; /* shared memory that one block may have */
    bool tf32;            /* fp32 products may round their inputs to TF32 */
    bool in_part;         /* a range of NVTX is open */
    atomic_int failure;   /* yk_status of the first host function that failed: sticky */
    cublasLtHandle_t lt;
    yk_cuda_products *products;
    yk_cuda_shared shared[YK_CUDA_SHARED_MAX];
    int n_shared;
    yk_cuda_flag_fn write_value, wait_value; /* NULL until memory is shared */
    yk_attention_provider provider;
    yk_cudnn_attention *cudnn; /* NULL: not wanted, or not there */
    bool cudnn_first;          /* where nothing is timed */
    bool deterministic;        /* attention's gradient */
} yk_cuda_state;

/* The state of a stream begins with CUDA's own; the rest is stream_cuda.c's. */
typedef struct yk_cuda_stream {
    cudaStream_t stream;
} yk_cuda_stream;

static inline yk_cuda_state *yk_cuda_state_of(const yk_stream *s)
{
    return s->device->state;
}

static inline cudaStream_t yk_cuda_stream_of(const yk_stream *s)
{
    return ((const yk_cuda_stream *)s->state)->stream;
}

/* YK_OK, or report CUDA's error as a failure of `what`. */
yk_status yk_cuda_check(cudaError_t error, const char *what);

/* linear_cuda.c */
yk_status yk_cuda_products_create(yk_cuda_products **products_out);
void yk_cuda_products_destroy(yk_cuda_products *products);
yk_status yk_cuda_linear_forward(yk_stream *s, const yk_linear_forward_args *a, void *ws);
yk_status yk_cuda_linear_backward_input(yk_stream *s, const yk_linear_backward_input_args *a,
                                        void *ws);
yk_status yk_cuda_linear_backward_weight(yk_stream *s, const yk_linear_backward_weight_args *a,
                                         void *ws);

/* attention_cuda.c */
yk_status yk_cuda_set_attention(yk_device *d, yk_attention_provider provider, bool deterministic);
yk_status yk_cuda_attention_forward(yk_stream *s, const yk_attention_forward_args *a, void *ws);
yk_status yk_cuda_attention_backward(yk_stream *s, const yk_attention_backward_args *a, void *ws);
yk_status yk_cuda_attention_cached_run(yk_stream *s, const yk_attention_cached_args *a, void *ws);

/* ops_cuda.c: the operations that are kernels of our own, and copies. */
extern const yk_backend yk_cuda_backend;

/* backend_cuda.c, pinned_cuda.c and stream_cuda.c: memory, streams, events. */
void yk_cuda_close(yk_device *d);
void yk_cuda_set_tf32(yk_device *d, bool on);
cudaError_t yk_cuda_pinned_alloc(int64_t bytes, void **memory_out);
void yk_cuda_pinned_free(int64_t bytes, void *memory);
yk_status yk_cuda_alloc(yk_device *d, yk_memory_kind kind, int64_t bytes, void **memory_out);
void yk_cuda_room(const yk_device *d, yk_memory_kind kind, char *text_out, size_t size);
void yk_cuda_free(yk_device *d, yk_memory_kind kind, int64_t bytes, void *memory);
int64_t yk_cuda_used_bytes(const yk_device *d);
int64_t yk_cuda_held_bytes(const yk_device *d);
yk_status yk_cuda_stream_create(yk_stream *s);
void yk_cuda_stream_destroy(yk_stream *s);
yk_status yk_cuda_stream_synchronize(yk_stream *s);
yk_status yk_cuda_stream_run(yk_stream *s, yk_stream_fn fn, const void *context, int64_t bytes);
double yk_cuda_stream_now(const yk_stream *s);
yk_status yk_cuda_event_create(yk_event *e);
void yk_cuda_event_destroy(yk_event *e);
yk_status yk_cuda_event_record(yk_event *e, yk_stream *s);
yk_status yk_cuda_event_wait(yk_event *e, yk_stream *s);
yk_status yk_cuda_event_synchronize(yk_event *e);

/* flag_cuda.c */
bool yk_cuda_reaches_peers(const yk_device *d);
yk_status yk_cuda_share(yk_device *d, void *memory, int64_t bytes);
void yk_cuda_unshare(yk_device *d, void *memory, int64_t bytes);
yk_status yk_cuda_stream_write_flag(yk_stream *s, uint32_t *flag, uint32_t value);
yk_status yk_cuda_stream_await_flag(yk_stream *s, const uint32_t *flag, uint32_t value);
void yk_cuda_fail(yk_device *d, yk_status status);

/* graph_cuda.c */
yk_status yk_cuda_capture_begin(yk_stream *s);
yk_status yk_cuda_capture_end(yk_stream *s, void **graph_out);
yk_status yk_cuda_graph_launch(yk_stream *s, void *graph);
void yk_cuda_graph_destroy(yk_device *d, void *graph);

/* mark_cuda.c: places in time, and names for a profiler. */
yk_status yk_cuda_mark(yk_stream *s, yk_mark *m);
yk_status yk_cuda_mark_read(yk_device *d, const yk_mark *from, const yk_mark *to, double *s_out);
bool yk_cuda_mark_passed(yk_device *d, const yk_mark *m);
void yk_cuda_mark_destroy(yk_device *d, yk_mark *m);
void yk_cuda_set_part(yk_device *d, const char *part);

/* Make the device current for the calling thread, since threads other than the opener enqueue too.
 * Returns the failure of a host function, if there was one: after it no call does anything. */
static inline yk_status yk_cuda_enter(const yk_device *d)
{
    yk_cuda_state *state = d->state;
    int failure = atomic_load_explicit(&state->failure, memory_order_relaxed);
    return failure ? (yk_status)failure : yk_cuda_check(cudaSetDevice(state->index), "GPU");
}

#endif
