/* comm/mpi_group.h - what the files of the mpi backend share; included by comm/ alone.
 *
 * Threads.  A collective runs where its stream runs: on the thread of a transfer stream, or on the
 *           caller's. Two lanes, one for reductions and one for everything that moves whole buffers,
 *           let one of each be under way; messages carry the number of their collective as a tag, so
 *           that lanes share a communicator.
 * Memory.   All requests lie in batches made with the group.
 */
#ifndef YK_COMM_MPI_GROUP_H
#define YK_COMM_MPI_GROUP_H

#include "comm/backend.h"
#include "comm/mpi_wait.h"
#include "comm/world_mpi.h"
#include "runtime/device/wire.h"

/* Requests that are waited for together. */
typedef struct mpi_batch {
    MPI_Request *requests; /* (room) */
    int *ranks;            /* (room) in the world, that each waits for */
    int n, room;
} mpi_batch;

/* What a step's values are summed from. */
typedef struct mpi_sums {
    double loss_sum, sum_squares;
    int64_t n_tokens, non_finite;
} mpi_sums;

typedef struct mpi_group {
    MPI_Comm messages; /* point-to-point; a rank's number is its index */
    MPI_Comm library;  /* collectives of MPI's own, in reductions */
    MPI_Comm values;   /* likewise, for values and barriers */
    bool is_joined;    /* these three and `add` are there */
    MPI_Op add[YK_N_FLOAT_DTYPES];
    mpi_batch local[2], across[2]; /* of reductions: two steps in a node, two chunks across nodes */
    mpi_batch gather[2];           /* the last step of an all-reduce; a gather or a broadcast */
    mpi_sums *sums;                /* (size) */
    const void **parts;            /* (size) what a reduction adds */
    float greatest;                /* gradient of the last sum that has a scale */
    uint64_t n_issued;
} mpi_group;

/* A collective on its way through a stream. */
typedef struct mpi_task {
    yk_comm *comm;
    yk_status (*run)(const struct mpi_task *task);
    int tag;
    yk_reduction reduction;
    yk_wire_scale scale; /* of a reduction */
    void *buffer;        /* of a gather, a broadcast, values, a greatest */
    const void *shard;
    int64_t bytes;
    int root;
} mpi_task;

/* Seconds that a collective waits for a rank. */
static inline double yk_mpi_deadline(const yk_comm *c)
{
    return c->o.timeout_s > 0 ? c->o.timeout_s : c->o.world->timeout_s;
}

static inline mpi_group *yk_mpi_group_of(const yk_comm *c)
{
    return c->state;
}

/* A message of up to 2^31 - 1 bytes to or from index `peer`. Between two ranks, those of one tag arrive
 * in the order in which they were sent. Bytes sent are counted. */
yk_status yk_mpi_send(yk_comm *c, mpi_batch *b, int peer, const void *data, int64_t bytes, int tag);
yk_status yk_mpi_receive(yk_comm *c, mpi_batch *b, int peer, void *data, int64_t bytes, int tag);

/* Wait for the batch and empty it. */
yk_status yk_mpi_batch_wait(yk_comm *c, mpi_batch *b, const char *what);

/* Part i of `size` parts, each `bytes` bytes at base + i * stride, from index i to all. Part `index`
 * is in its place. */
yk_status yk_mpi_gather_parts(yk_comm *c, mpi_batch *b, char *base, int64_t stride, int64_t bytes,
                              int tag);

/* mpi_task.run */
yk_status yk_mpi_run_gather(const mpi_task *t);
yk_status yk_mpi_run_broadcast(const mpi_task *t);
yk_status yk_mpi_run_exact(const mpi_task *t);
yk_status yk_mpi_run_ring(const mpi_task *t);
yk_status yk_mpi_run_greatest(const mpi_task *t);
yk_status yk_mpi_run_values(const mpi_task *t);
yk_status yk_mpi_run_barrier(const mpi_task *t);

/* Wait for one collective of MPI's own that was begun with `error`. */
yk_status yk_mpi_finish(yk_comm *c, int error, MPI_Request *request, const char *what);

/* The exponent of a reduction's scale, where its stream passes. */
static inline int yk_mpi_exponent(const mpi_task *t)
{
    return t->scale.greatest ? yk_wire_scale_exponent(*t->scale.greatest, t->scale.n_ranks) : 0;
}

/* MPI's way to add, for the wire formats that it does not know. */
void yk_mpi_add_bf16(void *in, void *inout, int *n, MPI_Datatype *type);
void yk_mpi_add_f16(void *in, void *inout, int *n, MPI_Datatype *type);

#endif
