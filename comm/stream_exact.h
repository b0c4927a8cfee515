/* comm/stream_exact.h - the sum in one order as work of streams, for backends whose buffers the host
 * does not touch; included by comm/ alone.
 *
 * The same levels, the same chunks and the same bits as mpi_exact.c, but every step is enqueued: packing
 * and adding are operations of ops_wire.h on a stream of their own, bytes travel by what the backend
 * brings on the stream that was given, and events order the two. So while one step's parts travel,
 * those of the step before are added.
 */
#ifndef YK_COMM_STREAM_EXACT_H
#define YK_COMM_STREAM_EXACT_H

#include "comm/backend.h"

/* Bytes to or from index `peer`. */
typedef struct yk_transfer {
    void *data;
    int64_t bytes;
    int peer;
    bool sends;
} yk_transfer;

/* How bytes travel. Each call enqueues, on the same stream on all ranks and in one sequence. */
typedef struct yk_carrier {
    /* All of `list` (borrowed for the call) at once. Between two ranks, those of one list arrive in
     * the order in which they stand there. */
    yk_status (*exchange)(yk_comm *comm, const yk_transfer *list, int n, yk_stream *stream);
    /* Part i of full, `bytes` bytes, from index i to all; this rank's is in its place. */
    yk_status (*gather)(yk_comm *comm, void *full, int64_t bytes, yk_stream *stream);
} yk_carrier;

/* What a group needs for its sums; made with it. */
typedef struct yk_exact {
    yk_comm *comm; /* borrowed, like what follows */
    const yk_carrier *carrier;
    int64_t *n_flushed;                           /* device memory */
    yk_stream *sums;                              /* owned, like what follows */
    yk_event *joined;                             /* where one stream follows the other */
    yk_event *packed[2], *arrived[2], *summed[2]; /* of two steps */
    yk_event *crossed[2], *closed[2];             /* of two chunks */
    yk_transfer *list;                            /* (2 * size) */
} yk_exact;

/* Fill `exact`, whose borrowed members are set.                                          [local]
 *
 * YK_ENOMEM  no memory for it
 */
yk_status yk_exact_init(yk_exact *exact);

/* Release, when the streams have passed everything. What was never filled must be zero. */
void yk_exact_fini(yk_exact *exact);

/* Enqueue a reduction.                                                                  [stream] */
yk_status yk_exact_run(yk_exact *exact, const yk_reduction *reduction, yk_stream *stream);

#endif
