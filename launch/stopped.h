/* launch/stopped.h - ranks of which all were stopped, so that none is left to say so.
 *
 * Ranks watch each other (comm/watchdog.h): one that was stopped is named by those that run. Where
 * all of them were (SIGSTOP to each), the process that started mpirun is the one to see it. It sees
 * the ranks of this machine; of a run on several, those elsewhere are asked first.
 */
#ifndef YK_LAUNCH_STOPPED_H
#define YK_LAUNCH_STOPPED_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct yk_stopped {
    double limit_s; /* that all ranks may stand still; 0: for ever */
    double still_s; /* that they have done so by now, as far as this process itself went on */
    double looked_s;
} yk_stopped;

/* Look at mpirun's ranks here, every second or so. True, after a word, when they have been stopped
 * for longer than the limit.                                                             [local] */
bool yk_stopped_look(yk_stopped *stopped, pid_t mpirun);

/* How many ranks mpirun has here now.                                                   [local] */
int yk_stopped_n_ranks(pid_t mpirun);

/* End mpirun's ranks here, which hear nothing else, and let it see it.                    [local] */
void yk_stopped_end(pid_t mpirun);

#endif
