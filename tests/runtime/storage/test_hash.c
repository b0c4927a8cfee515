/* tests/runtime/storage/test_hash.c - hashes are those of every other program with xxHash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/storage/hash.h"

/* The values are from xxhsum -H3 and -H2. */
static void hashes_are_xxh3s(void **state)
{
    (void)state;
    char text[YK_HASH128_TEXT_BYTES];
    assert_true(yk_hash64("", 0, 0) == 0x2d06800538d394c2u);
    assert_true(yk_hash64("yoke\n", 5, 0) == 0xa4d8ee2058e14795u);
    assert_true(yk_hash64("yoke\n", 5, 1) != 0xa4d8ee2058e14795u);
    yk_hash128_text(yk_hash128_of("", 0), text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
    yk_hash128_text(yk_hash128_of("yoke\n", 5), text);
    assert_string_equal(text, "afd2446318ef289f30021e717ee76c1b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hashes_are_xxh3s)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
