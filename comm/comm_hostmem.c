/* comm/comm_hostmem.c - collectives between the ranks of a node by way of host memory that they share:
 * making and releasing a group. How it works is in hostmem.h.
 */
#include <stdlib.h>

#include "comm/hostmem.h"
#include "runtime/device/ops.h"

static yk_status create_copies(yk_device *device, const char *down, const char *up,
                               hostmem_copies *copies)
{
    YK_TRY(yk_stream_create(device, YK_STREAM_TRANSFER, down, &copies->down));
    YK_TRY(yk_stream_create(device, YK_STREAM_TRANSFER, up, &copies->up));
    YK_TRY(yk_event_create(device, &copies->begun));
    YK_TRY(yk_event_create(device, &copies->down_done));
    return yk_event_create(device, &copies->up_done);
}

static void destroy_copies(hostmem_copies *copies)
{
    yk_stream_destroy(copies->down);
    yk_stream_destroy(copies->up);
    yk_event_destroy(copies->begun);
    yk_event_destroy(copies->down_done);
    yk_event_destroy(copies->up_done);
}

/* What this rank has for itself. */
static yk_status create_own(const yk_comm *c, hostmem_group *g)
{
    size_t n = (size_t)c->size;
    yk_device *device = c->o.device;
    g->n_gathered = calloc(n, sizeof *g->n_gathered);
    g->far = calloc(HOSTMEM_N_WORDS * n, sizeof *g->far);
    if (!g->n_gathered || !g->far)
        return yk_fail(YK_ENOMEM, "group", "no memory for %d ranks", c->size);
    YK_TRY(create_copies(device, "reduce down", "reduce up", &g->copies[HOSTMEM_LANE_REDUCE]));
    YK_TRY(create_copies(device, "gather down", "gather up", &g->copies[HOSTMEM_LANE_GATHER]));
    for (int i = 0; i < HOSTMEM_N_EVENTS; i++)
        for (int j = 0; j < HOSTMEM_TURNS; j++) YK_TRY(yk_event_create(device, &g->events[i][j]));
    yk_stream *down = g->copies[HOSTMEM_LANE_REDUCE].down;
    YK_TRY(yk_zero(down, c->staging + g->layout.n_flushed, sizeof(int64_t)));
    return yk_stream_synchronize(down);
}

/* The guard goes on until streams wait no more. */
static void hostmem_destroy(yk_comm *c)
{
    hostmem_group *g = yk_hostmem_of(c);
    for (int i = 0; i < 2; i++) destroy_copies(&g->copies[i]);
    for (int i = 0; i < HOSTMEM_N_EVENTS; i++)
        for (int j = 0; j < HOSTMEM_TURNS; j++) yk_event_destroy(g->events[i][j]);
    yk_hostmem_guard_stop(g);
    yk_hostmem_unmap(c, &g->shelf);
    yk_hostmem_unmap(c, &g->segment);
    if (g->mpi != MPI_COMM_NULL && !atomic_load(&c->failed)) MPI_Comm_free(&g->mpi);
    free(g->far);
    free(g->n_gathered);
}

static yk_status hostmem_create(yk_comm *c)
{
    hostmem_group *g = yk_hostmem_of(c);
    g->layout = yk_hostmem_lay_out(c);
    const hostmem_layout *l = &g->layout;
    g->segment = (hostmem_segment){l->control_bytes, l->rank_bytes, l->segment_bytes, NULL, false};
    g->mpi = MPI_COMM_NULL;
    g->wake = -1;
    c->greatest = (float *)(void *)(c->staging + g->layout.greatest_of_all) + c->size;
    YK_TRY(yk_hostmem_map(c, &g->segment, create_own(c, g)));
    return yk_hostmem_guard_start(c, g);
}

static int64_t hostmem_flushed(const yk_comm *c)
{
    return __atomic_load_n(yk_hostmem_flushed(yk_hostmem_of(c), c->index), __ATOMIC_RELAXED);
}

const yk_comm_backend yk_comm_hostmem = {
    .name = "hostmem",
    .state_bytes = sizeof(hostmem_group),
    .create = hostmem_create,
    .destroy = hostmem_destroy,
    .all_gather = yk_hostmem_all_gather,
    .reduce = yk_hostmem_reduce,
    .greatest = yk_hostmem_find_greatest,
    .all_reduce_values = yk_hostmem_all_reduce_values,
    .broadcast = yk_hostmem_broadcast,
    .barrier = yk_hostmem_barrier,
    .shelve = yk_hostmem_shelve,
    .put = yk_hostmem_put,
    .take = yk_hostmem_take,
    .flushed = hostmem_flushed,
};
