/* comm/race.c - making a group of each backend in turn, and timing it.
 *
 * How long hostmem's chunks should be follows from what a copy costs to start, and from the processor's cache,
 * in which they should stay on their way. Its rule knows of the first alone; so other lengths are tried.
 */
#include "comm/race.h"

#include <math.h>

#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/device/ops.h"

#define CALLS     5
#define MARGIN    0.03 /* two backends take twice the memory: not for less */
#define TIMEOUT_S 60.0
#define STAGING   ((int64_t)256 << 20)
#define NOTABLE   0.02 /* another length of chunks: not for less */

#define LENGTHS 4
static const int doublings[LENGTHS] = {0, -1, 1, -2}; /* that are tried, in this order */

/* Where whole races are run. */
typedef struct course {
    yk_race_track track;
    yk_device *device;
    yk_arena *staging;
    int64_t bytes; /* of the track's buffer */
} course;

static yk_status call(const yk_race_track *t, const yk_race_row *row)
{
    int64_t count = row->count / yk_comm_size(t->comm);
    char *own = (char *)t->buffer + yk_comm_index(t->comm) * count * yk_dtype_bytes(row->dtype);
    switch (row->kind) {
    case YK_RACE_GATHER:
        return yk_comm_all_gather(t->comm, t->buffer, own, count, row->dtype, t->stream);
    case YK_RACE_SCATTER:
        return yk_comm_reduce_scatter(t->comm, own, t->buffer, count, row->dtype, false, t->stream);
    default:
        return yk_comm_all_reduce(t->comm, t->buffer, count, row->dtype, t->stream);
    }
}

/* The best of a few calls, each as long as on the slowest rank. */
static yk_status time_calls(const yk_race_track *t, const yk_race_row *row, double *seconds_out)
{
    int64_t best = INT64_MAX, slowest;
    for (int i = 0; i < CALLS; i++) {
        YK_TRY(yk_world_barrier(t->world));
        int64_t begin = yk_clock_ns();
        YK_TRY(call(t, row));
        YK_TRY(yk_stream_synchronize(t->stream));
        YK_TRY(yk_world_max(t->world, yk_clock_ns() - begin, &slowest));
        best = yk_min(best, slowest);
    }
    *seconds_out = 1e-9 * (double)best;
    return YK_OK;
}

/* The row's length of chunks is that of the group, which has the race. */
yk_status yk_race_time(const yk_race_track *t, yk_race *race, yk_race_row *row, int backend)
{
    bool has_chunks = race->backends[backend] == YK_COMM_HOSTMEM;
    double best = 0, seconds;
    int winner = 0;
    for (int i = 0; i < (has_chunks && race->tries_lengths ? LENGTHS : 1); i++) {
        if (has_chunks) row->doublings = doublings[i];
        YK_TRY(time_calls(t, row, &seconds));
        if (i > 0 && seconds > (1 - NOTABLE) * best) continue;
        best = seconds;
        winner = i;
    }
    row->seconds[backend] = best;
    if (has_chunks) row->doublings = doublings[winner];
    return YK_OK;
}

static yk_status run(course *t, yk_race *race, int backend)
{
    int mark = yk_arena_mark(t->staging);
    YK_TRY(yk_comm_create(&(yk_comm_options){.world = t->track.world,
                                             .device = t->device,
                                             .backend = race->backends[backend],
                                             .axis = race->axis,
                                             .shares_gpu = race->shares_gpu,
                                             .reduce = race->reduce,
                                             .wire = race->wire,
                                             .max_count = yk_race_max_count(race),
                                             .staging = t->staging,
                                             .race = race,
                                             .timeout_s = TIMEOUT_S},
                          &t->track.comm));
    yk_status status = YK_OK;
    for (int i = 0; i < race->n_rows && status == YK_OK; i++)
        status = yk_race_time(&t->track, race, &race->rows[i], backend);
    yk_comm_destroy(t->track.comm);
    yk_arena_pop(t->staging, mark);
    return status;
}

static yk_status open_track(course *t)
{
    void *memory;
    YK_TRY(yk_stream_create(t->device, YK_STREAM_TRANSFER, "race", &t->track.stream));
    YK_TRY(yk_arena_create(t->device, "race", YK_MEMORY_DEVICE, STAGING, 0, &t->staging));
    YK_TRY(yk_device_alloc(t->device, YK_MEMORY_DEVICE, t->bytes, &memory));
    t->track.buffer = memory;
    YK_TRY(yk_zero(t->track.stream, t->track.buffer, t->bytes));
    return yk_stream_synchronize(t->track.stream);
}

static void close_track(course *t)
{
    yk_device_free(t->device, YK_MEMORY_DEVICE, t->bytes, t->track.buffer);
    yk_arena_destroy(t->staging);
    yk_stream_destroy(t->track.stream);
}

const char *yk_race_name(const yk_race *r, int i)
{
    static const char *const names[] = {
        [YK_COMM_AUTO] = "auto",
        [YK_COMM_MPI] = "mpi",
        [YK_COMM_NCCL] = "nccl",
        [YK_COMM_HOSTMEM] = "hostmem",
    };
    return names[r->backends[i]];
}

const char *yk_race_kind_name(yk_race_kind kind)
{
    static const char *const names[YK_RACE_N_KINDS] = {
        [YK_RACE_GATHER] = "all-gather",
        [YK_RACE_SCATTER] = "reduce-scatter",
        [YK_RACE_ALL_REDUCE] = "all-reduce",
    };
    return names[kind];
}

int64_t yk_race_max_count(const yk_race *r)
{
    int64_t most = 0;
    for (int i = 0; i < r->n_rows; i++)
        if (r->rows[i].kind != YK_RACE_GATHER) most = yk_max(most, r->rows[i].count);
    return most;
}

int64_t yk_race_max_bytes(const yk_race *r)
{
    int64_t most = 0;
    for (int i = 0; i < r->n_rows; i++)
        most = yk_max(most, r->rows[i].count * yk_dtype_bytes(r->rows[i].dtype));
    return most;
}

int yk_race_doublings(const yk_race *r, bool gathers, int64_t bytes)
{
    double nearest = INFINITY;
    int found = 0;
    for (int i = 0; r && i < r->n_rows; i++) {
        const yk_race_row *row = &r->rows[i];
        double ratio = (double)bytes / (double)(row->count * yk_dtype_bytes(row->dtype));
        double far = fmax(ratio, 1 / ratio);
        if ((row->kind == YK_RACE_GATHER) != gathers || far >= nearest) continue;
        nearest = far;
        found = row->doublings;
    }
    return found;
}

static double step_s(const yk_race *r, int backend, bool gathers)
{
    double total = 0;
    for (int i = 0; i < r->n_rows; i++)
        if ((r->rows[i].kind == YK_RACE_GATHER) == gathers)
            total += r->rows[i].calls * r->rows[i].seconds[backend];
    return total;
}

double yk_race_gathers_s(const yk_race *r, int i)
{
    return step_s(r, i, true);
}

double yk_race_sums_s(const yk_race *r, int i)
{
    return step_s(r, i, false);
}

static int least(const double *seconds, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (seconds[i] < seconds[best]) best = i;
    return best;
}

void yk_race_judge(yk_race *r)
{
    double gathers[YK_RACE_MAX], sums[YK_RACE_MAX], both[YK_RACE_MAX];
    for (int i = 0; i < r->n_backends; i++) {
        gathers[i] = yk_race_gathers_s(r, i);
        sums[i] = yk_race_sums_s(r, i);
        both[i] = gathers[i] + sums[i];
    }
    int one = least(both, r->n_backends);
    r->gathers = least(gathers, r->n_backends);
    r->sums = least(sums, r->n_backends);
    if (gathers[r->gathers] + sums[r->sums] > (1 - MARGIN) * both[one]) r->gathers = r->sums = one;
}

yk_status yk_comm_race(yk_world *world, yk_device *device, yk_race *race)
{
    YK_CHECK(race->n_backends >= 1 && race->n_backends <= YK_RACE_MAX);
    YK_CHECK(race->n_rows >= 1 && race->n_rows <= YK_RACE_ROWS);
    course t = {.track.world = world, .device = device, .bytes = yk_race_max_bytes(race)};
    yk_race r = *race;
    yk_status status = open_track(&t);
    int64_t all = 0, mine = status == YK_OK;
    if (yk_world_min(world, mine, &all) != YK_OK || !all)
        status = status == YK_OK ? YK_ENOMEM : status;
    for (int i = 0; i < r.n_backends && status == YK_OK; i++) status = run(&t, &r, i);
    close_track(&t);
    yk_race_judge(&r);
    if (status == YK_OK) *race = r;
    return status;
}
