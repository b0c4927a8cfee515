/* comm/watchdog_leave.c - the verdict: one process says who and where, and all leave.
 *
 * Who speaks is a process of the faulty rank's cell, since it knows best, or of another where all
 * there are silent; the table has one claim a cell. Whatever the state of MPI, each process is gone
 * soon after.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/watchdog_parts.h"
#include "runtime/base/clock.h"

#define OTHERS_S 1.0 /* for those to say it who know it better */
#define MATES_S  0.4 /* the same, when mpirun ends the run */
#define END_S    0.3

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
    if (YK_PLACE_UNIT(at) != YK_PLACE_NO_UNIT)
        snprintf(unit, sizeof unit, " of unit %d", YK_PLACE_UNIT(at));
    if (YK_PLACE_PHASE(at) == YK_PHASE_START)
        snprintf(text_out, 96, "before the first step");
    else
        snprintf(text_out, 96, "in step %lld, %s%s", (long long)YK_PLACE_STEP(at),
                 phases[YK_PLACE_PHASE(at)], unit);
}

static void say(const yk_watchdog *w, int r, yk_fault f)
{
    char what[32], where[96];
    const yk_beat *row = yk_beats_row(w->beats, r);
    const char *host = yk_world_host(w->world, r);
    long long pid = atomic_load(&row->pid);
    snprintf(what, sizeof what, "rank %d", r);
    write_place(row, where);
    if (f == YK_FAULT_GONE)
        yk_fail(
            YK_EPEER, what,
            "its process %lld on %s has died %s; look for its last words above and, if there are "
            "none, for a lack of memory in the system's log (dmesg), then start the run again",
            pid, host, where);
    else if (f == YK_FAULT_SILENT)
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
            pid, host, yk_watchdog_limit_s(w, row), where);
}

static bool has_life(const yk_watchdog *w, int cell)
{
    for (int r = 0; r < w->world->size; r++) {
        bool lives = r == w->world->rank || w->seen[r].silent_s < YK_WATCHDOG_HEARD_S;
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
    if (w->looked_s < w->quiet_until_s) return YK_WATCHDOG_STILL_S;
    if (!may_be_heard) return 0;
    return yk_watchdog_was_asked(w) ? MATES_S : OTHERS_S;
}

/* Wait for another to say what is wrong with rank r, alive to all who look. */
static bool is_said_meanwhile(yk_watchdog *w, int r)
{
    double wait_s = patience_s(w, r);
    for (double begin = yk_clock_s(); yk_clock_s() - begin < wait_s; yk_watchdog_sleep(0.02)) {
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
    yk_watchdog_sleep(END_S);
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    _exit(0);
}

static void *leave_late(void *unused)
{
    (void)unused;
    yk_watchdog_sleep(1);
    _exit(1);
}

/* A rank that failed by itself knows best why the run ends. */
static int exit_code(const yk_watchdog *w, int r)
{
    int code = (int)atomic_load(&yk_beats_row(w->beats, r)->code);
    return code > 0 ? code : 1;
}

_Noreturn void yk_watchdog_leave(yk_watchdog *w, int r, yk_fault f)
{
    double begin = yk_clock_s();
    bool speaks = f != YK_FAULT_FAILED && is_speaker(w, r);
    pthread_t late;
    if (speaks) {
        yk_held_end(&w->world->held, 0);
        say(w, r, f);
        yk_beats_tell(w->beats, r);
        begin = yk_clock_s();
    }
    while (yk_clock_s() - begin < YK_WATCHDOG_LAST_WORD_S) {
        atomic_fetch_add(&w->own->ticks, 1);
        yk_beats_exchange(w->beats, false);
        yk_watchdog_sleep(0.02);
    }
    if (speaks && f != YK_FAULT_GONE && r != w->world->rank) end_soon(w->seen[r].pidfd);
    if (speaks && pthread_create(&late, NULL, leave_late, NULL) == 0)
        MPI_Abort(MPI_COMM_WORLD, 1); /* for launchers that do not mind how a rank ends */
    _exit(exit_code(w, r));
}
