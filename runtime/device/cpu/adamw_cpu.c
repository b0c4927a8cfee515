/* runtime/device/cpu/adamw_cpu.c - one AdamW update; reads and writes every byte of the optimiser's
 * state once, which is what it costs.
 *
 * An element's bits depend on nothing but its own values and, where its state is kept in bf16, on its
 * own random bits; so a shard is updated as the whole would be.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"
#include "runtime/device/random.h"

/* ---- random bits --------------------------------------------------------------------------- */

/* Eight words, each in the lower half of 64 bits; what is in the upper halves does not matter. */
typedef uint64_t vecq __attribute__((vector_size(64)));

/* All 64 bits of the products of words with a constant. */
VEC_INLINE vecq multiply(vecq a, uint32_t constant)
{
#if defined(__AVX512F__)
    return (vecq)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(constant));
#elif defined(__AVX2__)
    union {
        vecq v;
        __m256i half[2];
    } u = {a};
    for (int i = 0; i < 2; i++)
        u.half[i] = _mm256_mul_epu32(u.half[i], _mm256_set1_epi64x(constant));
    return u.v;
#else
    return (a & 0xffffffffu) * constant;
#endif
}

/* Two words for each of sixteen elements, of neighbours in pairs. */
typedef struct draws {
    vecu first, second;
} draws;

VEC_INLINE draws draw(uint64_t key, uint64_t step, uint64_t index)
{
    const vecq pair = {0, 1, 2, 3, 4, 5, 6, 7};
    vecq c0 = pair + index / 2, c1 = c0 >> 32;
    vecq c2 = pair - pair + step, c3 = c2 >> 32;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma GCC unroll 7
    for (int round = 0; round < YK_PHILOX_ROUNDS; round++) {
        vecq a = multiply(c0, YK_PHILOX_MULTIPLIER0), b = multiply(c2, YK_PHILOX_MULTIPLIER1);
        c0 = (b >> 32) ^ c1 ^ k0;
        c2 = (a >> 32) ^ c3 ^ k1;
        c1 = b;
        c3 = a;
        k0 += YK_PHILOX_STEP0;
        k1 += YK_PHILOX_STEP1;
    }
    return (draws){(vecu)((c0 & 0xffffffffu) | c2 << 32), (vecu)((c1 & 0xffffffffu) | c3 << 32)};
}

/* The neighbour in bf16 that sixteen bits choose. */
VEC_INLINE vecf choose(vecf x, vecu bits)
{
    vecu u = (vecu)x, nan = (vecu)vec_nan(x);
    vecu chosen = (u + bits) & 0xffff0000u;
    return (vecf)((nan & ((u & 0xffff0000u) | 0x400000u)) | (~nan & chosen));
}

/* ---- the update ---------------------------------------------------------------------------- */

/* Elements begin .. end-1, all of them of one run. */
VEC_INLINE void update_range(const yk_adamw_args *a, const yk_adamw_run *run, int64_t begin,
                             int64_t end, yk_dtype t, yk_dtype grad_t, yk_dtype master_t,
                             yk_dtype moments_t)
{
    const yk_step_values s = *a->values;
    const vecf b1 = vec_set(1 - a->beta1), b2 = vec_set(1 - a->beta2), lr = vec_set(-s.lr);
    const vecf decay = vec_set(run->decay ? a->weight_decay : 0);
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        int64_t n = end - i;
        vecf g = vec_load_n(a->grad, i, n, grad_t) * s.grad_scale;
        vecf p = vec_load_n(a->master, i, n, master_t);
        vecf m = vec_load_n(a->m, i, n, moments_t), v = vec_load_n(a->v, i, n, moments_t);
        m = vec_fma(b1, g - m, m);
        v = vec_fma(b2, vec_fma(g, g, -v), v);
        vecf step = (m / s.correction1) / (vec_sqrt(v / s.correction2) + a->eps);
        p = vec_fma(lr, vec_fma(decay, p, step), p);
        if (master_t == YK_BF16 || moments_t == YK_BF16) {
            uint64_t index = (uint64_t)(run->first + i - run->begin);
            draws r = draw(run->key, (uint64_t)s.adam_steps, index);
            if (master_t == YK_BF16) p = choose(p, r.first >> 16);
            if (moments_t == YK_BF16) m = choose(m, r.first & 0xffffu);
            if (moments_t == YK_BF16) v = choose(v, r.second >> 16);
        }
        vec_store_n(a->m, i, n, m, moments_t);
        vec_store_n(a->v, i, n, v, moments_t);
        vec_store_n(a->master, i, n, p, master_t);
        if (a->param) vec_store_n(a->param, i, n, p, t);
    }
}

VEC_INLINE void update_states(const yk_adamw_args *a, const yk_adamw_run *run, int64_t begin,
                              int64_t end, yk_dtype t, yk_dtype grad_t)
{
    bool master16 = a->master_dtype == YK_BF16, moments16 = a->moments_dtype == YK_BF16;
    if (master16 && moments16)
        update_range(a, run, begin, end, t, grad_t, YK_BF16, YK_BF16);
    else if (master16)
        update_range(a, run, begin, end, t, grad_t, YK_BF16, YK_F32);
    else if (moments16)
        update_range(a, run, begin, end, t, grad_t, YK_F32, YK_BF16);
    else
        update_range(a, run, begin, end, t, grad_t, YK_F32, YK_F32);
}

VEC_INLINE void update_from(const yk_adamw_args *a, const yk_adamw_run *run, int64_t begin,
                            int64_t end, yk_dtype grad_t)
{
    YK_CPU_BY_DTYPE(a->dtype, update_states(a, run, begin, end, T, grad_t));
}

static void update_run(const yk_adamw_args *a, const yk_adamw_run *run, int64_t begin, int64_t end)
{
    YK_CPU_BY_DTYPE(a->grad_dtype, update_from(a, run, begin, end, T));
}

/* A chunk, run by run. */
static void update_chunk(const yk_adamw_args *a, int64_t chunk)
{
    static const yk_adamw_run whole = {.decay = true};
    const yk_adamw_run *runs = a->n_runs > 0 ? a->runs : &whole;
    int64_t begin = chunk * CPU_CHUNK, end = yk_min(begin + CPU_CHUNK, a->n);
    for (int i = 0; begin < end; i++) {
        int64_t run_end = i + 1 < a->n_runs ? runs[i + 1].begin : a->n;
        if (run_end <= begin) continue;
        update_run(a, &runs[i], begin, yk_min(run_end, end));
        begin = run_end;
    }
}

yk_status yk_cpu_adamw(yk_stream *s, const yk_adamw_args *a)
{
    if (a->values->skip) return YK_OK;
    int64_t n_chunks = yk_div_up(a->n, CPU_CHUNK);
#pragma omp parallel for num_threads(cpu_threads(s, n_chunks)) schedule(static)
    for (int64_t i = 0; i < n_chunks; i++) update_chunk(a, i);
    return YK_OK;
}
