/* comm/comm_self.c - a group of one rank, on any device: a sum of one is what it was.
 *
 * No wire is crossed, so nothing is rounded to a wire format.
 */
#include "comm/backend.h"
#include "runtime/device/ops_wire.h"

static yk_status self_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                                 yk_stream *stream)
{
    (void)c;
    if (shard == full) return YK_OK;
    return yk_copy(stream, full, shard, bytes, YK_COPY_DEVICE);
}

static yk_status self_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream)
{
    (void)c;
    int64_t bytes = r->count * yk_dtype_bytes(r->dtype);
    if (!r->accumulate) {
        if (r->shard == r->full) return YK_OK;
        return yk_copy(stream, r->shard, r->full, bytes, YK_COPY_DEVICE);
    }
    return yk_sum_parts(stream, &(yk_sum_parts_args){.sum = r->shard,
                                                     .parts = r->full,
                                                     .n_parts = 1,
                                                     .n = r->count,
                                                     .accumulate = true,
                                                     .dtype = r->dtype,
                                                     .wire = r->dtype});
}

const yk_comm_backend yk_comm_self = {
    .name = "self",
    .all_gather = self_all_gather,
    .reduce = self_reduce,
};
