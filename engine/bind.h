/* engine/bind.h - a rank's place on its machine: its GPU, its cores, its memory. */
#ifndef YK_ENGINE_BIND_H
#define YK_ENGINE_BIND_H

#include "comm/world.h"

/* Choose this rank's GPU among those that its node's ranks see, and keep this process to the cores
 * and the memory near it, of what it was given. Before a device is opened.            [collective]
 *
 * wants_gpu      false: cores are shared out evenly among the node's ranks
 * ranks_per_gpu  that may open the same one
 * gpu_out        index of the GPU to open; 0 without one
 * n_cores_out    cores of its own, for threads that compute; 1 where ranks share processors
 *
 * YK_EINVAL  more ranks of a node would open one GPU; a node has none
 * YK_ENOMEM  no memory for the calculation
 */
yk_status yk_bind_rank(yk_world *world, bool wants_gpu, int64_t ranks_per_gpu, int *gpu_out,
                       int *n_cores_out);

/* Cores of which this process may use a processor; 0: not known.                         [local] */
int yk_bind_count_cores(void);

#endif
