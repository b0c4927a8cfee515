/* runtime/machine/gpus.c - which GPUs this process may use, and which processors lie next to them.
 *
 * On this machine the driver is asked (NVML): PCI also shows cards that a container was not given.
 * Of a described machine there is PCI alone.
 *
 * CUDA_VISIBLE_DEVICES is read as the CUDA C programming guide has it ("CUDA environment
 * variables"): a list of numbers, beginnings of UUIDs and MIG names, that ends before the first
 * entry which names nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/machine/machine_parts.h"
#include "runtime/machine/nvml.h"

#define NVIDIA        0x10de
#define CLASS_DISPLAY 0x03 /* the upper byte of a PCI class: VGA 0300, 3D controller 0302 */

/* ---- where a GPU lies --------------------------------------------------------------------- */

/* A bridge that hangs on the whole of a machine of several nodes says nothing. */
static yk_cpus near_of(const yk_machine *machine, hwloc_obj_t pci)
{
    yk_cpus near = {{0}};
    hwloc_obj_t root = hwloc_get_root_obj(machine->topology);
    if (machine->n_nodes < 2) return yk_cpus_of_bitmap(root->cpuset);
    if (!pci) return near;
    hwloc_obj_t home = hwloc_get_non_io_ancestor_obj(machine->topology, pci);
    if (!home || hwloc_bitmap_isincluded(root->cpuset, home->cpuset)) return near;
    return yk_cpus_of_bitmap(home->cpuset);
}

static void place(const yk_machine *machine, unsigned domain, unsigned bus, unsigned device,
                  yk_gpu *gpu)
{
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "%04x:%02x:%02x.0", domain, bus, device);
    gpu->near =
        near_of(machine, hwloc_get_pcidev_by_busid(machine->topology, domain, bus, device, 0));
}

/* ---- all of them -------------------------------------------------------------------------- */

/* A list of GPUs; owns its items. */
typedef struct gpu_list {
    yk_gpu *items;
    int n;
} gpu_list;

static bool list_create(gpu_list *list, int capacity)
{
    list->n = 0;
    list->items = calloc((size_t)capacity + 1, sizeof *list->items);
    return list->items != NULL;
}

static yk_status fail_memory(int n)
{
    return yk_fail(YK_ENOMEM, "machine", "no memory for its %d GPUs; free some", n);
}

static yk_status list_driver(yk_machine *machine, gpu_list *list)
{
    yk_nvml *nvml;
    const char *why;
    if (yk_nvml_open(&nvml, &why) != YK_OK) {
        snprintf(machine->gpu_fault, sizeof machine->gpu_fault, "%s", why);
        return list_create(list, 0) ? YK_OK : fail_memory(0);
    }
    int n = yk_nvml_count(nvml);
    if (!list_create(list, n)) {
        yk_nvml_close(nvml);
        return fail_memory(n);
    }
    for (int i = 0; i < n; i++) {
        yk_nvml_gpu found;
        if (yk_nvml_get(nvml, i, &found) != YK_OK) {
            snprintf(machine->gpu_fault, sizeof machine->gpu_fault, "GPU %d does not answer", i);
            continue;
        }
        yk_gpu *gpu = &list->items[list->n++];
        place(machine, found.domain, found.bus, found.device, gpu);
        memcpy(gpu->uuid, found.uuid, sizeof gpu->uuid);
        memcpy(gpu->name, found.name, sizeof gpu->name);
        gpu->memory_bytes = found.memory_bytes;
    }
    yk_nvml_close(nvml);
    return YK_OK;
}

static int by_bus_id(const void *a, const void *b)
{
    return strcmp(((const yk_gpu *)a)->bus_id, ((const yk_gpu *)b)->bus_id);
}

static yk_status list_pci(const yk_machine *machine, gpu_list *list)
{
    int n = hwloc_get_nbobjs_by_type(machine->topology, HWLOC_OBJ_PCI_DEVICE);
    if (!list_create(list, n)) return fail_memory(n);
    hwloc_obj_t pci = NULL;
    while ((pci = hwloc_get_next_pcidev(machine->topology, pci))) {
        const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
        if (attr->vendor_id != NVIDIA || attr->class_id >> 8 != CLASS_DISPLAY || attr->func != 0)
            continue;
        place(machine, attr->domain, attr->bus, attr->dev, &list->items[list->n++]);
    }
    qsort(list->items, (size_t)list->n, sizeof *list->items, by_bus_id);
    return YK_OK;
}

/* ---- those that are visible --------------------------------------------------------------- */

/* The GPU whose UUID begins with the word, if it is one alone. */
static const yk_gpu *find_uuid(const gpu_list *all, const char *word, size_t length)
{
    const yk_gpu *found = NULL;
    for (int i = 0; i < all->n; i++) {
        if (strncmp(all->items[i].uuid, word, length) != 0) continue;
        if (found) return NULL;
        found = &all->items[i];
    }
    return found;
}

/* The GPU that an entry of CUDA_VISIBLE_DEVICES names, into *gpu_out; false when it names none. */
static bool find_entry(const gpu_list *all, const char *word, size_t length, yk_gpu *gpu_out)
{
    const yk_gpu *found = NULL;
    char *end;
    if (length > 4 && strncmp(word, "MIG-", 4) == 0) {
        *gpu_out = (yk_gpu){.name = "MIG"};
        return true;
    }
    if (length > 4 && strncmp(word, "GPU-", 4) == 0) {
        found = find_uuid(all, word, length);
    } else {
        long index = strtol(word, &end, 10);
        if (end == word + length && length > 0 && index >= 0 && index < all->n)
            found = &all->items[index];
    }
    if (found) *gpu_out = *found;
    return found != NULL;
}

static yk_status choose_visible(const gpu_list *all, const char *visible, gpu_list *chosen)
{
    int n_entries = 1;
    for (const char *c = visible; *c; c++) n_entries += *c == ',';
    if (!list_create(chosen, n_entries)) return fail_memory(n_entries);
    while (*visible) {
        visible += strspn(visible, " ");
        size_t length = strcspn(visible, ", ");
        if (!find_entry(all, visible, length, &chosen->items[chosen->n])) break;
        chosen->n++;
        visible += length;
        visible += strspn(visible, ", ");
    }
    return YK_OK;
}

yk_status yk_machine_read_gpus(yk_machine *machine, const char *visible)
{
    gpu_list all, chosen;
    YK_TRY(machine->is_described ? list_pci(machine, &all) : list_driver(machine, &all));
    if (!visible) {
        machine->gpus = all.items;
        machine->n_gpus = all.n;
        return YK_OK;
    }
    yk_status status = choose_visible(&all, visible, &chosen);
    free(all.items);
    YK_TRY(status);
    machine->gpus = chosen.items;
    machine->n_gpus = chosen.n;
    return YK_OK;
}
