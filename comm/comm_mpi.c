/* comm/comm_mpi.c - collectives over host memory, carried by MPI.
 *
 * Calls only enqueue: the work is a host function of the stream, and the functions that do it are in
 * mpi_exact.c, mpi_ring.c and mpi_move.c. The host numbers collectives as it issues them, which all
 * ranks do in one sequence, so a number names the same collective on every rank.
 */
#include <stdlib.h>

#include "comm/mpi_group.h"
#include "comm/world_mpi.h"
#include "runtime/base/clock.h"

/* MPI promises tags up to here, and so many collectives are never under way. */
#define N_TAGS 32768

/* ---- making a group ----------------------------------------------------------------------- */

static yk_status make_batch(mpi_batch *b, int room)
{
    b->requests = calloc((size_t)room, sizeof(MPI_Request));
    b->ranks = calloc((size_t)room, sizeof *b->ranks);
    b->room = room;
    if (b->requests && b->ranks) return YK_OK;
    return yk_fail(YK_ENOMEM, "group", "no memory for %d requests", room);
}

static yk_status make_batches(const yk_comm *c, mpi_group *g)
{
    for (int i = 0; i < 2; i++) {
        YK_TRY(make_batch(&g->local[i], 2 * c->n_local));
        YK_TRY(make_batch(&g->across[i], 2 * c->n_nodes));
        YK_TRY(make_batch(&g->gather[i], 2 * c->size));
    }
    g->sums = calloc((size_t)c->size, sizeof *g->sums);
    g->parts = calloc((size_t)c->size, sizeof *g->parts);
    return g->sums && g->parts ? YK_OK
                               : yk_fail(YK_ENOMEM, "group", "no memory for %d ranks", c->size);
}

static void free_batches(mpi_group *g)
{
    mpi_batch *all[] = {&g->local[0],  &g->local[1],  &g->across[0],
                        &g->across[1], &g->gather[0], &g->gather[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]->requests);
        free(all[i]->ranks);
    }
    free(g->sums);
    free(g->parts);
}

/* Made by the group's ranks alone: a node may have but one rank, which then has nothing to make. */
static yk_status create_communicator(const yk_comm *c, MPI_Comm *comm_out)
{
    MPI_Comm world = c->o.world->comm;
    MPI_Group all, group;
    MPI_Comm_group(world, &all);
    MPI_Group_incl(all, c->size, c->ranks, &group);
    yk_status status = yk_mpi_check(MPI_Comm_create_group(world, group, 0, comm_out), "group");
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    return status;
}

static yk_status make_communicators(const yk_comm *c, mpi_group *g)
{
    const char *what = "group";
    YK_TRY(create_communicator(c, &g->messages));
    YK_TRY(yk_mpi_check(MPI_Comm_dup(g->messages, &g->library), what));
    YK_TRY(yk_mpi_check(MPI_Comm_dup(g->messages, &g->values), what));
    YK_TRY(yk_mpi_check(MPI_Op_create(yk_mpi_add_bf16, 1, &g->add[YK_BF16]), what));
    return yk_mpi_check(MPI_Op_create(yk_mpi_add_f16, 1, &g->add[YK_F16]), what);
}

static void free_communicators(mpi_group *g)
{
    MPI_Op_free(&g->add[YK_F16]);
    MPI_Op_free(&g->add[YK_BF16]);
    MPI_Comm_free(&g->values);
    MPI_Comm_free(&g->library);
    MPI_Comm_free(&g->messages);
}

/* After a failure of the group MPI may still write where a message was expected, and would wait for
 * the others in the calls that release: what it holds is left to it. */
static void mpi_destroy(yk_comm *c)
{
    mpi_group *g = yk_mpi_group_of(c);
    if (atomic_load(&c->failed)) {
        c->state = NULL;
        return;
    }
    if (g->is_joined) free_communicators(g);
    free_batches(g);
}

static yk_status mpi_create(yk_comm *c)
{
    mpi_group *g = yk_mpi_group_of(c);
    g->add[YK_F32] = MPI_SUM;
    c->greatest = &g->greatest;
    YK_TRY(make_batches(c, g));
    YK_TRY(make_communicators(c, g));
    g->is_joined = true;
    return YK_OK;
}

/* ---- through the stream ------------------------------------------------------------------- */

static yk_status run_task(void *context)
{
    const mpi_task *t = context;
    yk_comm *c = t->comm;
    if (atomic_load(&c->failed)) return (yk_status)atomic_load(&c->failed);
    int64_t begin = yk_clock_ns();
    yk_status status = t->run(t);
    atomic_fetch_add(&c->busy_ns, yk_clock_ns() - begin);
    if (t->run != yk_mpi_run_greatest) atomic_fetch_add(&c->n_collectives, 1); /* a part of one */
    if (status != YK_OK) {
        atomic_store(&c->failed, (int)status);
        c->o.world->failed = status;
    }
    return status;
}

static yk_status enqueue(mpi_task task, yk_stream *stream)
{
    _Static_assert(sizeof task <= YK_STREAM_CONTEXT_MAX, "a task travels as a stream's context");
    task.tag = (int)(yk_mpi_group_of(task.comm)->n_issued++ % N_TAGS);
    return yk_stream_run(stream, run_task, &task, sizeof task);
}

static yk_status mpi_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                                yk_stream *stream)
{
    return enqueue(
        (mpi_task){
            .comm = c, .run = yk_mpi_run_gather, .buffer = full, .shard = shard, .bytes = bytes},
        stream);
}

static yk_status mpi_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream)
{
    bool ring = c->o.reduce == YK_REDUCE_RING;
    yk_wire_scale scale;
    YK_TRY(yk_comm_agree_scale(c, r, stream, &scale));
    return enqueue((mpi_task){.comm = c,
                              .run = ring ? yk_mpi_run_ring : yk_mpi_run_exact,
                              .reduction = *r,
                              .scale = scale},
                   stream);
}

static yk_status mpi_greatest(yk_comm *c, float *value, yk_stream *stream)
{
    return enqueue((mpi_task){.comm = c, .run = yk_mpi_run_greatest, .buffer = value}, stream);
}

static yk_status mpi_all_reduce_values(yk_comm *c, yk_step_values *values, yk_stream *stream)
{
    return enqueue((mpi_task){.comm = c, .run = yk_mpi_run_values, .buffer = values}, stream);
}

static yk_status mpi_broadcast(yk_comm *c, void *buffer, int64_t bytes, int root, yk_stream *stream)
{
    return enqueue(
        (mpi_task){
            .comm = c, .run = yk_mpi_run_broadcast, .buffer = buffer, .bytes = bytes, .root = root},
        stream);
}

static yk_status mpi_barrier(yk_comm *c, yk_stream *stream)
{
    return enqueue((mpi_task){.comm = c, .run = yk_mpi_run_barrier}, stream);
}

const yk_comm_backend yk_comm_mpi = {
    .name = "mpi",
    .state_bytes = sizeof(mpi_group),
    .create = mpi_create,
    .destroy = mpi_destroy,
    .all_gather = mpi_all_gather,
    .reduce = mpi_reduce,
    .greatest = mpi_greatest,
    .all_reduce_values = mpi_all_reduce_values,
    .broadcast = mpi_broadcast,
    .barrier = mpi_barrier,
};
