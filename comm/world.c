/* comm/world.c - joining, and the small agreements between processes.
 *
 * Every call that waits for others is a nonblocking one of MPI and a wait that backs off. In a world
 * of one process MPI may not be running, and nothing here calls it.
 */
#include "comm/world.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi_wait.h"
#include "comm/world_mpi.h"
#include "runtime/base/arith.h"

yk_status yk_world_join(yk_world **world_out)
{
    yk_world *w = calloc(1, sizeof *w);
    if (!w) return yk_fail(YK_ENOMEM, "world", "no memory for it");
    *w = (yk_world){.size = 1, .timeout_s = YK_WORLD_TIMEOUT_S, .comm = MPI_COMM_NULL};
    bool launched;
    yk_status status = yk_world_find_launcher(&launched);
    if (status == YK_OK && launched) status = yk_world_start_mpi(w);
    if (status == YK_OK) status = yk_world_find_places(w);
    if (status != YK_OK) {
        yk_world_leave(w);
        return status;
    }
    *world_out = w;
    return YK_OK;
}

void yk_world_abort(yk_world *w, int exit_code)
{
    if (w) yk_held_end(&w->held, 0);
    if (w && w->has_mpi) MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
}

void yk_world_set_timeout(yk_world *w, double seconds)
{
    w->timeout_s = seconds;
}

/* ---- who is where ------------------------------------------------------------------------- */

int yk_world_rank(const yk_world *w)
{
    return w->rank;
}

int yk_world_size(const yk_world *w)
{
    return w->size;
}

int yk_world_node(const yk_world *w)
{
    return w->places[w->rank].node;
}

int yk_world_n_nodes(const yk_world *w)
{
    return w->n_nodes;
}

int yk_world_local_rank(const yk_world *w)
{
    return w->places[w->rank].local_rank;
}

int yk_world_local_size(const yk_world *w)
{
    return w->local_size;
}

bool yk_world_is_regular(const yk_world *w)
{
    return w->regular;
}

int yk_world_rank_at(const yk_world *w, int node, int local_rank)
{
    for (int r = 0; r < w->size; r++)
        if (w->places[r].node == node && w->places[r].local_rank == local_rank) return r;
    YK_CHECK(!"a place in the world");
    return -1;
}

const char *yk_world_host(const yk_world *w, int rank)
{
    return w->places[rank].host;
}

/* ---- agreement ---------------------------------------------------------------------------- */

/* Wait for what a call has begun. A failure is the world's from then on. */
static yk_status finish(yk_world *w, int error, MPI_Request *request, const char *what)
{
    yk_status status = yk_mpi_check(error, what);
    if (status == YK_OK) status = yk_mpi_wait(request, 1, NULL, w->timeout_s, what);
    if (status != YK_OK) w->failed = status;
    return status;
}

static yk_status all_reduce(yk_world *w, int64_t mine, MPI_Op op, int64_t *result_out)
{
    int64_t result = mine;
    if (w->size > 1) {
        YK_TRY(w->failed);
        MPI_Request request;
        YK_TRY(finish(w, MPI_Iallreduce(&mine, &result, 1, MPI_INT64_T, op, w->comm, &request),
                      &request, "agreement"));
    }
    *result_out = result;
    return YK_OK;
}

yk_status yk_world_min(yk_world *w, int64_t mine, int64_t *result_out)
{
    return all_reduce(w, mine, MPI_MIN, result_out);
}

yk_status yk_world_max(yk_world *w, int64_t mine, int64_t *result_out)
{
    return all_reduce(w, mine, MPI_MAX, result_out);
}

yk_status yk_world_max_begin(yk_world *w, int64_t mine)
{
    w->ahead_mine = w->ahead_result = mine;
    if (w->size == 1) return YK_OK;
    YK_TRY(w->failed);
    yk_status status = yk_mpi_check(MPI_Iallreduce(&w->ahead_mine, &w->ahead_result, 1, MPI_INT64_T,
                                                   MPI_MAX, w->comm, &w->ahead),
                                    "agreement");
    if (status != YK_OK) w->failed = status;
    return status;
}

yk_status yk_world_max_end(yk_world *w, int64_t *result_out)
{
    if (w->size > 1) {
        YK_TRY(w->failed);
        YK_TRY(finish(w, MPI_SUCCESS, &w->ahead, "agreement"));
    }
    *result_out = w->ahead_result;
    return YK_OK;
}

yk_status yk_world_broadcast(yk_world *w, void *data, int64_t bytes, int root)
{
    YK_CHECK(bytes >= 0 && root >= 0 && root < w->size);
    for (int64_t at = 0; w->size > 1 && at < bytes; at += INT_MAX) {
        YK_TRY(w->failed);
        MPI_Request request;
        int piece = (int)yk_min(bytes - at, INT_MAX);
        YK_TRY(finish(w, MPI_Ibcast((char *)data + at, piece, MPI_BYTE, root, w->comm, &request),
                      &request, "broadcast"));
    }
    return YK_OK;
}

yk_status yk_world_gather(yk_world *w, const void *mine, int64_t bytes, void *all_out)
{
    YK_CHECK(bytes >= 0 && bytes <= INT_MAX);
    if (w->size == 1) {
        memcpy(all_out, mine, (size_t)bytes);
        return YK_OK;
    }
    YK_TRY(w->failed);
    MPI_Request request;
    int n = (int)bytes;
    return finish(w, MPI_Iallgather(mine, n, MPI_BYTE, all_out, n, MPI_BYTE, w->comm, &request),
                  &request, "gather");
}

yk_status yk_world_barrier(yk_world *w)
{
    if (w->size == 1) return YK_OK;
    YK_TRY(w->failed);
    MPI_Request request;
    return finish(w, MPI_Ibarrier(w->comm, &request), &request, "barrier");
}
