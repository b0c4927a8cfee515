/* runtime/device/cuda/adamw.cu - one AdamW update.
 *
 * Bytes per element: grad, master, m and v are read, master, m, v and param
 * written: 28 with 16-bit grad and param and fp32 states, 14 where the states
 * are bf16 and the master weight is what the model reads. Operations per
 * element: about 30, and 30 more where bf16 is rounded: 7 rounds of Philox
 * serve two elements. A thread has 8 neighbours, in accesses of 16 bytes.
 * Multiplications and additions are fused where it is written and nowhere
 * else, so that an element's bits do not depend on which kernel it falls to.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/random.h"

#define THREADS 256
#define PACK    8 /* elements of a thread */

struct adamw_constants {
    float part1, part2, eps, weight_decay; /* part = 1 - beta */
    uint64_t key;
    int64_t first;
};

/* What all elements share of yk_step_values. */
struct adamw_step {
    float lr, grad_scale, per_correction1, per_correction2; /* 1 / correction */
    uint64_t number;
};

/* ---- random bits
 * ---------------------------------------------------------------------------
 */

/* The two words of an even element and of the odd one behind it. */
static __device__ inline void draw(uint64_t key, uint64_t step, uint64_t pair, uint32_t (&x)[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    x[0] = (uint32_t)pair, x[1] = (uint32_t)(pair >> 32);
    x[2] = (uint32_t)step, x[3] = (uint32_t)(step >> 32);
#pragma unroll
    for (int round = 0; round < YK_PHILOX_ROUNDS; round++) {
        uint64_t a = (uint64_t)YK_PHILOX_MULTIPLIER0 * x[0];
        uint64_t b = (uint64_t)YK_PHILOX_MULTIPLIER1 * x[2];
        x[0] = (uint32_t)(b >> 32) ^ x[1] ^ k0;
        x[2] = (uint32_t)(a >> 32) ^ x[3] ^ k1;
        x[1] = (uint32_t)b;
        x[3] = (uint32_t)a;
        k0 += YK_PHILOX_STEP0;
        k1 += YK_PHILOX_STEP1;
    }
}

/* The neighbour in bf16 that sixteen bits choose, as a float. */
static __device__ inline float choose(float x, uint32_t bits)
{
    uint32_t u = __float_as_uint(x);
    if (x != x) return __uint_as_float((u & 0xffff0000u) | 0x400000u);
    return __uint_as_float((u + bits) & 0xffff0000u);
}

/* ---- the update
 * ----------------------------------------------------------------------------
 */

/* master, m and v of one element, and the gradient as it is stored. */
static __device__ inline void update_one(float &w, float &m, float &v, float grad,
                                         const adamw_constants &k, const adamw_step &s)
{
    float g = __fmul_rn(grad, s.grad_scale);
    m = __fmaf_rn(k.part1, __fsub_rn(g, m), m);
    v = __fmaf_rn(k.part2, __fmaf_rn(g, g, -v), v);
    float root = __fadd_rn(__fsqrt_rn(__fmul_rn(v, s.per_correction2)), k.eps);
    float step = __fdiv_rn(__fmul_rn(m, s.per_correction1), root);
    w = __fmaf_rn(-s.lr, __fmaf_rn(k.weight_decay, w, step), w);
}

/* Round what is kept in bf16: N elements from `index` of the tensor, N even or 1. */
template <bool M16, bool S16, int N>
static __device__ inline void round_states(float (&w)[N], float (&m)[N], float (&v)[N],
                                           const adamw_constants &k, const adamw_step &s,
                                           uint64_t index)
{
#pragma unroll
    for (int j = 0; j < N; j += 2) {
        uint32_t x[4];
        draw(k.key, s.number, (index + j) / 2, x);
#pragma unroll
        for (int i = 0; i < 2 && i < N; i++) {
            bool odd = N == 1 ? index & 1 : i;
            uint32_t a = odd ? x[2] : x[0], b = odd ? x[3] : x[1];
            if (M16) w[j + i] = choose(w[j + i], a >> 16);
            if (S16) m[j + i] = choose(m[j + i], a & 0xffffu);
            if (S16) v[j + i] = choose(v[j + i], b >> 16);
        }
    }
}

/* PACK numbers in accesses of 16 bytes. */
template <typename T> static __device__ inline void load_eight(const T *p, float (&f)[PACK])
{
    if constexpr (sizeof(T) == 4)
        load_f32<PACK>((const float *)p, f);
    else
        load_floats<T, PACK>(p, f);
}

template <typename T> static __device__ inline void store_eight(T *p, const float (&f)[PACK])
{
    if constexpr (sizeof(T) == 4)
        store_f32<PACK>((float *)p, f);
    else
        store_floats<T, PACK>(p, f);
}

template <typename P, typename G, typename M, typename S> struct adamw_arrays {
    P *param;
    M *master;
    S *m, *v;
    const G *grad;
};

/* One element at i: for ends, and for arrays that are not aligned. */
template <typename P, typename G, typename M, typename S>
static __device__ inline void update_at(const adamw_arrays<P, G, M, S> &a, int64_t i,
                                        const adamw_constants &k, const adamw_step &s)
{
    float w[1] = {to_float(a.master[i])}, m[1] = {to_float(a.m[i])}, v[1] = {to_float(a.v[i])};
    update_one(w[0], m[0], v[0], to_float(a.grad[i]), k, s);
    if constexpr (sizeof(M) == 2 || sizeof(S) == 2)
        round_states<sizeof(M) == 2, sizeof(S) == 2, 1>(w, m, v, k, s, (uint64_t)(k.first + i));
    a.master[i] = from_float<M>(w[0]);
    a.m[i] = from_float<S>(m[0]);
    a.v[i] = from_float<S>(v[0]);
    if (a.param) a.param[i] = from_float<P>(w[0]);
}

template <typename P, typename G, typename M, typename S>
static __device__ inline void update_eight(const adamw_arrays<P, G, M, S> &a, int64_t i,
                                           const adamw_constants &k, const adamw_step &s)
{
    float g[PACK], w[PACK], m[PACK], v[PACK];
    load_eight(a.grad + i, g);
    load_eight(a.master + i, w);
    load_eight(a.m + i, m);
    load_eight(a.v + i, v);
#pragma unroll
    for (int j = 0; j < PACK; j++) update_one(w[j], m[j], v[j], g[j], k, s);
    if constexpr (sizeof(M) == 2 || sizeof(S) == 2)
        round_states<sizeof(M) == 2, sizeof(S) == 2, PACK>(w, m, v, k, s, (uint64_t)(k.first + i));
    store_eight(a.master + i, w);
    store_eight(a.m + i, m);
    store_eight(a.v + i, v);
    if (a.param) store_eight(a.param + i, w);
}

template <typename P, typename G, typename M, typename S>
static __global__ void __launch_bounds__(THREADS)
    adamw_all(adamw_arrays<P, G, M, S> a, const yk_step_values *values, int64_t n, bool aligned,
              adamw_constants k)
{
    if (values->skip) return;
    adamw_step s = {values->lr, values->grad_scale, 1.0f / values->correction1,
                    1.0f / values->correction2, (uint64_t)values->adam_steps};
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * PACK;
    int64_t end = i + PACK < n ? i + PACK : n;
    if (aligned && i + PACK <= n)
        update_eight(a, i, k, s);
    else
        for (; i < end; i++) update_at(a, i, k, s);
}

template <typename P, typename G, typename M, typename S>
static cudaError_t launch(const yk_adamw_args *a, cudaStream_t s)
{
    adamw_constants k = {1.0f - a->beta1, 1.0f - a->beta2, a->eps,
                         a->weight_decay, a->key,          a->first};
    adamw_arrays<P, G, M, S> arrays = {(P *)a->param, (M *)a->master, (S *)a->m, (S *)a->v,
                                       (const G *)a->grad};
    bool aligned = is_aligned(a->param) && is_aligned(a->master) && is_aligned(a->m) &&
                   is_aligned(a->v) && is_aligned(a->grad);
    adamw_all<P, G, M, S><<<(unsigned)div_up(a->n, THREADS * PACK), THREADS, 0, s>>>(
        arrays, a->values, a->n, aligned, k);
    return cudaGetLastError();
}

template <typename P, typename G>
static cudaError_t with_states(const yk_adamw_args *a, cudaStream_t s)
{
    bool moments16 = a->moments_dtype == YK_BF16;
    if (a->master_dtype == YK_BF16)
        return moments16 ? launch<P, G, bf16, bf16>(a, s) : launch<P, G, bf16, float>(a, s);
    return moments16 ? launch<P, G, float, bf16>(a, s) : launch<P, G, float, float>(a, s);
}

cudaError_t yk_cuda_adamw(const yk_adamw_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto param_zero) {
        return with_type(a->grad_dtype, [&](auto grad_zero) {
            return with_states<decltype(param_zero), decltype(grad_zero)>(a, s);
        });
    });
}
