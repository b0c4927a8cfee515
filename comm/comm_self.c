/* comm/comm_self.c - a group of one rank, on any device: a sum of one is what it was.
 *
 * No wire is crossed, so nothing is rounded to a wire format.
 */
#include "comm/backend.h"
#include "runtime/device/ops.h"
#include "runtime/device/wire.h"

static yk_status self_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                                 yk_stream *stream)
{
    (void)c;
    if (shard == full) return YK_OK;
    return yk_copy(stream, full, shard, bytes, YK_COPY_DEVICE);
}

/* Add `full` to `shard`, as host work of the stream. */
static yk_status add(void *context)
{
    const yk_reduction *r = context;
    yk_wire_unpack(r->shard, r->dtype, r->full, r->dtype, r->count, 0, true);
    return YK_OK;
}

static yk_status self_reduce(yk_comm *c, const yk_reduction *r, yk_stream *stream)
{
    (void)c;
    int64_t bytes = r->count * yk_dtype_bytes(r->dtype);
    if (!r->accumulate) {
        if (r->shard == r->full) return YK_OK;
        return yk_copy(stream, r->shard, r->full, bytes, YK_COPY_DEVICE);
    }
    double moved = 3 * (double)bytes;
    YK_TRY(yk_stream_run(stream, add, r, sizeof *r));
    return yk_stream_charge(
        stream, moved / yk_device_get_spec(yk_stream_get_device(stream))->memory_rate, moved);
}

const yk_comm_backend yk_comm_self = {
    .name = "self",
    .all_gather = self_all_gather,
    .reduce = self_reduce,
};
