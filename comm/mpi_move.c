/* comm/mpi_move.c - messages, and the collectives that move buffers without changing them.
 *
 * A gather has the levels of a group in the reverse order of a sum: a rank's part first goes to its
 * peers on the other nodes, then what it has from them to its own node. So a part crosses the link
 * between two nodes once, and every rank sends size - 1 parts in all.
 */
#include <limits.h>
#include <string.h>

#include "comm/mpi_group.h"
#include "runtime/base/arith.h"

/* Bytes of one message of a long buffer: MPI counts in int, and no message should be under way for
 * longer than a deadline. */
#define PIECE_BYTES ((int64_t)64 << 20)

/* ---- messages ----------------------------------------------------------------------------- */

static MPI_Request *next_request(yk_comm *c, mpi_batch *b, int peer)
{
    YK_CHECK(b->n < b->room);
    b->ranks[b->n] = c->ranks[peer];
    return &b->requests[b->n++];
}

yk_status yk_mpi_send(yk_comm *c, mpi_batch *b, int peer, const void *data, int64_t bytes, int tag)
{
    YK_CHECK(bytes <= INT_MAX);
    atomic_fetch_add(&c->bytes_sent, bytes);
    return yk_mpi_check(MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag,
                                  yk_mpi_group_of(c)->messages, next_request(c, b, peer)),
                        "send");
}

yk_status yk_mpi_receive(yk_comm *c, mpi_batch *b, int peer, void *data, int64_t bytes, int tag)
{
    YK_CHECK(bytes <= INT_MAX);
    return yk_mpi_check(MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag,
                                  yk_mpi_group_of(c)->messages, next_request(c, b, peer)),
                        "receive");
}

yk_status yk_mpi_batch_wait(yk_comm *c, mpi_batch *b, const char *what)
{
    int n = b->n;
    b->n = 0;
    return yk_mpi_wait(b->requests, n, b->ranks, yk_mpi_deadline(c), what);
}

/* ---- gather ------------------------------------------------------------------------------- */

static int index_of(const yk_comm *c, int local, int node)
{
    return local * c->n_nodes + node;
}

/* The part of this rank to and from the other nodes: bytes at + 0 .. n - 1 of each part. */
static yk_status exchange_across(yk_comm *c, mpi_batch *b, char *base, int64_t stride, int64_t n,
                                 int tag)
{
    for (int step = 1; step < c->n_nodes; step++) {
        int to = index_of(c, yk_comm_local(c), (yk_comm_node(c) + step) % c->n_nodes);
        int from =
            index_of(c, yk_comm_local(c), (yk_comm_node(c) + c->n_nodes - step) % c->n_nodes);
        YK_TRY(yk_mpi_receive(c, b, from, base + from * stride, n, tag));
        YK_TRY(yk_mpi_send(c, b, to, base + c->index * stride, n, tag));
    }
    return yk_mpi_batch_wait(c, b, "gather");
}

/* The parts of this local rank on all nodes to and from the others of this node. */
static yk_status exchange_local(yk_comm *c, mpi_batch *b, char *base, int64_t stride, int64_t n,
                                int tag)
{
    int local = yk_comm_local(c), node = yk_comm_node(c);
    for (int step = 1; step < c->n_local; step++) {
        int to = (local + step) % c->n_local, from = (local + c->n_local - step) % c->n_local;
        for (int k = 0; k < c->n_nodes; k++) {
            YK_TRY(yk_mpi_receive(c, b, index_of(c, from, node),
                                  base + index_of(c, from, k) * stride, n, tag));
            YK_TRY(yk_mpi_send(c, b, index_of(c, to, node), base + index_of(c, local, k) * stride,
                               n, tag));
        }
    }
    return yk_mpi_batch_wait(c, b, "gather");
}

yk_status yk_mpi_gather_parts(yk_comm *c, mpi_batch *b, char *base, int64_t stride, int64_t bytes,
                              int tag)
{
    for (int64_t at = 0; at < bytes; at += PIECE_BYTES) {
        int64_t n = yk_min(bytes - at, PIECE_BYTES);
        YK_TRY(exchange_across(c, b, base + at, stride, n, tag));
        YK_TRY(exchange_local(c, b, base + at, stride, n, tag));
    }
    return YK_OK;
}

yk_status yk_mpi_run_gather(const mpi_task *t)
{
    yk_comm *c = t->comm;
    char *own = (char *)t->buffer + c->index * t->bytes;
    if (t->shard != own) memcpy(own, t->shard, (size_t)t->bytes);
    return yk_mpi_gather_parts(c, &yk_mpi_group_of(c)->gather[1], t->buffer, t->bytes, t->bytes,
                               t->tag);
}

/* ---- broadcast ---------------------------------------------------------------------------- */

/* Down a binomial tree: counted from the root, v hears from v without its lowest bit, and tells those
 * who have one lower bit besides. */
static yk_status broadcast_piece(const mpi_task *t, char *data, int64_t n)
{
    yk_comm *c = t->comm;
    mpi_batch *b = &yk_mpi_group_of(c)->gather[1];
    int v = (c->index - t->root + c->size) % c->size, low = v & -v;
    if (v > 0) {
        YK_TRY(yk_mpi_receive(c, b, (v - low + t->root) % c->size, data, n, t->tag));
        YK_TRY(yk_mpi_batch_wait(c, b, "broadcast"));
    }
    for (int bit = 1; (v == 0 || bit < low) && v + bit < c->size; bit *= 2)
        YK_TRY(yk_mpi_send(c, b, (v + bit + t->root) % c->size, data, n, t->tag));
    return yk_mpi_batch_wait(c, b, "broadcast");
}

yk_status yk_mpi_run_broadcast(const mpi_task *t)
{
    for (int64_t at = 0; at < t->bytes; at += PIECE_BYTES)
        YK_TRY(broadcast_piece(t, (char *)t->buffer + at, yk_min(t->bytes - at, PIECE_BYTES)));
    return YK_OK;
}

/* ---- values and barrier ------------------------------------------------------------------- */

yk_status yk_mpi_finish(yk_comm *c, int error, MPI_Request *request, const char *what)
{
    YK_TRY(yk_mpi_check(error, what));
    return yk_mpi_wait(request, 1, NULL, yk_mpi_deadline(c), what);
}

yk_status yk_mpi_run_greatest(const mpi_task *t)
{
    float *value = t->buffer, mine = *value;
    MPI_Request request;
    return yk_mpi_finish(t->comm,
                         MPI_Iallreduce(&mine, value, 1, MPI_FLOAT, MPI_MAX,
                                        yk_mpi_group_of(t->comm)->library, &request),
                         &request, "scale of gradients");
}

/* All learn the sums of all, and add in the order of the group's index. */
yk_status yk_mpi_run_values(const mpi_task *t)
{
    yk_comm *c = t->comm;
    mpi_group *g = yk_mpi_group_of(c);
    yk_step_values *v = t->buffer;
    mpi_sums *all = g->sums, mine = {v->loss_sum, v->sum_squares, v->n_tokens, v->non_finite};
    MPI_Request request;
    YK_TRY(yk_mpi_finish(c,
                         MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE,
                                        g->values, &request),
                         &request, "all-reduce of values"));
    mpi_sums total = {0};
    for (int i = 0; i < c->size; i++) {
        total.loss_sum += all[i].loss_sum;
        total.sum_squares += all[i].sum_squares;
        total.n_tokens += all[i].n_tokens;
        total.non_finite |= all[i].non_finite;
    }
    v->loss_sum = total.loss_sum;
    v->sum_squares = total.sum_squares;
    v->n_tokens = total.n_tokens;
    v->non_finite = (int32_t)total.non_finite;
    return YK_OK;
}

yk_status yk_mpi_run_barrier(const mpi_task *t)
{
    MPI_Request request;
    return yk_mpi_finish(t->comm, MPI_Ibarrier(yk_mpi_group_of(t->comm)->values, &request),
                         &request, "barrier");
}
