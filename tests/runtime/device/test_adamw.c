/* tests/runtime/device/test_adamw.c - AdamW against the oracle.
 *
 * Bounds. One eps an operation through the formula of ops.h, first order; tests/oracle/step.c has it
 * line by line. The parameter is the master weight rounded once, to the bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/device/op_case.h"

static const yk_step_values values_of_step_3 = {.grad_scale = 0.037f,
                                                .correction1 = 0.271f,
                                                .correction2 = 0.0029970f,
                                                .lr = 0.003f,
                                                .loss_scale = NAN,
                                                .adam_steps = 3};

/* Second moments are not negative. */
static op_buffer *squares(op_case *c, int64_t n)
{
    double *v = op_out(c, n).value;
    for (int64_t i = 0; i < n; i++) {
        double x = op_random_normal(c);
        v[i] = oracle_round(YK_F32, x * x * 1e-3);
    }
    return op_given(c, OP_INOUT, YK_F32, n, v);
}

/* The tensors are the caller's to add. */
static yk_adamw_args adamw_args(int64_t n, yk_dtype t, yk_dtype grad_type, double weight_decay)
{
    return (yk_adamw_args){.n = n,
                           .beta1 = 0.9f,
                           .beta2 = 0.999f,
                           .eps = 1e-8f,
                           .weight_decay = (float)weight_decay,
                           .dtype = t,
                           .grad_dtype = grad_type};
}

/* The tensors of an update; param NULL: none. */
static void give_tensors(yk_adamw_args *a, const op_buffer *param, const op_buffer *master,
                         const op_buffer *m, const op_buffer *v, const op_buffer *grad,
                         const op_buffer *step)
{
    a->param = param ? param->data : NULL;
    a->master = master->data;
    a->m = m->data;
    a->v = v->data;
    a->grad = grad->data;
    a->values = step->data;
}

static void update_case(op_case *c, yk_dtype t, yk_dtype grad_type, int64_t n, bool with_param,
                        double weight_decay)
{
    op_case_begin(c, t, "adamw %s n=%d param=%d decay=%g", yk_dtype_name(grad_type), (int)n,
                  with_param, weight_decay);
    yk_adamw_args a = adamw_args(n, t, grad_type, weight_decay);
    op_buffer *master = op_inout(c, YK_F32, n, 1), *m = op_inout(c, YK_F32, n, 0.01);
    op_buffer *v = squares(c, n), *grad = op_input(c, grad_type, n, 1);
    op_buffer *param = op_output(c, t, n), *step = op_step_values(c, &values_of_step_3);
    give_tensors(&a, with_param ? param : NULL, master, m, v, grad, step);
    OP_RUN(c, yk_adamw, &a);
    if (c->bits_only) return;
    oracle_out want = op_out(c, n), want_m = op_out(c, n), want_v = op_out(c, n);
    oracle_adamw(&c->arith, want, want_m, want_v,
                 &(oracle_adamw_in){.master = master->value,
                                    .m = m->value,
                                    .v = v->value,
                                    .grad = grad->value,
                                    .grad_scale = (double)values_of_step_3.grad_scale,
                                    .lr = (double)values_of_step_3.lr,
                                    .correction1 = (double)values_of_step_3.correction1,
                                    .correction2 = (double)values_of_step_3.correction2,
                                    .beta1 = (double)a.beta1,
                                    .beta2 = (double)a.beta2,
                                    .eps = (double)a.eps,
                                    .weight_decay = (double)a.weight_decay,
                                    .n = n});
    op_expect(c, master, "master", want);
    op_expect(c, m, "m", want_m);
    op_expect(c, v, "v", want_v);
    oracle_out rounded = op_out(c, n);
    for (int64_t i = 0; i < n; i++) rounded.value[i] = with_param ? master->got[i] : (double)NAN;
    op_expect(c, param, "param", rounded);
}

static void adamw_family(op_case *c)
{
    static const int64_t sizes[] = {0, 1, 3, 17, 127, 129, 4099, 70001};
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 8; i++)
            for (int way = 0; way < 8; way++)
                update_case(c, op_dtypes[d], way & 1 ? YK_F32 : op_dtypes[d], sizes[i], way & 2,
                            way & 4 ? 0.1 : 0);
}

static void adamw_agrees_with_the_oracle(void **state)
{
    adamw_family(*state);
}

static void a_skipped_step_changes_nothing(void **state)
{
    op_case *c = *state;
    int64_t n = 4099;
    for (int d = 0; d < 3; d++) {
        yk_dtype t = op_dtypes[d];
        op_case_begin(c, t, "adamw skip");
        yk_step_values values = values_of_step_3;
        values.skip = 1;
        values.grad_scale = NAN;
        op_buffer *master = op_inout(c, YK_F32, n, 1), *m = op_inout(c, YK_F32, n, 1);
        op_buffer *v = squares(c, n), *param = op_inout(c, t, n, 1),
                  *step = op_step_values(c, &values);
        double *bad = op_out(c, n).value;
        for (int64_t i = 0; i < n; i++) bad[i] = i % 2 ? (double)NAN : (double)INFINITY;
        op_buffer *grad = op_given(c, OP_INPUT, t, n, bad);
        yk_adamw_args a = adamw_args(n, t, t, 0.1);
        give_tensors(&a, param, master, m, v, grad, step);
        OP_RUN(c, yk_adamw, &a);
        op_expect_unchanged(c, master, "master");
        op_expect_unchanged(c, m, "m");
        op_expect_unchanged(c, v, "v");
        op_expect_unchanged(c, param, "param");
    }
}

/* What fills a shard up to its multiple of 128 has all of them zero. */
static void padding_stays_zero(void **state)
{
    op_case *c = *state;
    int64_t n = 129;
    op_case_begin(c, YK_BF16, "adamw padding");
    double *zeros = op_out(c, n).value;
    op_buffer *master = op_given(c, OP_INOUT, YK_F32, n, zeros);
    op_buffer *m = op_given(c, OP_INOUT, YK_F32, n, zeros);
    op_buffer *v = op_given(c, OP_INOUT, YK_F32, n, zeros);
    op_buffer *grad = op_given(c, OP_INPUT, YK_BF16, n, zeros);
    op_buffer *param = op_output(c, YK_BF16, n), *step = op_step_values(c, &values_of_step_3);
    yk_adamw_args a = adamw_args(n, YK_BF16, YK_BF16, 0.1);
    give_tensors(&a, param, master, m, v, grad, step);
    OP_RUN(c, yk_adamw, &a);
    oracle_out want = op_out(c, n);
    op_expect(c, master, "master", want);
    op_expect(c, m, "m", want);
    op_expect(c, v, "v", want);
    op_expect(c, param, "param", want);
}

/* ---- states in bf16 ------------------------------------------------------------------------ */

/* An update of n elements on numbers that bf16 holds. */
typedef struct rounded_case {
    yk_dtype dtype, grad_dtype, master_dtype, moments_dtype;
    bool with_param;
    int64_t n, step;
    const yk_adamw_run *runs;
    int n_runs;
    bool apart; /* a call for each run */
} rounded_case;

typedef struct rounded_run {
    op_buffer *master, *m, *v, *param;
} rounded_run;

static int64_t end_of(const rounded_case *r, int run)
{
    return run + 1 < r->n_runs ? r->runs[run + 1].begin : r->n;
}

static void *move(void *data, int64_t n, yk_dtype t)
{
    return (char *)data + n * yk_dtype_bytes(t);
}

/* Update the elements of one run alone; what does not decay does so by nothing. */
static void update_run(op_case *c, const rounded_case *r, int run, yk_adamw_args a)
{
    yk_adamw_run alone = r->runs[run];
    int64_t begin = alone.begin;
    a.n = end_of(r, run) - begin;
    if (a.param) a.param = move(a.param, begin, a.dtype);
    a.master = move(a.master, begin, a.master_dtype);
    a.m = move(a.m, begin, a.moments_dtype);
    a.v = move(a.v, begin, a.moments_dtype);
    a.grad = (const char *)a.grad + begin * yk_dtype_bytes(a.grad_dtype);
    if (!alone.decay) a.weight_decay = 0;
    alone.begin = 0;
    alone.decay = true;
    a.runs = &alone;
    a.n_runs = 1;
    OP_RUN(c, yk_adamw, &a);
}

/* Values are of the case's own seed, so that two runs of one case begin alike. */
static rounded_run run_rounded(op_case *c, const rounded_case *r, yk_dtype master_t,
                               yk_dtype moments_t)
{
    yk_step_values values = values_of_step_3;
    uint64_t seed = c->random;
    values.adam_steps = r->step;
    op_case_begin(c, r->dtype, "adamw grads %s, master %s, moments %s, n=%d runs=%d param=%d",
                  yk_dtype_name(r->grad_dtype), yk_dtype_name(master_t), yk_dtype_name(moments_t),
                  (int)r->n, r->n_runs, r->with_param);
    double *start[4];
    for (int k = 0; k < 4; k++) {
        start[k] = op_out(c, r->n).value;
        for (int64_t i = 0; i < r->n; i++) {
            double x = op_random_normal(c) * (k == 1 ? 0.01 : 1);
            start[k][i] = oracle_round(k == 3 ? r->grad_dtype : YK_BF16, k == 2 ? x * x * 1e-3 : x);
        }
    }
    rounded_run o = {.master = op_given(c, OP_INOUT, master_t, r->n, start[0]),
                     .m = op_given(c, OP_INOUT, moments_t, r->n, start[1]),
                     .v = op_given(c, OP_INOUT, moments_t, r->n, start[2]),
                     .param = op_output(c, r->dtype, r->n)};
    op_buffer *grad = op_given(c, OP_INPUT, r->grad_dtype, r->n, start[3]);
    op_buffer *step = op_step_values(c, &values);
    yk_adamw_args a = {.n = r->n,
                       .runs = r->runs,
                       .n_runs = r->n_runs,
                       .beta1 = 0.9f,
                       .beta2 = 0.999f,
                       .eps = 1e-8f,
                       .weight_decay = 0.1f,
                       .dtype = r->dtype,
                       .grad_dtype = r->grad_dtype,
                       .master_dtype = master_t,
                       .moments_dtype = moments_t};
    give_tensors(&a, r->with_param ? o.param : NULL, o.master, o.m, o.v, grad, step);
    for (int k = 0; r->apart && k < r->n_runs; k++) update_run(c, r, k, a);
    if (!r->apart) OP_RUN(c, yk_adamw, &a);
    if (master_t == YK_F32 && moments_t == YK_F32) c->random = seed;
    return o;
}

static double *copy_of(op_case *c, const op_buffer *b)
{
    (void)c;
    double *copy = calloc((size_t)b->n + 1, sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, b->got, (size_t)b->n * sizeof *copy);
    return copy;
}

/* The update in fp32 says what is to be rounded, the oracle's draws say how. */
static void rounding_case(op_case *c, const rounded_case *r)
{
    rounded_run exact = run_rounded(c, r, YK_F32, YK_F32);
    double *w = copy_of(c, exact.master), *m = copy_of(c, exact.m), *v = copy_of(c, exact.v);
    rounded_run got = run_rounded(c, r, r->master_dtype, r->moments_dtype);
    oracle_out want_w = op_out(c, r->n), want_m = op_out(c, r->n), want_v = op_out(c, r->n);
    oracle_out want_param = op_out(c, r->n);
    for (int64_t i = 0, k = 0; i < r->n; i++) {
        if (i == end_of(r, (int)k)) k++;
        const yk_adamw_run *run = &r->runs[k];
        oracle_draws draws = oracle_adamw_draws(run->key, r->step, run->first + i - run->begin);
        bool w16 = r->master_dtype == YK_BF16, moments16 = r->moments_dtype == YK_BF16;
        want_w.value[i] = w16 ? oracle_choose_bf16(w[i], draws.master) : w[i];
        want_m.value[i] = moments16 ? oracle_choose_bf16(m[i], draws.m) : m[i];
        want_v.value[i] = moments16 ? oracle_choose_bf16(v[i], draws.v) : v[i];
        want_param.value[i] = r->with_param ? want_w.value[i] : (double)NAN;
    }
    op_expect(c, got.master, "master", want_w);
    op_expect(c, got.m, "m", want_m);
    op_expect(c, got.v, "v", want_v);
    op_expect(c, got.param, "param", want_param);
    free(w);
    free(m);
    free(v);
}

static void states_in_bf16_are_rounded_as_their_own_bits_say(void **state)
{
    op_case *c = *state;
    static const int64_t sizes[] = {1, 15, 16, 129, 4099, 70001};
    static const int64_t firsts[] = {0, 128, INT64_C(1) << 33};
    for (int way = 1; way < 4; way++)
        for (int t = 0; t < 3; t++)
            for (int i = 0; i < 6; i++) {
                const yk_adamw_run run = {
                    .first = firsts[i % 3], .key = op_random(c), .decay = true};
                rounding_case(c, &(rounded_case){.dtype = op_dtypes[t],
                                                 .grad_dtype = i % 2 ? YK_F32 : op_dtypes[t],
                                                 .master_dtype = way & 1 ? YK_BF16 : YK_F32,
                                                 .moments_dtype = way & 2 ? YK_BF16 : YK_F32,
                                                 .with_param = i % 3 > 0,
                                                 .n = sizes[i],
                                                 .step = 1 + op_random_below(c, INT64_C(1) << 40),
                                                 .runs = &run,
                                                 .n_runs = 1});
            }
}

/* As many as there may be, of 16 elements and of more than a block or a thread works at. */
static int64_t make_runs(op_case *c, yk_adamw_run *runs)
{
    int64_t n = 0;
    for (int k = 0; k < YK_STEP_RUNS; k++) {
        runs[k] = (yk_adamw_run){.begin = n,
                                 .first = 16 * op_random_below(c, 1000),
                                 .key = op_random(c),
                                 .decay = op_random_below(c, 2) > 0};
        n += 16 * (1 + op_random_below(c, k % 8 == 0 ? 400 : k % 8 < 4 ? 8 : 1));
    }
    return n;
}

static void expect_equal(const op_case *c, const op_buffer *got, const double *want,
                         const char *name)
{
    for (int64_t i = 0; i < got->n; i++)
        if (memcmp(&got->got[i], &want[i], sizeof want[i]) != 0)
            fail_msg("%s: %s[%d] is %g, not %g", c->label, name, (int)i, got->got[i], want[i]);
}

static void runs_of_one_call_are_updated_as_by_calls_of_their_own(void **state)
{
    op_case *c = *state;
    for (int way = 0; way < 4; way++)
        for (int t = 0; t < 3; t++) {
            yk_adamw_run runs[YK_STEP_RUNS];
            rounded_case r = {.dtype = op_dtypes[t],
                              .grad_dtype = op_dtypes[t],
                              .master_dtype = way & 1 ? YK_BF16 : YK_F32,
                              .moments_dtype = way & 2 ? YK_BF16 : YK_F32,
                              .with_param = true,
                              .n = make_runs(c, runs) - (t == 1 ? 5 : 0),
                              .step = 3,
                              .runs = runs,
                              .n_runs = YK_STEP_RUNS};
            if (way > 0) rounding_case(c, &r);
            uint64_t seed = c->random;
            rounded_run whole = run_rounded(c, &r, r.master_dtype, r.moments_dtype);
            double *w = copy_of(c, whole.master), *m = copy_of(c, whole.m);
            double *v = copy_of(c, whole.v), *p = copy_of(c, whole.param);
            c->random = seed;
            r.apart = true;
            rounded_run parts = run_rounded(c, &r, r.master_dtype, r.moments_dtype);
            expect_equal(c, parts.master, w, "master");
            expect_equal(c, parts.m, m, "m");
            expect_equal(c, parts.v, v, "v");
            expect_equal(c, parts.param, p, "param");
            free(w), free(m), free(v), free(p);
        }
}

/* Every element begins alike, so that what fp32 makes of them lies at one place between two numbers
 * of bf16: the share that goes up must be that place's, and the parts of an element must not go
 * together. Six standard deviations. */
static void rounding_has_the_right_mean(void **state)
{
    op_case *c = *state;
    enum { N = 1 << 20 };
    yk_step_values values = values_of_step_3;
    op_case_begin(c, YK_BF16, "adamw mean of rounding");
    double *w = op_out(c, N).value, *m = op_out(c, N).value, *v = op_out(c, N).value;
    double *g = op_out(c, N).value;
    for (int i = 0; i < N; i++) w[i] = 1.25, m[i] = 0.015625, v[i] = 0.0009765625, g[i] = 0.75;
    op_buffer *master = op_given(c, OP_INOUT, YK_BF16, N, w),
              *mean = op_given(c, OP_INOUT, YK_BF16, N, m);
    op_buffer *square = op_given(c, OP_INOUT, YK_BF16, N, v),
              *grad = op_given(c, OP_INPUT, YK_BF16, N, g);
    op_buffer *step = op_step_values(c, &values);
    yk_adamw_args a = {.master = master->data,
                       .m = mean->data,
                       .v = square->data,
                       .grad = grad->data,
                       .values = step->data,
                       .n = N,
                       .runs = &(yk_adamw_run){.key = op_random(c), .decay = true},
                       .n_runs = 1,
                       .beta1 = 0.9f,
                       .beta2 = 0.999f,
                       .eps = 1e-8f,
                       .weight_decay = 0.1f,
                       .dtype = YK_BF16,
                       .grad_dtype = YK_BF16,
                       .master_dtype = YK_BF16,
                       .moments_dtype = YK_BF16};
    OP_RUN(c, yk_adamw, &a);
    oracle_out x[3] = {op_out(c, 1), op_out(c, 1), op_out(c, 1)};
    oracle_adamw(NULL, x[0], x[1], x[2],
                 &(oracle_adamw_in){.master = w,
                                    .m = m,
                                    .v = v,
                                    .grad = g,
                                    .grad_scale = (double)values.grad_scale,
                                    .lr = (double)values.lr,
                                    .correction1 = (double)values.correction1,
                                    .correction2 = (double)values.correction2,
                                    .beta1 = (double)a.beta1,
                                    .beta2 = (double)a.beta2,
                                    .eps = (double)a.eps,
                                    .weight_decay = (double)a.weight_decay,
                                    .n = 1});
    const op_buffer *const parts[3] = {master, mean, square};
    double share[3], both[3] = {0};
    for (int k = 0; k < 3; k++) {
        double unit = ldexp(1, ilogb(x[k].value[0]) - 7), up = 0;
        double below = floor(x[k].value[0] / unit) * unit, place = (x[k].value[0] - below) / unit;
        for (int i = 0; i < N; i++) {
            assert_true(parts[k]->got[i] == below || parts[k]->got[i] == below + unit);
            up += parts[k]->got[i] > below;
        }
        share[k] = up / N;
        assert_true(place > 0.01 && place < 0.99);
        /* fp32 itself is off by some 2^-20 of a unit */
        assert_true(fabs(share[k] - place) < 6 * sqrt(place * (1 - place) / N) + 1e-3);
    }
    for (int i = 0; i < N; i++) {
        bool up[3];
        for (int k = 0; k < 3; k++) up[k] = parts[k]->got[i] > x[k].value[0];
        both[0] += up[0] && up[1];
        both[1] += up[1] && up[2];
        both[2] += up[2] && up[0];
    }
    for (int k = 0; k < 3; k++) {
        double expected = share[k] * share[(k + 1) % 3];
        assert_true(fabs(both[k] / N - expected) < 6 * sqrt(expected * (1 - expected) / N));
    }
}

static void rounding_keeps_a_nan_and_the_zeros_of_padding(void **state)
{
    op_case *c = *state;
    double odd[16] = {0};
    op_case_begin(c, YK_BF16, "adamw odd values");
    odd[1] = (double)INFINITY, odd[2] = (double)NAN, odd[3] = -(double)INFINITY;
    double zeros[16] = {0};
    op_buffer *master = op_given(c, OP_INOUT, YK_BF16, 16, odd);
    op_buffer *m = op_given(c, OP_INOUT, YK_BF16, 16, odd),
              *v = op_given(c, OP_INOUT, YK_BF16, 16, zeros);
    op_buffer *grad = op_given(c, OP_INPUT, YK_BF16, 16, zeros);
    op_buffer *step = op_step_values(c, &values_of_step_3);
    OP_RUN(c, yk_adamw,
           &((yk_adamw_args){.master = master->data,
                             .m = m->data,
                             .v = v->data,
                             .grad = grad->data,
                             .values = step->data,
                             .n = 16,
                             .runs = &(yk_adamw_run){.key = op_random(c)},
                             .n_runs = 1,
                             .beta1 = 0.9f,
                             .beta2 = 0.999f,
                             .eps = 1e-8f,
                             .dtype = YK_BF16,
                             .grad_dtype = YK_BF16,
                             .master_dtype = YK_BF16,
                             .moments_dtype = YK_BF16}));
    for (int i = 0; i < 16; i++) {
        bool nan = i >= 1 && i <= 3; /* inf + 0.1 (0 - inf) is one too */
        assert_true(nan ? isnan(m->got[i]) : m->got[i] == 0);
        assert_true(nan ? isnan(master->got[i]) : master->got[i] == 0);
        assert_true(v->got[i] == 0);
    }
}

static void rounded_family(op_case *c)
{
    const yk_adamw_run run = {.key = 0x0123456789abcdefu, .decay = true};
    for (int t = 1; t < 3; t++)
        (void)run_rounded(c,
                          &(rounded_case){.dtype = op_dtypes[t],
                                          .grad_dtype = op_dtypes[t],
                                          .n = 70001,
                                          .step = 7,
                                          .runs = &run,
                                          .n_runs = 1},
                          YK_BF16, YK_BF16);
}

static void adamw_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(adamw_family);
    op_expect_same_bits_again(rounded_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(adamw_agrees_with_the_oracle),
        OP_TEST(a_skipped_step_changes_nothing),
        OP_TEST(padding_stays_zero),
        OP_TEST(states_in_bf16_are_rounded_as_their_own_bits_say),
        OP_TEST(runs_of_one_call_are_updated_as_by_calls_of_their_own),
        OP_TEST(rounding_has_the_right_mean),
        OP_TEST(rounding_keeps_a_nan_and_the_zeros_of_padding),
        cmocka_unit_test(adamw_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
