/* optim/store/store.c - the parameter store of one rank.
 *
 * Everything is resident: acquire hands out pointers, release and grad_ready have nothing to move.
 */
#include "optim/store/store.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"

/* Tensors start at multiples of this many elements. */
#define TENSOR_ALIGN 128

/* The flat buffers of a unit, `count` elements each. */
typedef struct unit_state {
    int64_t count;        /* padding included */
    int64_t decay_count;  /* the first part, whose tensors decay */
    void *param;          /* compute dtype; NULL when master is what the model reads */
    void *grad;           /* grads dtype */
    void *master, *m, *v; /* fp32 */
} unit_state;

struct yk_store {
    yk_store_options o;
    unit_state *units;    /* (n_units) */
    int64_t *offsets;     /* (n_params) of each tensor in its unit's buffers, in elements */
    yk_param_view *views; /* (n_params) */
    yk_grad_view *grads;  /* (n_params) */
};

/* Place the tensors of unit `u` that decay, or those that do not, behind what is placed. */
static void place(yk_store *st, int u, bool decay)
{
    unit_state *unit = &st->units[u];
    for (int i = 0; i < st->o.n_params; i++) {
        const yk_param *p = &st->o.params[i];
        if (p->unit != u || p->decay != decay) continue;
        st->offsets[i] = unit->count;
        unit->count += yk_round_up(yk_param_count(p), TENSOR_ALIGN);
    }
}

static void lay_out(yk_store *st)
{
    for (int u = 0; u < st->o.n_units; u++) {
        place(st, u, true);
        st->units[u].decay_count = st->units[u].count;
        place(st, u, false);
    }
}

static bool has_master(const yk_store *st)
{
    return st->o.train || st->o.compute == YK_F32;
}

static bool has_param(const yk_store *st)
{
    return st->o.compute != YK_F32;
}

/* Push one zeroed buffer for every unit; `field` is the place of its pointer in unit_state. */
static yk_status push_buffers(yk_store *st, yk_arena *arena, yk_stream *stream, const char *name,
                              yk_dtype dtype, size_t field)
{
    for (int u = 0; u < st->o.n_units; u++) {
        void **piece = (void **)((char *)&st->units[u] + field);
        int64_t bytes = st->units[u].count * yk_dtype_bytes(dtype);
        YK_TRY(yk_arena_push(arena, name, bytes, piece));
        YK_TRY(yk_zero(stream, *piece, bytes));
    }
    return YK_OK;
}

static yk_status take_memory(yk_store *st, yk_arena *arena, yk_stream *stream)
{
    const yk_store_options *o = &st->o;
    const char *master = has_param(st) ? "master weights" : "parameters";
    if (has_param(st))
        YK_TRY(
            push_buffers(st, arena, stream, "parameters", o->compute, offsetof(unit_state, param)));
    if (has_master(st))
        YK_TRY(push_buffers(st, arena, stream, master, YK_F32, offsetof(unit_state, master)));
    if (!o->train) return YK_OK;
    YK_TRY(push_buffers(st, arena, stream, "gradients", o->grads, offsetof(unit_state, grad)));
    YK_TRY(push_buffers(st, arena, stream, "first moments", YK_F32, offsetof(unit_state, m)));
    return push_buffers(st, arena, stream, "second moments", YK_F32, offsetof(unit_state, v));
}

static void *at(void *base, int64_t offset, yk_dtype dtype)
{
    return (char *)base + offset * yk_dtype_bytes(dtype);
}

static void make_views(yk_store *st)
{
    for (int i = 0; i < st->o.n_params; i++) {
        const unit_state *u = &st->units[st->o.params[i].unit];
        void *data = has_param(st) ? u->param : u->master;
        st->views[i] = (yk_param_view){at(data, st->offsets[i], st->o.compute), st->o.compute};
        if (!st->o.train) continue;
        st->grads[i] = (yk_grad_view){at(u->grad, st->offsets[i], st->o.grads), st->o.grads, false};
    }
}

yk_status yk_store_create(const yk_store_options *options, yk_arena *persistent, yk_stream *stream,
                          yk_store **store_out)
{
    yk_status status = YK_ENOMEM;
    yk_store *st = calloc(1, sizeof *st);
    if (!st) goto fail_memory;
    st->o = *options;
    st->units = calloc((size_t)options->n_units, sizeof *st->units);
    st->offsets = calloc((size_t)options->n_params, sizeof *st->offsets);
    st->views = calloc((size_t)options->n_params, sizeof *st->views);
    st->grads = calloc((size_t)options->n_params, sizeof *st->grads);
    if (!st->units || !st->offsets || !st->views || !st->grads) goto fail_memory;
    lay_out(st);
    status = take_memory(st, persistent, stream);
    if (status != YK_OK) goto fail;
    make_views(st);
    *store_out = st;
    return YK_OK;
fail_memory:
    yk_fail(status, "store", "no memory for the tables of %d parameters", options->n_params);
fail:
    yk_store_destroy(st);
    return status;
}

void yk_store_destroy(yk_store *store)
{
    if (!store) return;
    free(store->units);
    free(store->offsets);
    free(store->views);
    free(store->grads);
    free(store);
}

void yk_store_begin(yk_store *st)
{
    for (int i = 0; i < st->o.n_params; i++) st->grads[i].accumulate = false;
}

yk_status yk_store_acquire(yk_store *st, int unit, yk_stream *stream,
                           const yk_param_view **views_out)
{
    (void)unit, (void)stream;
    *views_out = st->views;
    return YK_OK;
}

yk_status yk_store_release(yk_store *st, int unit, yk_stream *stream)
{
    (void)st, (void)unit, (void)stream;
    return YK_OK;
}

yk_status yk_store_grad(yk_store *st, int unit, const yk_grad_view **views_out)
{
    (void)unit;
    *views_out = st->grads;
    return YK_OK;
}

yk_status yk_store_grad_ready(yk_store *st, int unit, yk_stream *stream)
{
    (void)stream;
    for (int i = 0; i < st->o.n_params; i++) {
        const yk_param *p = &st->o.params[i];
        if (p->unit == unit || p->shared_unit == unit) st->grads[i].accumulate = true;
    }
    return YK_OK;
}

yk_status yk_store_sum_squares(yk_store *st, yk_stream *stream, yk_step_values *values)
{
    for (int u = 0; u < st->o.n_units; u++)
        YK_TRY(yk_sum_squares(stream, &(yk_sum_squares_args){
                                          .values = values,
                                          .x = st->units[u].grad,
                                          .n = st->units[u].count,
                                          .dtype = st->o.grads,
                                      }));
    return YK_OK;
}

/* Update elements begin .. end-1 of a unit. */
static yk_status update_range(yk_store *st, const unit_state *u, int64_t begin, int64_t end,
                              yk_stream *stream, const yk_adamw_options *adamw, float weight_decay,
                              const yk_step_values *values)
{
    return yk_adamw(stream, &(yk_adamw_args){
                                .param = has_param(st) ? at(u->param, begin, st->o.compute) : NULL,
                                .master = at(u->master, begin, YK_F32),
                                .m = at(u->m, begin, YK_F32),
                                .v = at(u->v, begin, YK_F32),
                                .grad = at(u->grad, begin, st->o.grads),
                                .values = values,
                                .n = end - begin,
                                .beta1 = adamw->beta1,
                                .beta2 = adamw->beta2,
                                .eps = adamw->eps,
                                .weight_decay = weight_decay,
                                .dtype = st->o.compute,
                                .grad_dtype = st->o.grads,
                            });
}

yk_status yk_store_update(yk_store *st, yk_stream *stream, const yk_adamw_options *adamw,
                          const yk_step_values *values)
{
    for (int i = 0; i < st->o.n_units; i++) {
        const unit_state *u = &st->units[i];
        YK_TRY(update_range(st, u, 0, u->decay_count, stream, adamw, adamw->weight_decay, values));
        YK_TRY(update_range(st, u, u->decay_count, u->count, stream, adamw, 0.0f, values));
    }
    return YK_OK;
}

/* ---- reading and writing from outside ----------------------------------------------------- */

/* The buffer that holds `state` of a unit, or NULL. */
static void *state_buffer(const yk_store *st, const unit_state *u, yk_store_state state,
                          yk_dtype *dtype_out)
{
    *dtype_out = YK_F32;
    switch (state) {
    case YK_STORE_WEIGHT:
        if (u->master) return u->master;
        *dtype_out = st->o.compute;
        return u->param;
    case YK_STORE_MOMENT1:
        return u->m;
    case YK_STORE_MOMENT2:
        return u->v;
    case YK_STORE_GRAD:
        *dtype_out = st->o.grads;
        return u->grad;
    }
    return NULL;
}

static yk_status locate(const yk_store *st, yk_store_state state, int param, int64_t begin,
                        int64_t n, void **data_out, yk_dtype *dtype_out)
{
    YK_CHECK(param >= 0 && param < st->o.n_params);
    const yk_param *p = &st->o.params[param];
    YK_CHECK(begin >= 0 && n >= 0 && n <= yk_param_count(p) - begin);
    void *buffer = state_buffer(st, &st->units[p->unit], state, dtype_out);
    if (!buffer) return yk_fail(YK_EINVAL, p->name, "the store does not keep this state");
    *data_out = at(buffer, st->offsets[param] + begin, *dtype_out);
    return YK_OK;
}

yk_status yk_store_read(yk_store *st, yk_store_state state, int param, int64_t begin, int64_t n,
                        float *values_out, yk_stream *stream)
{
    void *data = NULL;
    yk_dtype dtype = YK_F32;
    YK_TRY(locate(st, state, param, begin, n, &data, &dtype));
    YK_TRY(yk_copy(stream, values_out, data, n * yk_dtype_bytes(dtype), YK_COPY_DEVICE_TO_HOST));
    YK_TRY(yk_stream_synchronize(stream));
    if (dtype == YK_F32) return YK_OK;
    /* In place, last first: the 16-bit values fill the first half of what they become. */
    for (int64_t i = n - 1; i >= 0; i--) {
        uint16_t half;
        memcpy(&half, (const char *)values_out + 2 * i, 2);
        values_out[i] = dtype == YK_BF16 ? yk_bf16_to_f32(half) : yk_f16_to_f32(half);
    }
    return YK_OK;
}

/* Bytes converted at a time when a weight is written in 16 bits. */
#define WRITE_CHUNK 32768

static yk_status write_converted(void *data, yk_dtype dtype, int64_t n, const float *values,
                                 yk_stream *stream)
{
    uint16_t half[WRITE_CHUNK / 2];
    for (int64_t i = 0; i < n; i += WRITE_CHUNK / 2) {
        int64_t count = yk_min(n - i, WRITE_CHUNK / 2);
        for (int64_t j = 0; j < count; j++) yk_store_f32(half, j, dtype, values[i + j]);
        YK_TRY(yk_copy(stream, at(data, i, dtype), half, count * 2, YK_COPY_HOST_TO_DEVICE));
        YK_TRY(yk_stream_synchronize(stream));
    }
    return YK_OK;
}

yk_status yk_store_write(yk_store *st, yk_store_state state, int param, int64_t begin, int64_t n,
                         const float *values, yk_stream *stream)
{
    void *data = NULL;
    yk_dtype dtype = YK_F32;
    YK_TRY(locate(st, state, param, begin, n, &data, &dtype));
    if (dtype != YK_F32) return write_converted(data, dtype, n, values, stream);
    YK_TRY(yk_copy(stream, data, values, n * 4, YK_COPY_HOST_TO_DEVICE));
    if (state == YK_STORE_WEIGHT && has_param(st)) {
        const unit_state *u = &st->units[st->o.params[param].unit];
        YK_TRY(yk_cast(stream, &(yk_cast_args){
                                   .dst = at(u->param, st->offsets[param] + begin, st->o.compute),
                                   .src = data,
                                   .n = n,
                                   .dst_dtype = st->o.compute,
                                   .src_dtype = YK_F32,
                               }));
    }
    return yk_stream_synchronize(stream);
}
