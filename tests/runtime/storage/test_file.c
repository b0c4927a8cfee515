/* tests/runtime/storage/test_file.c - files, and every way in which the system can refuse. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/storage/file.h"
#include "runtime/storage/json.h"
#include "tests/runtime/file_fault.h"
#include "tests/runtime/scratch.h"

typedef struct place {
    char dir[SCRATCH_PATH], path[SCRATCH_PATH];
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    scratch_make(p->dir);
    scratch_path(p->path, p->dir, "file");
    file_fault_set(YK_FILE_OP_OPEN, 0, 0);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    place *p = *state;
    scratch_remove(p->dir);
    free(p);
    return 0;
}

static void expect_content(const char *path, const char *content)
{
    char *text;
    int64_t n;
    assert_int_equal(yk_file_read_all(path, &text, &n), YK_OK);
    assert_int_equal(n, strlen(content));
    assert_string_equal(text, content);
    free(text);
}

/* Run `call`, expect `status` and one line with `part`. */
#define EXPECT_FAILURE(call, status, part)                                                         \
    do {                                                                                           \
        int saved_ = scratch_stderr_begin();                                                       \
        yk_status got_ = (call);                                                                   \
        char *said_ = scratch_stderr_end(saved_);                                                  \
        assert_int_equal(got_, status);                                                            \
        assert_true(scratch_is_one_line(said_, part));                                             \
        free(said_);                                                                               \
    } while (0)

static void what_is_written_is_read(void **state)
{
    place *p = *state;
    yk_file *f;
    int64_t n;
    char back[4] = "";
    assert_int_equal(yk_file_open(p->path, YK_FILE_WRITE, &f), YK_OK);
    assert_int_equal(yk_file_write(f, "one", 3), YK_OK);
    assert_int_equal(yk_file_write_at(f, "3", 1, 5), YK_OK);
    assert_int_equal(yk_file_write_at(f, "2", 1, 3), YK_OK);
    assert_int_equal(yk_file_size(f, &n), YK_OK);
    assert_int_equal(n, 6);
    assert_int_equal(yk_file_read_at(f, back, 3, 3), YK_OK);
    assert_memory_equal(back, "2\0003", 3);
    assert_int_equal(yk_file_close(f), YK_OK);
    yk_file_map map;
    assert_int_equal(yk_file_map_open(p->path, &map), YK_OK);
    assert_int_equal(map.bytes, 6);
    assert_memory_equal(map.data, "one2\0003", 6);
    yk_file_map_close(&map);
    yk_file_map_close(&map);
}

static void appending_adds_to_what_is_there(void **state)
{
    place *p = *state;
    for (int i = 0; i < 2; i++) {
        yk_file *f;
        assert_int_equal(yk_file_open(p->path, YK_FILE_APPEND, &f), YK_OK);
        assert_int_equal(yk_file_write(f, "ab", 2), YK_OK);
        assert_int_equal(yk_file_close(f), YK_OK);
    }
    expect_content(p->path, "abab");
}

static void empty_files_are_read_as_empty(void **state)
{
    place *p = *state;
    scratch_write(p->path, p->dir, "file", "", 0);
    expect_content(p->path, "");
    yk_file_map map;
    assert_int_equal(yk_file_map_open(p->path, &map), YK_OK);
    assert_null(map.data);
    assert_int_equal(map.bytes, 0);
    yk_file_map_close(&map);
}

static void a_pipe_is_read_to_its_end_and_not_mapped(void **state)
{
    (void)state;
    static char text[50000];
    int ends[2];
    char path[64];
    yk_file_map map;
    assert_int_equal(pipe(ends), 0);
    memset(text, 'x', sizeof text - 1);
    assert_int_equal(write(ends[1], text, sizeof text - 1), sizeof text - 1);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    expect_content(path, text);
    EXPECT_FAILURE(yk_file_map_open(path, &map), YK_EINVAL, "is no regular file");
    close(ends[0]);
}

static void offsets_have_64_bits(void **state)
{
    place *p = *state;
    const int64_t at = (INT64_C(5) << 30) + 3; /* sparse: takes no room */
    yk_file *f;
    int64_t n;
    char c = 0;
    assert_int_equal(yk_file_open(p->path, YK_FILE_WRITE, &f), YK_OK);
    assert_int_equal(yk_file_write_at(f, "x", 1, at), YK_OK);
    assert_int_equal(yk_file_size(f, &n), YK_OK);
    assert_int_equal(n, at + 1);
    assert_int_equal(yk_file_read_at(f, &c, 1, at), YK_OK);
    assert_int_equal(c, 'x');
    assert_int_equal(yk_file_close(f), YK_OK);
    yk_file_map map;
    assert_int_equal(yk_file_map_open(p->path, &map), YK_OK);
    assert_int_equal(map.bytes, at + 1);
    assert_int_equal(map.data[at], 'x');
    yk_file_map_close(&map);
}

static void what_is_longer_than_can_be_meant_is_not_read(void **state)
{
    place *p = *state;
    char *text = NULL;
    int64_t n;
    scratch_write(p->path, p->dir, "file", "12345", 5);
    assert_int_equal(yk_file_read_short(p->path, 5, &text, &n), YK_OK);
    assert_int_equal(n, 5);
    free(text);
    EXPECT_FAILURE(yk_file_read_short(p->path, 4, &text, &n), YK_EINVAL, "longer than 4 bytes");
    EXPECT_FAILURE(yk_file_read_short("/dev/zero", 1 << 20, &text, &n), YK_EINVAL,
                   "/dev/zero: is longer than 1048576 bytes");
    assert_int_equal(truncate(p->path, (off_t)1 << 31), 0); /* a hole */
    EXPECT_FAILURE(yk_file_read_all(p->path, &text, &n), YK_EINVAL, "another file?");
}

static void a_wrong_path_is_the_users_mistake(void **state)
{
    place *p = *state;
    yk_file *f = (yk_file *)p;
    EXPECT_FAILURE(yk_file_open(p->path, YK_FILE_READ, &f), YK_EINVAL, "No such file");
    assert_ptr_equal(f, p); /* untouched */
    char *text = NULL;
    int64_t n;
    EXPECT_FAILURE(yk_file_read_all(p->dir, &text, &n), YK_EINVAL, "Is a directory");
    EXPECT_FAILURE(yk_file_remove(p->path), YK_EINVAL, "No such file");
    EXPECT_FAILURE(yk_file_rename(p->path, p->path), YK_EINVAL, "No such file");
    scratch_write(p->path, p->dir, "file", "x", 1);
    char below[SCRATCH_PATH];
    scratch_path(below, p->path, "below");
    EXPECT_FAILURE(yk_dir_create(below), YK_EINVAL, "File exists; name another");
    EXPECT_FAILURE(yk_file_open(below, YK_FILE_WRITE, &f), YK_EINVAL, "Not a directory");
}

static void reading_past_the_end_says_so(void **state)
{
    place *p = *state;
    yk_file *f;
    char back[8];
    scratch_write(p->path, p->dir, "file", "abc", 3);
    assert_int_equal(yk_file_open(p->path, YK_FILE_READ, &f), YK_OK);
    EXPECT_FAILURE(yk_file_read_at(f, back, 4, 1), YK_EFORMAT, "ends at byte 3, but 5");
    assert_int_equal(yk_file_close(f), YK_OK);
}

static void replacing_is_whole_or_not_at_all(void **state)
{
    place *p = *state;
    assert_int_equal(yk_file_replace(p->path, "old", 3), YK_OK);
    expect_content(p->path, "old");
    yk_file *f;
    assert_int_equal(yk_file_replace_begin(p->path, &f), YK_OK);
    assert_int_equal(yk_file_write(f, "new content", 11), YK_OK);
    expect_content(p->path, "old");
    assert_int_equal(yk_file_replace_commit(f), YK_OK);
    expect_content(p->path, "new content");
    assert_int_equal(yk_file_replace_begin(p->path, &f), YK_OK);
    yk_file_replace_abort(f);
    yk_file_replace_abort(NULL);
    expect_content(p->path, "new content");
    assert_int_equal(scratch_count(p->dir), 1);
}

static void each_call_of_a_replacement_can_fail_and_the_old_file_stays(void **state)
{
    place *p = *state;
    static const struct {
        yk_file_op op;
        int n, err;
        yk_status status;
    } calls[] = {
        {YK_FILE_OP_OPEN, 1, EACCES, YK_EINVAL},  {YK_FILE_OP_WRITE, 1, ENOSPC, YK_EINVAL},
        {YK_FILE_OP_WRITE, 1, EIO, YK_EIO},       {YK_FILE_OP_SYNC, 1, EIO, YK_EIO},
        {YK_FILE_OP_SYNC, 1, ENOSPC, YK_EINVAL},  {YK_FILE_OP_CLOSE, 1, EDQUOT, YK_EINVAL},
        {YK_FILE_OP_RENAME, 1, EROFS, YK_EINVAL},
    };
    scratch_write(p->path, p->dir, "file", "old", 3);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        file_fault_set(calls[i].op, calls[i].n, calls[i].err);
        EXPECT_FAILURE(yk_file_replace(p->path, "new", 3), calls[i].status, p->path);
        assert_int_equal(file_fault_left(), 0);
        expect_content(p->path, "old");
        assert_int_equal(scratch_count(p->dir), 1);
    }
    file_fault_set(YK_FILE_OP_SYNC, 2, EIO); /* of the directory: the new file is there already */
    EXPECT_FAILURE(yk_file_replace(p->path, "new", 3), YK_EIO, p->dir);
    expect_content(p->path, "new");
    assert_int_equal(scratch_count(p->dir), 1);
}

static void a_full_disk_is_told_with_what_to_do(void **state)
{
    (void)state;
    yk_file *f;
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(yk_file_open("/dev/full", YK_FILE_WRITE, &f), YK_OK);
    EXPECT_FAILURE(yk_file_write(f, "x", 1), YK_EINVAL, "free some space");
    assert_int_equal(yk_file_close(f), YK_OK);
}

static void each_reading_call_can_fail(void **state)
{
    place *p = *state;
    char *text = NULL;
    int64_t n = 0;
    yk_file_map map = {0};
    yk_file_list list = {0};
    scratch_write(p->path, p->dir, "file", "abc", 3);
    file_fault_set(YK_FILE_OP_OPEN, 1, EMFILE);
    EXPECT_FAILURE(yk_file_read_all(p->path, &text, &n), YK_EIO, "ulimit");
    file_fault_set(YK_FILE_OP_STAT, 1, EIO);
    EXPECT_FAILURE(yk_file_read_all(p->path, &text, &n), YK_EIO, p->path);
    file_fault_set(YK_FILE_OP_READ, 1, EIO);
    EXPECT_FAILURE(yk_file_read_all(p->path, &text, &n), YK_EIO, p->path);
    file_fault_set(YK_FILE_OP_MAP, 1, ENOMEM);
    EXPECT_FAILURE(yk_file_map_open(p->path, &map), YK_ENOMEM, p->path);
    file_fault_set(YK_FILE_OP_LIST, 1, EACCES);
    EXPECT_FAILURE(yk_dir_list(p->dir, &list), YK_EINVAL, p->dir);
    file_fault_set(YK_FILE_OP_LIST, 1, EIO);
    EXPECT_FAILURE(yk_file_glob(p->path, &list), YK_EIO, p->path);
    file_fault_set(YK_FILE_OP_REMOVE, 1, EPERM);
    EXPECT_FAILURE(yk_file_remove(p->path), YK_EINVAL, p->path);
    file_fault_set(YK_FILE_OP_MKDIR, 1, ENOSPC);
    EXPECT_FAILURE(yk_dir_create(p->dir), YK_EINVAL, p->dir);
    assert_null(text);
    assert_null(map.data);
    assert_int_equal(list.n_items, 0);
    file_fault_set(YK_FILE_OP_READ, 1, EINTR); /* an interruption is not a failure */
    expect_content(p->path, "abc");
}

static void directories_are_made_with_their_parents(void **state)
{
    place *p = *state;
    char path[SCRATCH_PATH];
    scratch_path(path, p->dir, "a//b/c/");
    assert_int_equal(yk_dir_create(path), YK_OK);
    assert_true(yk_dir_exists(path));
    assert_int_equal(yk_dir_create(path), YK_OK);
    assert_int_equal(yk_dir_sync(path), YK_OK);
    assert_false(yk_dir_exists(p->path));
    assert_false(yk_file_exists(p->path));
}

static void lists_and_patterns_are_sorted(void **state)
{
    place *p = *state;
    char path[SCRATCH_PATH], pattern[SCRATCH_PATH];
    static const char *const names[] = {"t_10", "t_02", "t_1", "u", "t_[x]"};
    for (int i = 0; i < 5; i++) scratch_write(path, p->dir, names[i], "", 0);
    yk_file_list list;
    assert_int_equal(yk_dir_list(p->dir, &list), YK_OK);
    assert_int_equal(list.n_items, 5);
    assert_string_equal(list.items[0], "t_02");
    assert_string_equal(list.items[4], "u");
    yk_file_list_fini(&list);
    assert_int_equal(yk_file_glob(scratch_path(pattern, p->dir, "t_[0-9]*"), &list), YK_OK);
    assert_int_equal(list.n_items, 3);
    assert_string_equal(list.items[1], scratch_path(path, p->dir, "t_1"));
    yk_file_list_fini(&list);
    /* a file may be named like a pattern; a plain path is given back unseen */
    assert_int_equal(yk_file_glob(scratch_path(pattern, p->dir, "t_[x]"), &list), YK_OK);
    assert_int_equal(list.n_items, 1);
    yk_file_list_fini(&list);
    assert_int_equal(yk_file_glob(scratch_path(pattern, p->dir, "absent"), &list), YK_OK);
    assert_int_equal(list.n_items, 1);
    yk_file_list_fini(&list);
    assert_int_equal(yk_file_glob(scratch_path(pattern, p->dir, "absent*"), &list), YK_OK);
    assert_int_equal(list.n_items, 0);
    yk_file_list_fini(&list);
}

static void json_keeps_64_bits_and_refuses_repeated_keys(void **state)
{
    place *p = *state;
    const char *text = "{\"n\": 9007199254740993,\n \"n\": 2}";
    json_t *v = NULL;
    EXPECT_FAILURE(yk_json_parse("x.json", text, (int64_t)strlen(text), &v), YK_EFORMAT, "line 2");
    text = "{\"n\": 9007199254740993}";
    assert_int_equal(yk_json_parse("x.json", text, (int64_t)strlen(text), &v), YK_OK);
    assert_int_equal(json_integer_value(json_object_get(v, "n")), INT64_C(9007199254740993));
    assert_int_equal(yk_json_replace(p->path, v, 0), YK_OK);
    json_decref(v);
    expect_content(p->path, "{\n  \"n\": 9007199254740993\n}\n");
    assert_int_equal(yk_json_read(p->path, &v), YK_OK);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(appending_adds_to_what_is_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(empty_files_are_read_as_empty, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pipe_is_read_to_its_end_and_not_mapped, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(offsets_have_64_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_longer_than_can_be_meant_is_not_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_wrong_path_is_the_users_mistake, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reading_past_the_end_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replacing_is_whole_or_not_at_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_call_of_a_replacement_can_fail_and_the_old_file_stays,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_told_with_what_to_do, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_reading_call_can_fail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(directories_are_made_with_their_parents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lists_and_patterns_are_sorted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(json_keeps_64_bits_and_refuses_repeated_keys, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
