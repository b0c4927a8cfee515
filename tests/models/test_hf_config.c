/* tests/models/test_hf_config.c - config.json of Hugging Face, read and written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/hf.h"
#include "runtime/storage/json.h"
#include "tests/models/shapes.h"
#include "tests/runtime/scratch.h"

/* As published with the models, but for keys that concern no model's shape. */
static const char gpt2_text[] =
    "{'activation_function': 'gelu_new', 'architectures': ['GPT2LMHeadModel'], 'attn_pdrop': 0.1,"
    " 'bos_token_id': 50256, 'embd_pdrop': 0.1, 'initializer_range': 0.02,"
    " 'layer_norm_epsilon': 1e-05, 'model_type': 'gpt2', 'n_ctx': 1024, 'n_embd': 768,"
    " 'n_head': 12, 'n_layer': 12, 'n_positions': 1024, 'resid_pdrop': 0.1,"
    " 'vocab_size': 50257}";
static const char llama_text[] =
    "{'architectures': ['LlamaForCausalLM'], 'attention_bias': false, 'attention_dropout': 0.0,"
    " 'hidden_act': 'silu', 'hidden_size': 4096, 'intermediate_size': 14336,"
    " 'max_position_embeddings': 131072, 'mlp_bias': false, 'model_type': 'llama',"
    " 'num_attention_heads': 32, 'num_hidden_layers': 32, 'num_key_value_heads': 8,"
    " 'rms_norm_eps': 1e-05, 'rope_scaling': {'factor': 8.0, 'high_freq_factor': 4.0,"
    " 'low_freq_factor': 1.0, 'original_max_position_embeddings': 8192, 'rope_type': 'llama3'},"
    " 'rope_theta': 500000.0, 'tie_word_embeddings': false, 'vocab_size': 128256}";
static const char qwen2_text[] =
    "{'architectures': ['Qwen2ForCausalLM'], 'hidden_act': 'silu', 'hidden_size': 896,"
    " 'intermediate_size': 4864, 'max_position_embeddings': 32768, 'max_window_layers': 24,"
    " 'model_type': 'qwen2', 'num_attention_heads': 14, 'num_hidden_layers': 24,"
    " 'num_key_value_heads': 2, 'rms_norm_eps': 1e-06, 'rope_theta': 1000000.0,"
    " 'sliding_window': 32768, 'tie_word_embeddings': true, 'use_sliding_window': false,"
    " 'vocab_size': 151936}";

/* JSON that is written with single quotes. The caller owns it. */
static json_t *parse(const char *text)
{
    char *copy = strdup(text);
    json_error_t error;
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    json_t *value = json_loads(copy, JSON_DECODE_ANY, &error);
    if (!value) fail_msg("%s: %s", copy, error.text);
    free(copy);
    return value;
}

/* `text` with `key` set to `value`, or without the key when value is NULL, as a config.json in `dir`.
 * A key may be "a.b": within an object. */
static void write_changed(const char *dir, const char *text, const char *key, const char *value)
{
    char path[SCRATCH_PATH], first[64];
    json_t *top = parse(text), *object = top;
    const char *dot = key ? strchr(key, '.') : NULL;
    if (dot) {
        memcpy(first, key, (size_t)(dot - key));
        first[dot - key] = 0;
        object = json_object_get(top, first);
        key = dot + 1;
    }
    if (key && value) json_object_set_new(object, key, parse(value));
    if (key && !value) assert_int_equal(json_object_del(object, key), 0);
    scratch_path(path, dir, YK_HF_CONFIG_NAME);
    assert_int_equal(yk_json_replace(path, top, 0), YK_OK);
    json_decref(top);
}

/* Read the changed file; what is said meanwhile goes to *said_out, which the caller owns. */
static yk_status read_changed(const char *text, const char *key, const char *value,
                              yk_model_shape *shape_out, char **said_out)
{
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    write_changed(dir, text, key, value);
    int saved = scratch_stderr_begin();
    yk_status status = yk_hf_config_read(dir, shape_out);
    *said_out = scratch_stderr_end(saved);
    scratch_remove(dir);
    return status;
}

static yk_model_shape expect_read(const char *text, const char *key, const char *value)
{
    yk_model_shape shape;
    char *said;
    yk_status status = read_changed(text, key, value, &shape, &said);
    if (status != YK_OK) fail_msg("%s: %s: %s", key ? key : "-", value ? value : "-", said);
    free(said);
    return shape;
}

static void expect_refused(const char *text, const char *key, const char *value, const char *part)
{
    yk_model_shape shape = {.layers = 77};
    char *said;
    yk_status status = read_changed(text, key, value, &shape, &said);
    if (status == YK_OK) fail_msg("%s: %s was taken", key ? key : "-", value ? value : "-");
    assert_int_equal(yk_status_exit_code(status), 2);
    assert_true(scratch_is_one_line(said, part));
    assert_non_null(strstr(said, "config.json"));
    assert_int_equal(shape.layers, 77);
    free(said);
}

static void expect_same_shape(const yk_model_shape *a, const yk_model_shape *b)
{
    assert_int_equal(a->family, b->family);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->head_size, b->head_size);
    assert_int_equal(a->ffn, b->ffn);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->vocab_rows, b->vocab_rows);
    assert_int_equal(a->max_seq_len, b->max_seq_len);
    assert_int_equal(a->tied, b->tied);
    assert_true(a->norm_eps == b->norm_eps);
    assert_true(a->rope_theta == b->rope_theta);
    assert_int_equal(a->rope_scaling, b->rope_scaling);
    if (a->rope_scaling != YK_ROPE_PLAIN) assert_true(a->rope_factor == b->rope_factor);
    if (a->rope_scaling != YK_ROPE_LLAMA3) return;
    assert_true(a->rope_low_freq_factor == b->rope_low_freq_factor);
    assert_true(a->rope_high_freq_factor == b->rope_high_freq_factor);
    assert_int_equal(a->rope_original_seq_len, b->rope_original_seq_len);
}

/* ---- reading ------------------------------------------------------------------------------ */

static void published_files_give_our_presets(void **state)
{
    (void)state;
    yk_model_shape gpt2 = expect_read(gpt2_text, NULL, NULL), wanted = shape_of_preset("gpt2-124m");
    expect_same_shape(&gpt2, &wanted);

    yk_model_shape qwen2 = expect_read(qwen2_text, NULL, NULL);
    wanted = shape_of_preset("qwen2.5-0.5b");
    expect_same_shape(&qwen2, &wanted);

    yk_model_shape llama = expect_read(llama_text, NULL, NULL); /* 3.1: 3 with a longer context */
    wanted = shape_of_preset("llama3-8b");
    wanted.max_seq_len = 131072;
    wanted.rope_scaling = YK_ROPE_LLAMA3;
    wanted.rope_factor = 8;
    wanted.rope_low_freq_factor = 1;
    wanted.rope_high_freq_factor = 4;
    wanted.rope_original_seq_len = 8192;
    expect_same_shape(&llama, &wanted);
}

static void what_is_left_out_has_the_familys_default(void **state)
{
    (void)state;
    assert_true(expect_read(gpt2_text, "layer_norm_epsilon", NULL).norm_eps == 1e-5);
    assert_true(expect_read(llama_text, "rms_norm_eps", NULL).norm_eps == 1e-6);
    assert_true(expect_read(llama_text, "rope_theta", NULL).rope_theta == 1e4);
    assert_int_equal(expect_read(llama_text, "num_key_value_heads", NULL).kv_heads, 32);
    assert_int_equal(expect_read(llama_text, "num_key_value_heads", "null").kv_heads, 32);
    assert_false(expect_read(llama_text, "tie_word_embeddings", NULL).tied);
    assert_false(expect_read(qwen2_text, "tie_word_embeddings", NULL).tied);
    assert_false(expect_read(gpt2_text, "tie_word_embeddings", "false").tied);
    assert_int_equal(expect_read(gpt2_text, "n_inner", "null").ffn, 3072);
    assert_int_equal(expect_read(gpt2_text, "n_inner", "1000").ffn, 1000);
    assert_int_equal(expect_read(llama_text, "head_dim", "null").head_size, 128);
    assert_int_equal(expect_read(llama_text, "head_dim", "64").head_size, 64);
    assert_int_equal(expect_read(gpt2_text, "architectures", NULL).family, YK_FAMILY_GPT2);
    assert_int_equal(expect_read(qwen2_text, "architectures", "null").family, YK_FAMILY_QWEN2);
}

static void every_spelling_of_rope_is_read(void **state)
{
    (void)state;
    static const char *const linear[] = {
        "{'type': 'linear', 'factor': 2.5}",
        "{'rope_type': 'linear', 'factor': 2.5}",
        "{'type': 'linear', 'rope_type': 'linear', 'factor': 2.5}",
    };
    for (size_t i = 0; i < sizeof linear / sizeof linear[0]; i++) {
        yk_model_shape s = expect_read(llama_text, "rope_scaling", linear[i]);
        assert_int_equal(s.rope_scaling, YK_ROPE_LINEAR);
        assert_true(s.rope_factor == 2.5 && s.rope_theta == 5e5);
    }
    static const char *const plain[] = {NULL, "null", "{'rope_type': 'default'}"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        assert_int_equal(expect_read(llama_text, "rope_scaling", plain[i]).rope_scaling,
                         YK_ROPE_PLAIN);
    yk_model_shape five =
        expect_read(qwen2_text, "rope_parameters", "{'rope_theta': 777.0, 'rope_type': 'default'}");
    assert_true(five.rope_theta == 777 && five.rope_scaling == YK_ROPE_PLAIN);
    five = expect_read(qwen2_text, "rope_parameters",
                       "{'rope_theta': 777, 'rope_type': 'linear', 'factor': 4}");
    assert_true(five.rope_theta == 777 && five.rope_scaling == YK_ROPE_LINEAR);
    assert_true(five.rope_factor == 4);
}

static void what_would_change_the_values_is_refused(void **state)
{
    (void)state;
    expect_refused(gpt2_text, "architectures", "['BertForMaskedLM']", "'BertForMaskedLM' is not");
    expect_refused(llama_text, "architectures", "['LlamaForSequenceClassification']", "is not off");
    expect_refused(gpt2_text, "activation_function", "'gelu'", "activation_function is 'gelu'");
    expect_refused(gpt2_text, "scale_attn_weights", "false", "scale_attn_weights is false");
    expect_refused(gpt2_text, "scale_attn_by_inverse_layer_idx", "true", "is true; only false");
    expect_refused(gpt2_text, "add_cross_attention", "true", "add_cross_attention is true");
    expect_refused(llama_text, "hidden_act", "'gelu'", "hidden_act is 'gelu'; only 'silu'");
    expect_refused(llama_text, "attention_bias", "true", "attention_bias is true");
    expect_refused(llama_text, "mlp_bias", "true", "mlp_bias is true");
    expect_refused(qwen2_text, "use_sliding_window", "true", "use_sliding_window is true");
    expect_refused(qwen2_text, "layer_types", "['full_attention', 'sliding_attention']",
                   "layer_types[1] is 'sliding_attention'");
    expect_refused(llama_text, "partial_rotary_factor", "0.5", "partial_rotary_factor is 0.5");
    expect_refused(llama_text, "quantization_config", "{'bits': 4}", "quantised");
    expect_refused(llama_text, "rope_scaling.rope_type", "'yarn'", "'yarn' is not offered");
    expect_refused(qwen2_text, "rope_scaling", "{'type': 'dynamic', 'factor': 2.0}", "'dynamic'");
    expect_refused(qwen2_text, "rope_scaling", "{'factor': 2.0}", "no rope_type");
}

static void sizes_that_are_missing_or_do_not_fit_are_named(void **state)
{
    (void)state;
    static const char *const gpt2_sizes[] = {"n_layer", "n_embd", "n_head", "n_positions",
                                             "vocab_size"};
    static const char *const llama_sizes[] = {"num_hidden_layers",
                                              "hidden_size",
                                              "num_attention_heads",
                                              "intermediate_size",
                                              "max_position_embeddings",
                                              "vocab_size",
                                              "rope_scaling.factor",
                                              "rope_scaling.low_freq_factor",
                                              "rope_scaling.original_max_position_embeddings"};
    for (size_t i = 0; i < sizeof gpt2_sizes / sizeof gpt2_sizes[0]; i++)
        expect_refused(gpt2_text, gpt2_sizes[i], NULL, "is missing");
    for (size_t i = 0; i < sizeof llama_sizes / sizeof llama_sizes[0]; i++)
        expect_refused(llama_text, llama_sizes[i], NULL, "is missing");
    expect_refused(gpt2_text, "n_head", "11", "n_embd 768 does not divide into n_head 11");
    expect_refused(llama_text, "num_attention_heads", "24", "does not divide into num_attention");
    expect_refused(llama_text, "num_key_value_heads", "5", "kv_heads must divide heads");
    expect_refused(llama_text, "head_dim", "7", "head_size is 7; rotary");
    expect_refused(llama_text, "hidden_size", "'large'", "hidden_size is not a whole number");
    expect_refused(llama_text, "hidden_size", "4096.5", "hidden_size is not a whole number");
    expect_refused(llama_text, "num_hidden_layers", "0", "num_hidden_layers is 0");
    expect_refused(gpt2_text, "n_embd", "4611686018427387904", "n_embd is 4611686018427387904");
    expect_refused(llama_text, "rms_norm_eps", "'small'", "rms_norm_eps is not a number");
    expect_refused(llama_text, "tie_word_embeddings", "1", "neither true nor false");
    expect_refused(llama_text, "rope_scaling", "'linear'", "rope_scaling is not an object");
    expect_refused(llama_text, "rope_scaling.high_freq_factor", "0.5", "high_freq_factor 0.5");
    expect_refused(llama_text, "rope_theta", "0", "rope_theta is 0");
}

static void a_file_that_names_no_architecture_is_refused(void **state)
{
    (void)state;
    expect_refused("{'vocab_size': 3}", NULL, NULL, "architectures is missing");
    expect_refused("{'model_type': 'mistral'}", NULL, NULL, "'mistral' is not offered");
}

static void a_file_that_is_not_there_or_not_json_is_told_so(void **state)
{
    (void)state;
    char dir[SCRATCH_PATH], path[SCRATCH_PATH];
    yk_model_shape shape;
    scratch_make(dir);
    int saved = scratch_stderr_begin();
    yk_status status = yk_hf_config_read(dir, &shape);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_EINVAL);
    assert_true(scratch_is_one_line(said, "config.json"));
    free(said);
    scratch_write(path, dir, YK_HF_CONFIG_NAME, "{\n'", 3);
    saved = scratch_stderr_begin();
    status = yk_hf_config_read(dir, &shape);
    said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_EFORMAT);
    assert_true(scratch_is_one_line(said, "line 2"));
    free(said);
    scratch_remove(dir);
}

static void dropout_is_warned_of_and_read_over(void **state)
{
    (void)state;
    yk_model_shape shape;
    char *said;
    assert_int_equal(read_changed(gpt2_text, NULL, NULL, &shape, &said), YK_OK);
    assert_non_null(strstr(said, "warning"));
    assert_non_null(strstr(said, "attn_pdrop is 0.1: there is no dropout"));
    assert_non_null(strstr(said, "embd_pdrop"));
    assert_non_null(strstr(said, "resid_pdrop"));
    free(said);
    assert_int_equal(read_changed(llama_text, NULL, NULL, &shape, &said), YK_OK);
    assert_string_equal(said, "");
    free(said);
}

/* ---- writing ------------------------------------------------------------------------------ */

/* Write the shape as a file, read that, and find the same. */
static void expect_round_trip(const yk_model_shape *shape)
{
    char dir[SCRATCH_PATH], path[SCRATCH_PATH], *text;
    yk_model_shape again;
    scratch_make(dir);
    assert_int_equal(yk_hf_config_text(shape, YK_F32, &text), YK_OK);
    scratch_write(path, dir, YK_HF_CONFIG_NAME, text, (int64_t)strlen(text));
    int saved = scratch_stderr_begin();
    yk_status status = yk_hf_config_read(dir, &again);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_OK);
    assert_string_equal(said, "");
    expect_same_shape(shape, &again);
    free(said);
    free(text);
    scratch_remove(dir);
}

static void what_is_written_reads_back_as_the_same_shape(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2-1.5b", "llama2-7b", "llama3-8b", "qwen2.5-0.5b",
                                          "qwen2.5-32b"};
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        yk_model_shape shape = shape_of_preset(presets[i]);
        expect_round_trip(&shape);
    }
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        yk_model_shape shape = shape_tiny_at(i);
        shape.norm_eps = 1.0 / 3e5; /* has no short decimal */
        shape.ffn = 4 * shape.width + 1;
        if (shape.family != YK_FAMILY_GPT2) {
            shape.rope_scaling = i % 2 ? YK_ROPE_LINEAR : YK_ROPE_LLAMA3;
            shape.rope_factor = 10.0 / 3;
            shape.rope_low_freq_factor = 1.1;
            shape.rope_high_freq_factor = 4.3;
            shape.rope_original_seq_len = 99;
        }
        expect_round_trip(&shape);
    }
}

static void the_text_is_what_transformers_expects(void **state)
{
    (void)state;
    yk_model_shape shape = shape_of_preset("gpt2-124m");
    char *text;
    assert_int_equal(yk_hf_config_text(&shape, YK_BF16, &text), YK_OK);
    static const char *const lines[] = {"  \"architectures\": [\n    \"GPT2LMHeadModel\"\n  ],\n",
                                        "  \"model_type\": \"gpt2\",\n",
                                        "  \"layer_norm_epsilon\": 1e-5,\n",
                                        "  \"n_inner\": null,\n",
                                        "  \"torch_dtype\": \"bfloat16\",\n",
                                        "  \"attn_pdrop\": 0.0,\n",
                                        "  \"tie_word_embeddings\": true,\n",
                                        "  \"eos_token_id\": null,\n",
                                        "  \"vocab_size\": 50257\n}\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!strstr(text, lines[i])) fail_msg("no %s in %s", lines[i], text);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_files_give_our_presets),
        cmocka_unit_test(what_is_left_out_has_the_familys_default),
        cmocka_unit_test(every_spelling_of_rope_is_read),
        cmocka_unit_test(what_would_change_the_values_is_refused),
        cmocka_unit_test(sizes_that_are_missing_or_do_not_fit_are_named),
        cmocka_unit_test(a_file_that_names_no_architecture_is_refused),
        cmocka_unit_test(a_file_that_is_not_there_or_not_json_is_told_so),
        cmocka_unit_test(dropout_is_warned_of_and_read_over),
        cmocka_unit_test(what_is_written_reads_back_as_the_same_shape),
        cmocka_unit_test(the_text_is_what_transformers_expects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
