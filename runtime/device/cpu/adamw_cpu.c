/* runtime/device/cpu/adamw_cpu.c - one AdamW update; reads and writes every byte of the optimiser's
 * state once, which is what it costs.
 *
 * An element's bits depend on nothing but its own values, so a shard is updated as the whole would
 * be.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

VEC_INLINE void update_range(const yk_adamw_args *a, int64_t begin, int64_t end, yk_dtype t,
                             yk_dtype grad_t)
{
    const yk_step_values s = *a->values;
    const vecf b1 = vec_set(1 - a->beta1), b2 = vec_set(1 - a->beta2), lr = vec_set(-s.lr);
    const vecf decay = vec_set(a->weight_decay);
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        int64_t n = end - i;
        vecf g = vec_load_n(a->grad, i, n, grad_t) * s.grad_scale;
        vecf p = vec_load_n(a->master, i, n, YK_F32);
        vecf m = vec_load_n(a->m, i, n, YK_F32), v = vec_load_n(a->v, i, n, YK_F32);
        m = vec_fma(b1, g - m, m);
        v = vec_fma(b2, vec_fma(g, g, -v), v);
        vecf step = (m / s.correction1) / (vec_sqrt(v / s.correction2) + a->eps);
        p = vec_fma(lr, vec_fma(decay, p, step), p);
        vec_store_n(a->m, i, n, m, YK_F32);
        vec_store_n(a->v, i, n, v, YK_F32);
        vec_store_n(a->master, i, n, p, YK_F32);
        if (a->param) vec_store_n(a->param, i, n, p, t);
    }
}

VEC_INLINE void update_from(const yk_adamw_args *a, int64_t begin, int64_t end, yk_dtype grad_t)
{
    YK_CPU_BY_DTYPE(a->dtype, update_range(a, begin, end, T, grad_t));
}

static void update_chunk(const yk_adamw_args *a, int64_t chunk)
{
    int64_t begin = chunk * CPU_CHUNK, end = yk_min(begin + CPU_CHUNK, a->n);
    YK_CPU_BY_DTYPE(a->grad_dtype, update_from(a, begin, end, T));
}

yk_status yk_cpu_adamw(yk_stream *s, const yk_adamw_args *a)
{
    if (a->values->skip) return YK_OK;
    int64_t n_chunks = yk_div_up(a->n, CPU_CHUNK);
#pragma omp parallel for num_threads(cpu_threads(s, n_chunks)) schedule(static)
    for (int64_t i = 0; i < n_chunks; i++) update_chunk(a, i);
    return YK_OK;
}
