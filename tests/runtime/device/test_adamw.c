/* tests/runtime/device/test_adamw.c - AdamW against the oracle.
 *
 * Bounds. One eps an operation through the formula of ops.h, first order; tests/oracle/step.c has it
 * line by line. The parameter is the master weight rounded once, to the bit.
 */
#include <math.h>

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

static void update_case(op_case *c, yk_dtype t, yk_dtype grad_type, int64_t n, bool with_param,
                        double weight_decay)
{
    op_case_begin(c, t, "adamw %s n=%d param=%d decay=%g", yk_dtype_name(grad_type), (int)n,
                  with_param, weight_decay);
    yk_adamw_args a = {.n = n,
                       .beta1 = 0.9f,
                       .beta2 = 0.999f,
                       .eps = 1e-8f,
                       .weight_decay = (float)weight_decay,
                       .dtype = t,
                       .grad_dtype = grad_type};
    op_buffer *master = op_inout(c, YK_F32, n, 1), *m = op_inout(c, YK_F32, n, 0.01);
    op_buffer *v = squares(c, n), *grad = op_input(c, grad_type, n, 1);
    op_buffer *param = op_output(c, t, n), *step = op_step_values(c, &values_of_step_3);
    a.param = with_param ? param->data : NULL;
    a.master = master->data;
    a.m = m->data;
    a.v = v->data;
    a.grad = grad->data;
    a.values = step->data;
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
        OP_RUN(c, yk_adamw,
               &((yk_adamw_args){.param = param->data,
                                 .master = master->data,
                                 .m = m->data,
                                 .v = v->data,
                                 .grad = grad->data,
                                 .values = step->data,
                                 .n = n,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.999f,
                                 .eps = 1e-8f,
                                 .weight_decay = 0.1f,
                                 .dtype = t,
                                 .grad_dtype = t}));
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
    OP_RUN(c, yk_adamw,
           &((yk_adamw_args){.param = param->data,
                             .master = master->data,
                             .m = m->data,
                             .v = v->data,
                             .grad = grad->data,
                             .values = step->data,
                             .n = n,
                             .beta1 = 0.9f,
                             .beta2 = 0.999f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .dtype = YK_BF16,
                             .grad_dtype = YK_BF16}));
    oracle_out want = op_out(c, n);
    op_expect(c, master, "master", want);
    op_expect(c, m, "m", want);
    op_expect(c, v, "v", want);
    op_expect(c, param, "param", want);
}

static void adamw_gives_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(adamw_family);
}

int main(void)
{
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        OP_TEST(adamw_agrees_with_the_oracle),
        OP_TEST(a_skipped_step_changes_nothing),
        OP_TEST(padding_stays_zero),
        cmocka_unit_test(adamw_gives_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
