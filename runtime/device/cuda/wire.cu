/* runtime/device/cuda/wire.cu - gradients on their way between ranks: the greatest, packing, sums in
 * order of rank.
 *
 * Packing is a sum of one part, the rank's own, that travels on; unpacking a sum of one part that has
 * arrived: so one kernel does all. A thread owns EACH elements in packs of 16 bytes of the wider type, a
 * block's width apart, so that neighbouring threads fill whole sectors of every array; it asks for all
 * that it needs of its own part and of GROUP others before it waits for any. Bytes per element, each
 * moved once: packing fp32 to 16 bits 6, adding N parts of 16 bits to one 2 N + 2. Products and sums are
 * rounded one by one, as on a cpu.
 *
 * Where a result lies in the place of what it is made from, but is narrower or wider, a launch works on
 * a range whose results fall on nothing that is yet to be read: ranges double in length from the
 * front, where results are narrower, or begin in the middle of what is left, where they are wider. The
 * first few elements are one block's, which reads them all before it writes.
 */
#include <type_traits>

#include "runtime/device/cuda/kernels.cuh"

#define THREADS 256
#define EACH    16 /* elements of a thread, where pointers are aligned */
#define GROUP   2  /* parts that are on their way together */

/* Packs of V elements that a thread owns, and what a block does. */
template <int V> struct share {
    static constexpr int packs = V == 1 ? 4 : EACH / V, of_block = THREADS * V * packs;
};

/* ---- the scale ----------------------------------------------------------------------------- */

/* As yk_wire_scale_exponent(); without a branch, so that loads behind it need not wait. */
static __device__ inline int exponent_of(float greatest, int n_ranks)
{
    int bits = __float_as_int(greatest); /* greatest < 2^below */
    int below = bits >= 0x00800000 ? (bits >> 23) - 126 : -117 - __clz(bits);
    int headroom = 32 - __clz(n_ranks - 1), exponent = min(15 - headroom - below, 126);
    return greatest == 0.0f ? 0 : exponent;
}

/* 2^exponent, for -126 <= exponent <= 126. */
static __device__ inline float power_of_two(int exponent)
{
    return __int_as_float((127 + exponent) << 23);
}

/* ---- the greatest -------------------------------------------------------------------------- */

static __device__ inline uint32_t finite_magnitude(float x)
{
    uint32_t bits = __float_as_uint(x) & 0x7fffffffu;
    return bits < 0x7f800000u ? bits : 0;
}

/* Of two pairs of numbers in words, the greater magnitude of each place. */
template <typename PAIR> static __device__ inline uint32_t greater_pair(uint32_t most, uint32_t x)
{
    PAIR a, b;
    memcpy(&a, &most, sizeof a);
    memcpy(&b, &x, sizeof b);
    a = __hmax2(a, __habs2(b));
    memcpy(&most, &a, sizeof a);
    return most;
}

static __device__ inline uint32_t greater_pair(uint32_t most, uint32_t x, bf16)
{
    return greater_pair<__nv_bfloat162>(most, x);
}

static __device__ inline uint32_t greater_pair(uint32_t most, uint32_t x, f16)
{
    return greater_pair<__half2>(most, x);
}

/* The greatest magnitude in p, with infinity but without NaNs. */
template <typename T, int V, int N>
static __device__ inline float greatest_of(const pack<T, V> (&p)[N])
{
    float most = 0;
    if constexpr (sizeof(T) == 2 && V % 2 == 0) {
        uint32_t pair = 0;
#pragma unroll
        for (int u = 0; u < N; u++) {
            uint32_t w[V / 2];
            memcpy(w, &p[u], sizeof w);
#pragma unroll
            for (int k = 0; k < V / 2; k++) pair = greater_pair(pair, w[k], T());
        }
        float e[2];
        pack<T, 2> both;
        both.w = pair;
        unpack<T, 2>(both, e);
        most = fmaxf(e[0], e[1]);
    } else {
#pragma unroll
        for (int u = 0; u < N; u++) {
            float e[V];
            unpack<T, V>(p[u], e);
#pragma unroll
            for (int k = 0; k < V; k++) most = fmaxf(most, fabsf(e[k]));
        }
    }
    return most;
}

/* Numbers that are not negative are ordered as their bits are. Infinities are rare: where one is met,
 * the packs are gone through again. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    find_greatest(uint32_t *greatest, const T *__restrict__ x, int64_t n)
{
    constexpr int N = 4;
    __shared__ uint32_t of_warp[THREADS / 32];
    uint32_t most = 0;
    int64_t i = (int64_t)blockIdx.x * THREADS * V * N + threadIdx.x * V;
    for (; i + (N - 1) * THREADS * V + V <= n; i += (int64_t)gridDim.x * THREADS * V * N) {
        pack<T, V> p[N];
#pragma unroll
        for (int u = 0; u < N; u++) p[u] = load<T, V>(x + i + u * THREADS * V);
        float here = greatest_of<T, V, N>(p);
        if (isfinite(here)) {
            most = max(most, __float_as_uint(here));
            continue;
        }
        for (int u = 0; u < N; u++)
            for (int k = 0; k < V; k++)
                most = max(most, finite_magnitude(to_float(x[i + u * THREADS * V + k])));
    }
    for (int u = 0; u < N; u++, i += THREADS * V)
        for (int k = 0; k < V && i + k < n; k++)
            most = max(most, finite_magnitude(to_float(x[i + k])));
    most = __reduce_max_sync(0xffffffffu, most);
    if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = most;
    __syncthreads();
    if (threadIdx.x >= THREADS / 32) return;
    most = __reduce_max_sync((1u << (THREADS / 32)) - 1, of_warp[threadIdx.x]);
    if (threadIdx.x == 0 && most > 0) atomicMax(greatest, most);
}

cudaError_t yk_cuda_greatest(const yk_greatest_args *a, cudaStream_t s)
{
    cudaError_t e = cudaMemsetAsync(a->greatest, 0, sizeof *a->greatest, s);
    if (e != cudaSuccess || a->n == 0) return e;
    return with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        const T *x = (const T *)a->x;
        uint32_t *greatest = (uint32_t *)a->greatest;
        unsigned blocks = (unsigned)at_most(div_up(a->n, 4 * THREADS * full_pack<T>()), 1056);
        if (is_aligned(x))
            find_greatest<T, full_pack<T>()><<<blocks, THREADS, 0, s>>>(greatest, x, a->n);
        else
            find_greatest<T, 1><<<blocks, THREADS, 0, s>>>(greatest, x, a->n);
        return cudaGetLastError();
    });
}

/* ---- packs that may end early -------------------------------------------------------------- */

/* The first n of V, then zeros; ALL: n is no less than V. */
template <typename T, int V, bool ALL>
static __device__ inline pack<T, V> load_first(const T *p, int64_t n)
{
    if constexpr (!ALL) {
        float e[V];
        if (n < V) {
#pragma unroll
            for (int k = 0; k < V; k++) e[k] = k < n ? to_float(p[k]) : 0.0f;
            return to_pack<T, V>(e);
        }
    }
    return load<T, V>(p);
}

template <typename T, int V, bool ALL>
static __device__ inline void store_first(T *p, int64_t n, pack<T, V> v)
{
    if constexpr (!ALL) {
        T e[V];
        memcpy(e, &v, sizeof e);
        if (n < V) {
#pragma unroll
            for (int k = 0; k < V; k++)
                if (k < n) p[k] = e[k];
            return;
        }
    }
    store<T, V>(p, v);
}

/* ---- sums ---------------------------------------------------------------------------------- */

/* Elements begin .. end-1 of a sum. */
struct sum_range {
    yk_sum_parts_args a;
    int64_t begin, end;
    bool together; /* one block, which reads everything before it writes */
};

/* Rounded as the wire stores it; what is finite stays so. */
template <typename W, int V> static __device__ inline pack<W, V> to_wire(const float (&f)[V])
{
    pack<W, V> p = to_pack<W, V>(f);
    if constexpr (is_bf16<W>::value) {
        float most = 0;
#pragma unroll
        for (int k = 0; k < V; k++) most = fmaxf(most, fabsf(f[k]));
        if (most < 0x1.ffp127f) return p; /* rounds to a finite number */
        float g[V];
#pragma unroll
        for (int k = 0; k < V; k++)
            g[k] = isfinite(f[k]) ? fminf(fmaxf(f[k], -0x1.fep127f), 0x1.fep127f) : f[k];
        p = to_pack<W, V>(g);
    }
    return p;
}

/* Half of the wire's least number: rounds to zero, a tie being even. */
template <typename W> static __device__ inline float gone()
{
    if constexpr (std::is_same<W, f16>::value) return 0x1p-25f;
    if constexpr (std::is_same<W, bf16>::value) return 0x1p-134f;
    return 0.0f;
}

/* The own part as it travels. */
template <typename W, typename T, int V>
static __device__ inline void pack_own(pack<T, V> own, float scale, float (&f)[V])
{
    unpack<T, V>(own, f);
#pragma unroll
    for (int k = 0; k < V; k++) f[k] = __fmul_rn(f[k], scale);
    unpack<W, V>(to_wire<W, V>(f), f);
}

/* How many of the own part become zero. */
template <typename W, typename T, int V>
static __device__ inline unsigned count_flushed(pack<T, V> own, float scale)
{
    unsigned flushed = 0;
    float f[V];
    unpack<T, V>(own, f);
#pragma unroll
    for (int k = 0; k < V; k++)
        flushed += f[k] != 0.0f && fabsf(__fmul_rn(f[k], scale)) <= gone<W>();
    return flushed;
}

template <int V> static __device__ inline void add_to(float (&sum)[V], const float (&f)[V])
{
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] = __fadd_rn(sum[k], f[k]);
}

/* A thread's sums before they are rounded, from its element i on, n before the end. Returns how many of
 * the own part become zero. */
template <typename W, typename T, int V, int U, bool ALL>
static __device__ inline unsigned form_sum(const yk_sum_parts_args &a, int64_t i, int64_t n,
                                           float scale, float (&sum)[U][V])
{
    constexpr int STEP = THREADS * V;
    /* An own part that travels as it is, is a part like others; only fp16 has a scale. */
    bool as_it_is =
        std::is_same<W, T>::value && (!std::is_same<W, f16>::value || !a.scale.greatest);
    int own_part = a.own ? a.own_part : -1, packs = as_it_is ? -1 : own_part;
    unsigned flushed = 0;
    pack<T, V> own[U] = {};
    if (packs >= 0)
#pragma unroll
        for (int u = 0; u < U; u++)
            own[u] = load_first<T, V, ALL>((const T *)a.own + i + u * STEP, n - u * STEP);
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int k = 0; k < V; k++) sum[u][k] = -0.0f; /* changes nothing that is added to it */
    for (int first = 0; first < a.n_parts; first += GROUP) {
        pack<W, V> part[GROUP][U] = {};
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            int p = first + g;
            if (p >= a.n_parts || p == packs) continue;
            const char *lies = (const char *)a.parts + p * a.stride;
            const W *from = (const W *)(p == own_part ? (const char *)a.own : lies) + i;
#pragma unroll
            for (int u = 0; u < U; u++)
                part[g][u] = load_first<W, V, ALL>(from + u * STEP, n - u * STEP);
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            if (first + g >= a.n_parts) break;
#pragma unroll
            for (int u = 0; u < U; u++) {
                float f[V];
                if (first + g == packs)
                    pack_own<W, T, V>(own[u], scale, f);
                else
                    unpack<W, V>(part[g][u], f);
                add_to<V>(sum[u], f);
            }
        }
    }
    if (packs >= 0 && a.n_flushed)
#pragma unroll
        for (int u = 0; u < U; u++) flushed += count_flushed<W, T, V>(own[u], scale);
    return flushed;
}

template <typename W, typename T, int V, bool ALL>
static __device__ inline void store_sum(const yk_sum_parts_args &a, int64_t i, int64_t n,
                                        float unscale, const float (&sum)[V])
{
    pack<W, V> wire = to_wire<W, V>(sum);
    if (a.travels) {
        store_first<W, V, ALL>((W *)a.sum + i, n, wire);
        return;
    }
    T *to = (T *)a.sum + i;
    float f[V];
    unpack<W, V>(wire, f);
#pragma unroll
    for (int k = 0; k < V; k++) f[k] = __fmul_rn(f[k], unscale);
    if (a.accumulate) {
        float before[V];
        unpack<T, V>(load_first<T, V, ALL>(to, n), before);
#pragma unroll
        for (int k = 0; k < V; k++) f[k] = __fadd_rn(before[k], f[k]);
    }
    store_first<T, V, ALL>(to, n, to_pack<T, V>(f));
}

template <typename W, typename T, int V, bool ALL>
static __device__ inline void sum_block(const sum_range &r, int64_t i, float greatest)
{
    constexpr int U = share<V>::packs, STEP = THREADS * V;
    const yk_sum_parts_args &a = r.a;
    int exponent = exponent_of(greatest, a.scale.n_ranks);
    float sum[U][V];
    unsigned flushed = form_sum<W, T, V, U, ALL>(a, i, r.end - i, power_of_two(exponent), sum);
    if (r.together) __syncthreads();
#pragma unroll
    for (int u = 0; u < U; u++)
        store_sum<W, T, V, ALL>(a, i + u * STEP, r.end - i - u * STEP, power_of_two(-exponent),
                                sum[u]);
    if (!a.n_flushed) return;
    flushed = __reduce_add_sync(0xffffffffu, flushed);
    if ((threadIdx.x & 31) == 0 && flushed > 0)
        atomicAdd((unsigned long long *)a.n_flushed, (unsigned long long)flushed);
}

template <typename W, typename T, int V>
static __global__ void __launch_bounds__(THREADS) sum_parts(const __grid_constant__ sum_range r)
{
    int64_t first = r.begin + (int64_t)blockIdx.x * share<V>::of_block;
    float greatest = r.a.scale.greatest ? *r.a.scale.greatest : 0.0f;
    if (first + share<V>::of_block <= r.end)
        sum_block<W, T, V, true>(r, first + threadIdx.x * V, greatest);
    else
        sum_block<W, T, V, false>(r, first + threadIdx.x * V, greatest);
}

/* ---- ranges -------------------------------------------------------------------------------- */

template <typename W, typename T, int V>
static cudaError_t launch(const yk_sum_parts_args *a, int64_t begin, int64_t end, bool together,
                          cudaStream_t s)
{
    if (begin == end) return cudaSuccess;
    sum_range r = {*a, begin, end, together};
    sum_parts<W, T, V><<<(unsigned)div_up(end - begin, share<V>::of_block), THREADS, 0, s>>>(r);
    return cudaGetLastError();
}

/* Results narrower than the own part, which begins `ahead` bytes behind them. */
template <typename W, typename T, int V>
static cudaError_t sum_from_front(const yk_sum_parts_args *a, int64_t ahead, cudaStream_t s)
{
    cudaError_t e = cudaSuccess;
    for (int64_t begin = 0, end; e == cudaSuccess && begin < a->n; begin = end) {
        int64_t apart = (ahead + begin * (int64_t)sizeof(T)) / (int64_t)sizeof(W) / V * V;
        bool together = apart < begin + share<V>::of_block;
        end = at_most(together ? begin + share<V>::of_block : apart, a->n);
        e = launch<W, T, V>(a, begin, end, together, s);
    }
    return e;
}

/* Results wider than the one part, which begins where they do. */
template <typename W, typename T, int V>
static cudaError_t sum_from_end(const yk_sum_parts_args *a, cudaStream_t s)
{
    cudaError_t e = cudaSuccess;
    for (int64_t end = a->n, begin; e == cudaSuccess && end > 0; end = begin) {
        int64_t apart = div_up(end * (int64_t)sizeof(W), (int64_t)sizeof(T) * V) * V;
        bool together = end <= share<V>::of_block;
        begin = together ? 0 : apart;
        e = launch<W, T, V>(a, begin, end, together, s);
    }
    return e;
}

template <typename W, typename T, int V>
static cudaError_t sum_all(const yk_sum_parts_args *a, cudaStream_t s)
{
    if constexpr (sizeof(W) < sizeof(T)) {
        int64_t ahead = (const char *)a->own - (const char *)a->sum;
        if (a->travels && a->own && ahead >= 0 && ahead < a->n * (int64_t)sizeof(W))
            return sum_from_front<W, T, V>(a, ahead, s);
        if (!a->travels && a->n_parts == 1 && a->parts == a->sum)
            return sum_from_end<W, T, V>(a, s);
    }
    return launch<W, T, V>(a, 0, a->n, false, s);
}

template <typename W, typename T>
static cudaError_t sum_of(const yk_sum_parts_args *a, cudaStream_t s)
{
    bool wide = is_aligned(a->sum) && is_aligned(a->parts) && is_aligned(a->own);
    if (wide && (a->n_parts == 1 || a->stride % 16 == 0))
        return sum_all<W, T, full_pack<T>()>(a, s);
    return sum_all<W, T, 1>(a, s);
}

cudaError_t yk_cuda_wire_sum(const yk_sum_parts_args *a, cudaStream_t s)
{
    return with_type(a->dtype, [&](auto dtype_zero) {
        return with_type(a->wire, [&](auto wire_zero) {
            using T = decltype(dtype_zero);
            using W = decltype(wire_zero);
            if constexpr (sizeof(W) <= sizeof(T)) return sum_of<W, T>(a, s);
            return cudaErrorInvalidValue;
        });
    });
}

cudaError_t yk_cuda_wire_pack(const yk_pack_args *a, cudaStream_t s)
{
    yk_sum_parts_args sum = {};
    sum.sum = a->packed;
    sum.own = a->x;
    sum.n_parts = 1;
    sum.scale = a->scale;
    sum.n_flushed = a->n_flushed;
    sum.n = a->n;
    sum.travels = true;
    sum.dtype = a->dtype;
    sum.wire = a->wire;
    return yk_cuda_wire_sum(&sum, s);
}

/* ---- the values of a step ------------------------------------------------------------------ */

static __global__ void sum_values(yk_step_values *v, const yk_step_values *all, int64_t n)
{
    double loss_sum = 0, sum_squares = 0;
    int64_t n_tokens = 0;
    int32_t non_finite = 0;
    for (int64_t i = 0; i < n; i++) {
        loss_sum += all[i].loss_sum;
        sum_squares += all[i].sum_squares;
        n_tokens += all[i].n_tokens;
        non_finite |= all[i].non_finite;
    }
    v->loss_sum = loss_sum;
    v->sum_squares = sum_squares;
    v->n_tokens = n_tokens;
    v->non_finite = non_finite;
}

cudaError_t yk_cuda_sum_values(const yk_sum_values_args *a, cudaStream_t s)
{
    sum_values<<<1, 1, 0, s>>>(a->values, a->all, a->n);
    return cudaGetLastError();
}
