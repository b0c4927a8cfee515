/* comm/nccl_group.h - what the files of the nccl backend share; included by comm/ alone.
 *
 * Lanes.    NCCL lets one communicator carry one thing at a time, in one order on all ranks. So there
 *           are two: one for reductions, values and barriers, one for gathers and broadcasts, which
 *           run beside reductions. What comes to a lane on another stream than the last waits for it.
 * Calls.    Communicators do not block: a call that cannot be finished at once is waited for with the
 *           group's deadline. Whoever calls NCCL holds the lock, so that the guard never gives a
 *           communicator up in the middle of a call.
 * Passing.  Each collective lies between two events with a time, in a ring; who looks (the guard, or
 *           someone who asks for counts) takes those that streams have passed off the ring.
 * Failure.  A rank that is gone or late leaves a kernel on the GPU that waits for ever. The guard
 *           sees a collective that has begun and does not end within the deadline, or that NCCL
 *           reports an error; it fails the group and the device and aborts the communicators, which
 *           ends their kernels, so that the host comes back from whatever it waits for. Where a
 *           watchdog runs, it ends the process first, kernels included.
 */
#ifndef YK_COMM_NCCL_GROUP_H
#define YK_COMM_NCCL_GROUP_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "comm/nccl_layout.h"
#include "comm/nccl_library.h"
#include "comm/stream_exact.h"

typedef enum nccl_lane_name {
    NCCL_LANE_REDUCE,
    NCCL_LANE_GATHER,
    NCCL_N_LANES = YK_COMM_NCCL_LANES,
} nccl_lane_name;

typedef struct nccl_lane {
    ncclComm_t comm;   /* NULL: none, or given up */
    cudaStream_t last; /* the stream of its last collective */
    cudaEvent_t done;  /* where that ends */
} nccl_lane;

/* A collective on its way through a stream. */
typedef struct nccl_passing {
    cudaEvent_t begin, end;
    int64_t bytes; /* sent */
} nccl_passing;

#define NCCL_PASSING_MAX 256

typedef struct nccl_group {
    yk_comm *comm;
    nccl_library nccl;
    nccl_lane lanes[NCCL_N_LANES];
    yk_exact exact;
    int device;
    float *meeting; /* device memory, like values */
    yk_step_values *values;
    int64_t *n_flushed; /* pinned host memory: what device memory said last */
    int wake;           /* tells the guard to end */
    pthread_t guard;
    bool is_guarded;

    pthread_mutex_t lock; /* guards NCCL's calls and what follows */
    nccl_passing ring[NCCL_PASSING_MAX];
    int64_t n_begun, n_passed;
    double still_s; /* since the oldest one has begun and nothing passed */
} nccl_group;

static inline nccl_group *yk_nccl_group_of(const yk_comm *c)
{
    return c->state;
}

/* Seconds that a collective waits for a rank. */
double yk_nccl_deadline(const yk_comm *c);

/* Begin a collective that sends `bytes` bytes in a lane; end it. Between the two, calls that need it
 * take the lock. */
yk_status yk_nccl_begin(yk_comm *c, nccl_lane_name lane, int64_t bytes, yk_stream *stream,
                        cudaStream_t *stream_out);
yk_status yk_nccl_end(yk_comm *c, nccl_lane_name lane, yk_stream *stream);

/* The result of a call in a lane, made while the lock was taken: YK_OK when it is done or, within the
 * deadline, has become so. Gives the lock back. */
yk_status yk_nccl_finish(yk_comm *c, nccl_lane_name lane, ncclResult_t result, const char *what);

/* Count what the streams have passed. The lock is held. */
void yk_nccl_collect(nccl_group *g);

/* Fail the group and give its communicators up. The lock is held; the failure has been said. */
void yk_nccl_give_up(yk_comm *c, yk_status status);

/* nccl_join.c: make the lanes' communicators, when every rank brings YK_OK. Collective. */
yk_status yk_nccl_join(yk_comm *c, yk_status mine);

/* nccl_guard.c */
yk_status yk_nccl_guard_start(yk_comm *c);
void yk_nccl_guard_stop(nccl_group *g);

/* nccl_move.c: the collectives. */
extern const yk_carrier yk_nccl_carrier;
yk_status yk_nccl_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                             yk_stream *stream);
yk_status yk_nccl_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream);
yk_status yk_nccl_greatest(yk_comm *c, float *value, yk_stream *stream);
yk_status yk_nccl_all_reduce_values(yk_comm *c, yk_step_values *values, yk_stream *stream);
yk_status yk_nccl_broadcast(yk_comm *c, void *buffer, int64_t bytes, int root, yk_stream *stream);
yk_status yk_nccl_barrier(yk_comm *c, yk_stream *stream);

#endif
