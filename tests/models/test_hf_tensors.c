/* tests/models/test_hf_tensors.c - the tensors of a file cover the parameter table, once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/hf.h"
#include "runtime/storage/safetensors.h"
#include "tests/models/shapes.h"

typedef struct listed {
    yk_model *model;
    yk_hf_tensor *tensors;
    int n;
} listed;

static listed list_of(const yk_model_shape *shape)
{
    listed l;
    assert_int_equal(yk_model_create(shape, &l.model), YK_OK);
    assert_int_equal(yk_hf_tensors_create(l.model, &l.tensors, &l.n), YK_OK);
    return l;
}

static void release(listed *l)
{
    free(l->tensors);
    yk_model_destroy(l->model);
}

static const yk_hf_tensor *find(const listed *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->tensors[i].name, name) == 0) return &l->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Each row of each parameter belongs to one tensor, but for the padding, which belongs to none. */
static void expect_cover(const listed *l)
{
    int64_t vocab = yk_model_get_shape(l->model)->vocab;
    int64_t padded = yk_model_get_shape(l->model)->vocab_rows;
    for (int k = 0; k < yk_model_n_params(l->model); k++) {
        const yk_param *p = &yk_model_params(l->model)[k];
        int64_t next = 0; /* tensors of a parameter come in the order of its rows */
        for (int i = 0; i < l->n; i++) {
            const yk_hf_tensor *t = &l->tensors[i];
            if (t->param != k) continue;
            assert_int_equal(t->row, next);
            assert_int_equal(yk_hf_cols(t), p->shape[1]);
            assert_int_equal(t->n_dims, p->n_dims);
            next += yk_hf_rows(t);
        }
        assert_true(next == p->shape[0] || (next == vocab && p->shape[0] == padded));
    }
}

static void tensors_cover_every_parameter_once(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2-124m", "llama2-7b", "llama3-8b", "qwen2.5-0.5b"};
    for (int i = 0; i < N_TINY_SHAPES + 4; i++) {
        yk_model_shape shape =
            i < N_TINY_SHAPES ? shape_tiny_at(i) : shape_of_preset(presets[i - N_TINY_SHAPES]);
        listed l = list_of(&shape);
        int64_t count = 0;
        for (int k = 0; k < l.n; k++) count += l.tensors[k].shape[0] * l.tensors[k].shape[1];
        assert_int_equal(count, yk_model_shape_count(&shape));
        expect_cover(&l);
        release(&l);
    }
}

/* A folder made by the reference has exactly our tensors, by name and shape. */
static void expect_same_as_golden(const char *name)
{
    char path[256];
    yk_model_shape shape;
    yk_safetensors *files;
    snprintf(path, sizeof path, "tests/golden/%s", name);
    print_message("%s\n", path);
    assert_int_equal(yk_hf_config_read(path, &shape), YK_OK);
    assert_int_equal(yk_safetensors_open(path, &files), YK_OK);
    listed l = list_of(&shape);
    assert_int_equal(yk_safetensors_count(files), l.n);
    for (int i = 0; i < l.n; i++) {
        const yk_hf_tensor *t = &l.tensors[i];
        const yk_st_tensor *file;
        assert_int_equal(yk_safetensors_require(files, t->name, t->n_dims, t->shape, &file), YK_OK);
    }
    release(&l);
    yk_safetensors_close(files);
}

static void names_and_shapes_are_those_of_the_reference(void **state)
{
    (void)state;
    static const char *const golden[] = {"gpt2",        "gpt2-inner", "llama",     "llama-linear",
                                         "llama3-tied", "qwen2",      "qwen2-tied"};
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) expect_same_as_golden(golden[i]);
}

static void fused_parameters_are_cut_in_the_order_that_the_model_reads(void **state)
{
    (void)state;
    yk_model_shape s = shape_tiny(YK_FAMILY_QWEN2, false); /* H 4, G 2, D 6, F 18 */
    listed l = list_of(&s);
    int qkv = yk_model_find_param(l.model, "block.1.qkv.weight");
    int bias = yk_model_find_param(l.model, "block.1.qkv.bias");
    int up = yk_model_find_param(l.model, "block.1.up.weight");
    const struct {
        const char *name;
        int param;
        int64_t row, rows;
    } cuts[] = {
        {"model.layers.1.self_attn.q_proj.weight", qkv, 0, 24},
        {"model.layers.1.self_attn.k_proj.weight", qkv, 24, 12},
        {"model.layers.1.self_attn.v_proj.weight", qkv, 36, 12},
        {"model.layers.1.self_attn.v_proj.bias", bias, 36, 12},
        {"model.layers.1.mlp.gate_proj.weight", up, 0, 18},
        {"model.layers.1.mlp.up_proj.weight", up, 18, 18},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        const yk_hf_tensor *t = find(&l, cuts[i].name);
        assert_int_equal(t->param, cuts[i].param);
        assert_int_equal(t->row, cuts[i].row);
        assert_int_equal(t->shape[0], cuts[i].rows);
        assert_false(t->transposed);
    }
    release(&l);
}

static void only_the_products_of_gpt2_are_turned(void **state)
{
    (void)state;
    yk_model_shape s = shape_tiny(YK_FAMILY_GPT2, true);
    listed l = list_of(&s);
    for (int i = 0; i < l.n; i++) {
        const yk_hf_tensor *t = &l.tensors[i];
        bool product = strstr(t->name, ".c_") && strstr(t->name, ".weight");
        assert_int_equal(t->transposed, product);
    }
    assert_int_equal(find(&l, "transformer.h.0.mlp.c_fc.weight")->shape[0], s.width);
    assert_int_equal(find(&l, "transformer.h.0.mlp.c_fc.weight")->shape[1], s.ffn);
    release(&l);
}

static void the_head_has_a_tensor_only_where_it_is_not_tied(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        yk_model_shape s = shape_tiny_at(i);
        listed l = list_of(&s);
        bool last_is_head = strcmp(l.tensors[l.n - 1].name, YK_HF_HEAD_NAME) == 0;
        assert_int_equal(last_is_head, !s.tied);
        release(&l);
    }
}

static void short_names_are_gpt2s_without_the_prefix(void **state)
{
    (void)state;
    yk_model_shape gpt2 = shape_tiny(YK_FAMILY_GPT2, true);
    yk_model_shape llama = shape_tiny(YK_FAMILY_LLAMA, true);
    listed l = list_of(&gpt2), k = list_of(&llama);
    assert_string_equal(yk_hf_short_name(l.model, "transformer.h.0.ln_1.bias"), "h.0.ln_1.bias");
    assert_string_equal(yk_hf_short_name(l.model, YK_HF_HEAD_NAME), YK_HF_HEAD_NAME);
    assert_string_equal(yk_hf_short_name(k.model, "model.norm.weight"), "model.norm.weight");
    release(&l);
    release(&k);
}

static void masks_and_frequencies_are_known_to_follow_from_the_shape(void **state)
{
    (void)state;
    assert_true(yk_hf_is_derived("h.0.attn.bias"));
    assert_true(yk_hf_is_derived("transformer.h.11.attn.masked_bias"));
    assert_true(yk_hf_is_derived("model.layers.0.self_attn.rotary_emb.inv_freq"));
    assert_false(yk_hf_is_derived("h.0.attn.c_attn.bias"));
    assert_false(yk_hf_is_derived("model.layers.0.self_attn.q_proj.bias"));
    assert_false(yk_hf_is_derived("bias"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_cover_every_parameter_once),
        cmocka_unit_test(names_and_shapes_are_those_of_the_reference),
        cmocka_unit_test(fused_parameters_are_cut_in_the_order_that_the_model_reads),
        cmocka_unit_test(only_the_products_of_gpt2_are_turned),
        cmocka_unit_test(the_head_has_a_tensor_only_where_it_is_not_tied),
        cmocka_unit_test(short_names_are_gpt2s_without_the_prefix),
        cmocka_unit_test(masks_and_frequencies_are_known_to_follow_from_the_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
