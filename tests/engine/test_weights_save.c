/* tests/engine/test_weights_save.c - what is saved is what transformers would have written, it loads
 * again to the bit, and a save that fails at any point leaves what was there.
 */
#include <errno.h>
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
#include "runtime/storage/file.h"
#include "runtime/storage/safetensors.h"
#include "tests/engine/stored.h"
#include "tests/engine/tensor_files.h"
#include "tests/models/shapes.h"
#include "tests/models/values.h"
#include "tests/runtime/scratch.h"

/* The system call that is to fail: 0 none, else the n-th from now on. File-scope because the fault
 * function has no argument of ours. */
static int fault_in;

int yk_file_fault(yk_file_op op, const char *path)
{
    (void)op;
    (void)path;
    return fault_in > 0 && --fault_in == 0 ? ENOSPC : 0;
}

static yk_status save(stored *s, const char *dir, const yk_weights_save_options *o)
{
    return yk_weights_save(s->store, s->model, dir, o, s->stream);
}

/* Save with the n-th system call failing, quietly. False when there are not as many. */
static bool save_failing(stored *s, const char *dir, const yk_weights_save_options *o, int n,
                         yk_status *status_out)
{
    int saved = scratch_stderr_begin();
    fault_in = n;
    *status_out = save(s, dir, o);
    bool failed = fault_in == 0;
    fault_in = 0;
    free(scratch_stderr_end(saved));
    return failed;
}

/* A folder holds exactly `values`: load them into a fresh store. */
static bool holds(const yk_model_shape *shape, const char *dir, double *const *values)
{
    stored s;
    yk_model_shape there;
    bool same = true;
    assert_int_equal(yk_hf_config_read(dir, &there), YK_OK);
    assert_int_equal(there.vocab, shape->vocab);
    stored_open(&s, &there, YK_F32, false);
    assert_int_equal(yk_weights_load(s.store, s.model, dir, s.stream), YK_OK);
    for (int k = 0; k < yk_model_n_params(s.model); k++) {
        float *got = stored_get(&s, YK_STORE_WEIGHT, k);
        for (int64_t i = 0; i < yk_param_count(&yk_model_params(s.model)[k]); i++)
            same = same && (double)got[i] == values[k][i];
        free(got);
    }
    stored_close(&s);
    return same;
}

static bool has_file(const char *dir, const char *name)
{
    char path[SCRATCH_PATH];
    return yk_file_exists(scratch_path(path, dir, name));
}

/* ---- what is written ---------------------------------------------------------------------- */

static void what_was_saved_loads_again(void **state)
{
    (void)state;
    for (int i = 0; i < N_TINY_SHAPES; i++) {
        for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) { /* values are numbers of every type */
            stored s;
            char scratch[SCRATCH_PATH], dir[SCRATCH_PATH];
            yk_model_shape shape = shape_tiny_at(i);
            stored_open(&s, &shape, YK_F32, true);
            double **values = values_of_params(s.model, 1);
            stored_set(&s, values);
            scratch_make(scratch);
            scratch_path(dir, scratch, "deeper/model");
            assert_int_equal(save(&s, dir, &(yk_weights_save_options){.dtype = (yk_dtype)t}),
                             YK_OK);
            assert_int_equal(scratch_count(dir), 2);
            assert_true(holds(&shape, dir, values));
            scratch_remove(scratch);
            values_free(s.model, values);
            stored_close(&s);
        }
    }
}

/* Load a folder that the reference wrote and save it: the same tensors come, byte for byte. */
static void expect_same_tensors(const char *name)
{
    stored s;
    yk_model_shape shape;
    yk_safetensors *theirs, *ours;
    char from[256], dir[SCRATCH_PATH];
    snprintf(from, sizeof from, "tests/golden/%s", name);
    assert_int_equal(yk_hf_config_read(from, &shape), YK_OK);
    stored_open(&s, &shape, YK_F32, false);
    assert_int_equal(yk_weights_load(s.store, s.model, from, s.stream), YK_OK);
    scratch_make(dir);
    assert_int_equal(save(&s, dir, &(yk_weights_save_options){0}), YK_OK);
    assert_int_equal(yk_safetensors_open(from, &theirs), YK_OK);
    assert_int_equal(yk_safetensors_open(dir, &ours), YK_OK);
    assert_int_equal(yk_safetensors_count(ours), yk_safetensors_count(theirs));
    for (int64_t i = 0; i < yk_safetensors_count(ours); i++) {
        const yk_st_tensor *a = yk_safetensors_at(ours, i), *b = yk_safetensors_at(theirs, i);
        assert_string_equal(a->info.name, b->info.name);
        assert_int_equal(a->info.n_dims, b->info.n_dims);
        assert_memory_equal(a->info.shape, b->info.shape, (size_t)a->info.n_dims * sizeof(int64_t));
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, (size_t)a->bytes);
    }
    yk_safetensors_close(theirs);
    yk_safetensors_close(ours);
    scratch_remove(dir);
    stored_close(&s);
}

static void the_references_files_come_out_as_they_went_in(void **state)
{
    (void)state;
    static const char *const golden[] = {"gpt2",        "gpt2-inner", "llama",     "llama-linear",
                                         "llama3-tied", "qwen2",      "qwen2-tied"};
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) expect_same_tensors(golden[i]);
}

static void tensors_longer_than_a_chunk_are_saved(void **state)
{
    (void)state;
    yk_model_shape shape = shape_tiny(YK_FAMILY_GPT2, false);
    stored s;
    char dir[SCRATCH_PATH];
    shape.layers = 1;
    shape.width = 513;
    shape.head_size = 171;
    shape.ffn = 2300;
    shape.vocab = 2100;
    stored_open(&s, &shape, YK_F32, false);
    double **values = values_of_params(s.model, 1);
    stored_set(&s, values);
    scratch_make(dir);
    assert_int_equal(save(&s, dir, &(yk_weights_save_options){.dtype = YK_BF16}), YK_OK);
    assert_true(holds(&shape, dir, values));
    scratch_remove(dir);
    values_free(s.model, values);
    stored_close(&s);
}

static void a_large_model_is_dealt_to_several_files(void **state)
{
    (void)state;
    stored s;
    char dir[SCRATCH_PATH];
    yk_model_shape shape = shape_tiny(YK_FAMILY_QWEN2, false);
    stored_open(&s, &shape, YK_F32, false);
    double **values = values_of_params(s.model, 1), **other = values_of_params(s.model, 2);
    scratch_make(dir);
    stored_set(&s, other);
    assert_int_equal(save(&s, dir, &(yk_weights_save_options){0}), YK_OK);
    stored_set(&s, values);
    assert_int_equal(save(&s, dir, &(yk_weights_save_options){.max_shard_bytes = 4000}), YK_OK);
    assert_true(has_file(dir, "model.safetensors.index.json"));
    assert_false(has_file(dir, "model.safetensors")); /* a reader would take the old one */
    assert_true(holds(&shape, dir, values));
    scratch_remove(dir);
    values_free(s.model, values);
    values_free(s.model, other);
    stored_close(&s);
}

static void weights_beyond_fp16_are_counted_in_a_warning(void **state)
{
    (void)state;
    stored s;
    char dir[SCRATCH_PATH];
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    stored_open(&s, &shape, YK_F32, false);
    double **values = values_of_params(s.model, 1);
    values[0][3] = 70000;
    values[1][0] = -1e30;
    values[1][1] = 65504;
    values[1][2] = INFINITY; /* is one already */
    stored_set(&s, values);
    scratch_make(dir);
    int saved = scratch_stderr_begin();
    yk_status status = save(&s, dir, &(yk_weights_save_options){.dtype = YK_F16});
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_OK);
    assert_true(scratch_is_one_line(said, "2 weights are beyond what fp16 holds"));
    free(said);
    values[0][3] = INFINITY;
    values[1][0] = -INFINITY;
    assert_true(holds(&shape, dir, values));
    scratch_remove(dir);
    values_free(s.model, values);
    stored_close(&s);
}

static void the_tokenizer_comes_along(void **state)
{
    (void)state;
    stored s;
    char scratch[SCRATCH_PATH], dir[SCRATCH_PATH], tokenizer[SCRATCH_PATH], *text;
    int64_t bytes;
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    stored_open(&s, &shape, YK_F32, false);
    scratch_make(scratch);
    scratch_write(tokenizer, scratch, "some.json", "{\"a\": 1}", 8);
    scratch_path(dir, scratch, "model");
    assert_int_equal(save(&s, dir, &(yk_weights_save_options){.tokenizer = tokenizer}), YK_OK);
    scratch_path(tokenizer, dir, "tokenizer.json");
    assert_int_equal(yk_file_read_all(tokenizer, &text, &bytes), YK_OK);
    assert_string_equal(text, "{\"a\": 1}");
    free(text);
    /* Also onto itself. */
    assert_int_equal(save(&s, dir, &(yk_weights_save_options){.tokenizer = tokenizer}), YK_OK);
    assert_int_equal(yk_file_read_all(tokenizer, &text, &bytes), YK_OK);
    assert_string_equal(text, "{\"a\": 1}");
    free(text);
    scratch_remove(scratch);
    stored_close(&s);
}

/* ---- failures ----------------------------------------------------------------------------- */

static void a_tokenizer_that_is_not_there_stops_the_save(void **state)
{
    (void)state;
    stored s;
    char scratch[SCRATCH_PATH], dir[SCRATCH_PATH];
    yk_model_shape shape = shape_tiny(YK_FAMILY_LLAMA, false);
    stored_open(&s, &shape, YK_F32, false);
    scratch_make(scratch);
    scratch_path(dir, scratch, "model");
    int saved = scratch_stderr_begin();
    yk_status status = save(&s, dir, &(yk_weights_save_options){.tokenizer = "/nowhere/t.json"});
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_EINVAL);
    assert_true(scratch_is_one_line(said, "/nowhere/t.json"));
    assert_false(yk_dir_exists(dir));
    free(said);
    scratch_remove(scratch);
    stored_close(&s);
}

/* The folder holds the old weights or the new ones, whole, and no file that is half written. */
static bool expect_whole(const yk_model_shape *shape, const char *dir, int n_files, double **was,
                         double **is)
{
    assert_int_equal(scratch_count(dir), n_files);
    bool old = holds(shape, dir, was);
    assert_true(old || holds(shape, dir, is));
    return old;
}

static void a_save_that_fails_anywhere_leaves_what_was_there(void **state)
{
    (void)state;
    stored s;
    char dir[SCRATCH_PATH], tokenizer[SCRATCH_PATH];
    yk_model_shape shape = shape_tiny(YK_FAMILY_GPT2, true);
    stored_open(&s, &shape, YK_F32, false);
    double **was = values_of_params(s.model, 1), **is = values_of_params(s.model, 2);
    scratch_make(dir);
    scratch_write(tokenizer, dir, "tokenizer.json", "{}", 2);
    yk_weights_save_options o = {.tokenizer = tokenizer};
    stored_set(&s, was);
    assert_int_equal(save(&s, dir, &o), YK_OK);
    stored_set(&s, is);
    int n_old = 0, n_new = 0;
    yk_status status;
    for (int n = 1; save_failing(&s, dir, &o, n, &status); n++) {
        bool old = expect_whole(&shape, dir, 3, was, is);
        assert_true(!old || status != YK_OK);
        n_old += old;
        n_new += !old;
        stored_set(&s, was);
        assert_int_equal(save(&s, dir, &o), YK_OK);
        stored_set(&s, is);
    }
    print_message("%d calls failed before the first rename, %d after it\n", n_old, n_new);
    assert_true(n_old > 30); /* every write */
    assert_int_equal(save(&s, dir, &o), YK_OK);
    assert_true(holds(&shape, dir, is));
    scratch_remove(dir);
    values_free(s.model, was);
    values_free(s.model, is);
    stored_close(&s);
}

static void a_save_that_fails_takes_its_new_folder_back(void **state)
{
    (void)state;
    stored s;
    char scratch[SCRATCH_PATH], dir[SCRATCH_PATH];
    yk_model_shape shape = shape_tiny(YK_FAMILY_QWEN2, true);
    stored_open(&s, &shape, YK_F32, false);
    scratch_make(scratch);
    scratch_path(dir, scratch, "model");
    int n_gone = 0;
    yk_status status;
    for (int n = 1; save_failing(&s, dir, &(yk_weights_save_options){0}, n, &status); n++) {
        n_gone += !yk_dir_exists(dir);
        assert_true(!yk_dir_exists(dir) || has_file(dir, "model.safetensors"));
        scratch_remove(scratch);
        scratch_make(scratch);
        scratch_path(dir, scratch, "model");
    }
    assert_true(n_gone > 30);
    assert_int_equal(status, YK_OK);
    assert_int_equal(scratch_count(dir), 2);
    scratch_remove(scratch);
    stored_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_loads_again),
        cmocka_unit_test(the_references_files_come_out_as_they_went_in),
        cmocka_unit_test(tensors_longer_than_a_chunk_are_saved),
        cmocka_unit_test(a_large_model_is_dealt_to_several_files),
        cmocka_unit_test(weights_beyond_fp16_are_counted_in_a_warning),
        cmocka_unit_test(the_tokenizer_comes_along),
        cmocka_unit_test(a_tokenizer_that_is_not_there_stops_the_save),
        cmocka_unit_test(a_save_that_fails_anywhere_leaves_what_was_there),
        cmocka_unit_test(a_save_that_fails_takes_its_new_folder_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
