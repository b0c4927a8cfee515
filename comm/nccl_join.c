/* comm/nccl_join.c - the ranks of a group meet: who made the number that NCCL knows the group by tells
 * the others, by MPI.
 */
#include <string.h>

#include "comm/mpi_wait.h"
#include "comm/nccl_group.h"
#include "comm/world_mpi.h"

/* The tag of this backend's groups when ranks make a communicator of their own. */
#define GROUP_TAG 2

/* What index 0 tells the others. */
typedef struct invitation {
    ncclUniqueId ids[NCCL_N_LANES];
} invitation;

static yk_status make_invitation(const yk_comm *c, invitation *i)
{
    const nccl_group *g = yk_nccl_group_of(c);
    for (int lane = 0; lane < NCCL_N_LANES; lane++) {
        ncclResult_t result = g->nccl.get_unique_id(&i->ids[lane]);
        if (result != ncclSuccess)
            return yk_fail(YK_EPEER, "group", "NCCL reports: %s; %s", g->nccl.error_string(result),
                           g->nccl.last_error(NULL));
    }
    return YK_OK;
}

static yk_status wait_for(const yk_comm *c, int error, MPI_Request *request)
{
    YK_TRY(yk_mpi_check(error, "group"));
    return yk_mpi_wait(request, 1, NULL, yk_nccl_deadline(c), "group");
}

/* YK_OK when every rank brings it, else the worst of what they bring. */
static yk_status agree(const yk_comm *c, MPI_Comm mpi, yk_status mine)
{
    int worst = (int)mine, all = 0;
    MPI_Request request;
    YK_TRY(wait_for(c, MPI_Iallreduce(&worst, &all, 1, MPI_INT, MPI_MAX, mpi, &request), &request));
    return (yk_status)all;
}

static yk_status create_lane(yk_comm *c, nccl_lane_name name, ncclUniqueId id)
{
    nccl_group *g = yk_nccl_group_of(c);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    pthread_mutex_lock(&g->lock);
    ncclResult_t result = g->nccl.comm_init(&g->lanes[name].comm, c->size, id, c->index, &config);
    return yk_nccl_finish(c, name, result, "group");
}

static yk_status create_lanes(yk_comm *c, const invitation *i)
{
    for (int lane = 0; lane < NCCL_N_LANES; lane++)
        YK_TRY(create_lane(c, (nccl_lane_name)lane, i->ids[lane]));
    return YK_OK;
}

static yk_status meet(yk_comm *c, MPI_Comm mpi, yk_status mine)
{
    invitation i;
    MPI_Request request;
    memset(&i, 0, sizeof i);
    if (mine == YK_OK && c->index == 0) mine = make_invitation(c, &i);
    YK_TRY(agree(c, mpi, mine));
    YK_TRY(wait_for(c, MPI_Ibcast(&i, sizeof i, MPI_BYTE, 0, mpi, &request), &request));
    return agree(c, mpi, create_lanes(c, &i));
}

/* Made by the group's ranks alone: a node may have but one rank, which then has nothing to make. */
static yk_status create_communicator(const yk_comm *c, MPI_Comm *mpi_out)
{
    MPI_Group all, group;
    MPI_Comm_group(c->o.world->comm, &all);
    MPI_Group_incl(all, c->size, c->ranks, &group);
    yk_status status =
        yk_mpi_check(MPI_Comm_create_group(c->o.world->comm, group, GROUP_TAG, mpi_out), "group");
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    return status;
}

yk_status yk_nccl_join(yk_comm *c, yk_status mine)
{
    if (!c->o.world) { /* one rank, which has nobody to tell */
        invitation i;
        YK_TRY(mine);
        YK_TRY(make_invitation(c, &i));
        return create_lanes(c, &i);
    }
    MPI_Comm mpi;
    YK_TRY(create_communicator(c, &mpi));
    yk_status status = meet(c, mpi, mine);
    if (status != YK_EPEER && status != YK_ETIMEDOUT) MPI_Comm_free(&mpi);
    return status;
}
