/* tests/runtime/observe/test_metrics.c - rows of metrics.jsonl: fields that are there, and those that
 * are left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "runtime/observe/metrics.h"
#include "tests/runtime/scratch.h"

static json_t *write_and_read(const char *dir, const yk_metrics_row *row)
{
    char path[SCRATCH_PATH];
    yk_metrics *metrics;
    scratch_path(path, dir, "metrics.jsonl");
    assert_int_equal(yk_metrics_open(path, &metrics), YK_OK);
    assert_int_equal(yk_metrics_write(metrics, row), YK_OK);
    yk_metrics_close(metrics);
    json_t *object = json_load_file(path, 0, NULL);
    assert_non_null(object);
    return object;
}

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void a_gpu_has_its_fields_and_null_for_what_is_not_known(void **state)
{
    json_t *row = write_and_read(*state, &(yk_metrics_row){.step = 3,
                                                           .loss = 2.5,
                                                           .mfu = 0.5,
                                                           .mfu_product = 0.75,
                                                           .start_s = 1.5,
                                                           .has_gpu = true,
                                                           .gpu_power_w = 650.5,
                                                           .gpu_temperature_c = 61,
                                                           .gpu_clock_mhz = 1755,
                                                           .pcie_rx_rate = NAN,
                                                           .pcie_tx_rate = 1e9});
    assert_true(number(row, "step") == 3 && number(row, "loss") == 2.5);
    assert_true(number(row, "mfu") == 0.5 && number(row, "mfu_product") == 0.75);
    assert_true(number(row, "start_s") == 1.5 && number(row, "gpu_power_w") == 650.5);
    assert_true(number(row, "gpu_temperature_c") == 61 && number(row, "gpu_clock_mhz") == 1755);
    assert_true(json_is_null(json_object_get(row, "pcie_rx_rate")));
    assert_true(number(row, "pcie_tx_rate") == 1e9);
    json_decref(row);
}

static void what_was_not_measured_is_left_out(void **state)
{
    static const char *const names[] = {"mfu",      "mfu_product", "start_s",     "gpu_power_w",
                                        "val_loss", "comm_bytes",  "pcie_rx_rate"};
    json_t *row = write_and_read(*state, &(yk_metrics_row){.step = 1, .loss = INFINITY});
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_null(json_object_get(row, names[i]));
    assert_true(json_is_null(json_object_get(row, "loss")));
    json_decref(row);
}

static void the_widest_row_fits(void **state)
{
    const double wide = -1.2345678901234567e-300;
    json_t *row = write_and_read(*state, &(yk_metrics_row){.step = INT64_MAX,
                                                           .loss = wide,
                                                           .has_val_loss = true,
                                                           .val_loss = wide,
                                                           .lr = wide,
                                                           .grad_norm = wide,
                                                           .loss_scale = wide,
                                                           .tokens = INT64_MIN,
                                                           .tokens_per_s = wide,
                                                           .step_ms = wide,
                                                           .data_wait_ms = wide,
                                                           .has_comm = true,
                                                           .comm_bytes = INT64_MIN,
                                                           .comm_flushed = INT64_MIN,
                                                           .comm_ms = wide,
                                                           .comm_exposed_ms = wide,
                                                           .device_bytes = INT64_MIN,
                                                           .mfu = -wide,
                                                           .mfu_product = -wide,
                                                           .start_s = -wide,
                                                           .has_gpu = true,
                                                           .gpu_power_w = wide,
                                                           .gpu_temperature_c = wide,
                                                           .gpu_clock_mhz = wide,
                                                           .pcie_rx_rate = wide,
                                                           .pcie_tx_rate = wide});
    assert_true(number(row, "loss") == wide && number(row, "mfu") > 0);
    json_decref(row);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_set_up, scratch_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_gpu_has_its_fields_and_null_for_what_is_not_known),
        TEST(what_was_not_measured_is_left_out),
        TEST(the_widest_row_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
