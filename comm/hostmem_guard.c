/* comm/hostmem_guard.c - the thread that looks whether streams wait in vain.
 *
 * Nobody can ask a stream what it waits for, but a rank's begins and ends of collectives and all chunks
 * that have been written and taken are words in the segment. While a collective has begun here and has
 * not ended, and no word of its lane moves, time counts; when it is the group's deadline, the rank that
 * is furthest behind is named, the group and the device fail, and the words that this rank's streams
 * may wait for are written, again and again until the group is released: a rank that was late after all
 * may still write smaller ones. Only this rank waits for those words.
 */
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/hostmem.h"
#include "comm/world_mpi.h"
#include "runtime/base/clock.h"
#include "runtime/base/side_thread.h"

#define INTERVAL_MS 20
#define LOOK_MAX_S  0.5 /* what a look counts for: more, and this process was stopped */
#define FAR         ((uint32_t)1 << 30) /* beyond every number that a stream may wait for */

/* The first word of each lane; a lane's last is before the next one's. */
static const hostmem_word first_word[HOSTMEM_N_LANES + 1] = {
    [HOSTMEM_LANE_REDUCE] = HOSTMEM_PART_READY,
    [HOSTMEM_LANE_GATHER] = HOSTMEM_GATHER_READY,
    [HOSTMEM_LANE_VALUES] = HOSTMEM_MET_VALUES,
    [HOSTMEM_LANE_SHELF] = HOSTMEM_N_WORDS, /* begins and ends tell enough */
    [HOSTMEM_N_LANES] = HOSTMEM_N_WORDS,
};

typedef struct watch {
    uint32_t sum; /* of the lane's words, at the last look */
    double still_s;
} watch;

static uint32_t read_word(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Number of the collective that a rank is at, and how much it has written of it. */
static uint32_t progress_of(const hostmem_group *g, hostmem_lane lane, int rank)
{
    uint32_t sum =
        read_word(yk_hostmem_begun(g, rank, lane)) + read_word(yk_hostmem_ended(g, rank, lane));
    for (int w = (int)first_word[lane]; w < (int)first_word[lane + 1]; w++)
        for (int q = 0; q < g->layout.n; q++)
            sum += read_word(yk_hostmem_word(g, (hostmem_word)w, rank, q)) +
                   read_word(yk_hostmem_word(g, (hostmem_word)w, q, rank));
    return sum;
}

static uint32_t progress_of_all(const hostmem_group *g, hostmem_lane lane)
{
    uint32_t sum = 0;
    for (int r = 0; r < g->layout.n; r++) sum += progress_of(g, lane, r);
    return sum;
}

static bool is_waiting(const yk_comm *c, const hostmem_group *g, hostmem_lane lane)
{
    return read_word(yk_hostmem_begun(g, c->index, lane)) !=
           read_word(yk_hostmem_ended(g, c->index, lane));
}

/* The rank that has not come to the collective, else the one that has written least of it. */
static int find_late(const yk_comm *c, const hostmem_group *g, hostmem_lane lane)
{
    int late = -1;
    for (int r = 0; r < c->size; r++) {
        if (r == c->index) continue;
        if (late < 0) late = r;
        int32_t begun = (int32_t)(read_word(yk_hostmem_begun(g, r, lane)) -
                                  read_word(yk_hostmem_begun(g, late, lane)));
        int32_t done = (int32_t)(progress_of(g, lane, r) - progress_of(g, lane, late));
        if (begun < 0 || (begun == 0 && done < 0)) late = r;
    }
    return late;
}

/* The words that only this rank's streams wait for: what others have written and taken. */
static uint32_t *awaited_word(const yk_comm *c, const hostmem_group *g, int kind, int rank)
{
    bool taken =
        kind == HOSTMEM_PART_TAKEN || kind == HOSTMEM_SUM_TAKEN || kind == HOSTMEM_GATHER_TAKEN;
    return yk_hostmem_word(g, (hostmem_word)kind, taken ? c->index : rank, taken ? rank : c->index);
}

/* Choose what to release the words with. */
static void look_far(const yk_comm *c, hostmem_group *g)
{
    for (int w = 0; w < HOSTMEM_N_WORDS; w++)
        for (int q = 0; q < c->size; q++)
            g->far[w * c->size + q] = read_word(awaited_word(c, g, w, q)) + FAR;
}

static void release(const yk_comm *c, const hostmem_group *g)
{
    for (int w = 0; w < HOSTMEM_N_WORDS; w++)
        for (int q = 0; q < c->size; q++)
            if (q != c->index)
                __atomic_store_n(awaited_word(c, g, w, q), g->far[w * c->size + q],
                                 __ATOMIC_RELEASE);
    yk_hostmem_release_shelf(c, g);
}

static yk_status fail_late(const yk_comm *c, const hostmem_group *g, hostmem_lane lane,
                           double timeout_s)
{
    static const char *const names[] = {"reduction", "gather", "meeting of ranks", "gather"};
    return yk_fail(
        YK_ETIMEDOUT, names[lane],
        "rank %d did not arrive within %.3g s; it has died, hangs or is slow; give a slow one more "
        "time with comm.timeout",
        c->ranks[find_late(c, g, lane)], timeout_s);
}

static double deadline_s(const yk_comm *c)
{
    return c->o.timeout_s > 0 ? c->o.timeout_s : c->o.world->timeout_s;
}

/* Let time pass for a lane; YK_OK unless its ranks are late. */
static yk_status look_at(const yk_comm *c, const hostmem_group *g, hostmem_lane lane, double dt,
                         watch *w)
{
    uint32_t sum = progress_of_all(g, lane);
    bool is_still = is_waiting(c, g, lane) && sum == w->sum;
    w->still_s = is_still ? w->still_s + dt : 0;
    w->sum = sum;
    double timeout_s = deadline_s(c);
    return timeout_s > 0 && w->still_s > timeout_s ? fail_late(c, g, lane, timeout_s) : YK_OK;
}

/* What is wrong with the group, or with the whole run. */
static yk_status look(const yk_comm *c, const hostmem_group *g, double dt, watch *lanes)
{
    yk_status status = c->o.world->failed;
    for (int lane = 0; lane < HOSTMEM_N_LANES && status == YK_OK; lane++)
        status = look_at(c, g, (hostmem_lane)lane, dt, &lanes[lane]);
    return status;
}

/* A GPU's streams do not tell the time: what they are busy with at a look counts since the last. */
static void count_busy(yk_comm *c, const hostmem_group *g, double dt)
{
    if (yk_device_get_kind(c->o.device) != YK_DEVICE_CUDA) return;
    for (int lane = 0; lane < HOSTMEM_N_LANES; lane++)
        if (is_waiting(c, g, (hostmem_lane)lane))
            atomic_fetch_add(&c->busy_ns, (int64_t)(dt * 1e9));
}

static void *guard(void *context)
{
    yk_comm *c = context;
    hostmem_group *g = yk_hostmem_of(c);
    watch lanes[HOSTMEM_N_LANES] = {{0}};
    double looked = yk_clock_s();
    struct pollfd wake = {g->wake, POLLIN, 0};
    while (poll(&wake, 1, INTERVAL_MS) <= 0) {
        double dt = yk_clock_s() - looked;
        looked += dt;
        if (atomic_load(&c->failed)) {
            release(c, g);
            continue;
        }
        count_busy(c, g, dt);
        yk_status status = look(c, g, dt < LOOK_MAX_S ? dt : LOOK_MAX_S, lanes);
        if (status == YK_OK) continue;
        look_far(c, g);
        atomic_store(&c->failed, (int)status);
        c->o.world->failed = status;
        yk_device_fail(c->o.device, status);
        release(c, g);
    }
    return NULL;
}

yk_status yk_hostmem_guard_start(yk_comm *c, hostmem_group *g)
{
    g->wake = eventfd(0, EFD_CLOEXEC);
    if (g->wake < 0) return yk_fail(YK_ENOMEM, "group", "no descriptor for its guard");
    if (yk_side_thread_start(&g->guard, guard, c) != 0)
        return yk_fail(YK_ENOMEM, "group", "no thread for its guard");
    g->is_guarded = true;
    return YK_OK;
}

void yk_hostmem_guard_stop(hostmem_group *g)
{
    if (g->is_guarded) {
        uint64_t one = 1;
        YK_CHECK(write(g->wake, &one, sizeof one) == sizeof one);
        pthread_join(g->guard, NULL);
    }
    if (g->wake >= 0) close(g->wake);
}
