/* runtime/machine/machine.h - the machine that this process runs on: cores, memory, GPUs, and which of
 * them it may use.
 *
 * Model.    Read once, when it is opened, and never changed by that: nothing is bound, and CUDA is not
 *           started. Cores and NUMA nodes come from hwloc, GPUs from NVIDIA's driver, and where a GPU
 *           lies from its place on PCI.
 * Described machines. hwloc's XML and synthetic descriptions can be opened in place of this machine;
 *           they are looked at in the same way, and binding does nothing there.
 * Words.    A processor is what the system schedules on, a core has one or several. Numbers of
 *           processors and NUMA nodes are the system's, sparse as they may be.
 * Threads.  An open machine is constant and may be shared.
 */
#ifndef YK_RUNTIME_MACHINE_MACHINE_H
#define YK_RUNTIME_MACHINE_MACHINE_H

#include "runtime/base/status.h"
#include "runtime/machine/cpus.h"

typedef struct yk_machine yk_machine;

/* "0000:3b:00.0" and its end; domains may have eight digits. */
#define YK_BUS_ID_BYTES 24

/* A GPU that this process may use. */
typedef struct yk_gpu {
    char bus_id[YK_BUS_ID_BYTES]; /* "" : not known, as for a part of a GPU (MIG) */
    char uuid[96];                /* "GPU-...", or "" */
    char name[96];                /* or "" */
    int64_t memory_bytes;         /* or 0 */
    yk_cpus near;                 /* processors next to it, allowed or not; empty: not known */
} yk_gpu;

/* A core that this process may use, in full or in part. */
typedef struct yk_core {
    yk_cpus cpus; /* its processors that are allowed; never empty */
    int node;     /* index of its NUMA node, or -1 */
} yk_core;

/* A NUMA node with processors. */
typedef struct yk_numa_node {
    int number;      /* the system's */
    bool has_memory; /* that may be used; there are nodes without */
    yk_cpus cpus;    /* allowed or not */
} yk_numa_node;

/* Look at this machine; the caller owns the result. What cannot be found out is left out: there is
 * always at least one core.                                                              [local]
 *
 * CUDA_VISIBLE_DEVICES is heeded as CUDA does, with its numbers in order of bus id; so a process that
 * opens a GPU by the index used here needs CUDA_DEVICE_ORDER=PCI_BUS_ID (yk_machine_order_gpus()).
 *
 * YK_ENOMEM  there is no memory for it
 */
yk_status yk_machine_open(yk_machine **machine_out);

/* A machine by its description: one of the first two is given. */
typedef struct yk_machine_source {
    const char *xml;       /* path of a file that hwloc exported, or NULL */
    const char *synthetic; /* hwloc's short form, such as "pack:2 core:4 pu:2", or NULL */
    const char *given;   /* processors that the process may use, "0-3,8"; NULL: all allowed ones */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: unset */
} yk_machine_source;

/* Look at a described machine. Its GPUs are NVIDIA's display controllers on its PCI.     [local]
 *
 * YK_EINVAL  hwloc does not accept the description
 * YK_ENOMEM  there is no memory for it
 */
yk_status yk_machine_open_described(const yk_machine_source *source, yk_machine **machine_out);

/* Release the machine. NULL does nothing. */
void yk_machine_close(yk_machine *machine);

/* Make CUDA number GPUs as NVML and yk_machine do, unless the user has chosen another order. Before
 * CUDA starts, while there is one thread: it sets an environment variable.               [local] */
void yk_machine_order_gpus(void);

/* The processors that this process may use: what its cgroup allows and what it is bound to. */
const yk_cpus *yk_machine_given(const yk_machine *machine);

/* The processors that its cgroup allows, whatever it is bound to. */
const yk_cpus *yk_machine_allowed(const yk_machine *machine);

/* The cores with allowed processors, in order of NUMA node, then as they lie on the chip. */
int yk_machine_n_cores(const yk_machine *machine);
const yk_core *yk_machine_core(const yk_machine *machine, int index);

/* Cores of which `set` has at least one processor. */
int yk_machine_count_cores(const yk_machine *machine, const yk_cpus *set);

/* NUMA nodes with processors. */
int yk_machine_n_nodes(const yk_machine *machine);
const yk_numa_node *yk_machine_node(const yk_machine *machine, int index);

/* The NUMA nodes, by the system's numbers, whose processors `set` has some of: "0", "0-1", or "-"
 * when there is none. Returns `text_out`. */
const char *yk_machine_write_nodes(const yk_machine *machine, const yk_cpus *set,
                                   char text_out[YK_CPUS_TEXT]);

/* The GPUs that this process may use, in the order in which CUDA shows them to it. */
int yk_machine_n_gpus(const yk_machine *machine);
const yk_gpu *yk_machine_gpu(const yk_machine *machine, int index);

/* Why the driver's GPUs cannot be used, in the driver's words; "" when they can or there are
 * none. */
const char *yk_machine_gpu_fault(const yk_machine *machine);

#endif
