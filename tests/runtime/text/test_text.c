/* tests/runtime/text/test_text.c - UTF-8, character by character. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <utf8proc.h>

#include "runtime/text/text.h"

static void every_character_is_whole_and_every_part_of_it_incomplete(void **state)
{
    (void)state;
    for (int32_t c = 0; c < 0x110000; c++) {
        uint8_t bytes[4];
        if (c >= 0xd800 && c < 0xe000) continue;
        int n = (int)utf8proc_encode_char(c, bytes), length;
        assert_int_equal(yk_utf8_next((char *)bytes, n, &length), YK_UTF8_CHARACTER);
        assert_int_equal(length, n);
        for (int part = 1; part < n; part++) {
            assert_int_equal(yk_utf8_next((char *)bytes, part, &length), YK_UTF8_INCOMPLETE);
            assert_int_equal(length, part);
        }
    }
}

static void what_no_character_begins_with_is_invalid(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int n, length;
    } invalid[] = {
        {"\x80", 1, 1},         {"\xc0\x80", 2, 1},         {"\xc1\xbf", 2, 1},
        {"\xe0\x9f\xbf", 3, 1}, {"\xed\xa0\x80", 3, 1},     {"\xf0\x8f\xbf\xbf", 4, 1},
        {"\xf5", 1, 1},         {"\xf4\x90\x80\x80", 4, 1}, {"\xff", 1, 1},
        {"\xe2\x82x", 3, 2},    {"\xf0\x9f\x98x", 4, 3},    {"\xc3x", 2, 1},
    };
    for (size_t i = 0; i < sizeof invalid / sizeof invalid[0]; i++) {
        int length;
        assert_int_equal(yk_utf8_next(invalid[i].bytes, invalid[i].n, &length), YK_UTF8_INVALID);
        assert_int_equal(length, invalid[i].length);
    }
}

static void the_valid_beginning_ends_where_it_must(void **state)
{
    (void)state;
    const char text[] = "0123456789abcdef\xc3\xa9\xc3\xa9 0123456789\xff tail";
    for (int from = 0; from < 16; from++) {
        assert_int_equal(yk_utf8_valid(text + from, (int64_t)sizeof text - 1 - from), 31 - from);
    }
    assert_int_equal(yk_utf8_valid(text, 17), 16); /* ends within a character */
    assert_int_equal(yk_utf8_valid(text, 0), 0);
}

static void invalid_parts_become_replacement_characters(void **state)
{
    (void)state;
    yk_text t = {0};
    assert_int_equal(yk_text_add_valid(&t, "a\xe2\x82z\xff\xff\xc3", 7), YK_OK);
    const char *wanted = "a\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd";
    assert_int_equal(t.n, strlen(wanted));
    assert_memory_equal(t.data, wanted, (size_t)t.n);
    yk_text_fini(&t);
    assert_int_equal(t.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_is_whole_and_every_part_of_it_incomplete),
        cmocka_unit_test(what_no_character_begins_with_is_invalid),
        cmocka_unit_test(the_valid_beginning_ends_where_it_must),
        cmocka_unit_test(invalid_parts_become_replacement_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
