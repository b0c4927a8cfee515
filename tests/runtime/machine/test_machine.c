/* tests/runtime/machine/test_machine.c - what is read of described machines and of this one. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/machine/machine.h"
#include "tests/runtime/base/heard.h"
#include "tests/runtime/machine/described.h"

static const char *cpus(const yk_cpus *set)
{
    static _Thread_local char text[YK_CPUS_TEXT];
    return yk_cpus_write(set, text);
}

static const char *nodes(const yk_machine *machine, const yk_cpus *set)
{
    static _Thread_local char text[YK_CPUS_TEXT];
    return yk_machine_write_nodes(machine, set, text);
}

static void two_sockets_show_their_cores_and_gpus(void **state)
{
    static const char *const buses[] = {"0000:01:00.0", "0000:25:00.0", "0000:41:00.0",
                                        "0000:61:00.0", "0000:81:00.0", "0000:a1:00.0",
                                        "0000:c1:00.0", "0000:e1:00.0"};
    (void)state;
    yk_machine *machine = described("two-sockets-8x4090", NULL, NULL);
    assert_int_equal(yk_machine_n_cores(machine), 64);
    assert_string_equal(cpus(&yk_machine_core(machine, 0)->cpus), "0,64");
    assert_string_equal(cpus(&yk_machine_core(machine, 63)->cpus), "63,127");
    assert_string_equal(cpus(yk_machine_given(machine)), "0-127");
    assert_int_equal(yk_machine_n_nodes(machine), 2);
    assert_true(yk_machine_node(machine, 1)->has_memory);
    assert_int_equal(yk_machine_n_gpus(machine), 8);
    for (int i = 0; i < 8; i++) {
        const yk_gpu *gpu = yk_machine_gpu(machine, i);
        assert_string_equal(gpu->bus_id, buses[i]);
        assert_string_equal(cpus(&gpu->near), i < 4 ? "0-31,64-95" : "32-63,96-127");
        assert_string_equal(nodes(machine, &gpu->near), i < 4 ? "0" : "1");
    }
    yk_machine_close(machine);
}

static void a_cpuset_leaves_its_processors_and_their_places(void **state)
{
    (void)state;
    yk_machine *machine = described("sparse-cpuset", NULL, NULL);
    assert_int_equal(yk_machine_n_cores(machine), 6);
    assert_string_equal(cpus(&yk_machine_core(machine, 0)->cpus), "3,67");
    assert_string_equal(cpus(&yk_machine_core(machine, 2)->cpus), "20");
    assert_string_equal(cpus(&yk_machine_core(machine, 4)->cpus), "40,104");
    assert_string_equal(cpus(yk_machine_allowed(machine)), "3,9,20,33,40,63,67,73,97,104,127");
    assert_string_equal(cpus(&yk_machine_gpu(machine, 7)->near), "32-63,96-127");
    yk_machine_close(machine);
}

static void what_a_process_is_bound_to_is_what_it_was_given(void **state)
{
    (void)state;
    yk_machine *machine = described("one-socket-4x4090", "2-3,18,500", NULL);
    assert_string_equal(cpus(yk_machine_given(machine)), "2-3,18");
    assert_string_equal(cpus(yk_machine_allowed(machine)), "0-31");
    assert_int_equal(yk_machine_count_cores(machine, yk_machine_given(machine)), 2);
    yk_machine_close(machine);
}

static void a_node_without_memory_is_known_as_one(void **state)
{
    (void)state;
    yk_machine *machine = described("node-without-memory", NULL, NULL);
    assert_int_equal(yk_machine_n_nodes(machine), 2);
    assert_true(yk_machine_node(machine, 0)->has_memory);
    assert_int_equal(yk_machine_node(machine, 1)->number, 2);
    assert_false(yk_machine_node(machine, 1)->has_memory);
    assert_string_equal(nodes(machine, &yk_machine_gpu(machine, 1)->near), "2");
    yk_machine_close(machine);
}

static void a_gpu_on_no_node_has_nothing_near_it(void **state)
{
    (void)state;
    yk_machine *machine = described("gpus-nowhere", NULL, NULL);
    assert_int_equal(yk_machine_n_gpus(machine), 3);
    for (int i = 0; i < 3; i++) assert_true(yk_cpus_is_empty(&yk_machine_gpu(machine, i)->near));
    assert_string_equal(yk_machine_gpu(machine, 2)->bus_id, "0001:01:00.0");
    assert_string_equal(nodes(machine, &yk_machine_gpu(machine, 2)->near), "-");
    yk_machine_close(machine);
}

static void with_one_node_every_gpu_is_near_it(void **state)
{
    (void)state;
    yk_machine *machine = described("one-socket-4x4090", NULL, NULL);
    for (int i = 0; i < 4; i++)
        assert_string_equal(cpus(&yk_machine_gpu(machine, i)->near), "0-31");
    yk_machine_close(machine);
}

static void machines_without_numa_or_packages_have_cores(void **state)
{
    static const struct {
        const char *text;
        int n_cores, n_nodes;
    } table[] = {{"pu:3", 3, 1}, {"core:4 pu:2", 4, 1}, {"pack:2 [numa] core:2 pu:1", 4, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        yk_machine *machine;
        const yk_machine_source source = {.synthetic = table[i].text};
        assert_int_equal(yk_machine_open_described(&source, &machine), YK_OK);
        assert_int_equal(yk_machine_n_cores(machine), table[i].n_cores);
        assert_int_equal(yk_machine_n_nodes(machine), table[i].n_nodes);
        assert_int_equal(yk_machine_n_gpus(machine), 0);
        yk_machine_close(machine);
    }
}

static void siblings_that_disagree_still_make_cores(void **state)
{
    (void)state;
    yk_machine *machine = described("odd-siblings", NULL, NULL);
    assert_int_equal(yk_machine_n_cores(machine), 4);
    assert_string_equal(cpus(&yk_machine_core(machine, 2)->cpus), "2,5");
    assert_string_equal(cpus(&yk_machine_core(machine, 3)->cpus), "3");
    yk_machine_close(machine);
}

/* The GPUs that a value of CUDA_VISIBLE_DEVICES leaves, as the bus of each. */
static const char *visible_buses(const char *visible)
{
    static _Thread_local char text[64];
    yk_machine *machine = described("one-socket-4x4090", NULL, visible);
    int n = yk_machine_n_gpus(machine), used = 0;
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *id = yk_machine_gpu(machine, i)->bus_id;
        used += snprintf(text + used, sizeof text - (size_t)used, "%.2s ", id[0] ? id + 5 : "?");
    }
    yk_machine_close(machine);
    return text;
}

static void visible_devices_are_read_as_cuda_reads_them(void **state)
{
    (void)state;
    assert_string_equal(visible_buses(NULL), "01 21 41 61 ");
    assert_string_equal(visible_buses(""), "");
    assert_string_equal(visible_buses("2,0"), "41 01 ");
    assert_string_equal(visible_buses(" 1, 3"), "21 61 ");
    assert_string_equal(visible_buses("0,1,9,2"), "01 21 ");
    assert_string_equal(visible_buses("-1,0"), "");
    assert_string_equal(visible_buses("none"), "");
    assert_string_equal(visible_buses("1x,2"), "");
    assert_string_equal(visible_buses("GPU-00"), "");
    assert_string_equal(visible_buses("MIG-1234,1"), "? 21 ");
}

static void what_is_no_description_is_refused(void **state)
{
    static const yk_machine_source wrong[] = {
        {.synthetic = "no such thing"},
        {.xml = "tests/runtime/machine/no-such-file.xml"},
        {.xml = "tests/runtime/machine/topologies/make.py"},
        {.synthetic = "pu:2", .given = "x"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yk_machine *machine = NULL;
        heard h;
        heard_begin(&h);
        yk_status status = yk_machine_open_described(&wrong[i], &machine);
        bool told = strncmp(heard_take(&h), "yoke: ", 6) == 0;
        heard_end(&h);
        assert_int_equal(status, YK_EINVAL);
        assert_true(told);
        assert_null(machine);
    }
}

static void this_machine_shows_the_processors_that_the_system_gives(void **state)
{
    cpu_set_t set;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    yk_machine *machine;
    assert_int_equal(yk_machine_open(&machine), YK_OK);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        assert_int_equal(yk_cpus_has(yk_machine_given(machine), cpu), CPU_ISSET(cpu, &set));
    assert_true(yk_machine_n_cores(machine) >= 1);
    yk_machine_close(machine);
    yk_machine_close(NULL);
}

static void the_users_order_of_gpus_is_kept(void **state)
{
    (void)state;
    unsetenv("CUDA_DEVICE_ORDER");
    yk_machine_order_gpus();
    assert_string_equal(getenv("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
    setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
    yk_machine_order_gpus();
    assert_string_equal(getenv("CUDA_DEVICE_ORDER"), "FASTEST_FIRST");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sockets_show_their_cores_and_gpus),
        cmocka_unit_test(a_cpuset_leaves_its_processors_and_their_places),
        cmocka_unit_test(what_a_process_is_bound_to_is_what_it_was_given),
        cmocka_unit_test(a_node_without_memory_is_known_as_one),
        cmocka_unit_test(a_gpu_on_no_node_has_nothing_near_it),
        cmocka_unit_test(with_one_node_every_gpu_is_near_it),
        cmocka_unit_test(machines_without_numa_or_packages_have_cores),
        cmocka_unit_test(siblings_that_disagree_still_make_cores),
        cmocka_unit_test(visible_devices_are_read_as_cuda_reads_them),
        cmocka_unit_test(what_is_no_description_is_refused),
        cmocka_unit_test(this_machine_shows_the_processors_that_the_system_gives),
        cmocka_unit_test(the_users_order_of_gpus_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
