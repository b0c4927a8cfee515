/* comm/world.h - the processes of a run, before any device is opened.
 *
 * Model.    A run is N processes, numbered 0 .. N-1, started by mpirun, srun or nobody. One world a
 *           process, joined first and left last. Which process a rank is comes from MPI; where nothing
 *           in the environment says that MPI started this process (OMPI_*, PMIX_*), MPI is not
 *           started and the world is this process alone.
 * Nodes.    Ranks that share memory make a node. A node's ranks are numbered 0 .. local size - 1 in
 *           the order of their ranks, and nodes 0 .. n_nodes - 1 in the order of their first ranks.
 *           YK_NODE_SIZE=k in the environment makes nodes of k consecutive ranks instead, so that one
 *           machine can stand for several.
 * Agreement. Small host-side calls that all ranks make in the same order [collective]: they block, and
 *           back off instead of spinning.
 * Saying things once. What every rank would say, one rank says: stderr is held back by
 *           yk_world_hold() and let go by the next yk_world_agree().
 * Threads.  One thread at a time.
 * Failure.  YK_EPEER and YK_ETIMEDOUT are sticky: only yk_world_abort() is useful after them.
 */
#ifndef YK_COMM_WORLD_H
#define YK_COMM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"

typedef struct yk_world yk_world;

/* The deadline of the world's calls until another is set: reading a large file may take so long. */
#define YK_WORLD_TIMEOUT_S 600.0

/* Join the other processes of the run.                                              [collective]
 *
 * YK_EINVAL  several processes were started, but each is alone (srun without PMIx): the message says
 *            how to start them; different builds of the program on the ranks; YK_NODE_SIZE is not a
 *            positive number
 * YK_EUNSUPPORTED  this MPI does not serve several threads
 * YK_EPEER   MPI does not start
 */
yk_status yk_world_join(yk_world **world_out);

/* How many processes were started together, by the word of mpirun or srun; 1 where neither has said any.
 * For commands that do not join.                                                          [local] */
int yk_world_count_started(void);

/* Leave together with the others, letting go of stderr. After a failure of the group nobody is waited
 * for. Where it takes longer than the deadline of the world's calls, this process says so and ends with
 * exit status 1. NULL does nothing.                                                 [collective] */
void yk_world_leave(yk_world *world);

/* End every process of the run with `exit_code`, this one last. Does not return. For a rank that
 * cannot go on: the others would wait for it. NULL ends this process.                    [local] */
_Noreturn void yk_world_abort(yk_world *world, int exit_code);

/* Let the world's calls fail when a rank does not arrive within `seconds`; 0: never. */
void yk_world_set_timeout(yk_world *world, double seconds);

int yk_world_rank(const yk_world *world);
int yk_world_size(const yk_world *world);

int yk_world_node(const yk_world *world); /* of this rank: 0 .. n_nodes - 1 */
int yk_world_n_nodes(const yk_world *world);
int yk_world_local_rank(const yk_world *world); /* within the node */
int yk_world_local_size(const yk_world *world); /* ranks of this rank's node */

/* True when every node has the same number of ranks: what groups across nodes need. */
bool yk_world_is_regular(const yk_world *world);

/* The rank with this place, in a regular world. */
int yk_world_rank_at(const yk_world *world, int node, int local_rank);

/* Host name of any rank; borrowed until the world is left. */
const char *yk_world_host(const yk_world *world, int rank);

/* The smallest, the largest value of all ranks.                                     [collective] */
yk_status yk_world_min(yk_world *world, int64_t mine, int64_t *result_out);
yk_status yk_world_max(yk_world *world, int64_t mine, int64_t *result_out);

/* The largest value in two parts, with work between them: the second finds it there when the ranks are
 * about as far. One at a time; other calls of the world may come between.           [collective] */
yk_status yk_world_max_begin(yk_world *world, int64_t mine);
yk_status yk_world_max_end(yk_world *world, int64_t *result_out);

/* Root's `bytes` bytes to all.                                                      [collective] */
yk_status yk_world_broadcast(yk_world *world, void *data, int64_t bytes, int root);

/* Every rank's `bytes` bytes to all, in order of rank.                              [collective]
 *
 * all_out  (size * bytes)
 */
yk_status yk_world_gather(yk_world *world, const void *mine, int64_t bytes, void *all_out);

/* Return when all ranks have come here.                                             [collective] */
yk_status yk_world_barrier(yk_world *world);

/* Keep what this process writes to stderr until the next yk_world_agree(), or until the world is left
 * or aborted. A process that crashes says it first. Does nothing in a world of one rank, or when held
 * already, or where the system refuses.                                                  [local] */
void yk_world_hold(yk_world *world);

/* Let a failure of one rank be the failure of all: YK_OK when every rank brings YK_OK, else the
 * status of the lowest rank that does not.                                          [collective]
 *
 * Held stderr is let go: after a failure that of this lowest rank alone, with its number and host when
 * not every rank failed; else each line by the lowest rank that has it. What was not held has been
 * said, once by each rank that failed, and the others name the lowest one once in all.
 */
yk_status yk_world_agree(yk_world *world, yk_status mine);

#endif
