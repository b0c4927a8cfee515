/* comm/mpi_wait.c - a wait that leaves the processor to those who compute.
 *
 * MPI's own blocking calls spin, and on a machine with as many ranks as cores a spinning rank takes a
 * core from one that works.
 */
#include "comm/mpi_wait.h"

#include <time.h>

/* How long to ask without sleeping: the time a small message takes between two awake ranks. */
#define EAGER_S 20e-6
#define SLEEP_MIN_NS 20000
#define SLEEP_MAX_NS 1000000

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

yk_status yk_mpi_check(int error, const char *what)
{
    if (error == MPI_SUCCESS) return YK_OK;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(error, text, &length);
    return yk_fail(YK_EPEER, what, "MPI reports: %.*s", length, text);
}

yk_status yk_mpi_wait(MPI_Request *requests, int n, double timeout_s, const char *what)
{
    double begin = now_s();
    long sleep_ns = SLEEP_MIN_NS;
    for (;;) {
        int done = 0;
        YK_TRY(yk_mpi_check(MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE), what));
        if (done) return YK_OK;
        double waited = now_s() - begin;
        if (timeout_s > 0 && waited > timeout_s)
            return yk_fail(YK_ETIMEDOUT, what,
                           "another rank did not arrive within %.3g s; it may have died or hang",
                           timeout_s);
        if (waited < EAGER_S) continue;
        struct timespec pause = {0, sleep_ns};
        nanosleep(&pause, NULL);
        if (sleep_ns < SLEEP_MAX_NS) sleep_ns += sleep_ns / 4;
    }
}
