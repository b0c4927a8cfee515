/* tests/engine/test_weights_load.c - weights come from Hugging Face directories as they are there,
 * and what is wrong with a directory is said before the store is touched.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/weights.h"
#include "tests/engine/stored.h"
#include "tests/engine/tensor_files.h"
#include "tests/models/shapes.h"
#include "tests/models/values.h"
#include "tests/runtime/scratch.h"

/* A model, weights for it, and a folder with files that hold them. */
typedef struct fixture {
    stored s;
    double **values;
    tensor_files files;
    char dir[SCRATCH_PATH];
} fixture;

static void fixture_open(fixture *f, const yk_model_shape *shape, yk_dtype file_dtype)
{
    stored_open(&f->s, shape, YK_F32, false);
    f->values = values_of_params(f->s.model, 1);
    f->files = tensor_files_of(f->s.model, f->values, file_dtype);
    scratch_make(f->dir);
}

static void fixture_close(fixture *f)
{
    tensor_files_release(&f->files);
    values_free(f->s.model, f->values);
    stored_close(&f->s);
    scratch_remove(f->dir);
}

/* Load what was written; what is said meanwhile goes to *said_out, which the caller owns. */
static yk_status load(fixture *f, char **said_out)
{
    int saved = scratch_stderr_begin();
    yk_status status = yk_weights_load(f->s.store, f->s.model, f->dir, f->s.stream);
    *said_out = scratch_stderr_end(saved);
    return status;
}

/* The store holds exactly the fixture's values, and zero in padding rows. */
static void expect_values(fixture *f)
{
    for (int k = 0; k < yk_model_n_params(f->s.model); k++) {
        const yk_param *p = &yk_model_params(f->s.model)[k];
        float *got = stored_get(&f->s, YK_STORE_WEIGHT, k);
        for (int64_t i = 0; i < yk_param_count(p); i++)
            if ((double)got[i] != f->values[k][i])
                fail_msg("%s[%lld] is %g, not %g", p->name, (long long)i, (double)got[i],
                         f->values[k][i]);
        free(got);
    }
}

static void expect_untouched(fixture *f)
{
    for (int k = 0; k < yk_model_n_params(f->s.model); k++) {
        float *got = stored_get(&f->s, YK_STORE_WEIGHT, k);
        for (int64_t i = 0; i < yk_param_count(&yk_model_params(f->s.model)[k]); i++)
            assert_true(isnan(got[i]));
        free(got);
    }
}

/* Write the files and load them, without a word. */
static void expect_loads(fixture *f, int64_t max_shard_bytes)
{
    char *said;
    tensor_files_write(&f->files, f->dir, max_shard_bytes);
    assert_int_equal(load(f, &said), YK_OK);
    assert_string_equal(said, "");
    free(said);
    expect_values(f);
}

static void expect_warning(fixture *f, const char *part)
{
    char *said;
    tensor_files_write(&f->files, f->dir, 0);
    assert_int_equal(load(f, &said), YK_OK);
    assert_true(scratch_is_one_line(said, part));
    assert_non_null(strstr(said, "yoke: warning: "));
    free(said);
    expect_values(f);
}

static void expect_refused(fixture *f, const char *part)
{
    char *said;
    tensor_files_write(&f->files, f->dir, 0);
    assert_int_equal(load(f, &said), YK_EFORMAT);
    assert_true(scratch_is_one_line(said, part));
    free(said);
    expect_untouched(f);
}

/* ---- what loads --------------------------------------------------------------------------- */

static void every_family_and_type_loads(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) {
            fixture f;
            yk_model_shape shape = shape_tiny_at(i);
            fixture_open(&f, &shape, (yk_dtype)t);
            expect_loads(&f, 0);
            fixture_close(&f);
        }
    }
}

static void several_files_load_as_one(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    fixture_open(&f, &shape, YK_F32);
    expect_loads(&f, 2000);
    fixture_close(&f);
}

static void tensors_longer_than_a_chunk_load(void **state)
{
    (void)state;
    yk_model_shape shape = shape_tiny(YK_FAMILY_GPT2, true); /* the turned kind is the harder */
    shape.layers = 1;
    shape.width = 513;
    shape.head_size = 171;
    shape.ffn = 2300;
    shape.vocab = 2100;
    fixture f;
    fixture_open(&f, &shape, YK_BF16);
    expect_loads(&f, 0);
    fixture_close(&f);
}

static void gpt2_loads_without_the_prefix(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_GPT2, true);
    fixture_open(&f, &shape, YK_F32);
    for (int i = 0; i < f.files.n; i++) {
        char *name = f.files.items[i].name;
        const char *shorter = yk_hf_short_name(f.s.model, name);
        memmove(name, shorter, strlen(shorter) + 1);
    }
    const double mask[] = {1, 1, 0, 1};
    tensor_files_add(&f.files, "h.0.attn.bias", YK_F32, mask, 4);
    tensor_files_add(&f.files, "h.1.attn.masked_bias", YK_F32, mask, 1);
    expect_loads(&f, 0);
    fixture_close(&f);
}

static void a_store_in_sixteen_bits_takes_rounded_weights(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_QWEN2, true);
    fixture_open(&f, &shape, YK_F32);
    stored_close(&f.s);
    stored_open(&f.s, &shape, YK_BF16, false); /* values are numbers that bf16 holds */
    expect_loads(&f, 0);
    fixture_close(&f);
}

/* ---- warnings ----------------------------------------------------------------------------- */

static void tensors_of_no_use_are_named_and_left_out(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    const double one[] = {1};
    fixture_open(&f, &shape, YK_F32);
    tensor_files_add(&f.files, "model.layers.2.input_layernorm.weight", YK_F32, one, 1);
    tensor_files_add(&f.files, "score.weight", YK_F16, one, 1);
    tensor_files_add(&f.files, "model.layers.0.self_attn.rotary_emb.inv_freq", YK_F32, one, 1);
    expect_warning(&f, "holds 2 tensors that are not of this model and are left out: "
                       "model.layers.2.input_layernorm.weight, score.weight");
    fixture_close(&f);
}

static void a_long_list_of_tensors_of_no_use_ends_somewhere(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    const double one[] = {1};
    fixture_open(&f, &shape, YK_F32);
    for (int i = 0; i < 100; i++) {
        char name[YK_HF_NAME_MAX];
        snprintf(name, sizeof name, "adapter.%d.with.a.long.name.weight", i);
        tensor_files_add(&f.files, name, YK_F32, one, 1);
    }
    expect_warning(&f, "holds 100 tensors");
    fixture_close(&f);
}

/* Add a head to the files of a tied model: the embedding in `dtype`, with its last number changed. */
static void add_head(fixture *f, yk_dtype dtype, double change)
{
    const yk_model_shape *s = yk_model_get_shape(f->s.model);
    int64_t n = s->vocab * s->width;
    double *values = calloc((size_t)n, sizeof *values);
    memcpy(values, f->values[0], (size_t)n * sizeof *values);
    values[n - 1] += change;
    tensor_files_add(&f->files, YK_HF_HEAD_NAME, dtype, values, n);
    tensor_file *head = tensor_files_find(&f->files, YK_HF_HEAD_NAME);
    head->info.n_dims = 2;
    head->info.shape[0] = s->vocab;
    head->info.shape[1] = s->width;
    free(values);
}

static void a_tied_model_may_hold_its_head_twice(void **state)
{
    (void)state;
    for (int i = 1; i < N_TINY_SHAPES; i += 2) {
        for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) {
            fixture f;
            yk_model_shape shape = shape_tiny_at(i);
            fixture_open(&f, &shape, YK_F32);
            add_head(&f, (yk_dtype)t, 0);
            expect_loads(&f, 0);
            fixture_close(&f);
        }
    }
}

static void a_tied_head_that_differs_is_warned_of(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_QWEN2, true);
    fixture_open(&f, &shape, YK_F32);
    add_head(&f, YK_F32, 0.25);
    expect_warning(&f, "lm_head.weight differs from model.embed_tokens.weight");
    fixture_close(&f);
}

static void a_tied_head_of_another_size_is_warned_of(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_QWEN2, true);
    const double one[] = {1};
    fixture_open(&f, &shape, YK_F32);
    tensor_files_add(&f.files, YK_HF_HEAD_NAME, YK_I32, one, 1);
    tensor_files_find(&f.files, YK_HF_HEAD_NAME)->info.dtype = YK_ST_I32;
    expect_warning(&f, "lm_head.weight differs");
    fixture_close(&f);
}

/* ---- refusals ----------------------------------------------------------------------------- */

static void a_missing_tensor_is_named(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_GPT2, true);
    fixture_open(&f, &shape, YK_F32);
    tensor_files_drop(&f.files, "transformer.ln_f.bias");
    expect_refused(&f, "tensor transformer.ln_f.bias is missing");
    fixture_close(&f);
}

static void a_missing_head_is_named_with_what_it_is_needed_for(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i += 2) {
        fixture f;
        yk_model_shape shape = shape_tiny_at(i);
        fixture_open(&f, &shape, YK_F32);
        tensor_files_drop(&f.files, YK_HF_HEAD_NAME);
        expect_refused(&f, "tensor lm_head.weight is missing, and the head is not tied");
        fixture_close(&f);
    }
}

static void a_wrong_shape_or_type_is_named(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    fixture_open(&f, &shape, YK_F32);
    const char *name = "model.layers.1.mlp.down_proj.weight";
    tensor_file *t = tensor_files_find(&f.files, name);
    t->info.shape[0] = 18; /* turned by mistake */
    t->info.shape[1] = 12;
    expect_refused(&f, name);
    t->info.shape[0] = 12;
    t->info.shape[1] = 18;
    t->info.dtype = YK_ST_I32;
    expect_refused(&f, "dtype is I32");
    fixture_close(&f);
}

static void a_model_of_another_vocabulary_is_refused(void **state)
{
    (void)state;
    fixture f;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    fixture_open(&f, &shape, YK_F32);
    tensor_file *t = tensor_files_find(&f.files, "model.embed_tokens.weight");
    t->info.shape[0] -= 1;
    expect_refused(&f, "model.embed_tokens.weight: shape is");
    fixture_close(&f);
}

static void a_folder_without_weights_is_refused(void **state)
{
    (void)state;
    fixture f;
    char *said;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    fixture_open(&f, &shape, YK_F32);
    assert_int_equal(load(&f, &said), YK_EINVAL);
    assert_true(scratch_is_one_line(said, f.dir));
    free(said);
    expect_untouched(&f);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_and_type_loads),
        cmocka_unit_test(several_files_load_as_one),
        cmocka_unit_test(tensors_longer_than_a_chunk_load),
        cmocka_unit_test(gpt2_loads_without_the_prefix),
        cmocka_unit_test(a_store_in_sixteen_bits_takes_rounded_weights),
        cmocka_unit_test(tensors_of_no_use_are_named_and_left_out),
        cmocka_unit_test(a_long_list_of_tensors_of_no_use_ends_somewhere),
        cmocka_unit_test(a_tied_model_may_hold_its_head_twice),
        cmocka_unit_test(a_tied_head_that_differs_is_warned_of),
        cmocka_unit_test(a_tied_head_of_another_size_is_warned_of),
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(a_missing_head_is_named_with_what_it_is_needed_for),
        cmocka_unit_test(a_wrong_shape_or_type_is_named),
        cmocka_unit_test(a_model_of_another_vocabulary_is_refused),
        cmocka_unit_test(a_folder_without_weights_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
