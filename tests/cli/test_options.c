/* tests/cli/test_options.c - options and operands by table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/options.c" /* the program is no library; before cmocka.h, which has a macro fail() */

#include <cmocka.h>

#include "tests/runtime/base/heard.h"

/* What an invented subcommand `yoke sing` is told. */
typedef struct song {
    bool loud, done;
    const char *voice, *words, *operands[2];
    yk_cli_list lines;
    int64_t ranks;
    double pitch;
    int n_operands;
    yk_status status;
    heard h;
} song;

static void sing(song *s, int argc, const char *const *argv)
{
    const yk_cli_option options[] = {
        {.name = "loud", .type = YK_CLI_SWITCH, .out = &s->loud, .text = "sing loud"},
        {.name = "voice", .type = YK_CLI_TEXT, .out = &s->voice, .value = "NAME", .text = "whose"},
        {.name = "words",
         .type = YK_CLI_TEXT,
         .out = &s->words,
         .value = "TEXT",
         .text = "to sing",
         .may_be_empty = true},
        {.name = "set",
         .type = YK_CLI_LIST,
         .out = &s->lines,
         .value = "KEY=VALUE",
         .text = "a line"},
        {.name = "ranks",
         .letter = 'n',
         .type = YK_CLI_INT,
         .out = &s->ranks,
         .value = "N",
         .text = "singers",
         .min = 1,
         .max = 8},
        {.name = "pitch",
         .type = YK_CLI_REAL,
         .out = &s->pitch,
         .value = "X",
         .text = "tone",
         .low = 0,
         .high = 2},
    };
    const yk_cli_command command = {
        .name = "sing",
        .operands = "SONG [MORE]",
        .min_operands = 1,
        .max_operands = 2,
        .text = "Sing.",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    s->voice = "alto";
    s->words = "la";
    s->ranks = 4;
    s->pitch = 1;
    heard_begin(&s->h);
    s->status = yk_cli_parse(&command, argc, (char **)(uintptr_t)argv, s->operands, &s->n_operands,
                             &s->done);
    heard_take(&s->h);
    heard_end(&s->h);
}

#define SING(s, ...)                                                                               \
    do {                                                                                           \
        static const char *const given[] = {"sing", __VA_ARGS__, NULL};                            \
        memset((s), 0, sizeof *(s));                                                               \
        sing((s), (int)(sizeof given / sizeof given[0]) - 1, given);                               \
    } while (0)

static void what_is_not_given_keeps_its_value(void **state)
{
    song s;
    (void)state;
    SING(&s, "a.yaml");
    assert_int_equal(s.status, YK_OK);
    assert_false(s.done || s.loud);
    assert_string_equal(s.voice, "alto");
    assert_int_equal(s.ranks, 4);
    assert_true(s.pitch == 1);
    assert_int_equal(s.lines.n_items, 0);
    assert_int_equal(s.n_operands, 1);
    assert_string_equal(s.operands[0], "a.yaml");
    assert_null(s.operands[1]);
}

static void options_and_operands_stand_in_any_order(void **state)
{
    song s;
    (void)state;
    SING(&s, "--set", "a=1", "x", "--ranks=2", "--set=b=2", "--loud", "y", "--pitch", "0.5",
         "--voice", "--loud", "--set", "-c");
    assert_int_equal(s.status, YK_OK);
    assert_true(s.loud);
    assert_string_equal(s.voice, "--loud");
    assert_int_equal(s.ranks, 2);
    assert_true(s.pitch == 0.5);
    assert_int_equal(s.lines.n_items, 3);
    assert_string_equal(s.lines.items[0], "a=1");
    assert_string_equal(s.lines.items[1], "b=2");
    assert_string_equal(s.lines.items[2], "-c");
    assert_int_equal(s.n_operands, 2);
    assert_string_equal(s.operands[0], "x");
    assert_string_equal(s.operands[1], "y");
}

static void some_texts_may_be_empty(void **state)
{
    song s;
    (void)state;
    SING(&s, "x", "--words", "");
    assert_int_equal(s.status, YK_OK);
    assert_string_equal(s.words, "");
}

/* No space is left where words would stand. */
static void a_word_for_one_that_takes_none_is_refused(void **state)
{
    static const char *const given[] = {"hum", "a", NULL};
    const yk_cli_command command = {.name = "hum", .operands = ""};
    const char *operands[1];
    heard h;
    int n;
    bool done;
    (void)state;
    heard_begin(&h);
    assert_int_equal(yk_cli_parse(&command, 2, (char **)(uintptr_t)given, operands, &n, &done),
                     YK_EINVAL);
    heard_take(&h);
    heard_end(&h);
    assert_string_equal(h.text, "yoke: hum: \"a\" is one word too many; the usage is: yoke hum\n");
}

static void a_letter_works_apart_and_together_and_the_last_counts(void **state)
{
    song s;
    (void)state;
    SING(&s, "-n", "2", "x");
    assert_int_equal(s.ranks, 2);
    SING(&s, "-n3", "x");
    assert_int_equal(s.ranks, 3);
    SING(&s, "-n", "2", "x", "--ranks", "5");
    assert_int_equal(s.ranks, 5);
    assert_int_equal(s.status, YK_OK);
}

static void after_two_dashes_everything_is_an_operand(void **state)
{
    song s;
    (void)state;
    SING(&s, "--loud", "--", "--voice", "-");
    assert_int_equal(s.status, YK_OK);
    assert_string_equal(s.operands[0], "--voice");
    assert_string_equal(s.operands[1], "-");
}

static void the_first_operand_may_end_the_options(void **state)
{
    const char *operands[4];
    int64_t ranks = 1;
    int n;
    bool done;
    const yk_cli_option options[] = {
        {.name = "ranks", .letter = 'n', .type = YK_CLI_INT, .out = &ranks, .value = "N", .max = 8},
    };
    const yk_cli_command command = {.name = "lead",
                                    .operands = "SONG",
                                    .max_operands = 4,
                                    .operands_last = true,
                                    .options = options,
                                    .n_options = 1};
    static const char *const given[] = {"lead", "-n", "2", "a", "-n", "3", "--help", NULL};
    (void)state;
    assert_int_equal(yk_cli_parse(&command, 7, (char **)(uintptr_t)given, operands, &n, &done),
                     YK_OK);
    assert_false(done);
    assert_int_equal(ranks, 2);
    assert_int_equal(n, 4);
    assert_string_equal(operands[1], "-n");
    assert_string_equal(operands[3], "--help");
}

static void mistakes_are_told_in_one_line(void **state)
{
    song s;
    (void)state;
#define SAYS(said, ...)                                                                            \
    do {                                                                                           \
        SING(&s, __VA_ARGS__);                                                                     \
        assert_int_equal(s.status, YK_EINVAL);                                                     \
        assert_string_equal(s.h.text, "yoke: sing: " said "\n");                                   \
    } while (0)
    SAYS("there is no option \"--luod\"; the nearest is --loud (`yoke sing --help` lists all)", "x",
         "--luod");
    SAYS("there is no option \"--voices=a\"; the nearest is --voice (`yoke sing --help` lists all)",
         "x", "--voices=a");
    SAYS("there is no option \"-q\" (`yoke sing --help` lists all)", "x", "-q");
    SAYS("--voice: its value is missing; write --voice NAME", "x", "--voice");
    SAYS("--voice: its value is empty; give a NAME, or leave the option out", "x", "--voice", "");
    SAYS("--set: its value is empty; give a KEY=VALUE, or leave the option out", "x", "--set=");
    SAYS("--loud takes no value; write it alone", "x", "--loud=yes");
    SAYS("--ranks: \"two\" is not a whole number; give a whole number, 1 to 8", "x", "-n", "two");
    SAYS("--ranks: \"9\" is out of range; give a whole number, 1 to 8", "x", "--ranks=9");
    SAYS("--pitch: \"nan\" is not finite; give a number, 0 to 2", "x", "--pitch", "nan");
    SAYS("--pitch: \"-1\" is out of range; give a number, 0 to 2", "x", "--pitch", "-1");
    SAYS("\"c\" is one word too many; the usage is: yoke sing SONG [MORE]", "a", "b", "c");
    SAYS("SONG [MORE] is missing; the usage is: yoke sing SONG [MORE]", "--loud");
#undef SAYS
}

static void a_list_has_an_end(void **state)
{
    const char *given[2 * YK_CLI_LIST_MAX + 4] = {"sing", "x"};
    song s = {0};
    int n = 2;
    (void)state;
    for (int i = 0; i <= YK_CLI_LIST_MAX; i++) {
        given[n++] = "--set";
        given[n++] = "a=b";
    }
    sing(&s, n - 2, given);
    assert_int_equal(s.status, YK_OK);
    assert_int_equal(s.lines.n_items, YK_CLI_LIST_MAX);
    memset(&s, 0, sizeof s);
    sing(&s, n, given);
    assert_int_equal(s.status, YK_EINVAL);
    assert_string_equal(s.h.text,
                        "yoke: sing: --set: given more than 256 times; write them into a file\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_given_keeps_its_value),
        cmocka_unit_test(options_and_operands_stand_in_any_order),
        cmocka_unit_test(some_texts_may_be_empty),
        cmocka_unit_test(a_word_for_one_that_takes_none_is_refused),
        cmocka_unit_test(a_letter_works_apart_and_together_and_the_last_counts),
        cmocka_unit_test(after_two_dashes_everything_is_an_operand),
        cmocka_unit_test(the_first_operand_may_end_the_options),
        cmocka_unit_test(mistakes_are_told_in_one_line),
        cmocka_unit_test(a_list_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
