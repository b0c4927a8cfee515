/* runtime/device/cuda/holders_cuda.c - how much of a GPU's memory is free, and which processes have the
 * rest, as CUDA and NVIDIA's driver tell it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/machine/nvml.h"
#include "runtime/storage/file.h"

#define MAX_PROCESSES 8

static size_t write_free(char *text, size_t size)
{
    size_t left = 0, all = 0;
    if (cudaMemGetInfo(&left, &all) != cudaSuccess) {
        (void)cudaGetLastError();
        return (size_t)snprintf(text, size, "an unknown part of it free");
    }
    return (size_t)snprintf(text, size, "%zu of %zu free", left, all);
}

/* The driver's number of the GPU with CUDA's number `index`, or -1. */
static int find_gpu(yk_nvml *nvml, int index)
{
    unsigned domain, bus, device;
    char id[32];
    if (cudaDeviceGetPCIBusId(id, sizeof id, index) != cudaSuccess) return -1;
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) return -1;
    for (int i = 0; i < yk_nvml_count(nvml); i++) {
        yk_nvml_gpu gpu;
        if (yk_nvml_get(nvml, i, &gpu) != YK_OK) continue;
        if (gpu.domain == domain && gpu.bus == bus && gpu.device == device) return i;
    }
    return -1;
}

/* A process's name, or "" where it cannot be seen, as from inside a container. */
static void read_name(int64_t pid, char name_out[32])
{
    char path[64];
    char *text;
    int64_t bytes;
    name_out[0] = '\0';
    snprintf(path, sizeof path, "/proc/%lld/comm", (long long)pid);
    if (!yk_file_exists(path) || yk_file_read_all(path, &text, &bytes) != YK_OK) return;
    snprintf(name_out, 32, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
}

/* The processes on the GPU; none where the driver does not tell. */
static int list_processes(const yk_device *d, yk_nvml_process list[MAX_PROCESSES])
{
    yk_nvml *nvml;
    const char *why;
    if (yk_nvml_open(&nvml, &why) != YK_OK) return 0;
    int gpu = find_gpu(nvml, ((const yk_cuda_state *)d->state)->index);
    int n = gpu < 0 ? 0 : yk_nvml_processes(nvml, gpu, list, MAX_PROCESSES);
    yk_nvml_close(nvml);
    return n;
}

/* A process that is alone there has all that is taken, whatever the driver calls it. */
int64_t yk_cuda_held_bytes(const yk_device *d)
{
    yk_nvml_process list[MAX_PROCESSES];
    int n = list_processes(d, list);
    for (int i = 0; i < n; i++)
        if (list[i].pid == getpid() && list[i].bytes > 0) return list[i].bytes;
    return n == 1 ? yk_cuda_used_bytes(d) : 0;
}

static void write_others(const yk_device *d, char *text, size_t size)
{
    yk_nvml_process list[MAX_PROCESSES];
    int n = list_processes(d, list);
    size_t used = 0;
    for (int i = 0; i < n && used < size; i++) {
        char name[32];
        if (list[i].pid == getpid() || list[i].bytes == 0) continue;
        read_name(list[i].pid, name);
        used += (size_t)snprintf(text + used, size - used, "; process %lld (%s) has %lld",
                                 (long long)list[i].pid, name[0] ? name : "not seen from here",
                                 (long long)list[i].bytes);
    }
}

void yk_cuda_room(const yk_device *d, yk_memory_kind kind, char *text_out, size_t size)
{
    if (kind == YK_MEMORY_PINNED) {
        long long left = (long long)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
        snprintf(text_out, size, "%lld free on this machine", left);
        return;
    }
    size_t used = write_free(text_out, size);
    if (used < size) write_others(d, text_out + used, size - used);
}
