/* tests/launch/test_placement.c - the table of places, and rows that hosts send each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launch/placement.h"
#include "runtime/base/version.h"
#include "tests/runtime/base/heard.h"
#include "tests/runtime/machine/described.h"

/* Hosts of a list, after n ranks were dealt out. */
static yk_hosts hosts_of(const char *list, int n)
{
    yk_hosts hosts;
    int n_ranks;
    assert_int_equal(yk_hosts_read_list(list, &hosts), YK_OK);
    assert_int_equal(yk_hosts_place(&hosts, n, 1, &n_ranks), YK_OK);
    return hosts;
}

static const char *table(const yk_placement *placement)
{
    static _Thread_local char text[4096];
    memset(text, 0, sizeof text);
    FILE *out = fmemopen(text, sizeof text - 1, "w");
    yk_placement_print(placement, out);
    fclose(out);
    return text;
}

static void the_table_shows_ranks_of_this_machine(void **state)
{
    (void)state;
    yk_machine *machine = described("one-socket-4x4090", NULL, NULL);
    yk_hosts hosts = hosts_of("localhost", 2);
    yk_placement placement;
    assert_int_equal(yk_placement_make(machine, &hosts, 2, 1, &placement), YK_OK);
    assert_string_equal(table(&placement),
                        "rank  host       GPU  bus id        NUMA  cores  processors\n"
                        "   0  localhost    0  0000:01:00.0     0      8  0-7,16-23\n"
                        "   1  localhost    1  0000:21:00.0     0      8  8-15,24-31\n");
    yk_placement_fini(&placement);
    assert_int_equal(yk_placement_make(machine, &hosts, 2, 0, &placement), YK_OK);
    assert_non_null(
        strstr(table(&placement), "   1  localhost    -  -                0      8  8-15"));
    yk_placement_fini(&placement);
    yk_hosts_fini(&hosts);
    yk_machine_close(machine);
}

/* What is said about n ranks on this machine with those GPUs visible; "" where they can be
 * placed. */
static const char *said_of_gpus(int n, const char *visible)
{
    static _Thread_local heard h;
    yk_machine *machine = described("one-socket-4x4090", NULL, visible);
    yk_hosts hosts = hosts_of("localhost", n);
    yk_placement placement;
    heard_begin(&h);
    yk_status status = yk_placement_make(machine, &hosts, n, 1, &placement);
    heard_take(&h);
    heard_end(&h);
    if (status == YK_OK) yk_placement_fini(&placement);
    assert_int_equal(status, h.text[0] ? YK_EINVAL : YK_OK);
    yk_hosts_fini(&hosts);
    yk_machine_close(machine);
    return h.text;
}

static void ranks_without_a_gpu_of_their_own_are_refused(void **state)
{
    (void)state;
    assert_string_equal(said_of_gpus(4, NULL), "");
    assert_string_equal(
        said_of_gpus(5, NULL),
        "yoke: localhost: 5 ranks are to run there and it has 4 GPUs, so that two "
        "ranks would share one; give it 4 slots (--hosts localhost:4,...), start fewer "
        "ranks (-n), or let more of them share with launch.ranks_per_gpu\n");
    assert_non_null(strstr(said_of_gpus(2, "3"), "it has 1 GPUs"));
    assert_non_null(strstr(said_of_gpus(1, ""), "yoke: localhost: there is no GPU for 1 ranks"));
}

static void a_note_is_kept_for_whoever_starts_no_rank_to_say_it(void **state)
{
    heard h;
    (void)state;
    yk_machine *machine = described("gpus-nowhere", NULL, NULL);
    yk_hosts hosts = hosts_of("localhost", 3);
    yk_placement placement;
    heard_begin(&h);
    yk_status status = yk_placement_make(machine, &hosts, 3, 1, &placement);
    heard_take(&h);
    heard_end(&h);
    assert_int_equal(status, YK_OK);
    assert_string_equal(h.text, "");
    assert_non_null(strstr(placement.note, "which of 2 NUMA nodes 0000:05:00.0"));
    yk_placement_fini(&placement);
    yk_hosts_fini(&hosts);
    yk_machine_close(machine);
}

/* Rows of one host, as it would print them; appended to `text`. */
static void answer(const yk_machine *machine, int host, int n, char *text, size_t size)
{
    size_t used = strlen(text);
    FILE *out = fmemopen(text + used, size - used, "w");
    assert_int_equal(yk_placement_print_rows(machine, host, n, true, out), YK_OK);
    fclose(out);
}

static void other_hosts_are_open_until_they_answer(void **state)
{
    char text[4096] = "Welcome to host a!\nyoke-row of houses\n";
    (void)state;
    yk_machine *machine = described("two-sockets-8x4090", NULL, NULL);
    yk_hosts hosts = hosts_of("other-a:2,other-b:1", 0);
    yk_placement placement;
    assert_int_equal(yk_placement_make(machine, &hosts, 3, 1, &placement), YK_OK);
    assert_non_null(
        strstr(table(&placement), "   1  other-a    1  ?                ?      ?  ?\n"));
    answer(machine, 1, 1, text, sizeof text);
    strcat(text, "more greetings\n");
    answer(machine, 0, 2, text, sizeof text);
    assert_int_equal(yk_placement_read_rows(&placement, text), YK_OK);
    assert_string_equal(table(&placement),
                        "rank  host     GPU  bus id        NUMA  cores  processors\n"
                        "   0  other-a    0  0000:01:00.0     0     16  0-15,64-79\n"
                        "   1  other-a    1  0000:25:00.0     0     16  16-31,80-95\n"
                        "   2  other-b    0  0000:01:00.0     0     32  0-31,64-95\n");
    yk_placement_fini(&placement);
    yk_hosts_fini(&hosts);
    yk_machine_close(machine);
}

/* What is said when those rows come for other-a:2,other-b:1. */
static const char *complaint(const char *rows)
{
    static _Thread_local heard h;
    yk_machine *machine = described("two-sockets-8x4090", NULL, NULL);
    yk_hosts hosts = hosts_of("other-a:2,other-b:1", 0);
    yk_placement placement;
    assert_int_equal(yk_placement_make(machine, &hosts, 3, 1, &placement), YK_OK);
    heard_begin(&h);
    yk_status status = yk_placement_read_rows(&placement, rows);
    heard_take(&h);
    heard_end(&h);
    assert_int_equal(status, YK_EINVAL);
    assert_int_equal(heard_lines(h.text), 1);
    yk_placement_fini(&placement);
    yk_hosts_fini(&hosts);
    yk_machine_close(machine);
    return h.text;
}

static void a_host_that_is_silent_poor_or_old_is_named(void **state)
{
    char rows[1024];
    (void)state;
    assert_non_null(strstr(complaint(""), "yoke: other-a: yoke on that host did not say"));
    snprintf(rows, sizeof rows, "yoke-row\t%s\t0\t8\t0\t0\tx\t0\t0-3\t4\n", YK_VERSION);
    assert_non_null(strstr(complaint(rows), "yoke: other-a: "));
    snprintf(rows, sizeof rows, "yoke-row\t%s\t0\t1\t0\t0\tx\t0\t0-3\t4\n", YK_VERSION);
    assert_non_null(
        strstr(complaint(rows), "yoke: other-a: 2 ranks are to run there and it has 1 GPUs"));
    assert_non_null(strstr(complaint("yoke-row\t0.0.9\t1\t8\t0\t0\tx\t0\t0-3\t4\n"),
                           "yoke: other-b: yoke is version 0.0.9 there"));
    snprintf(rows, sizeof rows, "yoke-row\t%s\t9\t8\t0\t0\tx\t0\t0-3\t4\n", YK_VERSION);
    assert_non_null(strstr(complaint(rows), "yoke: other-a: yoke on that host did not say"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_shows_ranks_of_this_machine),
        cmocka_unit_test(ranks_without_a_gpu_of_their_own_are_refused),
        cmocka_unit_test(a_note_is_kept_for_whoever_starts_no_rank_to_say_it),
        cmocka_unit_test(other_hosts_are_open_until_they_answer),
        cmocka_unit_test(a_host_that_is_silent_poor_or_old_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
