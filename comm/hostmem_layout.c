/* comm/hostmem_layout.c - where everything lies, in the segment and in staging memory.
 *
 * The segment: words, 64 bytes apart so that no two writers share a line; marks; what ranks bring to
 * meetings; then a part for each rank, at a page, which that rank touches first: so it lies on that
 * rank's NUMA node. A rank's part has HOSTMEM_DEPTH slots for each other rank, for parts of sums, and
 * as many for sums and for gathers; the longest chunk takes two.
 *
 * Staging memory holds what a chunk is on the device: packed for each other rank, arrived from each,
 * summed, come back; each twice, since a chunk travels while the one before it is worked on, and what
 * arrives HOSTMEM_ARRIVALS times.
 */
#include <math.h>

#include "comm/hostmem.h"
#include "comm/race.h"
#include "runtime/base/arith.h"

#define PAGE      4096
#define WORD_STEP (64 / (int)sizeof(uint32_t))

/* The most bytes of a chunk of a gather; of a chunk of a sum; and of those of a sum that a rank sends to all
 * others together; and what a link carries while a chunk is started. Where both ways of a link are in use,
 * a copy with its two words keeps its engine for as long as half a megabyte takes, 5 to 13 us on an H200:
 * long chunks pay. But what lies in host memory on its way should stay in the processor's cache: between
 * two GPUs gathers of 1 GiB made 45 GB/s in chunks of 8 MiB through 16, 41 in chunks of 4 MiB, and in
 * longer ones, or with more slots for them, as few as 34. Ranks that share a GPU share its link, which
 * keeps that traffic low, and a copy engine that waits for words goes over to the other rank. Chunks of
 * sums take memory of the device as well. On a processor a chunk should stay in its cache. */
typedef struct sizes {
    int64_t gather, sum, sums, start;
} sizes;

#define KIB ((int64_t)1 << 10)
#define MIB ((int64_t)1 << 20)

static const sizes on_processors = {256 * KIB, 1 * MIB, 1 * MIB, 512 * KIB};
static const sizes with_own_gpu = {8 * MIB, 8 * MIB, 16 * MIB, 512 * KIB};
static const sizes with_shared_gpu = {16 * MIB, 16 * MIB, 32 * MIB, 1 * MIB};

#define CHUNK_BYTES_MIN (64 * KIB)

static const sizes *sizes_of(const yk_comm *c)
{
    if (yk_device_get_spec(c->o.device)->kind != YK_DEVICE_CUDA) return &on_processors;
    return c->o.shares_gpu ? &with_shared_gpu : &with_own_gpu;
}

static void lay_out_control(hostmem_layout *l)
{
    int64_t n = l->n;
    l->marks = (int64_t)HOSTMEM_N_WORDS * n * n * 64;
    l->values = l->marks + n * 2 * HOSTMEM_N_LANES * 64;
    l->greatest = l->values + 2 * n * (int64_t)sizeof(yk_step_values);
    l->flushed = yk_round_up(l->greatest + 2 * n * (int64_t)sizeof(float), 64);
    l->control_bytes = yk_round_up(l->flushed + n * (int64_t)sizeof(int64_t), PAGE);
}

static void lay_out_part(hostmem_layout *l)
{
    l->sums = (int64_t)(l->n - 1) * HOSTMEM_DEPTH * l->chunk_bytes / 2;
    l->gathers = l->sums + HOSTMEM_DEPTH * l->chunk_bytes / 2;
    l->rank_bytes = yk_round_up(l->gathers + HOSTMEM_DEPTH * l->gather_bytes / 2, PAGE);
    l->segment_bytes = l->control_bytes + l->n * l->rank_bytes;
}

static void lay_out_staging(hostmem_layout *l)
{
    int64_t pair = 2 * l->chunk_bytes;
    l->in = (int64_t)(l->n - 1) * pair;
    l->sum = l->in + (int64_t)l->n * HOSTMEM_ARRIVALS * l->chunk_bytes;
    l->back = l->sum + pair;
    l->values_of_all = l->back + (int64_t)(l->n - 1) * pair;
    l->greatest_of_all =
        l->values_of_all + yk_round_up(l->n * (int64_t)sizeof(yk_step_values), 256);
    l->n_flushed = l->greatest_of_all + yk_round_up((l->n + 1) * (int64_t)sizeof(float), 256);
    l->staging_bytes = l->n_flushed + 256;
}

hostmem_layout yk_hostmem_lay_out(const yk_comm *c)
{
    const sizes *m = sizes_of(c);
    int64_t element = yk_dtype_bytes(c->o.wire), most = yk_div_up(c->o.max_count, c->size);
    int64_t wished = yk_min(m->sum, m->sums / c->size);
    hostmem_layout l = {.n = c->size};
    int64_t chunk = yk_max(wished, CHUNK_BYTES_MIN) / element;
    l.chunk_bytes = yk_round_up(yk_min(chunk, most), 128) * element;
    int64_t gathered = yk_round_up(most * (int64_t)sizeof(float), PAGE);
    l.gather_bytes = yk_max(yk_min(gathered, m->gather), CHUNK_BYTES_MIN);
    lay_out_control(&l);
    lay_out_part(&l);
    lay_out_staging(&l);
    return l;
}

int64_t yk_comm_hostmem_staging_bytes(const yk_comm *c)
{
    return yk_hostmem_lay_out(c).staging_bytes;
}

int64_t yk_comm_hostmem_shared_bytes(const yk_comm *c)
{
    hostmem_layout l = yk_hostmem_lay_out(c);
    return l.rank_bytes + yk_round_up(l.control_bytes / l.n, PAGE);
}

/* A transfer of time T and k chunks, each of which costs some c to start, takes (k + 1) (T / k + c), for the
 * last comes up when it has gone down: least for k = sqrt(T / c). `start` is what travels in c.
 * Chunks of unlike sizes are no better: between two steps of one speed the largest counts, wherever it
 * is. What was measured says how many times as long they should be on this machine. */
static int64_t chunk_of(const yk_comm *c, bool gathers, int64_t bytes, int64_t room)
{
    int64_t least = yk_min(room, CHUNK_BYTES_MIN);
    double best = sqrt((double)bytes * (double)sizes_of(c)->start);
    int doublings = yk_race_doublings(c->o.race, gathers, c->size * bytes);
    best = ldexp(fmin(best, (double)room), doublings);
    return yk_max(yk_min((int64_t)best, room), least);
}

int64_t yk_comm_hostmem_chunk(const yk_comm *c, int64_t count, yk_dtype wire)
{
    hostmem_layout l = yk_hostmem_lay_out(c);
    int64_t element = yk_dtype_bytes(wire);
    int64_t chunk = chunk_of(c, false, count * element, l.chunk_bytes) / element;
    return yk_min(yk_round_up(chunk, 128), l.chunk_bytes / element);
}

int64_t yk_comm_hostmem_gather_chunk(const yk_comm *c, int64_t bytes)
{
    return yk_round_up(chunk_of(c, true, bytes, yk_hostmem_lay_out(c).gather_bytes), 256);
}

/* ---- finding ------------------------------------------------------------------------------ */

uint32_t *yk_hostmem_word(const hostmem_group *g, hostmem_word kind, int from, int to)
{
    int64_t n = g->layout.n;
    return (uint32_t *)(void *)g->segment.memory +
           (((int64_t)kind * n + from) * n + to) * WORD_STEP;
}

static uint32_t *mark(const hostmem_group *g, int rank, int i)
{
    uint32_t *marks = (uint32_t *)(void *)(g->segment.memory + g->layout.marks);
    return marks + ((int64_t)rank * 2 * HOSTMEM_N_LANES + i) * WORD_STEP;
}

uint32_t *yk_hostmem_begun(const hostmem_group *g, int rank, hostmem_lane lane)
{
    return mark(g, rank, 2 * (int)lane);
}

uint32_t *yk_hostmem_ended(const hostmem_group *g, int rank, hostmem_lane lane)
{
    return mark(g, rank, 2 * (int)lane + 1);
}

yk_step_values *yk_hostmem_values(const hostmem_group *g, uint32_t meeting)
{
    return (yk_step_values *)(void *)(g->segment.memory + g->layout.values) +
           meeting % 2 * (uint32_t)g->layout.n;
}

float *yk_hostmem_greatest(const hostmem_group *g, uint32_t meeting)
{
    return (float *)(void *)(g->segment.memory + g->layout.greatest) +
           meeting % 2 * (uint32_t)g->layout.n;
}

int64_t *yk_hostmem_flushed(const hostmem_group *g, int rank)
{
    return (int64_t *)(void *)(g->segment.memory + g->layout.flushed) + rank;
}

char *yk_hostmem_slot(const hostmem_group *g, hostmem_word ready, int from, int to, uint32_t number)
{
    const hostmem_layout *l = &g->layout;
    char *part = g->segment.memory + l->control_bytes + from * l->rank_bytes;
    int64_t slot = number % HOSTMEM_DEPTH;
    if (ready == HOSTMEM_GATHER_READY) return part + l->gathers + slot * l->gather_bytes / 2;
    if (ready == HOSTMEM_SUM_READY) return part + l->sums + slot * l->chunk_bytes / 2;
    int other = (to - from - 1 + l->n) % l->n; /* 0 .. n-2 */
    return part + (other * HOSTMEM_DEPTH + slot) * l->chunk_bytes / 2;
}
