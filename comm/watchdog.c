/* comm/watchdog.c - the watching thread: judging rows, saying the verdict, leaving. */
#include "comm/watchdog.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/heartbeats.h"
#include "comm/world_mpi.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/side_thread.h"

#define INTERVAL_MS 100
#define DT_MAX_S    0.5 /* what a look counts for at most: this process itself may have stood still */
#define SUSPECT_S   1.0 /* of silence, when mpirun ends the run: it kills all in twice that time */
#define ENDING_S    5.0 /* that it does so is believed for so long */
#define LAST_WORD_S 0.2 /* for other nodes to hear of it */
#define OTHERS_S    1.0 /* for those to say it who know it better */
#define MATES_S     0.4 /* the same, when mpirun ends the run */
#define END_S       0.3
#define HEARD_S     1.0 /* a first rank that is silent for longer brings no news of other cells */
#define FAREWELL_S  5.0
#define STILL_S                                                                                    \
    1.0 /* without a look: this process stood still, and for QUIET_S knows less than others */
#define QUIET_S     5.0
#define SLOW_FACTOR 1.5
#define SLOW_MIN_US 1000 /* and so much longer than the median */
#define SLOW_STEPS  10
#define SLOW_LOST_US                                                                               \
    250000 /* that all these steps lost; less is a moment that something else had the processor */

/* A place in one word. */
#define NO_UNIT         0xffff
#define PLACE(s, p, u)  ((int64_t)(s) << 24 | (int64_t)(p) << 16 | (int64_t)(u))
#define PLACE_STEP(at)  ((at) >> 24)
#define PLACE_PHASE(at) ((int)((at) >> 16 & 0xff))
#define PLACE_UNIT(at)  ((int)((at)&0xffff))

typedef enum fault {
    FINE,
    FAILED, /* it says so itself */
    GONE,
    SILENT, /* its process stands still */
    LATE,   /* its work does */
} fault;

/* What this process has seen of a rank. */
typedef struct seen {
    int64_t ticks, notes;
    double silent_s; /* since a tick */
    double behind_s; /* since a note, while others were further */
    int pidfd;       /* of a process of this cell; -1: none */
    int n_slow;      /* steps in a row */
    int64_t lost_us; /* in those */
    bool is_named;
} seen;

struct yk_watchdog {
    yk_world *world;
    yk_beats *beats;
    yk_beat *own;
    double timeout_s, start_timeout_s;
    int64_t step;          /* of the thread that takes notes */
    seen *seen;            /* (size) */
    struct pollfd *polled; /* (size + 1): wake, then those of `seen` that have one */
    int64_t *times;        /* (2 * size) of a step */
    int64_t judged;        /* steps below are judged for slowness */
    double looked_s, quiet_until_s, ending_until_s;
    int wake;
    atomic_bool stops, suspects;
    pthread_t thread;
};

static void sleep_s(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)(fmod(s, 1) * 1e9)}, NULL);
}

/* ---- notes -------------------------------------------------------------------------------- */

void yk_watchdog_note(yk_watchdog *w, yk_phase phase, int unit)
{
    if (!w) return;
    int64_t place = PLACE(w->step, phase, unit < 0 ? NO_UNIT : unit);
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

/* ---- looking ------------------------------------------------------------------------------ */

static int64_t most_notes(const yk_watchdog *w)
{
    int64_t most = 0;
    for (int r = 0; r < w->world->size; r++)
        most = yk_max(most, atomic_load(&yk_beats_row(w->beats, r)->notes));
    return most;
}

/* Let what does not move grow older. */
static void age(yk_watchdog *w, double dt)
{
    int64_t most = most_notes(w);
    for (int r = 0; r < w->world->size; r++) {
        seen *s = &w->seen[r];
        const yk_beat *row = yk_beats_row(w->beats, r);
        int64_t ticks = atomic_load(&row->ticks), notes = atomic_load(&row->notes);
        s->silent_s = ticks != s->ticks ? 0 : s->silent_s + dt;
        s->behind_s = notes != s->notes || notes >= most ? 0 : s->behind_s + dt;
        s->ticks = ticks;
        s->notes = notes;
    }
}

/* Has mpirun begun to end the run, as it does when a rank has died? It sends SIGCONT at once, SIGTERM a
 * second later and SIGKILL another second later. A process that stood still may have been woken by
 * anybody. */
static bool was_asked(yk_watchdog *w)
{
    sigset_t pending, woken;
    sigemptyset(&woken);
    sigaddset(&woken, SIGCONT);
    if (sigtimedwait(&woken, NULL, &(struct timespec){0, 0}) == SIGCONT &&
        w->looked_s > w->quiet_until_s)
        w->ending_until_s = w->looked_s + ENDING_S;
    sigpending(&pending);
    if (sigismember(&pending, SIGTERM)) atomic_store(&w->suspects, true);
    return atomic_load(&w->suspects) || w->looked_s < w->ending_until_s;
}

/* How long a rank may stay where it is while others wait. */
static double limit_s(const yk_watchdog *w, const yk_beat *row)
{
    bool may_be_long =
        !atomic_load(&row->settled) || PLACE_PHASE(atomic_load(&row->place)) == YK_PHASE_SAVE;
    return may_be_long ? w->start_timeout_s : w->timeout_s;
}

/* Is what this process has of other cells fresh? It comes by the first rank of its own. */
static bool hears_others(const yk_watchdog *w)
{
    int first = yk_beats_cell(w->beats, w->world->rank);
    return first == w->world->rank || w->seen[first].silent_s < HEARD_S;
}

static fault judge(yk_watchdog *w, int r, bool asked)
{
    const yk_beat *row = yk_beats_row(w->beats, r);
    const seen *s = &w->seen[r];
    bool is_near = yk_beats_cell(w->beats, r) == yk_beats_cell(w->beats, w->world->rank);
    if (atomic_load(&row->state) == YK_BEAT_FAILED) return FAILED;
    if (atomic_load(&row->state) == YK_BEAT_GONE) return GONE;
    if (!is_near && !hears_others(w)) return FINE;
    if (r == w->world->rank) return s->behind_s > limit_s(w, row) ? LATE : FINE;
    if (asked && !is_near && s->silent_s > SUSPECT_S) return GONE;
    if (s->silent_s > w->timeout_s) return SILENT;
    return s->behind_s > limit_s(w, row) ? LATE : FINE;
}

/* Does a rank's process seem to stand still? It will show, or pass; others that wait for it look late. */
static bool is_any_still(const yk_watchdog *w)
{
    for (int r = 0; r < w->world->size; r++)
        if (r != w->world->rank && w->seen[r].silent_s > HEARD_S) return true;
    return false;
}

/* The worst fault there is, and whose; of ranks that are late the one that is furthest behind. */
static fault find_fault(yk_watchdog *w, int *rank_out)
{
    bool asked = was_asked(w);
    fault worst = FINE;
    for (int r = 0; r < w->world->size; r++) {
        fault f = judge(w, r, asked);
        if (f == FINE) continue;
        bool better = worst == FINE || f < worst;
        if (f == LATE && worst == LATE) better = w->seen[r].notes < w->seen[*rank_out].notes;
        if (!better) continue;
        worst = f;
        *rank_out = r;
    }
    return worst == LATE && is_any_still(w) ? FINE : worst;
}

/* Sleep until it is time to look, something is asked for, or a process of this cell ends. */
static void wait_and_watch(yk_watchdog *w, int timeout_ms)
{
    int n = 1;
    w->polled[0] = (struct pollfd){w->wake, POLLIN, 0};
    for (int r = 0; r < w->world->size; r++)
        if (w->seen[r].pidfd >= 0) w->polled[n++] = (struct pollfd){w->seen[r].pidfd, POLLIN, 0};
    if (poll(w->polled, (nfds_t)n, timeout_ms) <= 0) return;
    for (int r = 0, i = 1; r < w->world->size; r++) {
        if (w->seen[r].pidfd < 0 || !w->polled[i++].revents) continue;
        yk_beat *row = yk_beats_row(w->beats, r);
        int64_t runs = YK_BEAT_RUNS;
        atomic_compare_exchange_strong(&row->state, &runs, YK_BEAT_GONE);
        close(w->seen[r].pidfd);
        w->seen[r].pidfd = -1;
    }
}

/* ---- slow ranks --------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Microseconds that all ranks computed in a step; 0: not all have, or it is too long ago. */
static bool read_times(const yk_watchdog *w, int64_t step, bool *is_over_out)
{
    for (int r = 0; r < w->world->size; r++) {
        int64_t word = atomic_load(&yk_beats_row(w->beats, r)->computed[step % YK_BEAT_STEPS]);
        if (!word || word >> 32 < step) return false;
        if (word >> 32 > step) *is_over_out = true;
        w->times[r] = word & UINT32_MAX;
    }
    return true;
}

static void name_slow(yk_watchdog *w, int r, int64_t step, int64_t us, int64_t median)
{
    w->seen[r].is_named = true;
    yk_warn(
        "slow rank",
        "rank %d (process %lld on %s) computes %.1f times as long as the median rank, for %d steps "
        "up to step %lld: %.1f ms against %.1f ms; see what else runs there, or whether its "
        "processor "
        "or GPU is throttled",
        r, (long long)atomic_load(&yk_beats_row(w->beats, r)->pid), yk_world_host(w->world, r),
        (double)us / (double)median, w->seen[r].n_slow, (long long)step, 1e-3 * (double)us,
        1e-3 * (double)median);
}

/* A rank's time for a step, beside the median's. */
static void judge_time(yk_watchdog *w, int r, int64_t step, int64_t us, int64_t median)
{
    seen *s = &w->seen[r];
    if (us - median <= SLOW_MIN_US || (double)us <= SLOW_FACTOR * (double)median) {
        s->n_slow = 0;
        s->lost_us = 0;
        return;
    }
    s->n_slow++;
    s->lost_us += us - median;
    if (s->n_slow >= SLOW_STEPS && s->lost_us >= SLOW_LOST_US && !s->is_named)
        name_slow(w, r, step, us, median);
}

/* Judge steps that are over on all ranks. The first one is left out. */
static void find_slow(yk_watchdog *w)
{
    int n = w->world->size;
    int64_t *sorted = w->times + n;
    for (bool is_over = false;; w->judged++, is_over = false) {
        if (!read_times(w, w->judged, &is_over)) return;
        if (is_over || w->judged == 0) continue;
        for (int r = 0; r < n; r++) sorted[r] = w->times[r];
        qsort(sorted, (size_t)n, sizeof *sorted, compare_times);
        for (int r = 0; r < n; r++) judge_time(w, r, w->judged, w->times[r], sorted[(n - 1) / 2]);
    }
}

/* ---- the verdict -------------------------------------------------------------------------- */

/* A unit's number, or nothing. */
static void write_place(const yk_beat *row, char text_out[96])
{
    static const char *const phases[] = {
        [YK_PHASE_START] = "the start",
        [YK_PHASE_DATA] = "waiting for data",
        [YK_PHASE_FORWARD] = "the forward pass",
        [YK_PHASE_BACKWARD] = "the backward pass",
        [YK_PHASE_REDUCE] = "the reduction",
        [YK_PHASE_UPDATE] = "the update",
        [YK_PHASE_END] = "its end",
        [YK_PHASE_EVALUATE] = "an evaluation",
        [YK_PHASE_SAVE] = "saving",
    };
    int64_t at = atomic_load(&row->place);
    char unit[32] = "";
    if (PLACE_UNIT(at) != NO_UNIT) snprintf(unit, sizeof unit, " of unit %d", PLACE_UNIT(at));
    if (PLACE_PHASE(at) == YK_PHASE_START)
        snprintf(text_out, 96, "before the first step");
    else
        snprintf(text_out, 96, "in step %lld, %s%s", (long long)PLACE_STEP(at),
                 phases[PLACE_PHASE(at)], unit);
}

static void say(const yk_watchdog *w, int r, fault f)
{
    char what[32], where[96];
    const yk_beat *row = yk_beats_row(w->beats, r);
    const char *host = yk_world_host(w->world, r);
    long long pid = atomic_load(&row->pid);
    snprintf(what, sizeof what, "rank %d", r);
    write_place(row, where);
    if (f == GONE)
        yk_fail(
            YK_EPEER, what,
            "its process %lld on %s has died %s; look for its last words above and, if there are "
            "none, for a lack of memory in the system's log (dmesg), then start the run again",
            pid, host, where);
    else if (f == SILENT)
        yk_fail(
            YK_ETIMEDOUT, what,
            "its process %lld on %s has not stirred for %.3g s, %s; it was stopped, or its machine "
            "or network was; start the run again, with a greater comm.timeout if that is usual",
            pid, host, w->timeout_s, where);
    else
        yk_fail(
            YK_ETIMEDOUT, what,
            "its process %lld on %s has not gone on for %.3g s while others wait for it, %s; it "
            "hangs or is slow; give a slow one more time with comm.timeout",
            pid, host, limit_s(w, row), where);
}

static bool has_life(const yk_watchdog *w, int cell)
{
    for (int r = 0; r < w->world->size; r++) {
        bool lives = r == w->world->rank || w->seen[r].silent_s < HEARD_S;
        bool gone = atomic_load(&yk_beats_row(w->beats, r)->state) == YK_BEAT_GONE;
        if (yk_beats_cell(w->beats, r) == cell && lives && !gone) return true;
    }
    return false;
}

static bool is_alone(const yk_watchdog *w, int r)
{
    int n = 0;
    for (int q = 0; q < w->world->size; q++)
        n += yk_beats_cell(w->beats, q) == yk_beats_cell(w->beats, r);
    return n == 1;
}

/* The cell of the rank at fault speaks, or, when all there are silent, the lowest other one. */
static int speaking_cell(const yk_watchdog *w, int r)
{
    int own = yk_beats_cell(w->beats, r), speaks = own;
    if (has_life(w, own)) return own;
    for (int c = w->world->size - 1; c >= 0; c--)
        if (yk_beats_cell(w->beats, c) == c && has_life(w, c)) speaks = c;
    return speaks;
}

/* How long to leave the word to others. A silent cell may have lost the rank that it is heard by, and
 * another there be about to speak; and a process that itself stood still knows less than they do. */
static double patience_s(yk_watchdog *w, int r)
{
    bool is_mine = speaking_cell(w, r) == yk_beats_cell(w->beats, w->world->rank);
    bool may_be_heard = !has_life(w, yk_beats_cell(w->beats, r)) && !is_alone(w, r);
    if (!is_mine) return OTHERS_S;
    if (w->looked_s < w->quiet_until_s) return STILL_S;
    if (!may_be_heard) return 0;
    return was_asked(w) ? MATES_S : OTHERS_S;
}

/* Wait for another to say what is wrong with rank r, alive to all who look. */
static bool is_said_meanwhile(yk_watchdog *w, int r)
{
    double wait_s = patience_s(w, r);
    for (double begin = yk_clock_s(); yk_clock_s() - begin < wait_s; sleep_s(0.02)) {
        atomic_fetch_add(&w->own->ticks, 1);
        yk_beats_exchange(w->beats, false);
        if (yk_beats_are_claimed(w->beats)) return true;
        if (atomic_load(&yk_beats_row(w->beats, r)->state) == YK_BEAT_FAILED) return true;
    }
    return false;
}

/* In a cell, who comes first. */
static bool is_speaker(yk_watchdog *w, int r)
{
    return !is_said_meanwhile(w, r) && yk_beats_claim(w->beats);
}

/* A stopped process cannot leave: end it, where it is ours to reach, once MPI knows that the run has
 * failed. By a process of its own, for MPI ends this one. */
static void end_soon(int pidfd)
{
    if (pidfd < 0 || fork() != 0) return;
    sleep_s(END_S);
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    _exit(0);
}

static void *leave_late(void *unused)
{
    (void)unused;
    sleep_s(1);
    _exit(1);
}

/* A rank that failed by itself knows best why the run ends. */
static int exit_code(const yk_watchdog *w, int r)
{
    int code = (int)atomic_load(&yk_beats_row(w->beats, r)->code);
    return code > 0 ? code : 1;
}

/* Say it once, let the other nodes hear of it, and leave. */
static _Noreturn void leave(yk_watchdog *w, int r, fault f)
{
    double begin = yk_clock_s();
    bool speaks = f != FAILED && is_speaker(w, r);
    pthread_t late;
    if (speaks) {
        yk_held_end(&w->world->held, 0);
        say(w, r, f);
        yk_beats_tell(w->beats, r);
        begin = yk_clock_s();
    }
    while (yk_clock_s() - begin < LAST_WORD_S) {
        atomic_fetch_add(&w->own->ticks, 1);
        yk_beats_exchange(w->beats, false);
        sleep_s(0.02);
    }
    if (speaks && f != GONE && r != w->world->rank) end_soon(w->seen[r].pidfd);
    if (speaks && pthread_create(&late, NULL, leave_late, NULL) == 0)
        MPI_Abort(MPI_COMM_WORLD, 1); /* for launchers that do not mind how a rank ends */
    _exit(exit_code(w, r));
}

/* ---- the thread --------------------------------------------------------------------------- */

static void *watch(void *context)
{
    yk_watchdog *w = context;
    w->looked_s = yk_clock_s();
    while (!atomic_load(&w->stops)) {
        int rank = 0;
        wait_and_watch(w, INTERVAL_MS);
        double dt = yk_clock_s() - w->looked_s;
        w->looked_s += dt;
        if (dt > STILL_S) w->quiet_until_s = w->looked_s + QUIET_S;
        atomic_fetch_add(&w->own->ticks, 1);
        yk_beats_exchange(w->beats, false);
        age(w, fmin(dt, DT_MAX_S));
        fault f = find_fault(w, &rank);
        if (f != FINE) leave(w, rank, f);
        if (w->world->rank == 0) find_slow(w);
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
        atomic_store(&yk_beats_row(w->beats, r)->place, PLACE(0, YK_PHASE_START, NO_UNIT));
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
    for (double begin = yk_clock_s(); yk_clock_s() - begin < FAREWELL_S; sleep_s(1e-3)) {
        yk_beats_exchange(w->beats, true);
        if (yk_beats_are_done(w->beats)) return;
    }
}

void yk_watchdog_stop(yk_watchdog *w, yk_status status, bool alone)
{
    if (!w) return;
    if (alone && (status == YK_EPEER || status == YK_ETIMEDOUT)) sleep_s(2 * LAST_WORD_S + 1);
    if (alone) w->world->failed = status; /* nobody is waited for in what comes */
    if (alone) atomic_store(&w->own->code, yk_status_exit_code(status));
    if (alone) atomic_store(&w->own->state, YK_BEAT_FAILED);
    if (alone) sleep_s(3.0 * INTERVAL_MS / 1000); /* let it be heard of */
    bool meets = !alone && yk_world_barrier(w->world) == YK_OK;
    atomic_store(&w->stops, true);
    if (write(w->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0) sleep_s(INTERVAL_MS * 1e-3);
    pthread_join(w->thread, NULL);
    if (meets) say_farewell(w);
    destroy(w);
}
