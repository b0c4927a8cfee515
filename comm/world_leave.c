/* comm/world_leave.c - leaving together, and not for ever.
 *
 * MPI's end waits for every rank and has no deadline of its own, and nobody watches any more: a rank
 * that is stopped there, or hangs on its way, would keep the others. So a thread counts the time, and
 * ends this process where it takes too long; whoever started the ranks ends the others then. All work
 * has been done by that time, and what the program has printed is let go first.
 */
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/world_mpi.h"
#include "runtime/base/clock.h"
#include "runtime/base/side_thread.h"

#define LOOK_MS    100
#define LOOK_MAX_S 0.5 /* what a look counts for at most: more, and this process was stopped */
#define TURN_S     3.0 /* for a lower rank to say it, and for the launcher to end the others */
#define TURNS_MAX  3

typedef struct parting {
    double limit_s;
    int rank, is_over; /* is_over: a descriptor that becomes readable */
    pthread_t thread;
} parting;

static void *count_time(void *context)
{
    const parting *p = context;
    struct pollfd over = {p->is_over, POLLIN, 0};
    double turn_s = TURN_S * fmin(p->rank, TURNS_MAX), looked = yk_clock_s();
    for (double waited = 0; waited <= p->limit_s + turn_s;) {
        if (poll(&over, 1, LOOK_MS) > 0) return NULL;
        double passed = yk_clock_s() - looked;
        looked += passed;
        waited += fmin(passed, LOOK_MAX_S);
    }
    yk_fail(
        YK_ETIMEDOUT, "MPI",
        "rank %d has done its work and waits for the others to leave, for more than %.3g s; one of "
        "them was stopped or hangs; see which processes are still there",
        p->rank, p->limit_s);
    fflush(stdout);
    _exit(yk_status_exit_code(YK_ETIMEDOUT));
}

static void end_mpi(yk_world *w)
{
    if (w->comm != MPI_COMM_NULL) MPI_Comm_free(&w->comm);
    MPI_Finalize();
}

/* Without memory for a thread the end has no deadline. */
static void part(yk_world *w)
{
    parting p = {.limit_s = w->timeout_s, .rank = w->rank, .is_over = eventfd(0, EFD_CLOEXEC)};
    bool counts =
        p.limit_s > 0 && p.is_over >= 0 && yk_side_thread_start(&p.thread, count_time, &p) == 0;
    end_mpi(w);
    if (counts) {
        eventfd_write(p.is_over, 1);
        pthread_join(p.thread, NULL);
    }
    if (p.is_over >= 0) close(p.is_over);
}

void yk_world_leave(yk_world *w)
{
    if (!w) return;
    yk_held_end(&w->held, 0);
    if (w->has_mpi && w->failed == YK_OK) part(w);
    free(w->places);
    free(w);
}
