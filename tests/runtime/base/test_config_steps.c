/* tests/runtime/base/test_config_steps.c - lists of steps: numbers and ranges, and what is neither. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/config.h"
#include "tests/runtime/scratch.h"

static yk_status set(const char *assignment, yk_config *config)
{
    assert_int_equal(yk_config_init(config), YK_OK);
    assert_int_equal(yk_config_set(config, "model.preset=tiny-gpt2"), YK_OK);
    assert_int_equal(yk_config_set(config, "data.train=x"), YK_OK);
    assert_int_equal(yk_config_set(config, assignment), YK_OK);
    int saved = scratch_stderr_begin();
    yk_status status = yk_config_check(config);
    char *text = scratch_stderr_end(saved);
    if (status != YK_OK) assert_true(scratch_is_one_line(text, "trace.steps"));
    free(text);
    return status;
}

/* The steps 0 .. 15 that are in the list, as bits. */
static unsigned steps_of(const char *assignment)
{
    yk_config config;
    unsigned bits = 0;
    assert_int_equal(set(assignment, &config), YK_OK);
    for (int64_t step = 0; step < 16; step++)
        if (yk_config_has_step(&config.trace.steps, step)) bits |= 1u << step;
    yk_config_fini(&config);
    return bits;
}

static void numbers_and_ranges_name_steps(void **state)
{
    (void)state;
    assert_int_equal(steps_of("trace.steps=[]"), 0);
    assert_int_equal(steps_of("trace.steps=7"), 1u << 7);
    assert_int_equal(steps_of("trace.steps=0-3"), 15);
    assert_int_equal(steps_of("trace.steps=[1, 4-5, 12]"), 1u << 1 | 3u << 4 | 1u << 12);
    assert_int_equal(steps_of("trace.steps=1,4-5, 12"), 1u << 1 | 3u << 4 | 1u << 12);
    assert_int_equal(steps_of("trace.steps=[2-2, 100-200]"), 1u << 2);
}

static void what_is_no_step_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "trace.steps=all",
        "trace.steps=-1",
        "trace.steps=3-",
        "trace.steps=5-4",
        "trace.steps=1.5",
        "trace.steps=[1, two]",
        "trace.steps=1,,2",
        "trace.steps=1,",
        "trace.steps=1 2",
        "trace.steps=1-2-3",
        "trace.steps=99999999999999999999",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yk_config config;
        assert_int_equal(set(wrong[i], &config), YK_EINVAL);
        yk_config_fini(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_ranges_name_steps),
        cmocka_unit_test(what_is_no_step_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
