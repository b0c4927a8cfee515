/* runtime/device/cuda/step.cu - the optimiser's step: begin, sum of squares, decision.
 *
 * What happens once a step is one thread's work on yk_step_values, so that the
 * host never waits to decide. Bytes per element: sum of squares reads its
 * element, of all units in one launch: a block sums a chunk, and one block then
 * adds chunks to pieces and pieces in turn. Squares are added in double, which
 * is as fast as memory on sm_90 and half as fast on sm_89.
 */
#include "runtime/device/cuda/kernels.cuh"
#include "runtime/device/cuda/sizes.h"

#define THREADS 256

/* ---- begin --------------------------------------------------------------------------------- */

static __global__ void begin_step(yk_step_values *v, float lr)
{
    v->loss_sum = 0;
    v->sum_squares = 0;
    v->n_tokens = 0;
    v->non_finite = 0;
    v->lr = lr;
}

cudaError_t yk_cuda_step_begin(const yk_step_begin_args *a, cudaStream_t s)
{
    begin_step<<<1, 1, 0, s>>>(a->values, a->lr);
    return cudaGetLastError();
}

/* ---- sum of squares ------------------------------------------------------------------------ */

/* The most pieces whose sums are added at one time, and the threads that do it. */
#define ADDED   1024
#define N_WARPS (ADDED / 32)

/* Runs of elements, those without any left out, and where each has its chunks and pieces. */
struct squares_table {
    struct {
        const void *x;
        int64_t n;
        int first_chunk, first_piece;
    } runs[YK_STEP_RUNS];
    int n_runs, n_chunks, n_pieces;
    int chunks; /* of a whole piece */
    int64_t piece;
};

static squares_table table_of(const yk_sum_squares_args *a)
{
    squares_table t = {};
    t.piece = a->piece;
    t.chunks = (int)div_up(a->piece, YK_CUDA_SQUARES_CHUNK);
    for (int i = 0; i < a->n_runs; i++) {
        int64_t n = a->runs[i].n;
        if (n == 0) continue;
        t.runs[t.n_runs++] = {a->runs[i].x, n, t.n_chunks, t.n_pieces};
        t.n_chunks += (int)yk_cuda_squares_chunks(n, a->piece);
        t.n_pieces += (int)div_up(n, a->piece);
    }
    return t;
}

/* The sum of the squares of n elements in every thread. */
template <typename T, int V>
static __device__ inline double square_chunk(const T *__restrict__ x, int n, bool &odd)
{
    double even = 0, more = 0;
    int i = threadIdx.x * V;
#pragma unroll 4
    for (; i + V <= n; i += THREADS * V) {
        float e[V];
        load_floats<T, V>(x + i, e);
#pragma unroll
        for (int k = 0; k < V; k++) {
            double d = (double)e[k];
            odd |= !(fabsf(e[k]) <= 3.402823466e38f);
            if (k & 1)
                more += d * d;
            else
                even += d * d;
        }
    }
    for (; i < n; i++) {
        float e = to_float(x[i]);
        odd |= !(fabsf(e) <= 3.402823466e38f);
        even += (double)e * (double)e;
    }
    return even + more;
}

/* A chunk a block. sums (n_chunks) double. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    square_chunks(double *sums, yk_step_values *values, const __grid_constant__ squares_table t)
{
    __shared__ double shared[1][32];
    int at = (int)blockIdx.x, r = 0;
    for (int above = t.n_runs; above - r > 1;) {
        int middle = (r + above) / 2;
        if (t.runs[middle].first_chunk <= at)
            r = middle;
        else
            above = middle;
    }
    int chunk = at - t.runs[r].first_chunk, piece = chunk / t.chunks;
    int64_t begin = piece * t.piece + (int64_t)(chunk % t.chunks) * YK_CUDA_SQUARES_CHUNK;
    int64_t end = min(min(begin + YK_CUDA_SQUARES_CHUNK, (piece + 1) * t.piece), t.runs[r].n);
    bool odd = false;
    double sum[1] = {square_chunk<T, V>((const T *)t.runs[r].x + begin, (int)(end - begin), odd)};
    if (odd) values->non_finite = 1;
    block_sum<double, 1>(sum, shared);
    if (threadIdx.x == 0) sums[at] = sum[0];
}

/* The sum of a piece's chunks, in every lane of a warp. */
static __device__ inline double piece_sum(const double *sums, const squares_table &t, int piece)
{
    int r = 0;
    while (r + 1 < t.n_runs && t.runs[r + 1].first_piece <= piece) r++;
    int begin = t.runs[r].first_chunk + (piece - t.runs[r].first_piece) * t.chunks;
    int end = min(begin + t.chunks, r + 1 < t.n_runs ? t.runs[r + 1].first_chunk : t.n_chunks);
    double sum = 0;
#pragma unroll 8
    for (int c = begin + (int)(threadIdx.x & 31); c < end; c += 32) sum += sums[c];
    return warp_sum(sum);
}

/* Pieces one after another, as calls that follow one another add them. One block. */
static __global__ void __launch_bounds__(ADDED)
    add_pieces(yk_step_values *values, const double *sums, const __grid_constant__ squares_table t)
{
    __shared__ double pieces[ADDED];
    int warp = threadIdx.x / 32;
    double total = values->sum_squares;
    for (int first = 0; first < t.n_pieces; first += ADDED) {
        int n = min(ADDED, t.n_pieces - first);
        for (int p = warp; p < n; p += N_WARPS) {
            double sum = piece_sum(sums, t, first + p);
            if (threadIdx.x % 32 == 0) pieces[p] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0)
            for (int p = 0; p < n; p++) total += pieces[p];
        __syncthreads();
    }
    if (threadIdx.x == 0) values->sum_squares = total;
}

template <typename T, int V>
static void launch_squares(const squares_table &t, double *sums, yk_step_values *values,
                           cudaStream_t s)
{
    square_chunks<T, V><<<(unsigned)t.n_chunks, THREADS, 0, s>>>(sums, values, t);
}

cudaError_t yk_cuda_sum_squares(const yk_sum_squares_args *a, void *ws, cudaStream_t s)
{
    double *sums = (double *)ws;
    squares_table t = table_of(a);
    bool aligned = true;
    for (int i = 0; i < t.n_runs; i++) aligned &= is_aligned(t.runs[i].x);
    cudaError_t e = with_type(a->dtype, [&](auto zero) {
        using T = decltype(zero);
        if (aligned)
            launch_squares<T, full_pack<T>()>(t, sums, a->values, s);
        else
            launch_squares<T, 1>(t, sums, a->values, s);
        return cudaGetLastError();
    });
    if (e != cudaSuccess) return e;
    add_pieces<<<1, ADDED, 0, s>>>(a->values, sums, t);
    return cudaGetLastError();
}

/* ---- decision ------------------------------------------------------------------------------ */

static __global__ void finish_step(yk_step_values *v, yk_step_finish_args a)
{
    double per_scale = 1.0 / (double)v->loss_scale;
    double mean = v->n_tokens > 0 ? a.expected_tokens / (double)v->n_tokens : 1.0;
    double norm = sqrt(v->sum_squares) * mean * per_scale;
    double clip = a.clip > 0 && norm > (double)a.clip ? (double)a.clip / norm : 1.0;
    v->grad_norm = v->non_finite ? nanf("") : (float)norm;
    v->skip = v->non_finite != 0;
    if (v->skip) {
        v->grad_scale = 0;
        v->steps_skipped++;
        v->skips_in_a_row++;
        if (a.dynamic_scale) {
            v->loss_scale = fmaxf(v->loss_scale * 0.5f, a.scale_floor);
            v->good_steps = 0;
        }
        return;
    }
    v->skips_in_a_row = 0;
    v->adam_steps++;
    v->correction1 = (float)(1.0 - pow((double)a.beta1, (double)v->adam_steps));
    v->correction2 = (float)(1.0 - pow((double)a.beta2, (double)v->adam_steps));
    v->grad_scale = (float)(mean * per_scale * clip);
    if (a.dynamic_scale && ++v->good_steps >= a.growth_interval) {
        v->loss_scale = fminf(v->loss_scale * 2.0f, a.scale_ceiling);
        v->good_steps = 0;
    }
}

cudaError_t yk_cuda_step_finish(const yk_step_finish_args *a, cudaStream_t s)
{
    finish_step<<<1, 1, 0, s>>>(a->values, *a);
    return cudaGetLastError();
}
