/* tests/launch/test_mpirun.c - the words that mpirun gets, and how a command is written for a
 * shell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/mpirun.h"

static char *const program[] = {(char[]){"/opt/yoke"}, (char[]){"train"}, (char[]){"a.yaml"}};
static char *const nothing[] = {NULL};

/* Words of a command from mpirun on, with blanks between them. */
static const char *joined(const yk_command *command)
{
    static _Thread_local char text[4096];
    text[0] = '\0';
    for (int i = 0; i < command->words.n_items; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
                 command->words.items[i]);
    return text;
}

/* The command for n ranks on those hosts. */
static const char *command_for(const char *list, int n, int n_cores, const yk_network *network,
                               char *const *env, bool is_survey)
{
    static const yk_network none = {.interface = ""};
    yk_hosts hosts;
    yk_command command = {.is_short = false};
    int n_ranks;
    assert_int_equal(yk_hosts_read_list(list, &hosts), YK_OK);
    assert_int_equal(yk_hosts_place(&hosts, n, 1, &n_ranks), YK_OK);
    const yk_mpirun run = {.hosts = &hosts,
                           .network = network ? network : &none,
                           .n_ranks = n_ranks,
                           .n_cores = n_cores,
                           .env = env ? env : nothing,
                           .words = program,
                           .n_words = 3};
    assert_int_equal(is_survey ? yk_mpirun_survey_command(&run, &command)
                               : yk_mpirun_command(&run, &command),
                     YK_OK);
    assert_null(command.words.items[command.words.n_items]);
    const char *text = joined(&command);
    yk_command_fini(&command);
    yk_hosts_fini(&hosts);
    return text;
}

static void on_this_machine_ranks_are_counted_and_left_unbound(void **state)
{
    (void)state;
    assert_string_equal(command_for("localhost", 4, 8, NULL, NULL, false),
                        "mpirun -q -n 4 --map-by slot --bind-to none "
                        "--mca odls_base_sigkill_timeout 1 /opt/yoke train a.yaml");
}

static void other_hosts_are_named_with_their_ranks(void **state)
{
    (void)state;
    assert_non_null(strstr(command_for("a:4,b:2,c:2", 5, 8, NULL, NULL, false), "-n 5 "));
    assert_non_null(
        strstr(command_for("a:4,b:2,c:2", 5, 8, NULL, NULL, false), " --host a:4,b:1 --mca "));
}

static void more_ranks_than_slots_or_cores_are_admitted(void **state)
{
    (void)state;
    assert_null(strstr(command_for("a:4,b:4", 8, 1, NULL, NULL, false), "--oversubscribe"));
    assert_non_null(strstr(command_for("a:4,b:4", 9, 1, NULL, NULL, false), " --oversubscribe "));
    assert_null(strstr(command_for("localhost", 2, 2, NULL, NULL, false), "--oversubscribe"));
    assert_non_null(strstr(command_for("localhost", 3, 2, NULL, NULL, false),
                           " --oversubscribe --mca mpi_yield_when_idle 1 "));
}

static void the_environment_of_the_libraries_is_forwarded(void **state)
{
    char *const env[] = {(char[]){"HOME=/root"},       (char[]){"NCCL_DEBUG=INFO"},
                         (char[]){"UCX_TLS=rc,self"},  (char[]){"OMP_WAIT_POLICY=passive"},
                         (char[]){"YK_X=a b"},         (char[]){"CUDA_VISIBLE_DEVICES=0,1"},
                         (char[]){"XNCCL_DEBUG=INFO"}, (char[]){"CUDA_VISIBLE_DEVICES_OLD=3"},
                         (char[]){"=strange"},         NULL};
    (void)state;
    assert_non_null(strstr(command_for("localhost", 2, 2, NULL, env, false),
                           "timeout 1 -x NCCL_DEBUG -x UCX_TLS -x OMP_WAIT_POLICY -x YK_X -x "
                           "CUDA_VISIBLE_DEVICES /opt/yoke"));
}

static const yk_network cable = {.interface = "ib0", .subnet = "10.1.2.0/24"};
static const yk_network routed = {.interface = "ib0"};

static void one_network_serves_mpi_and_nccl(void **state)
{
    (void)state;
    const char *text = command_for("a:1,b:1", 0, 2, &cable, NULL, false);
    assert_non_null(strstr(text, "--mca btl_tcp_if_include 10.1.2.0/24 --mca oob_tcp_if_include "
                                 "10.1.2.0/24 -x NCCL_SOCKET_IFNAME==ib0 /opt/yoke"));
    text = command_for("a:1,b:1", 0, 2, &routed, NULL, false);
    assert_non_null(strstr(text, "--mca btl_tcp_if_include ib0 --mca oob_tcp_if_include ib0"));
}

static void what_the_user_has_set_is_left_alone(void **state)
{
    char *const env[] = {(char[]){"OMPI_MCA_btl_tcp_if_include=eth7"},
                         (char[]){"OMPI_MCA_oob_tcp_if_exclude=lo"},
                         (char[]){"NCCL_SOCKET_IFNAME=eth7"}, NULL};
    (void)state;
    const char *text = command_for("a:1,b:1", 0, 2, &cable, env, false);
    assert_null(strstr(text, "tcp_if_include"));
    assert_non_null(strstr(text, " -x NCCL_SOCKET_IFNAME /opt/yoke"));
}

static void a_survey_asks_each_host_once_with_its_number_and_ranks(void **state)
{
    (void)state;
    assert_string_equal(command_for("a:4,b:2,c:2", 5, 8, &routed, NULL, true),
                        "mpirun -q --mca plm_rsh_args -o BatchMode=yes -o ConnectTimeout=10 "
                        "--mca btl_tcp_if_include ib0 --mca oob_tcp_if_include ib0 "
                        "-x NCCL_SOCKET_IFNAME==ib0 "
                        "--bind-to none --host a:1 -n 1 /opt/yoke train a.yaml 0 4 : "
                        "--bind-to none --host b:1 -n 1 /opt/yoke train a.yaml 1 1");
}

static void a_survey_reaches_hosts_as_the_user_has_said(void **state)
{
    char *const agent[] = {(char[]){"OMPI_MCA_plm_rsh_agent=rsh"}, NULL};
    char *const args[] = {(char[]){"OMPI_MCA_plm_rsh_args=-p 2222"}, NULL};
    (void)state;
    assert_null(strstr(command_for("a:1,b:1", 0, 8, NULL, agent, true), "plm_rsh_args"));
    assert_null(strstr(command_for("a:1,b:1", 0, 8, NULL, args, true), "plm_rsh_args"));
}

static void root_is_admitted_and_a_terminal_is_told_of(void **state)
{
    yk_hosts hosts;
    yk_command command = {.is_short = false};
    int n_ranks;
    const yk_network none = {.interface = ""};
    (void)state;
    assert_int_equal(yk_hosts_read_list("localhost", &hosts), YK_OK);
    assert_int_equal(yk_hosts_place(&hosts, 2, 1, &n_ranks), YK_OK);
    const yk_mpirun run = {.hosts = &hosts,
                           .network = &none,
                           .n_ranks = n_ranks,
                           .n_cores = 2,
                           .is_on_terminal = true,
                           .timeout_s = 2.5,
                           .env = nothing,
                           .words = program,
                           .n_words = 3};
    assert_int_equal(yk_mpirun_command(&run, &command), YK_OK);
    assert_non_null(strstr(joined(&command), " -x YK_TERMINAL=1 -x YK_TIMEOUT=2.5 /opt/yoke"));
    assert_int_equal(command.settings.n_items, geteuid() == 0 ? 2 : 0);
    if (geteuid() == 0) assert_string_equal(command.settings.items[0], "OMPI_ALLOW_RUN_AS_ROOT=1");
    yk_command_fini(&command);
    yk_hosts_fini(&hosts);
}

static void a_shell_reads_back_the_words_that_were_printed(void **state)
{
    static const char *const words[] = {
        "plain-1.2/x:y=z", "two words", "it's", "", "$HOME", "a\"b\\c", "*", "~", "line\nbreak"};
    int n = sizeof words / sizeof words[0];
    char line[1024] = "", out[1024] = "", expected[1024] = "";
    yk_command command = {.is_short = false};
    (void)state;
    yk_command_set(&command, "YK_A", "x y'z");
    yk_command_add(&command, "printf");
    yk_command_add(&command, "%%s|");
    for (int i = 0; i < n; i++) {
        yk_command_add(&command, "%s", words[i]);
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%s|", words[i]);
    }
    FILE *text = fmemopen(line, sizeof line, "w");
    yk_command_print(&command, text);
    fclose(text);
    assert_true(strncmp(line, "YK_A='x y'\\''z' printf '%s|' plain-1.2/x:y=z 'two words' ", 50) ==
                0);
    FILE *shell = popen(line, "r");
    size_t length = fread(out, 1, sizeof out - 1, shell);
    assert_int_equal(pclose(shell), 0);
    assert_int_equal(length, strlen(expected));
    assert_string_equal(out, expected);
    yk_command_fini(&command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_this_machine_ranks_are_counted_and_left_unbound),
        cmocka_unit_test(other_hosts_are_named_with_their_ranks),
        cmocka_unit_test(more_ranks_than_slots_or_cores_are_admitted),
        cmocka_unit_test(the_environment_of_the_libraries_is_forwarded),
        cmocka_unit_test(one_network_serves_mpi_and_nccl),
        cmocka_unit_test(what_the_user_has_set_is_left_alone),
        cmocka_unit_test(a_survey_asks_each_host_once_with_its_number_and_ranks),
        cmocka_unit_test(a_survey_reaches_hosts_as_the_user_has_said),
        cmocka_unit_test(root_is_admitted_and_a_terminal_is_told_of),
        cmocka_unit_test(a_shell_reads_back_the_words_that_were_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
