/* comm/watchdog.h - who is where in the step, watched from outside of the collectives.
 *
 * Model.    Each rank notes where it is; a thread of each process looks at all ranks ten times a second.
 *           A rank whose process is gone, or stands still for `timeout_s`, or does not go on for so long
 *           while others wait for it, ends the run: one process says who, where and what to do, and
 *           all leave with exit status 1, a stopped one by force; with a rank that failed by itself all
 *           leave with its status. All take the same notes in the same order, so that the rank with the
 *           fewest is the one that the others wait for.
 * Slow.     A rank that computes more than 1.5 times as long as the median rank, in ten steps in a row
 *           and for a quarter of a second more in all of them, is named once, in a warning. Waiting for
 *           others is not computing.
 * First step. Until a rank has made one, and while it saves, it may take longer than `timeout_s`.
 * Threads.  One thread takes notes; the watching is done by one of the watchdog's own.
 */
#ifndef YK_COMM_WATCHDOG_H
#define YK_COMM_WATCHDOG_H

#include "comm/world.h"

typedef struct yk_watchdog yk_watchdog;

/* Where in a step a rank is. */
typedef enum yk_phase {
    YK_PHASE_START,    /* before the first step */
    YK_PHASE_DATA,     /* waiting for a micro-batch */
    YK_PHASE_FORWARD,  /* with a unit */
    YK_PHASE_BACKWARD, /* with a unit */
    YK_PHASE_REDUCE,   /* the last sums of gradients, the norm */
    YK_PHASE_UPDATE,
    YK_PHASE_END, /* the ranks agree on whether to go on */
    YK_PHASE_EVALUATE,
    YK_PHASE_SAVE,
} yk_phase;

/* Begin to watch. A world of one rank has none: NULL, which every call here takes.   [collective]
 *
 * timeout_s  silence for so long ends the run
 *
 * YK_ENOMEM  no memory, or no thread, for it
 */
yk_status yk_watchdog_start(yk_world *world, double timeout_s, yk_watchdog **watchdog_out);

/* Stop watching and release. With YK_OK, or another status that all ranks have, they meet here
 * [collective]; `alone` says that this rank failed by itself, which tells the others to leave too. A
 * rank that lost another waits here for the watching thread to say which and to end the process. */
void yk_watchdog_stop(yk_watchdog *watchdog, yk_status status, bool alone);

/* The work is at `unit` (-1: none) of `phase`.                                           [local] */
void yk_watchdog_note(yk_watchdog *watchdog, yk_phase phase, int unit);

/* Step `step` begins.                                                                    [local] */
void yk_watchdog_step(yk_watchdog *watchdog, int64_t step);

/* Step `step` is over, with `seconds` of computing: waits for other ranks left out.      [local] */
void yk_watchdog_computed(yk_watchdog *watchdog, int64_t step, double seconds);

/* A signal has asked for the end. mpirun sends it too when a rank has died, a second before it kills the
 * others: a rank of another node that is silent for a second then is taken for dead. SIGCONT, which it
 * sends first, says the same where it is blocked (engine/signals.h).                     [local] */
void yk_watchdog_suspect(yk_watchdog *watchdog);

#endif
