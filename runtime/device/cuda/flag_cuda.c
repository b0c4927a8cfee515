/* runtime/device/cuda/flag_cuda.c - flags between processes, as stream memory operations of the
 * driver.
 *
 * The host pins the memory and maps it for the GPU, whose address for it may be another one; a
 * table of the few pieces that are shared gives it. The two operations are the driver's own and are
 * looked up there, so that nothing has to be linked to it.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "runtime/device/cuda/cuda_device.h"

/* Find a function of the driver; it stays NULL where there is none. */
static void find_function(const char *name, yk_cuda_flag_fn *function)
{
    void *symbol = NULL;
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &symbol, 12000, cudaEnableDefault, &result);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, &symbol, cudaEnableDefault, &result);
#endif
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess)
        memcpy(function, &symbol, sizeof symbol);
}

static yk_status find_operations(const yk_device *d, yk_cuda_state *state)
{
    find_function("cuStreamWriteValue32", &state->write_value);
    find_function("cuStreamWaitValue32", &state->wait_value);
    if (state->write_value && state->wait_value) return YK_OK;
    return yk_fail(YK_EUNSUPPORTED, d->spec.name,
                   "its driver offers no memory operations of streams, which comm.backend hostmem "
                   "needs; use a newer driver, or comm.backend: nccl");
}

static yk_status fail_to_pin(int64_t bytes, cudaError_t error)
{
    struct rlimit limit = {0};
    char advice[80] = "";
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < (rlim_t)bytes)
        snprintf(advice, sizeof advice, "; allow more (ulimit -l, now %llu KiB)",
                 (unsigned long long)limit.rlim_cur / 1024);
    return yk_fail(YK_ENOMEM, "memory shared by ranks", "%lld bytes cannot be pinned: %s%s",
                   (long long)bytes, cudaGetErrorString(error), advice);
}

yk_status yk_cuda_share(yk_device *d, void *memory, int64_t bytes)
{
    yk_cuda_state *state = d->state;
    YK_TRY(yk_cuda_enter(d));
    if (!state->write_value) YK_TRY(find_operations(d, state));
    if (state->n_shared == YK_CUDA_SHARED_MAX)
        return yk_fail(YK_ENOMEM, d->spec.name, "more than %d pieces of memory are shared",
                       YK_CUDA_SHARED_MAX);
    cudaError_t error =
        cudaHostRegister(memory, (size_t)bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    void *there = NULL;
    if (error == cudaSuccess) {
        error = cudaHostGetDevicePointer(&there, memory, 0);
        if (error != cudaSuccess) (void)cudaHostUnregister(memory);
    }
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return fail_to_pin(bytes, error);
    }
    state->shared[state->n_shared++] =
        (yk_cuda_shared){(uintptr_t)memory, (uintptr_t)there, (uintptr_t)bytes};
    return YK_OK;
}

void yk_cuda_unshare(yk_device *d, void *memory, int64_t bytes)
{
    yk_cuda_state *state = d->state;
    (void)bytes;
    (void)cudaSetDevice(state->index);
    for (int i = 0; i < state->n_shared; i++) {
        if (state->shared[i].host != (uintptr_t)memory) continue;
        (void)cudaHostUnregister(memory);
        state->shared[i] = state->shared[--state->n_shared];
        return;
    }
}

/* The GPU's address of a word in shared memory; 0: it is in none. */
static CUdeviceptr find_address(const yk_cuda_state *state, const uint32_t *flag)
{
    uintptr_t at = (uintptr_t)flag;
    for (int i = 0; i < state->n_shared; i++) {
        const yk_cuda_shared *m = &state->shared[i];
        if (at >= m->host && at < m->host + m->bytes) return m->device + (at - m->host);
    }
    return 0;
}

static yk_status check(const yk_stream *s, CUdeviceptr address, CUresult result)
{
    if (!address)
        return yk_fail(YK_EINVAL, s->name,
                       "a flag is in no memory that is shared; this is a mistake in the program");
    if (result == CUDA_SUCCESS) return YK_OK;
    return yk_fail(YK_EDEVICE, s->name, "a flag: CUDA error %d", (int)result);
}

yk_status yk_cuda_stream_write_flag(yk_stream *s, uint32_t *flag, uint32_t value)
{
    const yk_cuda_state *state = s->device->state;
    YK_TRY(yk_cuda_enter(s->device));
    CUdeviceptr at = find_address(state, flag);
    CUresult result = CUDA_SUCCESS;
    if (at)
        result = state->write_value(yk_cuda_stream_of(s), at, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    return check(s, at, result);
}

yk_status yk_cuda_stream_await_flag(yk_stream *s, const uint32_t *flag, uint32_t value)
{
    const yk_cuda_state *state = s->device->state;
    YK_TRY(yk_cuda_enter(s->device));
    CUdeviceptr at = find_address(state, flag);
    CUresult result = CUDA_SUCCESS;
    if (at) /* compares modulo 2^32 */
        result = state->wait_value(yk_cuda_stream_of(s), at, value, CU_STREAM_WAIT_VALUE_GEQ);
    return check(s, at, result);
}

void yk_cuda_fail(yk_device *d, yk_status status)
{
    yk_cuda_state *state = d->state;
    int none = YK_OK;
    atomic_compare_exchange_strong(&state->failure, &none, (int)status);
}

/* NCCL is told by NCCL_P2P_DISABLE to go by way of the host. */
bool yk_cuda_reaches_peers(const yk_device *d)
{
    const yk_cuda_state *state = d->state;
    const char *disabled = getenv("NCCL_P2P_DISABLE");
    int n = yk_device_count_cuda();
    if (disabled && strcmp(disabled, "0") != 0 && n > 1) return false;
    for (int i = 0; i < n; i++) {
        int reaches = 1;
        if (i == state->index) continue;
        if (cudaDeviceCanAccessPeer(&reaches, state->index, i) == cudaSuccess && !reaches)
            return false;
    }
    return true;
}
