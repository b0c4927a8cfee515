/* runtime/device/cuda/adamw.cu - one AdamW update.
 *
 * Bytes per element: grad, master, m and v are read, master, m, v and param
 * written: 28 with 16-bit grad and param and fp32 states, 14 where the states
 * are bf16 and the master weight is what the model reads. Operations per
 * element: about 25, and 25 more where bf16 is rounded: 7 rounds of Philox
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

/* The bits of x moved so that the upper half is the neighbour in bf16 that sixteen bits choose. Not
 * for a NaN, whose bits would run over. */
static __device__ inline uint32_t move(float x, uint32_t bits)
{
    return __float_as_uint(x) + bits;
}

/* ---- the update
 * ----------------------------------------------------------------------------
 */

/* sqrt(x) and x / y to a little more than half a unit, from the hardware's first guess and one step
 * of Newton's. The library's exact ones branch for numbers that do not come up here: a root below
 * 2^-63 is taken for 0, and 2^-126 < y < 2^126. */
static __device__ inline float root_of(float x)
{
    float guess;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(x));
    float root = __fmul_rn(x, guess);
    root = __fmaf_rn(__fmaf_rn(-root, root, x), __fmul_rn(0.5f, guess), root);
    return x < 1.17549435e-38f ? 0.0f : root;
}

static __device__ inline float quotient_of(float x, float y)
{
    float guess;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(y));
    float quotient = __fmul_rn(x, guess);
    return __fmaf_rn(__fmaf_rn(-y, quotient, x), guess, quotient);
}

/* master, m and v of one element, and the gradient as it is stored. */
static __device__ inline void update_one(float &w, float &m, float &v, float grad,
                                         const adamw_constants &k, const adamw_step &s)
{
    float g = __fmul_rn(grad, s.grad_scale);
    m = __fmaf_rn(k.part1, __fsub_rn(g, m), m);
    v = __fmaf_rn(k.part2, __fmaf_rn(g, g, -v), v);
    float root = __fadd_rn(root_of(__fmul_rn(v, s.per_correction2)), k.eps);
    float step = quotient_of(__fmul_rn(m, s.per_correction1), root);
    w = __fmaf_rn(-s.lr, __fmaf_rn(k.weight_decay, w, step), w);
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

/* One element at i: for ends, for arrays that are not aligned, and where there is a NaN. */
template <typename P, typename G, typename M, typename S>
static __device__ inline void update_at(const adamw_arrays<P, G, M, S> &a, int64_t i,
                                        const adamw_constants &k, const adamw_step &s)
{
    float w = to_float(a.master[i]), m = to_float(a.m[i]), v = to_float(a.v[i]);
    update_one(w, m, v, to_float(a.grad[i]), k, s);
    if constexpr (sizeof(M) == 2 || sizeof(S) == 2) {
        uint32_t x[4];
        uint64_t index = (uint64_t)(k.first + i);
        draw(k.key, s.number, index / 2, x);
        uint32_t first = index & 1 ? x[2] : x[0], second = index & 1 ? x[3] : x[1];
        if (sizeof(M) == 2 && w == w) w = __uint_as_float(move(w, first >> 16) & 0xffff0000u);
        if (sizeof(S) == 2 && m == m) m = __uint_as_float(move(m, first & 0xffffu) & 0xffff0000u);
        if (sizeof(S) == 2 && v == v) v = __uint_as_float(move(v, second >> 16) & 0xffff0000u);
    }
    a.master[i] = from_float<M>(w);
    a.m[i] = from_float<S>(m);
    a.v[i] = from_float<S>(v);
    if (a.param) a.param[i] = from_float<P>(w);
}

/* Where M is bf16, w becomes what is kept of it; likewise m and v where S is. */
template <bool M16, bool S16>
static __device__ inline void round_states(float (&w)[PACK], float (&m)[PACK], float (&v)[PACK],
                                           const adamw_constants &k, const adamw_step &s,
                                           uint64_t index)
{
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        uint32_t x[4];
        if (j % 2 == 0) draw(k.key, s.number, (index + j) / 2, x);
        uint32_t first = x[j % 2 * 2], second = x[j % 2 * 2 + 1];
        if (M16) w[j] = __uint_as_float(move(w[j], first >> 16));
        if (S16) m[j] = __uint_as_float(move(m[j], first & 0xffffu));
        if (S16) v[j] = __uint_as_float(move(v[j], second >> 16));
    }
}

/* Upper halves, in one access. */
static __device__ inline void store_upper(bf16 *p, const float (&f)[PACK])
{
    uint32_t u[PACK / 2];
#pragma unroll
    for (int i = 0; i < PACK / 2; i++)
        u[i] = __byte_perm(__float_as_uint(f[2 * i]), __float_as_uint(f[2 * i + 1]), 0x7632);
    *reinterpret_cast<uint4 *>(p) = make_uint4(u[0], u[1], u[2], u[3]);
}

static __device__ inline void store_state(float *p, const float (&f)[PACK])
{
    store_f32<PACK>(p, f);
}
static __device__ inline void store_state(bf16 *p, const float (&f)[PACK])
{
    store_upper(p, f);
}

/* False, and nothing is done, where there is a NaN to be rounded. */
template <typename P, typename G, typename M, typename S>
static __device__ inline bool update_eight(const adamw_arrays<P, G, M, S> &a, int64_t i,
                                           const adamw_constants &k, const adamw_step &s)
{
    constexpr bool M16 = sizeof(M) == 2, S16 = sizeof(S) == 2;
    float g[PACK], w[PACK], m[PACK], v[PACK];
    bool odd = false;
    load_eight(a.grad + i, g);
    load_eight(a.master + i, w);
    load_eight(a.m + i, m);
    load_eight(a.v + i, v);
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        update_one(w[j], m[j], v[j], g[j], k, s);
        /* A NaN in m, v or w before makes one of w. */
        if (M16 || S16) odd |= w[j] != w[j];
    }
    if (odd) return false;
    if constexpr (M16 || S16) round_states<M16, S16>(w, m, v, k, s, (uint64_t)(k.first + i));
    store_state(a.master + i, w);
    store_state(a.m + i, m);
    store_state(a.v + i, v);
    if (!a.param) return true;
    if (M16) {
#pragma unroll
        for (int j = 0; j < PACK; j++) w[j] = __uint_as_float(__float_as_uint(w[j]) & 0xffff0000u);
    }
    store_eight(a.param + i, w);
    return true;
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
    if (aligned && i + PACK <= n && update_eight(a, i, k, s)) return;
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
