/* runtime/device/holdings.c - memory of a device, and who has it when there is not enough.
 *
 * A device keeps a short list of what this process has taken of it, by name: a run takes a few large
 * pieces. It is read when a request cannot be met, so that the message says where memory went.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "runtime/device/dispatch.h"

#define TEXT_BYTES 1024

static void note(yk_device *device, yk_memory_kind kind, const char *name, int64_t bytes,
                 void *memory)
{
    for (int i = 0; i < YK_DEVICE_HOLDINGS; i++) {
        yk_device_holding *h = &device->held[i];
        void *nothing = NULL;
        if (!atomic_compare_exchange_strong(&h->memory, &nothing, memory)) continue;
        snprintf(h->name, sizeof h->name, "%s", name);
        h->kind = kind;
        h->bytes = bytes;
        return;
    }
}

static void forget(yk_device *device, void *memory)
{
    for (int i = 0; i < YK_DEVICE_HOLDINGS; i++) {
        void *mine = memory;
        if (atomic_compare_exchange_strong(&device->held[i].memory, &mine, NULL)) return;
    }
}

/* What this process has of the kind: ", of which this process has persistent memory 123, ...". */
static void write_own(const yk_device *device, yk_memory_kind kind, char *text, size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < YK_DEVICE_HOLDINGS && used < room; i++) {
        const yk_device_holding *h = &device->held[i];
        if (!atomic_load(&h->memory) || h->kind != kind) continue;
        used += (size_t)snprintf(text + used, room - used, "%s%s %" PRId64,
                                 used ? ", " : "; this process has ", h->name, h->bytes);
    }
}

static yk_status refuse(const yk_device *device, yk_memory_kind kind, const char *name,
                        int64_t bytes)
{
    char own[TEXT_BYTES], others[TEXT_BYTES] = "";
    bool pinned = kind == YK_MEMORY_PINNED;
    write_own(device, kind, own, sizeof own);
    device->backend->room(device, kind, others, sizeof others);
    return yk_fail(YK_ENOMEM, name, "%" PRId64 " bytes of %s asked for, %s%s; %s", bytes,
                   pinned ? "pinned host memory" : "memory", others, own,
                   pinned ? "take something out of memory.offload, or raise the limit"
                          : "end what else runs there, or take a smaller model, micro-batch, "
                            "sequence length or memory.device_limit");
}

int64_t yk_device_held_bytes(const yk_device *device)
{
    return device->backend->held_bytes ? device->backend->held_bytes(device) : 0;
}

yk_status yk_device_check_room(yk_device *device, const char *name, int64_t bytes)
{
    if (!device->backend->used_bytes) return YK_OK;
    int64_t left = device->spec.memory_bytes - device->backend->used_bytes(device);
    return bytes <= left ? YK_OK : refuse(device, YK_MEMORY_DEVICE, name, bytes);
}

yk_status yk_device_alloc_named(yk_device *device, yk_memory_kind kind, const char *name,
                                int64_t bytes, void **memory_out)
{
    REQUIRE(bytes > 0);
    REQUIRE(kind == YK_MEMORY_DEVICE || kind == YK_MEMORY_PINNED);
    yk_status status = device->backend->alloc(device, kind, bytes, memory_out);
    if (status == YK_ENOMEM) return refuse(device, kind, name, bytes);
    if (status == YK_OK) note(device, kind, name, bytes, *memory_out);
    return status;
}

yk_status yk_device_alloc(yk_device *device, yk_memory_kind kind, int64_t bytes, void **memory_out)
{
    return yk_device_alloc_named(device, kind, "memory", bytes, memory_out);
}

void yk_device_free(yk_device *device, yk_memory_kind kind, int64_t bytes, void *memory)
{
    if (!memory) return;
    forget(device, memory);
    device->backend->free(device, kind, bytes, memory);
}
