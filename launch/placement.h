/* launch/placement.h - which rank goes where: the table that is printed before a run starts.
 *
 * A rank's GPU and cores are decided on its own host, by the rank itself
 * (runtime/machine/binding.h). The same decision is made here for ranks of this machine, and asked
 * of the other hosts, so that the table shows what will happen.
 */
#ifndef YK_LAUNCH_PLACEMENT_H
#define YK_LAUNCH_PLACEMENT_H

#include <stdio.h>

#include "launch/hosts.h"
#include "runtime/machine/binding.h"
#include "runtime/machine/machine.h"

/* A rank's place. */
typedef struct yk_place {
    int host;                     /* index in the list of hosts */
    int gpu;                      /* index on its host; -1: none */
    char bus_id[YK_BUS_ID_BYTES]; /* of its GPU, or "" */
    char nodes[YK_CPUS_TEXT];     /* NUMA nodes of its processors, "-", or "" : not known */
    char cpus[YK_CPUS_TEXT];      /* processors, or "" : not known */
    int n_cores;                  /* cores of its own; 0: not known */
} yk_place;

typedef struct yk_placement {
    const yk_hosts *hosts; /* borrowed until the placement is released */
    yk_place *places;      /* (n_ranks), by rank; owned */
    int n_ranks;
    int ranks_per_gpu; /* that may share one; 0: none computes on a GPU */
    char
        note[YK_BINDING_NOTE]; /* the first thing that this machine's bindings have to say, or "" */
} yk_placement;

/* Places of all ranks, with what is not known of other hosts left open.                  [local]
 *
 * machine        this one
 * hosts          after yk_hosts_place()
 * ranks_per_gpu  that may share one; 0: ranks compute on processors
 *
 * YK_EINVAL  this machine has too few GPUs for its ranks
 * YK_ENOMEM  there is no memory for it
 */
yk_status yk_placement_make(const yk_machine *machine, const yk_hosts *hosts, int n_ranks,
                            int ranks_per_gpu, yk_placement *placement_out);

void yk_placement_fini(yk_placement *placement);

/* Print the table, a line a rank. */
void yk_placement_print(const yk_placement *placement, FILE *out);

/* Print this machine's places for `n_ranks` ranks as rows, as the host of that index; what is asked of
 * other hosts (`yoke launch place`).                                                     [local] */
yk_status yk_placement_print_rows(const yk_machine *machine, int host, int n_ranks, bool is_on_gpus,
                                  FILE *out);

/* Fill in the rows that hosts answered. Lines that are no rows are passed by.            [local]
 *
 * YK_EINVAL  a host did not answer, has fewer GPUs than ranks, or another version of the program
 */
yk_status yk_placement_read_rows(yk_placement *placement, const char *text);

#endif
