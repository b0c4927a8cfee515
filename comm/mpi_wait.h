/* comm/mpi_wait.h - waiting for MPI without spinning; included by comm/ alone. */
#ifndef YK_COMM_MPI_WAIT_H
#define YK_COMM_MPI_WAIT_H

#include <mpi.h>

#include "runtime/base/status.h"

/* Wait for `n` requests: for a moment awake, then asleep between ever rarer looks, up to a
 * millisecond apart. Requests are released.
 *
 * ranks      (n) whom each request waits for, to be named when it does not come; NULL: nobody
 * what       names the operation in messages
 * timeout_s  0: for ever
 *
 * YK_ETIMEDOUT  they did not complete in time
 * YK_EPEER      MPI reports an error
 */
yk_status yk_mpi_wait(MPI_Request *requests, int n, const int *ranks, double timeout_s,
                      const char *what);

/* YK_OK for MPI_SUCCESS, else a report with MPI's own text. */
yk_status yk_mpi_check(int error, const char *what);

#endif
