/* runtime/device/cuda/turns.cuh - sums to which blocks add their parts in turn, in one order.
 *
 * A part is fragments (mma.cuh) in registers; the sum so far lies in memory as the threads hold it,
 * 16 bytes a thread, so that a thread reads what the same thread of the block before has written. A
 * flag says how many parts are in a sum, or that it is finished and its place free. Blocks must
 * only wait for blocks with lower numbers, which start before them: then they never wait for ever.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_TURNS_CUH
#define YK_RUNTIME_DEVICE_CUDA_TURNS_CUH

#include "runtime/device/cuda/mma.cuh"

#define FINISHED 0x40000000 /* a flag's value when the last part has been added */

/* ---- flags -------------------------------------------------------------------------------- */

static __device__ inline int flag_read(const int *flag)
{
    int value;
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

static __device__ inline void flag_write(int *flag, int value)
{
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

/* Between a flag and what it speaks of: after reading one, and before writing one. */
static __device__ inline void flag_fence()
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

static __device__ inline void flag_wait(const int *flag, int value)
{
    while (flag_read(flag) != value) __nanosleep(64);
    flag_fence();
}

/* ---- parts -------------------------------------------------------------------------------- */

/* A block's fragments lie side by side: 16 bytes a thread. */
template <int THREADS, int M, int N>
static __device__ inline void part_get(float (&c)[M][N][4], const float *part)
{
    const float4 *from = reinterpret_cast<const float4 *>(part) + threadIdx.x;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            float4 old = __ldcg(from + (m * N + n) * THREADS);
            c[m][n][0] = old.x, c[m][n][1] = old.y, c[m][n][2] = old.z, c[m][n][3] = old.w;
        }
}

template <int M, int N>
static __device__ inline void add(float (&c)[M][N][4], const float (&part)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[m][n][i] += part[m][n][i];
}

template <int THREADS, int M, int N>
static __device__ inline void part_add(float (&c)[M][N][4], const float *part)
{
    const float4 *from = reinterpret_cast<const float4 *>(part) + threadIdx.x;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            float4 old = __ldcg(from + (m * N + n) * THREADS);
            c[m][n][0] += old.x, c[m][n][1] += old.y, c[m][n][2] += old.z, c[m][n][3] += old.w;
        }
}

template <int THREADS, int M, int N>
static __device__ inline void part_put(float *part, const float (&c)[M][N][4])
{
    float4 *to = reinterpret_cast<float4 *>(part) + threadIdx.x;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
            __stcg(to + (m * N + n) * THREADS,
                   make_float4(c[m][n][0], c[m][n][1], c[m][n][2], c[m][n][3]));
}

#endif
