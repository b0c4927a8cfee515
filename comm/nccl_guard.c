/* comm/nccl_guard.c - the thread that looks whether a group's collectives end.
 *
 * A stream that has come to a collective waits in a kernel until the other ranks are there. While the
 * oldest collective has begun here and not ended, time counts; when it is the group's deadline, or NCCL
 * reports an error, the group fails. Which rank is late NCCL does not say; the watchdog does.
 */
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/nccl_group.h"
#include "comm/world_mpi.h"
#include "runtime/base/clock.h"
#include "runtime/base/side_thread.h"

#define INTERVAL_MS 50
#define LOOK_MAX_S  0.5 /* what a look counts for: more, and this process was stopped */

static yk_status look_at_library(const nccl_group *g)
{
    for (int i = 0; i < NCCL_N_LANES; i++) {
        ncclResult_t state = ncclSuccess, asked;
        ncclComm_t comm = g->lanes[i].comm;
        if (!comm) continue;
        asked = g->nccl.comm_async_error(comm, &state);
        if (asked != ncclSuccess) state = asked;
        if (state == ncclSuccess || state == ncclInProgress) continue;
        return yk_fail(YK_EPEER, "group", "NCCL reports: %s; %s", g->nccl.error_string(state),
                       g->nccl.last_error(comm));
    }
    return YK_OK;
}

/* Let `dt` seconds pass for the oldest collective. */
static yk_status look_at_oldest(nccl_group *g, double dt)
{
    double timeout_s = yk_nccl_deadline(g->comm);
    const nccl_passing *oldest = &g->ring[g->n_passed % NCCL_PASSING_MAX];
    yk_nccl_collect(g);
    if (g->n_passed == g->n_begun || cudaEventQuery(oldest->begin) != cudaSuccess) {
        (void)cudaGetLastError();
        g->still_s = 0;
        return YK_OK;
    }
    g->still_s += dt;
    if (timeout_s <= 0 || g->still_s <= timeout_s) return YK_OK;
    return yk_fail(YK_ETIMEDOUT, "collective",
                   "another rank did not arrive within %.3g s; it has died, hangs or is slow; give "
                   "a slow one more time with comm.timeout",
                   timeout_s);
}

/* What is wrong with the group, or with the whole run. */
static yk_status look(nccl_group *g, double dt)
{
    if (g->comm->o.world && g->comm->o.world->failed) return g->comm->o.world->failed;
    YK_TRY(look_at_oldest(g, dt));
    return look_at_library(g);
}

static void *guard(void *context)
{
    yk_comm *c = context;
    nccl_group *g = yk_nccl_group_of(c);
    double looked = yk_clock_s();
    struct pollfd wake = {g->wake, POLLIN, 0};
    (void)cudaSetDevice(g->device);
    while (poll(&wake, 1, INTERVAL_MS) <= 0) {
        double dt = yk_clock_s() - looked;
        looked += dt;
        if (atomic_load(&c->failed)) continue;
        pthread_mutex_lock(&g->lock);
        yk_status status = look(g, dt < LOOK_MAX_S ? dt : LOOK_MAX_S);
        if (status != YK_OK) yk_nccl_give_up(c, status);
        pthread_mutex_unlock(&g->lock);
    }
    return NULL;
}

yk_status yk_nccl_guard_start(yk_comm *c)
{
    nccl_group *g = yk_nccl_group_of(c);
    g->wake = eventfd(0, EFD_CLOEXEC);
    if (g->wake < 0) return yk_fail(YK_ENOMEM, "group", "no descriptor for its guard");
    if (yk_side_thread_start(&g->guard, guard, c) != 0)
        return yk_fail(YK_ENOMEM, "group", "no thread for its guard");
    g->is_guarded = true;
    return YK_OK;
}

void yk_nccl_guard_stop(nccl_group *g)
{
    if (g->is_guarded) {
        uint64_t one = 1;
        YK_CHECK(write(g->wake, &one, sizeof one) == sizeof one);
        pthread_join(g->guard, NULL);
    }
    if (g->wake >= 0) close(g->wake);
}
