/* runtime/device/cuda/embed_sort.cu - bring the rows of equal keys together, in order of row, and
 * make zero the rows of a table that no key names.
 *
 * The embedding's gradient sums rows of equal token in order of row. The order of tokens is free,
 * so keys fall into classes by their lowest bits, and a block sorts a class: it reads all keys,
 * takes those of its class, and counts those of classes before, which is where its share of the
 * result begins. No block waits for another, and frequent tokens, whose numbers are neighbours in
 * most vocabularies, fall into different classes. What a key costs is arithmetic, so four classes
 * are compared at a time, as bytes of a word, and what a lane takes of 32 keys is the bits of a word,
 * which it finds once where a warp looks at no more than 1024 keys. The keys that are taken make a
 * list in order of row, a part of it for each warp, which then is sorted by the rest of the key, its
 * local number, by least significant digit first; order comes from prefix sums over lanes and warps,
 * and from matching lanes of a warp, so it is the same in every run.
 *
 * A sort leaves the memory and many multiprocessors idle, so that other blocks bring what its caller
 * reads next into the cache.
 *
 * Bytes: each block reads 4 a row, from the cache, and where a warp has more than 1024 keys 8; sorted
 * keys and rows are written once, zeros once.
 */
#include "runtime/device/cuda/kernels.cuh"

#define THREADS    1024
#define WARPS      (THREADS / 32)
#define DIGIT_BITS 6
#define DIGITS     (1 << DIGIT_BITS)
#define FETCHERS   36    /* blocks that fetch what is read next */
#define LISTED     2048  /* rows of a class whose lists lie in shared memory */
#define MAX_NAMED  16384 /* local numbers of a class whose rows may have to become zero */
#define QUADS      8     /* of keys that a lane looks at together, a bit of a word each */
#define TILE       (32 * 4 * QUADS)

#define ALL_LANES 0xffffffffu
#define HIGH_BITS 0x80808080u /* of four bytes */

typedef struct sort_job {
    const int32_t *keys;    /* (n) */
    int32_t *sorted, *rows; /* (n) results */
    uint2 *list[2];         /* (n) for classes of more than LISTED rows */
    unsigned *counters;     /* (n_counters), to become 0 */
    uint4 *zero;            /* (n_keys,words), or NULL */
    int64_t n_counters;
    int n, n_keys, words;
    int shift; /* there are 1 << shift classes, 128 at the most */
} sort_job;

typedef struct sort_jobs {
    sort_job of[2];
    yk_cuda_ahead ahead;
    int sorters; /* blocks that sort; those behind them fetch what is ahead */
} sort_jobs;

/* What the block has in shared memory. */
typedef struct desk {
    int32_t taken[WARPS], less[WARPS]; /* keys of the class, and of classes before, in each warp */
    uint2 list[2][LISTED];             /* local number and row */
    int32_t place[WARPS][DIGITS + 1];  /* rows of a digit in each warp, then how many are before */
    int32_t first[DIGITS];             /* where rows of a digit begin */
    uint32_t named[MAX_NAMED / 32];    /* a bit for each local number that there is */
} desk;

static __device__ inline int32_t warp_prefix(int32_t x, int lane)
{
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        int32_t other = __shfl_up_sync(ALL_LANES, x, d);
        if (lane >= d) x += other;
    }
    return x;
}

/* ---- taking a class's keys ----------------------------------------------------------------- */

/* The block's class, and the keys that the warp looks at. */
typedef struct search {
    int cls, begin, end;
} search;

/* Quad q of the lane's: keys base + 128 q + 4 lane and on, -1 behind the warp's last. */
static __device__ inline void ask(int32_t (&key)[4 * QUADS], const sort_job &j, const search &h,
                                  int base, int lane)
{
    const int32_t *from = j.keys + base + 4 * lane;
    if (h.end - base >= TILE && ((uintptr_t)j.keys & 15) == 0) {
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            int4 four = __ldg(reinterpret_cast<const int4 *>(from + 128 * q));
            key[4 * q] = four.x, key[4 * q + 1] = four.y;
            key[4 * q + 2] = four.z, key[4 * q + 3] = four.w;
        }
    } else {
        int left = h.end - base - 4 * lane;
#pragma unroll
        for (int i = 0; i < 4 * QUADS; i++) {
            int at = i / 4 * 128 + i % 4;
            key[i] = at < left ? __ldg(from + at) : -1;
        }
    }
}

/* The classes of four keys, a byte each, with the high bit where there is no key. */
static __device__ inline uint32_t classes_of(const int32_t *key, int shift)
{
    uint32_t low = __byte_perm(__byte_perm((uint32_t)key[0], (uint32_t)key[1], 0x0040),
                               __byte_perm((uint32_t)key[2], (uint32_t)key[3], 0x0040), 0x5410);
    uint32_t none = __byte_perm(__byte_perm((uint32_t)key[0], (uint32_t)key[1], 0x0073),
                                __byte_perm((uint32_t)key[2], (uint32_t)key[3], 0x0073), 0x5410);
    return (low & ((1u << shift) - 1u) * 0x01010101u) | (none & HIGH_BITS);
}

/* The high bits of bytes that equal those of `cls`, which have none. */
static __device__ inline uint32_t equal_bytes(uint32_t x, uint32_t cls)
{
    uint32_t y = x ^ cls;
    return ~(((y & ~HIGH_BITS) + ~HIGH_BITS) | y) & HIGH_BITS;
}

/* Of bytes that are less than those of `cls`. */
static __device__ inline uint32_t lesser_bytes(uint32_t x, uint32_t cls)
{
    return ~((x | HIGH_BITS) - cls) & HIGH_BITS;
}

/* The high bits of four bytes, the first in bit 0. */
static __device__ inline uint32_t gather_high(uint32_t x)
{
    return (x >> 7) * 0x01020408u >> 24;
}

/* The lane's keys of the class in the tile that begins at `base`: bit 4 q + i is key i of quad q.
 * `less` grows by the number of those of classes before. */
static __device__ inline uint32_t find_keys(const sort_job &j, const search &h, int base, int lane,
                                            int32_t &less)
{
    uint32_t cls = (unsigned)h.cls * 0x01010101u, found = 0;
    int32_t key[4 * QUADS];
    ask(key, j, h, base, lane);
#pragma unroll
    for (int q = 0; q < QUADS; q++) {
        uint32_t x = classes_of(key + 4 * q, j.shift);
        less += __popc(lesser_bytes(x, cls));
        found |= gather_high(equal_bytes(x, cls)) << 4 * q;
    }
    return found;
}

/* Count the warp's keys of the class, and of classes before. Returns what is found in the last
 * tile. */
static __device__ inline uint32_t count_keys(desk &k, const sort_job &j, const search &h, int lane,
                                             int warp)
{
    int32_t less = 0, taken = 0;
    uint32_t found = 0;
#pragma unroll 1
    for (int base = h.begin; base < h.end; base += TILE) {
        found = find_keys(j, h, base, lane, less);
        taken += __popc(found);
    }
    less = warp_sum(less), taken = warp_sum(taken);
    if (lane == 0) k.less[warp] = less, k.taken[warp] = taken;
    return found;
}

/* What lanes have found in a tile, to the list: quads come one after the other, and lanes within
 * one. Sums of a quad fit into bytes, so that four of them travel in a word. Returns how many there
 * are. */
static __device__ inline int take_found(desk &k, const sort_job &j, uint32_t found, int base,
                                        uint2 *list, int lane)
{
    uint32_t pairs = found - (found >> 1 & 0x55555555u);
    uint32_t fours = (pairs & 0x33333333u) + (pairs >> 2 & 0x33333333u);
    uint32_t mine[2] = {fours & 0x0f0f0f0fu, fours >> 4 & 0x0f0f0f0fu}, before[2], all[2];
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
        uint32_t upto = (uint32_t)warp_prefix((int32_t)mine[odd], lane);
        before[odd] = upto - mine[odd], all[odd] = __shfl_sync(ALL_LANES, upto, 31);
    }
    int at = 0;
#pragma unroll
    for (int q = 0; q < QUADS; q++) {
        uint32_t here = found >> 4 * q & 15;
        uint2 *to = list + at + (before[q & 1] >> 4 * (q & 6) & 255);
        for (; here; here &= here - 1) {
            int row = base + 128 * q + 4 * lane + __ffs((int)here) - 1;
            unsigned local = (unsigned)__ldg(j.keys + row) >> j.shift;
            *to++ = make_uint2(local, (unsigned)row);
            if (j.zero) atomicOr(&k.named[local >> 5], 1u << (local & 31));
        }
        at += all[q & 1] >> 4 * (q & 6) & 255;
    }
    return at;
}

/* The warp's keys of the class to its part of the list; `found` is count_keys's. */
static __device__ inline void take_keys(desk &k, const sort_job &j, const search &h, uint32_t found,
                                        uint2 *list, int lane)
{
#pragma unroll 1
    for (int base = h.begin; base < h.end; base += TILE) {
        int32_t less = 0;
        if (h.end - h.begin > TILE) found = find_keys(j, h, base, lane, less);
        list += take_found(k, j, found, base, list, lane);
    }
}

/* ---- sorting them -------------------------------------------------------------------------- */

/* From rows of each (warp, digit) to their places: behind all of lesser digits, and behind those of
 * the same digit in warps before. */
static __device__ inline void find_places(desk &k, int lane, int warp)
{
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

/* Sort `count` rows of the list by a digit of their local number: into list `to`, or, where that is
 * NULL, into the result, where they begin at `begin`. */
static __device__ inline void sort_digit(desk &k, const sort_job &j, uint2 *to, const uint2 *list,
                                         int count, int digit_shift, int begin, int cls)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int share = (count + THREADS - 1) / THREADS * 32, at = warp * share;
    int end = count - at < share ? count : at + share;
    for (int i = threadIdx.x; i < WARPS * (DIGITS + 1); i += THREADS) (&k.place[0][0])[i] = 0;
    __syncthreads();
    for (int i = at + lane; i < end; i += 32)
        atomicAdd(&k.place[warp][list[i].x >> digit_shift & (DIGITS - 1)], 1);
    find_places(k, lane, warp);
    for (; at < end; at += 32) {
        bool in = at + lane < end;
        uint2 item = in ? list[at + lane] : make_uint2(0, 0);
        int place = take_place(k, (int)(item.x >> digit_shift & (DIGITS - 1)), in, lane, warp);
        if (!in) continue;
        if (to) {
            to[place] = item;
        } else {
            j.sorted[begin + place] = (int32_t)(item.x << j.shift) + cls;
            j.rows[begin + place] = (int32_t)item.y;
        }
    }
    __syncthreads();
}

static __device__ inline void sort_class(desk &k, const sort_job &j, int cls)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int share = (int)(((int64_t)j.n + WARPS * TILE - 1) / (WARPS * TILE)) * TILE;
    search h = {.cls = cls, .begin = j.n / share < warp ? j.n : warp * share};
    h.end = j.n - h.begin < share ? j.n : h.begin + share;
    for (int i = threadIdx.x; i < MAX_NAMED / 32; i += THREADS) k.named[i] = 0;
    uint32_t found = count_keys(k, j, h, lane, warp);
    __syncthreads();
    int32_t mine = k.taken[lane], sum = warp_prefix(mine, lane);
    int begin = warp_sum(k.less[lane]), count = __shfl_sync(ALL_LANES, sum, 31);
    uint2 *list = k.list[0], *other = k.list[1];
    if (count > LISTED) list = j.list[0] + begin, other = j.list[1] + begin;
    take_keys(k, j, h, found, list + __shfl_sync(ALL_LANES, sum - mine, warp), lane);
    __syncthreads();
    for (int shift = 0;; shift += DIGIT_BITS) {
        bool last = (j.n_keys - 1) >> j.shift >> shift < DIGITS;
        sort_digit(k, j, last ? NULL : other, list, count, shift, begin, cls);
        if (last) break;
        uint2 *sorted = other;
        other = list, list = sorted;
    }
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

/* ---- what is read next --------------------------------------------------------------------- */

/* Bring it into the cache, and wait for none of it. */
static __device__ inline void fetch_ahead(const sort_jobs &jobs)
{
    int warp = (int)(blockIdx.x - jobs.sorters) * WARPS + (int)(threadIdx.x >> 5);
    for (int64_t row = warp; row < jobs.of[0].n; row += FETCHERS * WARPS)
        for (int64_t at = (threadIdx.x & 31) * 32; at < jobs.ahead.width; at += 32 * 32)
            asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)jobs.ahead.from +
                                                          row * jobs.ahead.stride + at));
}

static __global__ void __launch_bounds__(THREADS)
    sort_classes(const __grid_constant__ sort_jobs jobs)
{
    __shared__ desk k;
    let_next_kernel_come();
    wait_for_kernel_before();
    if ((int)blockIdx.x >= jobs.sorters) {
        fetch_ahead(jobs);
        return;
    }
    int first = 1 << jobs.of[0].shift, second = (int)blockIdx.x >= first;
    const sort_job &j = jobs.of[second];
    int cls = (int)blockIdx.x - (second ? first : 0), n_classes = 1 << j.shift;
    for (int64_t i = cls * THREADS + threadIdx.x; i < j.n_counters; i += n_classes * THREADS)
        j.counters[i] = 0;
    sort_class(k, j, cls);
    if (j.zero) zero_absent(k, j, cls);
}

/* Classes: a block each. All of them read all keys, but where rows have to become zero more blocks
 * write more of them. */
static int classes_shift(int64_t n_keys, int most)
{
    int shift = 0;
    while (shift < most && n_keys >> shift > 32) shift++;
    return shift;
}

cudaError_t yk_cuda_sort_rows(const yk_cuda_sort *sorts, int n_sorts, int64_t n,
                              const yk_cuda_ahead *ahead, cudaStream_t s)
{
    sort_jobs jobs = {};
    unsigned blocks = 0;
    for (int i = 0; i < n_sorts; i++) {
        const yk_cuda_sort *a = &sorts[i];
        bool beside = a->zero && is_aligned(a->zero) && a->row_bytes % 16 == 0 &&
                      a->row_bytes < INT32_MAX && a->n_keys <= MAX_NAMED << 6;
        if (a->zero && !beside) {
            cudaError_t e = cudaMemsetAsync(a->zero, 0, (size_t)(a->n_keys * a->row_bytes), s);
            if (e != cudaSuccess) return e;
        }
        jobs.of[i] = {.keys = a->keys,
                      .sorted = a->sorted,
                      .rows = a->rows,
                      .list = {(uint2 *)a->list, (uint2 *)a->list + n},
                      .counters = a->counters,
                      .zero = beside ? (uint4 *)a->zero : NULL,
                      .n_counters = a->n_counters,
                      .n = (int)n,
                      .n_keys = (int)a->n_keys,
                      .words = (int)(a->row_bytes / 16),
                      .shift = classes_shift(a->n_keys, beside && n_sorts == 1 ? 7 : 6)};
        blocks += 1u << jobs.of[i].shift;
    }
    jobs.sorters = (int)blocks;
    if (ahead) {
        jobs.ahead = *ahead;
        blocks += FETCHERS;
    }
    return launch_early(sort_classes, dim3(blocks), dim3(THREADS), 0, s, jobs);
}
