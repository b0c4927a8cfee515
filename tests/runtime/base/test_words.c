/* tests/runtime/base/test_words.c - nearness of words, UTF-8, and text fit for a message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/words.h"

static void each_kind_of_edit_counts_one(void **state)
{
    (void)state;
    assert_int_equal(yk_word_distance("batch", "batch"), 0);
    assert_int_equal(yk_word_distance("btch", "batch"), 1);
    assert_int_equal(yk_word_distance("batcch", "batch"), 1);
    assert_int_equal(yk_word_distance("bitch", "batch"), 1);
    assert_int_equal(yk_word_distance("bacth", "batch"), 1);
    assert_int_equal(yk_word_distance("abtch", "batch"), 1);
    assert_int_equal(yk_word_distance("", "batch"), 5);
    assert_int_equal(yk_word_distance("batch", ""), 5);
    assert_int_equal(yk_word_distance("kitten", "sitting"), 3);
    assert_int_equal(yk_word_distance("ca", "abc"), 3); /* a swapped pair is not edited again */
}

static void case_and_kind_of_dash_do_not_count(void **state)
{
    (void)state;
    assert_int_equal(yk_word_distance("Micro-Batch", "micro_batch"), 0);
}

static void distance_is_symmetric_and_bounded_for_long_words(void **state)
{
    char a[1000], b[1000];
    (void)state;
    memset(a, 'a', sizeof a - 1);
    memset(b, 'b', sizeof b - 1);
    a[sizeof a - 1] = b[sizeof b - 1] = '\0';
    assert_int_equal(yk_word_distance(a, b), 63);
    assert_int_equal(yk_word_distance(a, "aaa"), 60);
    assert_int_equal(yk_word_distance("aaa", a), 60);
}

static void nearest_takes_the_first_of_equals(void **state)
{
    static const char *const words[] = {"train", "plan", "eval", "trail"};
    (void)state;
    assert_int_equal(yk_word_nearest("trian", words, 4), 0);
    assert_int_equal(yk_word_nearest("evla", words, 4), 2);
    assert_int_equal(yk_word_nearest("trai", words, 4), 0);
}

static void a_guess_is_what_begins_so_or_is_near(void **state)
{
    static const char *const words[] = {"top-k", "seed", "temperature", "tokenizer"};
    (void)state;
    assert_int_equal(yk_word_guess("temp", words, 4), 2);
    assert_int_equal(yk_word_guess("TOP_K", words, 4), 0);
    assert_int_equal(yk_word_guess("sed", words, 4), 1);
    assert_int_equal(yk_word_guess("tokeniser", words, 4), 3);
    assert_int_equal(yk_word_guess("dtype", words, 4), -1);
    assert_int_equal(yk_word_guess("t", words, 4), -1);
    assert_int_equal(yk_word_guess("", words, 4), -1);
}

static void every_code_point_is_decoded(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char text[4];
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        uint32_t back = 0xdead;
        for (size_t i = n; i-- > 1;) text[i] = (char)(0x80 | (c >> (6 * (n - 1 - i)) & 0x3f));
        static const unsigned lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
        text[0] = (char)(lead[n] | c >> (6 * (n - 1)));
        int surrogate = c >= 0xd800 && c <= 0xdfff;
        int length = yk_utf8_decode(text, n, &back);
        assert_int_equal(length, surrogate ? 0 : (int)n);
        assert_int_equal(back, surrogate ? 0xdead : c);
        if (n > 1) assert_int_equal(yk_utf8_decode(text, n - 1, &back), 0);
    }
}

static void what_is_not_utf8_is_refused(void **state)
{
    static const char *const bad[] = {
        "\x80",             /* begins in the middle */
        "\xc0\x80",         /* overlong NUL */
        "\xc1\xbf",         /* overlong */
        "\xe0\x9f\xbf",     /* overlong */
        "\xf0\x8f\xbf\xbf", /* overlong */
        "\xf4\x90\x80\x80", /* beyond U+10FFFF */
        "\xf8\x88\x80\x80", /* five bytes */
        "\xff",
        "\xc3(",
        "\xe2\x82(",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t c = 0xdead;
        assert_int_equal(yk_utf8_decode(bad[i], strlen(bad[i]), &c), 0);
        assert_int_equal(c, 0xdead);
    }
}

static void shown_text_is_one_line_of_utf8(void **state)
{
    char shown[YK_SHOWN_MAX], expected[YK_SHOWN_MAX];
    (void)state;
    assert_string_equal(yk_word_show("train", shown), "\"train\"");
    assert_string_equal(yk_word_show("", shown), "\"\"");
    assert_string_equal(yk_word_show("a\nb\x1b[1m\x7f\xff\xc2\x85", shown), "\"a?b?[1m???\"");
    assert_string_equal(yk_word_show("\xe8\xae\xad\xe7\xbb\x83", shown),
                        "\"\xe8\xae\xad\xe7\xbb\x83\"");
    char text[400] = "";
    for (int i = 0; i < 100; i++) strcat(text, "\xe8\xae\xad");
    strcpy(expected, "\"");
    for (int i = 0; i < 21; i++) strcat(expected, "\xe8\xae\xad");
    strcat(expected, "...\"");
    assert_string_equal(yk_word_show(text, shown), expected);
    for (size_t n = 0; n < 100; n++) {
        memset(text, 'x', n);
        text[n] = '\0';
        assert_true(strlen(yk_word_show(text, shown)) < YK_SHOWN_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_edit_counts_one),
        cmocka_unit_test(case_and_kind_of_dash_do_not_count),
        cmocka_unit_test(distance_is_symmetric_and_bounded_for_long_words),
        cmocka_unit_test(nearest_takes_the_first_of_equals),
        cmocka_unit_test(a_guess_is_what_begins_so_or_is_near),
        cmocka_unit_test(every_code_point_is_decoded),
        cmocka_unit_test(what_is_not_utf8_is_refused),
        cmocka_unit_test(shown_text_is_one_line_of_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
