/* runtime/machine/machine.c - opening a machine, and what is asked of an open one.
 *
 * hwloc is told to keep what is not allowed as well: a GPU whose own cores belong to somebody else
 * is then seen to be so, instead of seeming to lie nowhere.
 */
#include "runtime/machine/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/machine/machine_parts.h"

/* Parts of hwloc that are left out: those that would start a GPU's driver to list what NVML lists
 * anyway, and the one that reads PCI by a library which leaks; hwloc's Linux part reads it from
 * /sys. */
static const char *const kept_out[] = {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero", "pci"};

static yk_status fail_memory(void)
{
    return yk_fail(YK_ENOMEM, "machine", "no memory to describe it; free some");
}

/* A topology that looks as it should; not loaded. */
static bool topology_create(hwloc_topology_t *topology_out)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return false;
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    for (size_t i = 0; i < sizeof kept_out / sizeof kept_out[0]; i++)
        hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      kept_out[i]);
    *topology_out = topology;
    return true;
}

/* What stands in where hwloc stumbles over this machine: as many processors as this process may run
 * on, of which nothing more is known. */
static bool flat_topology(hwloc_topology_t *topology_out)
{
    cpu_set_t set;
    char text[32];
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    snprintf(text, sizeof text, "pu:%d", n);
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return false;
    if (hwloc_topology_set_synthetic(topology, text) != 0 || hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return false;
    }
    *topology_out = topology;
    return true;
}

/* Takes the topology. */
static yk_status read_machine(hwloc_topology_t topology, bool is_described, const char *given,
                              const char *visible, yk_machine **machine_out)
{
    yk_machine *machine = calloc(1, sizeof *machine);
    if (!machine) {
        hwloc_topology_destroy(topology);
        return fail_memory();
    }
    machine->topology = topology;
    machine->is_described = is_described;
    machine->is_here = hwloc_topology_is_thissystem(topology);
    yk_status status = yk_machine_read_cores(machine);
    if (status == YK_OK && given) {
        yk_cpus set;
        if (yk_cpus_read(given, &set))
            machine->given = yk_cpus_and(&set, &machine->allowed);
        else
            status = yk_fail(YK_EINVAL, "machine", "'%s' is no list of processors", given);
    }
    if (status == YK_OK) status = yk_machine_read_gpus(machine, visible);
    if (status != YK_OK) {
        yk_machine_close(machine);
        return status;
    }
    *machine_out = machine;
    return YK_OK;
}

yk_status yk_machine_open(yk_machine **machine_out)
{
    hwloc_topology_t topology;
    if (!topology_create(&topology)) return fail_memory();
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        if (!flat_topology(&topology)) return fail_memory();
    }
    return read_machine(topology, false, NULL, getenv("CUDA_VISIBLE_DEVICES"), machine_out);
}

yk_status yk_machine_open_described(const yk_machine_source *source, yk_machine **machine_out)
{
    hwloc_topology_t topology;
    const char *what = source->xml ? source->xml : source->synthetic;
    if (!topology_create(&topology)) return fail_memory();
    int error = source->xml ? hwloc_topology_set_xml(topology, source->xml)
                            : hwloc_topology_set_synthetic(topology, source->synthetic);
    if (error || hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return yk_fail(YK_EINVAL, what, "hwloc cannot read this as the description of a machine");
    }
    return read_machine(topology, true, source->given, source->visible, machine_out);
}

void yk_machine_close(yk_machine *machine)
{
    if (!machine) return;
    hwloc_topology_destroy(machine->topology);
    free(machine->cores);
    free(machine->nodes);
    free(machine->gpus);
    free(machine);
}

void yk_machine_order_gpus(void)
{
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
}

const yk_cpus *yk_machine_given(const yk_machine *machine)
{
    return &machine->given;
}

const yk_cpus *yk_machine_allowed(const yk_machine *machine)
{
    return &machine->allowed;
}

int yk_machine_n_cores(const yk_machine *machine)
{
    return machine->n_cores;
}

const yk_core *yk_machine_core(const yk_machine *machine, int index)
{
    return &machine->cores[index];
}

int yk_machine_count_cores(const yk_machine *machine, const yk_cpus *set)
{
    int n = 0;
    for (int i = 0; i < machine->n_cores; i++) {
        yk_cpus part = yk_cpus_and(&machine->cores[i].cpus, set);
        n += !yk_cpus_is_empty(&part);
    }
    return n;
}

int yk_machine_n_nodes(const yk_machine *machine)
{
    return machine->n_nodes;
}

const yk_numa_node *yk_machine_node(const yk_machine *machine, int index)
{
    return &machine->nodes[index];
}

const char *yk_machine_write_nodes(const yk_machine *machine, const yk_cpus *set,
                                   char text_out[YK_CPUS_TEXT])
{
    yk_cpus numbers = {{0}};
    for (int i = 0; i < machine->n_nodes; i++) {
        yk_cpus part = yk_cpus_and(&machine->nodes[i].cpus, set);
        if (!yk_cpus_is_empty(&part)) yk_cpus_add(&numbers, machine->nodes[i].number);
    }
    if (yk_cpus_is_empty(&numbers)) {
        text_out[0] = '-';
        text_out[1] = '\0';
        return text_out;
    }
    return yk_cpus_write(&numbers, text_out);
}

int yk_machine_n_gpus(const yk_machine *machine)
{
    return machine->n_gpus;
}

const yk_gpu *yk_machine_gpu(const yk_machine *machine, int index)
{
    return &machine->gpus[index];
}

const char *yk_machine_gpu_fault(const yk_machine *machine)
{
    return machine->gpu_fault;
}
