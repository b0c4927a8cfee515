/* runtime/observe/gpu_watch.h - a thread that asks the driver how the GPU is.
 *
 * The driver takes tens of milliseconds to answer, which a step must not wait for. So a thread asks
 * every second, and whoever reads gets its last answer at once.
 */
#ifndef YK_RUNTIME_OBSERVE_GPU_WATCH_H
#define YK_RUNTIME_OBSERVE_GPU_WATCH_H

#include <stdbool.h>

#include "runtime/machine/nvml.h"

typedef struct yk_gpu_watch yk_gpu_watch;

/* Begin to watch the GPU with this bus id ("0000:3b:00.0"). Without a driver that answers there is
 * nothing to watch: NULL, and nothing is said.                                           [local]
 *
 * YK_ENOMEM  no memory, or no thread, for it
 */
yk_status yk_gpu_watch_start(const char *bus_id, yk_gpu_watch **watch_out);

/* Stop the thread and release it. NULL does nothing. */
void yk_gpu_watch_stop(yk_gpu_watch *watch);

/* The last answer; false when there was none yet, or `watch` is NULL. */
bool yk_gpu_watch_read(yk_gpu_watch *watch, yk_nvml_state *state_out);

#endif
