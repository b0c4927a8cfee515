/* tests/ranks/watchdog/rank_watchdog.c - ranks that take notes without a training; what each does is the
 * first word.
 *
 *   fine     1,000 steps of equal work: nobody is named
 *   slow     rank 1 sleeps in its steps: it is named
 *   moment   rank 1 sleeps in a few of its steps: it is not
 *   hang     rank 1 stays in a unit while the others go on and wait
 *   start    rank 1 takes longer than the deadline for its first step, and to save
 *   crash R  rank R ends by a signal of its own making
 *   fail     rank 1 fails by itself, and says so
 *   still    a training that can be stopped as a whole
 */
#include "comm/watchdog.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/signals.h"
#include "runtime/base/clock.h"
#include "tests/ranks/rig.h"

#define TIMEOUT_S 1.0
#define N_UNITS   4

typedef struct watched {
    yk_world *world;
    yk_watchdog *dog;
    int rank;
} watched;

static void doze(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)((s - (double)(time_t)s) * 1e9)}, NULL);
}

/* Seconds of processor that this thread has had: what equal work takes on a machine that others use too. */
static double had_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work(double s)
{
    for (double end = had_s() + s; had_s() < end;) continue;
}

/* A step: `odd_s` more of computing on rank 1, and then a barrier. */
static void step(watched *w, int64_t number, double each_s, double odd_s)
{
    yk_watchdog_step(w->dog, number);
    double begin = had_s();
    yk_watchdog_note(w->dog, YK_PHASE_DATA, -1);
    for (int u = 0; u < N_UNITS; u++) {
        yk_watchdog_note(w->dog, YK_PHASE_FORWARD, u);
        work(each_s / N_UNITS);
        if (u == 2 && w->rank == 1) doze(odd_s);
    }
    yk_watchdog_computed(w->dog, number, had_s() - begin + (w->rank == 1 ? odd_s : 0));
    yk_watchdog_note(w->dog, YK_PHASE_END, -1);
    EXPECT(w, yk_world_barrier(w->world) == YK_OK);
}

static void run(watched *w, const char *what, const char *word)
{
    if (strcmp(what, "fine") == 0)
        for (int i = 0; i < 1000; i++) step(w, i, 2e-3, 0);
    if (strcmp(what, "slow") == 0)
        for (int i = 0; i < 21; i++) step(w, i, 1e-3, 0.03);
    if (strcmp(what, "moment") == 0)
        for (int i = 0; i < 40; i++) step(w, i, 1e-3, i >= 10 && i < 25 ? 0.01 : 0);
    if (strcmp(what, "hang") == 0)
        for (int i = 0; i < 6; i++) step(w, i, 1e-3, i < 5 ? 0 : 60);
    if (strcmp(what, "start") == 0) {
        step(w, 0, 1e-3, 2.5 * TIMEOUT_S);
        yk_watchdog_note(w->dog, YK_PHASE_SAVE, -1);
        if (w->rank == 1) doze(2.5 * TIMEOUT_S);
        step(w, 1, 1e-3, 0);
    }
    for (int i = 0; i < 80 && strcmp(what, "still") == 0; i++) {
        doze(0.03);
        step(w, i, 1e-4, 0);
    }
    for (int i = 0; i < 50 && !strcmp(what, "crash"); i++) step(w, i, 1e-2, 0);
    if (strcmp(what, "crash") == 0 && w->rank == atoi(word)) raise(SIGSEGV);
    if (strcmp(what, "crash") == 0) step(w, 50, 1e-3, 0);
    for (int i = 0; i < 3 && !strcmp(what, "fail"); i++) step(w, i, 1e-3, 0);
    if (strcmp(what, "fail") == 0 && w->rank == 1) {
        yk_fail(YK_EIO, "this", "failed");
        yk_watchdog_stop(w->dog, YK_EIO, true);
        doze(60); /* as one that waits for others in what it releases */
    }
    if (strcmp(what, "fail") == 0) step(w, 3, 1e-3, 0);
}

int main(int argc, char **argv)
{
    watched w = {.dog = NULL};
    yk_signals_block(); /* as a training does: SIGTERM comes before the reason is known */
    if (argc < 2 || yk_world_join(&w.world) != YK_OK) return 2;
    w.rank = yk_world_rank(w.world);
    EXPECT(&w, yk_watchdog_start(w.world, TIMEOUT_S, &w.dog) == YK_OK);
    EXPECT(&w, w.dog != NULL);
    run(&w, argv[1], argc > 2 ? argv[2] : "");
    yk_watchdog_stop(w.dog, YK_OK, false);
    if (w.rank == 0) printf("done\n");
    yk_world_leave(w.world);
    return 0;
}
