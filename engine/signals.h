/* engine/signals.h - the signals that ask a run to end, as a question that is asked between steps.
 *
 * SIGINT, SIGTERM, SIGUSR1; SIGHUP, from a terminal that was closed or a connection that was lost, unless
 * it is ignored (nohup); and SIGPIPE likewise, when nobody reads any longer what the run prints. SIGUSR1 is
 * how a run of many ranks is asked to end: Slurm sends it before the time is over, and mpirun passes it on
 * where it answers the others by killing its ranks (launch/parent.h).
 *
 * The signals are blocked in every thread and looked for when it suits, so that no handler runs
 * and no variable is shared with one.
 */
#ifndef YK_ENGINE_SIGNALS_H
#define YK_ENGINE_SIGNALS_H

#include <stdbool.h>

/* Block the signals; before any thread is started. */
void yk_signals_block(void);

/* Has one come since the last look? After the first, the next SIGINT, SIGTERM or SIGUSR1 ends the process
 * at once; SIGHUP and SIGPIPE come more than once by themselves and do nothing more. */
bool yk_signals_stop_was_asked(void);

#endif
