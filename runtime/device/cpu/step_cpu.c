/* runtime/device/cpu/step_cpu.c - the sums of a step and what is decided from them.
 *
 * Sums are in double, where the square of any finite float is finite: a sum of squares is therefore
 * finite if and only if every element is, and no element need be looked at.
 */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/vec.h"

#define CHUNK 65536 /* elements of one partial sum of squares */

yk_status yk_cpu_step_begin(yk_stream *s, const yk_step_begin_args *a)
{
    (void)s;
    yk_step_values *v = a->values;
    v->loss_sum = 0;
    v->sum_squares = 0;
    v->n_tokens = 0;
    v->non_finite = 0;
    v->lr = a->lr;
    return YK_OK;
}

yk_status yk_cpu_loss_sum(yk_stream *s, const yk_loss_sum_args *a, void *ws)
{
    (void)s;
    (void)ws;
    double sum = 0;
    int64_t n = 0;
    for (int64_t r = 0; r < a->rows; r++) {
        if (a->targets[r] < 0) continue;
        sum += (double)a->losses[r];
        n++;
    }
    a->values->loss_sum += sum;
    a->values->n_tokens += n;
    return YK_OK;
}

VEC_INLINE vecd add_squares(vecd sum, vecd x)
{
    return sum + x * x;
}

VEC_INLINE double chunk_squares(const void *x, int64_t begin, int64_t end, yk_dtype t)
{
    vecd sum[4] = {{0}, {0}, {0}, {0}};
    for (int64_t i = begin; i < end; i += 2 * VEC_LANES)
        for (int h = 0; h < 2; h++) {
            int64_t at = i + h * VEC_LANES;
            if (at >= end) break;
            vecf v = vec_load_n(x, at, end - at, t);
            sum[2 * h] = add_squares(sum[2 * h], vec_widen(v, 0));
            sum[2 * h + 1] = add_squares(sum[2 * h + 1], vec_widen(v, 8));
        }
    vecd d = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return ((d[0] + d[1]) + (d[2] + d[3])) + ((d[4] + d[5]) + (d[6] + d[7]));
}

/* Chunks of n elements, of which each piece has its own. */
static int64_t count_chunks(int64_t n, int64_t piece)
{
    return n / piece * yk_div_up(piece, CHUNK) + yk_div_up(n % piece, CHUNK);
}

static double chunk_sum(const yk_sum_squares_args *a, const yk_squares_run *run, int64_t chunk)
{
    int64_t per_piece = yk_div_up(a->piece, CHUNK), piece = chunk / per_piece * a->piece;
    int64_t begin = piece + chunk % per_piece * CHUNK;
    int64_t end = yk_min(yk_min(begin + CHUNK, piece + a->piece), run->n);
    double sum = 0;
    YK_CPU_BY_DTYPE(a->dtype, sum = chunk_squares(run->x, begin, end, T));
    return sum;
}

int64_t yk_cpu_sum_squares_bytes(const yk_sum_squares_args *a)
{
    int64_t most = 0;
    for (int i = 0; i < a->n_runs; i++) most = yk_max(most, count_chunks(a->runs[i].n, a->piece));
    return (int64_t)sizeof(double) * most;
}

static void square_run(yk_stream *s, const yk_sum_squares_args *a, const yk_squares_run *run,
                       double *sums)
{
    int64_t n_chunks = count_chunks(run->n, a->piece), per_piece = yk_div_up(a->piece, CHUNK);
#pragma omp parallel for num_threads(cpu_threads(s, n_chunks)) schedule(static)
    for (int64_t i = 0; i < n_chunks; i++) sums[i] = chunk_sum(a, run, i);
    for (int64_t first = 0; first < n_chunks; first += per_piece) {
        double total = 0;
        int64_t end = yk_min(first + per_piece, n_chunks);
        for (int64_t i = first; i < end; i++) total += sums[i];
        a->values->sum_squares += total;
        if (!isfinite(total)) a->values->non_finite = 1;
    }
}

yk_status yk_cpu_sum_squares(yk_stream *s, const yk_sum_squares_args *a, void *ws)
{
    for (int i = 0; i < a->n_runs; i++)
        if (a->runs[i].n > 0) square_run(s, a, &a->runs[i], ws);
    return YK_OK;
}

static void skip(yk_step_values *v, const yk_step_finish_args *a)
{
    v->skip = 1;
    v->steps_skipped++;
    v->skips_in_a_row++;
    if (!a->dynamic_scale) return;
    v->loss_scale = fmaxf(v->loss_scale * 0.5f, a->scale_floor);
    v->good_steps = 0;
}

static void go_on(yk_step_values *v, const yk_step_finish_args *a)
{
    v->skip = 0;
    v->skips_in_a_row = 0;
    v->adam_steps++;
    v->correction1 = (float)(1 - pow(a->beta1, (double)v->adam_steps));
    v->correction2 = (float)(1 - pow(a->beta2, (double)v->adam_steps));
    if (!a->dynamic_scale || ++v->good_steps < a->growth_interval) return;
    v->loss_scale = fminf(v->loss_scale * 2, a->scale_ceiling);
    v->good_steps = 0;
}

yk_status yk_cpu_step_finish(yk_stream *s, const yk_step_finish_args *a)
{
    (void)s;
    yk_step_values *v = a->values;
    double mean = v->n_tokens > 0 ? a->expected_tokens / (double)v->n_tokens : 1;
    double unscale = mean / (double)v->loss_scale, norm = sqrt(v->sum_squares) * unscale;
    double clip = a->clip > 0 && norm > (double)a->clip ? (double)a->clip / norm : 1;
    v->grad_norm = v->non_finite ? NAN : (float)norm;
    v->grad_scale = (float)(unscale * clip);
    if (v->non_finite)
        skip(v, a);
    else
        go_on(v, a);
    return YK_OK;
}
