/* tests/models/test_rope_table.c - the rotary angles, against the formulas in long double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "models/model.h"
#include "tests/models/shapes.h"

#define PI 3.14159265358979323846264338327950288L

/* Wavelengths decide, as the paper and transformers say it; rope.c goes by turns. */
static long double llama3_frequency(const yk_model_shape *s, long double frequency)
{
    long double wavelength = 2 * PI / frequency;
    long double longest = (long double)s->rope_original_seq_len / s->rope_low_freq_factor;
    long double shortest = (long double)s->rope_original_seq_len / s->rope_high_freq_factor;
    if (wavelength > longest) return frequency / s->rope_factor;
    if (wavelength < shortest) return frequency;
    long double smooth =
        ((long double)s->rope_original_seq_len / wavelength - s->rope_low_freq_factor) /
        ((long double)s->rope_high_freq_factor - s->rope_low_freq_factor);
    return (1 - smooth) * frequency / s->rope_factor + smooth * frequency;
}

static long double frequency_of(const yk_model_shape *s, int64_t i)
{
    long double frequency = 1 / powl(s->rope_theta, 2 * (long double)i / (long double)s->head_size);
    if (s->rope_scaling == YK_ROPE_LINEAR) return frequency / s->rope_factor;
    return s->rope_scaling == YK_ROPE_LLAMA3 ? llama3_frequency(s, frequency) : frequency;
}

/* Each entry within the rounding of fp32 and what a double's angle may be off by. */
static void expect_table(const yk_model_shape *s, int64_t n)
{
    int64_t half = s->head_size / 2;
    float *cosines = malloc((size_t)(n * half) * 4), *sines = malloc((size_t)(n * half) * 4);
    yk_rope_table(s, n, cosines, sines);
    for (int64_t t = 0; t < n; t++) {
        for (int64_t i = 0; i < half; i++) {
            long double angle = (long double)t * frequency_of(s, i);
            double bound = 0x1p-25 + (double)angle * 0x1p-50;
            assert_true(fabsl(cosines[t * half + i] - cosl(angle)) <= bound);
            assert_true(fabsl(sines[t * half + i] - sinl(angle)) <= bound);
        }
    }
    free(cosines);
    free(sines);
}

static void plain_angles_are_right_up_to_the_last_position(void **state)
{
    (void)state;
    yk_model_shape qwen = shape_of_preset("qwen2.5-0.5b"), llama = shape_of_preset("llama2-7b");
    expect_table(&qwen, qwen.max_seq_len);
    expect_table(&llama, llama.max_seq_len);
}

static void linear_scaling_divides_every_angle(void **state)
{
    (void)state;
    yk_model_shape s = shape_of_preset("tiny-llama");
    s.rope_scaling = YK_ROPE_LINEAR;
    s.rope_factor = 3;
    expect_table(&s, 500);
}

static void llama3_scaling_keeps_blends_and_stretches(void **state)
{
    (void)state;
    yk_model_shape s = shape_of_preset("llama3-8b");
    s.rope_scaling = YK_ROPE_LLAMA3;
    s.rope_factor = 8;
    s.rope_low_freq_factor = 1;
    s.rope_high_freq_factor = 4;
    s.rope_original_seq_len = 8192;
    int n_kept = 0, n_stretched = 0;
    for (int64_t i = 0; i < s.head_size / 2; i++) {
        yk_model_shape plain = s;
        plain.rope_scaling = YK_ROPE_PLAIN;
        long double ratio = frequency_of(&s, i) / frequency_of(&plain, i);
        n_kept += ratio == 1;
        n_stretched += ratio == 1.0L / 8;
    }
    assert_true(n_kept > 0 && n_stretched > 0 && n_kept + n_stretched < s.head_size / 2);
    expect_table(&s, 20000);
}

static void position_zero_turns_nothing(void **state)
{
    (void)state;
    yk_model_shape s = shape_of_preset("tiny-qwen2");
    float cosines[8], sines[8];
    yk_rope_table(&s, 1, cosines, sines);
    for (int i = 0; i < 8; i++) assert_true(cosines[i] == 1 && sines[i] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_angles_are_right_up_to_the_last_position),
        cmocka_unit_test(linear_scaling_divides_every_angle),
        cmocka_unit_test(llama3_scaling_keeps_blends_and_stretches),
        cmocka_unit_test(position_zero_turns_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
