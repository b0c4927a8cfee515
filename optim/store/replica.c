/* optim/store/replica.c - hashes of what this rank keeps of the weights, for comparing ranks that keep the
 * same. */
#include <stdlib.h>

#include "optim/store/parts.h"
#include "runtime/base/arith.h"
#include "runtime/storage/hash.h"

/* Bytes brought to the host at a time. */
#define CHUNK_BYTES ((int64_t)1 << 20)

/* Hash host memory as it lies, device memory through `chunk`. Both in chunks: where a hash begins
 * anew is part of it. */
static yk_status hash_buffer(const void *data, int64_t bytes, bool host, void *chunk,
                             yk_stream *stream, uint64_t *hash)
{
    for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
        int64_t n = yk_min(bytes - at, CHUNK_BYTES);
        const char *from = (const char *)data + at;
        if (!host) {
            YK_TRY(yk_copy(stream, chunk, from, n, YK_COPY_DEVICE_TO_HOST));
            YK_TRY(yk_stream_synchronize(stream));
        }
        *hash = yk_hash64(host ? from : chunk, n, *hash);
    }
    return YK_OK;
}

/* What the model reads and, where that is rounded, the master weights. */
static yk_status hash_unit(const yk_store *st, const yk_store_unit *u, void *chunk,
                           yk_stream *stream, yk_store_replica *out)
{
    int64_t bytes = u->param_range.count * yk_dtype_bytes(st->o.compute);
    if (u->readable) YK_TRY(yk_event_wait(u->readable, stream));
    if (u->stored) YK_TRY(yk_event_synchronize(u->stored));
    *out = (yk_store_replica){.begin = u->param_range.begin};
    YK_TRY(hash_buffer(u->param, bytes, yk_store_offloads(st, YK_OFFLOAD_PARAMS), chunk, stream,
                       &out->hash));
    if (!yk_store_has_master(st)) return YK_OK;
    out->master_begin = u->state_range.begin;
    bytes = u->state_range.count * yk_dtype_bytes(st->o.master);
    return hash_buffer(u->master, bytes, yk_store_offloads(st, YK_OFFLOAD_MASTER), chunk, stream,
                       &out->master_hash);
}

yk_status yk_store_hash(yk_store *st, yk_stream *stream, yk_store_replica *units_out)
{
    void *chunk = malloc((size_t)CHUNK_BYTES);
    if (!chunk) return yk_fail(YK_ENOMEM, "debug.check_replicas", "no memory to hash weights");
    yk_status status = YK_OK;
    for (int i = 0; i < st->o.n_units && status == YK_OK; i++)
        status = hash_unit(st, &st->units[i], chunk, stream, &units_out[i]);
    free(chunk);
    return status;
}
