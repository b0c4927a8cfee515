/* runtime/device/backend.h - what a device backend provides; included by device/ alone.
 *
 * A backend is two tables. `yk_backend` holds memory, streams, events and the operations; NULL
 * means "not offered" and the dispatcher in ops.c answers YK_EUNSUPPORTED. The dispatcher has
 * checked sizes and pointers and dealt with zero rows, so that an operation need not.
 * `yk_workspaces` says how much workspace an operation takes; its functions are pure and compiled
 * everywhere, also without CUDA, so that a dry device can stand in for any backend. NULL means
 * none.
 */
#ifndef YK_RUNTIME_DEVICE_BACKEND_H
#define YK_RUNTIME_DEVICE_BACKEND_H

#include <stdatomic.h>

#include "runtime/device/ops.h"
#include "runtime/device/ops_wire.h"
#include "runtime/device/tuner.h"

/* A place in time on a stream. */
typedef union yk_mark {
    double at_s; /* on the stream's clock */
    void *event; /* of a device that has its own clock; made by the first mark */
} yk_mark;

typedef struct yk_workspaces {
    int64_t (*embed_backward)(const yk_embed_backward_args *a);
    int64_t (*norm_backward)(const yk_norm_backward_args *a);
    int64_t (*linear_forward)(const yk_linear_forward_args *a);
    int64_t (*linear_backward_input)(const yk_linear_backward_input_args *a);
    int64_t (*linear_backward_weight)(const yk_linear_backward_weight_args *a);
    int64_t (*rope)(const yk_rope_args *a);
    int64_t (*attention_forward)(const yk_attention_forward_args *a);
    int64_t (*attention_backward)(const yk_attention_backward_args *a, const yk_device_spec *spec);
    int64_t (*attention_cached)(const yk_attention_cached_args *a);
    int64_t (*loss_sum)(const yk_loss_sum_args *a);
    int64_t (*sum_squares)(const yk_sum_squares_args *a);
} yk_workspaces;

typedef struct yk_backend {
    const yk_workspaces *workspaces; /* NULL on dry: it has those of the kind it stands in for */

    /* Releases the struct too: the backend's open made it. */
    void (*close)(yk_device *d);
    void (*set_amx)(yk_device *d, bool on);  /* NULL: the device has no such units */
    void (*set_tf32)(yk_device *d, bool on); /* NULL: the device has no TF32 */
    /* NULL: the device has its own attention alone. */
    yk_status (*set_attention)(yk_device *d, yk_attention_provider provider, bool deterministic);
    yk_status (*limit_shared)(yk_device *d, int64_t bytes); /* NULL: there is no shared memory */
    yk_status (*alloc)(yk_device *d, yk_memory_kind kind, int64_t bytes, void **memory_out);
    void (*free)(yk_device *d, yk_memory_kind kind, int64_t bytes, void *memory);
    /* After YK_ENOMEM, which `alloc` does not report: write how much is free and which others have
     * how much, such as "5 of 10 free; process 7 (x) has 3". */
    void (*room)(const yk_device *d, yk_memory_kind kind, char *text_out, size_t size);
    int64_t (*used_bytes)(const yk_device *d); /* NULL: not known */
    int64_t (*held_bytes)(const yk_device *d); /* likewise; 0: not known just now */
    /* Streams and events: these fill and empty `state`; device.c makes and frees the structs. */
    yk_status (*stream_create)(yk_stream *s);
    void (*stream_destroy)(yk_stream *s);
    yk_status (*stream_synchronize)(yk_stream *s);
    yk_status (*stream_run)(yk_stream *s, yk_stream_fn fn, const void *context, int64_t bytes);
    /* `link_bytes` to the device and to the host. NULL but on dry. */
    yk_status (*stream_charge)(yk_stream *s, double seconds, double bytes,
                               const double link_bytes[2]);
    double (*stream_now)(const yk_stream *s);
    yk_status (*event_create)(yk_event *e);
    void (*event_destroy)(yk_event *e);
    yk_status (*event_record)(yk_event *e, yk_stream *s);
    yk_status (*event_wait)(yk_event *e, yk_stream *s);
    yk_status (*event_synchronize)(yk_event *e);
    bool (*reaches_peers)(const yk_device *d); /* NULL: true */
    /* Flags: NULL leaves out share and unshare where nothing has to be pinned. */
    yk_status (*share)(yk_device *d, void *memory, int64_t bytes);
    void (*unshare)(yk_device *d, void *memory, int64_t bytes);
    yk_status (*stream_write_flag)(yk_stream *s, uint32_t *flag, uint32_t value);
    yk_status (*stream_await_flag)(yk_stream *s, const uint32_t *flag, uint32_t value);
    void (*fail)(yk_device *d, yk_status status);

    /* Graphs, as graph.h has them: all NULL where there are none. */
    yk_status (*capture_begin)(yk_stream *s);
    yk_status (*capture_end)(yk_stream *s, void **graph_out);
    yk_status (*graph_launch)(yk_stream *s, void *graph);
    void (*graph_destroy)(yk_device *d, void *graph);

    /* For a recorder: let `m` be the stream's present end; once the stream has passed both, seconds
     * from one mark to another (NULL: the difference of at_s); has the stream passed it (NULL: what
     * a compute stream marks it has passed); release what a mark has (NULL: nothing); name what
     * follows, for a profiler (NULL: there is none). */
    yk_status (*mark)(yk_stream *s, yk_mark *m);
    yk_status (*mark_read)(yk_device *d, const yk_mark *from, const yk_mark *to, double *s_out);
    bool (*mark_passed)(yk_device *d, const yk_mark *m);
    void (*mark_destroy)(yk_device *d, yk_mark *m);
    void (*set_part)(yk_device *d, const char *part);

    /* `ws` is workspace of the size that `workspaces` states; NULL when that is none. */
    yk_status (*embed_forward)(yk_stream *s, const yk_embed_forward_args *a);
    yk_status (*embed_backward)(yk_stream *s, const yk_embed_backward_args *a, void *ws);
    yk_status (*norm_forward)(yk_stream *s, const yk_norm_forward_args *a);
    yk_status (*norm_backward)(yk_stream *s, const yk_norm_backward_args *a, void *ws);
    yk_status (*linear_forward)(yk_stream *s, const yk_linear_forward_args *a, void *ws);
    yk_status (*linear_backward_input)(yk_stream *s, const yk_linear_backward_input_args *a,
                                       void *ws);
    yk_status (*linear_backward_weight)(yk_stream *s, const yk_linear_backward_weight_args *a,
                                        void *ws);
    yk_status (*rope)(yk_stream *s, const yk_rope_args *a, void *ws);
    yk_status (*attention_forward)(yk_stream *s, const yk_attention_forward_args *a, void *ws);
    yk_status (*attention_backward)(yk_stream *s, const yk_attention_backward_args *a, void *ws);
    yk_status (*attention_cached)(yk_stream *s, const yk_attention_cached_args *a, void *ws);
    yk_status (*swiglu_forward)(yk_stream *s, const yk_swiglu_forward_args *a);
    yk_status (*swiglu_backward)(yk_stream *s, const yk_swiglu_backward_args *a);
    yk_status (*cross_entropy)(yk_stream *s, const yk_cross_entropy_args *a);
    yk_status (*loss_sum)(yk_stream *s, const yk_loss_sum_args *a, void *ws);
    yk_status (*step_begin)(yk_stream *s, const yk_step_begin_args *a);
    yk_status (*sum_squares)(yk_stream *s, const yk_sum_squares_args *a, void *ws);
    yk_status (*step_finish)(yk_stream *s, const yk_step_finish_args *a);
    yk_status (*adamw)(yk_stream *s, const yk_adamw_args *a);
    yk_status (*draw_normal)(yk_stream *s, const yk_draw_normal_args *a);
    yk_status (*cast)(yk_stream *s, const yk_cast_args *a);
    yk_status (*copy)(yk_stream *s, void *dst, const void *src, int64_t bytes, yk_copy_kind kind);
    yk_status (*zero)(yk_stream *s, void *dst, int64_t bytes);
    yk_status (*greatest)(yk_stream *s, const yk_greatest_args *a);
    yk_status (*pack)(yk_stream *s, const yk_pack_args *a);
    yk_status (*sum_parts)(yk_stream *s, const yk_sum_parts_args *a);
    yk_status (*sum_values)(yk_stream *s, const yk_sum_values_args *a);
} yk_backend;

/* A piece of memory that this process has taken. */
typedef struct yk_device_holding {
    _Atomic(void *) memory; /* NULL: an empty place in the list */
    char name[32];
    yk_memory_kind kind;
    int64_t bytes;
} yk_device_holding;

#define YK_DEVICE_HOLDINGS 16 /* what is taken beyond them is not listed */

/* The common head of every backend's device; `state` is the backend's own. */
struct yk_device {
    const yk_backend *backend;
    const yk_workspaces *workspaces;
    yk_device_spec spec;
    yk_tuner *tuner; /* NULL: there is nothing to choose */
    yk_device_kind kind;
    struct yk_recorder *recorder; /* the one that runs, or NULL */
    yk_device_holding held[YK_DEVICE_HOLDINGS];
    void *state;
};

/* What becomes of a stream's operations. */
typedef enum yk_stream_holds {
    YK_STREAM_OPEN,     /* they are done */
    YK_STREAM_CAPTURED, /* they go into a graph */
    YK_STREAM_REPLAYED, /* a graph has them: they are left out */
} yk_stream_holds;

struct yk_stream {
    yk_device *device;
    yk_stream_kind kind;
    char name[32];
    void *workspace; /* borrowed; see yk_stream_set_workspace() */
    yk_lend_fn lend; /* of `lender`; NULL: `workspace` is what was lent */
    void *lender;
    int64_t workspace_bytes, workspace_high;
    yk_stream_holds holds;
    int64_t n_ops, n_before; /* operations enqueued, and when `holds` last changed */
    void *state;
};

struct yk_event {
    yk_device *device;
    void *state;
};

/* Compiled in every build. */
extern const yk_workspaces yk_cpu_workspaces;
extern const yk_workspaces yk_cuda_workspaces;
extern const yk_workspaces yk_cuda_cudnn_workspaces; /* where attention may be cuDNN's */

#endif
