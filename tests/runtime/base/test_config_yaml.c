/* tests/runtime/base/test_config_yaml.c - configuration files: what is read, and what each mistake is
 * told as. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/config.h"
#include "tests/runtime/base/heard.h"

static void reads(yk_config *c, const char *text)
{
    assert_int_equal(yk_config_init(c), YK_OK);
    assert_int_equal(yk_config_read(c, "run.yaml", text, strlen(text)), YK_OK);
}

/* ---- what is read ------------------------------------------------------------------------- */

static void a_whole_file_is_read(void **state)
{
    yk_config c;
    (void)state;
    reads(&c, "# a run\n"
              "run: {dir: runs/one}\n"
              "model:\n"
              "  preset: gpt2-124m   # small\n"
              "  tied: false\n"
              "data:\n"
              "  train:\n"
              "    - a.bin\n"
              "    - 'b c.bin'\n"
              "  val: v.txt\n"
              "train:\n"
              "  batch: 1e2\n"
              "  micro_batch: 10\n"
              "optim:\n"
              "  lr: 6e-4\n"
              "precision:\n"
              "  compute: bf16\n"
              "  loss_scale:\n"
              "    start: 1024\n"
              "memory: {device_limit: 24GiB, recompute: \"cheap\"}\n"
              "sample:\n"
              "  prompt: |\n"
              "    In the\n"
              "    beginning\n"
              "device: cpu\n");
    assert_string_equal(c.run.dir, "runs/one");
    assert_string_equal(c.model.preset, "gpt2-124m");
    assert_int_equal(c.model.tied, 0);
    assert_int_equal(c.data.train.n_items, 2);
    assert_string_equal(c.data.train.items[0], "a.bin");
    assert_string_equal(c.data.train.items[1], "b c.bin");
    assert_int_equal(c.data.val.n_items, 1);
    assert_string_equal(c.data.val.items[0], "v.txt");
    assert_int_equal(c.train.batch, 100);
    assert_int_equal(c.train.micro_batch, 10);
    assert_true(c.optim.lr == 6e-4);
    assert_int_equal(c.precision.compute, YK_BF16);
    assert_true(c.precision.loss_scale.start == 1024);
    assert_int_equal(c.memory.device_limit, INT64_C(24) << 30);
    assert_int_equal(c.memory.recompute, YK_RECOMPUTE_CHEAP);
    assert_string_equal(c.sample.prompt, "In the\nbeginning\n");
    assert_int_equal(c.device, YK_DEVICE_CHOICE_CPU);
    assert_int_equal(c.train.seed, 1337); /* not given: as it was */
    yk_config_fini(&c);
}

static void nothing_at_all_leaves_the_defaults(void **state)
{
    static const char *const texts[] = {
        "",
        "\n\n",
        "# only a comment\n",
        "---\n",
        "---\n...\n",
        "{}",
        "\xef\xbb\xbf",
        "train:\n",
        "train: {}",
        "%YAML 1.1\n---\n",
        "\r\n# x\r\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        yk_config c;
        reads(&c, texts[i]);
        assert_int_equal(c.train.batch, 32);
        yk_config_fini(&c);
    }
}

static void dotted_names_line_ends_and_quoted_keys_are_read(void **state)
{
    yk_config c;
    (void)state;
    reads(&c, "train.batch: 4\r\n\"train.steps\": 5\r\nprecision: {loss_scale.start: 8}\r\n"
              "precision.loss_scale.ceiling: 16\r\n");
    assert_int_equal(c.train.batch, 4);
    assert_int_equal(c.train.steps, 5);
    assert_true(c.precision.loss_scale.start == 8 && c.precision.loss_scale.ceiling == 16);
    yk_config_fini(&c);
}

static void truth_has_the_words_of_both_yaml_versions(void **state)
{
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "on", "ON"};
    static const char *const no[] = {"false", "False", "no", "NO", "off", "Off"};
    char text[64];
    yk_config c;
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        snprintf(text, sizeof text, "data.doc_mask: %s\nmodel.tied: %s\n", yes[i], no[i]);
        reads(&c, text);
        assert_true(c.data.doc_mask);
        assert_int_equal(c.model.tied, 0);
        yk_config_fini(&c);
        snprintf(text, sizeof text, "data.doc_mask: %s\nmodel.tied: %s\n", no[i], yes[i]);
        reads(&c, text);
        assert_false(c.data.doc_mask);
        assert_int_equal(c.model.tied, 1);
        yk_config_fini(&c);
    }
}

static void strings_are_taken_as_they_stand(void **state)
{
    yk_config c;
    (void)state;
    reads(
        &c,
        "run.dir: 010\nmodel.preset: yes\nmodel.init: \"null\"\nmodel.family: 'a\"b'\n"
        "data.tokenizer: \"\"\nsample.prompt: \"\\x41\\u8bad\\t\"\ndata.train: [1, true, \"~\"]\n");
    assert_string_equal(c.run.dir, "010");
    assert_string_equal(c.model.preset, "yes");
    assert_string_equal(c.model.init, "null");
    assert_string_equal(c.model.family, "a\"b");
    assert_string_equal(c.data.tokenizer, "");
    assert_string_equal(c.sample.prompt, "A\xe8\xae\xad\t");
    assert_int_equal(c.data.train.n_items, 3);
    assert_string_equal(c.data.train.items[2], "~");
    yk_config_fini(&c);
}

static void a_later_text_goes_over_an_earlier_one(void **state)
{
    yk_config c;
    static const char again[] = "data.train: c\ntrain.batch: 5\n";
    (void)state;
    reads(&c, "data.train: [a, b]\ntrain.batch: 4\ntrain.steps: 9\n");
    assert_int_equal(yk_config_read(&c, "more.yaml", again, sizeof again - 1), YK_OK);
    assert_int_equal(c.data.train.n_items, 1);
    assert_string_equal(c.data.train.items[0], "c");
    assert_int_equal(c.train.batch, 5);
    assert_int_equal(c.train.steps, 9);
    yk_config_fini(&c);
}

/* ---- mistakes ----------------------------------------------------------------------------- */

typedef struct mistake {
    const char *text;
    const char *said; /* after "yoke: run.yaml:", without the line's end */
} mistake;

static void says(const mistake *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        yk_config c;
        heard h;
        char expected[512];
        snprintf(expected, sizeof expected, "yoke: run.yaml:%s\n", m[i].said);
        assert_int_equal(yk_config_init(&c), YK_OK);
        heard_begin(&h);
        yk_status status = yk_config_read(&c, "run.yaml", m[i].text, strlen(m[i].text));
        heard_take(&h);
        heard_end(&h);
        yk_config_fini(&c);
        assert_string_equal(h.text, expected);
        assert_int_equal(status, YK_EINVAL);
    }
}

#define SAYS(...)                                                                                  \
    do {                                                                                           \
        static const mistake mistakes[] = {__VA_ARGS__};                                           \
        says(mistakes, sizeof mistakes / sizeof mistakes[0]);                                      \
    } while (0)

static void an_unknown_key_names_its_line_and_the_nearest(void **state)
{
    (void)state;
    SAYS(
        {"train:\n  batch: 4\n  bacth: 5\n",
         "3: unknown key \"train.bacth\"; the nearest is train.batch (`yoke config` lists all)"},
        {"trian:\n  batch: 4\n",
         "1: unknown key \"trian\"; the nearest is train (`yoke config` lists all)"},
        {"\n\nlearning_rate: 1\n",
         "3: unknown key \"learning_rate\"; the nearest is optim.lr (`yoke config` lists all)"},
        {"train:\nbatch: 4\n",
         "2: unknown key \"batch\"; the nearest is train.batch (`yoke config` lists all)"},
        {"train.batch.size: 4\n", "1: unknown key \"train.batch.size\"; the nearest is train.batch "
                                  "(`yoke config` lists all)"},
        {"precision:\n  loss_scale:\n    strat: 4\n",
         "3: unknown key \"precision.loss_scale.strat\"; the nearest is precision.loss_scale.start "
         "(`yoke config` lists all)"},
        {"<<: {}\n", "1: unknown key \"<<\" (`yoke config` lists all)"},
        {"model:\n  attn_pdrop: 0.1\n",
         "2: unknown key \"model.attn_pdrop\"; there is no dropout here, remove the line"});
}

static void a_key_given_twice_names_both_lines(void **state)
{
    (void)state;
    SAYS({"train:\n  batch: 4\n  steps: 3\n  batch: 4\n",
          "4: train.batch: given twice, first on line 2; keep one"},
         {"train:\n  batch: 4\ndata: {}\ntrain:\n  steps: 4\n",
          "4: train: given twice, first on line 1; keep one"},
         {"train:\n  batch: 4\ntrain.batch: 4\n",
          "3: train.batch: given twice, first on line 2; keep one"},
         {"precision:\n  loss_scale: {}\nprecision.loss_scale: {}\n",
          "3: precision.loss_scale: given twice, first on line 2; keep one"});
}

static void a_value_of_the_wrong_type_says_what_was_found_and_what_is_wanted(void **state)
{
    (void)state;
    SAYS(
        {"train:\n  batch: many\n",
         "2: train.batch: \"many\" is not a whole number; give a whole number, 1 to 1000000"},
        {"train.micro_batch: some", "1: train.micro_batch: \"some\" is not a whole number; give a "
                                    "whole number, 1 to 1000000, or auto"},
        {"train.batch: 1.5",
         "1: train.batch: \"1.5\" is not a whole number; give a whole number, 1 to 1000000"},
        {"train.batch: 010", "1: train.batch: \"010\" begins with a 0, which some read as octal; "
                             "give a whole number, 1 to 1000000"},
        {"train.batch: 1_000", "1: train.batch: \"1_000\" has a separator between its digits; give "
                               "a whole number, 1 to 1000000"},
        {"train.batch: 0x10",
         "1: train.batch: \"0x10\" is not decimal; give a whole number, 1 to 1000000"},
        {"train.batch: true",
         "1: train.batch: \"true\" is not a whole number; give a whole number, 1 to 1000000"},
        {"train.batch: auto",
         "1: train.batch: \"auto\" is not a whole number; give a whole number, 1 to 1000000"},
        {"train.batch: \"8\"", "1: train.batch: \"8\" is a string, because of its quotes; give a "
                               "whole number, 1 to 1000000"},
        {"train.batch: [8]", "1: train.batch: a list is given; give a whole number, 1 to 1000000"},
        {"train.batch: {a: 8}",
         "1: train.batch: a mapping is given; give a whole number, 1 to 1000000"},
        {"train.batch:\n  - 8\n",
         "2: train.batch: a list is given; give a whole number, 1 to 1000000"},
        {"optim.lr: fast", "1: optim.lr: \"fast\" is not a number; give a number, 0 to 100"},
        {"optim.lr: 1/3", "1: optim.lr: \"1/3\" is not a number; give a number, 0 to 100"},
        {"data.doc_mask: maybe",
         "1: data.doc_mask: \"maybe\" is not a truth value; give true or false"},
        {"data.doc_mask: 1", "1: data.doc_mask: \"1\" is not a truth value; give true or false"},
        {"data.doc_mask: y", "1: data.doc_mask: \"y\" is not a truth value; give true or false"},
        {"model.tied: maybe",
         "1: model.tied: \"maybe\" is not a truth value; give true, false or auto"},
        {"precision.compute: fp23",
         "1: precision.compute: \"fp23\" is not a choice, the nearest is "
         "fp32; give one of fp32, bf16, fp16"},
        {"device: gpu",
         "1: device: \"gpu\" is not a choice, the nearest is cuda; give one of auto, cpu, cuda"},
        {"memory.device_limit: 24G", "1: memory.device_limit: \"24G\" is not a size in bytes; give "
                                     "a size such as 24GiB or 512MiB, 0 to 64TiB"},
        {"run.dir: [a]", "1: run.dir: a list is given; give a string"},
        {"data.train: {a: b}",
         "1: data.train: a mapping is given; give a string or a list of strings, [a, b]"},
        {"data.train:\n  - a\n  - [b]\n",
         "3: data.train: an item is not a string; give a string or a list of strings, [a, b]"},
        {"data.train:\n  - a\n  -\n", "3: data.train: an item is empty; remove it"},
        {"data.train: [a, \"\"]", "1: data.train: an item is empty; remove it"},
        {"train: 5\n", "1: train: a value is given, but this is a section; put its keys below it, "
                       "indented, the first is train.batch"},
        {"train: ~\n", "1: train: a value is given, but this is a section; put its keys below it, "
                       "indented, the first is train.batch"},
        {"train:\n- batch: 5\n", "2: train: a list is given, but this is a section; put its keys "
                                 "below it, indented, the first is train.batch"});
}

static void a_value_out_of_range_says_the_range(void **state)
{
    (void)state;
    SAYS(
        {"train.batch: 0",
         "1: train.batch: \"0\" is out of range; give a whole number, 1 to 1000000"},
        {"train.micro_batch: -1", "1: train.micro_batch: \"-1\" is out of range; give a whole "
                                  "number, 1 to 1000000, or auto"},
        {"train.seed: -1", "1: train.seed: \"-1\" is out of range; give a whole number, 0 or more"},
        {"train.seed: 9223372036854775808", "1: train.seed: \"9223372036854775808\" is too large "
                                            "to be held; give a whole number, 0 or "
                                            "more"},
        {"optim.beta1: 1", "1: optim.beta1: \"1\" is out of range; give a number, 0 to below 1"},
        {"optim.lr: -1e-9", "1: optim.lr: \"-1e-9\" is out of range; give a number, 0 to 100"},
        {"optim.eps: 0", "1: optim.eps: \"0\" is out of range; give a number, 1e-30 to 1"},
        {"optim.lr: .nan", "1: optim.lr: \".nan\" is not finite; give a number, 0 to 100"},
        {"optim.lr: -.inf", "1: optim.lr: \"-.inf\" is not finite; give a number, 0 to 100"},
        {"optim.lr: 1e999",
         "1: optim.lr: \"1e999\" is too large to be held; give a number, 0 to 100"},
        {"memory.device_limit: 1000TiB",
         "1: memory.device_limit: \"1000TiB\" is out of range; give "
         "a size such as 24GiB or 512MiB, 0 to 64TiB"});
}

static void a_value_that_is_missing_is_not_a_default(void **state)
{
    (void)state;
    SAYS({"train:\n  batch:\n  steps: 4\n",
          "2: train.batch: the value is missing; give a whole number, 1 to 1000000"},
         {"train.batch: ~", "1: train.batch: ~ is no value; give a whole number, 1 to 1000000"},
         {"train.batch: NULL",
          "1: train.batch: NULL is no value; give a whole number, 1 to 1000000"},
         {"run.dir: null",
          "1: run.dir: null is no value; give a string, in quotes if this is it, or "
          "remove the key"},
         {"data.train:", "1: data.train: the value is missing; give a string, in quotes if this is "
                         "it, or remove the key"});
}

static void what_is_not_yaml_says_where(void **state)
{
    (void)state;
    SAYS(
        {"train:\n\tbatch: 3\n", "2: not YAML: column 1: found character that cannot start any "
                                 "token; indent with spaces, not tabs"},
        {"train: {batch: 3\n",
         "2: not YAML: column 1: did not find expected ',' or '}', while parsing a flow mapping "
         "that "
         "begins on line 1; look at the indentation, colons, brackets and quotes there"},
        {"run.dir: \"abc\n\n",
         "3: not YAML: column 1: found unexpected end of stream, while scanning a quoted scalar "
         "that "
         "begins on line 1; look at the indentation, colons, brackets and quotes there"},
        {"train:\n  batch: 3\n steps: 4\n",
         "3: not YAML: column 2: did not find expected key, while parsing a block mapping that "
         "begins on line 1; look at the indentation, colons, brackets and quotes there"},
        {"run.dir: a: b\n",
         "1: not YAML: column 11: mapping values are not allowed in this context; "
         "look at the indentation, colons, brackets and quotes there"},
        {"data.train: *.txt\n",
         "1: not YAML: column 14: did not find expected alphabetic or numeric "
         "character; put a value that begins with * or & in quotes"},
        {"run.dir: @a\n",
         "1: not YAML: column 10: found character that cannot start any token; look "
         "at the indentation, colons, brackets and quotes there"},
        {"# \xe8\xae\xad\n# \xff\n",
         "2: invalid leading UTF-8 octet (byte 8); save it as plain UTF-8 text"},
        {"a: \x01\n",
         "1: control characters are not allowed (byte 3); save it as plain UTF-8 text"},
        {"# \xed\xa0\x80\n", "1: invalid Unicode character (byte 2); save it as plain UTF-8 text"});
}

static void what_is_more_than_a_mapping_is_refused(void **state)
{
    (void)state;
    SAYS({"- a\n", "1: a list is given, not keys with values; write `key: value` lines"},
         {"\nabc\n", "2: a single value is given, not keys with values; write `key: value` lines"},
         {"~", "1: a single value is given, not keys with values; write `key: value` lines"},
         {"train: {}\n---\nrun: {}\n", "2: a second document begins (---); keep one in a file"},
         {"train: &t\n  batch: 3\n",
          "1: an anchor (&) is not understood here; remove it, or put the "
          "value in quotes"},
         {"run.dir: &d x\n",
          "1: an anchor (&) is not understood here; remove it, or put the value in quotes"},
         {"data.train: *a\n",
          "1: an alias (*) is not understood here; write the value out, in quotes "
          "if it begins so"},
         {"optim.lr: !!float 3\n",
          "1: a tag (!) is not understood here; remove it, or put the value in quotes"},
         {"run.dir: \"a\\0b\"\n", "1: a NUL character is in the text; remove it"},
         {"\"tr\\0ain\": {}\n", "1: a NUL character is in the text; remove it"},
         {"? [a]\n: b\n", "1: a key here is not a name; write it as `key: value`"},
         {"\"\": b\n", "1: a key here is not a name; write it as `key: value`"},
         {"train: {[a]: b}\n", "1: train: a key here is not a name; write it as `key: value`"});
}

static void nul_bytes_and_other_encodings_are_refused(void **state)
{
    static const char nul[] = "train:\0\n";
    static const char utf16[] = "\xff\xfet\0r\0";
    yk_config c;
    heard h;
    (void)state;
    assert_int_equal(yk_config_init(&c), YK_OK);
    heard_begin(&h);
    yk_status first = yk_config_read(&c, "run.yaml", nul, sizeof nul - 1);
    yk_status second = yk_config_read(&c, "run.yaml", utf16, sizeof utf16 - 1);
    heard_take(&h);
    heard_end(&h);
    yk_config_fini(&c);
    assert_int_equal(first, YK_EINVAL);
    assert_int_equal(second, YK_EINVAL);
    assert_string_equal(h.text,
                        "yoke: run.yaml:1: control characters are not allowed (byte 6); save "
                        "it as plain UTF-8 text\n"
                        "yoke: run.yaml:1: invalid leading UTF-8 octet (byte 0); save it as "
                        "plain UTF-8 text\n");
}

static void deep_and_long_files_are_refused_at_once(void **state)
{
    static const char *const units[] = {"[",    "{",  "{a: ", "- ", "a:\n ", "? ",
                                        "[a, ", "\"", "#\n",  "!",  "&a "};
    size_t n = YK_CONFIG_TEXT_MAX;
    char *text = malloc(n + 1);
    (void)state;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        yk_config c;
        heard h;
        size_t unit = strlen(units[i]);
        for (size_t at = 0; at <= n; at++) text[at] = units[i][at % unit];
        assert_int_equal(yk_config_init(&c), YK_OK);
        heard_begin(&h);
        yk_status status = yk_config_read(&c, "run.yaml", text, n);
        yk_status longer = yk_config_read(&c, "run.yaml", text, n + 1);
        heard_take(&h);
        heard_end(&h);
        yk_config_fini(&c);
        assert_int_equal(status, units[i][0] == '#' ? YK_OK : YK_EINVAL);
        assert_int_equal(longer, YK_EINVAL);
        assert_int_equal(heard_lines(h.text), status == YK_OK ? 1 : 2);
        assert_non_null(strstr(h.text, "yoke: run.yaml: 1048577 bytes are too many for a "
                                       "configuration; is it another file?\n"));
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file_is_read),
        cmocka_unit_test(nothing_at_all_leaves_the_defaults),
        cmocka_unit_test(dotted_names_line_ends_and_quoted_keys_are_read),
        cmocka_unit_test(truth_has_the_words_of_both_yaml_versions),
        cmocka_unit_test(strings_are_taken_as_they_stand),
        cmocka_unit_test(a_later_text_goes_over_an_earlier_one),
        cmocka_unit_test(an_unknown_key_names_its_line_and_the_nearest),
        cmocka_unit_test(a_key_given_twice_names_both_lines),
        cmocka_unit_test(a_value_of_the_wrong_type_says_what_was_found_and_what_is_wanted),
        cmocka_unit_test(a_value_out_of_range_says_the_range),
        cmocka_unit_test(a_value_that_is_missing_is_not_a_default),
        cmocka_unit_test(what_is_not_yaml_says_where),
        cmocka_unit_test(what_is_more_than_a_mapping_is_refused),
        cmocka_unit_test(nul_bytes_and_other_encodings_are_refused),
        cmocka_unit_test(deep_and_long_files_are_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
