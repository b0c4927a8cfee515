/* tests/ranks/train/rank_step.c - what a step over several ranks promises beside equal stages: one big
 * batch, bytes as planned, memory as by formula, all skip together, sums beside the backward pass.
 *
 *   rank_step DIR            all of it
 *   rank_step DIR flip RANK  one bit of a weight of that rank is flipped, and replicas are compared
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/guard.h"
#include "engine/replicas.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "tests/ranks/train/part.h"

static const char *const zeros[] = {"parallel.zero=0", "parallel.zero=1", "parallel.zero=2",
                                    "parallel.zero=3"};

/* ---- one big batch ------------------------------------------------------------------------ */

/* Adding the same gradients in another order: a few roundings of fp32 of the largest. */
#define GRADIENT_BOUND 1e-5
#define LOSS_BOUND     1e-6

static void compare_gradients(part *many, part *one)
{
    for (int i = 0; i < yk_model_n_params(one->engine->model); i++) {
        int64_t n;
        float *a = part_read(many, YK_STORE_GRAD, i, &n), *b = part_read(one, YK_STORE_GRAD, i, &n);
        float most = 0;
        for (int64_t j = 0; j < n; j++) most = fmaxf(most, fabsf(b[j]));
        for (int64_t j = 0; j < n; j++)
            REQUIRE(many->world, fabsf(a[j] - b[j]) <= GRADIENT_BOUND * most);
        free(a);
        free(b);
    }
}

/* N ranks with three micro-batches each, whose unmasked tokens are of unequal number, against one rank that
 * takes the batch at once: every token weighs the same. */
static void equals_one_big_batch(yk_world *world, const char *dir, int zero, const char *every)
{
    part many, one;
    char micro[40];
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    part_about("one big batch, %s, %s", zeros[zero], every);
    part_open(&many, world, dir,
              (const char *[]){"train.batch=72", micro, every, zeros[zero], "data.loss_mask", NULL},
              NULL);
    part_open(&one, NULL, dir,
              (const char *[]){"train.batch=72", "train.micro_batch=72", "data.loss_mask", NULL},
              NULL);
    for (int i = 0; i < 3; i++) {
        yk_step_result m = part_step(&many, i), o = part_step(&one, i);
        REQUIRE(world, m.n_tokens == o.n_tokens && o.n_tokens > 0 && o.n_tokens < 72 * 8);
        REQUIRE(world, fabs(m.loss - o.loss) <= LOSS_BOUND * o.loss);
        REQUIRE(world, fabsf(m.grad_norm - o.grad_norm) <= GRADIENT_BOUND * o.grad_norm);
        if (i == 0) compare_gradients(&many, &one);
    }
    part_close(&one);
    part_close(&many);
}

/* ---- bytes and memory --------------------------------------------------------------------- */

/* Elements of each unit as laid out for the world. */
static int64_t unit_count(const part *p, int unit)
{
    int64_t count = 0;
    const yk_param *params = yk_model_params(p->engine->model);
    for (int i = 0; i < yk_model_n_params(p->engine->model); i++)
        if (params[i].unit == unit) count += yk_round_up(yk_param_count(&params[i]), 128);
    return yk_round_up(count, 128 * (int64_t)p->size);
}

static int64_t planned_bytes(const part *p, const char *name)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->plan.n_items; i++)
        if (strcmp(p->plan.items[i].name, name) == 0) bytes += p->plan.items[i].bytes;
    return bytes;
}

/* What a step sends: (N-1)/N of the gradients at the wire's width for each reduction, back again in stage
 * 0; (N-1)/N of the parameters for each gather, in stage 3 twice a micro-batch for blocks and once for the
 * ends of the model. */
static int64_t expected_bytes(const part *p, int zero, int wire_bytes, int n_micro, int n_sums)
{
    int64_t sent = 0;
    int last = yk_model_n_units(p->engine->model) - 1;
    for (int u = 0; u <= last; u++) {
        int64_t others = unit_count(p, u) / p->size * (p->size - 1);
        int gathers = u == 0 || u == last ? 1 : 2;
        sent += others * wire_bytes * n_sums;
        if (zero == 0) sent += others * wire_bytes;
        if (zero == 1 || zero == 2) sent += others * 4;
        if (zero == 3) sent += others * 4 * gathers * n_micro;
    }
    return sent;
}

/* What is kept: of each kind that a stage shares out P/N, and of what is gathered, or on its way to a sum,
 * three units: an end of the model and two blocks. A tied head is its norm alone. */
static void check_memory(const part *p, int zero, bool tied)
{
    int64_t all = 0, block = 0;
    int last = yk_model_n_units(p->engine->model) - 1;
    for (int u = 0; u <= last; u++) {
        all += unit_count(p, u);
        if (u > 0 && u < last) block = yk_max(block, unit_count(p, u));
    }
    int64_t first = unit_count(p, 0), head = unit_count(p, last);
    int64_t end = tied ? first + head : yk_max(first, head);
    int64_t room = 4 * (end + 2 * block), slack = 64 * 256; /* pieces are rounded up */
    int64_t shard = zero == 3 ? all / p->size : all;
    REQUIRE(p->world, planned_bytes(p, "parameters") <= 4 * shard + slack);
    int64_t gathered = planned_bytes(p, "parameters of a unit");
    REQUIRE(p->world, zero == 3 ? gathered >= room && gathered <= room + slack : gathered == 0);
    REQUIRE(p->world,
            planned_bytes(p, "first moments") <= 4 * (zero > 0 ? all / p->size : all) + slack);
    if (zero >= 2) {
        REQUIRE(p->world, planned_bytes(p, "gradients") <= 4 * all / p->size + slack);
        int64_t summed = planned_bytes(p, "gradients of a unit");
        REQUIRE(p->world, summed >= room && summed <= room + slack);
    }
    part_expect_planned(p);
}

static void sends_and_keeps_as_planned(yk_world *world, const char *dir, int zero, int wire,
                                       bool tied)
{
    static const char *const wires[] = {"comm.wire=fp32", "comm.wire=bf16", "comm.wire=fp16"};
    part p;
    char micro[40];
    int n = yk_world_size(world);
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / n);
    const char *head = tied ? "model.tied=true" : "model.tied=false";
    part_about("bytes, %s %s %s", zeros[zero], wires[wire], head);
    part_open(&p, world, dir,
              (const char *[]){"train.batch=72", "model.layers=4", micro, zeros[zero], wires[wire],
                               head, NULL},
              NULL);
    int64_t before = 0;
    for (int i = 0; i < 3; i++) {
        part_step(&p, i);
        /* Let what was published arrive, so that it counts here. */
        REQUIRE(world, n == 1 || yk_stream_synchronize(p.engine->ranks.groups.gather) == YK_OK);
        int64_t sent = yk_ranks_counts(&p.engine->ranks).bytes_sent;
        int64_t expected = expected_bytes(&p, zero, wire ? 2 : 4, 3, zero >= 2 ? 3 : 1);
        part_about("bytes, %s %s: step %d sent %lld, planned %lld, by formula %lld", zeros[zero],
                   wires[wire], i, (long long)(sent - before), (long long)p.plan.bytes_sent,
                   (long long)expected);
        /* The first step of all gathers what it begins with, and for the next one. */
        bool first = i == 0 && zero == 3;
        REQUIRE(world, first || sent - before == p.plan.bytes_sent);
        if (zero < 3) REQUIRE(world, sent - before == expected);
        if (zero == 3) REQUIRE(world, sent - before <= expected);
        before = sent;
    }
    check_memory(&p, zero, tied);
    part_close(&p);
}

/* ---- a step by hand ----------------------------------------------------------------------- */

/* A step as engine/step.c makes it, in which something happens to a unit's gradient on its way. */
typedef struct by_hand {
    part *p;
    int unit;      /* whose gradient is spoilt on this rank; -1: none */
    float spoil;   /* the value that gets in */
    double *times; /* (n_units) when each unit's sum was there; NULL: not asked */
    double end_s;  /* of the backward pass */
} by_hand;

typedef struct stamp {
    double *to;
} stamp;

static yk_status run_stamp(void *context)
{
    *((stamp *)context)->to = yk_clock_s();
    return YK_OK;
}

static void spoil(const by_hand *h, int unit, const yk_grad_view *g)
{
    const yk_param *params = yk_model_params(h->p->engine->model);
    for (int i = 0; i < yk_model_n_params(h->p->engine->model); i++)
        if (params[i].unit == unit) {
            yk_store_f32(g[i].data, 0, g[i].dtype, h->spoil);
            return;
        }
}

static void unit_backward(by_hand *h, int u)
{
    yk_engine *e = h->p->engine;
    const yk_param_view *params = NULL;
    const yk_grad_view *g;
    bool reads = yk_model_backward_reads(e->model, u);
    yk_world *w = h->p->world;
    if (reads) REQUIRE(w, yk_store_acquire(e->store, u, -1, e->compute, &params) == YK_OK);
    REQUIRE(w, yk_store_grad(e->store, u, e->compute, &g) == YK_OK);
    REQUIRE(w, yk_pass_backward(e->pass, u, params, g) == YK_OK);
    if (u == h->unit) spoil(h, u, g);
    REQUIRE(w, yk_store_grad_ready(e->store, u, e->compute) == YK_OK);
    if (h->times) {
        stamp s = {&h->times[u]};
        REQUIRE(w, yk_stream_run(e->ranks.groups.reduce, run_stamp, &s, sizeof s) == YK_OK);
    }
    if (reads) REQUIRE(w, yk_store_release(e->store, u, e->compute) == YK_OK);
}

static void micro_batch(by_hand *h)
{
    yk_engine *e = h->p->engine;
    yk_world *w = h->p->world;
    yk_batch batch;
    float weight = (float)(1.0 / (double)(e->config->train.batch * e->seq_len));
    int last = yk_model_n_units(e->model) - 1;
    REQUIRE(w, yk_feed_next(&h->p->feed, &batch) == YK_OK);
    REQUIRE(w, yk_pass_begin(e->pass, YK_PASS_TRAIN, &batch, weight, NULL, NULL) == YK_OK);
    for (int u = 0; u <= last; u++) {
        const yk_param_view *params;
        REQUIRE(w, yk_store_acquire(e->store, u, -1, e->compute, &params) == YK_OK);
        REQUIRE(w, yk_pass_forward(e->pass, u, params) == YK_OK);
        REQUIRE(w, yk_store_release(e->store, u, e->compute) == YK_OK);
    }
    for (int u = last; u >= 0; u--) unit_backward(h, u);
    h->end_s = yk_clock_s();
    yk_pass_end(e->pass);
}

static yk_step_values step_by_hand(by_hand *h)
{
    yk_engine *e = h->p->engine;
    yk_world *w = h->p->world;
    const yk_adamw_options adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    REQUIRE(w, yk_step_begin(e->compute, &(yk_step_begin_args){.values = e->values, .lr = 1e-3f}) ==
                   YK_OK);
    yk_store_begin(e->store, e->n_micro, e->values);
    for (int64_t m = 0; m < e->n_micro; m++) micro_batch(h);
    REQUIRE(w, yk_store_sum_squares(e->store, e->compute, e->values) == YK_OK);
    yk_step_finish_args finish = {.values = e->values,
                                  .expected_tokens = (double)(e->config->train.batch * e->seq_len),
                                  .clip = 1,
                                  .beta1 = adamw.beta1,
                                  .beta2 = adamw.beta2,
                                  .dynamic_scale = e->compute_dtype == YK_F16,
                                  .scale_floor = 1,
                                  .scale_ceiling = 65536,
                                  .growth_interval = 2000};
    REQUIRE(w, yk_step_finish(e->compute, &finish) == YK_OK);
    REQUIRE(w, yk_store_update(e->store, e->compute, &adamw, e->values) == YK_OK);
    return *e->values; /* device memory of a cpu */
}

/* A value that is not finite on one rank, in any unit: all skip, nothing changes, the scaler and the
 * counters agree, and the next step trains. */
static void all_skip_together(yk_world *world, const char *dir, int zero, const char *compute,
                              const char *wire)
{
    static const float values[] = {INFINITY, NAN, -INFINITY};
    part p;
    int n = yk_world_size(world), steps = 0;
    char micro[40];
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / n);
    part_about("skipping, %s %s %s", zeros[zero], compute, wire);
    part_open(&p, world, dir,
              (const char *[]){"train.batch=24", micro, zeros[zero], compute, wire,
                               "precision.loss_scale.start=1024", NULL},
              NULL);
    for (int u = 0; u < yk_model_n_units(p.engine->model); u++) {
        by_hand h = {.p = &p, .unit = (u + n - 1) % n == p.rank ? u : -1, .spoil = values[u % 3]};
        uint64_t before = part_hash(&p, false);
        float scale = p.engine->values->loss_scale;
        yk_step_values v = step_by_hand(&h);
        steps++;
        REQUIRE(world, v.skip == 1 && v.non_finite == 1 && v.steps_skipped == steps);
        REQUIRE(world, v.skips_in_a_row == 1 && v.adam_steps == steps - 1);
        bool scales = p.engine->compute_dtype == YK_F16;
        REQUIRE(world, v.loss_scale == (scales ? scale / 2 : scale));
        REQUIRE(world, part_hash(&p, false) == before);
        h.unit = -1;
        v = step_by_hand(&h);
        REQUIRE(world, v.skip == 0 && v.adam_steps == steps);
        REQUIRE(world, part_same(world, part_hash(&p, false)));
    }
    part_close(&p);
}

/* Sums over ranks are done beside the backward pass: those of the upper half of a model before it ends. A
 * sum that only begins when the pass is over never is, whatever the machine; one beside the pass may be late
 * in a step where others have the cores. So it is asked for in three steps of at most sixty. */
#define OVERLAPS    3
#define OVERLAP_MAX 60

static bool sums_end_first(by_hand *h)
{
    int last = yk_model_n_units(h->p->engine->model) - 1;
    step_by_hand(h);
    REQUIRE(h->p->world, yk_stream_synchronize(h->p->engine->ranks.groups.reduce) == YK_OK);
    for (int u = last; u > last / 2; u--)
        if (h->times[u] >= h->end_s) return false;
    return true;
}

static void sums_end_before_the_backward_pass(yk_world *world, const char *dir, int zero)
{
    part p;
    double times[32];
    char batch[40];
    snprintf(batch, sizeof batch, "train.batch=%d", 8 * yk_world_size(world));
    part_about("overlap, %s", zeros[zero]);
    part_open(&p, world, dir,
              (const char *[]){batch, "train.micro_batch=8", "model.layers=8", "model.width=128",
                               "model.heads=4", "model.ffn=512", "train.seq_len=64", zeros[zero],
                               NULL},
              NULL);
    by_hand h = {.p = &p, .unit = -1, .times = times};
    int last = yk_model_n_units(p.engine->model) - 1, seen = 0;
    int64_t fewest = 0; /* steps in which it was seen, on the rank with the fewest */
    step_by_hand(&h);
    for (int i = 0; i < OVERLAP_MAX && fewest < OVERLAPS; i++) {
        seen += sums_end_first(&h);
        REQUIRE(world, yk_world_min(world, seen, &fewest) == YK_OK);
        part_about("overlap, %s: seen in %d of %d steps; in the last one the backward pass ends "
                   "%.1f ms after the head's sum, %.1f after a middle block's",
                   zeros[zero], seen, i + 1, 1e3 * (h.end_s - times[last]),
                   1e3 * (h.end_s - times[last / 2 + 1]));
    }
    REQUIRE(world, seen >= OVERLAPS);
    part_close(&p);
}

/* A weight of one rank's copy is not finite: that rank is named, with the unit whose gradient shows it
 * first, which is the last of the model. */
static void names_the_rank_of_a_bad_gradient(yk_world *world, const char *dir)
{
    part p;
    int64_t n;
    char micro[40];
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    part_about("a bad gradient");
    part_open(&p, world, dir, (const char *[]){"train.batch=24", micro, zeros[0], NULL}, NULL);
    yk_bad_gradient bad = {-1, -1, p.rank};
    int last = p.size - 1, param = yk_model_n_params(p.engine->model) / 2;
    float *values = part_read(&p, YK_STORE_WEIGHT, param, &n);
    if (p.rank == last) values[n / 2] = NAN;
    REQUIRE(world, yk_store_write(p.engine->store, YK_STORE_WEIGHT, param, 0, n, values,
                                  p.engine->compute) == YK_OK);
    p.engine->bad = &bad;
    part_step(&p, 0);
    REQUIRE(world, (bad.unit >= 0) == (p.rank == last));
    REQUIRE(world, yk_guard_agree(world, &bad) == YK_OK);
    REQUIRE(world, bad.rank == last && bad.unit == yk_model_n_units(p.engine->model) - 1);
    REQUIRE(world, yk_model_params(p.engine->model)[bad.param].unit == bad.unit);
    p.engine->bad = NULL;
    free(values);
    part_close(&p);
}

/* ---- replicas ----------------------------------------------------------------------------- */

static void flip(yk_world *world, const char *dir, int zero, int rank)
{
    part p;
    int64_t n;
    char micro[40];
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    part_open(&p, world, dir,
              (const char *[]){"train.batch=24", micro, zeros[zero], "parallel.shard=node", NULL},
              NULL);
    part_step(&p, 0);
    REQUIRE(world, yk_replicas_check(p.engine, world, 0) == YK_OK);
    int param = yk_model_n_params(p.engine->model) / 2;
    float *values = part_read(&p, YK_STORE_WEIGHT, param, &n);
    for (int64_t i = 0; i < n && p.rank == rank; i++) { /* as many as this rank keeps of them */
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        bits ^= 1;
        memcpy(&values[i], &bits, 4);
    }
    REQUIRE(world, yk_store_write(p.engine->store, YK_STORE_WEIGHT, param, 0, n, values,
                                  p.engine->compute) == YK_OK);
    REQUIRE(world, yk_replicas_check(p.engine, world, 1) == YK_EDIVERGED);
    free(values);
    part_close(&p);
}

int main(int argc, char **argv)
{
    yk_world *world;
    if (argc < 2 || yk_world_join(&world) != YK_OK) return 2;
    part_write_data(world, argv[1]);
    if (argc == 5) {
        flip(world, argv[1], atoi(argv[4]), atoi(argv[3]));
        yk_world_leave(world);
        return 0;
    }
    names_the_rank_of_a_bad_gradient(world, argv[1]);
    for (int zero = 0; zero < 4; zero++) {
        equals_one_big_batch(world, argv[1], zero, "comm.reduce_every=step");
        equals_one_big_batch(world, argv[1], zero, "comm.reduce_every=micro");
        for (int wire = 0; wire < 3 && yk_world_size(world) > 1; wire++)
            sends_and_keeps_as_planned(world, argv[1], zero, wire, wire != 1);
        all_skip_together(world, argv[1], zero, "precision.compute=fp32", "comm.wire=bf16");
        all_skip_together(world, argv[1], zero, "precision.compute=fp16", "comm.wire=fp16");
        if (yk_world_size(world) == 2) sums_end_before_the_backward_pass(world, argv[1], zero);
    }
    if (yk_world_rank(world) == 0) printf("passed on %d ranks\n", yk_world_size(world));
    yk_world_leave(world);
    return 0;
}
