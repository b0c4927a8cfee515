/* models/rope.c - the table of rotary angles, with the scalings that long-context models use. */
#include <math.h>

#include "models/model.h"

#define TWO_PI 6.283185307179586

/* Llama 3.1's scaling of one angular frequency: wavelengths over original / low_freq_factor are
 * stretched by `factor`, those under original / high_freq_factor are left, and in between the two
 * are blended linearly in original / wavelength. */
static double scale_llama3(const yk_model_shape *s, double frequency)
{
    double turns = (double)s->rope_original_seq_len * frequency / TWO_PI;
    if (turns < s->rope_low_freq_factor) return frequency / s->rope_factor;
    if (turns > s->rope_high_freq_factor) return frequency;
    double blend =
        (turns - s->rope_low_freq_factor) / (s->rope_high_freq_factor - s->rope_low_freq_factor);
    return (1 - blend) * frequency / s->rope_factor + blend * frequency;
}

static double scaled(const yk_model_shape *s, double frequency)
{
    switch (s->rope_scaling) {
    case YK_ROPE_LINEAR:
        return frequency / s->rope_factor;
    case YK_ROPE_LLAMA3:
        return scale_llama3(s, frequency);
    case YK_ROPE_PLAIN:
        break;
    }
    return frequency;
}

void yk_rope_table(const yk_model_shape *s, int64_t n_positions, float *cos_out, float *sin_out)
{
    int64_t half = s->head_size / 2;
    for (int64_t i = 0; i < half; i++) {
        double frequency = scaled(s, pow(s->rope_theta, -2.0 * (double)i / (double)s->head_size));
        for (int64_t t = 0; t < n_positions; t++) {
            cos_out[t * half + i] = (float)cos((double)t * frequency);
            sin_out[t * half + i] = (float)sin((double)t * frequency);
        }
    }
}
