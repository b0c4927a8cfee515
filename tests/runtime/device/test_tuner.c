/* tests/runtime/device/test_tuner.c - choices of kernels: known, told to others, kept on disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/device/tuner.h"
#include "runtime/storage/file.h"
#include "tests/runtime/base/heard.h"
#include "tests/runtime/scratch.h"

#define HERE  "NVIDIA H200 sm_90 driver 13000 cuBLASLt 130100"
#define THERE "NVIDIA H200 sm_90 driver 13000 cuBLASLt 130101"

static yk_tuner *tuner_of(const char *identity)
{
    yk_tuner *t;
    assert_int_equal(yk_tuner_create(identity, &t), YK_OK);
    return t;
}

static void add(yk_tuner *t, int key, int choice)
{
    yk_tuner_add(t, &key, sizeof key, &choice, sizeof choice);
}

/* The choice of `key`, or -1. */
static int choice_of(const yk_tuner *t, int key)
{
    int choice;
    return yk_tuner_find(t, &key, sizeof key, &choice, sizeof choice) ? choice : -1;
}

static void what_is_known_is_found(void **state)
{
    (void)state;
    yk_tuner *t = tuner_of(HERE);
    for (int i = 0; i < 500; i++) add(t, i, 3 * i);
    add(t, 7, 5); /* the first choice of a key stands */
    for (int i = 0; i < 500; i++) assert_int_equal(choice_of(t, i), 3 * i);
    assert_int_equal(choice_of(t, 500), -1);
    char other[8] = {0}; /* a choice of another size is not that choice */
    int key = 7;
    assert_false(yk_tuner_find(t, &key, sizeof key, other, sizeof other));
    yk_tuner_destroy(t);
}

static void other_ranks_know_what_is_told_and_race_no_more(void **state)
{
    (void)state;
    char *text;
    int64_t bytes;
    yk_tuner *from = tuner_of(HERE), *to = tuner_of(HERE);
    assert_int_equal(yk_tuner_open(to, YK_TUNE_CACHED, ""), YK_OK);
    add(from, 1, 10);
    add(from, -1, -20);
    add(to, 1, 99);
    assert_int_equal(yk_tuner_export(from, &text, &bytes), YK_OK);
    assert_int_equal(yk_tuner_import(to, text, bytes), YK_OK);
    assert_int_equal(choice_of(to, 1), 10);
    assert_int_equal(choice_of(to, -1), -20);
    assert_false(yk_tuner_races(to));
    free(text);
    yk_tuner_destroy(from);
    yk_tuner_destroy(to);
}

static void a_race_within_a_race_counts_its_time_once(void **state)
{
    (void)state;
    yk_tuner *t = tuner_of(HERE);
    yk_tune_sum before = yk_tuner_sum(t), within;
    assert_int_equal(before.n, 0);
    within = yk_tuner_sum(t);
    yk_tuner_note(t, &within, 0.25, 4, 3);
    yk_tuner_note(t, &before, 1, 8, 8);
    before = yk_tuner_sum(t);
    yk_tuner_note(t, &before, 2, 1, 0.5);
    yk_tune_sum sum = yk_tuner_sum(t);
    assert_int_equal(sum.n, 3);
    assert_true(sum.seconds == 3 && sum.first_ms == 13 && sum.taken_ms == 11.5);
    yk_tuner_destroy(t);
}

static void only_a_full_race_takes_its_time(void **state)
{
    (void)state;
    yk_tuner *t = tuner_of(HERE);
    for (int how = YK_TUNE_OFF; how <= YK_TUNE_FULL; how++) {
        assert_int_equal(yk_tuner_open(t, (yk_tune)how, ""), YK_OK);
        assert_int_equal(yk_tuner_is_thorough(t), how == YK_TUNE_FULL);
    }
    yk_tuner_destroy(t);
}

static void choices_of_other_libraries_are_left_out(void **state)
{
    (void)state;
    heard h;
    char *text;
    int64_t bytes;
    yk_tuner *from = tuner_of(THERE), *to = tuner_of(HERE);
    add(from, 1, 10);
    assert_int_equal(yk_tuner_export(from, &text, &bytes), YK_OK);
    heard_begin(&h);
    yk_status status = yk_tuner_import(to, text, bytes);
    bool warned = strstr(heard_take(&h), "warning: tune:") != NULL;
    heard_end(&h);
    assert_int_equal(status, YK_OK);
    assert_true(warned);
    assert_int_equal(choice_of(to, 1), -1);
    free(text);
    yk_tuner_destroy(from);
    yk_tuner_destroy(to);
}

static void a_text_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "yoke choices 2: " HERE,
                                        "yoke choices 1: " HERE "\n",
                                        "yoke choices 2: " HERE "\n01",
                                        "yoke choices 2: " HERE "\n01 \n",
                                        "yoke choices 2: " HERE "\n01 02",
                                        "yoke choices 2: " HERE "\n01 0\n",
                                        "yoke choices 2: " HERE "\n01 02 03\n",
                                        "yoke choices 2: " HERE "\n\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        yk_tuner *t = tuner_of(HERE);
        assert_int_equal(yk_tuner_import(t, texts[i], (int64_t)strlen(texts[i])), YK_EFORMAT);
        yk_tuner_destroy(t);
    }
}

/* ---- on disk ------------------------------------------------------------------------------ */

/* Run: open `folder`, find `known` choices of keys 0 .. known-1, add the next. */
static void run_once(const char *identity, yk_tune how, const char *folder, int known)
{
    yk_tuner *t = tuner_of(identity);
    assert_int_equal(yk_tuner_open(t, how, folder), YK_OK);
    for (int i = 0; i < known; i++) assert_int_equal(choice_of(t, i), 100 + i);
    assert_int_equal(choice_of(t, known), -1);
    add(t, known, 100 + known);
    yk_tuner_destroy(t);
}

static void a_run_knows_what_earlier_runs_found(void **state)
{
    char *folder = *state, deep[512];
    snprintf(deep, sizeof deep, "%s/not/there/yet", folder);
    run_once(HERE, YK_TUNE_CACHED, deep, 0);
    run_once(HERE, YK_TUNE_CACHED, deep, 1);
    run_once(HERE, YK_TUNE_KNOWN, deep, 2); /* looks only */
    run_once(HERE, YK_TUNE_OFF, deep, 0);
    run_once(THERE, YK_TUNE_CACHED, deep, 0); /* a file of its own */
    run_once(HERE, YK_TUNE_CACHED, deep, 2);
}

static void two_runs_at_a_time_keep_the_choices_of_both(void **state)
{
    char *folder = *state;
    yk_tuner *a = tuner_of(HERE), *b = tuner_of(HERE);
    assert_int_equal(yk_tuner_open(a, YK_TUNE_CACHED, folder), YK_OK);
    assert_int_equal(yk_tuner_open(b, YK_TUNE_CACHED, folder), YK_OK);
    add(a, 0, 100);
    add(b, 1, 101);
    yk_tuner_destroy(a);
    yk_tuner_destroy(b);
    run_once(HERE, YK_TUNE_KNOWN, folder, 2);
}

static void a_choice_is_on_disk_as_soon_as_it_is_made(void **state)
{
    char *folder = *state;
    yk_tuner *killed = tuner_of(HERE);
    assert_int_equal(yk_tuner_open(killed, YK_TUNE_CACHED, folder), YK_OK);
    add(killed, 0, 100);
    run_once(HERE, YK_TUNE_KNOWN, folder, 1);
    yk_tuner_destroy(killed);
}

static void choices_that_are_made_anew_take_the_place_of_the_old(void **state)
{
    char *folder = *state;
    run_once(HERE, YK_TUNE_CACHED, folder, 0);
    run_once(HERE, YK_TUNE_CACHED, folder, 1);
    yk_tuner *t = tuner_of(HERE);
    assert_int_equal(yk_tuner_open(t, YK_TUNE_FULL, folder), YK_OK);
    assert_int_equal(choice_of(t, 0), -1);
    add(t, 0, 200);
    assert_int_equal(choice_of(t, 1), -1); /* it is made anew, too */
    yk_tuner_destroy(t);
    t = tuner_of(HERE);
    assert_int_equal(yk_tuner_open(t, YK_TUNE_KNOWN, folder), YK_OK);
    assert_int_equal(choice_of(t, 0), 200);
    assert_int_equal(choice_of(t, 1), 101);
    yk_tuner_destroy(t);
}

static void a_damaged_file_is_made_again(void **state)
{
    char *folder = *state, path[1024];
    yk_file_list files;
    heard h;
    run_once(HERE, YK_TUNE_CACHED, folder, 0);
    snprintf(path, sizeof path, "%s/*.choices", folder);
    assert_int_equal(yk_file_glob(path, &files), YK_OK);
    assert_int_equal(files.n_items, 1);
    assert_int_equal(yk_file_replace(files.items[0], "nonsense", 8), YK_OK);
    yk_file_list_fini(&files);
    heard_begin(&h);
    run_once(HERE, YK_TUNE_CACHED, folder, 0);
    bool warned = strstr(heard_take(&h), "it is damaged") != NULL;
    heard_end(&h);
    assert_true(warned);
    run_once(HERE, YK_TUNE_CACHED, folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_known_is_found),
        cmocka_unit_test(other_ranks_know_what_is_told_and_race_no_more),
        cmocka_unit_test(a_race_within_a_race_counts_its_time_once),
        cmocka_unit_test(only_a_full_race_takes_its_time),
        cmocka_unit_test(choices_of_other_libraries_are_left_out),
        cmocka_unit_test(a_text_that_is_none_is_refused),
        cmocka_unit_test_setup_teardown(a_run_knows_what_earlier_runs_found, scratch_set_up,
                                        scratch_tear_down),
        cmocka_unit_test_setup_teardown(two_runs_at_a_time_keep_the_choices_of_both, scratch_set_up,
                                        scratch_tear_down),
        cmocka_unit_test_setup_teardown(a_choice_is_on_disk_as_soon_as_it_is_made, scratch_set_up,
                                        scratch_tear_down),
        cmocka_unit_test_setup_teardown(choices_that_are_made_anew_take_the_place_of_the_old,
                                        scratch_set_up, scratch_tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_made_again, scratch_set_up,
                                        scratch_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
