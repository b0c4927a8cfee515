/* models/hf_write.c - the text of config.json; see hf.h.
 *
 * Every key that bears on the model's values is written, so that no reader's default decides; token
 * ids with a meaning are null, since a model does not know its text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/hf.h"
#include "runtime/storage/json.h"

static const char *const dtype_names[YK_N_FLOAT_DTYPES] = {"float32", "bfloat16", "float16"};

static json_t *gpt2_values(const yk_model_shape *s)
{
    json_t *inner = s->ffn == 4 * s->width ? json_null() : json_integer(s->ffn);
    return json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:o, s:I, s:f, s:s, s:b, s:b, s:b, s:f, s:f, s:f}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2",             //
        "n_layer", s->layers, "n_embd", s->width, "n_head", s->heads,         //
        "n_inner", inner, "n_positions", s->max_seq_len,                      //
        "layer_norm_epsilon", s->norm_eps, "activation_function", "gelu_new", //
        "scale_attn_weights", true, "scale_attn_by_inverse_layer_idx", false, //
        "reorder_and_upcast_attn", false,                                     //
        "attn_pdrop", 0.0, "embd_pdrop", 0.0, "resid_pdrop", 0.0);
}

static json_t *rope_scaling(const yk_model_shape *s)
{
    switch (s->rope_scaling) {
    case YK_ROPE_LINEAR:
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", s->rope_factor);
    case YK_ROPE_LLAMA3:
        return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3",                   //
                         "factor", s->rope_factor, "low_freq_factor", s->rope_low_freq_factor, //
                         "high_freq_factor", s->rope_high_freq_factor,                         //
                         "original_max_position_embeddings", s->rope_original_seq_len);
    case YK_ROPE_PLAIN:
        break;
    }
    return json_null();
}

static json_t *rotary_values(const yk_model_shape *s)
{
    bool qwen2 = s->family == YK_FAMILY_QWEN2;
    json_t *values =
        json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:s, s:f}", //
                  "architectures", qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM",           //
                  "model_type", qwen2 ? "qwen2" : "llama",                                    //
                  "num_hidden_layers", s->layers, "hidden_size", s->width,                    //
                  "num_attention_heads", s->heads, "num_key_value_heads", s->kv_heads,        //
                  "head_dim", s->head_size, "intermediate_size", s->ffn,                      //
                  "max_position_embeddings", s->max_seq_len, "rms_norm_eps", s->norm_eps,     //
                  "rope_theta", s->rope_theta, "rope_scaling", rope_scaling(s),               //
                  "hidden_act", "silu", "attention_dropout", 0.0);
    json_t *switches = qwen2 ? json_pack("{s:b}", "use_sliding_window", false)
                             : json_pack("{s:b, s:b}", "attention_bias", false, "mlp_bias", false);
    if (json_object_update(values, switches) != 0) json_decref(values), values = NULL;
    json_decref(switches);
    return values;
}

/* Digits that bring every real of the file back as it was: 15 where that is enough, since with 17
 * 1e-5 would read 1.0000000000000001e-05. */
static size_t digits_of(const yk_model_shape *s)
{
    const double reals[] = {s->norm_eps, s->rope_theta, s->rope_factor, s->rope_low_freq_factor,
                            s->rope_high_freq_factor};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        char text[40];
        snprintf(text, sizeof text, "%.15g", reals[i]);
        if (strtod(text, NULL) != reals[i]) return 17;
    }
    return 15;
}

yk_status yk_hf_config_text(const yk_model_shape *s, yk_dtype dtype, char **text_out)
{
    json_t *values = s->family == YK_FAMILY_GPT2 ? gpt2_values(s) : rotary_values(s);
    json_t *rest = json_pack("{s:I, s:b, s:s, s:n, s:n, s:b}", "vocab_size", s->vocab,          //
                             "tie_word_embeddings", s->tied, "torch_dtype", dtype_names[dtype], //
                             "bos_token_id", "eos_token_id", "use_cache", true);
    char *text = NULL;
    if (json_object_update(values, rest) == 0)
        text =
            json_dumps(values, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(digits_of(s)));
    json_decref(values);
    json_decref(rest);
    size_t n = text ? strlen(text) : 0;
    char *line = text ? realloc(text, n + 2) : NULL;
    if (!line) {
        free(text);
        return yk_fail(YK_ENOMEM, "model", "no memory to write config.json");
    }
    memcpy(line + n, "\n", 2);
    *text_out = line;
    return YK_OK;
}
