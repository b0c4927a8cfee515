/* comm/hostmem_move.c - what only moves: gathers, broadcasts, values, barriers.
 *
 * Each rank's shard goes to the host once and is read from there by all others, chunk by chunk. Readers
 * begin with the rank after their own, so that they do not all read from one NUMA node. Writing and
 * reading are issued by turns: a stream that is full holds the host, and must be able to go on with
 * what all ranks have issued by then.
 */
#include "comm/hostmem.h"
#include "runtime/base/arith.h"
#include "runtime/device/ops_wire.h"

/* The next slots of rank `from`. */
static hostmem_place next_place(hostmem_group *g, int from, int64_t chunk)
{
    uint32_t width = yk_hostmem_width(chunk, g->layout.gather_bytes);
    uint32_t number = yk_hostmem_align(g->n_gathered[from], width);
    g->n_gathered[from] = number + width;
    return (hostmem_place){HOSTMEM_GATHER_READY, number, width};
}

/* Bytes at .. at+n-1 of every part that others bring. */
static yk_status get_others(yk_comm *c, char *full, int64_t bytes, int64_t at, int64_t chunk)
{
    hostmem_group *g = yk_hostmem_of(c);
    int64_t n = yk_min(bytes - at, chunk);
    for (int i = 1; i < c->size; i++) {
        int from = (c->index + i) % c->size;
        YK_TRY(
            yk_hostmem_receive(c, next_place(g, from, chunk), from, full + from * bytes + at, n));
    }
    return YK_OK;
}

yk_status yk_hostmem_all_gather(yk_comm *c, void *full, const void *shard, int64_t bytes,
                                yk_stream *stream)
{
    hostmem_group *g = yk_hostmem_of(c);
    char *own = (char *)full + c->index * bytes;
    int64_t chunk = yk_comm_hostmem_gather_chunk(c, bytes);
    YK_TRY(yk_hostmem_begin(c, HOSTMEM_LANE_GATHER, stream));
    for (int64_t at = 0; at < bytes; at += chunk) {
        int64_t n = yk_min(bytes - at, chunk);
        YK_TRY(yk_hostmem_send(c, next_place(g, c->index, chunk), HOSTMEM_ALL,
                               (const char *)shard + at, n));
        YK_TRY(get_others(c, full, bytes, at, chunk));
    }
    if (shard != own) YK_TRY(yk_copy(stream, own, shard, bytes, YK_COPY_DEVICE));
    atomic_fetch_add(&c->bytes_sent, (c->size - 1) * bytes);
    return yk_hostmem_end(c, HOSTMEM_LANE_GATHER, stream);
}

yk_status yk_hostmem_broadcast(yk_comm *c, void *buffer, int64_t bytes, int root, yk_stream *stream)
{
    hostmem_group *g = yk_hostmem_of(c);
    int64_t chunk = yk_comm_hostmem_gather_chunk(c, bytes);
    YK_TRY(yk_hostmem_begin(c, HOSTMEM_LANE_GATHER, stream));
    for (int64_t at = 0; at < bytes; at += chunk) {
        int64_t n = yk_min(bytes - at, chunk);
        hostmem_place place = next_place(g, root, chunk);
        char *data = (char *)buffer + at;
        YK_TRY(c->index == root ? yk_hostmem_send(c, place, HOSTMEM_ALL, data, n)
                                : yk_hostmem_receive(c, place, root, data, n));
    }
    if (c->index == root) atomic_fetch_add(&c->bytes_sent, (c->size - 1) * bytes);
    return yk_hostmem_end(c, HOSTMEM_LANE_GATHER, stream);
}

/* All learn what all have, and add in order of index. A row of the two is written again when all have
 * come to the meeting after, and so have read it. */
yk_status yk_hostmem_all_reduce_values(yk_comm *c, yk_step_values *values, yk_stream *stream)
{
    hostmem_group *g = yk_hostmem_of(c);
    uint32_t meeting = g->n_met_values++;
    yk_step_values *all = (void *)(c->staging + g->layout.values_of_all);
    yk_step_values *row = yk_hostmem_values(g, meeting);
    YK_TRY(yk_hostmem_begin(c, HOSTMEM_LANE_VALUES, stream));
    YK_TRY(yk_copy(stream, row + c->index, values, sizeof *values, YK_COPY_DEVICE_TO_HOST));
    YK_TRY(yk_hostmem_meet(c, HOSTMEM_MET_VALUES, meeting, stream));
    YK_TRY(yk_copy(stream, all, row, c->size * (int64_t)sizeof *row, YK_COPY_HOST_TO_DEVICE));
    YK_TRY(
        yk_sum_values(stream, &(yk_sum_values_args){.values = values, .all = all, .n = c->size}));
    return yk_hostmem_end(c, HOSTMEM_LANE_VALUES, stream);
}

yk_status yk_hostmem_barrier(yk_comm *c, yk_stream *stream)
{
    hostmem_group *g = yk_hostmem_of(c);
    YK_TRY(yk_hostmem_begin(c, HOSTMEM_LANE_VALUES, stream));
    YK_TRY(yk_hostmem_meet(c, HOSTMEM_MET_VALUES, g->n_met_values++, stream));
    return yk_hostmem_end(c, HOSTMEM_LANE_VALUES, stream);
}
