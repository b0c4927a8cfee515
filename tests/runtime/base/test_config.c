/* tests/runtime/base/test_config.c - the table of keys, defaults, single keys set, and what must go
 * together. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/config_keys.h"
#include "tests/runtime/base/heard.h"

/* ---- the table ---------------------------------------------------------------------------- */

static size_t size_of_type(yk_key_type type)
{
    switch (type) {
    case YK_KEY_INT:
    case YK_KEY_BYTES:
        return sizeof(int64_t);
    case YK_KEY_REAL:
        return sizeof(double);
    case YK_KEY_BOOL:
        return sizeof(bool);
    case YK_KEY_TERNARY:
    case YK_KEY_ENUM:
    case YK_KEY_DTYPE:
        return sizeof(int);
    case YK_KEY_STRING:
        return sizeof(char *);
    case YK_KEY_SET:
        return sizeof(int);
    case YK_KEY_LIST:
        return sizeof(yk_string_list);
    }
    return 0;
}

static void each_key_has_what_its_type_needs(void **state)
{
    (void)state;
    assert_true(yk_config_n_keys <= YK_CONFIG_KEYS_MAX);
    for (int i = 0; i < yk_config_n_keys; i++) {
        const yk_config_key *k = &yk_config_keys[i];
        bool choice = k->type == YK_KEY_ENUM || k->type == YK_KEY_DTYPE || k->type == YK_KEY_SET;
        int depth = 1;
        for (const char *c = k->name; *c; c++) depth += *c == '.';
        if (k->size != size_of_type(k->type)) fail_msg("%s: size %zu", k->name, k->size);
        if (choice != (k->choices != NULL)) fail_msg("%s: choices", k->name);
        if (k->type == YK_KEY_INT && k->min >= k->max) fail_msg("%s: min, max", k->name);
        if (k->type == YK_KEY_REAL && k->low >= k->high) fail_msg("%s: low, high", k->name);
        if (!k->text || strlen(k->text) < 10) fail_msg("%s: text", k->name);
        if (k->text[strlen(k->text) - 1] != '.') fail_msg("%s: no full stop", k->name);
        if (strpbrk(k->text, "|<>\n")) fail_msg("%s: breaks a Markdown table", k->name);
        if (!k->initial) fail_msg("%s: no default", k->name);
        if (depth > YK_CONFIG_DEPTH_MAX) fail_msg("%s: too deep", k->name);
        if (strlen(k->name) >= YK_CONFIG_KEY_NAME_MAX) fail_msg("%s: too long", k->name);
        assert_int_equal(yk_config_find_key(k->name), i); /* no name twice */
        assert_int_equal(yk_config_find_section(k->name), -1);
    }
}

static void the_keys_fill_the_struct(void **state)
{
    size_t covered = 0;
    (void)state;
    for (int i = 0; i < yk_config_n_keys; i++) covered += yk_config_keys[i].size;
    /* Every member has a key: what is not covered is padding, less than a word a key. */
    assert_true(covered <= sizeof(yk_config));
    for (int i = 0; i + 1 < yk_config_n_keys; i++) {
        const yk_config_key *a = &yk_config_keys[i], *b = &yk_config_keys[i + 1];
        if (b->offset < a->offset + a->size || b->offset - (a->offset + a->size) >= 8)
            fail_msg("%s: a member before it has no key", b->name);
    }
}

static void defaults_are_as_documented(void **state)
{
    yk_config c;
    (void)state;
    assert_int_equal(yk_config_init(&c), YK_OK);
    assert_string_equal(c.run.dir, "");
    assert_string_equal(c.model.preset, "");
    assert_int_equal(c.model.tied, YK_AUTO);
    assert_int_equal(c.data.train.n_items, 0);
    assert_true(c.data.val_fraction == 0.05);
    assert_int_equal(c.data.doc_token, -1);
    assert_int_equal(c.train.batch, 32);
    assert_int_equal(c.train.micro_batch, YK_AUTO);
    assert_int_equal(c.train.seed, 1337);
    assert_true(c.optim.lr == 3e-4 && c.optim.weight_decay == 0.1 && c.optim.clip == 1);
    assert_true(c.optim.beta1 == 0.9 && c.optim.beta2 == 0.95 && c.optim.eps == 1e-8);
    assert_int_equal(c.schedule.kind, YK_SCHEDULE_COSINE);
    assert_true(c.schedule.final == 0.1);
    assert_int_equal(c.precision.compute, YK_F32);
    assert_int_equal(c.precision.grads, YK_AUTO);
    assert_true(c.precision.loss_scale.start == 65536 && c.precision.loss_scale.floor == 1);
    assert_int_equal(c.precision.loss_scale.growth_interval, 2000);
    assert_int_equal(c.guard.max_skips, 50);
    assert_int_equal(c.device, YK_DEVICE_CHOICE_AUTO);
    yk_config_fini(&c);
    yk_config_fini(&c); /* a second time does nothing */
}

/* ---- nearest ------------------------------------------------------------------------------ */

static void the_nearest_key_is_what_was_meant(void **state)
{
    static const char *const cases[][2] = {
        {"train.bacth", "train.batch"},
        {"trian.batch", "train.batch"},
        {"batch", "train.batch"},
        {"train", "train"},
        {"trian", "train"},
        {"modle", "model"},
        {"precison.loss_scale", "precision.loss_scale"},
        {"loss_scale.start", "precision.loss_scale.start"},
        {"optim.warmup", "schedule.warmup"},
        {"eval.batch", "eval.batches"},
        {"train.lr", "optim.lr"},
        {"train.learning_rate", "optim.lr"},
        {"learning_rate", "optim.lr"},
        {"optim.grad_clip", "optim.clip"},
        {"train.micro-batch", "train.micro_batch"},
        {"per_device_train_batch_size", "train.micro_batch"},
        {"model.n_layer", "model.layers"},
        {"model.hidden_size", "model.width"},
        {"max_steps", "train.steps"},
        {"train.block_size", "train.seq_len"},
        {"gradient_checkpointing", "memory.recompute"},
        {"Device", "device"},
        {"cpu.thread", "cpu.threads"},
    };
    char nearest[YK_CONFIG_KEY_NAME_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(yk_config_nearest(cases[i][0], nearest), cases[i][1]) != 0)
            fail_msg("%s: %s, not %s", cases[i][0], nearest, cases[i][1]);
}

/* ---- --set -------------------------------------------------------------------------------- */

static void set_reads_by_the_type_of_the_key(void **state)
{
    static const char *const assignments[] = {
        "train.batch=1e3",
        "train.micro_batch=8",
        "train.micro_batch=auto",
        "optim.lr=6e-4",
        "data.doc_mask=yes",
        "model.tied=off",
        "precision.compute=bf16",
        "precision.grads=fp32",
        "schedule.kind=wsd",
        "memory.device_limit=24GiB",
        "run.dir=runs/a b=c",
        "sample.prompt=\"In the\\nbeginning\"",
        "model.preset='it''s'",
        "data.train=*.txt",
        "data.val=[a.bin, \"b, c.bin\"]",
        "data.loss_mask=a.mask",
        "data.loss_mask=",
        "data.tokenizer=x",
        "data.tokenizer=",
        "device=cpu",
    };
    yk_config c;
    (void)state;
    assert_int_equal(yk_config_init(&c), YK_OK);
    for (size_t i = 0; i < sizeof assignments / sizeof assignments[0]; i++)
        if (yk_config_set(&c, assignments[i]) != YK_OK) fail_msg("%s", assignments[i]);
    assert_int_equal(c.train.batch, 1000);
    assert_int_equal(c.train.micro_batch, YK_AUTO);
    assert_true(c.optim.lr == 6e-4);
    assert_true(c.data.doc_mask);
    assert_int_equal(c.model.tied, 0);
    assert_int_equal(c.precision.compute, YK_BF16);
    assert_int_equal(c.precision.grads, YK_F32);
    assert_int_equal(c.schedule.kind, YK_SCHEDULE_WSD);
    assert_int_equal(c.memory.device_limit, INT64_C(24) << 30);
    assert_string_equal(c.run.dir, "runs/a b=c");
    assert_string_equal(c.sample.prompt, "In the\nbeginning");
    assert_string_equal(c.model.preset, "it's");
    assert_int_equal(c.data.train.n_items, 1);
    assert_string_equal(c.data.train.items[0], "*.txt");
    assert_int_equal(c.data.val.n_items, 2);
    assert_string_equal(c.data.val.items[1], "b, c.bin");
    assert_int_equal(c.data.loss_mask.n_items, 0);
    assert_string_equal(c.data.tokenizer, "");
    assert_int_equal(c.device, YK_DEVICE_CHOICE_CPU);
    yk_config_fini(&c);
}

static void a_wrong_assignment_names_the_argument_and_changes_nothing(void **state)
{
    static const char *const cases[][2] = {
        {"train.batch=x",
         "yoke: --set \"train.batch=x\": train.batch: \"x\" is not a whole number; "
         "give a whole number, 1 to 1000000\n"},
        {"train.batch=0", "yoke: --set \"train.batch=0\": train.batch: \"0\" is out of range; "
                          "give a whole number, 1 to 1000000\n"},
        {"train.batch=", "yoke: --set \"train.batch=\": train.batch: the value is missing; "
                         "give a whole number, 1 to 1000000\n"},
        {"train.batch=[1]", "yoke: --set \"train.batch=[1]\": train.batch: a list is given; "
                            "give a whole number, 1 to 1000000\n"},
        {"train.batch=\"8\"", "yoke: --set \"train.batch=\"8\"\": train.batch: \"8\" is a string, "
                              "because of its quotes; give a whole number, 1 to 1000000\n"},
        {"trian.batch=8", "yoke: --set \"trian.batch=8\": there is no such key; the nearest is "
                          "train.batch (`yoke config` lists all)\n"},
        {"train=8", "yoke: --set \"train=8\": train is a section; name a key of it, such as "
                    "train.batch\n"},
        {"train.batch", "yoke: --set \"train.batch\": there is no =; write --set key=value\n"},
        {"=8", "yoke: --set \"=8\": there is no such key (`yoke config` lists all)\n"},
        {"run.dir=a\xff",
         "yoke: --set \"run.dir=a?\": run.dir: \"a?\" is not UTF-8; give a string\n"},
        {"run.dir=null",
         "yoke: --set \"run.dir=null\": run.dir: null is no value; give a string, in "
         "quotes if this is it, or remove the key\n"},
        {"run.dir=\"a", "yoke: --set \"run.dir=\"a\": not YAML: column 3: found unexpected end of "
                        "stream; look at the indentation, colons, brackets and quotes there\n"},
        {"data.train=[a, \"\"]",
         "yoke: --set \"data.train=[a, \"\"]\": data.train: an item is empty; "
         "remove it\n"},
        {"precision.compute=float16", "yoke: --set \"precision.compute=float16\": "
                                      "precision.compute: \"float16\" is not a choice, "
                                      "the nearest is fp16; give one of fp32, bf16, fp16\n"},
    };
    yk_config c;
    (void)state;
    assert_int_equal(yk_config_init(&c), YK_OK);
    assert_int_equal(yk_config_set(&c, "run.dir=before"), YK_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        heard h;
        heard_begin(&h);
        yk_status status = yk_config_set(&c, cases[i][0]);
        heard_take(&h);
        heard_end(&h);
        assert_int_equal(status, YK_EINVAL);
        assert_string_equal(h.text, cases[i][1]);
    }
    assert_int_equal(c.train.batch, 32);
    assert_int_equal(c.data.train.n_items, 0);
    assert_string_equal(c.run.dir, "before");
    yk_config_fini(&c);
}

/* ---- what must go together ---------------------------------------------------------------- */

/* Set what is in `assignments` (NULL ends) over a right configuration, check, and compare. */
static void check_says(const char *const *assignments, const char *expected)
{
    yk_config c;
    heard h;
    assert_int_equal(yk_config_init(&c), YK_OK);
    assert_int_equal(yk_config_set(&c, "model.preset=tiny-gpt2"), YK_OK);
    assert_int_equal(yk_config_set(&c, "data.train=a.txt"), YK_OK);
    for (; *assignments; assignments++) assert_int_equal(yk_config_set(&c, *assignments), YK_OK);
    heard_begin(&h);
    yk_status status = yk_config_check(&c);
    heard_take(&h);
    heard_end(&h);
    yk_config_fini(&c);
    assert_string_equal(h.text, expected);
    assert_int_equal(status, expected[0] ? YK_EINVAL : YK_OK);
}

#define CHECK_SAYS(expected, ...) check_says((const char *const[]){__VA_ARGS__}, expected)

static void a_plan_needs_a_model(void **state)
{
    (void)state;
    CHECK_SAYS("", NULL);
    CHECK_SAYS("", "model.preset=", "model.init=dir", NULL);
    CHECK_SAYS("", "model.preset=", "model.family=gpt2", "model.layers=2", NULL);
    CHECK_SAYS(
        "yoke: model: no model is given; set model.preset (such as gpt2-124m), model.init (a "
        "Hugging Face directory) or model.family and its sizes\n",
        "model.preset=", NULL);
    CHECK_SAYS("", "model.init=dir", NULL);
    CHECK_SAYS("", "data.train=", "eval.every=10", NULL);
}

static void a_run_needs_data_too(void **state)
{
    (void)state;
    yk_config c;
    heard h;
    assert_int_equal(yk_config_init(&c), YK_OK);
    heard_begin(&h);
    yk_status status = yk_config_check_data(&c);
    heard_take(&h);
    heard_end(&h);
    assert_int_equal(status, YK_EINVAL);
    assert_string_equal(h.text, "yoke: data.train: no data is given; set data.train to a file\n");
    assert_int_equal(yk_config_set(&c, "data.train=a.txt"), YK_OK);
    assert_int_equal(yk_config_check_data(&c), YK_OK);
    yk_config_fini(&c);
}

static void a_batch_that_does_not_divide_names_the_nearest(void **state)
{
    (void)state;
    CHECK_SAYS("", "train.batch=32", "train.micro_batch=8", NULL);
    CHECK_SAYS("", "train.batch=7", "train.micro_batch=auto", NULL);
    CHECK_SAYS("yoke: train.batch: 30 is not a multiple of train.micro_batch, 8; the nearest that "
               "is: 32\n",
               "train.batch=30", "train.micro_batch=8", NULL);
    CHECK_SAYS("yoke: train.batch: 35 is not a multiple of train.micro_batch, 8; the nearest that "
               "is: 32\n",
               "train.batch=35", "train.micro_batch=8", NULL);
    CHECK_SAYS("yoke: train.batch: 3 is not a multiple of train.micro_batch, 8; the nearest that "
               "is: 8\n",
               "train.batch=3", "train.micro_batch=8", NULL);
    CHECK_SAYS("yoke: train.batch: 1000000 is not a multiple of train.micro_batch, 999999; the "
               "nearest that is: 999999\n",
               "train.batch=1000000", "train.micro_batch=999999", NULL);
}

static void steps_lengths_and_scales_go_together(void **state)
{
    (void)state;
    CHECK_SAYS("", "train.steps=10", "schedule.warmup=10", NULL);
    CHECK_SAYS(
        "yoke: schedule.warmup: 11 steps are more than train.steps, 10; lower schedule.warmup, or "
        "raise train.steps\n",
        "train.steps=10", "schedule.warmup=11", NULL);
    CHECK_SAYS("", "model.max_seq_len=64", "train.seq_len=64", NULL);
    CHECK_SAYS("yoke: train.seq_len: 65 is longer than model.max_seq_len, 64; lower it or raise "
               "that\n",
               "model.max_seq_len=64", "train.seq_len=65", NULL);
    CHECK_SAYS("", "eval.every=10", "data.val_fraction=0", "data.val=b.txt", NULL);
    CHECK_SAYS("yoke: eval.every: there is no validation data to evaluate on; set data.val, or "
               "data.val_fraction above 0\n",
               "eval.every=10", "data.val_fraction=0", NULL);
    CHECK_SAYS("", "precision.loss_scale.start=4", "precision.loss_scale.floor=4",
               "precision.loss_scale.ceiling=4", NULL);
    CHECK_SAYS("yoke: precision.loss_scale: start, 2, is not between floor, 4, and ceiling, 8; "
               "change one of them\n",
               "precision.loss_scale.start=2", "precision.loss_scale.floor=4",
               "precision.loss_scale.ceiling=8", NULL);
}

/* ---- the table, printed ------------------------------------------------------------------- */

static char *printed(const char *key, bool markdown, yk_status *status_out)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    *status_out = yk_config_print_keys(key, markdown, out);
    fclose(out);
    return text;
}

static void one_key_a_section_or_all_are_printed(void **state)
{
    yk_status status;
    (void)state;
    char *text = printed("train.batch", false, &status);
    assert_int_equal(status, YK_OK);
    assert_non_null(strstr(text, "train.batch  (int, sequences; 1 to 1000000; default 32)\n"));
    assert_null(strstr(text, "train.micro_batch  ("));
    free(text);

    text = printed("precision.loss_scale", false, &status);
    assert_int_equal(status, YK_OK);
    assert_non_null(strstr(text, "precision.loss_scale.floor  ("));
    assert_null(strstr(text, "precision.compute  ("));
    free(text);

    for (int markdown = 0; markdown < 2; markdown++) {
        text = printed(NULL, markdown, &status);
        assert_int_equal(status, YK_OK);
        for (int i = 0; i < yk_config_n_keys; i++) {
            char head[128];
            snprintf(head, sizeof head, markdown ? "\n| `%s` | " : "%s  (", yk_config_keys[i].name);
            if (!strstr(text, head)) fail_msg("%s is missing", yk_config_keys[i].name);
        }
        free(text);
    }
}

static void lines_for_people_fit_their_screen(void **state)
{
    yk_status status;
    (void)state;
    char *text = printed(NULL, false, &status);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strlen(line) > 88) fail_msg("%s", line);
    free(text);
}

static void an_unknown_key_is_not_printed(void **state)
{
    yk_status status;
    heard h;
    (void)state;
    heard_begin(&h);
    char *text = printed("trian", false, &status);
    heard_take(&h);
    heard_end(&h);
    assert_int_equal(status, YK_EINVAL);
    assert_string_equal(text, "");
    assert_string_equal(h.text, "yoke: config: there is no key \"trian\"; the nearest is train\n");
    free(text);
}

static void a_full_disk_is_reported(void **state)
{
    yk_config c;
    heard h;
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (!full) skip();
    assert_int_equal(yk_config_init(&c), YK_OK);
    heard_begin(&h);
    yk_status status = yk_config_write(&c, full);
    heard_take(&h);
    heard_end(&h);
    fclose(full);
    yk_config_fini(&c);
    assert_int_equal(status, YK_EIO);
    assert_string_equal(h.text,
                        "yoke: configuration: cannot be written: No space left on device\n");
}

static void a_set_of_choices_is_a_list_or_one_of_them(void **state)
{
    (void)state;
    yk_config c;
    heard h;
    assert_int_equal(yk_config_init(&c), YK_OK);
    assert_int_equal(c.memory.offload, 0);
    assert_int_equal(yk_config_set(&c, "memory.offload=[moments, grads]"), YK_OK);
    assert_int_equal(c.memory.offload, YK_OFFLOAD_MOMENTS | YK_OFFLOAD_GRADS);
    assert_int_equal(yk_config_set(&c, "memory.offload=params"), YK_OK);
    assert_int_equal(c.memory.offload, YK_OFFLOAD_PARAMS);
    heard_begin(&h);
    assert_int_equal(yk_config_set(&c, "memory.offload=[params, moment]"), YK_EINVAL);
    heard_take(&h);
    heard_end(&h);
    assert_non_null(strstr(h.text, "the nearest is moments"));
    assert_int_equal(c.memory.offload, YK_OFFLOAD_PARAMS); /* as it was */
    assert_int_equal(yk_config_set(&c, "memory.offload="), YK_OK);
    assert_int_equal(c.memory.offload, 0);
    yk_config_fini(&c);
}

static void offload_and_states_that_do_not_go_together_are_refused(void **state)
{
    (void)state;
    check_says((const char *[]){"precision.compute=bf16", "precision.master=bf16",
                                "precision.moments=bf16", "memory.offload=[moments, params]", NULL},
               "");
    check_says((const char *[]){"precision.master=bf16", NULL},
               "yoke: precision.master: bf16 under weights that the model reads in fp32 saves "
               "nothing; set precision.compute: bf16, or leave it fp32\n");
    check_says(
        (const char *[]){"precision.compute=bf16", "precision.master=bf16", "memory.offload=master",
                         NULL},
        "yoke: memory.offload: master: with precision.compute and precision.master both bf16 "
        "the master weights are what the model reads; write params for it\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_has_what_its_type_needs),
        cmocka_unit_test(the_keys_fill_the_struct),
        cmocka_unit_test(defaults_are_as_documented),
        cmocka_unit_test(a_set_of_choices_is_a_list_or_one_of_them),
        cmocka_unit_test(offload_and_states_that_do_not_go_together_are_refused),
        cmocka_unit_test(the_nearest_key_is_what_was_meant),
        cmocka_unit_test(set_reads_by_the_type_of_the_key),
        cmocka_unit_test(a_wrong_assignment_names_the_argument_and_changes_nothing),
        cmocka_unit_test(a_plan_needs_a_model),
        cmocka_unit_test(a_run_needs_data_too),
        cmocka_unit_test(a_batch_that_does_not_divide_names_the_nearest),
        cmocka_unit_test(steps_lengths_and_scales_go_together),
        cmocka_unit_test(one_key_a_section_or_all_are_printed),
        cmocka_unit_test(lines_for_people_fit_their_screen),
        cmocka_unit_test(an_unknown_key_is_not_printed),
        cmocka_unit_test(a_full_disk_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
