/* comm/mpi_wait.c - a wait that leaves the processor to those who compute.
 *
 * MPI's own blocking calls spin, and on a machine with as many ranks as cores a spinning rank takes a
 * core from one that works. Open MPI moves data only inside its calls, so a wait must look often while
 * something is under way: the pause is a sixteenth of the time waited so far, which costs a transfer
 * little and a long wait nothing.
 */
#include "comm/mpi_wait.h"

#include <time.h>

#include "runtime/base/clock.h"

/* Open MPI looks at its sockets in one of eight calls alone, so a look is as many. */
#define CALLS_A_LOOK 8

/* How long to look without sleeping: the time a small message takes between two awake ranks. */
#define EAGER_S 20e-6
#define LOOK_MAX_S                                                                                 \
    0.5 /* what the time between two looks counts for: more, and this process was stopped */
#define PAUSE_MIN_S 20e-6
#define PAUSE_MAX_S 1e-3

static void pause_for(double waited_s)
{
    double s = waited_s / 16;
    if (s < PAUSE_MIN_S) s = PAUSE_MIN_S;
    if (s > PAUSE_MAX_S) s = PAUSE_MAX_S;
    nanosleep(&(struct timespec){0, (long)(s * 1e9)}, NULL);
}

yk_status yk_mpi_check(int error, const char *what)
{
    if (error == MPI_SUCCESS) return YK_OK;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(error, text, &length);
    return yk_fail(YK_EPEER, what, "MPI reports: %.*s", length, text);
}

static yk_status fail_late(MPI_Request *requests, int n, const int *ranks, double timeout_s,
                           const char *what)
{
    for (int i = 0; ranks && i < n; i++) {
        int done = 1;
        if (requests[i] != MPI_REQUEST_NULL)
            MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE);
        if (done) continue;
        return yk_fail(
            YK_ETIMEDOUT, what,
            "rank %d did not arrive within %.3g s; it has died, hangs or is slow; give a "
            "slow one more time with comm.timeout",
            ranks[i], timeout_s);
    }
    return yk_fail(
        YK_ETIMEDOUT, what,
        "another rank did not arrive within %.3g s; it has died, hangs or is slow; give a "
        "slow one more time with comm.timeout",
        timeout_s);
}

static yk_status look(MPI_Request *requests, int n, int *done_out, const char *what)
{
    *done_out = 0;
    for (int i = 0; i < CALLS_A_LOOK && !*done_out; i++)
        YK_TRY(yk_mpi_check(MPI_Testall(n, requests, done_out, MPI_STATUSES_IGNORE), what));
    return YK_OK;
}

yk_status yk_mpi_wait(MPI_Request *requests, int n, const int *ranks, double timeout_s,
                      const char *what)
{
    double looked = yk_clock_s(), waited = 0;
    for (;;) {
        int done;
        YK_TRY(look(requests, n, &done, what));
        if (done) return YK_OK;
        double passed = yk_clock_s() - looked;
        looked += passed;
        waited += passed < LOOK_MAX_S ? passed : LOOK_MAX_S;
        if (timeout_s > 0 && waited > timeout_s)
            return fail_late(requests, n, ranks, timeout_s, what);
        if (waited > EAGER_S) pause_for(waited);
    }
}
