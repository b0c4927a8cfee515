/* runtime/device/cuda/kernels.cuh - what our kernels share: wide accesses,
 * conversions, and sums over a warp or a block in a fixed order.
 *
 * A pack is V neighbouring elements that travel in one access, 16 bytes
 * wherever alignment allows; arithmetic is on V floats. A launcher takes the
 * widest V that sizes and pointers allow, and 1 where nothing else does.
 */
#ifndef YK_RUNTIME_DEVICE_CUDA_KERNELS_CUH
#define YK_RUNTIME_DEVICE_CUDA_KERNELS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

#include "runtime/device/cuda/kernels.h"

typedef __nv_bfloat16 bf16;
typedef __half f16;

/* ---- packs --------------------------------------------------------------------------------- */

template <int BYTES> struct raw;
template <> struct raw<16> {
    typedef uint4 type;
};
template <> struct raw<8> {
    typedef uint2 type;
};
template <> struct raw<4> {
    typedef uint32_t type;
};
template <> struct raw<2> {
    typedef uint16_t type;
};

template <typename T, int V> struct pack {
    typedef typename raw<sizeof(T) * V>::type word;
    word w;
};

template <typename T, int V> __device__ inline pack<T, V> load(const T *p)
{
    pack<T, V> r;
    r.w = *reinterpret_cast<const typename pack<T, V>::word *>(p);
    return r;
}

template <typename T, int V> __device__ inline void store(T *p, pack<T, V> v)
{
    *reinterpret_cast<typename pack<T, V>::word *>(p) = v.w;
}

__device__ inline float to_float(float x)
{
    return x;
}
__device__ inline float to_float(bf16 x)
{
    return __bfloat162float(x);
}
__device__ inline float to_float(f16 x)
{
    return __half2float(x);
}

template <typename T> struct is_bf16 {
    static constexpr bool value = false;
};
template <> struct is_bf16<bf16> {
    static constexpr bool value = true;
};

template <typename T> __device__ inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x)
{
    return x;
}
template <> __device__ inline bf16 from_float<bf16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ inline f16 from_float<f16>(float x)
{
    return __float2half_rn(x);
}

/* Two bf16 are the upper halves of two floats: one operation each. */
template <typename T, int V> __device__ inline void unpack(pack<T, V> p, float (&f)[V])
{
    if constexpr (is_bf16<T>::value && V % 2 == 0) {
        uint32_t u[V / 2];
        memcpy(u, &p, sizeof p);
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            f[2 * i] = __uint_as_float(u[i] << 16);
            f[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
        }
        return;
    }
    T e[V];
    memcpy(e, &p, sizeof p);
#pragma unroll
    for (int i = 0; i < V; i++) f[i] = to_float(e[i]);
}

/* Two floats rounded into one 32-bit word, the first in its lower half. */
__device__ inline uint32_t round_pair(float a, float b, bf16)
{
    __nv_bfloat162 r = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<uint32_t *>(&r);
}
__device__ inline uint32_t round_pair(float a, float b, f16)
{
    __half2 r = __floats2half2_rn(a, b);
    return *reinterpret_cast<uint32_t *>(&r);
}

template <typename T, int V> __device__ inline pack<T, V> to_pack(const float (&f)[V])
{
    pack<T, V> p;
    if constexpr (sizeof(T) == 2 && V % 2 == 0) {
        uint32_t u[V / 2];
#pragma unroll
        for (int i = 0; i < V / 2; i++) u[i] = round_pair(f[2 * i], f[2 * i + 1], T());
        memcpy(&p, u, sizeof p);
    } else {
        T e[V];
#pragma unroll
        for (int i = 0; i < V; i++) e[i] = from_float<T>(f[i]);
        memcpy(&p, e, sizeof p);
    }
    return p;
}

template <typename T, int V> __device__ inline void load_floats(const T *p, float (&f)[V])
{
    unpack<T, V>(load<T, V>(p), f);
}

template <typename T, int V> __device__ inline void store_floats(T *p, const float (&f)[V])
{
    store<T, V>(p, to_pack<T, V>(f));
}

/* V floats, in accesses of 16 bytes where V allows. */
template <int V> __device__ inline void load_f32(const float *p, float (&f)[V])
{
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            float4 q = *reinterpret_cast<const float4 *>(p + i);
            f[i] = q.x, f[i + 1] = q.y, f[i + 2] = q.z, f[i + 3] = q.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) f[i] = p[i];
    }
}

template <int V> __device__ inline void store_f32(float *p, const float (&f)[V])
{
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4)
            *reinterpret_cast<float4 *>(p + i) = make_float4(f[i], f[i + 1], f[i + 2], f[i + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) p[i] = f[i];
    }
}

/* ---- sums in a fixed order ----------------------------------------------------------------- */

template <typename S> __device__ inline S warp_sum(S x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* The block's sum of each of U values, in every thread. `shared` is (U,32); two calls in a row must
 * use different ones, since only one barrier lies between a write and the reads before it. */
template <typename S, int U> __device__ inline void block_sum(S (&x)[U], S (*shared)[32])
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n_warps = (blockDim.x + 31) >> 5;
#pragma unroll
    for (int u = 0; u < U; u++) {
        x[u] = warp_sum(x[u]);
        if (lane == 0) shared[u][warp] = x[u];
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < U; u++) x[u] = warp_sum(lane < n_warps ? shared[u][lane] : S(0));
}

/* ---- activations --------------------------------------------------------------------------- */

/* 1 / (1 + exp(-x)). For results that are rounded to T: 16 bits need no more
 * than the fast units give. */
template <typename T> __device__ inline float sigmoid(float x)
{
    if constexpr (sizeof(T) == 4) return 1.0f / (1.0f + expf(-x));
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

/* GELU's tanh form: (1 + tanh(u)) / 2 is sigmoid(2 u), with u = sqrt(2 / pi) (z
 * + 0.044715 z^3). */
#define GELU_TWICE 1.5957691216057308f
#define GELU_CUBIC 0.044715f

template <typename T> __device__ inline float gelu(float z)
{
    return z * sigmoid<T>(GELU_TWICE * (z + GELU_CUBIC * z * z * z));
}

template <typename T> __device__ inline float gelu_slope(float z)
{
    float p = sigmoid<T>(GELU_TWICE * (z + GELU_CUBIC * z * z * z));
    return p + z * p * (1.0f - p) * GELU_TWICE * (1.0f + 3.0f * GELU_CUBIC * z * z);
}

/* ---- launching ----------------------------------------------------------------------------- */

/* Call f with a value of the type that `t` stands for. */
template <typename F> cudaError_t with_type(yk_dtype t, F f)
{
    switch (t) {
    case YK_F32:
        return f(float());
    case YK_BF16:
        return f(bf16());
    case YK_F16:
        return f(f16());
    default:
        return cudaErrorInvalidValue;
    }
}

template <typename T> constexpr int full_pack()
{
    return 16 / (int)sizeof(T);
}

static inline bool is_aligned(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

static inline int64_t div_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

static inline int64_t at_most(int64_t n, int64_t limit)
{
    return n < limit ? n : limit;
}

/* ---- kernels that come early --------------------------------------------------------------- */

/* A kernel that is launched early (launch_early) waits here for the one before it, and for what that
 * has waited for. No thread may touch memory before, and each has to come here. */
static __device__ inline void wait_for_kernel_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* When all blocks have come here, or have ended, the next kernel may take what they leave of the card,
 * if it is launched early. */
static __device__ inline void let_next_kernel_come()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Launch a kernel whose blocks may be on the card before the kernel before it has ended, so that the
 * launch takes no time. Code for cards before sm_90 does not wait by itself and is launched as ever,
 * on whatever card it runs; so is all where graphs cannot hold such a launch. */
template <typename K, typename... A>
static cudaError_t launch_early(K kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t s,
                                A... args)
{
    cudaFuncAttributes code = {};
    cudaError_t e = cudaFuncGetAttributes(&code, (const void *)kernel);
    if (e != cudaSuccess) return e;
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid, how.blockDim = block, how.dynamicSmemBytes = shared, how.stream = s;
    how.attrs = &early, how.numAttrs = code.ptxVersion >= 90 && CUDART_VERSION >= 12030 ? 1 : 0;
    return cudaLaunchKernelEx(&how, kernel, args...);
}

#endif
