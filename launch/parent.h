/* launch/parent.h - staying the parent of what was started.
 *
 * Signals.  The child is in a process group of its own, so that what a terminal sends (Ctrl-C) comes
 *           to this process alone, which passes it on. SIGINT, SIGTERM, SIGHUP and SIGPIPE, of a reader
 *           of the output that ended (launch/relay.h), ask the run to save and end. mpirun, sent one of
 *           those, would kill its ranks seconds later; it passes SIGUSR1 on to them and waits, so that
 *           is what the first of them becomes. From the second on mpirun gets SIGTERM, but for SIGHUP
 *           and SIGPIPE, which come more than once by themselves; ignored, as by nohup, they ask nothing.
 *           SIGUSR1 and SIGUSR2 are passed on as they are.
 * Orphans.  When this process dies, the child gets SIGTERM.
 * Threads.  Call from the main thread: signals are blocked in it and taken one by one.
 */
#ifndef YK_LAUNCH_PARENT_H
#define YK_LAUNCH_PARENT_H

#include "launch/command.h"

/* How a command ended. */
typedef struct yk_ended {
    int exit_status; /* 0 .. 255; 128 + n where a signal ended it, as a shell has it */
    bool was_asked;  /* a signal asked for the end */
    bool was_killed; /* it ended by a signal itself */
    bool is_late;    /* it had not ended in time and was made to */
    bool was_forced; /* it did not hear SIGTERM for long, and was killed */
    bool was_still;  /* its ranks were all stopped for too long, and were made to end */
} yk_ended;

/* Run a command that answers a question, with /dev/null as its input, and wait for its end.  [local]
 *
 * limit_s     seconds that it may take
 * output_out  what it printed on its standard output, ended by 0; owned by the caller (free())
 *
 * SIGINT, SIGTERM, SIGHUP, SIGPIPE or SIGUSR1, and the limit, end it at once with all that it has started, in
 * whatever group: mpirun leaves its ssh behind else. Call it without other children: they would end too.
 *
 * YK_EINVAL  there is no such program
 * YK_EIO     the system refused to start it
 */
yk_status yk_parent_ask(const yk_command *command, int limit_s, char **output_out,
                        yk_ended *ended_out);

/* Run a command with `input` as its input, without any of the above about signals.       [local] */
yk_status yk_parent_feed(const yk_command *command, const char *input, yk_ended *ended_out);

/* Run mpirun, again and again at most `restarts` times while it fails with another status than 2 and
 * nobody asked for the end; with pauses of 1, 2, 4, ... 30 seconds.                      [local]
 *
 * still_limit_s  seconds after which ranks of which all were stopped are ended; 0: never
 * n_here         ranks of this machine: while fewer are there the run is starting, and the first request to
 *                stop ends it at once; 0: not known
 * end_mark       a file that the same command will not start over, once it is there; or NULL
 *
 * The outcome is that of the last run: YK_OK for 0, YK_EINVAL for 2, YK_ESTOPPED for 75, YK_EPEER for
 * the rest; that of the failure before it where a run that was started again found its input wrong. The
 * ranks have said why; only that one was killed, or that all were stopped, is said here. When mpirun was
 * told to end and has not within eight seconds, it is killed with its ranks here.
 */
yk_status yk_parent_run_mpirun(const yk_command *command, double still_limit_s, int n_here,
                               int restarts, const char *end_mark);

#endif
