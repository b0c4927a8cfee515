/* runtime/device/cuda/copy_async.cuh - copies into shared memory that nobody waits for (sm_80 and later).
 *
 * A thread's copies form groups in the order in which they were begun; a group that has been waited for
 * is there for the thread that began it, and for others after a barrier.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_COPY_ASYNC_CUH
#define YK_RUNTIME_DEVICE_CUDA_COPY_ASYNC_CUH

#include <stdint.h>

/* 16 bytes to shared memory, or zeros when not `there`. */
static __device__ inline void copy_async(uint32_t to, const void *from, bool there)
{
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

static __device__ inline void copy_async(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

static __device__ inline void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most N of this thread's groups are still under way. */
template <int N> static __device__ inline void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* 16 bytes that this thread has copied to shared memory and waited for. */
static __device__ inline uint4 load_copied(uint32_t from)
{
    uint4 w;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                 : "r"(from)
                 : "memory");
    return w;
}

static __device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

#endif
