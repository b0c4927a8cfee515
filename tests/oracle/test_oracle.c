/* tests/oracle/test_oracle.c - the oracle against itself: its gradients against central differences
 * of its forward pass, through one tiny model that uses every operation; and its numbers.
 *
 * The model has every kind of part: learned and rotary positions, LayerNorm and RMSNorm,
 * grouped-query attention inside documents, GELU and SwiGLU, biases, a tied head, masked targets.
 * In fp64 a central difference with h = 1e-5 is right to about h^2 and 1e-16 / h, so the gradient of
 * every single weight must agree to 1e-8 of the largest of its tensor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/oracle/oracle.h"

/* ---- the model ---------------------------------------------------------------------------- */

enum { B = 2, T = 5, R = B * T, C = 8, H = 4, G = 2, D = 2, QKV = (H + 2 * G) * D, F = 6, V = 11 };

static const double factor = 0.37, norm_eps = 1e-5;
static const int32_t tokens[R] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 10};
static const int32_t positions[R] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
static const int32_t targets[R] = {1, 4, 1, -1, 9, 2, 6, 5, -1, 0};
static const int32_t doc_start[R] = {0, 0, 2, 2, 2, 0, 0, 0, 0, 4};

typedef struct weights {
    double wte[V * C], wpe[T * C];
    double ln1[C], ln1_bias[C], w_qkv[QKV * C], b_qkv[QKV], w_o[C * C], b_o[C];
    double rms2[C], w_up[F * C], b_up[F], w_down[C * F];
    double rms3[C], w_gate[2 * F * C], w_out[C * F];
    double ln4[C], ln4_bias[C];
} weights;

#define N_WEIGHTS ((int)(sizeof(weights) / sizeof(double)))

typedef struct activations {
    double x0[R * C], n1[R * C], mean1[R], rstd1[R], qkv[R * QKV], turned[R * QKV];
    double att[R * C], lse[B * H * T], x1[R * C], n2[R * C], rstd2[R], z[R * F], h[R * F],
        x2[R * C];
    double n3[R * C], rstd3[R], gate_up[R * 2 * F], swiglu[R * F], x3[R * C];
    double n4[R * C], mean4[R], rstd4[R], logits[R * V], losses[R], dlogits[R * V];
} activations;

static oracle_out to(double *value)
{
    return (oracle_out){.value = value};
}

static const oracle_attention attention = {B, T, H, G, D, 0.7, doc_start};
static const double rope_cos[T] = {1, 0.540302, -0.416147, -0.989992, -0.653644};
static const double rope_sin[T] = {0, 0.841471, 0.909297, 0.141120, -0.756802};

/* The sum of the losses times `factor`. */
static double forward(const weights *w, activations *a)
{
    oracle_embed_forward(NULL, to(a->x0), w->wte, w->wpe, tokens, positions, R, C);
    oracle_norm_forward(NULL, YK_NORM_LAYER, to(a->n1), to(a->mean1), to(a->rstd1), a->x0, w->ln1,
                        w->ln1_bias, R, C, norm_eps);
    oracle_linear_forward(NULL, to(a->qkv), to(NULL), a->n1, w->w_qkv, w->b_qkv, NULL, R, QKV, C,
                          false, YK_F32);
    oracle_rope(NULL, to(a->turned), a->qkv, rope_cos, rope_sin, positions, R, H, G, D, false);
    oracle_attention_forward(NULL, to(a->att), to(a->lse), a->turned, &attention);
    oracle_linear_forward(NULL, to(a->x1), to(NULL), a->att, w->w_o, w->b_o, a->x0, R, C, C, false,
                          YK_F32);
    oracle_norm_forward(NULL, YK_NORM_RMS, to(a->n2), to(NULL), to(a->rstd2), a->x1, w->rms2, NULL,
                        R, C, norm_eps);
    oracle_linear_forward(NULL, to(a->h), to(a->z), a->n2, w->w_up, w->b_up, NULL, R, F, C, true,
                          YK_F32);
    oracle_linear_forward(NULL, to(a->x2), to(NULL), a->h, w->w_down, NULL, a->x1, R, C, F, false,
                          YK_F32);
    oracle_norm_forward(NULL, YK_NORM_RMS, to(a->n3), to(NULL), to(a->rstd3), a->x2, w->rms3, NULL,
                        R, C, norm_eps);
    oracle_linear_forward(NULL, to(a->gate_up), to(NULL), a->n3, w->w_gate, NULL, NULL, R, 2 * F, C,
                          false, YK_F32);
    oracle_swiglu_forward(NULL, to(a->swiglu), a->gate_up, R, F);
    oracle_linear_forward(NULL, to(a->x3), to(NULL), a->swiglu, w->w_out, NULL, a->x2, R, C, F,
                          false, YK_F32);
    oracle_norm_forward(NULL, YK_NORM_LAYER, to(a->n4), to(a->mean4), to(a->rstd4), a->x3, w->ln4,
                        w->ln4_bias, R, C, norm_eps);
    oracle_linear_forward(NULL, to(a->logits), to(NULL), a->n4, w->wte, NULL, NULL, R, V, C, false,
                          YK_F32);
    oracle_cross_entropy(NULL, to(a->losses), to(a->dlogits), a->logits, targets, R, V, V, factor);
    double sum = 0;
    for (int r = 0; r < R; r++) sum += a->losses[r];
    return sum * factor;
}

/* dx += the norm's gradient of `dy`, dx being what reaches x past the norm. */
static void norm_gradient(yk_norm_kind kind, double *dx, double *dweight, double *dbias,
                          const double *dy, const double *x, const double *weight,
                          const double *mean, const double *rstd)
{
    double out[R * C];
    oracle_norm_backward(NULL, to(out), to(dweight), to(dbias),
                         &(oracle_norm_gradient_in){.dy = dy,
                                                    .add = dx,
                                                    .x = x,
                                                    .weight = weight,
                                                    .mean = mean,
                                                    .rstd = rstd,
                                                    .rows = R,
                                                    .cols = C,
                                                    .kind = kind});
    memcpy(dx, out, sizeof out);
}

static void backward(const weights *w, const activations *a, weights *g)
{
    double dx[R * C] = {0}, dn[R * C], wide[R * QKV], turned[R * QKV], dwte[V * C];
    oracle_linear_backward_input(NULL, to(dn), NULL, a->dlogits, w->wte, NULL, R, V, C);
    oracle_linear_backward_weight(NULL, to(dwte), to(NULL), NULL, NULL, a->n4, a->dlogits, R, V, C);
    norm_gradient(YK_NORM_LAYER, dx, g->ln4, g->ln4_bias, dn, a->x3, w->ln4, a->mean4, a->rstd4);

    oracle_linear_backward_input(NULL, to(wide), NULL, dx, w->w_out, NULL, R, C, F);
    oracle_linear_backward_weight(NULL, to(g->w_out), to(NULL), NULL, NULL, a->swiglu, dx, R, C, F);
    oracle_swiglu_backward(NULL, to(turned), wide, a->gate_up, R, F);
    oracle_linear_backward_input(NULL, to(dn), NULL, turned, w->w_gate, NULL, R, 2 * F, C);
    oracle_linear_backward_weight(NULL, to(g->w_gate), to(NULL), NULL, NULL, a->n3, turned, R,
                                  2 * F, C);
    norm_gradient(YK_NORM_RMS, dx, g->rms3, NULL, dn, a->x2, w->rms3, NULL, a->rstd3);

    oracle_linear_backward_input(NULL, to(wide), NULL, dx, w->w_down, a->z, R, C, F);
    oracle_linear_backward_weight(NULL, to(g->w_down), to(NULL), NULL, NULL, a->h, dx, R, C, F);
    oracle_linear_backward_input(NULL, to(dn), NULL, wide, w->w_up, NULL, R, F, C);
    oracle_linear_backward_weight(NULL, to(g->w_up), to(g->b_up), NULL, NULL, a->n2, wide, R, F, C);
    norm_gradient(YK_NORM_RMS, dx, g->rms2, NULL, dn, a->x1, w->rms2, NULL, a->rstd2);

    oracle_linear_backward_input(NULL, to(dn), NULL, dx, w->w_o, NULL, R, C, C);
    oracle_linear_backward_weight(NULL, to(g->w_o), to(g->b_o), NULL, NULL, a->att, dx, R, C, C);
    oracle_attention_backward(NULL, to(turned), dn, a->att, a->lse, a->turned, &attention);
    oracle_rope(NULL, to(wide), turned, rope_cos, rope_sin, positions, R, H, G, D, true);
    oracle_linear_backward_input(NULL, to(dn), NULL, wide, w->w_qkv, NULL, R, QKV, C);
    oracle_linear_backward_weight(NULL, to(g->w_qkv), to(g->b_qkv), NULL, NULL, a->n1, wide, R, QKV,
                                  C);
    norm_gradient(YK_NORM_LAYER, dx, g->ln1, g->ln1_bias, dn, a->x0, w->ln1, a->mean1, a->rstd1);

    oracle_embed_backward(NULL, to(g->wte), dwte, dx, tokens, R, C, V);
    oracle_embed_backward(NULL, to(g->wpe), NULL, dx, positions, R, C, T);
}

static void gradients_agree_with_central_differences(void **state)
{
    (void)state;
    static weights w, g;
    static activations a, scratch;
    double *weight = (double *)&w, *gradient = (double *)&g, largest = 0;
    for (int i = 0; i < N_WEIGHTS; i++) weight[i] = 0.8 * sin(1.7 * i + 0.3 * i * i);
    forward(&w, &a);
    backward(&w, &a, &g);
    for (int i = 0; i < N_WEIGHTS; i++) largest = fmax(largest, fabs(gradient[i]));
    assert_true(largest > 0.1);
    for (int i = 0; i < N_WEIGHTS; i++) {
        double kept = weight[i], h = 1e-5;
        weight[i] = kept + h;
        double above = forward(&w, &scratch);
        weight[i] = kept - h;
        double below = forward(&w, &scratch);
        weight[i] = kept;
        double difference = (above - below) / (2 * h);
        if (!(fabs(difference - gradient[i]) <= 1e-8 * largest))
            fail_msg("weight %d: gradient %.12g, difference %.12g", i, gradient[i], difference);
    }
}

/* ---- attention with a cache ---------------------------------------------------------------- */

/* The last positions seen through a cache of the first are those of the whole sequence. */
static void a_cache_changes_nothing(void **state)
{
    (void)state;
    enum { PAST = 3, NEW = T - PAST, KV = G * D };
    double qkv[R * QKV], y[R * C], lse[B * H * T], late[B * NEW * QKV], y_late[B * NEW * C];
    double k[R * KV], v[R * KV];
    for (int i = 0; i < R * QKV; i++) qkv[i] = sin(2.3 * i + 0.1 * i * i);
    oracle_attention whole = {B, T, H, G, D, 0.7, NULL}, rest = {B, NEW, H, G, D, 0.7, NULL};
    oracle_attention_forward(NULL, to(y), to(lse), qkv, &whole);
    for (int r = 0; r < R; r++) {
        memcpy(k + r * KV, qkv + r * QKV + H * D, sizeof(double) * KV);
        memcpy(v + r * KV, qkv + r * QKV + (H + G) * D, sizeof(double) * KV);
        if (r % T < PAST) continue;
        memcpy(late + (r / T * NEW + r % T - PAST) * QKV, qkv + r * QKV, sizeof(double) * QKV);
    }
    oracle_attention_cached(NULL, to(y_late), k, v, late, &rest, PAST, T);
    for (int i = 0; i < B * NEW * C; i++) {
        int b = i / (NEW * C), t = i / C % NEW + PAST;
        assert_true(fabs(y_late[i] - y[(b * T + t) * C + i % C]) < 1e-14);
    }
}

/* ---- numbers ------------------------------------------------------------------------------ */

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    assert_true(oracle_round(YK_BF16, 1 + 0x1p-8) == 1);             /* a tie: to even */
    assert_true(oracle_round(YK_BF16, 1 + 0x3p-8) == 1 + 0x4p-8);    /* a tie: to even */
    assert_true(oracle_round(YK_BF16, 1 + 0x1.01p-8) == 1 + 0x1p-7); /* above it */
    assert_true(oracle_round(YK_F16, 65519.99) == 65504);
    assert_true(isinf(oracle_round(YK_F16, 65520)));
    assert_true(oracle_round(YK_F16, 0x1p-25) == 0);
    assert_true(oracle_round(YK_F16, 0x1.001p-25) == 0x1p-24);
    assert_true(oracle_round(YK_F32, 16777217) == 16777216);
    assert_true(signbit(oracle_round(YK_F16, -0.0)));
    for (int i = 0; i < 10000; i++) {
        double x = ldexp(sin(i * 1.3), i % 250 - 125);
        assert_true(oracle_round(YK_F32, x) == (double)(float)x); /* the compiler's own */
    }
}

static void every_16_bit_pattern_decodes_and_encodes_to_itself(void **state)
{
    (void)state;
    for (int i = 0; i < 65536; i++)
        for (yk_dtype t = YK_BF16; t <= YK_F16; t++) {
            uint16_t bits = (uint16_t)i, again;
            double x = oracle_decode(t, &bits);
            if (isnan(x)) continue;
            oracle_encode(t, x, &again);
            assert_int_equal(again, bits);
            assert_true(oracle_round(t, x) == x);
        }
}

static void fp32_encodes_as_the_machine_does(void **state)
{
    (void)state;
    static const float some[] = {0, -0.0f, 1, -3.25f, 1e-40f, 3.4e38f, 0x1p-149f, INFINITY};
    for (int i = 0; i < 8; i++) {
        float got;
        oracle_encode(YK_F32, (double)some[i], &got);
        assert_memory_equal(&got, &some[i], 4);
        assert_true(oracle_decode(YK_F32, &some[i]) == (double)some[i]);
    }
}

/* Of the generator's authors: Random123 1.14, kat_vectors. */
static void philox_gives_its_authors_numbers(void **state)
{
    (void)state;
    static const uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u}, zeros[4] = {0};
    static const uint32_t of_zeros_10[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t of_ones_10[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    static const uint32_t of_zeros_7[4] = {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48};
    static const uint32_t of_ones_7[4] = {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662};
    uint32_t out[4];
    oracle_philox(10, zeros, zeros, out);
    assert_memory_equal(out, of_zeros_10, sizeof out);
    oracle_philox(10, ones, ones, out);
    assert_memory_equal(out, of_ones_10, sizeof out);
    oracle_philox(7, zeros, zeros, out);
    assert_memory_equal(out, of_zeros_7, sizeof out);
    oracle_philox(7, ones, ones, out);
    assert_memory_equal(out, of_ones_7, sizeof out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_authors_numbers),
        cmocka_unit_test(gradients_agree_with_central_differences),
        cmocka_unit_test(a_cache_changes_nothing),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(every_16_bit_pattern_decodes_and_encodes_to_itself),
        cmocka_unit_test(fp32_encodes_as_the_machine_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
