/* tests/runtime/machine/test_cpus.c - sets of processors and how they are written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/machine/cpus.h"

static yk_cpus read(const char *text)
{
    yk_cpus set = {{0}};
    assert_true(yk_cpus_read(text, &set));
    return set;
}

static void a_list_reads_back_as_it_was_written(void **state)
{
    static const char *const lists[] = {"", "0", "3", "0-3", "0,2,4", "0-1,63-64,127-128", "4095"};
    char text[YK_CPUS_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        yk_cpus set = read(lists[i]);
        assert_string_equal(yk_cpus_write(&set, text), lists[i]);
    }
}

static void order_and_repetition_do_not_count(void **state)
{
    char text[YK_CPUS_TEXT];
    (void)state;
    yk_cpus set = read("8,1-3,2,1");
    assert_string_equal(yk_cpus_write(&set, text), "1-3,8");
    assert_int_equal(yk_cpus_count(&set), 4);
}

static void what_is_no_list_is_refused_and_changes_nothing(void **state)
{
    static const char *const wrong[] = {"-1",  "1-",   "3-1", "1,",   ",1",  "a",
                                        "1 2", "4096", "0x3", "1--2", "1;2", "0-99999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yk_cpus set = read("5");
        assert_false(yk_cpus_read(wrong[i], &set));
        assert_true(yk_cpus_has(&set, 5));
        assert_int_equal(yk_cpus_count(&set), 1);
    }
}

static void a_long_list_is_cut_between_its_parts(void **state)
{
    char text[YK_CPUS_TEXT];
    yk_cpus set = {{0}};
    (void)state;
    for (int cpu = 1000; cpu < 1400; cpu += 2) yk_cpus_add(&set, cpu);
    yk_cpus_write(&set, text);
    /* 24 numbers of 4 digits with their commas, 119 bytes, and the dots */
    assert_true(strncmp(text, "1000,1002,1004,", 15) == 0);
    assert_string_equal(text + 114, ",1046,..." + 0);
}

static void numbers_out_of_range_are_in_no_set(void **state)
{
    yk_cpus set = {{0}};
    (void)state;
    yk_cpus_add(&set, -1);
    yk_cpus_add(&set, YK_CPUS_MAX);
    assert_true(yk_cpus_is_empty(&set));
    assert_false(yk_cpus_has(&set, -1));
    assert_false(yk_cpus_has(&set, YK_CPUS_MAX));
}

static void sets_combine(void **state)
{
    char text[YK_CPUS_TEXT];
    (void)state;
    yk_cpus a = read("0-5,100"), b = read("4-8,100"), part = read("5,100");
    yk_cpus both = yk_cpus_and(&a, &b), either = yk_cpus_or(&a, &b), rest = yk_cpus_without(&a, &b);
    assert_string_equal(yk_cpus_write(&both, text), "4-5,100");
    assert_string_equal(yk_cpus_write(&either, text), "0-8,100");
    assert_string_equal(yk_cpus_write(&rest, text), "0-3");
    assert_true(yk_cpus_holds(&both, &part));
    assert_false(yk_cpus_holds(&part, &both));
    assert_false(yk_cpus_is_equal(&a, &b));
    assert_true(yk_cpus_is_equal(&a, &a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_reads_back_as_it_was_written),
        cmocka_unit_test(order_and_repetition_do_not_count),
        cmocka_unit_test(what_is_no_list_is_refused_and_changes_nothing),
        cmocka_unit_test(a_long_list_is_cut_between_its_parts),
        cmocka_unit_test(numbers_out_of_range_are_in_no_set),
        cmocka_unit_test(sets_combine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
