/* comm/watchdog.c - notes, the watching thread, and its life; what it sees is judged in
 * watchdog_look.c and watchdog_slow.c, and ends the run in watchdog_leave.c. */
#include "comm/watchdog.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/watchdog_parts.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/side_thread.h"

#define INTERVAL_MS 100
#define DT_MAX_S    0.5 /* what a look counts for at most: this process itself may have stood still */
#define QUIET_S     5.0 /* after it did */
#define FAREWELL_S  5.0

/* ---- notes -------------------------------------------------------------------------------- */

void yk_watchdog_note(yk_watchdog *w, yk_phase phase, int unit)
{
    if (!w) return;
    int64_t place = YK_PLACE(w->step, phase, unit < 0 ? YK_PLACE_NO_UNIT : unit);
    atomic_store_explicit(&w->own->place, place, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->own->notes, 1, memory_order_relaxed);
}

void yk_watchdog_step(yk_watchdog *w, int64_t step)
{
    if (w) w->step = step;
}

void yk_watchdog_computed(yk_watchdog *w, int64_t step, double seconds)
{
    if (!w) return;
    int64_t us = yk_min((int64_t)(seconds * 1e6), UINT32_MAX);
    atomic_store(&w->own->computed[step % YK_BEAT_STEPS], step << 32 | us);
    atomic_store(&w->own->settled, 1);
}

void yk_watchdog_suspect(yk_watchdog *w)
{
    if (w) atomic_store(&w->suspects, true);
}

/* ---- the thread --------------------------------------------------------------------------- */

static void *watch(void *context)
{
    yk_watchdog *w = context;
    w->looked_s = yk_clock_s();
    while (!atomic_load(&w->stops)) {
        int rank = 0;
        yk_watchdog_wait(w, INTERVAL_MS);
        double dt = yk_clock_s() - w->looked_s;
        w->looked_s += dt;
        if (dt > YK_WATCHDOG_STILL_S) w->quiet_until_s = w->looked_s + QUIET_S;
        atomic_fetch_add(&w->own->ticks, 1);
        yk_beats_exchange(w->beats, false);
        yk_watchdog_age(w, fmin(dt, DT_MAX_S));
        yk_fault f = yk_watchdog_find_fault(w, &rank);
        if (f != YK_FAULT_NONE) yk_watchdog_leave(w, rank, f);
        if (w->world->rank == 0) yk_watchdog_find_slow(w);
    }
    return NULL;
}

/* ---- life --------------------------------------------------------------------------------- */

/* All processes, so that each can be named before it was heard of. */
static yk_status write_processes(yk_watchdog *w)
{
    int64_t mine = getpid(), *all = w->times;
    YK_TRY(yk_world_gather(w->world, &mine, sizeof mine, all));
    for (int r = 0; r < w->world->size; r++) {
        atomic_store(&yk_beats_row(w->beats, r)->pid, all[r]);
        atomic_store(&yk_beats_row(w->beats, r)->place,
                     YK_PLACE(0, YK_PHASE_START, YK_PLACE_NO_UNIT));
    }
    return yk_world_barrier(w->world);
}

static yk_status create(yk_watchdog *w)
{
    size_t n = (size_t)w->world->size;
    w->seen = calloc(n, sizeof *w->seen);
    w->polled = calloc(n + 1, sizeof *w->polled);
    w->times = calloc(2 * n, sizeof *w->times);
    w->wake = eventfd(0, EFD_CLOEXEC);
    if (!w->seen || !w->polled || !w->times || w->wake < 0)
        return yk_fail(YK_ENOMEM, "watchdog", "no memory or descriptor for it");
    YK_TRY(yk_beats_create(w->world, &w->beats));
    w->own = yk_beats_row(w->beats, w->world->rank);
    return write_processes(w);
}

/* Get hold of the processes of this cell. Where the system refuses, their silence will tell. */
static void find_processes(yk_watchdog *w)
{
    int mine = yk_beats_cell(w->beats, w->world->rank);
    for (int r = 0; r < w->world->size; r++) {
        w->seen[r].pidfd = -1;
        if (r == w->world->rank || yk_beats_cell(w->beats, r) != mine) continue;
        long pid = (long)atomic_load(&yk_beats_row(w->beats, r)->pid);
        w->seen[r].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    }
}

static void destroy(yk_watchdog *w)
{
    for (int r = 0; w->seen && r < w->world->size; r++)
        if (w->seen[r].pidfd > 0) close(w->seen[r].pidfd);
    if (w->wake >= 0) close(w->wake);
    yk_beats_destroy(w->beats);
    free(w->times);
    free(w->polled);
    free(w->seen);
    free(w);
}

yk_status yk_watchdog_start(yk_world *world, double timeout_s, yk_watchdog **watchdog_out)
{
    if (!world || yk_world_size(world) == 1) return YK_OK;
    yk_watchdog *w = calloc(1, sizeof *w);
    if (!w) return yk_fail(YK_ENOMEM, "watchdog", "no memory for it");
    *w = (yk_watchdog){.world = world,
                       .timeout_s = timeout_s,
                       .start_timeout_s = fmax(timeout_s, YK_WORLD_TIMEOUT_S),
                       .wake = -1};
    yk_status status = create(w);
    if (status == YK_OK) {
        find_processes(w);
        if (yk_side_thread_start(&w->thread, watch, w) != 0)
            status = yk_fail(YK_ENOMEM, "watchdog", "no thread for it");
    }
    if (status != YK_OK) {
        destroy(w);
        return status;
    }
    *watchdog_out = w;
    return YK_OK;
}

/* Nothing may be under way when the others are gone. */
static void say_farewell(yk_watchdog *w)
{
    for (double begin = yk_clock_s(); yk_clock_s() - begin < FAREWELL_S; yk_watchdog_sleep(1e-3)) {
        yk_beats_exchange(w->beats, true);
        if (yk_beats_are_done(w->beats)) return;
    }
}

void yk_watchdog_stop(yk_watchdog *w, yk_status status, bool alone)
{
    if (!w) return;
    if (alone && (status == YK_EPEER || status == YK_ETIMEDOUT))
        yk_watchdog_sleep(2 * YK_WATCHDOG_LAST_WORD_S + 1);
    if (alone) w->world->failed = status; /* nobody is waited for in what comes */
    if (alone) atomic_store(&w->own->code, yk_status_exit_code(status));
    if (alone) atomic_store(&w->own->state, YK_BEAT_FAILED);
    if (alone) yk_watchdog_sleep(3.0 * INTERVAL_MS / 1000); /* let it be heard of */
    bool meets = !alone && yk_world_barrier(w->world) == YK_OK;
    atomic_store(&w->stops, true);
    if (write(w->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0) yk_watchdog_sleep(INTERVAL_MS * 1e-3);
    pthread_join(w->thread, NULL);
    if (meets) say_farewell(w);
    destroy(w);
}
