/* runtime/memory/host_room.h - how much more host memory can be had.
 *
 * The least of what the machine says is available and what is left under the limit of each cgroup
 * that the process is in, version 1 or 2. File contents that a cgroup can drop do not count as
 * used. Locked memory (`ulimit -l`) is no bound here: a GPU's driver pins pages itself, without
 * counting them there.
 */
#ifndef YK_RUNTIME_MEMORY_HOST_ROOM_H
#define YK_RUNTIME_MEMORY_HOST_ROOM_H

#include <stdint.h>

typedef struct yk_host_room {
    int64_t bytes;    /* that can be had, over all processes; INT64_MAX: nothing says */
    char source[256]; /* what says so, such as "MemAvailable", or a cgroup's file */
} yk_host_room;

/* Look. What is not there or not understood is left out.                                 [local]
 *
 * root  what stands in for "/" in the paths that are read; "" but in tests
 */
yk_host_room yk_host_room_read(const char *root);

/* Of what can be had, as much as one run's arenas may take: a sixteenth, 256 MiB at the least, is left to the
 * system and to what the run has beside them (threads, libraries, buffers of files), for whom the kernel
 * would end a process. Of little it is half. INT64_MAX stays.                             [local] */
int64_t yk_host_room_for_arenas(const yk_host_room *room);

#endif
