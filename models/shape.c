/* models/shape.c - the sizes of a model: presets, the configuration's keys, and what must hold. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "runtime/base/arith.h"
#include "runtime/base/words.h"

/* Logit columns and embedding rows come in multiples of this: matrix units like them even. */
#define VOCAB_UNIT 64

typedef struct preset {
    const char *name;
    yk_model_shape shape;
} preset;

/* Layers L, width C, heads H, kv heads G, feed-forward F, vocabulary V, longest sequence T. */
#define GPT2(l, c, h, v, t)                                                                        \
    {                                                                                              \
        .family = YK_FAMILY_GPT2, .layers = l, .width = c, .heads = h, .kv_heads = h,              \
        .head_size = (c) / (h), .ffn = 4 * (c), .vocab = v, .max_seq_len = t, .norm_eps = 1e-5,    \
        .tied = true                                                                               \
    }
#define GATED(kind, l, c, h, g, f, v, t, eps, theta, tie)                                          \
    {                                                                                              \
        .family = YK_FAMILY_##kind, .layers = l, .width = c, .heads = h, .kv_heads = g,            \
        .head_size = (c) / (h), .ffn = f, .vocab = v, .max_seq_len = t, .norm_eps = eps,           \
        .rope_theta = theta, .tied = tie                                                           \
    }
#define LLAMA(l, c, h, g, f, v, t, theta)    GATED(LLAMA, l, c, h, g, f, v, t, 1e-5, theta, false)
#define QWEN2(l, c, h, g, f, v, t, eps, tie) GATED(QWEN2, l, c, h, g, f, v, t, eps, 1e6, tie)

/* From the models' published config.json files; the tiny ones are for tests. */
static const preset presets[] = {
    {"gpt2-124m", GPT2(12, 768, 12, 50257, 1024)},
    {"gpt2-355m", GPT2(24, 1024, 16, 50257, 1024)},
    {"gpt2-774m", GPT2(36, 1280, 20, 50257, 1024)},
    {"gpt2-1.5b", GPT2(48, 1600, 25, 50257, 1024)},
    {"llama2-7b", LLAMA(32, 4096, 32, 32, 11008, 32000, 4096, 1e4)},
    {"llama3-8b", LLAMA(32, 4096, 32, 8, 14336, 128256, 8192, 5e5)},
    {"qwen2.5-0.5b", QWEN2(24, 896, 14, 2, 4864, 151936, 32768, 1e-6, true)},
    {"qwen2.5-1.5b", QWEN2(28, 1536, 12, 2, 8960, 151936, 131072, 1e-6, true)},
    {"qwen2.5-3b", QWEN2(36, 2048, 16, 2, 11008, 151936, 32768, 1e-6, true)},
    {"qwen2.5-7b", QWEN2(28, 3584, 28, 4, 18944, 152064, 131072, 1e-6, false)},
    {"qwen2.5-14b", QWEN2(48, 5120, 40, 8, 13824, 152064, 131072, 1e-5, false)},
    {"qwen2.5-32b", QWEN2(64, 5120, 40, 8, 27648, 152064, 131072, 1e-5, false)},
    {"tiny-gpt2", GPT2(2, 64, 2, 256, 128)},
    {"tiny-llama", LLAMA(2, 64, 4, 2, 192, 256, 128, 1e4)},
    {"tiny-qwen2", QWEN2(2, 64, 4, 2, 192, 256, 128, 1e-6, true)},
};
#define N_PRESETS (sizeof presets / sizeof presets[0])

static const char *const family_names[] = {"gpt2", "llama", "qwen2"};

static yk_status find_preset(const char *name, yk_model_shape *shape_out)
{
    char known[512] = "";
    const char *names[N_PRESETS];
    for (size_t i = 0; i < N_PRESETS; i++) {
        names[i] = presets[i].name;
        if (strcmp(presets[i].name, name) == 0) {
            *shape_out = presets[i].shape;
            return YK_OK;
        }
        strcat(strcat(known, i ? ", " : ""), presets[i].name);
    }
    int nearest = yk_word_guess(name, names, N_PRESETS);
    return yk_fail(YK_EINVAL, "model.preset", "there is no '%s'%s%s; choose among %s", name,
                   nearest < 0 ? "" : ", the nearest is ", nearest < 0 ? "" : names[nearest],
                   known);
}

bool yk_model_is_preset(const char *name)
{
    for (size_t i = 0; i < N_PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0) return true;
    return false;
}

static yk_status set_family(const char *name, yk_model_shape *shape)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(family_names[i], name) != 0) continue;
        shape->family = (yk_family)i;
        return YK_OK;
    }
    return yk_fail(YK_EINVAL, "model.family", "there is no '%s'; choose among gpt2, llama, qwen2",
                   name);
}

/* The family that is given; beside a preset, whose shape is there, it can only be the preset's. */
static yk_status take_family(const yk_config *config, yk_model_shape *shape)
{
    yk_family of_preset = shape->family;
    if (!config->model.family[0]) return YK_OK;
    YK_TRY(set_family(config->model.family, shape));
    if (!config->model.preset[0] || shape->family == of_preset) return YK_OK;
    return yk_fail(YK_EINVAL, "model.preset",
                   "%s is of the family %s, and model.family is %s; leave one of them out, and the "
                   "model's other keys where the preset's own sizes are wanted",
                   config->model.preset, family_names[of_preset], config->model.family);
}

/* What a family has where neither a preset nor a key says otherwise. */
static void set_family_defaults(yk_model_shape *s)
{
    if (s->kv_heads == 0) s->kv_heads = s->heads;
    if (s->head_size == 0 && s->heads > 0 && s->width % s->heads == 0)
        s->head_size = s->width / s->heads;
    if (s->norm_eps == 0) s->norm_eps = s->family == YK_FAMILY_QWEN2 ? 1e-6 : 1e-5;
    if (s->rope_theta == 0 && s->family != YK_FAMILY_GPT2)
        s->rope_theta = s->family == YK_FAMILY_QWEN2 ? 1e6 : 1e4;
    if (s->ffn == 0 && s->width > 0) /* 4 C, and for the gated form two thirds of it */
        s->ffn = s->family == YK_FAMILY_GPT2 ? 4 * s->width : yk_round_up(s->width * 8 / 3, 64);
}

static void override(int64_t *field, int64_t key)
{
    if (key != 0) *field = key;
}

static void override_keys(const yk_config *config, yk_model_shape *s)
{
    override(&s->layers, config->model.layers);
    override(&s->width, config->model.width);
    override(&s->heads, config->model.heads);
    override(&s->kv_heads, config->model.kv_heads);
    override(&s->head_size, config->model.head_size);
    override(&s->ffn, config->model.ffn);
    override(&s->vocab, config->model.vocab);
    override(&s->max_seq_len, config->model.max_seq_len);
    if (config->model.norm_eps != 0) s->norm_eps = config->model.norm_eps;
    if (config->model.rope_theta != 0) s->rope_theta = config->model.rope_theta;
    if (config->model.tied != YK_AUTO) s->tied = config->model.tied != 0;
}

yk_status yk_model_shape_from_config(const yk_config *config, yk_model_shape *shape_out)
{
    yk_model_shape s = {.tied = true};
    if (config->model.preset[0]) YK_TRY(find_preset(config->model.preset, &s));
    YK_TRY(take_family(config, &s));

    /* What a preset has that follows from these would no longer fit. */
    if (config->model.width != 0 || config->model.heads != 0) s.head_size = s.kv_heads = 0;
    if (config->model.width != 0) s.ffn = 0;
    override_keys(config, &s);
    if (s.max_seq_len == 0) s.max_seq_len = config->train.seq_len;
    set_family_defaults(&s);

    YK_TRY(yk_model_shape_check(&s, "model"));
    *shape_out = s;
    return YK_OK;
}

/* What the keys that are given make of a shape. */
static yk_status apply_keys(const yk_config *config, yk_model_shape *shape)
{
    if (config->model.preset[0]) return yk_model_shape_from_config(config, shape);
    if (config->model.family[0]) YK_TRY(set_family(config->model.family, shape));
    override_keys(config, shape);
    return YK_OK;
}

#define N_SIZES 11

static const char *const size_names[N_SIZES] = {"layers",    "width",      "heads", "kv_heads",
                                                "head_size", "ffn",        "vocab", "max_seq_len",
                                                "norm_eps",  "rope_theta", "tied"};

/* Those that the configuration has keys for, in the names' order. */
static void list_sizes(const yk_model_shape *s, double sizes_out[N_SIZES])
{
    const double sizes[N_SIZES] = {
        (double)s->layers,    (double)s->width, (double)s->heads, (double)s->kv_heads,
        (double)s->head_size, (double)s->ffn,   (double)s->vocab, (double)s->max_seq_len,
        s->norm_eps,          s->rope_theta,    s->tied};
    memcpy(sizes_out, sizes, sizeof sizes);
}

bool yk_model_shape_tell_preset(const yk_model_shape *shape, const yk_config *config,
                                char *text_out, size_t room)
{
    yk_model_shape of_preset;
    double has[N_SIZES], given[N_SIZES];
    bool differs = false;
    if (!config->model.preset[0] || find_preset(config->model.preset, &of_preset) != YK_OK)
        return false;
    list_sizes(&of_preset, given);
    list_sizes(shape, has);
    size_t used = (size_t)snprintf(text_out, room, "%s with", config->model.preset);
    for (int i = 0; i < N_SIZES; i++) {
        if (has[i] == given[i] || used >= room) continue;
        const char *before = differs ? ", " : " ";
        used += (size_t)snprintf(text_out + used, room - used, "%s%s %.10g", before, size_names[i],
                                 has[i]);
        differs = true;
    }
    return differs;
}

yk_status yk_model_shape_agrees(const yk_model_shape *shape, const yk_config *config)
{
    yk_model_shape want = *shape;
    YK_TRY(apply_keys(config, &want));
    want.max_seq_len = shape->max_seq_len; /* of a preset, more than a run may have had */
    override(&want.max_seq_len, config->model.max_seq_len);
    double has[N_SIZES], given[N_SIZES];
    list_sizes(shape, has);
    list_sizes(&want, given);
    if (shape->family != want.family)
        return yk_fail(YK_EINVAL, "model.init",
                       "the directory has a model of the family %s, and the configuration asks for "
                       "%s; leave the model's other keys out, or take another directory",
                       family_names[shape->family], family_names[want.family]);
    for (int i = 0; i < N_SIZES; i++)
        if (has[i] != given[i])
            return yk_fail(YK_EINVAL, "model.init",
                           "the directory has a model whose %s is %.10g, and the configuration "
                           "asks for %.10g; leave the model's other keys out, or take another "
                           "directory",
                           size_names[i], has[i], given[i]);
    return YK_OK;
}

static yk_status check_size(const char *source, const char *what, int64_t value, int64_t max)
{
    if (value >= 1 && value <= max) return YK_OK;
    bool by_keys = strcmp(source, "model") == 0;
    if (value == 0 && by_keys)
        return yk_fail(YK_EINVAL, source, "%s is missing; give model.%s, or a model.preset", what,
                       what);
    if (value == 0) return yk_fail(YK_EINVAL, source, "%s is missing; give it", what);
    return yk_fail(YK_EINVAL, source, "%s is %" PRId64 "; it must be 1 to %" PRId64, what, value,
                   max);
}

static yk_status check_llama3(const yk_model_shape *s, const char *source)
{
    if (s->rope_scaling != YK_ROPE_LLAMA3) return YK_OK;
    double low = s->rope_low_freq_factor, high = s->rope_high_freq_factor;
    if (!(low > 0 && high > low))
        return yk_fail(YK_EINVAL, source,
                       "the RoPE scaling's low_freq_factor is %g and its high_freq_factor %g; the "
                       "first must be over 0 and under the second",
                       low, high);
    return check_size(source, "the RoPE scaling's original length", s->rope_original_seq_len,
                      1 << 24);
}

/* What the family's files cannot say is not offered. */
static yk_status check_gpt2(const yk_model_shape *s, const char *source)
{
    if (s->family != YK_FAMILY_GPT2) return YK_OK;
    if (s->kv_heads != s->heads)
        return yk_fail(YK_EINVAL, source,
                       "%" PRId64 " key-value heads for %" PRId64
                       " heads: GPT-2 has as many; leave kv_heads out, or choose another family",
                       s->kv_heads, s->heads);
    if (s->heads * s->head_size != s->width)
        return yk_fail(YK_EINVAL, source,
                       "%" PRId64 " heads of %" PRId64 " are not the width %" PRId64
                       ": GPT-2 needs that; leave head_size out, or choose another family",
                       s->heads, s->head_size, s->width);
    return YK_OK;
}

yk_status yk_model_shape_check(yk_model_shape *s, const char *source)
{
    YK_TRY(check_size(source, "layers", s->layers, 4096));
    YK_TRY(check_size(source, "width", s->width, 1 << 20));
    YK_TRY(check_size(source, "heads", s->heads, 1 << 16));
    YK_TRY(check_size(source, "kv_heads", s->kv_heads, 1 << 16));
    if (s->head_size == 0)
        return yk_fail(
            YK_EINVAL, source,
            "a width of %" PRId64 " does not divide into %" PRId64 " heads; change one, or give %s",
            s->width, s->heads, strcmp(source, "model") == 0 ? "model.head_size" : "head_dim");
    YK_TRY(check_size(source, "head_size", s->head_size, 1024));
    YK_TRY(check_size(source, "ffn", s->ffn, 1 << 22));
    YK_TRY(check_size(source, "vocab", s->vocab, 1 << 24));
    YK_TRY(check_size(source, "max_seq_len", s->max_seq_len, 1 << 24));
    if (s->heads % s->kv_heads != 0)
        return yk_fail(YK_EINVAL, source,
                       "%" PRId64 " heads cannot share %" PRId64
                       " key-value heads evenly; kv_heads must divide heads",
                       s->heads, s->kv_heads);
    bool rotary = s->family != YK_FAMILY_GPT2;
    if (rotary && s->head_size % 2 != 0)
        return yk_fail(YK_EINVAL, source, "head_size is %" PRId64 "; rotary positions need it even",
                       s->head_size);
    if (!(s->norm_eps > 0 && s->norm_eps < 1))
        return yk_fail(YK_EINVAL, source, "norm_eps is %g; it must lie between 0 and 1",
                       s->norm_eps);
    if (rotary && !(s->rope_theta > 1 && s->rope_theta < 1e12))
        return yk_fail(YK_EINVAL, source, "rope_theta is %g; it must lie between 1 and 1e12",
                       s->rope_theta);
    if (s->rope_scaling != YK_ROPE_PLAIN && !(s->rope_factor >= 1 && s->rope_factor < 1e6))
        return yk_fail(YK_EINVAL, source, "the RoPE scaling factor is %g; it must be 1 or more",
                       s->rope_factor);
    YK_TRY(check_llama3(s, source));
    YK_TRY(check_gpt2(s, source));
    s->vocab_rows = yk_round_up(s->vocab, VOCAB_UNIT);
    return YK_OK;
}

int64_t yk_model_shape_count(const yk_model_shape *s)
{
    int64_t c = s->width, hd = s->heads * s->head_size, gd = s->kv_heads * s->head_size;
    bool gpt2 = s->family == YK_FAMILY_GPT2;
    int64_t norm = gpt2 ? 2 * c : c;
    int64_t products = c * (hd + 2 * gd) + hd * c + (gpt2 ? 2 : 3) * c * s->ffn;
    int64_t biases = 0;
    if (gpt2) biases = hd + 2 * gd + c + s->ffn + c;
    if (s->family == YK_FAMILY_QWEN2) biases = hd + 2 * gd;
    return s->vocab * c * (s->tied ? 1 : 2) + (gpt2 ? s->max_seq_len * c : 0) +
           s->layers * (2 * norm + products + biases) + norm;
}
