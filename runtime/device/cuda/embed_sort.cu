/* runtime/device/cuda/embed_sort.cu - bring the rows of equal keys together, in order of row, and
 * make zero the rows of a table that no key names.
 *
 * The embedding's gradient sums rows of equal token in order of row. The order of tokens is free,
 * so keys fall into classes by their lowest bits, and a block sorts a class: it reads all keys,
 * takes those of its class, and counts those of classes before, which is where its share of the
 * result begins. No block waits for another, and frequent tokens, whose numbers are neighbours in
 * most vocabularies, fall into different classes. Within a class the rest of a key, its local
 * number, is sorted by least significant digit first, the first of two while keys are taken; order
 * comes from matching lanes of a warp and from prefix sums over warps, so it is the same in every
 * run.
 *
 * Bytes: each block reads 8 a row, from the cache; sorted keys and rows are written once, zeros
 * once.
 */
#include "runtime/device/cuda/kernels.cuh"

#define THREADS    1024
#define WARPS      (THREADS / 32)
#define DIGIT_BITS 7
#define DIGITS     (1 << DIGIT_BITS)
#define MAX_LOCAL  (DIGITS * DIGITS)
#define LISTED     2048 /* rows of a class whose list between two digits lies in shared memory */
#define AT_ONCE    16   /* keys that a lane asks for before it looks at the first */

#define ALL_LANES 0xffffffffu

typedef struct sort_job {
    const int32_t *keys;    /* (n) */
    int32_t *sorted, *rows; /* (n) results */
    uint2 *list;            /* (n) for classes of more than LISTED rows */
    unsigned *counters;     /* (n_counters), to become 0 */
    uint4 *zero;            /* (n_keys,words), or NULL */
    int64_t n_counters;
    int n, n_keys, words;
    int shift; /* there are 1 << shift classes */
} sort_job;

typedef struct sort_jobs {
    sort_job of[2];
} sort_jobs;

/* What the block has in shared memory. */
typedef struct desk {
    int32_t place[WARPS]
                 [DIGITS + 1]; /* rows of a digit in each warp, then how many are before them */
    int32_t first[DIGITS];     /* where rows of a digit begin */
    uint2 list[LISTED];        /* local number and row, sorted by the first digit */
    uint32_t named[MAX_LOCAL / 32]; /* a bit for each local number that there is */
    int32_t before, count;          /* rows of classes before, and of this one */
} desk;

/* ---- the places of digits ------------------------------------------------------------------ */

static __device__ inline int32_t warp_prefix(int32_t x, int lane)
{
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        int32_t other = __shfl_up_sync(ALL_LANES, x, d);
        if (lane >= d) x += other;
    }
    return x;
}

static __device__ inline void clear_places(desk &k)
{
    for (int i = threadIdx.x; i < WARPS * (DIGITS + 1); i += THREADS) (&k.place[0][0])[i] = 0;
}

/* From rows of each (warp, digit) to their places: behind all of lesser digits, and behind those of
 * the same digit in warps before. */
static __device__ inline void find_places(desk &k)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads();
#pragma unroll
    for (int d = warp; d < DIGITS; d += WARPS) {
        int32_t mine = k.place[lane][d], sum = warp_prefix(mine, lane);
        k.place[lane][d] = sum - mine;
        if (lane == 31) k.first[d] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        int32_t mine[DIGITS / 32], all = 0;
#pragma unroll
        for (int i = 0; i < DIGITS / 32; i++) all += mine[i] = k.first[lane * (DIGITS / 32) + i];
        int32_t at = warp_prefix(all, lane) - all;
#pragma unroll
        for (int i = 0; i < DIGITS / 32; i++) {
            k.first[lane * (DIGITS / 32) + i] = at;
            at += mine[i];
        }
    }
    __syncthreads();
}

/* The place of the lane's row, which has `digit`; lanes that are not `in` have none. Rows of a warp
 * come in order: of calls, then of lanes. */
static __device__ inline int32_t take_place(desk &k, int digit, bool in, int lane, int warp)
{
    unsigned same = __match_any_sync(ALL_LANES, in ? digit : -1);
    int32_t rank = __popc(same & ((1u << lane) - 1u)), at = 0;
    if (in) at = k.first[digit] + k.place[warp][digit] + rank;
    __syncwarp();
    if (in && rank == 0) k.place[warp][digit] += __popc(same);
    __syncwarp();
    return at;
}

/* ---- the sort of a class ------------------------------------------------------------------- */

/* Key i, or one that is of no class. */
static __device__ inline int32_t key_at(const sort_job &j, int64_t i, int64_t end)
{
    return i < end ? __ldg(j.keys + i) : -1;
}

static __device__ inline bool is_of(int32_t key, int cls, int mask)
{
    return key >= 0 && (key & mask) == cls;
}

/* Count rows of the class by first digit, note their local numbers, and count rows of classes
 * before. */
static __device__ inline void count_class(desk &k, const sort_job &j, int cls, int64_t begin,
                                          int64_t end)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, mask = (1 << j.shift) - 1;
    int32_t before = 0, count = 0;
    for (int64_t base = begin; base < end; base += 32 * AT_ONCE) {
        int32_t key[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) key[u] = key_at(j, base + 32 * u + lane, end);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (key[u] >= 0 && (key[u] & mask) < cls) before++;
            if (!is_of(key[u], cls, mask)) continue;
            int local = key[u] >> j.shift;
            count++;
            atomicAdd(&k.place[warp][local & (DIGITS - 1)], 1);
            atomicOr(&k.named[local >> 5], 1u << (local & 31));
        }
    }
    before = warp_sum(before), count = warp_sum(count);
    if (lane == 0) atomicAdd(&k.before, before), atomicAdd(&k.count, count);
}

/* Rows of the class to their places by the first digit: in the list, or in the result if `last`. */
static __device__ inline void take_class(desk &k, const sort_job &j, uint2 *list, bool last,
                                         int cls, int64_t begin, int64_t end)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, mask = (1 << j.shift) - 1;
    for (int64_t base = begin; base < end; base += 32 * AT_ONCE) {
        int32_t key[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) key[u] = key_at(j, base + 32 * u + lane, end);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            bool in = is_of(key[u], cls, mask);
            if (!__any_sync(ALL_LANES, in)) continue;
            int local = key[u] >> j.shift, row = (int)(base + 32 * u + lane);
            int32_t at = take_place(k, local & (DIGITS - 1), in, lane, warp);
            if (!in) continue;
            if (last)
                j.sorted[k.before + at] = key[u], j.rows[k.before + at] = row;
            else
                list[at] = make_uint2((unsigned)local, (unsigned)row);
        }
    }
}

/* From the list to the result, by the second digit. */
static __device__ inline void sort_list(desk &k, const sort_job &j, const uint2 *list, int cls)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int count = k.count, share = (count + 32 * WARPS - 1) / (32 * WARPS) * 32;
    int begin = warp * share, end = count - begin < share ? count : begin + share;
    clear_places(k);
    __syncthreads();
    for (int i = begin + lane; i < end; i += 32)
        atomicAdd(&k.place[warp][list[i].x >> DIGIT_BITS], 1);
    find_places(k);
    for (int base = begin; base < end; base += 32) {
        bool in = base + lane < end;
        uint2 item = in ? list[base + lane] : make_uint2(0, 0);
        int32_t at = take_place(k, (int)(item.x >> DIGIT_BITS), in, lane, warp);
        if (!in) continue;
        j.sorted[k.before + at] = (int32_t)(item.x << j.shift) + cls;
        j.rows[k.before + at] = (int32_t)item.y;
    }
}

static __device__ inline void sort_class(desk &k, const sort_job &j, int cls)
{
    int64_t share = ((int64_t)j.n + 32 * WARPS - 1) / (32 * WARPS) * 32, warp = threadIdx.x >> 5;
    int64_t begin = warp * share, end = begin + share < j.n ? begin + share : j.n;
    bool last = (j.n_keys - 1) >> j.shift < DIGITS;
    clear_places(k);
    for (int i = threadIdx.x; i < MAX_LOCAL / 32; i += THREADS) k.named[i] = 0;
    if (threadIdx.x == 0) k.before = k.count = 0;
    __syncthreads();
    count_class(k, j, cls, begin, end);
    find_places(k);
    uint2 *list = k.count > LISTED ? j.list + k.before : k.list;
    take_class(k, j, list, last, cls, begin, end);
    __syncthreads();
    if (!last) sort_list(k, j, list, cls);
}

/* ---- zeros --------------------------------------------------------------------------------- */

/* Rows of the table whose number is of the class and that no key names. */
static __device__ inline void zero_absent(const desk &k, const sort_job &j, int cls)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int local = warp; local <= (j.n_keys - 1 - cls) >> j.shift; local += WARPS) {
        if (k.named[local >> 5] >> (local & 31) & 1) continue;
        uint4 *row = j.zero + (int64_t)((local << j.shift) + cls) * j.words;
        for (int w = lane; w < j.words; w += 32) row[w] = make_uint4(0, 0, 0, 0);
    }
}

static __global__ void __launch_bounds__(THREADS)
    sort_classes(const __grid_constant__ sort_jobs jobs)
{
    __shared__ desk k;
    int first = 1 << jobs.of[0].shift, second = (int)blockIdx.x >= first;
    const sort_job &j = jobs.of[second];
    int cls = (int)blockIdx.x - (second ? first : 0), n_classes = 1 << j.shift;
    for (int64_t i = cls * THREADS + threadIdx.x; i < j.n_counters; i += n_classes * THREADS)
        j.counters[i] = 0;
    sort_class(k, j, cls);
    if (j.zero) zero_absent(k, j, cls);
}

/* Classes: a block each; enough to fill the device where zeros have to be written, else half of
 * that, since all of them read all keys. */
static int classes_shift(int64_t n_keys, bool zero)
{
    int shift = 0, most = zero ? 7 : 6;
    while (shift < most && n_keys >> shift > 32) shift++;
    while ((n_keys - 1) >> shift >= MAX_LOCAL) shift++;
    return shift;
}

cudaError_t yk_cuda_sort_rows(const yk_cuda_sort *sorts, int n_sorts, int64_t n, cudaStream_t s)
{
    sort_jobs jobs = {};
    unsigned blocks = 0;
    for (int i = 0; i < n_sorts; i++) {
        const yk_cuda_sort *a = &sorts[i];
        bool beside =
            a->zero && is_aligned(a->zero) && a->row_bytes % 16 == 0 && a->row_bytes < INT32_MAX;
        if (a->zero && !beside) {
            cudaError_t e = cudaMemsetAsync(a->zero, 0, (size_t)(a->n_keys * a->row_bytes), s);
            if (e != cudaSuccess) return e;
        }
        jobs.of[i] = {.keys = a->keys,
                      .sorted = a->sorted,
                      .rows = a->rows,
                      .list = (uint2 *)a->list,
                      .counters = a->counters,
                      .zero = beside ? (uint4 *)a->zero : NULL,
                      .n_counters = a->n_counters,
                      .n = (int)n,
                      .n_keys = (int)a->n_keys,
                      .words = (int)(a->row_bytes / 16),
                      .shift = classes_shift(a->n_keys, beside)};
        blocks += 1u << jobs.of[i].shift;
    }
    sort_classes<<<blocks, THREADS, 0, s>>>(jobs);
    return cudaGetLastError();
}
