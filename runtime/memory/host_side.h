/* runtime/memory/host_side.h - where offloaded tensors lie, and the streams that they travel on.
 *
 * Pinned host memory is the other side of a device's copy engines. What is kept there comes to the
 * device before it is used and goes back after; one stream serves each way, so that both ways are
 * used at once.
 */
#ifndef YK_RUNTIME_MEMORY_HOST_SIDE_H
#define YK_RUNTIME_MEMORY_HOST_SIDE_H

#include "runtime/memory/arena.h"

/* All borrowed; NULL throughout where nothing is offloaded. */
typedef struct yk_host_side {
    yk_arena *pinned;
    yk_stream *to_device, *to_host;
} yk_host_side;

#endif
