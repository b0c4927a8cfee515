/* runtime/machine/nvml.c - NVML by dlopen.
 *
 * CUDA 13's packages carry no nvml.h, so the few functions in use are declared here, as NVIDIA's
 * "NVML API Reference" gives them. Names with _v2 and _v3 are the library's own and stay in it.
 */
#include "runtime/machine/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"

typedef struct nvml_device *nvml_device;

/* nvmlPciInfo_t of _v3 */
typedef struct pci_info {
    char short_bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;

/* nvmlMemory_t */
typedef struct memory_info {
    unsigned long long total, free, used;
} memory_info;

/* nvmlProcessInfo_t of _v3 */
typedef struct process_info {
    unsigned pid;
    unsigned long long used; /* ~0: not told */
    unsigned gpu_instance, compute_instance;
} process_info;

struct yk_nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int);
    int (*count)(unsigned *);
    int (*handle)(unsigned, nvml_device *);
    int (*pci)(nvml_device, pci_info *);
    int (*uuid)(nvml_device, char *, unsigned);
    int (*name)(nvml_device, char *, unsigned);
    int (*memory)(nvml_device, memory_info *);
    /* What not every driver and card has: NULL, or an error when it is called. */
    int (*power)(nvml_device, unsigned *);                 /* mW */
    int (*temperature)(nvml_device, int, unsigned *);      /* sensor; degrees Celsius */
    int (*clock)(nvml_device, int, unsigned *);            /* which; MHz */
    int (*pcie)(nvml_device, int counter, unsigned *kb_s); /* KB/s */
    int (*processes)(nvml_device, unsigned *, process_info *);
};

/* Of nvmlTemperatureSensors_t, nvmlClockType_t and nvmlPcieUtilCounter_t. */
enum { SENSOR_GPU = 0, CLOCK_SM = 1, PCIE_TX = 0, PCIE_RX = 1 };

/* Fill the function pointer at `offset` of the handle. A pointer to data and one to a function have
 * one size on every system that has dlsym(). */
static bool load_symbol(yk_nvml *nvml, size_t offset, const char *symbol)
{
    void *address = dlsym(nvml->library, symbol);
    memcpy((char *)nvml + offset, &address, sizeof address);
    return address != NULL;
}

/* The first so many must be there. */
#define N_REQUIRED 9

static bool load_symbols(yk_nvml *nvml)
{
    static const struct {
        size_t offset;
        const char *symbol;
    } table[] = {
        {offsetof(yk_nvml, init), "nvmlInit_v2"},
        {offsetof(yk_nvml, shutdown), "nvmlShutdown"},
        {offsetof(yk_nvml, error_string), "nvmlErrorString"},
        {offsetof(yk_nvml, count), "nvmlDeviceGetCount_v2"},
        {offsetof(yk_nvml, handle), "nvmlDeviceGetHandleByIndex_v2"},
        {offsetof(yk_nvml, pci), "nvmlDeviceGetPciInfo_v3"},
        {offsetof(yk_nvml, uuid), "nvmlDeviceGetUUID"},
        {offsetof(yk_nvml, name), "nvmlDeviceGetName"},
        {offsetof(yk_nvml, memory), "nvmlDeviceGetMemoryInfo"},
        {offsetof(yk_nvml, power), "nvmlDeviceGetPowerUsage"},
        {offsetof(yk_nvml, temperature), "nvmlDeviceGetTemperature"},
        {offsetof(yk_nvml, clock), "nvmlDeviceGetClockInfo"},
        {offsetof(yk_nvml, pcie), "nvmlDeviceGetPcieThroughput"},
        {offsetof(yk_nvml, processes), "nvmlDeviceGetComputeRunningProcesses_v3"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (!load_symbol(nvml, table[i].offset, table[i].symbol) && i < N_REQUIRED) return false;
    return true;
}

yk_status yk_nvml_open(yk_nvml **nvml_out, const char **why_out)
{
    yk_nvml *nvml = calloc(1, sizeof *nvml);
    yk_status status = YK_EUNSUPPORTED;
    const char *why = "";
    if (nvml) nvml->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!nvml || !nvml->library) goto fail_library;

    status = YK_EDEVICE;
    why = "it lacks functions that every driver since 2020 has";
    if (!load_symbols(nvml)) goto fail_start;
    int error = nvml->init();
    if (error) {
        why = nvml->error_string(error);
        goto fail_start;
    }
    *nvml_out = nvml;
    return YK_OK;

fail_start: /* the library stays loaded: `why` may be its own text */
fail_library:
    free(nvml);
    *why_out = why;
    return status;
}

void yk_nvml_close(yk_nvml *nvml)
{
    if (!nvml) return;
    nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

int yk_nvml_count(yk_nvml *nvml)
{
    unsigned n = 0;
    return nvml->count(&n) == 0 ? (int)n : 0;
}

yk_status yk_nvml_get(yk_nvml *nvml, int index, yk_nvml_gpu *gpu_out)
{
    nvml_device device;
    pci_info pci;
    memory_info memory;
    yk_nvml_gpu gpu = {.memory_bytes = 0};
    if (nvml->handle((unsigned)index, &device) != 0) return YK_EDEVICE;
    if (nvml->pci(device, &pci) != 0) return YK_EDEVICE;
    if (nvml->uuid(device, gpu.uuid, sizeof gpu.uuid) != 0) gpu.uuid[0] = '\0';
    if (nvml->name(device, gpu.name, sizeof gpu.name) != 0) gpu.name[0] = '\0';
    if (nvml->memory(device, &memory) == 0) gpu.memory_bytes = (int64_t)memory.total;
    gpu.domain = pci.domain;
    gpu.bus = pci.bus;
    gpu.device = pci.device;
    *gpu_out = gpu;
    return YK_OK;
}

yk_status yk_nvml_sample(yk_nvml *nvml, int index, yk_nvml_state *state_out)
{
    nvml_device device;
    unsigned n;
    yk_nvml_state s = {NAN, NAN, NAN, NAN, NAN};
    if (nvml->handle((unsigned)index, &device) != 0) return YK_EDEVICE;
    if (nvml->power && nvml->power(device, &n) == 0) s.power_w = 1e-3 * n;
    if (nvml->temperature && nvml->temperature(device, SENSOR_GPU, &n) == 0) s.temperature_c = n;
    if (nvml->clock && nvml->clock(device, CLOCK_SM, &n) == 0) s.sm_clock_mhz = n;
    if (nvml->pcie && nvml->pcie(device, PCIE_RX, &n) == 0) s.pcie_rx_rate = 1024.0 * n;
    if (nvml->pcie && nvml->pcie(device, PCIE_TX, &n) == 0) s.pcie_tx_rate = 1024.0 * n;
    *state_out = s;
    return YK_OK;
}

int yk_nvml_processes(yk_nvml *nvml, int index, yk_nvml_process *list_out, int max)
{
    enum { ROOM = 64 };
    nvml_device device;
    process_info found[ROOM];
    unsigned n = ROOM;
    if (!nvml->processes || nvml->handle((unsigned)index, &device) != 0) return 0;
    if (nvml->processes(device, &n, found) != 0) return 0;
    int count = (int)n < max ? (int)n : max;
    for (int i = 0; i < count; i++) {
        bool told = found[i].used != ~0ull;
        list_out[i] = (yk_nvml_process){found[i].pid, told ? (int64_t)found[i].used : 0};
    }
    return count;
}
