/* engine/signals.h - SIGINT, SIGTERM and SIGUSR1 as a question that is asked between steps.
 *
 * SIGUSR1 is how a run of many ranks is asked to end: Slurm sends it before the time is over, and
 * mpirun passes it on where it answers SIGTERM by killing its ranks (launch/parent.h).
 *
 * The signals are blocked in every thread and looked for when it suits, so that no handler runs
 * and no variable is shared with one.
 */
#ifndef YK_ENGINE_SIGNALS_H
#define YK_ENGINE_SIGNALS_H

#include <stdbool.h>

/* Block the signals; before any thread is started. */
void yk_signals_block(void);

/* Has one come since the last look? After the first, the next one ends the process at once. */
bool yk_signals_stop_was_asked(void);

#endif
