/* tests/optim/test_store_offload.c - a store keeps the same bits wherever its state lies.
 *
 * The model here is one line: it adds to each gradient a function of the parameter it read, the
 * micro-batch and the index. Units are cut into pieces of 256 elements, so that every unit passes
 * through the lanes in several.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "optim/store/store.h"
#include "runtime/device/graph.h"
#include "runtime/device/normal.h"
#include "runtime/storage/hash.h"

#define N_STEPS   3
#define MAX_UNITS 72
#define MEMORY    ((int64_t)16 << 20)

/* Unit 0's first tensor is used by the last unit too. */
static const yk_param few[] = {
    {.name = "tokens", .shape = {61, 20}, .n_dims = 2, .unit = 0, .shared_unit = 4, .decay = true},
    {.name = "positions",
     .shape = {9, 20},
     .n_dims = 2,
     .unit = 0,
     .shared_unit = -1,
     .decay = true},
    {.name = "norm1", .shape = {20, 1}, .n_dims = 1, .unit = 1, .shared_unit = -1},
    {.name = "a1", .shape = {20, 37}, .n_dims = 2, .unit = 1, .shared_unit = -1, .decay = true},
    {.name = "norm2", .shape = {20, 1}, .n_dims = 1, .unit = 2, .shared_unit = -1},
    {.name = "a2", .shape = {20, 37}, .n_dims = 2, .unit = 2, .shared_unit = -1, .decay = true},
    {.name = "norm3", .shape = {20, 1}, .n_dims = 1, .unit = 3, .shared_unit = -1},
    {.name = "a3", .shape = {20, 37}, .n_dims = 2, .unit = 3, .shared_unit = -1, .decay = true},
    {.name = "norm", .shape = {20, 1}, .n_dims = 1, .unit = 4, .shared_unit = -1},
};

#define BLOCK(u)                                                                                   \
    {.name = "norm " #u, .shape = {20, 1}, .n_dims = 1, .unit = u, .shared_unit = -1},             \
    {                                                                                              \
        .name = "a " #u, .shape = {20, 13}, .n_dims = 2, .unit = u, .shared_unit = -1,             \
        .decay = true                                                                              \
    }
#define TEN(u)                                                                                     \
    BLOCK(u), BLOCK(u + 1), BLOCK(u + 2), BLOCK(u + 3), BLOCK(u + 4), BLOCK(u + 5), BLOCK(u + 6),  \
        BLOCK(u + 7), BLOCK(u + 8), BLOCK(u + 9)

/* More units and tensors than one call squares or updates. */
static const yk_param many[] = {
    {.name = "tokens", .shape = {61, 20}, .n_dims = 2, .unit = 0, .shared_unit = -1, .decay = true},
    TEN(1),
    TEN(11),
    TEN(21),
    TEN(31),
    TEN(41),
    TEN(51),
    TEN(61),
    {.name = "norm", .shape = {20, 1}, .n_dims = 1, .unit = 71, .shared_unit = -1},
};

#define COUNT(table) ((int)(sizeof table / sizeof table[0]))

typedef struct setting {
    yk_dtype compute, grads, master, moments;
    int64_t n_micro;
    int offload;
    bool deep;     /* with `many` parameters, not a `few` */
    bool in_a_row; /* units lie one behind the other, and not apart by red zones */
} setting;

typedef struct rig {
    const yk_param *params;
    int n_params, n_units;
    yk_device *device;
    yk_stream *compute;
    yk_host_side host;
    yk_arena *persistent;
    yk_store *store;
    yk_step_values *values;
    int64_t n_calls; /* from the sum of squares to the update, in the last step */
} rig;

static void *push(yk_arena *arena, int64_t bytes)
{
    void *piece;
    assert_int_equal(yk_arena_push(arena, "test", bytes, &piece), YK_OK);
    memset(piece, 0, (size_t)bytes);
    return piece;
}

static void open_rig(rig *r, const setting *s)
{
    memset(r, 0, sizeof *r);
    r->params = s->deep ? many : few;
    r->n_params = s->deep ? COUNT(many) : COUNT(few);
    r->n_units = s->deep ? 72 : 5;
    assert_int_equal(yk_device_open_cpu(2, &r->device), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_COMPUTE, "compute", &r->compute), YK_OK);
    assert_int_equal(
        yk_stream_create(r->device, YK_STREAM_TRANSFER, "to device", &r->host.to_device), YK_OK);
    assert_int_equal(yk_stream_create(r->device, YK_STREAM_TRANSFER, "to host", &r->host.to_host),
                     YK_OK);
    assert_int_equal(yk_arena_create(r->device, "persistent", YK_MEMORY_DEVICE, MEMORY,
                                     s->in_a_row ? 0 : 256, &r->persistent),
                     YK_OK);
    assert_int_equal(
        yk_arena_create(r->device, "pinned", YK_MEMORY_PINNED, MEMORY, 256, &r->host.pinned),
        YK_OK);
    r->values = push(r->persistent, sizeof *r->values);
    r->values->loss_scale = 1;
    yk_stream_set_workspace(r->compute, push(r->persistent, 1 << 16), 1 << 16);
    yk_store_options o = {.params = r->params,
                          .n_params = r->n_params,
                          .n_units = r->n_units,
                          .compute = s->compute,
                          .grads = s->grads,
                          .master = s->master,
                          .moments = s->moments,
                          .seed = 7,
                          .train = true,
                          .offload = s->offload,
                          .host = &r->host,
                          .piece = 256};
    assert_int_equal(yk_store_create(&o, r->persistent, r->compute, &r->store), YK_OK);
}

static void close_rig(rig *r)
{
    yk_store_destroy(r->store);
    yk_stream_destroy(r->host.to_device);
    yk_stream_destroy(r->host.to_host);
    yk_stream_destroy(r->compute);
    yk_arena_destroy(r->host.pinned); /* which checks its red zones */
    yk_arena_destroy(r->persistent);
    yk_device_close(r->device);
}

static void write_weights(rig *r)
{
    for (int i = 0; i < r->n_params; i++) {
        int64_t n = yk_param_count(&r->params[i]);
        float values[61 * 20];
        for (int64_t k = 0; k < n; k++) values[k] = 0.02f * (float)((k * 37 + i * 11) % 101 - 50);
        assert_int_equal(yk_store_write(r->store, YK_STORE_WEIGHT, i, 0, n, values, r->compute),
                         YK_OK);
    }
}

/* The gradient of one use of a tensor. */
static void add_gradient(const yk_param_view *p, const yk_grad_view *g, int64_t count, int64_t salt)
{
    for (int64_t k = 0; k < count; k++) {
        float read = p ? yk_load_f32(p->data, k, p->dtype) : 0;
        float more = 0.5f * read + 0.01f * (float)((k * 13 + salt * 29) % 97 - 48);
        float before = g->accumulate ? yk_load_f32(g->data, k, g->dtype) : 0;
        yk_store_f32(g->data, k, g->dtype, before + more);
    }
}

static void backward_unit(rig *r, int unit, int64_t salt)
{
    const yk_param_view *p = NULL;
    const yk_grad_view *g;
    if (unit > 0)
        assert_int_equal(yk_store_acquire(r->store, unit, unit > 1 ? unit - 1 : -1, r->compute, &p),
                         YK_OK);
    assert_int_equal(yk_store_grad(r->store, unit, r->compute, &g), YK_OK);
    for (int i = 0; i < r->n_params; i++)
        if (r->params[i].unit == unit || r->params[i].shared_unit == unit)
            add_gradient(p ? &p[i] : NULL, &g[i], yk_param_count(&r->params[i]),
                         salt + i + 3 * unit);
    assert_int_equal(yk_store_grad_ready(r->store, unit, r->compute), YK_OK);
    if (unit > 0) assert_int_equal(yk_store_release(r->store, unit, r->compute), YK_OK);
}

static double forward(rig *r)
{
    double sum = 0;
    for (int unit = 0; unit < r->n_units; unit++) {
        const yk_param_view *p;
        int next = unit + 1 < r->n_units ? unit + 1 : -1;
        assert_int_equal(yk_store_acquire(r->store, unit, next, r->compute, &p), YK_OK);
        for (int i = 0; i < r->n_params; i++)
            if (r->params[i].unit == unit || r->params[i].shared_unit == unit)
                for (int64_t k = 0; k < yk_param_count(&r->params[i]); k++)
                    sum += (double)yk_load_f32(p[i].data, k, p[i].dtype) * (double)(unit + 1);
        assert_int_equal(yk_store_release(r->store, unit, r->compute), YK_OK);
    }
    return sum;
}

static void step(rig *r, const setting *s, int64_t number, bool spoil)
{
    static const yk_adamw_options adamw = {0.9f, 0.95f, 1e-8f, 0.1f};
    assert_int_equal(yk_step_begin(r->compute, &(yk_step_begin_args){r->values, 1e-2f}), YK_OK);
    yk_store_begin(r->store, s->n_micro, r->values);
    for (int64_t m = 0; m < s->n_micro; m++) {
        r->values->loss_sum += forward(r);
        for (int unit = r->n_units - 1; unit >= 0; unit--) backward_unit(r, unit, 100 * number + m);
    }
    if (spoil) r->values->non_finite = 1;
    int64_t before = yk_stream_n_ops(r->compute);
    assert_int_equal(yk_store_sum_squares(r->store, r->compute, r->values), YK_OK);
    assert_int_equal(yk_step_finish(r->compute, &(yk_step_finish_args){.values = r->values,
                                                                       .expected_tokens = 1,
                                                                       .clip = 1,
                                                                       .beta1 = 0.9f,
                                                                       .beta2 = 0.95f}),
                     YK_OK);
    assert_int_equal(yk_store_update(r->store, r->compute, &adamw, r->values), YK_OK);
    r->n_calls = yk_stream_n_ops(r->compute) - before;
}

static uint64_t hash_states(rig *r)
{
    uint64_t hash = 0;
    float values[61 * 20];
    for (int i = 0; i < r->n_params; i++)
        for (int state = YK_STORE_WEIGHT; state <= YK_STORE_GRAD; state++) {
            int64_t n = yk_param_count(&r->params[i]);
            assert_int_equal(
                yk_store_read(r->store, (yk_store_state)state, i, 0, n, values, r->compute), YK_OK);
            hash = yk_hash64(values, n * 4, hash);
        }
    return hash;
}

typedef struct outcome {
    uint64_t states, replicas;
    double sums[N_STEPS], squares[N_STEPS];
    int64_t pinned_bytes, n_calls;
} outcome;

/* Three steps, the second of which is skipped. */
static outcome run(const setting *s)
{
    rig r;
    outcome o;
    yk_store_replica replicas[MAX_UNITS];
    memset(&o, 0, sizeof o);
    memset(replicas, 0, sizeof replicas);
    open_rig(&r, s);
    write_weights(&r);
    for (int i = 0; i < N_STEPS; i++) {
        step(&r, s, i, i == 1);
        o.sums[i] = r.values->loss_sum;
        o.squares[i] = r.values->sum_squares;
    }
    assert_int_equal(r.values->adam_steps, N_STEPS - 1);
    o.n_calls = r.n_calls;
    o.states = hash_states(&r);
    assert_int_equal(yk_store_hash(r.store, r.compute, replicas), YK_OK);
    o.replicas = yk_hash64(replicas, sizeof replicas, 0);
    o.pinned_bytes = yk_arena_high(r.host.pinned);
    close_rig(&r);
    return o;
}

static bool is_same(const outcome *a, const outcome *b)
{
    return a->states == b->states && a->replicas == b->replicas &&
           memcmp(a->sums, b->sums, sizeof a->sums) == 0 &&
           memcmp(a->squares, b->squares, sizeof a->squares) == 0;
}

static void every_place_gives_the_same_bits(void **state)
{
    (void)state;
    static const setting settings[] = {
        {.compute = YK_F32, .grads = YK_F32},
        {.compute = YK_BF16, .grads = YK_BF16},
        {.compute = YK_F16, .grads = YK_F32, .moments = YK_BF16},
        {.compute = YK_BF16, .grads = YK_BF16, .master = YK_BF16, .moments = YK_BF16},
        {.compute = YK_F16, .grads = YK_F16, .master = YK_BF16},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        for (int64_t n_micro = 1; n_micro <= 3; n_micro++) {
            setting s = settings[i];
            s.n_micro = n_micro;
            outcome home = run(&s);
            assert_int_equal(home.pinned_bytes, 0);
            assert_true(home.sums[0] != home.sums[2]); /* something was updated */
            assert_true(home.sums[1] != home.sums[0] && home.sums[1] == home.sums[2]);
            for (s.offload = 1; s.offload < 16; s.offload++) {
                outcome away = run(&s);
                if (!is_same(&away, &home))
                    fail_msg("setting %d, %d micro-batches, offload %d: other bits", (int)i,
                             (int)n_micro, s.offload);
                assert_true(away.pinned_bytes > 0 || s.offload == YK_OFFLOAD_MASTER);
            }
        }
}

/* Some are squared and updated in one call, or alone, or piece by piece. */
static void units_in_a_row_or_apart_give_the_same_bits(void **state)
{
    (void)state;
    static const setting settings[] = {
        {.compute = YK_F32, .grads = YK_F32},
        {.compute = YK_BF16, .grads = YK_BF16},
        {.compute = YK_BF16, .grads = YK_BF16, .master = YK_BF16, .moments = YK_BF16},
        {.compute = YK_F16, .grads = YK_F32, .moments = YK_BF16},
    };
    for (int i = 0; i < COUNT(settings); i++)
        for (int deep = 0; deep < 2; deep++) {
            setting s = settings[i];
            s.n_micro = 1;
            s.deep = deep;
            outcome apart = run(&s);
            s.in_a_row = true;
            outcome row = run(&s);
            s.in_a_row = false;
            s.offload = YK_OFFLOAD_GRADS | YK_OFFLOAD_MOMENTS;
            outcome away = run(&s);
            assert_true(apart.sums[0] != apart.sums[2] && apart.squares[0] > 0);
            /* Two or three for each of both, and the decision. */
            assert_true(row.n_calls <= (deep ? 2 + 1 + 3 : 1 + 1 + 1) && apart.n_calls > 5);
            if (!is_same(&apart, &row) || !is_same(&apart, &away))
                fail_msg("setting %d, deep %d: other bits", i, deep);
        }
}

/* Without chance, updates below half a unit of bf16 would all be lost. */
static void weights_in_bf16_move_by_less_than_a_unit(void **state)
{
    (void)state;
    setting s = {.compute = YK_BF16, .grads = YK_BF16, .master = YK_BF16, .n_micro = 1};
    static const yk_adamw_options adamw = {0.9f, 0.95f, 1e-8f, 0};
    rig r;
    float values[61 * 20], after[61 * 20];
    double moved = 0;
    open_rig(&r, &s);
    for (int k = 0; k < 61 * 20; k++) values[k] = 1;
    assert_int_equal(yk_store_write(r.store, YK_STORE_WEIGHT, 0, 0, 61 * 20, values, r.compute),
                     YK_OK);
    step(&r, &s, 0, true); /* gradients, and no update */
    *r.values = (yk_step_values){
        .grad_scale = 1, .correction1 = 0.1f, .correction2 = 0.05f, .lr = 1e-3f, .adam_steps = 1};
    for (int k = 0; k < 61 * 20; k++) values[k] = 1;
    assert_int_equal(yk_store_write(r.store, YK_STORE_GRAD, 0, 0, 61 * 20, values, r.compute),
                     YK_OK);
    assert_int_equal(yk_store_update(r.store, r.compute, &adamw, r.values), YK_OK);
    assert_int_equal(yk_store_read(r.store, YK_STORE_WEIGHT, 0, 0, 61 * 20, after, r.compute),
                     YK_OK);
    for (int k = 0; k < 61 * 20; k++) moved += 1 - (double)after[k];
    /* The first step is lr long: a quarter of the unit below 1. */
    assert_true(moved / (61 * 20) > 0.8e-3 && moved / (61 * 20) < 1.2e-3);
    close_rig(&r);
}

/* What the model reads of a parameter's first weights, and what is kept of them, against numbers made
 * here. */
static void expect_drawn(rig *r, const setting *s, int param, const yk_normal *normal)
{
    const yk_param_view *views;
    int64_t n = yk_param_count(&r->params[param]);
    float want[61 * 20], kept[61 * 20], rounded;
    yk_normal_fill(&(yk_draw_normal_args){.dst = want, .n = n, .normal = *normal}, 1);
    assert_int_equal(yk_store_read(r->store, YK_STORE_WEIGHT, param, 0, n, kept, r->compute),
                     YK_OK);
    assert_int_equal(yk_store_acquire(r->store, r->params[param].unit, -1, r->compute, &views),
                     YK_OK);
    assert_int_equal(yk_stream_synchronize(r->compute), YK_OK);
    for (int64_t k = 0; k < n; k++) {
        yk_dtype master = s->compute == s->master ? s->compute : s->master;
        yk_store_f32(&rounded, 0, master, want[k]);
        assert_true(kept[k] == yk_load_f32(&rounded, 0, master));
        yk_store_f32(&rounded, 0, s->compute, want[k]);
        assert_true(yk_load_f32(views[param].data, k, s->compute) ==
                    yk_load_f32(&rounded, 0, s->compute));
    }
    assert_int_equal(yk_store_release(r->store, r->params[param].unit, r->compute), YK_OK);
}

/* In two pieces each, of which the second begins between two multiples of anything. */
static void drawn_weights_are_the_numbers_in_every_place(void **state)
{
    (void)state;
    static const yk_dtype types[][2] = {
        {YK_F32, YK_F32}, {YK_BF16, YK_F32}, {YK_F16, YK_BF16}, {YK_BF16, YK_BF16}};
    for (int t = 0; t < 4; t++)
        for (int offload = 0; offload < 16; offload++) {
            setting s = {.compute = types[t][0], .master = types[t][1], .offload = offload};
            rig r;
            open_rig(&r, &s);
            for (int i = 0; i < r.n_params; i++) {
                yk_normal normal = {.key = 99 + (uint64_t)i, .mean = 0.5f, .deviation = 0.02f};
                int64_t n = yk_param_count(&r.params[i]), cut = n / 3 + 1;
                for (int again = 0; again < 2;
                     again++) /* in the place of what was fetched, too */ {
                    normal.key += 1000;
                    assert_int_equal(yk_store_draw(r.store, i, 0, n, &normal, r.compute), YK_OK);
                    assert_int_equal(
                        yk_store_draw(r.store, i, cut, n - cut, &(yk_normal){0}, r.compute), YK_OK);
                    assert_int_equal(yk_store_draw(r.store, i, cut, n - cut, &normal, r.compute),
                                     YK_OK);
                    expect_drawn(&r, &s, i, &normal);
                }
            }
            close_rig(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_gives_the_same_bits),
        cmocka_unit_test(units_in_a_row_or_apart_give_the_same_bits),
        cmocka_unit_test(weights_in_bf16_move_by_less_than_a_unit),
        cmocka_unit_test(drawn_weights_are_the_numbers_in_every_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
