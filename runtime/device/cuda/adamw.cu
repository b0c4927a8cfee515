/* runtime/device/cuda/adamw.cu - one AdamW update.
 *
 * Bytes per element: grad, master, m and v are read, master, m, v and param written: 28 with 16-bit
 * grad and param and fp32 states, 14 where the states are bf16 and the master weight is what the
 * model reads. Operations per element: about 25, and 25 more where bf16 is rounded: 7 rounds of
 * Philox serve two elements. A thread has 8 elements, in accesses that fill sectors.
 * Multiplications and additions are fused where it is written and nowhere else, so that an
 * element's bits do not depend on which kernel it falls to.
 */
#include <limits.h>

#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/random.h"

#define THREADS 256
#define PACK    8 /* elements of a thread */

/* Elements of one tensor, begin .. end-1, and the first of its own blocks. */
struct adamw_run {
    int64_t begin, end;
    int64_t first; /* index of `begin` in the tensor */
    uint64_t key;
    float weight_decay;
    unsigned first_block;
};

/* At least one, one after another; no block is of those behind. */
struct adamw_runs {
    adamw_run items[YK_STEP_RUNS];
};

/* What all elements of a run share. */
struct adamw_constants {
    float part1, part2, eps, weight_decay;                  /* part = 1 - beta */
    float lr, grad_scale, per_correction1, per_correction2; /* 1 / correction */
    uint64_t key, number;
    int64_t shift;
};

/* ---- random bits --------------------------------------------------------------------------- */

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

/* ---- the update ---------------------------------------------------------------------------- */

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
                                         const adamw_constants &k)
{
    float g = __fmul_rn(grad, k.grad_scale);
    m = __fmaf_rn(k.part1, __fsub_rn(g, m), m);
    v = __fmaf_rn(k.part2, __fmaf_rn(g, g, -v), v);
    float root = __fadd_rn(root_of(__fmul_rn(v, k.per_correction2)), k.eps);
    float step = quotient_of(__fmul_rn(m, k.per_correction1), root);
    w = __fmaf_rn(-k.lr, __fmaf_rn(k.weight_decay, w, step), w);
}

/* W numbers in one access. */
template <typename T, int W> static __device__ inline void load_wide(const T *p, float (&f)[W])
{
    if constexpr (sizeof(T) == 4)
        load_f32<W>((const float *)p, f);
    else
        load_floats<T, W>(p, f);
}

template <typename T, int W> static __device__ inline void store_wide(T *p, const float (&f)[W])
{
    if constexpr (sizeof(T) == 4)
        store_f32<W>((float *)p, f);
    else
        store_floats<T, W>(p, f);
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
                                        const adamw_constants &k)
{
    float w = to_float(a.master[i]), m = to_float(a.m[i]), v = to_float(a.v[i]);
    update_one(w, m, v, to_float(a.grad[i]), k);
    if constexpr (sizeof(M) == 2 || sizeof(S) == 2) {
        uint32_t x[4];
        uint64_t index = (uint64_t)(k.shift + i);
        draw(k.key, k.number, index / 2, x);
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
template <bool M16, bool S16, int W>
static __device__ inline void round_states(float (&w)[W], float (&m)[W], float (&v)[W],
                                           const adamw_constants &k, uint64_t index)
{
#pragma unroll
    for (int j = 0; j < W; j++) {
        uint32_t x[4];
        if (j % 2 == 0) draw(k.key, k.number, (index + j) / 2, x);
        uint32_t first = x[j % 2 * 2], second = x[j % 2 * 2 + 1];
        if (M16) w[j] = __uint_as_float(move(w[j], first >> 16));
        if (S16) m[j] = __uint_as_float(move(m[j], first & 0xffffu));
        if (S16) v[j] = __uint_as_float(move(v[j], second >> 16));
    }
}

template <int W> static __device__ inline void store_state(float *p, const float (&f)[W])
{
    store_f32<W>(p, f);
}

/* Upper halves, in one access. */
template <int W> static __device__ inline void store_state(bf16 *p, const float (&f)[W])
{
    uint32_t u[W / 2];
    pack<bf16, W> upper;
#pragma unroll
    for (int i = 0; i < W / 2; i++)
        u[i] = __byte_perm(__float_as_uint(f[2 * i]), __float_as_uint(f[2 * i + 1]), 0x7632);
    memcpy(&upper, u, sizeof upper);
    store<bf16, W>(p, upper);
}

/* Neighbours that a thread takes at a time: neighbouring threads then take neighbouring 16 bytes of the
 * widest array, since what fills half of a sector in one access costs as much as what fills all of it. */
template <typename P, typename G, typename M, typename S>
constexpr int width = sizeof(P) + sizeof(G) + sizeof(M) + sizeof(S) == 8 ? 8 : 4;

/* Update W elements from i on, and as many a block's stride behind; false, and nothing is done, where there
 * is a NaN to be rounded. */
template <int W, typename P, typename G, typename M, typename S>
static __device__ inline bool update_eight(const adamw_arrays<P, G, M, S> &a, int64_t i,
                                           const adamw_constants &k)
{
    constexpr bool M16 = sizeof(M) == 2, S16 = sizeof(S) == 2;
    constexpr int N = PACK / W, STRIDE = THREADS * W;
    float g[N][W], w[N][W], m[N][W], v[N][W];
    bool odd = false;
#pragma unroll
    for (int q = 0; q < N; q++) {
        load_wide(a.grad + i + q * STRIDE, g[q]);
        load_wide(a.master + i + q * STRIDE, w[q]);
        load_wide(a.m + i + q * STRIDE, m[q]);
        load_wide(a.v + i + q * STRIDE, v[q]);
    }
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        update_one(w[j / W][j % W], m[j / W][j % W], v[j / W][j % W], g[j / W][j % W], k);
        /* A NaN in m, v or w before makes one of w. */
        if (M16 || S16) odd |= w[j / W][j % W] != w[j / W][j % W];
    }
    if (odd) return false;
#pragma unroll
    for (int q = 0; q < N; q++) {
        int64_t at = i + q * STRIDE;
        if constexpr (M16 || S16)
            round_states<M16, S16>(w[q], m[q], v[q], k, (uint64_t)(k.shift + at));
        store_state(a.master + at, w[q]);
        store_state(a.m + at, m[q]);
        store_state(a.v + at, v[q]);
        if (!a.param) continue;
        if (M16) {
#pragma unroll
            for (int j = 0; j < W; j++)
                w[q][j] = __uint_as_float(__float_as_uint(w[q][j]) & 0xffff0000u);
        }
        store_wide(a.param + at, w[q]);
    }
    return true;
}

/* The run that this block is of. Without branches, so that it is the same in all threads to the compiler
 * too, which then keeps what follows from it once a warp. */
static __device__ inline int run_of_block(const adamw_runs &runs)
{
    int r = 0;
#pragma unroll
    for (int step = YK_STEP_RUNS / 2; step > 0; step /= 2)
        r += runs.items[r + step].first_block <= blockIdx.x ? step : 0;
    return r;
}

template <typename P, typename G, typename M, typename S>
static __global__ void __launch_bounds__(THREADS)
    adamw_all(adamw_arrays<P, G, M, S> a, const yk_step_values *values, bool aligned, float part1,
              float part2, float eps, const __grid_constant__ adamw_runs runs)
{
    if (values->skip) return;
    const adamw_run &run = runs.items[run_of_block(runs)];
    adamw_constants k = {part1,
                         part2,
                         eps,
                         run.weight_decay,
                         values->lr,
                         values->grad_scale,
                         1.0f / values->correction1,
                         1.0f / values->correction2,
                         run.key,
                         (uint64_t)values->adam_steps,
                         run.first - run.begin};
    constexpr int W = width<P, G, M, S>;
    int64_t begin = run.begin + (int64_t)(blockIdx.x - run.first_block) * THREADS * PACK;
    int64_t i = begin + threadIdx.x * W;
    if (aligned && begin + THREADS * PACK <= run.end && update_eight<W>(a, i, k)) return;
#pragma unroll 1
    for (int j = 0; j < PACK; j++) {
        int64_t at = i + j / W * (THREADS * W) + j % W;
        if (at < run.end) update_at(a, at, k);
    }
}

static adamw_runs runs_of(const yk_adamw_args *a, unsigned *blocks_out)
{
    static const yk_adamw_run whole = {0, 0, 0, true};
    const yk_adamw_run *from = a->n_runs > 0 ? a->runs : &whole;
    adamw_runs runs = {};
    unsigned blocks = 0;
    int n = a->n_runs > 0 ? a->n_runs : 1;
    for (int i = 0; i < n; i++) {
        int64_t begin = from[i].begin, end = i + 1 < n ? from[i + 1].begin : a->n;
        float decay = from[i].decay ? a->weight_decay : 0.0f;
        runs.items[i] = {begin, end, from[i].first, from[i].key, decay, blocks};
        blocks += (unsigned)div_up(end - begin, THREADS * PACK);
    }
    for (int i = n; i < YK_STEP_RUNS; i++) runs.items[i].first_block = UINT_MAX;
    *blocks_out = blocks;
    return runs;
}

template <typename P, typename G, typename M, typename S>
static cudaError_t launch(const yk_adamw_args *a, cudaStream_t s)
{
    adamw_arrays<P, G, M, S> arrays = {(P *)a->param, (M *)a->master, (S *)a->m, (S *)a->v,
                                       (const G *)a->grad};
    bool aligned = is_aligned(a->param) && is_aligned(a->master) && is_aligned(a->m) &&
                   is_aligned(a->v) && is_aligned(a->grad);
    unsigned blocks;
    adamw_runs runs = runs_of(a, &blocks);
    adamw_all<P, G, M, S><<<blocks, THREADS, 0, s>>>(arrays, a->values, aligned, 1.0f - a->beta1,
                                                     1.0f - a->beta2, a->eps, runs);
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
