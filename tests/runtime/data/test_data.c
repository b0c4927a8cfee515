/* tests/runtime/data/test_data.c - windows, the split, documents and masks of a dataset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/data/data.h"
#include "tests/runtime/data/shards.h"

#define T_MAX 64

/* A row and the arrays it points to. */
typedef struct filled {
    int32_t tokens[T_MAX], targets[T_MAX], positions[T_MAX], doc_start[T_MAX];
} filled;

static void fill(const yk_dataset *d, yk_split split, int64_t window, filled *f)
{
    yk_row row = {.tokens = f->tokens,
                  .targets = f->targets,
                  .positions = f->positions,
                  .doc_start = yk_dataset_n_fields(d) > 3 ? f->doc_start : NULL};
    yk_data_fault fault = {0};
    memset(f, 0xee, sizeof *f);
    assert_int_equal(yk_dataset_fill(d, split, window, &row, &fault), YK_OK);
    assert_null(fault.path);
}

static void expect_row(const int32_t *got, const int32_t *expected, int n)
{
    for (int i = 0; i < n; i++) assert_int_equal(got[i], expected[i]);
}

/* Ids 0, 1, .. n-1 times `step`, as an llm.c shard. */
static const char *write_counting(char path[SCRATCH_PATH], const char *dir, const char *name,
                                  int64_t first, int64_t n)
{
    int64_t *ids = calloc((size_t)n, sizeof *ids);
    for (int64_t i = 0; i < n; i++) ids[i] = first + i;
    shard_write_llmc(path, dir, name, ids, n, 2);
    free(ids);
    return path;
}

static yk_dataset *open_dataset(const yk_config *config, int64_t vocab)
{
    yk_dataset *d;
    assert_int_equal(yk_dataset_open(config, vocab, &d), YK_OK);
    return d;
}

static void refuse(const yk_config *config, int64_t vocab, yk_status status, const char *part)
{
    yk_dataset *d;
    int saved = scratch_stderr_begin();
    yk_status got = yk_dataset_open(config, vocab, &d);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(got, status);
    assert_true(scratch_is_one_line(said, part));
    free(said);
}

static void windows_follow_each_other_and_share_one_token(void **state)
{
    char path[SCRATCH_PATH];
    yk_config c;
    filled f;
    shard_config(&c, write_counting(path, *state, "a.bin", 0, 14), 4);
    shard_set(&c, "data.val_fraction", "0");
    yk_dataset *d = open_dataset(&c, 100);
    assert_int_equal(yk_dataset_n_windows(d, YK_SPLIT_TRAIN), 3); /* 13 targets, 12 in windows */
    assert_int_equal(yk_dataset_n_windows(d, YK_SPLIT_VAL), 0);
    assert_int_equal(yk_dataset_n_tokens(d, YK_SPLIT_TRAIN), 14);
    assert_int_equal(yk_dataset_n_fields(d), 3);
    assert_int_equal(yk_dataset_seq_len(d), 4);
    fill(d, YK_SPLIT_TRAIN, 0, &f);
    expect_row(f.tokens, (int32_t[]){0, 1, 2, 3}, 4);
    expect_row(f.targets, (int32_t[]){1, 2, 3, 4}, 4);
    expect_row(f.positions, (int32_t[]){0, 1, 2, 3}, 4);
    fill(d, YK_SPLIT_TRAIN, 2, &f);
    expect_row(f.tokens, (int32_t[]){8, 9, 10, 11}, 4);
    expect_row(f.targets, (int32_t[]){9, 10, 11, 12}, 4);
    assert_int_equal(f.tokens[4], (int32_t)0xeeeeeeee); /* not a token more */
    yk_dataset_close(d);
    yk_dataset_close(NULL);
    yk_config_fini(&c);
}

/* Count how often each token is a target of validation; padding must be masked. */
static void count_targets(const yk_dataset *d, int64_t seq_len, int *count)
{
    for (int64_t w = 0; w < yk_dataset_n_windows(d, YK_SPLIT_VAL); w++) {
        filled f;
        fill(d, YK_SPLIT_VAL, w, &f);
        for (int i = 0; i < seq_len; i++) {
            if (f.targets[i] < 0) continue;
            assert_int_equal(f.targets[i], f.tokens[i] + 1);
            count[f.targets[i]]++;
        }
    }
}

static void validation_predicts_each_token_exactly_once(void **state)
{
    char path[SCRATCH_PATH];
    write_counting(path, *state, "a.bin", 0, 100);
    for (int64_t t = 1; t <= T_MAX; t++) {
        yk_config c;
        int count[100] = {0};
        shard_config(&c, path, t);
        shard_set(&c, "data.val_fraction", "0.23");
        yk_dataset *d = open_dataset(&c, 100);
        assert_int_equal(yk_dataset_n_tokens(d, YK_SPLIT_VAL), 23);
        assert_int_equal(yk_dataset_n_tokens(d, YK_SPLIT_TRAIN), 77);
        assert_int_equal(yk_dataset_n_windows(d, YK_SPLIT_VAL), (22 + t - 1) / t);
        assert_int_equal(yk_dataset_n_windows(d, YK_SPLIT_TRAIN), 76 / t);
        count_targets(d, t, count);
        for (int i = 0; i < 100; i++) assert_int_equal(count[i], i > 77);
        for (int64_t w = 0; w < yk_dataset_n_windows(d, YK_SPLIT_TRAIN); w++) {
            filled f; /* training never sees what is validated on */
            fill(d, YK_SPLIT_TRAIN, w, &f);
            assert_true(f.targets[t - 1] < 77);
        }
        yk_dataset_close(d);
        yk_config_fini(&c);
    }
}

static void a_last_window_of_validation_is_padded_and_masked(void **state)
{
    char path[SCRATCH_PATH];
    yk_config c;
    filled f;
    shard_config(&c, "", 4);
    shard_set(&c, "data.val", write_counting(path, *state, "a.bin", 10, 7));
    yk_dataset *d = open_dataset(&c, 100); /* no training data: fine when a model is evaluated */
    assert_int_equal(yk_dataset_n_windows(d, YK_SPLIT_TRAIN), 0);
    assert_int_equal(yk_dataset_n_windows(d, YK_SPLIT_VAL), 2);
    fill(d, YK_SPLIT_VAL, 1, &f);
    expect_row(f.tokens, (int32_t[]){14, 15, 0, 0}, 4);
    expect_row(f.targets, (int32_t[]){15, 16, -1, -1}, 4);
    expect_row(f.positions, (int32_t[]){0, 1, 2, 3}, 4);
    fill(d, YK_SPLIT_VAL, -1, &f);
    expect_row(f.targets, (int32_t[]){-1, -1, -1, -1}, 4);
    expect_row(f.tokens, (int32_t[]){0, 0, 0, 0}, 4);
    yk_dataset_close(d);
    yk_config_fini(&c);
}

static void windows_do_not_cross_the_end_of_a_shard(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    yk_config c;
    filled f;
    write_counting(path, dir, "t_2.bin", 20, 9);
    write_counting(path, dir, "t_1.bin", 0, 11);
    write_counting(path, dir, "t_3.bin", 40, 4); /* no window fits */
    shard_config(&c, scratch_path(path, dir, "t_*.bin"), 4);
    shard_set(&c, "data.val_fraction", "0");
    int saved = scratch_stderr_begin();
    yk_dataset *d;
    yk_status status = yk_dataset_open(&c, 100, &d);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_OK);
    assert_true(scratch_is_one_line(said, "1 of its files have fewer than the 5 tokens"));
    free(said);
    assert_int_equal(yk_dataset_n_windows(d, YK_SPLIT_TRAIN), 4);
    static const int32_t first[] = {0, 4, 20, 24};
    for (int w = 0; w < 4; w++) {
        fill(d, YK_SPLIT_TRAIN, w, &f);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(f.tokens[i], first[w] + i);
            assert_int_equal(f.targets[i], first[w] + i + 1);
        }
    }
    yk_dataset_close(d);
    yk_config_fini(&c);
}

static void text_files_are_read_as_one(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH], list[3 * SCRATCH_PATH];
    yk_config c;
    filled f;
    scratch_write(path, dir, "1.txt", "abc", 3);
    scratch_write(path, dir, "2.txt", "d", 1);
    scratch_write(path, dir, "3.txt", "efghi", 5);
    snprintf(list, sizeof list, "[\"%s/1.txt\", \"%s/[23].txt\"]", dir, dir);
    shard_config(&c, list, 4);
    shard_set(&c, "data.val_fraction", "0");
    shard_set(&c, "data.doc_mask", "true");
    yk_dataset *d = open_dataset(&c, 256);
    assert_int_equal(yk_dataset_n_windows(d, YK_SPLIT_TRAIN), 2);
    assert_int_equal(yk_dataset_n_fields(d), 4);
    fill(d, YK_SPLIT_TRAIN, 0, &f);
    expect_row(f.tokens, (int32_t[]){'a', 'b', 'c', 'd'}, 4);
    expect_row(f.targets, (int32_t[]){'b', 'c', 'd', 'e'}, 4);
    expect_row(f.doc_start, (int32_t[]){0, 0, 0, 3}, 4); /* a file is a document */
    expect_row(f.positions, (int32_t[]){0, 1, 2, 0}, 4);
    fill(d, YK_SPLIT_TRAIN, 1, &f);
    expect_row(f.tokens, (int32_t[]){'e', 'f', 'g', 'h'}, 4);
    expect_row(f.doc_start, (int32_t[]){0, 0, 0, 0}, 4);
    yk_dataset_close(d);
    yk_config_fini(&c);
}

static void documents_end_after_their_token(void **state)
{
    char path[SCRATCH_PATH];
    yk_config c;
    filled f;
    const int64_t ids[] = {9, 9, 1, 2, 9, 3, 4, 5, 9, 6, 7, 8, 1};
    shard_write_llmc(path, *state, "a.bin", ids, 13, 2);
    shard_config(&c, path, 6);
    shard_set(&c, "data.val_fraction", "0");
    shard_set(&c, "data.doc_mask", "true");
    refuse(&c, 10, YK_EINVAL, "data.doc_token");
    shard_set(&c, "data.doc_token", "10");
    refuse(&c, 10, YK_EINVAL, "10 is outside of the vocabulary of 10");
    shard_set(&c, "data.doc_token", "9");
    yk_dataset *d = open_dataset(&c, 10);
    fill(d, YK_SPLIT_TRAIN, 0, &f);
    expect_row(f.doc_start, (int32_t[]){0, 1, 2, 2, 2, 5}, 6);
    expect_row(f.positions, (int32_t[]){0, 0, 0, 1, 2, 0}, 6);
    fill(d, YK_SPLIT_TRAIN, 1, &f); /* 4 5 9 6 7 8: the document of 4 began before */
    expect_row(f.doc_start, (int32_t[]){0, 0, 0, 3, 3, 3}, 6);
    expect_row(f.positions, (int32_t[]){0, 1, 2, 0, 1, 2}, 6);
    yk_dataset_close(d);
    shard_set(&c, "data.doc_mask", "false");
    d = open_dataset(&c, 10);
    fill(d, YK_SPLIT_TRAIN, 0, &f);
    expect_row(f.positions, (int32_t[]){0, 1, 2, 3, 4, 5}, 6);
    yk_dataset_close(d);
    yk_config_fini(&c);
}

static void documents_of_megatron_come_from_its_index(void **state)
{
    char path[SCRATCH_PATH];
    yk_config c;
    filled f;
    const int64_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const int32_t sizes[] = {2, 3, 0, 1, 4, 3};
    shard_write_megatron(path, *state, "m", ids, 2, sizes, 6);
    shard_config(&c, path, 6);
    shard_set(&c, "data.val_fraction", "0");
    shard_set(&c, "data.doc_mask", "true");
    yk_dataset *d = open_dataset(&c, 13);
    fill(d, YK_SPLIT_TRAIN, 0, &f);
    expect_row(f.doc_start, (int32_t[]){0, 0, 2, 2, 2, 5}, 6);
    fill(d, YK_SPLIT_TRAIN, 1, &f); /* 6 .. 11: documents begin at 6 and 10 */
    expect_row(f.doc_start, (int32_t[]){0, 0, 0, 0, 4, 4}, 6);
    expect_row(f.positions, (int32_t[]){0, 1, 2, 3, 0, 1}, 6);
    yk_dataset_close(d);
    yk_config_fini(&c);
}

static void a_loss_mask_masks_targets(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH], mask[SCRATCH_PATH], two[3 * SCRATCH_PATH];
    yk_config c;
    filled f;
    scratch_write(mask, dir, "mask", "\1\1\0\1\0\0\1\1\7\1", 10);
    shard_config(&c, write_counting(path, dir, "a.bin", 0, 10), 4);
    shard_set(&c, "data.val_fraction", "0");
    shard_set(&c, "data.loss_mask", mask);
    yk_dataset *d = open_dataset(&c, 100);
    fill(d, YK_SPLIT_TRAIN, 0, &f);
    expect_row(f.targets, (int32_t[]){1, -1, 3, -1}, 4);
    expect_row(f.tokens, (int32_t[]){0, 1, 2, 3}, 4);
    fill(d, YK_SPLIT_TRAIN, 1, &f);
    expect_row(f.targets, (int32_t[]){-1, 6, 7, 8}, 4);
    yk_dataset_close(d);
    scratch_write(mask, dir, "mask", "\1\1", 2);
    refuse(&c, 100, YK_EFORMAT, "has 2 bytes, but");
    shard_set(&c, "data.loss_mask", scratch_path(mask, dir, "*"));
    refuse(&c, 100, YK_EFORMAT, "one byte a token");
    scratch_write(mask, dir, "mask", "\1\1\1\1\1\1\1\1\1\1", 10);
    snprintf(two, sizeof two, "[\"%s\",\"%s\"]", mask, mask);
    shard_set(&c, "data.loss_mask", two);
    refuse(&c, 100, YK_EINVAL, "2 masks for the 1 files");
    yk_config_fini(&c);
}

static void too_little_data_is_refused(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    yk_config c;
    shard_config(&c, write_counting(path, dir, "a.bin", 0, 10), 10);
    shard_set(&c, "data.val_fraction", "0");
    refuse(&c, 100, YK_EINVAL,
           "10 tokens are too few for a window of train.seq_len 10, which takes "
           "11");
    shard_set(&c, "train.seq_len", "9");
    yk_dataset_close(open_dataset(&c, 100));
    shard_set(&c, "data.val_fraction", "0.1"); /* one token: nothing to predict */
    refuse(&c, 100, YK_EINVAL, "leaves nothing to validate on");
    shard_set(&c, "data.val_fraction", "0.2");
    refuse(&c, 100, YK_EINVAL, "8 tokens are too few");
    write_counting(path, dir, "b.bin", 0, 1);
    shard_set(&c, "data.val", path);
    refuse(&c, 100, YK_EINVAL, "1 tokens are too few");
    shard_set(&c, "data.val", "");
    shard_set(&c, "data.train", scratch_path(path, dir, "absent_*.bin"));
    refuse(&c, 100, YK_EINVAL, "no file matches this pattern of data.train");
    shard_set(&c, "data.train", "");
    refuse(&c, 100, YK_EINVAL, "no data is given");
    yk_config_fini(&c);
}

static void an_id_outside_of_the_vocabulary_is_named_when_it_is_met(void **state)
{
    char path[SCRATCH_PATH];
    yk_config c;
    filled f;
    yk_data_fault fault = {0};
    yk_row row = {.tokens = f.tokens, .targets = f.targets, .positions = f.positions};
    shard_config(&c, write_counting(path, *state, "a.bin", 0, 13), 4);
    shard_set(&c, "data.val_fraction", "0");
    yk_dataset *d = open_dataset(&c, 8);
    fill(d, YK_SPLIT_TRAIN, 0, &f);
    assert_int_equal(yk_dataset_fill(d, YK_SPLIT_TRAIN, 1, &row, &fault), YK_EFORMAT);
    assert_string_equal(fault.path,
                        path); /* the last target, id 8, is the first that is too large */
    assert_int_equal(fault.position, 8);
    assert_int_equal(fault.id, 8);
    int saved = scratch_stderr_begin();
    yk_status status = yk_dataset_report(d, &fault);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_EFORMAT);
    assert_true(scratch_is_one_line(said, "token 8 is id 8, outside of the vocabulary of 8"));
    free(said);
    assert_int_equal(yk_dataset_fill(d, YK_SPLIT_TRAIN, 2, &row, &fault), YK_EFORMAT);
    yk_dataset_close(d);
    yk_config_fini(&c);
}

static void a_check_finds_a_wrong_id_in_either_part_before_it_is_met(void **state)
{
    const char *dir = *state;
    char train[SCRATCH_PATH], val[SCRATCH_PATH];
    yk_config c;
    shard_config(&c, write_counting(train, dir, "a.bin", 0, 9000), 4);
    shard_set(&c, "data.val", write_counting(val, dir, "b.bin", 0, 9500));
    static const struct {
        int64_t vocab;
        const char *part; /* NULL: all ids are fine */
    } checks[] = {
        {9500, NULL}, {9499, "b.bin: token 9499 is id 9499"}, {8999, "a.bin: token 8999"}};
    for (int i = 0; i < 3; i++) {
        yk_dataset *d = open_dataset(&c, checks[i].vocab);
        int saved = scratch_stderr_begin();
        yk_status status = yk_dataset_check(d);
        char *said = scratch_stderr_end(saved);
        assert_int_equal(status, checks[i].part ? YK_EFORMAT : YK_OK);
        if (checks[i].part) assert_true(scratch_is_one_line(said, checks[i].part));
        free(said);
        yk_dataset_close(d);
    }
    yk_config_fini(&c);
}

static void four_megabytes_of_text_open_in_no_time(void **state)
{
    char path[SCRATCH_PATH];
    yk_config c;
    char *text = malloc(4 << 20);
    memset(text, 'x', 4 << 20);
    shard_config(&c, scratch_write(path, *state, "t.txt", text, 4 << 20), 64);
    clock_t begin_at = clock(); /* of the processor: others may keep it busy */
    yk_dataset *d = open_dataset(&c, 256);
    assert_true(clock() - begin_at < CLOCKS_PER_SEC / 20);
    yk_dataset_close(d);
    yk_config_fini(&c);
    free(text);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, scratch_set_up, scratch_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(windows_follow_each_other_and_share_one_token),
        CASE(validation_predicts_each_token_exactly_once),
        CASE(a_last_window_of_validation_is_padded_and_masked),
        CASE(windows_do_not_cross_the_end_of_a_shard),
        CASE(text_files_are_read_as_one),
        CASE(documents_end_after_their_token),
        CASE(documents_of_megatron_come_from_its_index),
        CASE(a_loss_mask_masks_targets),
        CASE(too_little_data_is_refused),
        CASE(an_id_outside_of_the_vocabulary_is_named_when_it_is_met),
        CASE(a_check_finds_a_wrong_id_in_either_part_before_it_is_met),
        CASE(four_megabytes_of_text_open_in_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
