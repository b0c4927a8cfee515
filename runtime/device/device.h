/* runtime/device/device.h - where tensors live and operations run.
 *
 * Model.    A yk_device is one of three: `cpu`, `cuda`, or `dry`, which executes nothing and
 *           counts. Work is enqueued on a yk_stream and is done when the stream has passed it;
 *           order between streams is made by a yk_event and nothing else. On a compute stream of
 *           `cpu` a call returns when the work is done; on `dry` it only advances the stream's
 *           virtual clock.
 * Memory.   Plain pointers. Those of a `dry` device are addresses that nobody may read or write.
 *           Nothing is allocated by an operation: what it needs for itself comes from the stream's
 *           workspace, whose size is a pure function of the operation's arguments.
 * Threads.  A stream serves one thread at a time; a device may be shared.
 * Failure.  YK_EDEVICE kills the process: after it only closing is useful. A failure inside a
 *           stream is sticky: the stream passes what follows without doing it, and every later call
 *           on it, and on streams that wait for it, returns the failure.
 *
 * The operations are in ops.h. What a backend has to provide is in backend.h.
 */
#ifndef YK_RUNTIME_DEVICE_DEVICE_H
#define YK_RUNTIME_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

typedef struct yk_device yk_device;
typedef struct yk_stream yk_stream;
typedef struct yk_event yk_event;

typedef enum yk_device_kind {
    YK_DEVICE_CPU,  /* this machine's processors */
    YK_DEVICE_CUDA, /* one NVIDIA GPU */
    YK_DEVICE_DRY,  /* counts bytes, operations and virtual time for a described device */
} yk_device_kind;

/* What a device is able to do: of a real one as read or measured, of a dry one as described. */
typedef struct yk_device_spec {
    char name[64];                             /* such as "NVIDIA GeForce RTX 4090 D" */
    yk_device_kind kind;                       /* the backend whose workspaces it has: never DRY */
    int64_t memory_bytes;                      /* memory in all */
    int64_t context_bytes;                     /* of it, what CUDA takes for itself: an estimate */
    int64_t host_bytes;                        /* host memory that may be pinned; 0: not known */
    int n_multiprocessors;                     /* that a product's tiles are dealt to; 0: none */
    double matmul_flops[YK_N_FLOAT_DTYPES];    /* operations/s of products under way, by yk_dtype */
    double tf32_flops;                         /* of fp32 rounded to TF32; 0: there is no TF32 */
    double attention_flops[YK_N_FLOAT_DTYPES]; /* operations/s of fused attention's products */
    double attention_backward;                 /* share of it that the backward pass has; 0: all */
    double softmax_s[2];                       /* seconds beside products for a pair of positions
                                                * and a head, forward and backward */
    double cudnn_flops[2];                     /* of cuDNN's attention in 16 bits, forward and */
    double cudnn_softmax_s[2];                 /* backward; 0: as our own */
    double memory_rate;                        /* bytes/s, read plus written */
    double host_link_rate;                     /* bytes/s to or from host memory, each way */
    double peer_rate;                          /* bytes/s to GPUs of the same machine, each way,
                                                * past the host; 0: they do not reach each other */
    double launch_s;                           /* seconds one operation costs beside its work */
    int64_t attention_bytes;                   /* that the workspace of attention's gradient may
                                                * come to where it is cuDNN's; 0: 512 MiB */
    bool cudnn; /* attention may be cuDNN's: workspaces have room for it. Of a known device: whether
                 * AUTO, below, takes it there */
    char bus_id[24]; /* of a GPU that is there: "0000:3b:00.0" on PCI; else "" */
} yk_device_spec;

/* Open this machine's processors.                                                       [local]
 *
 * threads  worker threads; 0 takes every processor that this process may run on. The number of
 *          threads never changes a result's bits.
 *
 * YK_EINVAL  threads is negative or over 1024
 */
yk_status yk_device_open_cpu(int threads, yk_device **device_out);

/* GPUs that CUDA shows this process; 0 in a build without it, or without a driver.     [local] */
int yk_device_count_cuda(void);

/* Open the GPU with CUDA index `index` among those visible.                             [local]
 *
 * YK_EUNSUPPORTED  built without CUDA
 * YK_EDEVICE       no such GPU, or its driver refuses
 */
yk_status yk_device_open_cuda(int index, yk_device **device_out);

/* Open a device that counts, described by `spec` (copied).                              [local] */
yk_status yk_device_open_dry(const yk_device_spec *spec, yk_device **device_out);

/* The description of the device that calls itself `name`, such as "NVIDIA H200"; false where it is
 * not known. */
bool yk_device_spec_recognize(const char *name, yk_device_spec *spec_out);

/* The description of a known device by its short name ("4090d", "h200", "cpu", ...).    [local]
 *
 * YK_EINVAL  no such device; the message lists those that are known
 */
yk_status yk_device_spec_find(const char *name, yk_device_spec *spec_out);

/* Release the device. Its streams, events and memory must be gone. NULL does nothing.   [local] */
void yk_device_close(yk_device *device);

yk_device_kind yk_device_get_kind(const yk_device *device);

/* Let a processor that has matrix units for bf16 (AMX) use them for every product, those of fp32
 * numbers included, as exact as before but other in bits; on at first where there are any. [local] */
void yk_device_set_amx(yk_device *device, bool on);

/* Let fp32 products round their operands to TF32 (10 bits of fraction), for speed; off at first. A
 * device without TF32 keeps fp32.                                                       [local] */
void yk_device_set_tf32(yk_device *device, bool on);

/* Whose attention kernels a GPU uses. */
typedef enum yk_attention_provider {
    YK_ATTENTION_AUTO,  /* cuDNN's or our own, whichever is found faster */
    YK_ATTENTION_CUDNN, /* cuDNN's wherever it serves the shape, else our own */
    YK_ATTENTION_OWN,
} yk_attention_provider;

/* Choose attention's kernels; our own at first. `deterministic` asks cuDNN for gradients that repeat
 * their bits; our own always do. Before the first call of attention, since workspaces follow it; on a
 * dry device that describes a GPU the workspaces alone.                                  [local]
 *
 * YK_EUNSUPPORTED  CUDNN on a device without it; the message says what is missing
 */
yk_status yk_device_set_attention(yk_device *device, yk_attention_provider provider,
                                  bool deterministic);

/* Let cuDNN's gradient of attention take `bytes` of workspace where they serve it, and no less than 512
 * MiB: the more entries of a batch go at a time, the faster it is. Bits do not depend on it. As
 * yk_device_set_attention(), before the first call.                                      [local] */
void yk_device_set_attention_room(yk_device *device, int64_t bytes);

/* Let a GPU's blocks have at most `bytes` of shared memory, as if it were a card that has no more: it
 * then runs the kernels that such a card does. 0: as much as it has, as at first. Elsewhere nothing.
 *                                                                                        [local]
 *
 * YK_EDEVICE  there are kernels that need more; every card from sm_86 on has 99 KiB */
yk_status yk_device_limit_shared(yk_device *device, int64_t bytes);

/* Does a GPU reach the memory of all others that this process sees without going by way of the host? True
 * where it sees no other, and of devices that are no GPU.                                [local] */
bool yk_device_reaches_peers(const yk_device *device);

/* Borrowed until the device is closed. */
const yk_device_spec *yk_device_get_spec(const yk_device *device);

typedef enum yk_memory_kind {
    YK_MEMORY_DEVICE, /* the device's own memory */
    YK_MEMORY_PINNED, /* host memory that the device's copy engines reach directly */
} yk_memory_kind;

/* Allocate `bytes` > 0 of memory, aligned to 256 bytes. The content is undefined.       [local]
 *
 * YK_ENOMEM  there is not so much; the message names what it is for, the bytes asked for and free, and
 *            who has the others: this process by the names it gave, other processes on a GPU by NVML
 */
yk_status yk_device_alloc(yk_device *device, yk_memory_kind kind, int64_t bytes, void **memory_out);

/* Likewise, for something with a name (copied), which messages tell. */
yk_status yk_device_alloc_named(yk_device *device, yk_memory_kind kind, const char *name,
                                int64_t bytes, void **memory_out);

/* Give back what yk_device_alloc() returned, with the same kind and bytes. NULL does nothing. */
void yk_device_free(yk_device *device, yk_memory_kind kind, int64_t bytes, void *memory);

/* Bytes of the device's memory that are taken now, by whoever; 0 where that is not known. */
int64_t yk_device_used_bytes(const yk_device *device);

/* Bytes of a GPU's memory that this process has, what CUDA and libraries took for it included, as its
 * driver counts them; 0 where that is not known: of other devices, and where several processes are on
 * the GPU and the driver numbers them otherwise than this process is, as in containers.  [local] */
int64_t yk_device_held_bytes(const yk_device *device);

/* Is there room for so many bytes of the device's memory more, of which nothing is allocated? True where
 * that is not known.                                                                     [local]
 *
 * YK_ENOMEM  there is not; the message is that of yk_device_alloc_named()
 */
yk_status yk_device_check_room(yk_device *device, const char *name, int64_t bytes);

/* What a stream is for. */
typedef enum yk_stream_kind {
    YK_STREAM_COMPUTE,  /* the operations of ops.h */
    YK_STREAM_TRANSFER, /* what runs beside them: copies, collectives, host functions. On `cpu` it is
                         * a thread, and of ops.h it takes yk_copy() and yk_zero() alone; a call
                         * waits only where more than a thousand others have not been passed yet */
} yk_stream_kind;

/* Create a stream. `name` ("compute", "gather", ...) is shown in traces; copied.         [local]
 *
 * YK_ENOMEM  no memory, or no thread, for it
 */
yk_status yk_stream_create(yk_device *device, yk_stream_kind kind, const char *name,
                           yk_stream **stream_out);

/* Wait for the stream's work, then release it. NULL does nothing. */
void yk_stream_destroy(yk_stream *stream);

/* Lend the stream `bytes` of device memory for the workspaces of its operations; borrowed until the
 * stream is destroyed or lent another. On a dry device `memory` is not looked at. */
void yk_stream_set_workspace(yk_stream *stream, void *memory, int64_t bytes);

/* Hands out the workspace of an operation: device memory, the operation's until the next is asked for.
 *
 * YK_ENOMEM  there is less
 */
typedef yk_status (*yk_lend_fn)(void *lender, int64_t bytes, void **ws_out);

/* Instead of one piece of memory, ask `lender` at every operation that takes workspace, on a dry device
 * and while a graph is replayed, too; borrowed likewise. */
void yk_stream_borrow_workspace(yk_stream *stream, yk_lend_fn lend, void *lender);

/* The most workspace that one operation on this stream has asked for. */
int64_t yk_stream_workspace_high(const yk_stream *stream);

yk_device *yk_stream_get_device(yk_stream *stream);

/* Block until the stream has passed everything enqueued so far.                         [local] */
yk_status yk_stream_synchronize(yk_stream *stream);

/* Work for the host inside a stream. What it returns, unless YK_OK, is the stream's failure; it has
 * reported that itself. It calls nothing of device.h. */
typedef yk_status (*yk_stream_fn)(void *context);

#define YK_STREAM_CONTEXT_MAX 256

/* Call `fn` when the stream reaches it. On a dry device it is never called.             [stream]
 *
 * context  0 <= bytes <= YK_STREAM_CONTEXT_MAX, copied; `fn` gets the copy, aligned to 16 bytes
 *
 * YK_EUNSUPPORTED  the device does not offer it
 */
yk_status yk_stream_run(yk_stream *stream, yk_stream_fn fn, const void *context, int64_t bytes);

/* On a dry device, let the stream be busy for `seconds` with something that moves `bytes` of device
 * memory and is none of ops.h; elsewhere nothing.                                       [stream] */
yk_status yk_stream_charge(yk_stream *stream, double seconds, double bytes);

/* The same of what brings bytes from the host to a described GPU and others back, over the link that copies
 * take, too: where these are under way it takes longer.                                  [stream] */
yk_status yk_stream_charge_link(yk_stream *stream, double seconds, double bytes, double to_device,
                                double to_host);

/* Seconds on the stream's clock: virtual on a dry device, real elsewhere. */
double yk_stream_now(const yk_stream *stream);

yk_status yk_event_create(yk_device *device, yk_event **event_out);

/* Release the event, when the streams have passed it. NULL does nothing. */
void yk_event_destroy(yk_event *event);

/* Mark the present end of the stream. */
yk_status yk_event_record(yk_event *event, yk_stream *stream);

/* What is enqueued on `stream` from now on starts after the event's last record. An event that was
 * never recorded holds nothing back. On a compute stream of `cpu` the call blocks. */
yk_status yk_event_wait(yk_event *event, yk_stream *stream);

/* Block the calling thread until the event's last record has been passed. */
yk_status yk_event_synchronize(yk_event *event);

/* ---- streams of several processes --------------------------------------------------------- */

/* Let the device's copy engines and streams reach `bytes` of memory that this process shares with
 * others, at a page and whole pages: it is pinned. Given back with the same arguments; NULL does
 * nothing. A dry device is not asked to.                                                   [local]
 *
 * YK_ENOMEM  it cannot be pinned
 */
yk_status yk_device_share(yk_device *device, void *memory, int64_t bytes);
void yk_device_unshare(yk_device *device, void *memory, int64_t bytes);

/* A flag is a word in such memory that only grows, modulo 2^32; streams of any process that shares the
 * memory order each other by it. On a dry device flags are not looked at.
 *
 * Write `value` when the stream is here. Who sees it sees what the stream has written before.
 *                                                                                       [stream] */
yk_status yk_stream_write_flag(yk_stream *stream, uint32_t *flag, uint32_t value);

/* Hold the stream until the flag has come to `value`. Whoever will write it must not depend on what
 * this stream does after. On a compute stream of `cpu` the call blocks.                 [stream] */
yk_status yk_stream_await_flag(yk_stream *stream, const uint32_t *flag, uint32_t value);

/* Give up what the device's streams wait for, from any thread: on `cpu` a stream that waits for a flag,
 * now or later, fails with `status`. On `cuda` every later call on the device does; a GPU goes on
 * waiting, until who gives up has written the flags himself.                             [local] */
void yk_device_fail(yk_device *device, yk_status status);

/* What has been counted on a dry device since it was opened; zeros elsewhere. */
typedef struct yk_device_counts {
    int64_t n_ops;        /* operations enqueued, copies included */
    double flops;         /* floating-point operations of matrix products and attention */
    double bytes;         /* bytes of device memory that operations read and write */
    int64_t device_bytes; /* device memory allocated now */
    int64_t pinned_bytes; /* pinned host memory allocated now */
} yk_device_counts;

yk_device_counts yk_device_get_counts(const yk_device *device);

#endif
