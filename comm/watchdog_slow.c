/* comm/watchdog_slow.c - naming a rank that computes for longer than the others.
 *
 * Rank 0 compares what all have computed in a step, once it is over everywhere, with the median.
 */
#include <stdlib.h>

#include "comm/watchdog_parts.h"

#define FACTOR 1.5
#define MIN_US 1000 /* and so much longer than the median */
#define STEPS  10
/* What all these steps lost; less is a moment that something else had the processor. */
#define LOST_US 250000

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
        "processor or GPU is throttled",
        r, (long long)atomic_load(&yk_beats_row(w->beats, r)->pid), yk_world_host(w->world, r),
        (double)us / (double)median, w->seen[r].n_slow, (long long)step, 1e-3 * (double)us,
        1e-3 * (double)median);
}

/* A rank's time for a step, beside the median's. */
static void judge_time(yk_watchdog *w, int r, int64_t step, int64_t us, int64_t median)
{
    yk_seen *s = &w->seen[r];
    if (us - median <= MIN_US || (double)us <= FACTOR * (double)median) {
        s->n_slow = 0;
        s->lost_us = 0;
        return;
    }
    s->n_slow++;
    s->lost_us += us - median;
    if (s->n_slow >= STEPS && s->lost_us >= LOST_US && !s->is_named)
        name_slow(w, r, step, us, median);
}

void yk_watchdog_find_slow(yk_watchdog *w)
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
