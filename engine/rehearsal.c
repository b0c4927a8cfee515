/* engine/rehearsal.c - see rehearsal.h.
 *
 * Graphs are left out: a graph holds the kernels that were chosen when it was made, and the first step
 * may take others.
 */
#include "engine/rehearsal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "engine/drawn_batch.h"
#include "engine/step.h"
#include "runtime/storage/hash.h"

/* ---- what it is of ------------------------------------------------------------------------ */

uint64_t yk_rehearsal_work(const yk_engine *e)
{
    const yk_model_shape *m = yk_model_get_shape(e->model);
    const yk_config *c = e->config;
    const int64_t words[] = {
        m->family,
        m->layers,
        m->width,
        m->heads,
        m->kv_heads,
        m->head_size,
        m->ffn,
        m->vocab_rows,
        m->tied,
        e->ranks.size,
        e->micro_batch,
        e->seq_len,
        e->n_micro > 1,
        e->n_fields,
        e->head_chunk,
        e->compute_dtype,
        e->grads_dtype,
        c->precision.tf32,
        c->precision.master,
        c->attention.provider,
        c->numerics.deterministic,
        c->parallel.zero,
        c->parallel.shard,
        c->comm.reduce_every,
        c->memory.offload,
        c->memory.recompute,
        c->memory.recompute_blocks,
    };
    return yk_hash64(words, sizeof words, 0);
}

/* ---- its batch ---------------------------------------------------------------------------- */

static yk_status put_batch(yk_engine *e, yk_batch *batch_out)
{
    int64_t bytes = yk_engine_batch_bytes(e);
    int32_t *fields = malloc((size_t)bytes);
    if (!fields) return yk_fail(YK_ENOMEM, "rehearsal", "no memory for %" PRId64 " bytes", bytes);
    yk_drawn_batch_fill(e, 0, fields);
    yk_status status =
        yk_copy(e->compute, e->slots[e->last_slot], fields, bytes, YK_COPY_HOST_TO_DEVICE);
    if (status == YK_OK) status = yk_stream_synchronize(e->compute);
    free(fields);
    if (status == YK_OK) *batch_out = yk_engine_batch(e, e->last_slot);
    return status;
}

/* ---- all together ------------------------------------------------------------------------- */

static yk_status rehearse(yk_engine *e)
{
    yk_batch batch;
    YK_TRY(put_batch(e, &batch));
    YK_TRY(yk_step_rehearse(e, &batch));
    if (e->ranks.size > 1) {
        YK_TRY(yk_stream_synchronize(e->ranks.groups.gather));
        YK_TRY(yk_stream_synchronize(e->ranks.groups.reduce));
    }
    return yk_stream_synchronize(e->compute);
}

yk_status yk_rehearsal_run(yk_engine *e)
{
    yk_graphs *graphs = e->graphs, *none;
    yk_graphs_options o = {
        .model = e->model,
        .pass = e->pass,
        .stream = e->compute,
        .activation = e->activation,
        .choice = YK_GRAPHS_OFF,
    };
    YK_TRY(yk_graphs_create(&o, &none));
    e->graphs = none;
    yk_status status = rehearse(e);
    e->graphs = graphs;
    yk_graphs_destroy(none);
    return status;
}
