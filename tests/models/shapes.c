/* tests/models/shapes.c - see shapes.h. */
#include "tests/models/shapes.h"

#include <stdio.h>
#include <stdlib.h>

static void must(yk_status status)
{
    if (status != YK_OK) abort();
}

yk_model_shape shape_of_preset(const char *preset)
{
    yk_config config;
    yk_model_shape shape;
    char assignment[64];
    snprintf(assignment, sizeof assignment, "model.preset=%s", preset);
    must(yk_config_init(&config));
    must(yk_config_set(&config, assignment));
    must(yk_model_shape_from_config(&config, &shape));
    yk_config_fini(&config);
    return shape;
}

yk_model_shape shape_tiny(yk_family family, bool tied)
{
    yk_model_shape s = {
        .family = family,
        .layers = 2,
        .width = 12,
        .heads = 3,
        .kv_heads = 3,
        .head_size = 4,
        .ffn = 20,
        .vocab = 29,
        .max_seq_len = 16,
        .norm_eps = 1e-5,
        .tied = tied,
    };
    if (family != YK_FAMILY_GPT2) {
        s.heads = 4;
        s.kv_heads = 2;
        s.head_size = 6;
        s.ffn = 18;
        s.rope_theta = 100;
    }
    must(yk_model_shape_check(&s, "tiny"));
    return s;
}

yk_model_shape shape_tiny_at(int i)
{
    return shape_tiny((yk_family)(i / 2), i % 2 != 0);
}

const char *shape_tiny_name(int i)
{
    static const char *const names[N_TINY_SHAPES] = {
        "gpt2 untied", "gpt2 tied", "llama untied", "llama tied", "qwen2 untied", "qwen2 tied",
    };
    return names[i];
}
