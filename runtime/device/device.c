/* runtime/device/device.c - devices, their memory, streams and events.
 *
 * The part that every backend shares: the structs of streams and events are made and freed here,
 * arguments are checked here, and everything else is the backend's.
 */
#include "runtime/device/device.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/arith.h"
#include "runtime/device/dispatch.h"

void yk_device_close(yk_device *device)
{
    if (device) device->backend->close(device);
}

yk_device_kind yk_device_get_kind(const yk_device *device)
{
    return device->kind;
}

void yk_device_set_amx(yk_device *device, bool on)
{
    if (device->backend->set_amx) device->backend->set_amx(device, on);
}

void yk_device_set_tf32(yk_device *device, bool on)
{
    if (device->backend->set_tf32) device->backend->set_tf32(device, on);
}

yk_status yk_device_set_attention(yk_device *device, yk_attention_provider provider,
                                  bool deterministic)
{
    REQUIRE(provider >= YK_ATTENTION_AUTO && provider <= YK_ATTENTION_OWN);
    if (device->backend->set_attention)
        return device->backend->set_attention(device, provider, deterministic);
    if (provider != YK_ATTENTION_CUDNN) return YK_OK;
    return yk_fail(YK_EUNSUPPORTED, "attention.provider",
                   "cudnn is for GPUs, and this is %s; set it to auto", device->spec.name);
}

void yk_device_set_attention_room(yk_device *device, int64_t bytes)
{
    device->spec.attention_bytes = bytes;
}

yk_status yk_device_limit_shared(yk_device *device, int64_t bytes)
{
    REQUIRE(bytes >= 0);
    return device->backend->limit_shared ? device->backend->limit_shared(device, bytes) : YK_OK;
}

const yk_device_spec *yk_device_get_spec(const yk_device *device)
{
    return &device->spec;
}

int64_t yk_device_used_bytes(const yk_device *device)
{
    return device->backend->used_bytes ? device->backend->used_bytes(device) : 0;
}

yk_status yk_stream_create(yk_device *device, yk_stream_kind kind, const char *name,
                           yk_stream **stream_out)
{
    REQUIRE(kind == YK_STREAM_COMPUTE || kind == YK_STREAM_TRANSFER);
    yk_stream *s = calloc(1, sizeof *s);
    if (!s) return yk_fail(YK_ENOMEM, name, "no memory for a stream");
    s->device = device;
    s->kind = kind;
    snprintf(s->name, sizeof s->name, "%s", name);
    yk_status status = device->backend->stream_create(s);
    if (status != YK_OK) {
        free(s);
        return status;
    }
    *stream_out = s;
    return YK_OK;
}

void yk_stream_destroy(yk_stream *stream)
{
    if (!stream) return;
    stream->device->backend->stream_destroy(stream);
    free(stream);
}

void yk_stream_set_workspace(yk_stream *stream, void *memory, int64_t bytes)
{
    stream->workspace = memory;
    stream->workspace_bytes = bytes;
    stream->lend = NULL;
}

void yk_stream_borrow_workspace(yk_stream *stream, yk_lend_fn lend, void *lender)
{
    stream->lend = lend;
    stream->lender = lender;
}

int64_t yk_stream_workspace_high(const yk_stream *stream)
{
    return stream->workspace_high;
}

yk_status yk_stream_take_workspace(yk_stream *stream, const char *op, int64_t bytes, void **ws_out)
{
    stream->workspace_high = yk_max(stream->workspace_high, bytes);
    *ws_out = NULL;
    if (bytes == 0) return YK_OK;
    if (stream->lend) return stream->lend(stream->lender, bytes, ws_out);
    if (stream->device->kind == YK_DEVICE_DRY) return YK_OK;
    if (bytes > stream->workspace_bytes)
        return yk_fail(YK_ENOMEM, op,
                       "needs %lld bytes of workspace and stream %s was lent %lld; the plan does "
                       "not match the step, which is a mistake in the program",
                       (long long)bytes, stream->name, (long long)stream->workspace_bytes);
    *ws_out = stream->workspace;
    return YK_OK;
}

yk_device *yk_stream_get_device(yk_stream *stream)
{
    return stream->device;
}

yk_status yk_stream_synchronize(yk_stream *stream)
{
    return stream->device->backend->stream_synchronize(stream);
}

yk_status yk_stream_run(yk_stream *stream, yk_stream_fn fn, const void *context, int64_t bytes)
{
    REQUIRE(fn && stream->holds == YK_STREAM_OPEN);
    REQUIRE(bytes >= 0 && bytes <= YK_STREAM_CONTEXT_MAX && (context || bytes == 0));
    REQUIRE_IN_TABLE(stream, stream_run);
    return stream->device->backend->stream_run(stream, fn, context, bytes);
}

yk_status yk_stream_charge_link(yk_stream *stream, double seconds, double bytes, double to_device,
                                double to_host)
{
    REQUIRE(seconds >= 0 && bytes >= 0 && to_device >= 0 && to_host >= 0);
    if (!stream->device->backend->stream_charge) return YK_OK;
    return stream->device->backend->stream_charge(stream, seconds, bytes,
                                                  (const double[]){to_device, to_host});
}

yk_status yk_stream_charge(yk_stream *stream, double seconds, double bytes)
{
    return yk_stream_charge_link(stream, seconds, bytes, 0, 0);
}

double yk_stream_now(const yk_stream *stream)
{
    return stream->device->backend->stream_now(stream);
}

yk_status yk_event_create(yk_device *device, yk_event **event_out)
{
    yk_event *e = calloc(1, sizeof *e);
    if (!e) return yk_fail(YK_ENOMEM, "event", "no memory for an event");
    e->device = device;
    yk_status status = device->backend->event_create(e);
    if (status != YK_OK) {
        free(e);
        return status;
    }
    *event_out = e;
    return YK_OK;
}

void yk_event_destroy(yk_event *event)
{
    if (!event) return;
    event->device->backend->event_destroy(event);
    free(event);
}

yk_status yk_event_record(yk_event *event, yk_stream *stream)
{
    REQUIRE(stream->holds == YK_STREAM_OPEN);
    REQUIRE(event->device == stream->device);
    return event->device->backend->event_record(event, stream);
}

yk_status yk_event_wait(yk_event *event, yk_stream *stream)
{
    REQUIRE(stream->holds == YK_STREAM_OPEN);
    REQUIRE(event->device == stream->device);
    return event->device->backend->event_wait(event, stream);
}

yk_status yk_event_synchronize(yk_event *event)
{
    return event->device->backend->event_synchronize(event);
}

bool yk_device_reaches_peers(const yk_device *device)
{
    return !device->backend->reaches_peers || device->backend->reaches_peers(device);
}

/* ---- streams of several processes --------------------------------------------------------- */

yk_status yk_device_share(yk_device *device, void *memory, int64_t bytes)
{
    REQUIRE(memory && bytes > 0);
    return device->backend->share ? device->backend->share(device, memory, bytes) : YK_OK;
}

void yk_device_unshare(yk_device *device, void *memory, int64_t bytes)
{
    if (memory && device->backend->unshare) device->backend->unshare(device, memory, bytes);
}

yk_status yk_stream_write_flag(yk_stream *stream, uint32_t *flag, uint32_t value)
{
    REQUIRE(flag);
    REQUIRE_IN_TABLE(stream, stream_write_flag);
    return stream->device->backend->stream_write_flag(stream, flag, value);
}

yk_status yk_stream_await_flag(yk_stream *stream, const uint32_t *flag, uint32_t value)
{
    REQUIRE(flag);
    REQUIRE_IN_TABLE(stream, stream_await_flag);
    return stream->device->backend->stream_await_flag(stream, flag, value);
}

void yk_device_fail(yk_device *device, yk_status status)
{
    if (device->backend->fail) device->backend->fail(device, status);
}
