/* comm/arrivals.h - ranks that never come: their processes end, or are stopped, before MPI has
 * started; included by comm/ alone.
 *
 * MPI starts when all ranks have come, and waits for ever for one that does not. mpirun ends a run
 * in which a process fails, but one that ends with status 0 before MPI has started is no failure to
 * it. So while this process waits in MPI_Init, a thread looks whether mpirun still has every rank
 * of this host. When one stays away for three seconds, the first of those that are there says so
 * and ends this process with exit status 1, and mpirun the others; likewise when one is stopped for
 * longer than YK_TIMEOUT in the environment says (seconds; 60 without it). A request to stop
 * (SIGUSR1, blocked) that has waited for five seconds ends the start, with status 75. Under srun, in
 * containers that hide mpirun, and where /proc does not tell, nobody looks.
 */
#ifndef YK_COMM_ARRIVALS_H
#define YK_COMM_ARRIVALS_H

#include <pthread.h>
#include <stdbool.h>

typedef struct yk_arrivals {
    pthread_t thread;
    int wake; /* -1: nobody looks */
} yk_arrivals;

/* Begin to look, just before MPI is started.                                            [local] */
void yk_arrivals_begin(yk_arrivals *arrivals);

/* All have come.                                                                        [local] */
void yk_arrivals_end(yk_arrivals *arrivals);

#endif
