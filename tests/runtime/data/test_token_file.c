/* tests/runtime/data/test_token_file.c - each format is read, and each way to be wrong is told. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/data/token_file.h"
#include "tests/runtime/data/shards.h"

static const yk_token_file_options by_itself = {.format = YK_DATA_AUTO, .vocab = 50257};

static void expect_file(const char *path, const yk_token_file_options *o, yk_data_format format,
                        const int64_t *ids, int64_t n)
{
    yk_token_file f;
    int32_t *got = calloc((size_t)n, sizeof *got);
    assert_int_equal(yk_token_file_open(path, o, &f), YK_OK);
    assert_int_equal(f.format, format);
    assert_int_equal(f.n_tokens, n);
    assert_int_equal(yk_token_file_read(&f, 0, n, o->vocab, got), -1);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(got[i], ids[i]);
        assert_int_equal(yk_token_file_id(&f, i), ids[i]);
    }
    yk_token_file_close(&f);
    free(got);
}

static void refuse(const char *path, const yk_token_file_options *o, yk_status status,
                   const char *part)
{
    yk_token_file f;
    int saved = scratch_stderr_begin();
    yk_status got = yk_token_file_open(path, o, &f);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(got, status);
    assert_true(scratch_is_one_line(said, part));
    free(said);
}

static const int64_t some[] = {0, 1, 255, 256, 50256, 7, 12345, 3};

#define N_SOME 8

static void every_format_is_found_by_itself_and_read(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH], other[SCRATCH_PATH];
    const int32_t sizes[] = {3, 0, 5};
    for (int width = 2; width <= 4; width += 2) {
        expect_file(shard_write_llmc(path, dir, "a.bin", some, N_SOME, width), &by_itself,
                    YK_DATA_LLMC, some, N_SOME);
        expect_file(shard_write_llmc(path, dir, "no-suffix", some, N_SOME, width), &by_itself,
                    YK_DATA_LLMC, some, N_SOME);
        shard_write_megatron(path, dir, "m", some, width, sizes, 3);
        expect_file(path, &by_itself, YK_DATA_MEGATRON, some, N_SOME);
        expect_file(scratch_path(other, dir, "m.idx"), &by_itself, YK_DATA_MEGATRON, some, N_SOME);
        expect_file(scratch_path(other, dir, "m"), &by_itself, YK_DATA_MEGATRON, some, N_SOME);
    }
    const int64_t bytes[] = {'h', 'i', 0xff, '\n'};
    expect_file(scratch_write(path, dir, "t.txt", "hi\xff\n", 4), &by_itself, YK_DATA_TEXT, bytes,
                4);
}

static void raw_ids_are_read_when_asked_for(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    yk_token_file_options raw = {.format = YK_DATA_RAW, .dtype = YK_TOKEN_U16, .vocab = 50257};
    shard_write_raw(path, dir, "r.bin", some, N_SOME, 2);
    expect_file(path, &raw, YK_DATA_RAW, some, N_SOME);
    refuse(path, &by_itself, YK_EFORMAT, "set data.format to raw (yoke data: --format raw)");
    raw.dtype = YK_TOKEN_U32;
    shard_write_raw(path, dir, "r.bin", some, N_SOME, 4);
    expect_file(path, &raw, YK_DATA_RAW, some, N_SOME);
    refuse(scratch_write(path, dir, "r.bin", "12345", 5), &raw, YK_EFORMAT, "no multiple of the 4");
}

static void text_goes_through_a_tokenizer(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    yk_tokenizer *t;
    yk_token_file f;
    assert_int_equal(yk_tokenizer_open("tests/golden/tokenizers/gpt2.json", &t), YK_OK);
    yk_token_file_options o = {.tokenizer = t, .vocab = yk_tokenizer_vocab(t)};
    const char *text = "The oxen pulled the yoke together.";
    yk_tokens tokens = {0};
    assert_int_equal(yk_tokenizer_encode(t, text, (int64_t)strlen(text), &tokens), YK_OK);
    scratch_write(path, dir, "t.txt", text, (int64_t)strlen(text));
    assert_int_equal(yk_token_file_open(path, &o, &f), YK_OK);
    assert_int_equal(f.n_tokens, tokens.n);
    assert_true(f.n_tokens < (int64_t)strlen(text));
    for (int64_t i = 0; i < f.n_tokens; i++) {
        assert_int_equal(yk_token_file_id(&f, i), tokens.ids[i]);
    }
    yk_token_file_close(&f);
    yk_tokens_fini(&tokens);
    o.vocab = 100;
    refuse(path, &o, YK_EFORMAT, "outside of the model's vocabulary of 100");
    yk_tokenizer_close(t);
}

static void missing_and_empty_files_are_refused(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    refuse(scratch_path(path, dir, "absent"), &by_itself, YK_EINVAL, "No such file");
    refuse(dir, &by_itself, YK_EINVAL, "Is a directory");
    static const yk_data_format formats[] = {YK_DATA_AUTO, YK_DATA_TEXT, YK_DATA_LLMC, YK_DATA_RAW,
                                             YK_DATA_MEGATRON};
    scratch_write(path, dir, "x.bin", "", 0);
    for (int i = 0; i < 5; i++) {
        yk_token_file_options o = {.format = formats[i], .vocab = 50257};
        refuse(path, &o, YK_EFORMAT, "is empty");
    }
}

static void a_wrong_header_of_llmc_is_refused(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    static const struct {
        int32_t head[3];
        int64_t bytes;
        const char *part;
    } wrong[] = {
        {{20240520, 1, 8}, 1024 + 14, "truncated"},
        {{20240520, 1, 8}, 1024 + 15, "truncated"},
        {{20240520, 1, 8}, 1024 + 17, "damaged"},
        {{20240801, 7, 8}, 1024 + 16, "truncated"},
        {{20240520, 1, 0}, 1024, "states 0 tokens"},
        {{20240520, 1, -1}, 1024 + 16, "states -1 tokens"},
        {{20240520, 1, 2147483647}, 1024 + 16, "truncated"},
        {{20240520, 2, 8}, 1024 + 16, "version 2"},
        {{20240801, 1, 8}, 1024 + 32, "version 1"},
        {{20240520, 1, 8}, 1000, "fewer than llm.c's header"},
        {{20240520, 1, 8}, 12, "fewer than llm.c's header"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint8_t *data = calloc(1, 2048);
        memcpy(data, wrong[i].head, sizeof wrong[i].head);
        refuse(scratch_write(path, dir, "x.bin", data, wrong[i].bytes), &by_itself, YK_EFORMAT,
               wrong[i].part);
        free(data);
    }
}

static void a_wrong_magic_number_is_refused(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    yk_token_file_options llmc = {.format = YK_DATA_LLMC, .vocab = 50257};
    yk_token_file_options megatron = {.format = YK_DATA_MEGATRON, .vocab = 50257};
    int32_t data[512] = {20240522, 1, 8};
    scratch_write(path, dir, "x.bin", data, sizeof data);
    refuse(path, &llmc, YK_EFORMAT, "evaluation set");
    refuse(path, &by_itself, YK_EFORMAT, "magic number 20240522");
    refuse(path, &megatron, YK_EINVAL, "x.idx");
    scratch_write(path, dir, "x.txt", data, sizeof data);
    refuse(path, &by_itself, YK_EFORMAT, "neither text");
    data[0] = 1;
    scratch_write(path, dir, "x.bin", data, sizeof data);
    refuse(path, &llmc, YK_EFORMAT, "magic number 1;");
    refuse(path, &by_itself, YK_EFORMAT, "magic number 1,");
    scratch_write(path, dir, "x.bin", "abc", 3);
    refuse(path, &by_itself, YK_EFORMAT, "magic number 0");
}

/* Change the byte at `at` of m.idx to `value`, or cut the file there when value < 0. */
static void damage(const char *dir, const char *name, int64_t at, int value)
{
    char path[SCRATCH_PATH];
    int fd = open(scratch_path(path, dir, name), O_RDWR);
    uint8_t byte = (uint8_t)value;
    assert_true(fd >= 0);
    if (value < 0) {
        assert_int_equal(ftruncate(fd, at), 0);
    } else {
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void a_wrong_index_of_megatron_is_refused(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    const int32_t sizes[] = {3, 5};
    static const struct {
        const char *name;
        int64_t at;
        int value;
        const char *part;
    } wrong[] = {
        {"m.idx", 0, 'X', "magic number MMIDIDX"},
        {"m.idx", 20, -1, "truncated"},
        {"m.idx", 33 + 8, -1, "which is not what"},
        {"m.idx", 9, 2, "version 2"},
        {"m.idx", 17, 5, "type 5"},
        {"m.idx", 18, 3, "3 sequences"},
        {"m.idx", 25, 0x7f, "sequences"},
        {"m.idx", 26, 9, "9 documents"},
        {"m.idx", 34, 4, "sequence 1"},
        {"m.idx", 34 + 3, 0x80, "sequence 0"},
        {"m.idx", 34 + 4, 4, "describes 14"},
        {"m.idx", 34 + 8, 2, "sequence 0"},
        {"m.idx", 34 + 24, 9, "document 0"},
        {"m.idx", 34 + 24, 2, "document 1"},
        {"m.bin", 14, -1, "truncated"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        shard_write_megatron(path, dir, "m", some, 2, sizes, 2);
        damage(dir, wrong[i].name, wrong[i].at, wrong[i].value);
        refuse(path, &by_itself, YK_EFORMAT, wrong[i].part);
    }
}

static void sixteen_bits_cannot_name_a_large_vocabulary(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    const int32_t sizes[] = {8};
    yk_token_file_options large = {.vocab = 65537}, limit = {.vocab = 65536};
    yk_token_file_options raw = {.format = YK_DATA_RAW, .dtype = YK_TOKEN_U16, .vocab = 151936};
    shard_write_llmc(path, dir, "x.bin", some, N_SOME, 2);
    refuse(path, &large, YK_EINVAL, "16 bits");
    expect_file(path, &limit, YK_DATA_LLMC, some, N_SOME);
    refuse(shard_write_megatron(path, dir, "m", some, 2, sizes, 1), &large, YK_EINVAL, "16 bits");
    refuse(shard_write_raw(path, dir, "r", some, N_SOME, 2), &raw, YK_EINVAL, "16 bits");
    shard_write_llmc(path, dir, "x.bin", some, N_SOME, 4);
    expect_file(path, &large, YK_DATA_LLMC, some, N_SOME);
}

static void ids_outside_of_the_vocabulary_are_found_where_they_are(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    int32_t got[N_SOME];
    yk_token_file f;
    const int64_t wild[] = {1, 2, 3, 4294967295, 2147483648, 100, 99, 5};
    shard_write_llmc(path, dir, "x.bin", wild, N_SOME, 4);
    assert_int_equal(yk_token_file_open(path, &by_itself, &f), YK_OK);
    assert_int_equal(yk_token_file_read(&f, 0, 3, 50257, got), -1);
    assert_int_equal(yk_token_file_read(&f, 0, 4, 50257, got), 3);
    assert_int_equal(yk_token_file_read(&f, 4, 4, 50257, got), 4);
    assert_int_equal(yk_token_file_id(&f, 3), 4294967295);
    assert_int_equal(yk_token_file_read(&f, 5, 3, 101, got), -1);
    assert_int_equal(yk_token_file_read(&f, 5, 3, 100, got), 5);
    assert_int_equal(yk_token_file_read(&f, 5, 0, 1, got), -1);
    yk_token_file_close(&f);
}

static void files_over_4_gib_are_read_to_their_end(void **state)
{
    const char *dir = *state;
    char path[SCRATCH_PATH];
    const int64_t n = (INT64_C(5) << 30) / 2 + 3; /* ids of 16 bits; the file is sparse */
    const uint16_t end[] = {11, 22, 33};
    int fd = open(scratch_path(path, dir, "large.bin"), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, end, sizeof end, (n - 3) * 2), sizeof end);
    close(fd);
    yk_token_file_options raw = {.format = YK_DATA_RAW, .dtype = YK_TOKEN_U16, .vocab = 50257};
    yk_token_file f;
    int32_t got[4];
    assert_int_equal(yk_token_file_open(path, &raw, &f), YK_OK);
    assert_int_equal(f.n_tokens, n);
    assert_int_equal(yk_token_file_read(&f, n - 4, 4, raw.vocab, got), -1);
    assert_int_equal(got[0], 0);
    for (int i = 0; i < 3; i++) assert_int_equal(got[i + 1], end[i]);
    yk_token_file_close(&f);
    raw.dtype = YK_TOKEN_U32;
    refuse(path, &raw, YK_EFORMAT, "5368709126 bytes");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, scratch_set_up, scratch_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_format_is_found_by_itself_and_read),
        CASE(raw_ids_are_read_when_asked_for),
        CASE(text_goes_through_a_tokenizer),
        CASE(missing_and_empty_files_are_refused),
        CASE(a_wrong_header_of_llmc_is_refused),
        CASE(a_wrong_magic_number_is_refused),
        CASE(a_wrong_index_of_megatron_is_refused),
        CASE(sixteen_bits_cannot_name_a_large_vocabulary),
        CASE(ids_outside_of_the_vocabulary_are_found_where_they_are),
        CASE(files_over_4_gib_are_read_to_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
