/* comm/world_mpi.h - what comm/ knows of a world beyond world.h; included by comm/ alone. */
#ifndef YK_COMM_WORLD_MPI_H
#define YK_COMM_WORLD_MPI_H

#include <mpi.h>

#include "comm/held.h"
#include "comm/world.h"

/* Where a rank lies. */
typedef struct yk_place {
    char host[64];
    int node, local_rank;
} yk_place;

struct yk_world {
    bool has_mpi;  /* false: this process alone */
    MPI_Comm comm; /* the world's own calls */
    int rank, size, n_nodes, local_size;
    bool regular;
    _Atomic double timeout_s;
    _Atomic yk_status failed; /* once it happened, here or in a group, or this rank failed alone */
    int64_t ahead_mine, ahead_result; /* of yk_world_max_begin() */
    MPI_Request ahead;
    yk_held held;
    yk_place *places; /* (size) */
};

/* Whether the environment says that MPI started this process.
 *
 * YK_EINVAL  several processes were started by something that MPI cannot talk to
 */
yk_status yk_world_find_launcher(bool *launched_out);

/* Start MPI, and learn rank and size.
 *
 * YK_EINVAL        several processes were started, but each is alone
 * YK_EUNSUPPORTED  this MPI does not serve several threads
 */
yk_status yk_world_start_mpi(yk_world *world);

/* Fill `places` and what follows from it. Collective.
 *
 * YK_EINVAL  different builds of the program, or a wrong YK_NODE_SIZE
 */
yk_status yk_world_find_places(yk_world *world);

#endif
