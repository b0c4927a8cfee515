/* comm/race.c - making a group of each backend in turn, and timing it. */
#include "comm/race.h"

#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/device/ops.h"

#define CALLS     5
#define MARGIN    0.03 /* two backends take twice the memory: not for less */
#define TIMEOUT_S 60.0
#define STAGING   ((int64_t)192 << 20)

typedef struct track {
    yk_world *world;
    yk_device *device;
    yk_stream *stream;
    yk_arena *staging;
    char *buffer; /* (bytes) */
    int64_t bytes;
    yk_dtype wire;
    yk_comm *comm;
} track;

static yk_status call(const track *t, bool gathers)
{
    int64_t count = t->bytes / yk_dtype_bytes(t->wire) / yk_comm_size(t->comm);
    char *own = t->buffer + yk_comm_index(t->comm) * count * yk_dtype_bytes(t->wire);
    if (gathers) return yk_comm_all_gather(t->comm, t->buffer, own, count, t->wire, t->stream);
    return yk_comm_reduce_scatter(t->comm, own, t->buffer, count, t->wire, false, t->stream);
}

/* The best of a few calls, each as long as on the slowest rank. */
static yk_status time_calls(const track *t, bool gathers, double *seconds_out)
{
    int64_t best = INT64_MAX, slowest;
    for (int i = 0; i < CALLS; i++) {
        YK_TRY(yk_world_barrier(t->world));
        int64_t begin = yk_clock_ns();
        YK_TRY(call(t, gathers));
        YK_TRY(yk_stream_synchronize(t->stream));
        YK_TRY(yk_world_max(t->world, yk_clock_ns() - begin, &slowest));
        best = yk_min(best, slowest);
    }
    *seconds_out = 1e-9 * (double)best;
    return YK_OK;
}

static yk_status run(track *t, yk_comm_choice backend, double *gather_s, double *reduce_s)
{
    int mark = yk_arena_mark(t->staging);
    YK_TRY(yk_comm_create(&(yk_comm_options){.world = t->world,
                                             .device = t->device,
                                             .backend = backend,
                                             .axis = YK_AXIS_WORLD,
                                             .reduce = YK_REDUCE_EXACT,
                                             .wire = t->wire,
                                             .max_count = t->bytes / yk_dtype_bytes(t->wire),
                                             .staging = t->staging,
                                             .timeout_s = TIMEOUT_S},
                          &t->comm));
    yk_status status = time_calls(t, true, gather_s);
    if (status == YK_OK) status = time_calls(t, false, reduce_s);
    yk_comm_destroy(t->comm);
    yk_arena_pop(t->staging, mark);
    return status;
}

static yk_status open_track(track *t)
{
    void *memory;
    YK_TRY(yk_stream_create(t->device, YK_STREAM_TRANSFER, "race", &t->stream));
    YK_TRY(yk_arena_create(t->device, "race", YK_MEMORY_DEVICE, STAGING, 0, &t->staging));
    YK_TRY(yk_device_alloc(t->device, YK_MEMORY_DEVICE, t->bytes, &memory));
    t->buffer = memory;
    YK_TRY(yk_zero(t->stream, t->buffer, t->bytes));
    return yk_stream_synchronize(t->stream);
}

static void close_track(track *t)
{
    yk_device_free(t->device, YK_MEMORY_DEVICE, t->bytes, t->buffer);
    yk_arena_destroy(t->staging);
    yk_stream_destroy(t->stream);
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

static int least(const double *seconds, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (seconds[i] < seconds[best]) best = i;
    return best;
}

void yk_race_judge(yk_race *r)
{
    double both[YK_RACE_MAX];
    for (int i = 0; i < r->n_backends; i++) both[i] = r->gather_s[i] + r->reduce_s[i];
    int one = least(both, r->n_backends);
    r->gathers = least(r->gather_s, r->n_backends);
    r->sums = least(r->reduce_s, r->n_backends);
    if (r->gather_s[r->gathers] + r->reduce_s[r->sums] > (1 - MARGIN) * both[one])
        r->gathers = r->sums = one;
}

yk_status yk_comm_race(yk_world *world, yk_device *device, const yk_comm_choice *backends,
                       int n_backends, yk_dtype wire, int64_t bytes, yk_race *race_out)
{
    YK_CHECK(n_backends >= 1 && n_backends <= YK_RACE_MAX);
    int64_t unit = 128 * yk_dtype_bytes(wire) * yk_world_size(world);
    track t = {.world = world, .device = device, .wire = wire, .bytes = yk_round_up(bytes, unit)};
    yk_race race = {.n_backends = n_backends, .bytes = t.bytes};
    yk_status status = open_track(&t);
    int64_t all = 0, mine = status == YK_OK;
    if (yk_world_min(world, mine, &all) != YK_OK || !all)
        status = status == YK_OK ? YK_ENOMEM : status;
    for (int i = 0; i < n_backends && status == YK_OK; i++) {
        race.backends[i] = backends[i];
        status = run(&t, backends[i], &race.gather_s[i], &race.reduce_s[i]);
    }
    close_track(&t);
    yk_race_judge(&race);
    if (status == YK_OK) *race_out = race;
    return status;
}
