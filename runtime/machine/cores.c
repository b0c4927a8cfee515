/* runtime/machine/cores.c - cores, processors and NUMA nodes out of hwloc's tree.
 *
 * hwloc orders objects as they lie on the machine, so cores of a package, and of a shared cache,
 * stand together. A stable sort by NUMA node keeps that and puts the nodes in order.
 */
#include <stdlib.h>

#include "runtime/machine/machine_parts.h"

yk_cpus yk_cpus_of_bitmap(hwloc_const_bitmap_t bitmap)
{
    yk_cpus set = {{0}};
    for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0 && cpu < YK_CPUS_MAX;
         cpu = hwloc_bitmap_next(bitmap, cpu))
        yk_cpus_add(&set, cpu);
    return set;
}

hwloc_bitmap_t yk_cpus_to_bitmap(const yk_cpus *set)
{
    hwloc_bitmap_t bitmap = hwloc_bitmap_alloc();
    for (int cpu = 0; bitmap && cpu < YK_CPUS_MAX; cpu++) {
        if (!yk_cpus_has(set, cpu) || hwloc_bitmap_set(bitmap, (unsigned)cpu) == 0) continue;
        hwloc_bitmap_free(bitmap);
        bitmap = NULL;
    }
    return bitmap;
}

/* What the cgroup allows, and of it what this thread is bound to. */
static void read_given(yk_machine *machine)
{
    machine->allowed = yk_cpus_of_bitmap(hwloc_topology_get_allowed_cpuset(machine->topology));
    machine->given = machine->allowed;
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (bound && machine->is_here &&
        hwloc_get_cpubind(machine->topology, bound, HWLOC_CPUBIND_THREAD) == 0) {
        yk_cpus set = yk_cpus_of_bitmap(bound);
        set = yk_cpus_and(&set, &machine->allowed);
        if (!yk_cpus_is_empty(&set)) machine->given = set;
    }
    hwloc_bitmap_free(bound);
}

/* Nodes without processors hold memory of another kind (high-bandwidth, on a bus) and are not where
 * a rank would run. Where several nodes have the same processors, the first holds the plain
 * memory. */
static bool is_home(const yk_machine *machine, const yk_cpus *cpus)
{
    if (yk_cpus_is_empty(cpus)) return false;
    for (int i = 0; i < machine->n_nodes; i++)
        if (yk_cpus_is_equal(&machine->nodes[i].cpus, cpus)) return false;
    return true;
}

static void read_nodes(yk_machine *machine)
{
    hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(machine->topology);
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(machine->topology, HWLOC_OBJ_NUMANODE, node))) {
        yk_cpus cpus = yk_cpus_of_bitmap(node->cpuset);
        if (!is_home(machine, &cpus)) continue;
        bool may = hwloc_bitmap_isset(allowed, node->os_index);
        machine->nodes[machine->n_nodes++] = (yk_numa_node){
            .number = (int)node->os_index,
            .has_memory = may && node->attr->numanode.local_memory > 0,
            .cpus = cpus,
        };
    }
}

static int find_node(const yk_machine *machine, const yk_cpus *cpus)
{
    for (int i = 0; i < machine->n_nodes; i++)
        if (yk_cpus_holds(&machine->nodes[i].cpus, cpus)) return i;
    return -1;
}

/* The object that stands for a core: a machine may tell of processors alone. */
static hwloc_obj_type_t core_type(hwloc_topology_t topology)
{
    return hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

static void read_cores(yk_machine *machine, hwloc_obj_type_t type)
{
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(machine->topology, type, core))) {
        yk_cpus cpus = yk_cpus_of_bitmap(core->cpuset);
        cpus = yk_cpus_and(&cpus, &machine->allowed);
        if (yk_cpus_is_empty(&cpus)) continue;
        int node = find_node(machine, &cpus), at = machine->n_cores++;
        for (; at > 0 && machine->cores[at - 1].node > node; at--)
            machine->cores[at] = machine->cores[at - 1];
        machine->cores[at] = (yk_core){.cpus = cpus, .node = node};
    }
}

yk_status yk_machine_read_cores(yk_machine *machine)
{
    hwloc_obj_type_t type = core_type(machine->topology);
    int n_nodes = hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_NUMANODE);
    int n_cores = hwloc_get_nbobjs_by_type(machine->topology, type);
    machine->nodes = calloc((size_t)n_nodes + 1, sizeof *machine->nodes);
    machine->cores = calloc((size_t)n_cores + 1, sizeof *machine->cores);
    if (!machine->nodes || !machine->cores)
        return yk_fail(YK_ENOMEM, "machine", "no memory for its %d cores; free some", n_cores);
    read_given(machine);
    read_nodes(machine);
    read_cores(machine, type);
    return YK_OK;
}
