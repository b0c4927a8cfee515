/* runtime/device/cuda/pinned_cuda.c - host memory that the copy engines reach.
 *
 * The driver gets pages one by one on one core, some 3 GB a second, which for tens of GiB of offloaded
 * state is most of a run's start. So large pieces are mapped here, touched by all of the rank's threads
 * at once, which also puts them on the NUMA node where the rank is bound, and then registered. Where that is
 * refused the driver gets them.
 */
#include <sys/mman.h>

#include "runtime/base/arith.h"
#include "runtime/base/threads.h"
#include "runtime/device/cuda/cuda_device.h"

/* From here on the threads are worth it. */
#define LARGE ((int64_t)64 << 20)

/* A huge page, and the least that there are. */
#define HUGE_PAGE ((int64_t)2 << 20)
#define PAGE      4096

/* Let the kernel find a page for every part of a piece. */
static void touch(char *memory, int64_t bytes)
{
#pragma omp parallel for num_threads(yk_threads()) schedule(dynamic, 8)
    for (int64_t begin = 0; begin < bytes; begin += HUGE_PAGE) {
        int64_t end = yk_min(begin + HUGE_PAGE, bytes);
        for (int64_t i = begin; i < end; i += PAGE) ((volatile char *)memory)[i] = 0;
    }
}

/* NULL where it cannot be had in this way. */
static void *map_and_register(int64_t bytes)
{
    void *memory =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    (void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
    touch(memory, bytes);
    if (cudaHostRegister(memory, (size_t)bytes, cudaHostRegisterPortable) == cudaSuccess)
        return memory;
    (void)cudaGetLastError();
    (void)munmap(memory, (size_t)bytes);
    return NULL;
}

cudaError_t yk_cuda_pinned_alloc(int64_t bytes, void **memory_out)
{
    void *memory = bytes >= LARGE ? map_and_register(bytes) : NULL;
    if (!memory) return cudaHostAlloc(memory_out, (size_t)bytes, cudaHostAllocPortable);
    *memory_out = memory;
    return cudaSuccess;
}

void yk_cuda_pinned_free(int64_t bytes, void *memory)
{
    if (bytes >= LARGE && cudaHostUnregister(memory) == cudaSuccess) {
        (void)munmap(memory, (size_t)bytes);
        return;
    }
    if (bytes >= LARGE) (void)cudaGetLastError(); /* the driver's own after all */
    (void)cudaFreeHost(memory);
}
