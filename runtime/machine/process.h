/* runtime/machine/process.h - other processes of this machine, as /proc shows them.
 *
 * What is told may be out of date at once, for a process may end or start others at any time. Where
 * the system hides a process, or this part of /proc is not there, nothing is told.
 */
#ifndef YK_RUNTIME_MACHINE_PROCESS_H
#define YK_RUNTIME_MACHINE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* How a process is doing, as /proc has it; there are others. */
#define YK_PROCESS_STOPPED 'T'
#define YK_PROCESS_ENDED   'Z' /* and its parent has not asked how */

/* The processes that `pid` has started and not yet taken leave of. Returns how many were written to
 * children_out (capacity): there may be more.                                            [local] */
int yk_process_children(pid_t pid, pid_t *children_out, int capacity);

/* How it is doing, by a letter, and who started it; 0: not known.                       [local] */
char yk_process_state(pid_t pid);
pid_t yk_process_parent(pid_t pid);

/* A variable of the environment that it was started with. False, and value_out (capacity) is "",
 * where it has none or that is not known.                                              [local] */
bool yk_process_variable(pid_t pid, const char *name, char *value_out, size_t capacity);

/* A path of at most so many bytes, the final 0 included. */
#define YK_PROCESS_PATH 4096

/* The file that it runs; "" : not known.                                                 [local] */
void yk_process_program(pid_t pid, char path_out[YK_PROCESS_PATH]);

/* Do two processes run the same file? A child and its parent do for a moment, before it becomes
 * another program. */
bool yk_process_runs_same(pid_t a, pid_t b);

#endif
