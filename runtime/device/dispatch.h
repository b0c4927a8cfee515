/* runtime/device/dispatch.h - what the dispatching files share; included by device.c and ops*.c.
 *
 * A dispatcher checks what the headers promise, deals with zero rows, finds the workspace and calls
 * the backend.
 */
#ifndef YK_RUNTIME_DEVICE_DISPATCH_H
#define YK_RUNTIME_DEVICE_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/require.h"
#include "runtime/device/backend.h"
#include "runtime/device/recorder.h"

static inline bool is_float(yk_dtype t)
{
    return t == YK_F32 || t == YK_BF16 || t == YK_F16;
}

/* Answer YK_EUNSUPPORTED when the backend of `stream` leaves `member` out. */
#define REQUIRE_IN_TABLE(stream, member)                                                           \
    do {                                                                                           \
        if (!(stream)->device->backend->member)                                                    \
            return yk_fail(YK_EUNSUPPORTED, __func__, "%s does not offer it",                      \
                           (stream)->device->spec.name);                                           \
    } while (0)

/* Take `bytes` of workspace for operation `op` from its stream: NULL for none; on a dry device it is
 * not to be looked at. The stream's high mark counts it either way.
 *
 * YK_ENOMEM  the stream was lent less
 */
yk_status yk_stream_take_workspace(yk_stream *stream, const char *op, int64_t bytes, void **ws_out);

/* Likewise, and when `stream` is for moving alone. */
#define REQUIRE_OFFERED(stream, member)                                                            \
    do {                                                                                           \
        REQUIRE_IN_TABLE(stream, member);                                                          \
        if ((stream)->kind == YK_STREAM_TRANSFER && (stream)->device->spec.kind == YK_DEVICE_CPU)  \
            return yk_fail(YK_EUNSUPPORTED, __func__,                                              \
                           "stream %s of a cpu copies and does not compute", (stream)->name);      \
    } while (0)

/* Declare `ws` and take as much as the device states for operation `member` with the arguments that
 * follow. */
#define TAKE_WORKSPACE(stream, member, ...)                                                        \
    void *ws = NULL;                                                                               \
    if ((stream)->device->workspaces->member)                                                      \
    YK_TRY(yk_stream_take_workspace(stream, __func__,                                              \
                                    (stream)->device->workspaces->member(__VA_ARGS__), &ws))

/* Return what the backend's `op` says to the arguments that follow `cost`, which is looked at only
 * while a recorder runs. Of a graph that is replayed the operation is in the graph. */
#define ENQUEUE(on, op, cost, ...)                                                                 \
    do {                                                                                           \
        const yk_backend *backend_ = (on)->device->backend;                                        \
        (on)->n_ops++;                                                                             \
        if ((on)->holds == YK_STREAM_REPLAYED) return YK_OK;                                       \
        if (!(on)->device->recorder) return backend_->op((on), __VA_ARGS__);                       \
        yk_cost cost_ = (cost);                                                                    \
        int span_ = yk_span_begin((on), #op, cost_.bytes, cost_.flops);                            \
        yk_status status_ = backend_->op((on), __VA_ARGS__);                                       \
        yk_span_end((on), span_);                                                                  \
        return status_;                                                                            \
    } while (0)

#endif
