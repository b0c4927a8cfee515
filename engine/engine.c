/* engine/engine.c - putting the parts together, in one order, on any device. */
#include "engine/engine.h"

#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/arith.h"

/* Logits of one chunk take at most this, where memory.head_chunk is auto and no plan chose: on
 * processors, and where nothing is trained. */
#define HEAD_BYTES_CPU ((int64_t)32 << 20)
#define HEAD_BYTES_GPU ((int64_t)512 << 20)
#define HEAD_ROWS_MIN  256

int yk_engine_n_ranks(const yk_engine_options *o)
{
    if (yk_device_get_kind(o->device) == YK_DEVICE_DRY) return o->topology ? o->topology->ranks : 1;
    return o->world ? yk_world_size(o->world) : 1;
}

static yk_status check_sizes(const yk_engine_options *o)
{
    const yk_config *c = o->config;
    if (c->train.seq_len > o->shape->max_seq_len)
        return yk_fail(YK_EINVAL, "train.seq_len",
                       "%" PRId64 " is more than the model's %" PRId64 " positions; shorten it%s",
                       c->train.seq_len, o->shape->max_seq_len,
                       c->model.init[0] ? "" : ", or give model.max_seq_len");
    if (!o->train) return YK_OK;
    return yk_config_check_ranks(c, yk_engine_n_ranks(o), o->micro_batch);
}

static int64_t head_chunk(const yk_engine *e, const yk_model_shape *shape)
{
    int64_t rows = e->config->memory.head_chunk;
    if (rows != YK_AUTO) return rows;
    bool cpu = yk_device_get_spec(e->device)->kind == YK_DEVICE_CPU;
    int64_t row_bytes = shape->vocab_rows * yk_dtype_bytes(e->compute_dtype);
    int64_t fit = (cpu ? HEAD_BYTES_CPU : HEAD_BYTES_GPU) / row_bytes;
    return yk_max(fit / HEAD_ROWS_MIN * HEAD_ROWS_MIN, HEAD_ROWS_MIN);
}

static yk_status create_arenas(yk_engine *e, const yk_engine_options *o)
{
    yk_arena_sizes measure = {YK_ARENA_MEASURE, YK_ARENA_MEASURE, YK_ARENA_MEASURE, 0};
    const yk_arena_sizes *s = o->sizes ? o->sizes : &measure;
    YK_TRY(yk_arena_create(e->device, "persistent memory", YK_MEMORY_DEVICE, s->persistent,
                           o->red_zone, &e->persistent));
    YK_TRY(yk_arena_create(e->device, "activation memory", YK_MEMORY_DEVICE, s->activation,
                           o->red_zone, &e->activation));
    yk_arena_lend(e->activation, e->compute);
    return yk_arena_create(e->device, "pinned memory", YK_MEMORY_PINNED, s->pinned, o->red_zone,
                           &e->pinned);
}

static yk_status push(yk_arena *arena, const char *name, int64_t bytes, void *pointer_out)
{
    void *piece;
    YK_TRY(yk_arena_push(arena, name, bytes, &piece));
    *(void **)pointer_out = piece;
    return YK_OK;
}

/* Rotary tables for the positions that this run uses, made on the host and copied. */
static yk_status push_rope(yk_engine *e, const yk_model_shape *shape, int64_t n_positions,
                           float **cos_out, float **sin_out)
{
    *cos_out = *sin_out = NULL;
    if (shape->family == YK_FAMILY_GPT2) return YK_OK;
    int64_t n = n_positions * shape->head_size / 2;
    YK_TRY(push(e->persistent, "rotary cosines", n * 4, cos_out));
    YK_TRY(push(e->persistent, "rotary sines", n * 4, sin_out));
    if (yk_device_get_kind(e->device) == YK_DEVICE_DRY) return YK_OK;
    float *host = malloc((size_t)(2 * n) * sizeof *host);
    if (!host) return yk_fail(YK_ENOMEM, "rotary table", "no memory for %" PRId64 " angles", n);
    yk_rope_table(shape, n_positions, host, host + n);
    yk_status status = yk_copy(e->compute, *cos_out, host, n * 4, YK_COPY_HOST_TO_DEVICE);
    if (status == YK_OK)
        status = yk_copy(e->compute, *sin_out, host + n, n * 4, YK_COPY_HOST_TO_DEVICE);
    if (status == YK_OK) status = yk_stream_synchronize(e->compute);
    free(host);
    return status;
}

static int64_t n_lighter_blocks(const yk_config *c, const yk_model_shape *shape)
{
    int64_t n = c->memory.recompute_blocks;
    return n == YK_AUTO ? 0 : yk_max(shape->layers - n, 0);
}

static yk_status create_pass(yk_engine *e, const yk_model_shape *shape)
{
    e->head_chunk = head_chunk(e, shape);
    yk_pass_options o = {
        .stream = e->compute,
        .activation = e->activation,
        .n_positions = e->seq_len,
        .values = e->values,
        .dtype = e->compute_dtype,
        .recompute = e->config->memory.recompute,
        .n_lighter = n_lighter_blocks(e->config, shape),
        .head_chunk = e->head_chunk,
        .inputs = e->config->memory.offload & YK_OFFLOAD_INPUTS ? &e->inputs : NULL,
    };
    float *cos, *sin;
    YK_TRY(push_rope(e, shape, o.n_positions, &cos, &sin));
    o.rope_cos = cos;
    o.rope_sin = sin;
    return yk_pass_create(e->model, &o, &e->pass);
}

static yk_status create_graphs(yk_engine *e)
{
    yk_graphs_options o = {
        .model = e->model,
        .pass = e->pass,
        .stream = e->compute,
        .activation = e->activation,
        .choice = e->config->cuda.graphs,
    };
    return yk_graphs_create(&o, &e->graphs);
}

/* Are gradients summed over ranks at each micro-batch? */
static bool reduces_each_micro(const yk_config *c)
{
    if (c->comm.reduce_every == YK_REDUCE_AUTO) return c->parallel.zero >= 2;
    return c->comm.reduce_every == YK_REDUCE_MICRO;
}

static bool has_shelf(const yk_config *c)
{
    bool away = c->memory.offload & YK_OFFLOAD_PARAMS;
    return c->comm.shelf == YK_SHELF_ON || (c->comm.shelf == YK_SHELF_AUTO && away);
}

static yk_status create_store(yk_engine *e, const yk_engine_options *options)
{
    yk_store_options o = {
        .params = yk_model_params(e->model),
        .n_params = yk_model_n_params(e->model),
        .n_units = yk_model_n_units(e->model),
        .compute = e->compute_dtype,
        .grads = e->grads_dtype,
        .train = e->train,
        .zero = (int)e->config->parallel.zero,
        .reduce_each_micro = reduces_each_micro(e->config),
        .master = e->config->precision.master,
        .moments = e->config->precision.moments,
        .seed = e->config->train.seed,
        .offload = e->config->memory.offload,
        .host = &e->host,
        .shelf = has_shelf(e->config),
        .kept = e->config->memory.kept_blocks == YK_AUTO ? 0 : (int)e->config->memory.kept_blocks,
    };
    YK_TRY(yk_ranks_create(&(yk_ranks_options){.config = e->config,
                                               .size = yk_engine_n_ranks(options),
                                               .device = e->device,
                                               .world = options->world,
                                               .topology = options->topology,
                                               .race = options->race,
                                               .staging = e->persistent,
                                               .store = &o},
                           &e->ranks));
    if (e->ranks.size > 1) o.groups = &e->ranks.groups;
    return yk_store_create(&o, e->persistent, e->compute, &e->store);
}

static yk_status push_batches(yk_engine *e)
{
    int64_t bytes = yk_engine_batch_bytes(e);
    for (int i = 0; i < YK_BATCH_SLOTS; i++)
        YK_TRY(push(e->persistent, "batches", bytes, &e->slots[i]));
    for (int i = 0; i < YK_N_SPLITS; i++)
        YK_TRY(push(e->pinned, "batches read ahead", YK_LOADER_BUFFERS * bytes, &e->staging[i]));
    return YK_OK;
}

/* The values of the step, zero but for the loss scale, and room for copies of them. */
static yk_status push_values(yk_engine *e)
{
    int64_t bytes = sizeof(yk_step_values);
    YK_TRY(push(e->persistent, "step values", bytes, &e->values));
    YK_TRY(push(e->pinned, "step results", 2 * bytes, &e->results));
    YK_TRY(push(e->pinned, "evaluation result", bytes, &e->evaluated));
    for (int i = 0; i < 2; i++) YK_TRY(yk_event_create(e->device, &e->result_ready[i]));
    bool fp16 = e->compute_dtype == YK_F16;
    yk_step_values start = {
        .loss_scale = fp16 ? (float)e->config->precision.loss_scale.start : 1.0f,
    };
    YK_TRY(yk_copy(e->compute, e->values, &start, bytes, YK_COPY_HOST_TO_DEVICE));
    return yk_stream_synchronize(e->compute);
}

/* Two streams to host memory, one each way. */
static yk_status create_host_side(yk_engine *e, const char *there, const char *back,
                                  yk_host_side *side_out)
{
    side_out->pinned = e->pinned;
    YK_TRY(yk_stream_create(e->device, YK_STREAM_TRANSFER, there, &side_out->to_host));
    return yk_stream_create(e->device, YK_STREAM_TRANSFER, back, &side_out->to_device);
}

static yk_status create_host_sides(yk_engine *e)
{
    int offload = e->config->memory.offload;
    if (offload & ~YK_OFFLOAD_INPUTS) YK_TRY(create_host_side(e, "to host", "to device", &e->host));
    if (offload & YK_OFFLOAD_INPUTS)
        YK_TRY(create_host_side(e, "inputs to host", "inputs to device", &e->inputs));
    return YK_OK;
}

static yk_status build(yk_engine *e, const yk_engine_options *o)
{
    YK_TRY(yk_model_create(o->shape, &e->model));
    YK_TRY(yk_stream_create(e->device, YK_STREAM_COMPUTE, "compute", &e->compute));
    if (o->train && yk_device_get_spec(e->device)->kind == YK_DEVICE_CUDA)
        YK_TRY(yk_stream_create(e->device, YK_STREAM_TRANSFER, "data", &e->data));
    YK_TRY(create_arenas(e, o));
    YK_TRY(create_host_sides(e));
    YK_TRY(push_values(e));
    YK_TRY(push_batches(e));
    YK_TRY(create_store(e, o));
    YK_TRY(create_pass(e, o->shape));
    return create_graphs(e);
}

yk_status yk_engine_create(const yk_engine_options *options, yk_engine **engine_out)
{
    const yk_config *c = options->config;
    YK_TRY(check_sizes(options));
    yk_engine *e = calloc(1, sizeof *e);
    if (!e) return yk_fail(YK_ENOMEM, "engine", "no memory");
    yk_dtype compute = c->precision.compute;
    *e = (yk_engine){
        .device = options->device,
        .config = c,
        .compute_dtype = compute,
        .grads_dtype = c->precision.grads == YK_AUTO ? compute : (yk_dtype)c->precision.grads,
        .train = options->train,
        .micro_batch = options->micro_batch,
        .seq_len = c->train.seq_len,
        .n_micro = c->train.batch / (options->micro_batch * yk_engine_n_ranks(options)),
        .n_fields = c->data.doc_mask ? 4 : 3,
    };
    yk_status status = build(e, options);
    if (status != YK_OK) {
        yk_engine_destroy(e);
        return status;
    }
    *engine_out = e;
    return YK_OK;
}

void yk_engine_destroy(yk_engine *e)
{
    if (!e) return;
    if (e->compute) (void)yk_stream_synchronize(e->compute); /* graphs under way */
    yk_graphs_destroy(e->graphs);
    yk_pass_destroy(e->pass);
    yk_store_destroy(e->store);
    yk_ranks_destroy(&e->ranks);
    for (int i = 0; i < 2; i++) yk_event_destroy(e->result_ready[i]);
    yk_stream_destroy(e->host.to_device);
    yk_stream_destroy(e->host.to_host);
    yk_stream_destroy(e->inputs.to_device);
    yk_stream_destroy(e->inputs.to_host);
    yk_stream_destroy(e->data);
    yk_stream_destroy(e->compute);
    yk_arena_destroy(e->pinned);
    yk_arena_destroy(e->activation);
    yk_arena_destroy(e->persistent);
    yk_model_destroy(e->model);
    free(e);
}

static yk_status init_param(yk_engine *e, int param, int64_t seed)
{
    static const yk_normal zero = {0};
    int64_t count = yk_param_count(&yk_model_params(e->model)[param]), used;
    yk_normal first = yk_model_first_values(e->model, param, seed, &used);
    YK_TRY(yk_store_draw(e->store, param, 0, used, &first, e->compute));
    return yk_store_draw(e->store, param, used, count - used, &zero, e->compute);
}

yk_status yk_engine_init_weights(yk_engine *e, int64_t seed)
{
    for (int i = 0; i < yk_model_n_params(e->model); i++) YK_TRY(init_param(e, i, seed));
    return yk_stream_synchronize(e->compute);
}

yk_arena_sizes yk_engine_high_water(const yk_engine *e)
{
    return (yk_arena_sizes){
        .persistent = yk_arena_high(e->persistent),
        .activation = yk_arena_high(e->activation),
        .pinned = yk_arena_high(e->pinned),
        .shared = yk_ranks_shared_bytes(&e->ranks),
    };
}

int64_t yk_engine_batch_bytes(const yk_engine *e)
{
    return e->n_fields * e->micro_batch * e->seq_len * (int64_t)sizeof(int32_t);
}

yk_batch yk_engine_batch(const yk_engine *e, int slot)
{
    int64_t rows = e->micro_batch * e->seq_len;
    const int32_t *fields = e->slots[slot];
    return (yk_batch){
        .tokens = fields,
        .targets = fields + rows,
        .positions = fields + 2 * rows,
        .doc_start = e->n_fields > 3 ? fields + 3 * rows : NULL,
        .batch = e->micro_batch,
        .seq_len = e->seq_len,
    };
}
