/* launch/stopped.c - looking at the states of processes. */
#include "launch/stopped.h"

#include <math.h>
#include <signal.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/machine/process.h"

#define MAX_CHILDREN 4096
#define LOOK_MAX_S   2.0 /* what a look counts for at most: this process may have been stopped too */
#define OTHERS_S     2.0 /* over the limit, for the ranks of other hosts to say it */

/* Children of mpirun that are ranks; the others are its ways to other hosts. */
static int find_ranks(pid_t mpirun, pid_t ranks_out[MAX_CHILDREN])
{
    char text[16];
    int n = 0, n_children = yk_process_children(mpirun, ranks_out, MAX_CHILDREN);
    for (int i = 0; i < n_children; i++)
        if (yk_process_variable(ranks_out[i], "OMPI_COMM_WORLD_RANK", text, sizeof text))
            ranks_out[n++] = ranks_out[i];
    return n;
}

/* The number of ranks, if all are stopped; else 0. */
static int count_stopped(pid_t mpirun, pid_t *first_out)
{
    pid_t ranks[MAX_CHILDREN];
    int n = find_ranks(mpirun, ranks);
    for (int i = 0; i < n; i++)
        if (yk_process_state(ranks[i]) != YK_PROCESS_STOPPED) return 0;
    *first_out = ranks[0];
    return n;
}

bool yk_stopped_look(yk_stopped *s, pid_t mpirun)
{
    pid_t first = 0;
    double now = yk_clock_s();
    int n = s->limit_s > 0 ? count_stopped(mpirun, &first) : 0;
    s->still_s = n > 0 && s->looked_s > 0 ? s->still_s + fmin(now - s->looked_s, LOOK_MAX_S) : 0;
    s->looked_s = now;
    if (n == 0 || s->still_s <= s->limit_s + OTHERS_S) return false;
    yk_fail(
        YK_EPEER, "launch",
        "all ranks of this machine (%d, the first is process %d) have been stopped for more than "
        "%.3g s, and the run ends; start it again, with a greater comm.timeout if that is usual",
        n, (int)first, s->limit_s);
    return true;
}

int yk_stopped_n_ranks(pid_t mpirun)
{
    pid_t ranks[MAX_CHILDREN];
    return find_ranks(mpirun, ranks);
}

void yk_stopped_end(pid_t mpirun)
{
    pid_t ranks[MAX_CHILDREN];
    int n = find_ranks(mpirun, ranks);
    for (int i = 0; i < n; i++) kill(ranks[i], SIGKILL);
    kill(mpirun, SIGCONT);
}
