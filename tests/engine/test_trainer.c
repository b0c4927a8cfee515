/* tests/engine/test_trainer.c - whole runs within the process, on the device of YK_TEST_DEVICE: what
 * metrics.jsonl and trace.json hold, the learning rate, signals, and steps that are skipped.
 *
 * ctest: TIMEOUT 120
 */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/signals.h"
#include "engine/trainer.h"
#include "optim/schedule.h"
#include "runtime/machine/nvml.h"
#include "runtime/storage/file.h"
#include "tests/runtime/device/tested_device.h"
#include "tests/runtime/scratch.h"

#define ROWS_MAX 64

/* A run in a folder of its own, and the rows that it left. */
typedef struct run {
    char dir[SCRATCH_PATH];
    yk_config config;
    yk_train_summary summary;
    yk_status status;
    json_t *rows[ROWS_MAX]; /* (n_rows) the lines of metrics.jsonl */
    int n_rows;
} run;

static void set(yk_config *config, const char *key, const char *value)
{
    char assignment[SCRATCH_PATH + 32];
    snprintf(assignment, sizeof assignment, "%s=%s", key, value);
    assert_int_equal(yk_config_set(config, assignment), YK_OK);
}

/* A text and a tiny configuration with "key=value" assignments over it, ended by NULL. */
static void prepare(run *r, const char *const *sets)
{
    static const char *const base[] = {
        "model.preset=tiny-llama", "train.seq_len=16", "train.batch=4",          "train.steps=8",
        "cpu.threads=1",           "tune=off",         "attention.provider=own", NULL,
    };
    char path[SCRATCH_PATH], text[4000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i * i / 7 % 26);
    memset(r, 0, sizeof *r);
    scratch_make(r->dir);
    assert_int_equal(yk_config_init(&r->config), YK_OK);
    for (int i = 0; base[i]; i++) assert_int_equal(yk_config_set(&r->config, base[i]), YK_OK);
    set(&r->config, "device", tested_on_cuda() ? "cuda" : "cpu");
    set(&r->config, "data.train", scratch_write(path, r->dir, "text", text, sizeof text));
    set(&r->config, "run.dir", scratch_path(path, r->dir, "run"));
    for (; *sets; sets++) assert_int_equal(yk_config_set(&r->config, *sets), YK_OK);
    assert_int_equal(yk_config_check(&r->config), YK_OK);
}

static void read_rows(run *r)
{
    char path[SCRATCH_PATH], *text, *line, *rest;
    int64_t bytes;
    scratch_path(path, r->dir, "run/metrics.jsonl");
    assert_int_equal(yk_file_read_all(path, &text, &bytes), YK_OK);
    assert_true(bytes > 0 && text[bytes - 1] == '\n');
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_error_t error;
        assert_true(r->n_rows < ROWS_MAX);
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, &error);
        assert_non_null(row);
        r->rows[r->n_rows++] = row;
    }
    free(text);
}

static void train(run *r, const char *const *sets)
{
    yk_model_shape shape;
    prepare(r, sets);
    assert_int_equal(yk_model_shape_from_config(&r->config, &shape), YK_OK);
    r->status = yk_train(&r->config, &shape, NULL, &r->summary);
    read_rows(r);
}

static void fini(run *r)
{
    for (int i = 0; i < r->n_rows; i++) json_decref(r->rows[i]);
    yk_config_fini(&r->config);
    scratch_remove(r->dir);
}

static double number(const run *r, int row, const char *field)
{
    const json_t *value = json_object_get(r->rows[row], field);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static bool has_file(const run *r, const char *name)
{
    char path[SCRATCH_PATH];
    return yk_file_exists(scratch_path(path, r->dir, name));
}

static void metrics_have_a_line_a_step_with_every_field(void **state)
{
    (void)state;
    static const char *const numbers[] = {
        "step",   "loss",         "lr",      "grad_norm",    "loss_scale",
        "tokens", "tokens_per_s", "step_ms", "data_wait_ms", "device_bytes",
    };
    const char *sets[] = {"eval.every=3", NULL};
    run r;
    train(&r, sets);
    assert_int_equal(r.status, YK_OK);
    assert_int_equal(r.n_rows, 8);
    for (int i = 0; i < r.n_rows; i++) {
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
            assert_true(number(&r, i, numbers[k]) >= 0);
        assert_true(json_is_false(json_object_get(r.rows[i], "skipped")));
        assert_true(number(&r, i, "step") == i);
        assert_true(number(&r, i, "tokens") == 4.0 * 16 * (i + 1));
        assert_true(number(&r, i, "loss") > 0 && number(&r, i, "grad_norm") > 0);
        bool evaluated = i == 2 || i == 5 || i == 7; /* every third, and the last */
        assert_int_equal(json_object_get(r.rows[i], "val_loss") != NULL, evaluated);
    }
    assert_true(fabs(number(&r, 7, "val_loss") - r.summary.val_loss) < 1e-8);
    assert_int_equal(r.summary.steps, 8);
    assert_int_equal(r.summary.tokens, 512);
    fini(&r);
}

/* ---- the device --------------------------------------------------------------------------- */

/* Whether row `row` has a field, a number in [low, high] or null. */
static bool has_within(const run *r, int row, const char *field, double low, double high)
{
    const json_t *value = json_object_get(r->rows[row], field);
    if (!value) return false;
    assert_true(json_is_null(value) ||
                (json_number_value(value) >= low && json_number_value(value) <= high));
    return true;
}

static void metrics_tell_how_the_device_did(void **state)
{
    (void)state;
    const char *sets[] = {"train.steps=40", NULL};
    yk_nvml *nvml;
    const char *why;
    run r;
    train(&r, sets);
    assert_int_equal(r.status, YK_OK);
    for (int i = 0; i < r.n_rows; i++) {
        assert_true(number(&r, i, "mfu") > 0 && number(&r, i, "mfu") < 1);
        assert_int_equal(has_within(&r, i, "mfu_product", 1e-9, 1), tested_on_cuda());
        assert_true(number(&r, i, "data_wait_ms") <= number(&r, i, "step_ms"));
        assert_int_equal(has_within(&r, i, "start_s", 1e-3, 1e4), i == 0);
        bool watched = has_within(&r, i, "gpu_power_w", 1, 2000);
        assert_int_equal(has_within(&r, i, "gpu_temperature_c", 1, 120), watched);
        assert_int_equal(has_within(&r, i, "gpu_clock_mhz", 100, 5000), watched);
        assert_int_equal(has_within(&r, i, "pcie_rx_rate", 0, 1e12), watched);
        assert_int_equal(has_within(&r, i, "pcie_tx_rate", 0, 1e12), watched);
        assert_false(watched && !tested_on_cuda());
    }
    if (tested_on_cuda() && yk_nvml_open(&nvml, &why) == YK_OK) {
        assert_true(has_within(&r, r.n_rows - 1, "gpu_power_w", 1, 2000));
        assert_true(json_is_number(json_object_get(r.rows[r.n_rows - 1], "gpu_power_w")));
        yk_nvml_close(nvml);
    }
    fini(&r);
}

/* What a run prints. */
static char *output_of(run *r, const char *const *sets)
{
    int saved = scratch_stdout_begin();
    train(r, sets);
    char *said = scratch_stdout_end(saved);
    assert_int_equal(r->status, YK_OK);
    return said;
}

static void a_gpu_is_tuned_once_and_the_start_is_told(void **state)
{
    (void)state;
    const char *sets[] = {"tune=cached", NULL};
    double seconds[2], loss[2];
    if (!tested_on_cuda()) skip();
    for (int i = 0; i < 2; i++) {
        run r;
        char *said = output_of(&r, sets), *line = strstr(said, "\nstarted   ");
        int n = 0;
        const char *tuned = strstr(said, "\ntuned     ");
        assert_int_equal(tuned != NULL, i == 0); /* the second finds what the first has kept */
        assert_true(!tuned || (sscanf(tuned, "\ntuned %d kernels in", &n) == 1 && n > 0));
        assert_true(line &&
                    sscanf(line, "\nstarted %lf s to the end of the first", &seconds[i]) == 1);
        assert_true(fabs(seconds[i] - number(&r, 0, "start_s")) <= 0.006);
        loss[i] = number(&r, 7, "loss");
        free(said);
        fini(&r);
    }
    assert_true(loss[0] == loss[1]);
}

/* ---- trace.json --------------------------------------------------------------------------- */

/* What a trace shows of one name. */
typedef struct shown {
    int n;
    double begin, end, bytes, flops; /* microseconds; of the last */
    int lane;
} shown;

static double of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static shown find_spans(const json_t *events, const char *name)
{
    shown s = {0};
    size_t at;
    const json_t *event;
    json_array_foreach(events, at, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        if (strcmp(json_string_value(json_object_get(event, "name")), name) != 0) continue;
        const json_t *arguments = json_object_get(event, "args");
        s.n++;
        s.begin = of(event, "ts");
        s.end = s.begin + of(event, "dur");
        s.lane = (int)of(event, "tid");
        if (s.lane == 0) continue;
        s.bytes = of(arguments, "bytes");
        s.flops = of(arguments, "flops");
    }
    return s;
}

static json_t *read_trace(const run *r)
{
    char path[SCRATCH_PATH];
    json_error_t error;
    json_t *root = json_load_file(scratch_path(path, r->dir, "run/trace.json"), 0, &error);
    assert_non_null(root);
    return root;
}

static void a_traced_step_shows_its_operations_and_changes_no_bit(void **state)
{
    (void)state;
    /* Two layers, each with one attention and two norms, and a norm behind them. */
    static const struct {
        const char *name;
        int n;
        bool product;
    } wanted[] = {{"embed_forward", 1, false},        {"norm_forward", 5, false},
                  {"attention_forward", 2, true},     {"attention_backward", 2, true},
                  {"swiglu_backward", 2, false},      {"cross_entropy", 1, false},
                  {"linear_backward_weight", 9, true}};
    const char *sets[] = {"trace.steps=[2]", "train.micro_batch=4", "memory.recompute=none", NULL};
    run traced, plain;
    train(&traced, sets);
    train(&plain, sets + 1);
    assert_int_equal(traced.status, YK_OK);
    assert_false(has_file(&plain, "run/trace.json"));
    for (int i = 0; i < 8; i++)
        assert_true(number(&traced, i, "loss") == number(&plain, i, "loss"));
    json_t *root = read_trace(&traced);
    const json_t *events = json_object_get(root, "traceEvents");
    shown step = find_spans(events, "step 2");
    assert_true(step.n == 1 && step.lane == 0 && step.end > step.begin);
    assert_int_equal(find_spans(events, "step 1").n + find_spans(events, "step 3").n, 0);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        shown s = find_spans(events, wanted[i].name);
        if (s.n != wanted[i].n) fail_msg("%d of %s, not %d", s.n, wanted[i].name, wanted[i].n);
        assert_true(s.lane > 0 && s.bytes > 0 && (s.flops > 0) == wanted[i].product);
        assert_true(s.begin >= step.begin && s.end > s.begin && s.end <= step.end + 1);
    }
    json_decref(root);
    fini(&traced);
    fini(&plain);
}

/* ---- the rest ----------------------------------------------------------------------------- */

static void learning_rate_follows_the_schedule_whatever_the_micro_batch(void **state)
{
    (void)state;
    const char *sets[] = {"schedule.kind=wsd", "schedule.warmup=3", "optim.lr=1e-3",
                          "train.micro_batch=4", NULL};
    run whole, parts;
    train(&whole, sets);
    sets[3] = "train.micro_batch=1";
    train(&parts, sets);
    assert_int_equal(parts.n_rows, 8);
    yk_schedule schedule = yk_schedule_from_config(&whole.config);
    for (int i = 0; i < 8; i++) {
        double rate = yk_schedule_rate(&schedule, i);
        assert_true(fabs(number(&whole, i, "lr") - rate) < 1e-8 * rate); /* nine digits */
        assert_true(number(&parts, i, "lr") == number(&whole, i, "lr"));
        assert_true(number(&parts, i, "tokens") == number(&whole, i, "tokens"));
        double loss = number(&whole, i, "loss"), apart = tested_on_cuda() ? 1e-4 : 1e-6;
        assert_true(fabs(number(&parts, i, "loss") - loss) < apart * loss);
    }
    fini(&whole);
    fini(&parts);
}

/* Train with a signal that comes when the run makes its folder, which is right before its first step. */
static void train_signalled(run *r, const char *const *sets, int signal)
{
    yk_model_shape shape;
    prepare(r, sets);
    assert_int_equal(yk_model_shape_from_config(&r->config, &shape), YK_OK);
    yk_signals_block();
    int dir = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0 && fcntl(dir, F_SETSIG, signal) == 0);
    assert_int_equal(fcntl(dir, F_NOTIFY, DN_CREATE), 0);
    r->status = yk_train(&r->config, &shape, NULL, &r->summary);
    close(dir);
    read_rows(r);
}

static void a_signal_ends_the_run_after_the_step_with_its_weights_saved(void **state)
{
    (void)state;
    const char *sets[] = {"eval.every=1", NULL};
    run r;
    train_signalled(&r, sets, SIGTERM);
    assert_int_equal(r.status, YK_ESTOPPED);
    assert_int_equal(r.n_rows, 1);
    assert_null(json_object_get(r.rows[0], "val_loss")); /* there is no time to evaluate */
    assert_true(has_file(&r, "run/model/config.json"));
    assert_true(has_file(&r, "run/model/model.safetensors"));
    fini(&r);
}

static void a_signal_does_not_wait_for_the_last_evaluation(void **state)
{
    (void)state;
    const char *sets[] = {"train.steps=1", NULL};
    run r;
    train_signalled(&r, sets, SIGINT);
    assert_int_equal(r.status, YK_ESTOPPED);
    assert_null(json_object_get(r.rows[0], "val_loss"));
    assert_true(has_file(&r, "run/model/model.safetensors"));
    fini(&r);
}

static void a_signal_during_the_start_leaves_nothing(void **state)
{
    (void)state;
    const char *sets[] = {NULL};
    yk_model_shape shape;
    run r;
    prepare(&r, sets);
    assert_int_equal(yk_model_shape_from_config(&r.config, &shape), YK_OK);
    yk_signals_block();
    assert_int_equal(raise(SIGINT), 0);
    assert_int_equal(yk_train(&r.config, &shape, NULL, &r.summary), YK_ESTOPPED);
    assert_false(has_file(&r, "run"));
    fini(&r);
}

static void skipped_steps_end_the_run_and_are_all_in_the_metrics(void **state)
{
    (void)state;
    const char *sets[] = {"precision.compute=fp16",
                          "precision.loss_scale.ceiling=1e12",
                          "precision.loss_scale.start=1e12",
                          "precision.loss_scale.floor=1e12",
                          "guard.max_skips=3",
                          NULL};
    run r;
    int saved = scratch_stderr_begin();
    train(&r, sets);
    char *said = scratch_stderr_end(saved);
    if (tested_on_cuda()) /* which may have warned of something of its own */
        assert_non_null(strstr(said, "not finite in 3 steps in a row, up to step 2"));
    else
        assert_true(scratch_is_one_line(said, "not finite in 3 steps in a row, up to step 2"));
    free(said);
    assert_int_equal(r.status, YK_EDIVERGED);
    assert_int_equal(r.n_rows, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(json_is_true(json_object_get(r.rows[i], "skipped")));
        assert_true(json_is_null(json_object_get(r.rows[i], "grad_norm")));
    }
    assert_false(has_file(&r, "run/model"));
    fini(&r);
}

static void a_run_that_skips_now_and_then_goes_on(void **state)
{
    (void)state;
    const char *sets[] = {"precision.compute=fp16", "precision.loss_scale.start=4194304",
                          "guard.max_skips=8", "train.steps=12", NULL};
    run r;
    train(&r, sets);
    assert_int_equal(r.status, YK_OK);
    int n_skipped = 0;
    for (int i = 0; i < r.n_rows; i++) {
        bool skipped = json_is_true(json_object_get(r.rows[i], "skipped"));
        double scale = number(&r, i, "loss_scale");
        n_skipped += skipped;
        if (i > 0) assert_true(number(&r, i - 1, "loss_scale") / scale == (skipped ? 2 : 1));
    }
    assert_true(n_skipped > 0 && n_skipped < 8);
    assert_int_equal(r.summary.steps_skipped, n_skipped);
    fini(&r);
}

int main(void)
{
    yk_signals_block(); /* before there is a thread that would take one: a GPU's driver has some */
    if (tested_device_missing()) return 77;
    char cache[SCRATCH_PATH];
    scratch_make(cache);
    if (setenv("XDG_CACHE_HOME", cache, 1) != 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_have_a_line_a_step_with_every_field),
        cmocka_unit_test(metrics_tell_how_the_device_did),
        cmocka_unit_test(a_gpu_is_tuned_once_and_the_start_is_told),
        cmocka_unit_test(a_traced_step_shows_its_operations_and_changes_no_bit),
        cmocka_unit_test(learning_rate_follows_the_schedule_whatever_the_micro_batch),
        cmocka_unit_test(a_signal_ends_the_run_after_the_step_with_its_weights_saved),
        cmocka_unit_test(a_signal_does_not_wait_for_the_last_evaluation),
        cmocka_unit_test(a_signal_during_the_start_leaves_nothing),
        cmocka_unit_test(skipped_steps_end_the_run_and_are_all_in_the_metrics),
        cmocka_unit_test(a_run_that_skips_now_and_then_goes_on),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove(cache);
    return failed;
}
