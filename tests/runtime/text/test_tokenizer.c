/* tests/runtime/text/test_tokenizer.c - every kind of tokenizer.json against Hugging Face.
 *
 * The values come from tests/golden/tokenizers/make_tokenizers.py.
 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/storage/json.h"
#include "runtime/text/tokenizer.h"
#include "tests/runtime/scratch.h"

#define GOLDEN "tests/golden/tokenizers/"

static const char *const kinds[] = {"gpt2",  "prefix-space", "llama3",
                                    "qwen2", "llama2",       "metaspace"};

#define N_KINDS ((int)(sizeof kinds / sizeof kinds[0]))

static yk_tokenizer *open_kind(const char *kind)
{
    char path[256];
    yk_tokenizer *t;
    snprintf(path, sizeof path, GOLDEN "%s.json", kind);
    assert_int_equal(yk_tokenizer_open(path, &t), YK_OK);
    return t;
}

static json_t *read_cases(void)
{
    json_t *cases;
    assert_int_equal(yk_json_read(GOLDEN "cases.json", &cases), YK_OK);
    return cases;
}

/* Decode all ids, giving the decoder one at a time. */
static void decode(const yk_tokenizer *t, const int32_t *ids, int64_t n, bool special, yk_text *out)
{
    yk_decoder d;
    yk_decoder_init(&d, t, special);
    out->n = 0;
    for (int64_t i = 0; i < n; i++) assert_int_equal(yk_decoder_push(&d, ids[i], out), YK_OK);
    assert_int_equal(yk_decoder_finish(&d, out), YK_OK);
}

static void expect_ids(const char *kind, const char *text, const yk_tokens *got, const json_t *ids)
{
    bool same = (size_t)got->n == json_array_size(ids);
    for (int64_t i = 0; same && i < got->n; i++) {
        same = got->ids[i] == json_integer_value(json_array_get(ids, (size_t)i));
    }
    if (same) return;
    print_message("%s, '%s': got", kind, text);
    for (int64_t i = 0; i < got->n; i++) print_message(" %d", got->ids[i]);
    char *wanted = json_dumps(ids, JSON_COMPACT);
    fail_msg(", expected %s", wanted);
}

static void check_case(const char *kind, yk_tokenizer *t, const json_t *c)
{
    const char *text = json_string_value(json_object_get(c, "text"));
    const json_t *decoded = json_object_get(c, "decoded");
    yk_tokens tokens = {0};
    yk_text back = {0};
    assert_int_equal(yk_tokenizer_encode(t, text, (int64_t)strlen(text), &tokens), YK_OK);
    expect_ids(kind, text, &tokens, json_object_get(c, "ids"));
    decode(t, tokens.ids, tokens.n, false, &back);
    if ((size_t)back.n != json_string_length(decoded) ||
        (back.n && memcmp(back.data, json_string_value(decoded), (size_t)back.n) != 0)) {
        fail_msg("%s, '%s': decoded '%.*s', expected '%s'", kind, text, (int)back.n, back.data,
                 json_string_value(decoded));
    }
    yk_text_fini(&back);
    yk_tokens_fini(&tokens);
}

static void ids_and_text_are_those_of_hugging_face(void **state)
{
    (void)state;
    json_t *cases = read_cases();
    for (int k = 0; k < N_KINDS; k++) {
        yk_tokenizer *t = open_kind(kinds[k]);
        const json_t *list = json_object_get(cases, kinds[k]);
        assert_true(json_array_size(list) > 20);
        for (int twice = 0; twice < 2; twice++) { /* the second time from the cache */
            for (size_t i = 0; i < json_array_size(list); i++) {
                check_case(kinds[k], t, json_array_get(list, i));
            }
        }
        yk_tokenizer_close(t);
    }
    json_decref(cases);
}

static void prefix_is_what_the_file_puts_before_a_text(void **state)
{
    (void)state;
    json_t *cases = read_cases();
    for (int k = 0; k < N_KINDS; k++) {
        yk_tokenizer *t = open_kind(kinds[k]);
        const json_t *c = json_array_get(json_object_get(cases, kinds[k]), 3);
        const json_t *ids = json_object_get(c, "ids"), *with = json_object_get(c, "with_prefix");
        const int32_t *prefix;
        int64_t n = yk_tokenizer_prefix(t, &prefix);
        assert_int_equal(n, json_array_size(with) - json_array_size(ids));
        for (int64_t i = 0; i < n; i++) {
            assert_int_equal(prefix[i], json_integer_value(json_array_get(with, (size_t)i)));
        }
        yk_tokenizer_close(t);
    }
    json_decref(cases);
}

static void names_find_special_tokens(void **state)
{
    (void)state;
    yk_tokenizer *t = open_kind("llama3");
    int32_t id = yk_tokenizer_find(t, "<|end|>");
    assert_true(id >= 0);
    assert_true(yk_tokenizer_is_special(t, id));
    assert_false(yk_tokenizer_is_special(t, yk_tokenizer_find(t, "new_word")));
    assert_false(yk_tokenizer_is_special(t, 0));
    assert_false(yk_tokenizer_is_special(t, -1));
    assert_int_equal(yk_tokenizer_find(t, "no such token"), -1);
    assert_true(id < yk_tokenizer_vocab(t));
    yk_text text = {0};
    decode(t, &id, 1, true, &text);
    assert_int_equal(text.n, 7);
    assert_memory_equal(text.data, "<|end|>", 7);
    yk_text_fini(&text);
    yk_tokenizer_close(t);
}

static void bytes_are_their_own_ids(void **state)
{
    (void)state;
    yk_tokenizer *t;
    assert_int_equal(yk_tokenizer_open("", &t), YK_OK);
    assert_true(yk_tokenizer_is_bytes(t));
    assert_int_equal(yk_tokenizer_vocab(t), 256);
    char all[256];
    for (int i = 0; i < 256; i++) all[i] = (char)i;
    yk_tokens tokens = {0};
    assert_int_equal(yk_tokenizer_encode(t, all, 256, &tokens), YK_OK);
    assert_int_equal(tokens.n, 256);
    for (int i = 0; i < 256; i++) assert_int_equal(tokens.ids[i], i);
    assert_int_equal(yk_tokenizer_find(t, "a"), 'a');
    yk_tokens_fini(&tokens);
    yk_tokenizer_close(t);
}

static void byte_level_keeps_any_bytes(void **state)
{
    (void)state;
    static const char *const by_byte[] = {"gpt2", "llama3", "qwen2"};
    char all[512], *p = all;
    for (int i = 0; i < 256; i++) *p++ = (char)(255 - i);
    for (int i = 0; i < 256; i++) *p++ = (char)(i * 7);
    for (int k = 0; k < 3; k++) {
        yk_tokenizer *t = open_kind(by_byte[k]);
        yk_tokens tokens = {0};
        yk_text once = {0}, expected = {0};
        assert_int_equal(yk_tokenizer_encode(t, all, sizeof all, &tokens), YK_OK);
        decode(t, tokens.ids, tokens.n, false, &once);
        assert_int_equal(yk_text_add_valid(&expected, all, sizeof all), YK_OK);
        assert_int_equal(once.n, expected.n);
        assert_memory_equal(once.data, expected.data, (size_t)once.n);
        yk_text_fini(&once);
        yk_text_fini(&expected);
        yk_tokens_fini(&tokens);
        yk_tokenizer_close(t);
    }
}

static void a_character_over_several_tokens_comes_out_whole(void **state)
{
    (void)state;
    yk_tokenizer *t;
    yk_decoder d;
    yk_text out = {0};
    assert_int_equal(yk_tokenizer_open("", &t), YK_OK);
    yk_decoder_init(&d, t, false);
    const uint8_t text[] = "\xf0\x9f\x98\x80"; /* one character of four bytes */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(yk_decoder_push(&d, text[i], &out), YK_OK);
        assert_int_equal(out.n, 0);
    }
    assert_int_equal(yk_decoder_push(&d, text[3], &out), YK_OK);
    assert_int_equal(out.n, 4);
    assert_memory_equal(out.data, text, 4);

    out.n = 0; /* a beginning that is not continued, then one that the text ends in */
    const int32_t broken[] = {0xe2, 0x82, 'x', 0xff, 0xe2, 0x82};
    decode(t, broken, 6, false, &out);
    assert_int_equal(out.n, 10);
    assert_memory_equal(out.data, "\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd", 10);

    out.n = 0; /* ids that padding of a vocabulary adds are no text */
    assert_int_equal(yk_decoder_push(&d, 256, &out), YK_OK);
    assert_int_equal(yk_decoder_push(&d, -1, &out), YK_OK);
    assert_int_equal(out.n, 0);
    yk_text_fini(&out);
    yk_tokenizer_close(t);
}

static void a_word_as_long_as_a_file_is_encoded(void **state)
{
    (void)state;
    const int64_t n = 200000;
    char *text = malloc((size_t)n);
    const char fill[] = {'a', ' ', '7', '.', '\n'};
    for (int k = 0; k < N_KINDS; k++) {
        yk_tokenizer *t = open_kind(kinds[k]);
        for (int f = 0; f < 5; f++) {
            yk_tokens tokens = {0};
            yk_text back = {0};
            memset(text, fill[f], (size_t)n);
            assert_int_equal(yk_tokenizer_encode(t, text, n, &tokens), YK_OK);
            decode(t, tokens.ids, tokens.n, false, &back);
            int64_t extra = back.n - n; /* prefix-space puts a space before */
            assert_true(extra == 0 || extra == 1 || extra == -1);
            assert_memory_equal(back.data + (extra > 0), text, (size_t)(n - 1));
            yk_text_fini(&back);
            yk_tokens_fini(&tokens);
        }
        yk_tokenizer_close(t);
    }
    free(text);
}

/* Write `json` as a tokenizer.json and expect it to be refused with `status` and one line. */
static void refuse(const char *json, yk_status status, const char *part)
{
    char dir[SCRATCH_PATH], path[SCRATCH_PATH];
    yk_tokenizer *t;
    scratch_make(dir);
    scratch_write(path, dir, "tokenizer.json", json, (int64_t)strlen(json));
    int saved = scratch_stderr_begin();
    yk_status got = yk_tokenizer_open(dir, &t);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(got, status);
    assert_true(scratch_is_one_line(said, part));
    free(said);
    scratch_remove(dir);
}

#define MODEL(vocab, merges)                                                                       \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"

static void what_is_wrong_or_unknown_is_refused(void **state)
{
    (void)state;
    refuse("", YK_EFORMAT, "not valid JSON");
    refuse("{\"model\":{},\"model\":{}}", YK_EFORMAT, "duplicate");
    refuse("[]", YK_EFORMAT, "not an object");
    refuse("{}", YK_EFORMAT, "has no model");
    refuse("{\"model\":{\"type\":\"Unigram\"}}", YK_EUNSUPPORTED, "Unigram");
    refuse("{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", YK_EFORMAT, "no vocab");
    refuse("{" MODEL("\"a\":0,\"b\":0", "") "}", YK_EFORMAT, "id 0");
    refuse("{" MODEL("\"a\":-1", "") "}", YK_EFORMAT, "id -1");
    refuse("{" MODEL("\"a\":99999999999", "") "}", YK_EFORMAT, "id 99999999999");
    refuse("{" MODEL("\"a\":0,\"b\":1", "\"a b\"") "}", YK_EFORMAT, "the result");
    refuse("{" MODEL("\"a\":0", "\"ab\"") "}", YK_EFORMAT, "two tokens");
    refuse("{\"normalizer\":{\"type\":\"BertNormalizer\"}," MODEL("", "") "}", YK_EUNSUPPORTED,
           "BertNormalizer");
    refuse("{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," MODEL("", "") "}", YK_EUNSUPPORTED,
           "Whitespace");
    refuse(
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"
        "\"(\"}}," MODEL("", "") "}",
        YK_EFORMAT, "pattern '('");
    refuse(
        "{\"added_tokens\":[{\"id\":0,\"content\":\"x\",\"single_word\":true}]," MODEL("", "") "}",
        YK_EUNSUPPORTED, "single_word");
}

static void a_byte_without_a_token_is_an_error(void **state)
{
    (void)state;
    char dir[SCRATCH_PATH], path[SCRATCH_PATH];
    const char *json =
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," MODEL(
            "\"a\":0,\"b\":1", "") "}";
    yk_tokenizer *t;
    yk_tokens tokens = {0};
    scratch_make(dir);
    scratch_write(path, dir, "tokenizer.json", json, (int64_t)strlen(json));
    assert_int_equal(yk_tokenizer_open(path, &t), YK_OK);
    assert_int_equal(yk_tokenizer_encode(t, "abba", 4, &tokens), YK_OK);
    assert_int_equal(tokens.n, 4);
    int saved = scratch_stderr_begin();
    yk_status status = yk_tokenizer_encode(t, "abc", 3, &tokens);
    char *said = scratch_stderr_end(saved);
    assert_int_equal(status, YK_EFORMAT);
    assert_true(scratch_is_one_line(said, "0x63"));
    free(said);
    yk_tokens_fini(&tokens);
    yk_tokenizer_close(t);
    scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_text_are_those_of_hugging_face),
        cmocka_unit_test(prefix_is_what_the_file_puts_before_a_text),
        cmocka_unit_test(names_find_special_tokens),
        cmocka_unit_test(bytes_are_their_own_ids),
        cmocka_unit_test(byte_level_keeps_any_bytes),
        cmocka_unit_test(a_character_over_several_tokens_comes_out_whole),
        cmocka_unit_test(a_word_as_long_as_a_file_is_encoded),
        cmocka_unit_test(what_is_wrong_or_unknown_is_refused),
        cmocka_unit_test(a_byte_without_a_token_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
