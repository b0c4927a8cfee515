/* tests/launch/test_hosts.c - lists and files of hosts, a Slurm job's, and how ranks are dealt
 * out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/hosts.h"
#include "tests/runtime/base/heard.h"
#include "tests/runtime/scratch.h"

/* The list as "name:slots ..." */
static const char *written(const yk_hosts *hosts)
{
    static _Thread_local char text[4096];
    int used = 0;
    text[0] = '\0';
    for (int i = 0; i < hosts->n_items; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s:%d", i ? " " : "",
                         hosts->items[i].name, hosts->items[i].slots);
    return text;
}

static void expect_list(const char *text, const char *expected)
{
    yk_hosts hosts;
    assert_int_equal(yk_hosts_read_list(text, &hosts), YK_OK);
    assert_string_equal(written(&hosts), expected);
    yk_hosts_fini(&hosts);
}

static void lists_give_names_and_slots(void **state)
{
    (void)state;
    expect_list("a:4,b:2", "a:4 b:2");
    expect_list("a", "a:0");
    expect_list("node-1.site.org:8,10.0.0.2", "node-1.site.org:8 10.0.0.2:0");
    expect_list("a,b,a", "a:2 b:0");
    expect_list("a:2,a:3", "a:5");
}

static void what_is_no_list_is_told_in_one_line(void **state)
{
    static const char *const wrong[] = {"", "a,,b", ":4", "a:", "a:0", "a:-1", "a:x", "a:65537",
                                        /* what steers a terminal, or is not seen */
                                        "a\x1b[2J", "a\302\2332J:4", "a\x7f", "a b", "a\n", "a\x9b",
                                        "\xef\xbb\277a", "a\xe2\x80\256b"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yk_hosts hosts = {NULL, 7};
        heard h;
        heard_begin(&h);
        yk_status status = yk_hosts_read_list(wrong[i], &hosts);
        int lines = heard_lines(heard_take(&h));
        heard_end(&h);
        assert_int_equal(status, YK_EINVAL);
        assert_int_equal(lines, 1);
        assert_int_equal(hosts.n_items, 7);
    }
}

/* Reads a file of those bytes; what it says on stderr goes into said (a heard's text). */
static yk_status read_bytes(const char *bytes, size_t n, yk_hosts *hosts, heard *said)
{
    char dir[SCRATCH_PATH], path[SCRATCH_PATH];
    scratch_make(dir);
    scratch_write(path, dir, "hosts", bytes, (int64_t)n);
    heard_begin(said);
    yk_status status = yk_hosts_read_file(path, hosts);
    heard_take(said);
    heard_end(said);
    scratch_remove(dir);
    return status;
}

static yk_status read_file(const char *text, yk_hosts *hosts, heard *said)
{
    return read_bytes(text, strlen(text), hosts, said);
}

static void files_of_open_mpi_and_plain_ones_are_read(void **state)
{
    static const struct {
        const char *text, *expected;
    } table[] = {
        {"a slots=4\nb slots=2 max_slots=8\n", "a:4 b:2"},
        {"# two boxes\n\n  a   slots=4  # the first\r\nb\tmax-slots=3 cpu=2", "a:4 b:2"},
        {"a 4\nb:2\nc\n", "a:4 b:2 c:0"},
        {"a\na\nb\na\n", "a:3 b:0"},
        {"\xef\xbb\277a slots=2\nb\n", "a:2 b:0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        yk_hosts hosts;
        heard said;
        assert_int_equal(read_file(table[i].text, &hosts, &said), YK_OK);
        assert_string_equal(written(&hosts), table[i].expected);
        yk_hosts_fini(&hosts);
    }
}

static void a_line_that_is_wrong_is_named_by_its_number(void **state)
{
    static const struct {
        const char *text, *expected;
    } table[] = {
        {"a slots=4\nb slots=four\n", "hosts:2: \"slots=four\" is not a whole number"},
        {"a\n#\nb gpus=4\n", "hosts:3: \"gpus=4\" is not understood"},
        {"a slots=0\n", "hosts:1: \"slots=0\" is out of range"},
        {"a\nb\302\233c slots=2\n", "\"b?c\" is no name of a host"},
        {"# nothing\n", "names no host"},
        {"", "names no host"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        yk_hosts hosts;
        heard said;
        assert_int_equal(read_file(table[i].text, &hosts, &said), YK_EINVAL);
        assert_non_null(strstr(said.text, table[i].expected));
        assert_int_equal(heard_lines(said.text), 1);
    }
}

static void a_file_that_is_not_text_is_not_shown(void **state)
{
    static const char program[] = "\x7f"
                                  "ELF\2\1\1\0\3",
                      latin[] = "k\xf6ln slots=2\n";
    (void)state;
    for (int i = 0; i < 2; i++) {
        yk_hosts hosts;
        heard said;
        assert_int_equal(
            read_bytes(i ? latin : program, i ? sizeof latin - 1 : sizeof program, &hosts, &said),
            YK_EINVAL);
        assert_non_null(strstr(said.text, "hosts: is not text; name one host a line"));
        assert_int_equal(heard_lines(said.text), 1);
        assert_null(strstr(said.text, "ELF"));
    }
}

static void expect_job(const char *list, const char *tasks, const char *expected)
{
    yk_hosts hosts;
    setenv("SLURM_JOB_NODELIST", list, 1);
    setenv("SLURM_TASKS_PER_NODE", tasks, 1);
    assert_int_equal(yk_hosts_read_environment(&hosts), YK_OK);
    assert_string_equal(written(&hosts), expected);
    yk_hosts_fini(&hosts);
}

static void a_slurm_job_has_its_nodes(void **state)
{
    (void)state;
    expect_job("n7", "4", "n7:4");
    expect_job("n[0-2,7]", "4(x3),2", "n0:4 n1:4 n2:4 n7:2");
    expect_job("gpu[08-11]-ib,login,x[1,3]", "8(x7)",
               "gpu08-ib:8 gpu09-ib:8 gpu10-ib:8 gpu11-ib:8 login:8 x1:8 x3:8");
    expect_job("a,b", "nonsense", "a:0 b:0");
    unsetenv("SLURM_TASKS_PER_NODE");
    unsetenv("SLURM_JOB_NODELIST");
}

static void a_node_list_that_is_wrong_is_refused(void **state)
{
    static const char *const wrong[] = {"", "n[", "n[1-", "n[2-1]", "n[a]", "n[1-2][3]", "n[]x[1]"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yk_hosts hosts;
        heard h;
        setenv("SLURM_JOB_NODELIST", wrong[i], 1);
        heard_begin(&h);
        yk_status status = yk_hosts_read_environment(&hosts);
        bool told = strstr(heard_take(&h), "--hosts a:4,b:4") != NULL;
        heard_end(&h);
        assert_int_equal(status, YK_EINVAL);
        assert_true(told);
    }
    unsetenv("SLURM_JOB_NODELIST");
}

static void alone_there_is_this_machine_by_its_name(void **state)
{
    char here[256] = "";
    yk_hosts hosts;
    int n;
    (void)state;
    gethostname(here, sizeof here - 1);
    assert_int_equal(yk_hosts_read_environment(&hosts), YK_OK);
    assert_int_equal(hosts.n_items, 1);
    assert_string_equal(hosts.items[0].name, here);
    assert_int_equal(yk_hosts_place(&hosts, 0, 3, &n), YK_OK);
    assert_int_equal(n, 3);
    assert_true(yk_hosts_are_local(&hosts));
    yk_hosts_fini(&hosts);
}

/* Ranks of each host when n are dealt out, as "4 2". */
static const char *dealt(const char *list, int n)
{
    static _Thread_local char text[256];
    yk_hosts hosts;
    int placed, sum = 0, used = 0;
    assert_int_equal(yk_hosts_read_list(list, &hosts), YK_OK);
    assert_int_equal(yk_hosts_place(&hosts, n, 2, &placed), YK_OK);
    for (int i = 0; i < hosts.n_items; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%d", i ? " " : "",
                         hosts.items[i].n_ranks);
        sum += hosts.items[i].n_ranks;
    }
    assert_int_equal(sum, placed);
    if (n) assert_int_equal(placed, n);
    yk_hosts_fini(&hosts);
    return text;
}

static void ranks_fill_hosts_in_order(void **state)
{
    (void)state;
    assert_string_equal(dealt("a:4,b:2", 0), "4 2");
    assert_string_equal(dealt("a:4,b:2", 5), "4 1");
    assert_string_equal(dealt("a:4,b:2", 3), "3 0");
    assert_string_equal(dealt("a,b:1", 0), "2 1");
    assert_string_equal(dealt("a", 5), "5");
}

static void ranks_beyond_the_slots_go_round_in_proportion(void **state)
{
    (void)state;
    assert_string_equal(dealt("a:4,b:4", 16), "8 8");
    assert_string_equal(dealt("a:4,b:2", 9), "6 3");
    assert_string_equal(dealt("a:1,b:1,c:1", 4), "1 1 2");
}

static void this_machine_is_known_by_its_names(void **state)
{
    char list[1024], here[256] = "";
    yk_hosts hosts;
    int n;
    (void)state;
    gethostname(here, sizeof here - 1);
    here[strcspn(here, ".")] = '\0';
    snprintf(list, sizeof list, "localhost,127.0.0.1,%s,%s.example.org,%sx", here, here, here);
    assert_int_equal(yk_hosts_read_list(list, &hosts), YK_OK);
    assert_int_equal(yk_hosts_place(&hosts, 0, 1, &n), YK_OK);
    for (int i = 0; i < 3; i++) assert_true(hosts.items[i].is_local);
    assert_false(hosts.items[4].is_local);
    assert_false(yk_hosts_are_local(&hosts));
    hosts.items[4].n_ranks = 0;
    hosts.items[3].is_local = true;
    assert_true(yk_hosts_are_local(&hosts));
    yk_hosts_fini(&hosts);
}

static void too_many_ranks_are_refused(void **state)
{
    yk_hosts hosts;
    heard h;
    int n = -1;
    (void)state;
    assert_int_equal(yk_hosts_read_list("a:65536,b:1", &hosts), YK_OK);
    heard_begin(&h);
    yk_status status = yk_hosts_place(&hosts, 0, 1, &n);
    heard_take(&h);
    heard_end(&h);
    assert_int_equal(status, YK_EINVAL);
    assert_int_equal(n, -1);
    yk_hosts_fini(&hosts);
}

static int forget_slurm(void **state)
{
    (void)state;
    unsetenv("SLURM_JOB_NODELIST");
    unsetenv("SLURM_TASKS_PER_NODE");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_give_names_and_slots),
        cmocka_unit_test(what_is_no_list_is_told_in_one_line),
        cmocka_unit_test(files_of_open_mpi_and_plain_ones_are_read),
        cmocka_unit_test(a_file_that_is_not_text_is_not_shown),
        cmocka_unit_test(a_line_that_is_wrong_is_named_by_its_number),
        cmocka_unit_test(a_slurm_job_has_its_nodes),
        cmocka_unit_test(a_node_list_that_is_wrong_is_refused),
        cmocka_unit_test(alone_there_is_this_machine_by_its_name),
        cmocka_unit_test(ranks_fill_hosts_in_order),
        cmocka_unit_test(ranks_beyond_the_slots_go_round_in_proportion),
        cmocka_unit_test(this_machine_is_known_by_its_names),
        cmocka_unit_test(too_many_ranks_are_refused),
    };
    return cmocka_run_group_tests(tests, forget_slurm, NULL);
}
