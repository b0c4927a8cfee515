/* comm/mpi_ring.c - sums as MPI forms them, in the wire format.
 *
 * The whole buffer is packed to its own front, reduced there in place, and unpacked from there. MPI
 * chooses the way and the order.
 */
#include "comm/mpi_group.h"

static void add(void *in, void *inout, int n, yk_dtype wire)
{
    const void *parts[] = {in, inout};
    yk_wire_sum(inout, parts, 2, n, wire);
}

void yk_mpi_add_bf16(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    add(in, inout, *n, YK_BF16);
}

void yk_mpi_add_f16(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    add(in, inout, *n, YK_F16);
}

/* What a rank of a ring sends: size - 1 parts for each of the two halves of an all-reduce. */
static void count_bytes(yk_comm *c, const yk_reduction *r)
{
    int64_t half = (c->size - 1) * r->count * yk_dtype_bytes(r->wire);
    atomic_fetch_add(&c->bytes_sent, r->shard ? half : 2 * half);
}

static yk_status reduce_in_place(yk_comm *c, const yk_reduction *r)
{
    mpi_group *g = yk_mpi_group_of(c);
    MPI_Datatype type = r->wire == YK_F32 ? MPI_FLOAT : MPI_UINT16_T;
    MPI_Op op = g->add[r->wire];
    MPI_Request request;
    int count = (int)r->count;
    int error = r->shard ? MPI_Ireduce_scatter_block(MPI_IN_PLACE, r->full, count, type, op,
                                                     g->library, &request)
                         : MPI_Iallreduce(MPI_IN_PLACE, r->full, c->size * count, type, op,
                                          g->library, &request);
    count_bytes(c, r);
    return yk_mpi_finish(c, error, &request, "reduction");
}

yk_status yk_mpi_run_ring(const mpi_task *t)
{
    yk_comm *c = t->comm;
    const yk_reduction *r = &t->reduction;
    int64_t n = c->size * r->count;
    int exponent = yk_mpi_exponent(t);
    bool packs = r->dtype != r->wire || exponent != 0;
    if (packs) {
        int64_t flushed = yk_wire_pack(r->full, r->wire, r->full, r->dtype, n, exponent);
        atomic_fetch_add(&c->n_flushed, flushed);
    }
    YK_TRY(reduce_in_place(c, r));
    if (r->shard)
        yk_wire_unpack(r->shard, r->dtype, r->full, r->wire, r->count, exponent, r->accumulate);
    else if (packs)
        yk_wire_unpack(r->full, r->dtype, r->full, r->wire, n, exponent, false);
    return YK_OK;
}
