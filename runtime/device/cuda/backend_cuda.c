/* runtime/device/cuda/backend_cuda.c - one NVIDIA GPU: opening it, and its memory.
 *
 * Everything that takes time or memory happens when the device is opened: the context, the cuBLASLt
 * handle, the kernels' limits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/kernels.h"

yk_status yk_cuda_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return YK_OK;
    return yk_fail(YK_EDEVICE, what, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}

/* ---- opening ------------------------------------------------------------------------------- */

static int attribute(enum cudaDeviceAttr name, int index)
{
    int value = 0;
    (void)cudaDeviceGetAttribute(&value, name, index);
    return value;
}

/* Operations per clock and multiprocessor of dense 16-bit products with fp32
 * sums. GeForce cards halve the rate for sums in fp32. */
static double matrix_flops_per_clock(int major, int minor)
{
    if (major == 10) return 8192;
    if (major == 9) return 4096;
    if (major == 8 && minor == 0) return 2048;
    return 512; /* sm_86, sm_89, sm_120 */
}

/* Peak rates by the card's own clocks and widths; launch_s is what one launch costs in a graph. */
static void describe(yk_device *d, const struct cudaDeviceProp *p, int index)
{
    yk_device_spec *spec = &d->spec;
    double clock_hz = attribute(cudaDevAttrClockRate, index) * 1e3;
    double sms = p->multiProcessorCount;
    double memory_clock_hz = attribute(cudaDevAttrMemoryClockRate, index) * 1e3;
    double bus_bytes = attribute(cudaDevAttrGlobalMemoryBusWidth, index) / 8.0;
    snprintf(spec->name, sizeof spec->name, "%.63s", p->name);
    snprintf(spec->bus_id, sizeof spec->bus_id, "%04x:%02x:%02x.0", (unsigned)p->pciDomainID,
             (unsigned)p->pciBusID, (unsigned)p->pciDeviceID);
    spec->kind = YK_DEVICE_CUDA;
    spec->memory_bytes = (int64_t)p->totalGlobalMem;
    double matrix = matrix_flops_per_clock(p->major, p->minor) * sms * clock_hz;
    double plain = 256 * sms * clock_hz;
    spec->matmul_flops[YK_F32] = plain;
    spec->matmul_flops[YK_BF16] = spec->matmul_flops[YK_F16] = matrix;
    spec->attention_flops[YK_F32] = plain / 4;
    spec->attention_flops[YK_BF16] = spec->attention_flops[YK_F16] = matrix / 3;
    spec->memory_rate = 2 * memory_clock_hz * bus_bytes;
    spec->host_link_rate = 25e9;
    spec->launch_s = 2e-6;
}

/* The driver's own version, or where the kernel does not tell it, the one of CUDA that it serves. */
static void name_driver(char *text, size_t bytes)
{
    int serves = 0;
    FILE *f = fopen("/sys/module/nvidia/version", "re");
    bool told = f && fgets(text, (int)bytes, f);
    if (f) (void)fclose(f);
    if (told) {
        text[strcspn(text, "\n")] = '\0';
    } else {
        (void)cudaDriverGetVersion(&serves);
        snprintf(text, bytes, "%d", serves);
    }
}

/* What a choice of algorithms holds for. */
static yk_status create_tuner(yk_device *d, const struct cudaDeviceProp *p)
{
    char identity[160], driver[32];
    name_driver(driver, sizeof driver);
    snprintf(identity, sizeof identity, "%.63s sm_%d%d driver %s cuBLASLt %zu", p->name, p->major,
             p->minor, driver, cublasLtGetVersion());
    return yk_tuner_create(identity, &d->tuner);
}

static yk_status open_libraries(yk_cuda_state *state)
{
    cublasStatus_t status = cublasLtCreate(&state->lt);
    if (status != CUBLAS_STATUS_SUCCESS)
        return yk_fail(YK_EDEVICE, "cuBLASLt", "%s", cublasLtGetStatusString(status));
    yk_status made = yk_cuda_products_create(&state->products);
    if (made != YK_OK) (void)cublasLtDestroy(state->lt);
    return made;
}

static yk_status open_gpu(yk_device *d, yk_cuda_state *state, int index)
{
    struct cudaDeviceProp properties;
    YK_TRY(yk_cuda_check(cudaSetDevice(index), "GPU"));
    YK_TRY(yk_cuda_check(cudaGetDeviceProperties(&properties, index), "GPU"));
    if (properties.major < 8)
        return yk_fail(YK_EUNSUPPORTED, properties.name,
                       "its compute capability is %d.%d; 8.0 or newer is needed", properties.major,
                       properties.minor);
    state->index = index;
    state->provider = YK_ATTENTION_OWN;
    state->shared_bytes_max = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
    YK_TRY(yk_cuda_check(yk_cuda_kernels_prepare(state->shared_bytes_max), "loading kernels"));
    describe(d, &properties, index);
    YK_TRY(create_tuner(d, &properties));
    return open_libraries(state);
}

/* Before the first call of CUDA. A stream that waits for a flag holds back the
 * streams that share its hardware queue, and one of those may be what another
 * process waits for: let there be a queue for each. */
static void ask_for_queues(void)
{
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

int yk_device_count_cuda(void)
{
    int count = 0;
    ask_for_queues();
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    (void)cudaGetLastError();
    return 0;
}

yk_status yk_device_open_cuda(int index, yk_device **device_out)
{
    int count = 0;
    ask_for_queues();
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        return yk_fail(YK_EDEVICE, "device cuda",
                       "%s; see whether nvidia-smi runs, or set device to cpu",
                       cudaGetErrorString(error));
    if (index < 0 || index >= count)
        return yk_fail(YK_EDEVICE, "device cuda",
                       "there is no GPU %d: %d visible; see CUDA_VISIBLE_DEVICES", index, count);
    yk_device *d = calloc(1, sizeof *d);
    yk_cuda_state *state = calloc(1, sizeof *state);
    yk_status status = YK_ENOMEM;
    if (!d || !state) {
        yk_fail(YK_ENOMEM, "device cuda", "no memory for its state");
        goto fail_alloc;
    }
    d->backend = &yk_cuda_backend;
    d->workspaces = &yk_cuda_workspaces;
    d->kind = YK_DEVICE_CUDA;
    d->state = state;
    status = open_gpu(d, state, index);
    if (status != YK_OK) goto fail_alloc;
    *device_out = d;
    return YK_OK;
fail_alloc:
    if (d) yk_tuner_destroy(d->tuner);
    free(state);
    free(d);
    return status;
}

void yk_cuda_close(yk_device *d)
{
    yk_cuda_state *state = d->state;
    (void)cudaSetDevice(state->index);
    yk_cudnn_attention_close(state->cudnn);
    yk_tuner_destroy(d->tuner);
    yk_cuda_products_destroy(state->products);
    (void)cublasLtDestroy(state->lt);
    free(state);
    free(d);
}

void yk_cuda_set_tf32(yk_device *d, bool on)
{
    yk_cuda_state *state = d->state;
    state->tf32 = on;
}

/* ---- memory -------------------------------------------------------------------------------- */

yk_status yk_cuda_alloc(yk_device *d, yk_memory_kind kind, int64_t bytes, void **memory_out)
{
    YK_TRY(yk_cuda_enter(d));
    bool pinned = kind == YK_MEMORY_PINNED;
    void *memory = NULL;
    cudaError_t error =
        pinned ? yk_cuda_pinned_alloc(bytes, &memory) : cudaMalloc(&memory, (size_t)bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return YK_ENOMEM;
    }
    YK_TRY(yk_cuda_check(error, pinned ? "pinned host memory" : "memory"));
    *memory_out = memory;
    return YK_OK;
}

void yk_cuda_free(yk_device *d, yk_memory_kind kind, int64_t bytes, void *memory)
{
    (void)cudaSetDevice(((const yk_cuda_state *)d->state)->index);
    if (kind == YK_MEMORY_PINNED)
        yk_cuda_pinned_free(bytes, memory);
    else
        (void)cudaFree(memory);
}

int64_t yk_cuda_used_bytes(const yk_device *d)
{
    size_t left = 0, all = 0;
    (void)cudaSetDevice(((const yk_cuda_state *)d->state)->index);
    if (cudaMemGetInfo(&left, &all) != cudaSuccess) return 0;
    return (int64_t)(all - left);
}
