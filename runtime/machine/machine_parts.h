/* runtime/machine/machine_parts.h - what an open machine consists of; for runtime/machine/
 * alone. */
#ifndef YK_RUNTIME_MACHINE_MACHINE_PARTS_H
#define YK_RUNTIME_MACHINE_MACHINE_PARTS_H

#include <hwloc.h>

#include "runtime/machine/machine.h"

struct yk_machine {
    hwloc_topology_t topology;
    bool is_here; /* hwloc can bind on it */
    bool
        is_described; /* opened by its description: the driver of this machine knows nothing of it */
    yk_cpus allowed, given;
    yk_core *cores;
    yk_numa_node *nodes;
    yk_gpu *gpus;
    int n_cores, n_nodes, n_gpus;
    char gpu_fault[128];
};

/* Processors and NUMA nodes of machine->topology, which is loaded. */
yk_status yk_machine_read_cores(yk_machine *machine);

/* The GPUs, after the cores.
 *
 * visible  CUDA_VISIBLE_DEVICES, or NULL
 */
yk_status yk_machine_read_gpus(yk_machine *machine, const char *visible);

/* A bitmap of hwloc's as a set. */
yk_cpus yk_cpus_of_bitmap(hwloc_const_bitmap_t bitmap);

/* The set as a bitmap that the caller owns; NULL when there is no memory. */
hwloc_bitmap_t yk_cpus_to_bitmap(const yk_cpus *set);

#endif
