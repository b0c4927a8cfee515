/* launch/relay.h - a pipe between mpirun and those who read what it prints.
 *
 * Model.    mpirun ends its ranks, unsaved, where what it prints cannot be written: to a terminal that was
 *           closed, or a reader that has ended (`| head`). So it prints into a pipe, which a thread empties
 *           to its end, and passes on for as long as somebody reads.
 * Signals.  When a reader ends, this process gets SIGPIPE as from a write of its own; of a terminal's end
 *           there is a SIGHUP. The thread hears none, for those of interest are blocked when it begins.
 * Threads.  One thread begins and ends it.
 */
#ifndef YK_LAUNCH_RELAY_H
#define YK_LAUNCH_RELAY_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "runtime/base/status.h"

typedef struct yk_relay {
    int output, errors; /* for mpirun to print to; -1: this process' own will do */
    int from;           /* where the thread reads it */
    pthread_t thread;
    atomic_bool is_over; /* all has been written */
} yk_relay;

/* Standard output, where it is a pipe or a terminal, and standard error where both are the same.
 * SIGPIPE is blocked.                                                                    [local] */
yk_status yk_relay_begin(yk_relay *relay);

/* The child has been started and has its own copies of the descriptors. */
void yk_relay_hand_over(yk_relay *relay);

/* Wait until all has been passed on that was printed, which a reader may delay; the signals that `heard`
 * lets through, but SIGPIPE, act meanwhile as they do elsewhere. The child has ended.    [local] */
void yk_relay_end(yk_relay *relay, const sigset_t *heard);

#endif
