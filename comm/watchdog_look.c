/* comm/watchdog_look.c - what the rows say: who is gone, stands still, or is waited for.
 *
 * Silence counts in looks, each for half a second at most: while this process itself stands still,
 * the others do not grow old.
 */
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "comm/watchdog_parts.h"
#include "runtime/base/arith.h"

#define SUSPECT_S 1.0 /* of silence, when mpirun ends the run: it kills all in twice that time */
#define ENDING_S  5.0 /* that it does so is believed for so long */

static int64_t most_notes(const yk_watchdog *w)
{
    int64_t most = 0;
    for (int r = 0; r < w->world->size; r++)
        most = yk_max(most, atomic_load(&yk_beats_row(w->beats, r)->notes));
    return most;
}

void yk_watchdog_age(yk_watchdog *w, double dt)
{
    int64_t most = most_notes(w);
    for (int r = 0; r < w->world->size; r++) {
        yk_seen *s = &w->seen[r];
        const yk_beat *row = yk_beats_row(w->beats, r);
        int64_t ticks = atomic_load(&row->ticks), notes = atomic_load(&row->notes);
        s->silent_s = ticks != s->ticks ? 0 : s->silent_s + dt;
        s->behind_s = notes != s->notes || notes >= most ? 0 : s->behind_s + dt;
        s->ticks = ticks;
        s->notes = notes;
    }
}

/* When a rank has died mpirun sends SIGCONT at once, SIGTERM a second later and SIGKILL another second
 * later. A process that stood still may have been woken by anybody. */
bool yk_watchdog_was_asked(yk_watchdog *w)
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

double yk_watchdog_limit_s(const yk_watchdog *w, const yk_beat *row)
{
    bool may_be_long =
        !atomic_load(&row->settled) || YK_PLACE_PHASE(atomic_load(&row->place)) == YK_PHASE_SAVE;
    return may_be_long ? w->start_timeout_s : w->timeout_s;
}

/* Is what this process has of other cells fresh? It comes by the first rank of its own. */
static bool hears_others(const yk_watchdog *w)
{
    int first = yk_beats_cell(w->beats, w->world->rank);
    return first == w->world->rank || w->seen[first].silent_s < YK_WATCHDOG_HEARD_S;
}

static yk_fault judge(yk_watchdog *w, int r, bool asked)
{
    const yk_beat *row = yk_beats_row(w->beats, r);
    const yk_seen *s = &w->seen[r];
    bool is_near = yk_beats_cell(w->beats, r) == yk_beats_cell(w->beats, w->world->rank);
    if (atomic_load(&row->state) == YK_BEAT_FAILED) return YK_FAULT_FAILED;
    if (atomic_load(&row->state) == YK_BEAT_GONE) return YK_FAULT_GONE;
    if (!is_near && !hears_others(w)) return YK_FAULT_NONE;
    if (r == w->world->rank)
        return s->behind_s > yk_watchdog_limit_s(w, row) ? YK_FAULT_LATE : YK_FAULT_NONE;
    if (asked && !is_near && s->silent_s > SUSPECT_S) return YK_FAULT_GONE;
    if (s->silent_s > w->timeout_s) return YK_FAULT_SILENT;
    return s->behind_s > yk_watchdog_limit_s(w, row) ? YK_FAULT_LATE : YK_FAULT_NONE;
}

/* Does a rank's process seem to stand still? It will show, or pass; others that wait for it look late. */
static bool is_any_still(const yk_watchdog *w)
{
    for (int r = 0; r < w->world->size; r++)
        if (r != w->world->rank && w->seen[r].silent_s > YK_WATCHDOG_HEARD_S) return true;
    return false;
}

yk_fault yk_watchdog_find_fault(yk_watchdog *w, int *rank_out)
{
    bool asked = yk_watchdog_was_asked(w);
    yk_fault worst = YK_FAULT_NONE;
    for (int r = 0; r < w->world->size; r++) {
        yk_fault f = judge(w, r, asked);
        if (f == YK_FAULT_NONE) continue;
        bool better = worst == YK_FAULT_NONE || f < worst;
        if (f == YK_FAULT_LATE && worst == YK_FAULT_LATE)
            better = w->seen[r].notes < w->seen[*rank_out].notes;
        if (!better) continue;
        worst = f;
        *rank_out = r;
    }
    return worst == YK_FAULT_LATE && is_any_still(w) ? YK_FAULT_NONE : worst;
}

void yk_watchdog_wait(yk_watchdog *w, int timeout_ms)
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
