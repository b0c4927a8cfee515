/* tests/models/test_shape.c - shapes from configurations, and shapes that cannot be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/model.h"
#include "tests/models/shapes.h"
#include "tests/runtime/scratch.h"

/* The shape that the assignments (ended by NULL) ask for. */
static yk_status read_config(const char *const *assignments, yk_model_shape *shape_out)
{
    yk_config config;
    assert_int_equal(yk_config_init(&config), YK_OK);
    for (; *assignments; assignments++)
        assert_int_equal(yk_config_set(&config, *assignments), YK_OK);
    yk_status status = yk_model_shape_from_config(&config, shape_out);
    yk_config_fini(&config);
    return status;
}

#define READ(shape_out, ...) read_config((const char *const[]){__VA_ARGS__, NULL}, shape_out)

/* The assignments are wrong: one line that holds `part`, and the shape untouched. */
static void expect_refused(const char *part, const char *const *assignments)
{
    yk_model_shape shape = {.layers = 77};
    int saved = scratch_stderr_begin();
    yk_status status = read_config(assignments, &shape);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_EINVAL);
    assert_true(scratch_is_one_line(said, part));
    assert_int_equal(shape.layers, 77);
    free(said);
}

#define REFUSED(part, ...) expect_refused(part, (const char *const[]){__VA_ARGS__, NULL})

static void keys_change_a_preset(void **state)
{
    (void)state;
    yk_model_shape s;
    assert_int_equal(
        READ(&s, "model.preset=llama3-8b", "model.layers=3", "model.vocab=1000", "model.tied=true"),
        YK_OK);
    assert_int_equal(s.layers, 3);
    assert_int_equal(s.vocab, 1000);
    assert_int_equal(s.vocab_rows, 1024);
    assert_true(s.tied);
    assert_int_equal(s.kv_heads, 8);
    assert_int_equal(s.ffn, 14336);
    assert_true(s.rope_theta == 5e5);
}

static void a_new_width_takes_its_heads_and_ffn_along(void **state)
{
    (void)state;
    yk_model_shape s;
    assert_int_equal(READ(&s, "model.preset=gpt2-124m", "model.width=256", "model.heads=4"), YK_OK);
    assert_int_equal(s.head_size, 64);
    assert_int_equal(s.kv_heads, 4);
    assert_int_equal(s.ffn, 1024);
}

static void a_family_and_sizes_are_enough(void **state)
{
    (void)state;
    yk_model_shape s;
    assert_int_equal(READ(&s, "model.family=llama", "model.layers=2", "model.width=96",
                          "model.heads=6", "model.vocab=300", "train.seq_len=80"),
                     YK_OK);
    assert_int_equal(s.family, YK_FAMILY_LLAMA);
    assert_int_equal(s.head_size, 16);
    assert_int_equal(s.kv_heads, 6);
    assert_int_equal(s.ffn, 256);
    assert_int_equal(s.max_seq_len, 80);
    assert_int_equal(s.vocab_rows, 320);
    assert_true(s.norm_eps == 1e-5 && s.rope_theta == 1e4 && s.tied);
}

static void what_cannot_be_is_named(void **state)
{
    (void)state;
    REFUSED("no 'gpt3'", "model.preset=gpt3");
    REFUSED("no 'bert'", "model.family=bert");
    REFUSED("layers is missing; give model.layers, or a model.preset", "model.family=gpt2",
            "model.width=64", "model.heads=2", "model.vocab=10", "train.seq_len=8");
    REFUSED("does not divide into 5 heads", "model.preset=tiny-llama", "model.heads=5");
    REFUSED("kv_heads must divide heads", "model.preset=tiny-llama", "model.kv_heads=3");
    REFUSED("head_size is 5; rotary", "model.preset=tiny-qwen2", "model.head_size=5");
    REFUSED("GPT-2 has as many", "model.preset=tiny-gpt2", "model.kv_heads=1");
    REFUSED("GPT-2 needs that", "model.preset=tiny-gpt2", "model.head_size=16");
}

static void a_family_beside_a_preset_of_another_is_refused(void **state)
{
    (void)state;
    yk_model_shape s;
    REFUSED("gpt2-124m is of the family gpt2, and model.family is llama", "model.preset=gpt2-124m",
            "model.family=llama");
    assert_int_equal(READ(&s, "model.preset=tiny-llama", "model.family=llama"), YK_OK);
}

static void expect_wrong_shape(const yk_model_shape *shape, const char *part)
{
    yk_model_shape copy = *shape;
    yk_model *model;
    int saved = scratch_stderr_begin();
    yk_status checked = yk_model_shape_check(&copy, "some file"),
              created = yk_model_create(shape, &model);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(checked, YK_EINVAL);
    assert_int_equal(created, YK_EINVAL);
    assert_non_null(strstr(said, "yoke: some file: "));
    assert_non_null(strstr(said, part));
    free(said);
}

static void shapes_from_elsewhere_are_checked_too(void **state)
{
    (void)state;
    yk_model_shape s = shape_tiny(YK_FAMILY_LLAMA, false), t = s;
    t.norm_eps = 0;
    expect_wrong_shape(&t, "norm_eps is 0");
    t = s;
    t.rope_theta = 1;
    expect_wrong_shape(&t, "rope_theta is 1");
    t = s;
    t.vocab = (int64_t)1 << 40;
    expect_wrong_shape(&t, "vocab is 1099511627776");
    t = s;
    t.heads = -4;
    expect_wrong_shape(&t, "heads is -4");
    t = s;
    t.rope_scaling = YK_ROPE_LINEAR;
    t.rope_factor = 0.5;
    expect_wrong_shape(&t, "factor is 0.5");
    t.rope_scaling = YK_ROPE_LLAMA3;
    t.rope_factor = 8;
    t.rope_low_freq_factor = t.rope_high_freq_factor = 4;
    t.rope_original_seq_len = 64;
    expect_wrong_shape(&t, "low_freq_factor is 4");
    t.rope_low_freq_factor = 1;
    t.rope_original_seq_len = 0;
    expect_wrong_shape(&t, "original length is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_change_a_preset),
        cmocka_unit_test(a_new_width_takes_its_heads_and_ffn_along),
        cmocka_unit_test(a_family_and_sizes_are_enough),
        cmocka_unit_test(a_family_beside_a_preset_of_another_is_refused),
        cmocka_unit_test(what_cannot_be_is_named),
        cmocka_unit_test(shapes_from_elsewhere_are_checked_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
