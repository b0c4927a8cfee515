/* tests/runtime/storage/test_safetensors.c - tensors in files: equal to Hugging Face's, and every
 * way in which a file can be wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/storage/file.h"
#include "runtime/storage/json.h"
#include "runtime/storage/safetensors.h"
#include "tests/runtime/file_fault.h"
#include "tests/runtime/scratch.h"

#define GOLDEN "tests/golden/safetensors/mixed.safetensors"

static yk_safetensors *golden; /* open all the time, so that faults do not meet it */

static int set_up(void **state)
{
    char *dir = malloc(SCRATCH_PATH);
    scratch_make(dir);
    file_fault_set(YK_FILE_OP_OPEN, 0, 0);
    *state = dir;
    return yk_safetensors_open(GOLDEN, &golden);
}

static int tear_down(void **state)
{
    yk_safetensors_close(golden);
    scratch_remove(*state);
    free(*state);
    return 0;
}

/* ---- reading ------------------------------------------------------------------------------ */

static const yk_st_tensor *expect_tensor(yk_safetensors *r, const char *name, yk_st_dtype dtype,
                                         int n_dims, int64_t bytes)
{
    const yk_st_tensor *t = yk_safetensors_find(r, name);
    assert_non_null(t);
    assert_string_equal(t->info.name, name);
    assert_int_equal(t->info.dtype, dtype);
    assert_int_equal(t->info.n_dims, n_dims);
    assert_int_equal(t->bytes, bytes);
    assert_int_equal(t->count * yk_st_dtype_bytes(dtype), bytes);
    return t;
}

static void hugging_faces_file_is_read(void **state)
{
    (void)state;
    yk_safetensors *r;
    assert_int_equal(yk_safetensors_open(GOLDEN, &r), YK_OK);
    assert_int_equal(yk_safetensors_count(r), 6);
    assert_string_equal(yk_safetensors_at(r, 0)->info.name, "a.single");
    const yk_st_tensor *t = expect_tensor(r, "a.single", YK_ST_F32, 1, 20);
    float f[5];
    memcpy(f, t->data, sizeof f);
    for (int i = 0; i < 5; i++) assert_true(f[i] == (float)i - 2);
    t = expect_tensor(r, "z.half", YK_ST_F16, 2, 12);
    assert_int_equal(t->info.shape[0], 2);
    assert_int_equal(t->info.shape[1], 3);
    t = expect_tensor(r, "m.scalar", YK_ST_I64, 0, 8);
    int64_t seven;
    memcpy(&seven, t->data, 8);
    assert_int_equal(seven, 7);
    expect_tensor(r, "b.byte", YK_ST_U8, 1, 3);
    expect_tensor(r, "name with \"quotes\" and \xc3\xa9", YK_ST_I32, 2, 0);
    assert_null(yk_safetensors_find(r, "absent"));
    yk_safetensors_close(r);
}

/* Put a file of `header` and `data_bytes` zero bytes of data there. */
static void write_raw(const char *dir, const char *name, const char *header, int64_t length,
                      int64_t data_bytes)
{
    char path[SCRATCH_PATH];
    int64_t n = (int64_t)strlen(header);
    uint8_t *all = calloc(1, (size_t)(8 + n + data_bytes));
    for (int i = 0; i < 8; i++) all[i] = (uint8_t)((uint64_t)length >> 8 * i);
    memcpy(all + 8, header, (size_t)n);
    scratch_write(path, dir, name, all, 8 + n + data_bytes);
    free(all);
}

static void expect_refusal(const char *path, yk_status status, const char *part)
{
    yk_safetensors *r = NULL;
    int saved = scratch_stderr_begin();
    yk_status got = yk_safetensors_open(path, &r);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(got, status);
    assert_null(r);
    assert_true(scratch_is_one_line(said, part));
    free(said);
}

/* A file with this header and data must be refused. */
static void refuse(const char *dir, const char *header, int64_t data_bytes, const char *part)
{
    char path[SCRATCH_PATH];
    write_raw(dir, "x.safetensors", header, (int64_t)strlen(header), data_bytes);
    expect_refusal(scratch_path(path, dir, "x.safetensors"), YK_EFORMAT, part);
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

static void a_wrong_header_is_refused_with_one_line(void **state)
{
    const char *dir = *state;
    refuse(dir, "", 0, "not valid JSON");
    refuse(dir, "[]", 0, "not an object");
    refuse(dir, "{", 0, "not valid JSON");
    refuse(dir, "{\"a\":1}", 0, "tensor a");
    refuse(dir, "{\"a\":{}}", 0, "no dtype");
    refuse(dir, "{" T("a", "F33", "[1]", "0", "4") "}", 4, "dtype F33 is not known");
    refuse(dir, "{" T("a", "F32", "1", "0", "4") "}", 4, "no shape");
    refuse(dir, "{" T("a", "F32", "[1.0]", "0", "4") "}", 4, "integers");
    refuse(dir, "{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "9 dimensions");
    refuse(dir, "{" T("a", "F32", "[2]", "0", "4") "}", 4, "shape and dtype");
    refuse(dir, "{" T("a", "F16", "[1]", "0", "4") "}", 4, "shape and dtype");
    refuse(dir, "{" T("a", "F32", "[-1]", "0", "4") "}", 4, "shape and dtype");
    refuse(dir, "{" T("a", "F32", "[4611686018427387904,4]", "0", "4") "}", 4, "shape and dtype");
    refuse(dir, "{" T("a", "F32", "[9223372036854775807]", "0", "4") "}", 4, "shape and dtype");
    refuse(dir, "{" T("a", "F32", "[1]", "0", "4") "," T("a", "F32", "[1]", "4", "8") "}", 8,
           "duplicate");
    refuse(dir, "{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "2", "6") "}", 6,
           "tensor b overlaps tensor a");
    refuse(dir, "{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "0", "4") "}", 4,
           "overlaps");
    refuse(dir, "{" T("a", "F32", "[1]", "4", "8") "}", 8, "4 bytes before tensor a");
    refuse(dir, "{" T("a", "F32", "[1]", "0", "4") "}", 5, "1 bytes after the last tensor");
    refuse(dir, "{}", 1, "1 bytes after the last tensor");
    refuse(dir, "{" T("a", "F32", "[1]", "0", "4") "}", 3, "outside of the file's 3 bytes");
    refuse(dir, "{" T("a", "F32", "[1]", "4", "0") "}", 4, "outside");
    refuse(dir, "{" T("a", "F32", "[1]", "-4", "0") "}", 4, "outside");
    refuse(dir, "{" T("a", "F32", "[1]", "9223372036854775803", "9223372036854775807") "}", 4,
           "outside");
    refuse(dir, "{" T("a", "F32", "[1]", "0", "18446744073709551620") "}", 4, "too big");
    refuse(dir, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
           "not two integers");
    refuse(dir, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "not two integers");
    refuse(dir, "{\"__metadata__\":[]}", 0, "__metadata__");
}

static void a_wrong_length_is_refused(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    scratch_path(path, dir, "x.safetensors");
    write_raw(dir, "x.safetensors", "{}", INT64_C(100000001), 0);
    expect_refusal(path, YK_EFORMAT, "states a header of 100000001 bytes");
    write_raw(dir, "x.safetensors", "{}", -1, 0);
    expect_refusal(path, YK_EFORMAT, "states a header of 18446744073709551615 bytes");
    write_raw(dir, "x.safetensors", "{}", 3, 0);
    expect_refusal(path, YK_EFORMAT, "truncated");
    scratch_write(path, dir, "x.safetensors", "1234567", 7);
    expect_refusal(path, YK_EFORMAT, "7 bytes are too few");
    scratch_write(path, dir, "x.safetensors", "", 0);
    expect_refusal(path, YK_EFORMAT, "0 bytes are too few");
    expect_refusal(scratch_path(path, dir, "absent.safetensors"), YK_EINVAL, "No such file");
    scratch_path(path, dir, "x.safetensors");
    remove(path);
    expect_refusal(dir, YK_EINVAL, "holds neither");
}

static void tensors_may_stand_in_any_order_in_the_header(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    yk_safetensors *r;
    const char *header = "{" T("a", "F32", "[1]", "4", "8") "," T(
        "e", "F32", "[0]", "4", "4") "," T("b", "F32", "[1]", "0", "4") "}   ";
    write_raw(dir, "x.safetensors", header, (int64_t)strlen(header), 8);
    assert_int_equal(yk_safetensors_open(scratch_path(path, dir, "x.safetensors"), &r), YK_OK);
    assert_int_equal(yk_safetensors_count(r), 3);
    yk_safetensors_close(r);
}

static void what_a_model_needs_is_checked(void **state)
{
    (void)state;
    yk_safetensors *r;
    const yk_st_tensor *t = NULL;
    assert_int_equal(yk_safetensors_open(GOLDEN, &r), YK_OK);
    const struct {
        const char *name;
        int n_dims;
        int64_t shape[2];
        const char *part; /* NULL: fine */
    } asked[] = {
        {"z.half", 2, {2, 3}, NULL},
        {"z.half", 2, {3, 2}, "shape is [2, 3]; [3, 2] is needed"},
        {"z.half", 1, {6, 0}, "shape is [2, 3]; [6] is needed"},
        {"b.byte", 1, {3, 0}, "dtype is U8"},
        {"absent", 1, {3, 0}, "tensor absent is missing"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        int saved = scratch_stderr_begin();
        yk_status got =
            yk_safetensors_require(r, asked[i].name, asked[i].n_dims, asked[i].shape, &t);
        char *said = scratch_stderr_end(saved);
        assert_int_equal(got, asked[i].part ? YK_EFORMAT : YK_OK);
        if (asked[i].part) assert_true(scratch_is_one_line(said, asked[i].part));
        free(said);
    }
    assert_string_equal(t->info.name, "z.half");
    yk_safetensors_close(r);
}

static void an_index_is_held_against_its_files(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    const char *a = "{" T("a", "F32", "[1]", "0", "4") "}",
               *b = "{" T("b", "U8", "[1]", "0", "1") "}";
    yk_safetensors *r;
    write_raw(dir, "one.safetensors", a, (int64_t)strlen(a), 4);
    write_raw(dir, "two.safetensors", b, (int64_t)strlen(b), 1);
    const struct {
        const char *map, *part;
    } indexes[] = {
        {"{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}", NULL},
        {"{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}", "does not hold it"},
        {"{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}", "tensor c"},
        {"{\"a\":\"../one.safetensors\"}", "not a name in the same directory"},
        {"{\"a\":\"/etc/passwd\"}", "not a name in the same directory"},
        {"{\"a\":1}", "not a name in the same directory"},
        {"[]", "has no weight_map"},
    };
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"metadata\":{},\"weight_map\":%s}", indexes[i].map);
        scratch_write(path, dir, "model.safetensors.index.json", text, (int64_t)strlen(text));
        if (indexes[i].part) {
            expect_refusal(dir, YK_EFORMAT, indexes[i].part);
            continue;
        }
        assert_int_equal(yk_safetensors_open(dir, &r), YK_OK);
        assert_int_equal(yk_safetensors_count(r), 2);
        yk_safetensors_close(r);
    }
    const char *missing = "{\"weight_map\":{\"a\":\"absent.safetensors\"}}";
    scratch_write(path, dir, "model.safetensors.index.json", missing, (int64_t)strlen(missing));
    expect_refusal(dir, YK_EINVAL, "absent.safetensors");
    const char *twice = "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}";
    write_raw(dir, "two.safetensors", a, (int64_t)strlen(a), 4);
    scratch_write(path, dir, "model.safetensors.index.json", twice, (int64_t)strlen(twice));
    expect_refusal(dir, YK_EFORMAT, "tensor a is also in");
}

/* ---- writing ------------------------------------------------------------------------------ */

static const yk_st_info mixed[] = {
    {"z.half", YK_ST_F16, 2, {2, 3}},
    {"a.single", YK_ST_F32, 1, {5}},
    {"b.byte", YK_ST_U8, 1, {3}},
    {"m.scalar", YK_ST_I64, 0, {0}},
    {"c.single", YK_ST_F32, 3, {1, 1, 2}},
    {"name with \"quotes\" and \xc3\xa9", YK_ST_I32, 2, {0, 4}},
};

/* Write all data of the golden file's tensors in pieces of at most `step` bytes, last first. */
static yk_status write_mixed(yk_safetensors_writer *w, int64_t step)
{
    yk_status status = YK_OK;
    for (int64_t i = 5; i >= 0 && status == YK_OK; i--) {
        const yk_st_tensor *t = yk_safetensors_find(golden, mixed[i].name);
        for (int64_t at = t->bytes; at > 0 && status == YK_OK;) {
            int64_t n = at < step ? at : step;
            at -= n;
            status = yk_safetensors_write(w, i, at, (const char *)t->data + at, n);
        }
    }
    return status;
}

static void pieces_in_any_order_make_hugging_faces_file(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH], *ours, *theirs;
    int64_t n, m;
    yk_safetensors_writer *w;
    assert_int_equal(yk_safetensors_writer_open(dir, mixed, 6, 0, &w), YK_OK);
    assert_int_equal(write_mixed(w, 5), YK_OK);
    assert_false(yk_file_exists(scratch_path(path, dir, "model.safetensors")));
    assert_int_equal(yk_safetensors_writer_commit(w), YK_OK);
    assert_int_equal(yk_file_read_all(path, &ours, &n), YK_OK);
    assert_int_equal(yk_file_read_all(GOLDEN, &theirs, &m), YK_OK);
    assert_int_equal(n, m);
    assert_memory_equal(ours, theirs, (size_t)n);
    assert_int_equal(scratch_count(dir), 1);
    free(ours);
    free(theirs);
}

/* Write the golden tensors in files of at most `max` bytes of data and read them back. */
static void write_and_read(const char *dir, int64_t max)
{
    yk_safetensors_writer *w;
    yk_safetensors *r;
    assert_int_equal(yk_safetensors_writer_open(dir, mixed, 6, max, &w), YK_OK);
    assert_int_equal(write_mixed(w, 1000), YK_OK);
    assert_int_equal(yk_safetensors_writer_commit(w), YK_OK);
    assert_int_equal(yk_safetensors_open(dir, &r), YK_OK);
    assert_int_equal(yk_safetensors_count(r), 6);
    for (int64_t i = 0; i < 6; i++) {
        const yk_st_tensor *a = yk_safetensors_at(r, i), *b = yk_safetensors_at(golden, i);
        assert_string_equal(a->info.name, b->info.name);
        assert_int_equal(a->bytes, b->bytes);
        if (a->bytes) assert_memory_equal(a->data, b->data, (size_t)a->bytes);
    }
    yk_safetensors_close(r);
}

static void shards_hold_no_more_than_asked_and_replace_each_other(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    write_and_read(dir, 20); /* 12 | 20 | 3+8+8+0 */
    assert_int_equal(scratch_count(dir), 4);
    assert_true(yk_file_exists(scratch_path(path, dir, "model-00002-of-00003.safetensors")));
    json_t *index;
    assert_int_equal(yk_json_read(scratch_path(path, dir, "model.safetensors.index.json"), &index),
                     YK_OK);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")), 51);
    json_decref(index);
    write_and_read(dir, 1); /* larger than asked, so each its own */
    assert_int_equal(scratch_count(dir), 7);
    write_and_read(dir, 0);
    assert_int_equal(scratch_count(dir), 1);
    write_and_read(dir, 20);
    assert_int_equal(scratch_count(dir), 4);
}

static void expect_announcement_refused(const char *dir, const yk_st_info *t, int64_t n,
                                        const char *part)
{
    yk_safetensors_writer *w;
    int saved = scratch_stderr_begin();
    yk_status got = yk_safetensors_writer_open(dir, t, n, 0, &w);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(got, YK_EINVAL);
    assert_true(scratch_is_one_line(said, part));
    free(said);
    char path[SCRATCH_PATH];
    assert_false(yk_file_exists(scratch_path(path, dir, "model.safetensors.partial")));
}

static void wrong_announcements_are_refused(void **state)
{
    const char *dir = *state;
    const yk_st_info twice[] = {
        {"a", YK_ST_F32, 1, {1}}, {"b", YK_ST_F32, 1, {1}}, {"a", YK_ST_U8, 1, {1}}};
    const yk_st_info nameless = {"", YK_ST_F32, 1, {1}}, meta = {"__metadata__", YK_ST_F32, 1, {1}};
    const yk_st_info negative = {"a", YK_ST_F32, 1, {-1}}, huge = {"a", YK_ST_F32, 1, {INT64_MAX}};
    expect_announcement_refused(dir, twice, 3, "tensor a is announced twice");
    expect_announcement_refused(dir, &nameless, 1, "cannot be the name");
    expect_announcement_refused(dir, &meta, 1, "cannot be the name");
    expect_announcement_refused(dir, &negative, 1, "negative or too large");
    expect_announcement_refused(dir, &huge, 1, "negative or too large");
    char path[SCRATCH_PATH];
    expect_announcement_refused(scratch_path(path, dir, "absent"), twice, 1, "No such file");
}

static void a_tensor_that_was_not_written_is_not_committed(void **state)
{
    const char *dir = *state;
    yk_safetensors_writer *w;
    assert_int_equal(yk_safetensors_writer_open(dir, mixed, 2, 0, &w), YK_OK);
    assert_int_equal(yk_safetensors_write(w, 1, 0, "12345678", 8), YK_OK);
    int saved = scratch_stderr_begin();
    yk_status got = yk_safetensors_writer_commit(w);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(got, YK_EINVAL);
    assert_true(scratch_is_one_line(said, "0 of its 12 bytes"));
    free(said);
    assert_int_equal(scratch_count(dir), 0);
    yk_safetensors_writer_abort(NULL);
}

/* Write the golden tensors over what is in `dir` while the n-th call of kind `op` fails. */
static yk_status write_with_fault(const char *dir, int64_t max, yk_file_op op, int n)
{
    yk_safetensors_writer *w;
    file_fault_set(op, n, ENOSPC);
    int saved = scratch_stderr_begin();
    yk_status status = yk_safetensors_writer_open(dir, mixed, 6, max, &w);
    if (status == YK_OK) {
        status = write_mixed(w, 1000);
        if (status == YK_OK) {
            status = yk_safetensors_writer_commit(w);
        } else {
            yk_safetensors_writer_abort(w);
        }
    }
    char *said = scratch_stderr_end(saved);
    if (status != YK_OK) assert_true(scratch_is_one_line(said, "No space left"));
    free(said);
    return status;
}

static void a_disk_that_fills_at_any_call_leaves_what_was_there(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH], *text;
    int64_t bytes;
    static const struct {
        yk_file_op op;
        int n_calls; /* before the file has its name */
    } kinds[] = {{YK_FILE_OP_OPEN, 1},
                 {YK_FILE_OP_WRITE, 7},
                 {YK_FILE_OP_SYNC, 2},
                 {YK_FILE_OP_CLOSE, 1},
                 {YK_FILE_OP_RENAME, 1}};
    scratch_write(path, dir, "model.safetensors", "what was there", 14);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int n = 1; n <= kinds[k].n_calls; n++) {
            assert_int_equal(write_with_fault(dir, 0, kinds[k].op, n), YK_EINVAL);
            assert_int_equal(file_fault_left(), 0);
            assert_int_equal(yk_file_read_all(path, &text, &bytes), YK_OK);
            assert_string_equal(text, "what was there");
            free(text);
            assert_int_equal(scratch_count(dir), 1);
        }
    }
    assert_int_equal(write_with_fault(dir, 0, YK_FILE_OP_WRITE, 8), YK_OK); /* there is no 8th */
    file_fault_set(YK_FILE_OP_OPEN, 0, 0);
}

static void shards_that_do_not_fit_leave_what_was_there(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH], *text;
    int64_t bytes;
    scratch_write(path, dir, "model.safetensors", "what was there", 14);
    for (int n = 1; n <= 11; n++) { /* three files: two writes of header, then five of data */
        assert_int_equal(write_with_fault(dir, 20, YK_FILE_OP_WRITE, n), YK_EINVAL);
        assert_int_equal(file_fault_left(), 0);
        assert_int_equal(scratch_count(dir), 1);
    }
    for (int n = 1; n <= 3; n++) {
        assert_int_equal(write_with_fault(dir, 20, YK_FILE_OP_SYNC, n), YK_EINVAL);
        assert_int_equal(scratch_count(dir), 1);
    }
    assert_int_equal(yk_file_read_all(path, &text, &bytes), YK_OK);
    assert_string_equal(text, "what was there");
    free(text);
}

static void own_types_have_their_names(void **state)
{
    (void)state;
    static const yk_dtype own[] = {YK_F32, YK_BF16, YK_F16, YK_I32};
    static const char *const names[] = {"F32", "BF16", "F16", "I32"};
    for (int i = 0; i < 4; i++) {
        yk_dtype back;
        yk_st_dtype t = yk_st_dtype_of(own[i]);
        assert_string_equal(yk_st_dtype_name(t), names[i]);
        assert_int_equal(yk_st_dtype_bytes(t), yk_dtype_bytes(own[i]));
        assert_true(yk_st_dtype_own(t, &back));
        assert_int_equal(back, own[i]);
    }
    yk_dtype none = YK_F32;
    assert_false(yk_st_dtype_own(YK_ST_I64, &none));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(hugging_faces_file_is_read),
        CASE(a_wrong_header_is_refused_with_one_line),
        CASE(a_wrong_length_is_refused),
        CASE(tensors_may_stand_in_any_order_in_the_header),
        CASE(what_a_model_needs_is_checked),
        CASE(an_index_is_held_against_its_files),
        CASE(pieces_in_any_order_make_hugging_faces_file),
        CASE(shards_hold_no_more_than_asked_and_replace_each_other),
        CASE(wrong_announcements_are_refused),
        CASE(a_tensor_that_was_not_written_is_not_committed),
        CASE(a_disk_that_fills_at_any_call_leaves_what_was_there),
        CASE(shards_that_do_not_fit_leave_what_was_there),
        CASE(own_types_have_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
