/* engine/ranks.h - the groups and streams that ranks work together by.
 *
 * Which groups there are follows from the configuration: one over all ranks; with parallel.shard:
 * node, and several nodes, one inside each node and one across. With a single rank there is none,
 * and the parameter store is told so.
 */
#ifndef YK_ENGINE_RANKS_H
#define YK_ENGINE_RANKS_H

#include "optim/store/store.h"
#include "runtime/base/config.h"

typedef struct yk_ranks {
    int rank, size;
    yk_store_groups groups; /* its members are owned; all NULL with one rank */
    bool node_groups;       /* shard inside a node, replicate across */
} yk_ranks;

typedef struct yk_ranks_options {
    const yk_config *config;
    int size; /* of the world */
    yk_device *device;
    yk_world *world;               /* NULL: one rank. Not used on a dry device */
    const yk_topology *topology;   /* the ranks that a dry device stands for; NULL: one */
    const yk_race *race;           /* as a group's options have it */
    yk_arena *staging;             /* wire buffers are pushed here */
    const yk_store_options *store; /* what will be reduced and gathered */
} yk_ranks_options;

/* Make the groups.                                                                  [collective]
 *
 * YK_EINVAL  parallel.shard: node with nodes of different sizes
 */
yk_status yk_ranks_create(const yk_ranks_options *options, yk_ranks *ranks_out);
void yk_ranks_destroy(yk_ranks *ranks);

/* The ranks of a world as a topology, with usual rates for links of the kind that `spec` has, and this
 * network between nodes. */
#define YK_RANKS_NETWORK_GBIT 10
yk_topology yk_ranks_topology(const yk_device_spec *spec, int ranks, int node_size);

/* Give nodes a network of another nominal rate, in Gbit/s each way, that `source` tells; and tell the rate. */
void yk_ranks_set_network(yk_topology *topology, double gbit, const char *source);
double yk_ranks_network_gbit(const yk_topology *topology);

/* Between nodes the network that the configuration gives, else that of the slowest of them, if all tell
 * theirs; the usual one stays otherwise. `world` may be NULL: all nodes are like this one.
 *                                                                                   [collective] */
yk_status yk_ranks_find_network(const yk_config *config, yk_world *world, yk_topology *topology);

/* Bytes that this rank has sent to others, and gradients that became zero on the wire. */
yk_comm_counts yk_ranks_counts(const yk_ranks *ranks);

/* Device memory that libraries take for the groups: an estimate. */
int64_t yk_ranks_library_bytes(const yk_ranks *ranks);

/* Pinned host memory that this rank brings to what its node's ranks share. */
int64_t yk_ranks_shared_bytes(const yk_ranks *ranks);

#endif
