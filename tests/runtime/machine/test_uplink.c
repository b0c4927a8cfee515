/* tests/runtime/machine/test_uplink.c - how fast described machines reach others. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/machine/uplink.h"
#include "tests/runtime/scratch.h"

static void put_port(const char *root, const char *port, const char *state, const char *rate)
{
    char path[256];
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/state", port);
    scratch_put(root, path, state);
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/rate", port);
    scratch_put(root, path, rate);
}

static void expect(const char *root, int n_ranks, double gbit, const char *name)
{
    yk_uplink u = yk_uplink_read(root, n_ranks);
    assert_true(fabs(u.gbit - gbit) < 1e-9);
    assert_string_equal(u.name, name);
}

#define ROUTES                                                                                     \
    "Iface\tDestination\tGateway\tFlags\n"                                                         \
    "eth1\t0000A8C0\t00000000\t0001\neth0\t00000000\t0100A8C0\t0003\n"

static void nothing_tells_nothing(void **state)
{
    expect(*state, 4, 0, "");
    scratch_put(*state, "/proc/net/route", ROUTES);
    expect(*state, 4, 0, "");
    scratch_put(*state, "/sys/class/net/eth0/speed", "-1\n");
    expect(*state, 4, 0, "");
}

static void the_default_route_has_the_interface_unless_nccl_is_given_one(void **state)
{
    scratch_put(*state, "/proc/net/route", ROUTES);
    scratch_put(*state, "/sys/class/net/eth0/speed", "2500\n");
    scratch_put(*state, "/sys/class/net/eth1/speed", "100000\n");
    expect(*state, 4, 2.5, "eth0");
    setenv("NCCL_SOCKET_IFNAME", "=eth1", 1);
    expect(*state, 4, 100, "eth1");
    setenv("NCCL_SOCKET_IFNAME", "^docker", 1);
    expect(*state, 4, 2.5, "eth0");
}

static void nccl_is_given_the_beginning_of_a_name_or_after_an_equals_sign_all_of_it(void **state)
{
    scratch_put(*state, "/proc/net/route", ROUTES);
    scratch_put(*state, "/sys/class/net/eth0/speed", "2500\n");
    scratch_put(*state, "/sys/class/net/ib0/speed", "100000\n");
    scratch_put(*state, "/sys/class/net/ib1/speed", "200000\n");
    scratch_put(*state, "/sys/class/net/ib2/speed", "200000\n");
    setenv("NCCL_SOCKET_IFNAME", "ib", 1);
    expect(*state, 4, 200, "ib1");
    setenv("NCCL_SOCKET_IFNAME", "=ib0", 1);
    expect(*state, 4, 100, "ib0");
    setenv("NCCL_SOCKET_IFNAME", "=ib", 1);
    expect(*state, 4, 2.5, "eth0");
}

static void a_named_interface_without_a_speed_leaves_the_one_of_the_default_route(void **state)
{
    scratch_put(*state, "/proc/net/route", ROUTES);
    scratch_put(*state, "/sys/class/net/eth0/speed", "2500\n");
    scratch_put(*state, "/sys/class/net/eth1/speed", "-1\n");
    setenv("NCCL_SOCKET_IFNAME", "eth1", 1);
    expect(*state, 4, 2.5, "eth0");
}

static void the_fastest_active_ports_count_together_as_many_as_there_are_ranks(void **state)
{
    scratch_put(*state, "/proc/net/route", ROUTES);
    scratch_put(*state, "/sys/class/net/eth0/speed", "10000\n");
    put_port(*state, "mlx5_2/ports/1", "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n");
    put_port(*state, "mlx5_1/ports/1", "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n");
    put_port(*state, "mlx5_0/ports/1", "4: ACTIVE\n", "25 Gb/sec (1X EDR)\n");
    put_port(*state, "mlx5_3/ports/1", "1: DOWN\n", "800 Gb/sec (8X NDR)\n");
    put_port(*state, "mlx5_4/ports/2", "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n");
    put_port(*state, "mlx5_5/ports/1", "4: ACTIVE\n", "fast\n");
    expect(*state, 8, 1200, "mlx5_1 and 2 more");
    expect(*state, 2, 800, "mlx5_1 and 1 more");
    expect(*state, 1, 400, "mlx5_1");
    setenv("NCCL_IB_DISABLE", "1", 1);
    expect(*state, 8, 10, "eth0");
}

static int set_up(void **state)
{
    unsetenv("NCCL_IB_DISABLE");
    unsetenv("NCCL_SOCKET_IFNAME");
    return scratch_set_up(state);
}

int main(void)
{
#define ON_SCRATCH(f) cmocka_unit_test_setup_teardown(f, set_up, scratch_tear_down)
    const struct CMUnitTest tests[] = {
        ON_SCRATCH(nothing_tells_nothing),
        ON_SCRATCH(the_default_route_has_the_interface_unless_nccl_is_given_one),
        ON_SCRATCH(nccl_is_given_the_beginning_of_a_name_or_after_an_equals_sign_all_of_it),
        ON_SCRATCH(a_named_interface_without_a_speed_leaves_the_one_of_the_default_route),
        ON_SCRATCH(the_fastest_active_ports_count_together_as_many_as_there_are_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
