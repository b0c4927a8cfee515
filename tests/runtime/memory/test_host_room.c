/* tests/runtime/memory/test_host_room.c - room for host memory on described machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/memory/host_room.h"
#include "tests/runtime/scratch.h"

static void expect(const char *root, int64_t bytes, const char *source)
{
    yk_host_room room = yk_host_room_read(root);
    assert_true(room.bytes == bytes);
    assert_string_equal(room.source, source);
}

#define MEMINFO "MemTotal:       1000 kB\nMemFree: 5 kB\nMemAvailable:    700 kB\n"

static void without_a_cgroup_it_is_what_is_available(void **state)
{
    expect(*state, INT64_MAX, "");
    scratch_put(*state, "/proc/meminfo", MEMINFO);
    expect(*state, 700 * 1024, "MemAvailable in /proc/meminfo");
}

static void the_tightest_cgroup_above_counts(void **state)
{
    scratch_put(*state, "/proc/meminfo", MEMINFO);
    scratch_put(*state, "/proc/self/cgroup", "0::/slurm/job/step\n");
    scratch_put(*state, "/sys/fs/cgroup/slurm/job/step/memory.max", "max\n");
    scratch_put(*state, "/sys/fs/cgroup/slurm/job/step/memory.current", "4096\n");
    expect(*state, 700 * 1024, "MemAvailable in /proc/meminfo");
    scratch_put(*state, "/sys/fs/cgroup/slurm/job/memory.max", "100000\n");
    scratch_put(*state, "/sys/fs/cgroup/slurm/job/memory.current", "60000\n");
    expect(*state, 40000, "/sys/fs/cgroup/slurm/job/memory.max");
    scratch_put(*state, "/sys/fs/cgroup/slurm/job/memory.stat",
                "anon 30000\nfile 30000\ninactive_file 25000\nactive_file 5000\n");
    expect(*state, 65000, "/sys/fs/cgroup/slurm/job/memory.max");
    scratch_put(*state, "/sys/fs/cgroup/slurm/memory.max", "90000\n");
    scratch_put(*state, "/sys/fs/cgroup/slurm/memory.current", "95000\n");
    expect(*state, 0, "/sys/fs/cgroup/slurm/memory.max");
}

static void a_container_sees_its_limit_at_the_root(void **state)
{
    scratch_put(*state, "/proc/self/cgroup", "0::/../../elsewhere\n");
    scratch_put(*state, "/sys/fs/cgroup/memory.max", "5000\n");
    scratch_put(*state, "/sys/fs/cgroup/memory.current", "1000\n");
    expect(*state, 4000, "/sys/fs/cgroup/memory.max");
}

static void version_1_is_read_too(void **state)
{
    scratch_put(*state, "/proc/self/cgroup", "12:cpuset:/a\n4:memory:/b/c\n1:name=systemd:/d\n");
    scratch_put(*state, "/sys/fs/cgroup/memory/b/c/memory.limit_in_bytes", "9223372036854771712\n");
    scratch_put(*state, "/sys/fs/cgroup/memory/b/c/memory.usage_in_bytes", "10\n");
    scratch_put(*state, "/sys/fs/cgroup/memory/b/memory.limit_in_bytes", "7000\n");
    scratch_put(*state, "/sys/fs/cgroup/memory/b/memory.usage_in_bytes", "3000\n");
    scratch_put(*state, "/sys/fs/cgroup/memory/b/memory.stat",
                "inactive_file 1\ntotal_inactive_file 500\n");
    expect(*state, 4500, "/sys/fs/cgroup/memory/b/memory.limit_in_bytes");
}

static void nonsense_is_left_out(void **state)
{
    scratch_put(*state, "/proc/meminfo", "MemAvailable: lots\n");
    scratch_put(*state, "/proc/self/cgroup", "0\n\n:::\n0::/x\n");
    scratch_put(*state, "/sys/fs/cgroup/x/memory.max", "-5\n");
    scratch_put(*state, "/sys/fs/cgroup/x/memory.current", "\n");
    expect(*state, INT64_MAX, "");
}

static void this_machine_has_some(void **state)
{
    (void)state;
    assert_true(yk_host_room_read("").bytes > 1 << 20);
}

static void arenas_leave_some_to_the_system(void **state)
{
    (void)state;
    const int64_t gib = INT64_C(1) << 30;
    assert_true(yk_host_room_for_arenas(&(yk_host_room){.bytes = 32 * gib}) == 30 * gib);
    assert_true(yk_host_room_for_arenas(&(yk_host_room){.bytes = gib}) == gib / 4 * 3);
    assert_true(yk_host_room_for_arenas(&(yk_host_room){.bytes = gib / 4}) == gib / 8);
    assert_true(yk_host_room_for_arenas(&(yk_host_room){.bytes = 0}) == 0);
    assert_true(yk_host_room_for_arenas(&(yk_host_room){.bytes = INT64_MAX}) == INT64_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_set_up, scratch_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_cgroup_it_is_what_is_available),
        TEST(the_tightest_cgroup_above_counts),
        TEST(a_container_sees_its_limit_at_the_root),
        TEST(version_1_is_read_too),
        TEST(nonsense_is_left_out),
        TEST(this_machine_has_some),
        TEST(arenas_leave_some_to_the_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
