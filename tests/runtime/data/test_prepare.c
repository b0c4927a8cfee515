/* tests/runtime/data/test_prepare.c - text becomes shards, wholly or not at all. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/data/prepare.h"
#include "runtime/data/shard_writer.h"
#include "runtime/data/token_file.h"
#include "tests/runtime/data/shards.h"
#include "tests/runtime/file_fault.h"

typedef struct place {
    char dir[SCRATCH_PATH], out[SCRATCH_PATH], input[SCRATCH_PATH];
    yk_prepare_options o;
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    char text[1000];
    for (int i = 0; i < 1000; i++) text[i] = (char)('a' + i % 23);
    scratch_make(p->dir);
    scratch_path(p->out, p->dir, "out");
    scratch_write(p->input, p->dir, "in.txt", text, 1000);
    p->o = (yk_prepare_options){
        .out = p->out, .tokenizer = "", .val_fraction = 0.1, .shard_tokens = 400, .doc_token = -1};
    file_fault_set(YK_FILE_OP_OPEN, 0, 0);
    *state = p;
    return yk_string_list_append(&p->o.inputs, p->input);
}

static int tear_down(void **state)
{
    place *p = *state;
    yk_string_list_fini(&p->o.inputs);
    scratch_remove(p->dir);
    free(p);
    return 0;
}

/* Append the ids of shard dir/name to `ids`; how many it has. */
static int64_t read_shard(const char *dir, const char *name, int32_t *ids)
{
    char path[SCRATCH_PATH];
    yk_token_file f;
    yk_token_file_options o = {.format = YK_DATA_LLMC, .vocab = 50257};
    assert_int_equal(yk_token_file_open(scratch_path(path, dir, name), &o, &f), YK_OK);
    int64_t n = f.n_tokens;
    assert_int_equal(yk_token_file_read(&f, 0, n, o.vocab, ids), -1);
    yk_token_file_close(&f);
    return n;
}

static void shards_hold_the_text_in_order(void **state)
{
    place *p = *state;
    yk_prepare_result r;
    int32_t ids[1000];
    assert_int_equal(yk_prepare(&p->o, &r), YK_OK);
    assert_int_equal(r.vocab, 256);
    assert_int_equal(r.train_tokens, 900);
    assert_int_equal(r.val_tokens, 100);
    assert_int_equal(r.train_shards, 3);
    assert_int_equal(r.val_shards, 1);
    assert_int_equal(scratch_count(p->out), 4);
    assert_int_equal(scratch_count(p->dir), 2);
    int64_t n = read_shard(p->out, "train_000000.bin", ids);
    assert_int_equal(n, 400);
    n += read_shard(p->out, "train_000001.bin", ids + n);
    assert_int_equal(n, 800);
    n += read_shard(p->out, "train_000002.bin", ids + n);
    n += read_shard(p->out, "val_000000.bin", ids + n);
    assert_int_equal(n, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(ids[i], 'a' + i % 23);
}

static void full_shards_leave_no_empty_one(void **state)
{
    place *p = *state;
    yk_prepare_result r;
    p->o.val_fraction = 0;
    p->o.shard_tokens = 500;
    assert_int_equal(yk_prepare(&p->o, &r), YK_OK);
    assert_int_equal(r.train_shards, 2);
    assert_int_equal(r.val_shards, 0);
    assert_int_equal(scratch_count(p->out), 2);
}

static void a_mark_follows_each_file(void **state)
{
    place *p = *state;
    yk_prepare_result r;
    char second[SCRATCH_PATH];
    int32_t ids[16];
    scratch_write(p->input, p->dir, "in.txt", "abc", 3);
    scratch_write(second, p->dir, "in2.txt", "de", 2);
    assert_int_equal(yk_string_list_append(&p->o.inputs, second), YK_OK);
    p->o.val_fraction = 0;
    p->o.doc_token = 0;
    assert_int_equal(yk_prepare(&p->o, &r), YK_OK);
    assert_int_equal(read_shard(p->out, "train_000000.bin", ids), 7);
    const int32_t expected[] = {'a', 'b', 'c', 0, 'd', 'e', 0};
    assert_memory_equal(ids, expected, sizeof expected);
}

static void a_large_vocabulary_takes_32_bits(void **state)
{
    place *p = *state;
    yk_shard_writer *w;
    int64_t n_shards;
    int32_t back[3];
    const int32_t ids[] = {1, 65536, 151935};
    assert_int_equal(yk_shard_writer_open(p->dir, "x", 151936, 3, &w), YK_OK);
    assert_int_equal(yk_shard_writer_add(w, ids, 3), YK_OK);
    assert_int_equal(yk_shard_writer_close(w, &n_shards), YK_OK);
    assert_int_equal(n_shards, 1);
    char path[SCRATCH_PATH];
    yk_token_file f;
    yk_token_file_options o = {.format = YK_DATA_AUTO, .vocab = 151936};
    assert_int_equal(yk_token_file_open(scratch_path(path, p->dir, "x_000000.bin"), &o, &f), YK_OK);
    assert_int_equal(f.width, 4);
    assert_int_equal(yk_token_file_read(&f, 0, 3, 151936, back), -1);
    assert_memory_equal(back, ids, sizeof ids);
    yk_token_file_close(&f);
    yk_shard_writer_abort(NULL);
}

/* Expect a refusal that leaves `n_entries` in the folder of the test. */
static void refuse(place *p, yk_status status, const char *part, int n_entries)
{
    yk_prepare_result r;
    int saved = scratch_stderr_begin();
    yk_status got = yk_prepare(&p->o, &r);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(got, status);
    assert_true(scratch_is_one_line(said, part));
    free(said);
    assert_int_equal(scratch_count(p->dir), n_entries);
}

static void what_is_wrong_is_found_before_anything_is_written(void **state)
{
    place *p = *state;
    p->o.doc_token = 256;
    refuse(p, YK_EINVAL, "outside of the tokenizer's vocabulary of 256", 1);
    p->o.doc_token = -1;
    p->o.val_fraction = 1;
    refuse(p, YK_EINVAL, "leaves 0 to train", 1);
    p->o.val_fraction = 0.001;
    refuse(p, YK_EINVAL, "1 to validate", 1);
    p->o.val_fraction = 0.1;
    p->o.tokenizer = "/absent/tokenizer.json";
    refuse(p, YK_EINVAL, "/absent/tokenizer.json", 1);
    p->o.tokenizer = "";
    p->o.out = p->dir;
    refuse(p, YK_EINVAL, "is there already", 1);
    p->o.out = p->out;
    int64_t ids[] = {1, 2, 3};
    shard_write_llmc(p->input, p->dir, "in.txt", ids, 3, 2);
    refuse(p, YK_EINVAL, "holds tokens already", 1);
    scratch_write(p->input, p->dir, "in.txt", "", 0);
    refuse(p, YK_EFORMAT, "is empty", 1);
    remove(p->input);
    refuse(p, YK_EINVAL, "No such file", 0);
}

static void an_empty_directory_may_be_there(void **state)
{
    place *p = *state;
    yk_prepare_result r;
    char slash[SCRATCH_PATH];
    assert_int_equal(yk_dir_create(p->out), YK_OK);
    p->o.out = scratch_path(slash, p->out, "//");
    assert_int_equal(yk_prepare(&p->o, &r), YK_OK);
    assert_int_equal(scratch_count(p->out), 4);
    p->o.out = p->out;
    refuse(p, YK_EINVAL, "with 4 files", 2);
}

static void each_call_that_fails_leaves_nothing_behind(void **state)
{
    place *p = *state;
    static const struct {
        yk_file_op op;
        int first, last; /* calls of yk_prepare() of that kind that can fail it */
    } kinds[] = {
        {YK_FILE_OP_OPEN, 1, 5},   /* the input, then four shards */
        {YK_FILE_OP_WRITE, 1, 12}, /* header, ids, header again of each */
        {YK_FILE_OP_SYNC, 1, 5},   /* four shards and the directory */
        {YK_FILE_OP_CLOSE, 1, 4},  {YK_FILE_OP_MKDIR, 1, 1}, {YK_FILE_OP_RENAME, 1, 1},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int n = kinds[k].first; n <= kinds[k].last; n++) {
            file_fault_set(kinds[k].op, n, ENOSPC);
            refuse(p, YK_EINVAL, "No space left", 1);
            assert_int_equal(file_fault_left(), 0);
        }
    }
    yk_prepare_result r;
    assert_int_equal(yk_prepare(&p->o, &r), YK_OK);
}

static void what_a_killed_call_left_is_replaced(void **state)
{
    place *p = *state;
    yk_prepare_result r;
    char partial[SCRATCH_PATH], path[SCRATCH_PATH];
    scratch_path(partial, p->dir, "out.partial");
    assert_int_equal(yk_dir_create(partial), YK_OK);
    scratch_write(path, partial, "train_000007.bin", "half", 4);
    assert_int_equal(yk_prepare(&p->o, &r), YK_OK);
    assert_int_equal(scratch_count(p->out), 4);
    assert_int_equal(scratch_count(p->dir), 2);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(shards_hold_the_text_in_order),
        CASE(full_shards_leave_no_empty_one),
        CASE(a_mark_follows_each_file),
        CASE(a_large_vocabulary_takes_32_bits),
        CASE(what_is_wrong_is_found_before_anything_is_written),
        CASE(an_empty_directory_may_be_there),
        CASE(each_call_that_fails_leaves_nothing_behind),
        CASE(what_a_killed_call_left_is_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
