/* launch/hosts.h - the hosts of a run and how many ranks each of them takes.
 *
 * A host's slots are the ranks that it is meant for. Ranks fill the slots host by host, in the
 * order in which the hosts were named, so that a host's ranks have consecutive numbers.
 */
#ifndef YK_LAUNCH_HOSTS_H
#define YK_LAUNCH_HOSTS_H

#include <stdbool.h>

#include "runtime/base/status.h"

#define YK_HOST_NAME_BYTES 256

typedef struct yk_host {
    char name[YK_HOST_NAME_BYTES];
    int slots;     /* 0: not said */
    int n_ranks;   /* set by yk_hosts_place() */
    bool is_local; /* this machine */
} yk_host;

/* Owns its items. {NULL, 0} is an empty one. */
typedef struct yk_hosts {
    yk_host *items; /* (n_items), no name twice */
    int n_items;
} yk_hosts;

/* More ranks than this are a slip of the finger. */
#define YK_LAUNCH_MAX_RANKS 65536

/* Read "a:4,b:4": names, each with its slots if one likes. A name given again adds to its slots.
 *
 * YK_EINVAL  it is none; the message says what is wrong with which part
 */
yk_status yk_hosts_read_list(const char *text, yk_hosts *hosts_out);

/* Read a file of hosts, one a line: Open MPI's "name slots=4", or plain "name", "name 4", "name:4", or a
 * name repeated for each slot, as batch systems write it. # begins a comment.
 *
 * YK_EINVAL  the file cannot be read or names no host; a line that is none of these, by its number
 */
yk_status yk_hosts_read_file(const char *path, yk_hosts *hosts_out);

/* The hosts that a Slurm job has, from its environment (SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE); this
 * machine alone, by its name and without slots, outside of a job.
 *
 * YK_EINVAL  the variables cannot be understood
 */
yk_status yk_hosts_read_environment(yk_hosts *hosts_out);

/* Release the items and clear the list. */
void yk_hosts_fini(yk_hosts *hosts);

/* Deal out `n` ranks; 0: as many as there are slots. A host that did not say how many slots it has gets
 * `usual`, or takes all where it is the only one. More ranks than slots go round the hosts in proportion.
 *
 * YK_EINVAL  n or the sum of the slots is beyond YK_LAUNCH_MAX_RANKS
 */
yk_status yk_hosts_place(yk_hosts *hosts, int n, int usual, int *n_ranks_out);

/* True when all ranks are on this machine. After yk_hosts_place(). */
bool yk_hosts_are_local(const yk_hosts *hosts);

#endif
