/* models/hf_config.c - reading config.json; see hf.h.
 *
 * What a file leaves out has the default that transformers gives it, except the sizes, which must
 * be there. What it says and we do not offer is refused where it would change the model's values.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/hf.h"
#include "runtime/storage/file.h"
#include "runtime/storage/json.h"

/* ---- values of one object ----------------------------------------------------------------- */

/* An object of the file, and what messages call it. */
typedef struct object {
    const char *path;
    const json_t *values;
} object;

/* NULL where the key is missing or null. */
static const json_t *find(const object *o, const char *key)
{
    const json_t *value = json_object_get(o->values, key);
    return value && !json_is_null(value) ? value : NULL;
}

static yk_status missing(const object *o, const char *key)
{
    return yk_fail(YK_EFORMAT, o->path, "%s is missing; a model of this kind needs it", key);
}

static yk_status get_size(const object *o, const char *key, int64_t *size_out)
{
    const json_t *value = find(o, key);
    if (!value) return missing(o, key);
    if (!json_is_integer(value))
        return yk_fail(YK_EFORMAT, o->path, "%s is not a whole number", key);
    if (json_integer_value(value) < 1 || json_integer_value(value) > INT32_MAX)
        return yk_fail(YK_EFORMAT, o->path, "%s is %" JSON_INTEGER_FORMAT "; it must be 1 to %d",
                       key, json_integer_value(value), INT32_MAX);
    *size_out = json_integer_value(value);
    return YK_OK;
}

static yk_status get_size_or(const object *o, const char *key, int64_t otherwise, int64_t *size_out)
{
    if (find(o, key)) return get_size(o, key, size_out);
    *size_out = otherwise;
    return YK_OK;
}

static yk_status get_real(const object *o, const char *key, double *real_out)
{
    const json_t *value = find(o, key);
    if (!value) return missing(o, key);
    if (!json_is_number(value)) return yk_fail(YK_EFORMAT, o->path, "%s is not a number", key);
    *real_out = json_number_value(value);
    return YK_OK;
}

static yk_status get_real_or(const object *o, const char *key, double otherwise, double *real_out)
{
    if (find(o, key)) return get_real(o, key, real_out);
    *real_out = otherwise;
    return YK_OK;
}

static yk_status get_bool_or(const object *o, const char *key, bool otherwise, bool *bool_out)
{
    const json_t *value = find(o, key);
    if (value && !json_is_boolean(value))
        return yk_fail(YK_EFORMAT, o->path, "%s is neither true nor false", key);
    *bool_out = value ? json_is_true(value) : otherwise;
    return YK_OK;
}

static yk_status get_text_or(const object *o, const char *key, const char *otherwise,
                             const char **text_out)
{
    const json_t *value = find(o, key);
    if (value && !json_is_string(value))
        return yk_fail(YK_EFORMAT, o->path, "%s is not a text", key);
    *text_out = value ? json_string_value(value) : otherwise;
    return YK_OK;
}

/* ---- what is not offered ------------------------------------------------------------------ */

/* Refuse a switch that is not set as every model here has it. */
static yk_status need_bool(const object *o, const char *key, bool needed)
{
    bool is = needed;
    YK_TRY(get_bool_or(o, key, needed, &is));
    if (is == needed) return YK_OK;
    return yk_fail(YK_EFORMAT, o->path, "%s is %s; only %s is offered", key, is ? "true" : "false",
                   needed ? "true" : "false");
}

static yk_status need_text(const object *o, const char *key, const char *needed)
{
    const char *is = needed;
    YK_TRY(get_text_or(o, key, needed, &is));
    if (strcmp(is, needed) == 0) return YK_OK;
    return yk_fail(YK_EFORMAT, o->path, "%s is '%s'; only '%s' is offered", key, is, needed);
}

static yk_status need_real(const object *o, const char *key, double needed)
{
    double is = needed;
    YK_TRY(get_real_or(o, key, needed, &is));
    if (is == needed) return YK_OK;
    return yk_fail(YK_EFORMAT, o->path, "%s is %g; only %g is offered", key, is, needed);
}

static yk_status warn_of_dropout(const object *o, const char *key)
{
    double rate = 0.0;
    YK_TRY(get_real_or(o, key, 0.0, &rate));
    if (rate != 0.0)
        yk_warn(o->path, "%s is %g: there is no dropout, training does without", key, rate);
    return YK_OK;
}

/* ---- rotary positions --------------------------------------------------------------------- */

static yk_status read_llama3(const object *scaling, yk_model_shape *s)
{
    s->rope_scaling = YK_ROPE_LLAMA3;
    YK_TRY(get_real(scaling, "factor", &s->rope_factor));
    YK_TRY(get_real(scaling, "low_freq_factor", &s->rope_low_freq_factor));
    YK_TRY(get_real(scaling, "high_freq_factor", &s->rope_high_freq_factor));
    return get_size(scaling, "original_max_position_embeddings", &s->rope_original_seq_len);
}

/* `rope_type`, in older files `type`, says what the rest means. */
static yk_status read_scaling(const object *scaling, yk_model_shape *s)
{
    const char *type = NULL;
    YK_TRY(get_text_or(scaling, "type", "default", &type));
    YK_TRY(get_text_or(scaling, "rope_type", type, &type));
    YK_TRY(need_real(scaling, "partial_rotary_factor", 1.0));
    if (strcmp(type, "llama3") == 0) return read_llama3(scaling, s);
    if (strcmp(type, "linear") == 0) {
        s->rope_scaling = YK_ROPE_LINEAR;
        return get_real(scaling, "factor", &s->rope_factor);
    }
    if (strcmp(type, "default") != 0)
        return yk_fail(YK_EFORMAT, scaling->path,
                       "the RoPE scaling '%s' is not offered; default, linear and llama3 are",
                       type);
    if (find(scaling, "factor"))
        return yk_fail(YK_EFORMAT, scaling->path,
                       "the RoPE scaling has a factor and no rope_type; add the type");
    return YK_OK;
}

/* Since version 5 of transformers all is in rope_parameters; before, theta stands by itself and
 * rope_scaling may be missing. */
static yk_status read_rope(const object *o, yk_model_shape *s)
{
    YK_TRY(need_real(o, "partial_rotary_factor", 1.0));
    YK_TRY(get_real_or(o, "rope_theta", 1e4, &s->rope_theta));
    const char *key = find(o, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    object scaling = {o->path, find(o, key)};
    if (!scaling.values) return YK_OK;
    if (!json_is_object(scaling.values))
        return yk_fail(YK_EFORMAT, o->path, "%s is not an object", key);
    YK_TRY(get_real_or(&scaling, "rope_theta", s->rope_theta, &s->rope_theta));
    return read_scaling(&scaling, s);
}

/* ---- families ----------------------------------------------------------------------------- */

/* Heads of the size that is left when the file gives none. */
static yk_status divide_heads(const object *o, const char *width_key, const char *heads_key,
                              yk_model_shape *s)
{
    if (s->head_size != 0) return YK_OK;
    if (s->width % s->heads != 0)
        return yk_fail(YK_EFORMAT, o->path,
                       "%s %" PRId64 " does not divide into %s %" PRId64 " heads of one size",
                       width_key, s->width, heads_key, s->heads);
    s->head_size = s->width / s->heads;
    return YK_OK;
}

static yk_status read_gpt2(const object *o, yk_model_shape *s)
{
    YK_TRY(get_size(o, "n_layer", &s->layers));
    YK_TRY(get_size(o, "n_embd", &s->width));
    YK_TRY(get_size(o, "n_head", &s->heads));
    s->kv_heads = s->heads;
    YK_TRY(divide_heads(o, "n_embd", "n_head", s));
    YK_TRY(get_size_or(o, "n_inner", 4 * s->width, &s->ffn));
    YK_TRY(get_size(o, "n_positions", &s->max_seq_len));
    YK_TRY(get_real_or(o, "layer_norm_epsilon", 1e-5, &s->norm_eps));
    YK_TRY(get_bool_or(o, "tie_word_embeddings", true, &s->tied));
    YK_TRY(need_text(o, "activation_function", "gelu_new"));
    YK_TRY(need_bool(o, "scale_attn_weights", true));
    YK_TRY(need_bool(o, "scale_attn_by_inverse_layer_idx", false));
    YK_TRY(need_bool(o, "add_cross_attention", false));
    YK_TRY(warn_of_dropout(o, "attn_pdrop"));
    YK_TRY(warn_of_dropout(o, "embd_pdrop"));
    return warn_of_dropout(o, "resid_pdrop");
}

static yk_status read_rotary(const object *o, yk_model_shape *s)
{
    YK_TRY(get_size(o, "num_hidden_layers", &s->layers));
    YK_TRY(get_size(o, "hidden_size", &s->width));
    YK_TRY(get_size(o, "num_attention_heads", &s->heads));
    YK_TRY(get_size_or(o, "num_key_value_heads", s->heads, &s->kv_heads));
    YK_TRY(get_size_or(o, "head_dim", 0, &s->head_size));
    YK_TRY(divide_heads(o, "hidden_size", "num_attention_heads", s));
    YK_TRY(get_size(o, "intermediate_size", &s->ffn));
    YK_TRY(get_size(o, "max_position_embeddings", &s->max_seq_len));
    YK_TRY(get_real_or(o, "rms_norm_eps", 1e-6, &s->norm_eps));
    YK_TRY(get_bool_or(o, "tie_word_embeddings", false, &s->tied));
    YK_TRY(need_text(o, "hidden_act", "silu"));
    YK_TRY(read_rope(o, s));
    return warn_of_dropout(o, "attention_dropout");
}

static yk_status read_llama(const object *o, yk_model_shape *s)
{
    YK_TRY(read_rotary(o, s));
    YK_TRY(need_bool(o, "attention_bias", false));
    return need_bool(o, "mlp_bias", false);
}

/* Since version 4.53 of transformers each layer's kind of attention is listed. */
static yk_status need_full_attention(const object *o)
{
    const json_t *types = find(o, "layer_types"), *type;
    size_t i;
    json_array_foreach(types, i, type)
    {
        const char *text = json_string_value(type);
        if (text && strcmp(text, "full_attention") == 0) continue;
        return yk_fail(YK_EFORMAT, o->path,
                       "layer_types[%zu] is '%s'; only full_attention is "
                       "offered",
                       i, text ? text : "?");
    }
    return YK_OK;
}

static yk_status read_qwen2(const object *o, yk_model_shape *s)
{
    YK_TRY(read_rotary(o, s));
    YK_TRY(need_bool(o, "use_sliding_window", false));
    return need_full_attention(o);
}

/* ---- the file ----------------------------------------------------------------------------- */

typedef struct architecture {
    const char *name, *type; /* in `architectures`, in `model_type` */
    yk_family family;
    yk_status (*read)(const object *o, yk_model_shape *s);
} architecture;

static const architecture architectures[] = {
    {"GPT2LMHeadModel", "gpt2", YK_FAMILY_GPT2, read_gpt2},
    {"LlamaForCausalLM", "llama", YK_FAMILY_LLAMA, read_llama},
    {"Qwen2ForCausalLM", "qwen2", YK_FAMILY_QWEN2, read_qwen2},
};
#define N_ARCHITECTURES (sizeof architectures / sizeof architectures[0])

/* By the class that made the file; a file that names none says at least its type. */
static yk_status find_architecture(const object *o, const architecture **architecture_out)
{
    const char *name = json_string_value(json_array_get(find(o, "architectures"), 0)), *type = NULL;
    YK_TRY(get_text_or(o, "model_type", NULL, &type));
    if (!name && !type) return missing(o, "architectures");
    for (size_t i = 0; i < N_ARCHITECTURES; i++) {
        const architecture *a = &architectures[i];
        if (strcmp(name ? name : type, name ? a->name : a->type) != 0) continue;
        *architecture_out = a;
        return YK_OK;
    }
    return yk_fail(YK_EFORMAT, o->path,
                   "the architecture '%s' is not offered; GPT2LMHeadModel, LlamaForCausalLM and "
                   "Qwen2ForCausalLM are",
                   name ? name : type);
}

static yk_status read_shape(const object *o, yk_model_shape *shape_out)
{
    const architecture *a = NULL;
    yk_model_shape s = {0};
    YK_TRY(find_architecture(o, &a));
    if (find(o, "quantization_config"))
        return yk_fail(YK_EFORMAT, o->path,
                       "the weights are quantised; give the model in fp32, "
                       "bf16 or fp16");
    s.family = a->family;
    YK_TRY(get_size(o, "vocab_size", &s.vocab));
    YK_TRY(a->read(o, &s));
    YK_TRY(yk_model_shape_check(&s, o->path));
    *shape_out = s;
    return YK_OK;
}

yk_status yk_hf_config_read(const char *dir, yk_model_shape *shape_out)
{
    json_t *values;
    char *path = yk_path_join(dir, YK_HF_CONFIG_NAME);
    if (!path) return yk_fail(YK_ENOMEM, dir, "no memory for a path");
    yk_status status = yk_json_read(path, &values);
    if (status == YK_OK) {
        status = read_shape(&(object){path, values}, shape_out);
        json_decref(values);
    }
    free(path);
    return status;
}
