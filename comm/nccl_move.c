/* comm/nccl_move.c - the collectives over NCCL, and how it carries an exact sum. */
#include "comm/nccl_group.h"
#include "runtime/device/cuda/native.h"

/* Calls of NCCL between here and yk_nccl_finish(). */
static yk_status take_lane(yk_comm *c, nccl_lane_name name, ncclComm_t *comm_out)
{
    nccl_group *g = yk_nccl_group_of(c);
    pthread_mutex_lock(&g->lock);
    if (g->lanes[name].comm) {
        *comm_out = g->lanes[name].comm;
        return YK_OK;
    }
    pthread_mutex_unlock(&g->lock);
    yk_status failed = (yk_status)atomic_load(&c->failed);
    return failed != YK_OK ? failed : YK_EPEER;
}

/* ---- carrying an exact sum ---------------------------------------------------------------- */

static yk_status nccl_exchange(yk_comm *c, const yk_transfer *list, int n, yk_stream *stream)
{
    const nccl_library *nccl = &yk_nccl_group_of(c)->nccl;
    cudaStream_t s;
    ncclComm_t comm;
    YK_TRY(yk_cuda_native(stream, &s));
    YK_TRY(take_lane(c, NCCL_LANE_REDUCE, &comm));
    ncclResult_t result = nccl->group_start();
    for (int i = 0; i < n && (result == ncclSuccess || result == ncclInProgress); i++) {
        const yk_transfer *t = &list[i];
        size_t bytes = (size_t)t->bytes;
        result = t->sends ? nccl->send(t->data, bytes, ncclInt8, t->peer, comm, s)
                          : nccl->recv(t->data, bytes, ncclInt8, t->peer, comm, s);
    }
    ncclResult_t ended = nccl->group_end();
    if (result == ncclSuccess || result == ncclInProgress) result = ended;
    return yk_nccl_finish(c, NCCL_LANE_REDUCE, result, "reduction");
}

/* Part `index` of full to all, in place. */
static yk_status gather_in_lane(yk_comm *c, nccl_lane_name lane, void *full, int64_t bytes,
                                cudaStream_t s)
{
    const nccl_library *nccl = &yk_nccl_group_of(c)->nccl;
    const char *own = (const char *)full + c->index * bytes;
    ncclComm_t comm;
    YK_TRY(take_lane(c, lane, &comm));
    ncclResult_t result = nccl->all_gather(own, full, (size_t)bytes, ncclInt8, comm, s);
    return yk_nccl_finish(c, lane, result, "gather");
}

static yk_status nccl_gather(yk_comm *c, void *full, int64_t bytes, yk_stream *stream)
{
    cudaStream_t s;
    YK_TRY(yk_cuda_native(stream, &s));
    return gather_in_lane(c, NCCL_LANE_REDUCE, full, bytes, s);
}

static yk_status reduce_floats(yk_comm *c, float *value, ncclRedOp_t op, cudaStream_t s,
                               const char *what)
{
    const nccl_library *nccl = &yk_nccl_group_of(c)->nccl;
    ncclComm_t comm;
    YK_TRY(take_lane(c, NCCL_LANE_REDUCE, &comm));
    ncclResult_t result = nccl->all_reduce(value, value, 1, ncclFloat32, op, comm, s);
    return yk_nccl_finish(c, NCCL_LANE_REDUCE, result, what);
}

const yk_carrier yk_nccl_carrier = {
    .exchange = nccl_exchange,
    .gather = nccl_gather,
};

yk_status yk_nccl_greatest(yk_comm *c, float *value, yk_stream *stream)
{
    cudaStream_t s;
    YK_TRY(yk_cuda_native(stream, &s));
    return reduce_floats(c, value, ncclMax, s, "scale of gradients");
}

/* ---- a sum as NCCL forms it --------------------------------------------------------------- */

static ncclDataType_t type_of(yk_dtype wire)
{
    return wire == YK_F32 ? ncclFloat32 : wire == YK_BF16 ? ncclBfloat16 : ncclFloat16;
}

/* The packed front of `full`: all of it, or of each rank its part. */
static yk_status reduce_in_place(yk_comm *c, const yk_reduction *r, cudaStream_t s)
{
    const nccl_library *nccl = &yk_nccl_group_of(c)->nccl;
    size_t count = (size_t)r->count;
    char *own = (char *)r->full + c->index * r->count * yk_dtype_bytes(r->wire);
    ncclDataType_t type = type_of(r->wire);
    ncclComm_t comm;
    YK_TRY(take_lane(c, NCCL_LANE_REDUCE, &comm));
    ncclResult_t result =
        r->shard
            ? nccl->reduce_scatter(r->full, own, count, type, ncclSum, comm, s)
            : nccl->all_reduce(r->full, r->full, (size_t)c->size * count, type, ncclSum, comm, s);
    return yk_nccl_finish(c, NCCL_LANE_REDUCE, result, "reduction");
}

static yk_status unpack(const yk_reduction *r, void *to, const void *from, int64_t n,
                        yk_wire_scale scale, yk_stream *stream)
{
    return yk_sum_parts(stream, &(yk_sum_parts_args){.sum = to,
                                                     .parts = from,
                                                     .n_parts = 1,
                                                     .scale = scale,
                                                     .n = n,
                                                     .accumulate = r->accumulate,
                                                     .dtype = r->dtype,
                                                     .wire = r->wire});
}

static yk_status run_ring(yk_comm *c, const yk_reduction *r, yk_stream *stream, cudaStream_t s)
{
    nccl_group *g = yk_nccl_group_of(c);
    bool packs = yk_reduction_packs(r);
    int64_t n = c->size * r->count, part = r->count * yk_dtype_bytes(r->wire);
    yk_wire_scale scale;
    YK_TRY(yk_comm_agree_scale(c, r, stream, &scale));
    if (packs)
        YK_TRY(yk_pack(stream, &(yk_pack_args){.packed = r->full,
                                               .x = r->full,
                                               .scale = scale,
                                               .n_flushed = g->exact.n_flushed,
                                               .n = n,
                                               .dtype = r->dtype,
                                               .wire = r->wire}));
    YK_TRY(reduce_in_place(c, r, s));
    const char *own = (const char *)r->full + c->index * part;
    if (r->shard) return unpack(r, r->shard, own, r->count, scale, stream);
    return packs ? unpack(r, r->full, r->full, n, scale, stream) : YK_OK;
}

/* ---- collectives -------------------------------------------------------------------------- */

yk_status yk_nccl_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                             yk_stream *stream)
{
    cudaStream_t s;
    char *own = (char *)full + c->index * bytes;
    YK_TRY(yk_nccl_begin(c, NCCL_LANE_GATHER, (c->size - 1) * bytes, stream, &s));
    if (shard != own) YK_TRY(yk_copy(stream, own, shard, bytes, YK_COPY_DEVICE));
    YK_TRY(gather_in_lane(c, NCCL_LANE_GATHER, full, bytes, s));
    return yk_nccl_end(c, NCCL_LANE_GATHER, stream);
}

/* What a rank sends: size - 1 parts for each of the two halves of an all-reduce. */
yk_status yk_nccl_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream)
{
    nccl_group *g = yk_nccl_group_of(c);
    int64_t half = (c->size - 1) * r->count * yk_dtype_bytes(r->wire);
    cudaStream_t s;
    YK_TRY(yk_nccl_begin(c, NCCL_LANE_REDUCE, r->shard ? half : 2 * half, stream, &s));
    if (c->o.reduce == YK_REDUCE_RING)
        YK_TRY(run_ring(c, r, stream, s));
    else
        YK_TRY(yk_exact_run(&g->exact, r, stream));
    if (yk_reduction_packs(r))
        YK_TRY(yk_copy(stream, g->n_flushed, g->exact.n_flushed, sizeof *g->n_flushed,
                       YK_COPY_DEVICE_TO_HOST));
    return yk_nccl_end(c, NCCL_LANE_REDUCE, stream);
}

/* All learn the values of all, and add in the order of the group's index. */
yk_status yk_nccl_all_reduce_values(yk_comm *c, yk_step_values *values, yk_stream *stream)
{
    nccl_group *g = yk_nccl_group_of(c);
    int64_t bytes = sizeof *values;
    cudaStream_t s;
    YK_TRY(yk_nccl_begin(c, NCCL_LANE_REDUCE, 0, stream, &s));
    YK_TRY(yk_copy(stream, &g->values[c->index], values, bytes, YK_COPY_DEVICE));
    YK_TRY(gather_in_lane(c, NCCL_LANE_REDUCE, g->values, bytes, s));
    YK_TRY(yk_sum_values(stream,
                         &(yk_sum_values_args){.values = values, .all = g->values, .n = c->size}));
    return yk_nccl_end(c, NCCL_LANE_REDUCE, stream);
}

/* Bytes run from rank to rank, from the root on; the last one sends none. */
yk_status yk_nccl_broadcast(yk_comm *c, void *buffer, int64_t bytes, int root, yk_stream *stream)
{
    const nccl_library *nccl = &yk_nccl_group_of(c)->nccl;
    bool last = (c->index + 1) % c->size == root;
    cudaStream_t s;
    ncclComm_t comm;
    YK_TRY(yk_nccl_begin(c, NCCL_LANE_GATHER, last ? 0 : bytes, stream, &s));
    YK_TRY(take_lane(c, NCCL_LANE_GATHER, &comm));
    ncclResult_t result = nccl->broadcast(buffer, buffer, (size_t)bytes, ncclInt8, root, comm, s);
    YK_TRY(yk_nccl_finish(c, NCCL_LANE_GATHER, result, "broadcast"));
    return yk_nccl_end(c, NCCL_LANE_GATHER, stream);
}

yk_status yk_nccl_barrier(yk_comm *c, yk_stream *stream)
{
    cudaStream_t s;
    YK_TRY(yk_nccl_begin(c, NCCL_LANE_REDUCE, 0, stream, &s));
    YK_TRY(reduce_floats(c, yk_nccl_group_of(c)->meeting, ncclMax, s, "barrier"));
    return yk_nccl_end(c, NCCL_LANE_REDUCE, stream);
}
