/* runtime/machine/nvml.h - what NVIDIA's driver says of its GPUs, through libnvidia-ml.so.1.
 *
 * The library is part of the driver and is loaded when it is asked for: a program without it
 * starts, and finds no GPUs. Nothing here starts CUDA. GPUs are numbered in order of bus id, and
 * those that the process may not open (a container, a Slurm job) are not counted.
 */
#ifndef YK_RUNTIME_MACHINE_NVML_H
#define YK_RUNTIME_MACHINE_NVML_H

#include <stdint.h>

#include "runtime/base/status.h"

typedef struct yk_nvml yk_nvml;

/* A GPU as the driver names it. */
typedef struct yk_nvml_gpu {
    unsigned domain, bus, device; /* on PCI; a GPU is function 0 */
    char uuid[96];                /* "GPU-..." */
    char name[96];                /* "NVIDIA GeForce RTX 4090 D" */
    int64_t memory_bytes;         /* in all; 0: not told */
} yk_nvml_gpu;

/* How a GPU is just now; NAN where the driver does not tell. */
typedef struct yk_nvml_state {
    double power_w, temperature_c, sm_clock_mhz;
    double pcie_rx_rate, pcie_tx_rate; /* bytes/s to and from the GPU, over the last 20 ms */
} yk_nvml_state;

/* Load the library and start it; the caller owns the handle. Reports nothing: that there is no driver
 * is no failure.                                                                         [local]
 *
 * why_out  why there is none: "" when there is no library, else the library's words; static storage
 *          or the handle's
 *
 * YK_EUNSUPPORTED  there is no library
 * YK_EDEVICE       there is one, and it refuses: driver and library differ, no permission
 */
yk_status yk_nvml_open(yk_nvml **nvml_out, const char **why_out);

/* Stop and unload. NULL does nothing. */
void yk_nvml_close(yk_nvml *nvml);

/* How many GPUs there are. */
int yk_nvml_count(yk_nvml *nvml);

/* GPU `index`. Reports nothing.                                                          [local]
 *
 * YK_EDEVICE  it does not answer (fallen off the bus)
 */
yk_status yk_nvml_get(yk_nvml *nvml, int index, yk_nvml_gpu *gpu_out);

/* How GPU `index` is. Takes some 40 ms, for the driver counts traffic that long. Reports nothing.
 *                                                                                        [local]
 * YK_EDEVICE  it does not answer
 */
yk_status yk_nvml_sample(yk_nvml *nvml, int index, yk_nvml_state *state_out);

/* A process that computes on a GPU. */
typedef struct yk_nvml_process {
    int64_t pid;   /* as the driver numbers it: that of the machine, not of a container */
    int64_t bytes; /* of the GPU's memory; 0: not told */
} yk_nvml_process;

/* The processes on GPU `index`, at most `max`; returns how many. None where the driver does not
 * tell.                                                                                  [local] */
int yk_nvml_processes(yk_nvml *nvml, int index, yk_nvml_process *list_out, int max);

#endif
