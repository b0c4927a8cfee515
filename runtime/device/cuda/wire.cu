/* runtime/device/cuda/wire.cu - gradients on their way between ranks: the greatest, packing, sums in
 * order of rank.
 *
 * Packing is a sum of one part, the rank's own, that travels on; unpacking a sum of one part that has
 * arrived: so one kernel does all. A thread owns eight neighbouring elements of a 16-bit wire, four
 * of fp32: 16 bytes of each part. Bytes per element, each moved once: packing fp32 to 16 bits 6, adding
 * N parts of 16 bits to one 2 N + 2. Products and sums are rounded one by one, as on a cpu.
 *
 * Where a result lies in the place of what it is made from, but is narrower or wider, a launch works on
 * a range whose results fall on nothing that is yet to be read: ranges double in length from the
 * front, where results are narrower, or begin in the middle of what is left, where they are wider. The
 * first few elements are one block's, which reads them all before it writes.
 */
#include <type_traits>

#include "runtime/device/cuda/kernels.cuh"

#define THREADS 256

/* ---- the scale
 * ----------------------------------------------------------------------------
 */

/* As yk_wire_scale_exponent(). */
static __device__ int exponent_of(yk_wire_scale scale)
{
    float greatest = scale.greatest ? *scale.greatest : 0.0f;
    if (greatest == 0.0f) return 0;
    int bits = __float_as_int(greatest), below; /* greatest < 2^below */
    below = bits >= 0x00800000 ? (bits >> 23) - 126 : -117 - __clz(bits);
    int headroom = 32 - __clz(scale.n_ranks - 1);
    return min(15 - headroom - below, 126);
}

/* 2^exponent, for -126 <= exponent <= 126. */
static __device__ inline float power_of_two(int exponent)
{
    return __int_as_float((127 + exponent) << 23);
}

static __device__ inline uint32_t finite_magnitude(float x)
{
    uint32_t bits = __float_as_uint(x) & 0x7fffffffu;
    return bits < 0x7f800000u ? bits : 0;
}

/* Numbers that are not negative are ordered as their bits are. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    find_greatest(uint32_t *greatest, const T *__restrict__ x, int64_t n)
{
    uint32_t most = 0;
    int64_t step = (int64_t)gridDim.x * THREADS * V;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
#pragma unroll 4
    for (; i + V <= n; i += step) {
        float e[V];
        load_floats<T, V>(x + i, e);
#pragma unroll
        for (int k = 0; k < V; k++) most = max(most, finite_magnitude(e[k]));
    }
    for (; i < n; i++) most = max(most, finite_magnitude(to_float(x[i])));
    most = __reduce_max_sync(0xffffffffu, most);
    if ((threadIdx.x & 31) == 0 && most > 0) atomicMax(greatest, most);
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

/* ---- loads and stores that may end early
 * ---------------------------------------------------
 */

template <typename T, int V> static __device__ inline void load_row(const T *p, float (&f)[V])
{
    if constexpr (sizeof(T) * V <= 16)
        load_floats<T, V>(p, f);
    else
        load_f32<V>(p, f);
}

/* The first n of V, then zeros; ALL: n is no less than V. */
template <typename T, int V, bool ALL>
static __device__ inline void load_first(const T *p, int64_t n, float (&f)[V])
{
    if constexpr (ALL) {
        load_row<T, V>(p, f);
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) f[k] = k < n ? to_float(p[k]) : 0.0f;
    }
}

template <typename T, int V>
static __device__ inline void store_first(T *p, int64_t n, const float (&f)[V])
{
    if (n >= V) {
        if constexpr (sizeof(T) * V <= 16)
            store_floats<T, V>(p, f);
        else
            store_f32<V>(p, f);
        return;
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        if (k < n) p[k] = from_float<T>(f[k]);
}

/* ---- sums
 * ---------------------------------------------------------------------------------
 */

/* Elements begin .. end-1 of a sum. */
struct sum_range {
    yk_sum_parts_args a;
    int64_t begin, end;
    bool together; /* one block, which reads everything before it writes */
};

/* v as the wire stores it; what is finite stays so. */
template <typename W> static __device__ inline float round_to_wire(float v)
{
    if constexpr (std::is_same<W, bf16>::value) {
        uint32_t bits = __float_as_uint(v), size = bits & 0x7fffffffu;
        if (size >= 0x7f7f8000u && size < 0x7f800000u)
            return __uint_as_float((bits & 0x80000000u) | 0x7f7f0000u);
    }
    return to_float(from_float<W>(v));
}

/* Half of the wire's least number: rounds to zero, a tie being even. */
template <typename W> static __device__ inline float gone()
{
    if constexpr (std::is_same<W, f16>::value) return 0x1p-25f;
    if constexpr (std::is_same<W, bf16>::value) return 0x1p-134f;
    return 0.0f;
}

/* The own part as it would travel. Returns how many of it become zero. */
template <typename W, typename T, int V, bool ALL>
static __device__ inline unsigned load_own(const T *own, int64_t n, float scale, float (&f)[V])
{
    unsigned flushed = 0;
    load_first<T, V, ALL>(own, n, f);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float scaled = __fmul_rn(f[k], scale);
        flushed += f[k] != 0.0f && fabsf(scaled) <= gone<W>();
        f[k] = round_to_wire<W>(scaled);
    }
    return flushed;
}

template <int V>
static __device__ inline void add_to(float (&sum)[V], const float (&f)[V], bool first)
{
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] = first ? f[k] : __fadd_rn(sum[k], f[k]);
}

template <typename W, int V, bool ALL>
static __device__ inline void add_arrived(const yk_sum_parts_args &a, int from, int to, int64_t i,
                                          int64_t n, float (&sum)[V])
{
#pragma unroll 4
    for (int p = from; p < to; p++) {
        float f[V];
        const W *part = (const W *)((const char *)a.parts + p * a.stride);
        load_first<W, V, ALL>(part + i, n, f);
        add_to<V>(sum, f, p == 0);
    }
}

/* Returns how many of the own part become zero. */
template <typename W, typename T, int V, bool ALL>
static __device__ inline unsigned form_sum(const yk_sum_parts_args &a, int64_t i, int64_t n,
                                           float scale, float (&sum)[V])
{
    int own = a.own ? a.own_part : a.n_parts;
    unsigned flushed = 0;
    add_arrived<W, V, ALL>(a, 0, own, i, n, sum);
    if (a.own) {
        float f[V];
        flushed = load_own<W, T, V, ALL>((const T *)a.own + i, n, scale, f);
        add_to<V>(sum, f, own == 0);
        add_arrived<W, V, ALL>(a, own + 1, a.n_parts, i, n, sum);
    }
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] = round_to_wire<W>(sum[k]);
    return flushed;
}

template <typename W, typename T, int V>
static __device__ inline void store_sum(const yk_sum_parts_args &a, int64_t i, int64_t n,
                                        float unscale, float (&sum)[V])
{
    if (a.travels) {
        store_first<W, V>((W *)a.sum + i, n, sum);
        return;
    }
    T *to = (T *)a.sum + i;
    float before[V];
    if (a.accumulate && n >= V) load_first<T, V, true>(to, n, before);
    if (a.accumulate && n < V) load_first<T, V, false>(to, n, before);
#pragma unroll
    for (int k = 0; k < V; k++) {
        sum[k] = __fmul_rn(sum[k], unscale);
        if (a.accumulate) sum[k] = __fadd_rn(before[k], sum[k]);
    }
    store_first<T, V>(to, n, sum);
}

template <typename W, typename T, int V>
static __global__ void __launch_bounds__(THREADS) sum_parts(sum_range r)
{
    const yk_sum_parts_args &a = r.a;
    int64_t i = r.begin + ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V, n = r.end - i;
    int exponent = exponent_of(a.scale);
    float sum[V], scale = power_of_two(exponent);
    unsigned flushed = n >= V ? form_sum<W, T, V, true>(a, i, n, scale, sum)
                              : form_sum<W, T, V, false>(a, i, n, scale, sum);
    if (r.together) __syncthreads();
    store_sum<W, T, V>(a, i, n, power_of_two(-exponent), sum);
    if (!a.n_flushed) return;
    flushed = __reduce_add_sync(0xffffffffu, flushed);
    if ((threadIdx.x & 31) == 0 && flushed > 0)
        atomicAdd((unsigned long long *)a.n_flushed, (unsigned long long)flushed);
}

/* ---- ranges
 * -------------------------------------------------------------------------------
 */

template <typename W, typename T, int V>
static cudaError_t launch(const yk_sum_parts_args *a, int64_t begin, int64_t end, bool together,
                          cudaStream_t s)
{
    if (begin == end) return cudaSuccess;
    sum_range r = {*a, begin, end, together};
    sum_parts<W, T, V><<<(unsigned)div_up(end - begin, THREADS * V), THREADS, 0, s>>>(r);
    return cudaGetLastError();
}

/* Results narrower than the own part, which begins `ahead` bytes behind them. */
template <typename W, typename T, int V>
static cudaError_t sum_from_front(const yk_sum_parts_args *a, int64_t ahead, cudaStream_t s)
{
    cudaError_t e = cudaSuccess;
    for (int64_t begin = 0, end; e == cudaSuccess && begin < a->n; begin = end) {
        int64_t apart = (ahead + begin * (int64_t)sizeof(T)) / (int64_t)sizeof(W) / V * V;
        bool together = apart < begin + THREADS * V;
        end = at_most(together ? begin + THREADS * V : apart, a->n);
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
        bool together = end <= THREADS * V;
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
        return sum_all<W, T, full_pack<W>()>(a, s);
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

/* ---- the values of a step
 * ----------------------------------------------------------------
 */

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
