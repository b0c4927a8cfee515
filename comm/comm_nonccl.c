/* comm/comm_nonccl.c - in the place of comm_nccl.c in a build without NCCL: a dry group may stand for
 * one over nccl, a real one cannot be had.
 */
#include "comm/backend.h"

static yk_status nccl_create(yk_comm *c)
{
    return yk_fail(YK_EUNSUPPORTED, "comm.backend",
                   "%d ranks on GPUs need NCCL, and this program was built without it (" YK_NCCL_WHY
                   "); install NCCL and build again, start one rank, or use comm.backend: hostmem "
                   "on one node",
                   c->size);
}

int yk_comm_nccl_version(void)
{
    return 0;
}

const yk_comm_backend yk_comm_nccl = {.name = "nccl", .create = nccl_create};
