/* tests/runtime/machine/test_binding.c - which cores and memory ranks get on described machines, and
 * that a rank of this machine gets them.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/machine/binding.h"
#include "tests/runtime/machine/described.h"

#define MAX_RANKS 64

static yk_machine *synthetic(const char *text)
{
    yk_machine *machine;
    const yk_machine_source source = {.synthetic = text};
    assert_int_equal(yk_machine_open_described(&source, &machine), YK_OK);
    return machine;
}

static const char *cpus(const yk_binding *b)
{
    static _Thread_local char text[YK_CPUS_TEXT];
    return yk_cpus_write(&b->cpus, text);
}

/* Bindings of n ranks that were given what the process was; rank i has GPU i % (number of GPUs), or
 * none. */
static void plan(const yk_machine *machine, int n, bool with_gpus, yk_binding *bindings)
{
    yk_binding_wish wishes[MAX_RANKS];
    int n_gpus = yk_machine_n_gpus(machine);
    for (int i = 0; i < n; i++)
        yk_binding_wish_for(machine, with_gpus ? yk_machine_gpu(machine, i % n_gpus) : NULL,
                            &wishes[i]);
    assert_int_equal(yk_binding_plan(machine, wishes, n, bindings), YK_OK);
}

/* Every rank has some processors of its own, all that were given are used, and no two share one. */
static void expect_a_partition(const yk_machine *machine, const yk_binding *b, int n)
{
    yk_cpus all = {{0}};
    for (int i = 0; i < n; i++) {
        yk_cpus twice = yk_cpus_and(&all, &b[i].cpus);
        assert_true(yk_cpus_is_empty(&twice));
        assert_false(yk_cpus_is_empty(&b[i].cpus));
        assert_false(b[i].is_shared);
        all = yk_cpus_or(&all, &b[i].cpus);
    }
    assert_true(yk_cpus_is_equal(&all, yk_machine_given(machine)));
}

static void eight_gpus_on_two_sockets_have_eight_near_cores_each(void **state)
{
    yk_binding b[8];
    (void)state;
    yk_machine *machine = described("two-sockets-8x4090", NULL, NULL);
    plan(machine, 8, true, b);
    expect_a_partition(machine, b, 8);
    for (int i = 0; i < 8; i++) {
        char expected[YK_CPUS_TEXT];
        snprintf(expected, sizeof expected, "%d-%d,%d-%d", i * 8, i * 8 + 7, i * 8 + 64,
                 i * 8 + 71);
        assert_string_equal(cpus(&b[i]), expected);
        assert_int_equal(b[i].node, i / 4);
        assert_int_equal(b[i].n_cores, 8);
        assert_string_equal(b[i].note, "");
    }
    yk_machine_close(machine);
}

static void ranks_keep_to_the_sockets_of_the_gpus_they_have(void **state)
{
    yk_binding b[3];
    (void)state;
    yk_machine *machine = described("two-sockets-8x4090", NULL, "7,0,6");
    plan(machine, 3, true, b);
    assert_string_equal(cpus(&b[0]), "32-47,96-111");
    assert_string_equal(cpus(&b[1]), "0-31,64-95");
    assert_string_equal(cpus(&b[2]), "48-63,112-127");
    assert_int_equal(b[1].node, 0);
    yk_machine_close(machine);
}

static void without_gpus_cores_are_divided_in_order_of_node(void **state)
{
    yk_binding b[MAX_RANKS];
    (void)state;
    yk_machine *machine = described("two-sockets-8x4090", NULL, NULL);
    for (int n = 1; n <= 64; n++) {
        plan(machine, n, false, b);
        expect_a_partition(machine, b, n);
        for (int i = 0; i < n; i++) {
            assert_in_range(b[i].n_cores, 64 / n, (64 + n - 1) / n);
            assert_int_equal(yk_cpus_count(&b[i].cpus), 2 * b[i].n_cores); /* whole cores */
        }
    }
    plan(machine, 2, false, b);
    assert_string_equal(cpus(&b[0]), "0-31,64-95");
    assert_int_equal(b[0].node, 0);
    assert_int_equal(b[1].node, 1);
    plan(machine, 3, false, b);
    assert_int_equal(b[1].node, -1); /* astride of both */
    yk_machine_close(machine);
}

static void a_sparse_cpuset_is_divided_by_what_is_in_it(void **state)
{
    yk_binding b[8];
    (void)state;
    yk_machine *machine = described("sparse-cpuset", NULL, NULL);
    plan(machine, 2, false, b);
    expect_a_partition(machine, b, 2);
    assert_string_equal(cpus(&b[0]), "3,9,20,67,73");
    assert_string_equal(cpus(&b[1]), "33,40,63,97,104,127");
    for (int i = 0; i < 2; i++) assert_int_equal(b[i].n_cores, 3);
    plan(machine, 4, false, b); /* two cores for two of them, one for the others */
    expect_a_partition(machine, b, 4);
    assert_string_equal(cpus(&b[0]), "3,9,67,73");
    assert_string_equal(cpus(&b[3]), "63,127");
    plan(machine, 8, true, b); /* 5 processors for four ranks, 6 for the other four */
    expect_a_partition(machine, b, 8);
    for (int i = 0; i < 8; i++) {
        assert_in_range(yk_cpus_count(&b[i].cpus), 1, 2);
        assert_int_equal(b[i].n_cores, 1);
        assert_int_equal(b[i].node, i / 4);
    }
    yk_machine_close(machine);
}

static void processors_far_from_the_gpu_are_used_and_said(void **state)
{
    yk_binding b[2];
    (void)state;
    yk_machine *machine = described("far-cpuset", NULL, NULL);
    plan(machine, 2, true, b);
    expect_a_partition(machine, b, 2);
    assert_string_equal(b[0].note, "");
    assert_non_null(strstr(b[1].note, "given processors 0-7"));
    assert_non_null(strstr(b[1].note, "0000:81:00.0"));
    assert_non_null(strstr(b[1].note, "8-15 are"));
    assert_int_equal(b[1].n_cores, 4);
    yk_machine_close(machine);
}

static void memory_of_a_node_without_any_is_not_asked_for(void **state)
{
    yk_binding b[2];
    (void)state;
    yk_machine *machine = described("node-without-memory", NULL, NULL);
    plan(machine, 2, true, b);
    assert_string_equal(cpus(&b[1]), "8-15");
    assert_int_equal(b[0].node, 0);
    assert_int_equal(b[1].node, -1);
    assert_string_equal(b[1].note, "");
    yk_machine_close(machine);
}

static void gpus_that_lie_nowhere_get_even_shares_and_a_line(void **state)
{
    yk_binding b[3];
    (void)state;
    yk_machine *machine = described("gpus-nowhere", NULL, NULL);
    plan(machine, 3, true, b);
    expect_a_partition(machine, b, 3);
    assert_string_equal(cpus(&b[0]), "0-3");
    assert_string_equal(cpus(&b[2]), "8-11");
    assert_int_equal(b[1].node, -1);
    assert_non_null(strstr(b[1].note, "which of 2 NUMA nodes 0000:06:00.0 belongs to"));
    assert_null(strchr(b[1].note, '\n'));
    yk_machine_close(machine);
}

static void a_gpu_that_lies_nowhere_takes_what_the_others_cannot_use(void **state)
{
    yk_binding b[2];
    (void)state;
    yk_machine *machine = described("one-gpu-nowhere", NULL, "1,0");
    plan(machine, 2, true, b);
    expect_a_partition(machine, b, 2);
    assert_string_equal(cpus(&b[0]), "6-11");
    assert_string_equal(cpus(&b[1]), "0-5");
    yk_machine_close(machine);
}

static void threads_of_a_core_are_parted_only_for_want_of_cores(void **state)
{
    yk_binding b[6];
    (void)state;
    yk_machine *machine = synthetic("core:2 pu:2");
    plan(machine, 2, false, b);
    assert_string_equal(cpus(&b[0]), "0-1");
    assert_int_equal(b[0].n_cores, 1);
    plan(machine, 3, false, b);
    expect_a_partition(machine, b, 3);
    assert_string_equal(cpus(&b[0]), "0-1");
    assert_string_equal(cpus(&b[1]), "2");
    assert_string_equal(cpus(&b[2]), "3");
    for (int i = 0; i < 3; i++) assert_int_equal(b[i].n_cores, 1);
    yk_machine_close(machine);
}

static void more_ranks_than_processors_share_them_all_and_say_so(void **state)
{
    yk_binding b[5];
    (void)state;
    yk_machine *machine = synthetic("core:2 pu:2");
    plan(machine, 5, false, b);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(cpus(&b[i]), "0-3");
        assert_true(b[i].is_shared);
        assert_int_equal(b[i].n_cores, 1);
        assert_non_null(strstr(b[i].note, "5 ranks share 4 processors"));
    }
    yk_machine_close(machine);
}

static void a_crowd_on_one_node_leaves_the_other_node_alone(void **state)
{
    yk_binding b[4];
    yk_binding_wish wishes[4];
    (void)state;
    yk_machine *machine = synthetic("pack:2 [numa] core:2 pu:1");
    for (int i = 0; i < 4; i++) {
        yk_binding_wish_for(machine, NULL, &wishes[i]);
        assert_true(yk_cpus_read(i < 3 ? "0-1" : "2-3", &wishes[i].given));
    }
    assert_int_equal(yk_binding_plan(machine, wishes, 4, b), YK_OK);
    for (int i = 0; i < 3; i++) assert_true(b[i].is_shared);
    assert_string_equal(cpus(&b[2]), "0-1");
    assert_string_equal(cpus(&b[3]), "2-3");
    assert_false(b[3].is_shared);
    assert_int_equal(b[3].n_cores, 2);
    yk_machine_close(machine);
}

static void more_ranks_than_gpus_divide_the_cores_near_each(void **state)
{
    yk_binding b[16];
    (void)state;
    yk_machine *machine = described("two-sockets-8x4090", NULL, NULL);
    plan(machine, 16, true, b);
    expect_a_partition(machine, b, 16);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(b[i].n_cores, 4);
        assert_int_equal(b[i].node, i % 8 / 4);
    }
    yk_machine_close(machine);
}

static void ranks_that_were_given_their_own_keep_them(void **state)
{
    static const char *const given[] = {"12-15", "0-3", "4-7", "8-11"};
    yk_binding b[4];
    yk_binding_wish wishes[4];
    (void)state;
    yk_machine *machine = synthetic("pack:2 [numa] core:8 pu:1");
    for (int i = 0; i < 4; i++) {
        yk_binding_wish_for(machine, NULL, &wishes[i]);
        assert_true(yk_cpus_read(given[i], &wishes[i].given));
    }
    assert_int_equal(yk_binding_plan(machine, wishes, 4, b), YK_OK);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(cpus(&b[i]), given[i]);
        assert_string_equal(b[i].note, "");
    }
    yk_machine_close(machine);
}

static void a_launcher_that_gives_one_core_of_many_is_named(void **state)
{
    yk_binding b[2];
    yk_binding_wish wishes[2];
    (void)state;
    yk_machine *machine = synthetic("core:8 pu:1");
    for (int is_started = 0; is_started < 2; is_started++) {
        for (int i = 0; i < 2; i++) {
            yk_binding_wish_for(machine, NULL, &wishes[i]);
            assert_true(yk_cpus_read(i == 0 ? "0" : "1", &wishes[i].given));
            wishes[i].is_started = is_started;
        }
        assert_int_equal(yk_binding_plan(machine, wishes, 2, b), YK_OK);
        assert_string_equal(cpus(&b[1]), "1");
        if (is_started)
            assert_non_null(strstr(b[1].note, "started on 1 of 8 cores; more are to be had with "
                                              "mpirun --bind-to none"));
        else
            assert_string_equal(b[1].note, "");
    }
    yk_machine_close(machine);
}

static void overlapping_gifts_leave_nobody_without(void **state)
{
    static const char *const given[] = {"0-2", "1-3", "2-4", "0,4", "0-5"};
    yk_binding b[5];
    yk_binding_wish wishes[5];
    yk_cpus all = {{0}};
    (void)state;
    yk_machine *machine = synthetic("core:6 pu:1");
    for (int i = 0; i < 5; i++) {
        yk_binding_wish_for(machine, NULL, &wishes[i]);
        assert_true(yk_cpus_read(given[i], &wishes[i].given));
    }
    assert_int_equal(yk_binding_plan(machine, wishes, 5, b), YK_OK);
    for (int i = 0; i < 5; i++) {
        yk_cpus twice = yk_cpus_and(&all, &b[i].cpus);
        assert_false(yk_cpus_is_empty(&b[i].cpus));
        assert_true(yk_cpus_holds(&wishes[i].given, &b[i].cpus));
        assert_true(yk_cpus_is_empty(&twice));
        all = yk_cpus_or(&all, &b[i].cpus);
    }
    yk_machine_close(machine);
}

static void processors_that_no_core_has_are_kept_all_the_same(void **state)
{
    yk_binding b;
    yk_binding_wish wish;
    (void)state;
    yk_machine *machine = synthetic("core:2 pu:1");
    yk_binding_wish_for(machine, NULL, &wish);
    assert_true(yk_cpus_read("70", &wish.given));
    assert_int_equal(yk_binding_plan(machine, &wish, 1, &b), YK_OK);
    assert_string_equal(cpus(&b), "70");
    assert_int_equal(b.n_cores, 1);
    yk_machine_close(machine);
}

static void on_this_machine_a_binding_is_what_the_system_then_says(void **state)
{
    yk_binding b[2];
    cpu_set_t set;
    (void)state;
    unsetenv("OMP_PROC_BIND");
    unsetenv("OMP_PLACES");
    yk_machine *machine;
    assert_int_equal(yk_machine_open(&machine), YK_OK);
    plan(machine, 2, false, b);
    yk_binding_apply(machine, &b[1]);
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        assert_int_equal(yk_cpus_has(&b[1].cpus, cpu), CPU_ISSET(cpu, &set));
    if (!b[1].is_shared) assert_string_equal(b[1].note, "");
    yk_machine_close(machine);
}

static void what_the_system_refuses_is_a_line_and_no_failure(void **state)
{
    yk_binding b;
    (void)state;
    yk_machine *machine;
    assert_int_equal(yk_machine_open(&machine), YK_OK);
    plan(machine, 1, false, &b);
    memset(&b.cpus, 0, sizeof b.cpus);
    yk_cpus_add(&b.cpus, YK_CPUS_MAX - 1);
    yk_binding_apply(machine, &b);
    assert_non_null(strstr(b.note, "the system refuses to keep this rank on processors 4095"));
    yk_machine_close(machine);
}

static void openmp_that_binds_by_itself_is_named(void **state)
{
    yk_binding b;
    (void)state;
    yk_machine *machine;
    assert_int_equal(yk_machine_open(&machine), YK_OK);
    setenv("OMP_PROC_BIND", "false", 1);
    plan(machine, 1, false, &b);
    yk_binding_apply(machine, &b);
    assert_string_equal(b.note, "");
    setenv("OMP_PROC_BIND", "close", 1);
    yk_binding_apply(machine, &b);
    assert_non_null(strstr(b.note, "OMP_PROC_BIND is set"));
    unsetenv("OMP_PROC_BIND");
    yk_machine_close(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_gpus_on_two_sockets_have_eight_near_cores_each),
        cmocka_unit_test(ranks_keep_to_the_sockets_of_the_gpus_they_have),
        cmocka_unit_test(without_gpus_cores_are_divided_in_order_of_node),
        cmocka_unit_test(a_sparse_cpuset_is_divided_by_what_is_in_it),
        cmocka_unit_test(processors_far_from_the_gpu_are_used_and_said),
        cmocka_unit_test(memory_of_a_node_without_any_is_not_asked_for),
        cmocka_unit_test(gpus_that_lie_nowhere_get_even_shares_and_a_line),
        cmocka_unit_test(a_gpu_that_lies_nowhere_takes_what_the_others_cannot_use),
        cmocka_unit_test(threads_of_a_core_are_parted_only_for_want_of_cores),
        cmocka_unit_test(more_ranks_than_processors_share_them_all_and_say_so),
        cmocka_unit_test(a_crowd_on_one_node_leaves_the_other_node_alone),
        cmocka_unit_test(more_ranks_than_gpus_divide_the_cores_near_each),
        cmocka_unit_test(ranks_that_were_given_their_own_keep_them),
        cmocka_unit_test(a_launcher_that_gives_one_core_of_many_is_named),
        cmocka_unit_test(overlapping_gifts_leave_nobody_without),
        cmocka_unit_test(processors_that_no_core_has_are_kept_all_the_same),
        cmocka_unit_test(what_the_system_refuses_is_a_line_and_no_failure),
        cmocka_unit_test(openmp_that_binds_by_itself_is_named),
        cmocka_unit_test(on_this_machine_a_binding_is_what_the_system_then_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
