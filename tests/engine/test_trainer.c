/* tests/engine/test_trainer.c - whole runs within the process: what metrics.jsonl holds, the learning
 * rate, signals, and steps that are skipped.
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
#include "runtime/storage/file.h"
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
        "model.preset=tiny-llama",
        "train.seq_len=16",
        "train.batch=4",
        "train.steps=8",
        "device=cpu",
        "cpu.threads=1",
        NULL,
    };
    char path[SCRATCH_PATH], text[4000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i * i / 7 % 26);
    memset(r, 0, sizeof *r);
    scratch_make(r->dir);
    assert_int_equal(yk_config_init(&r->config), YK_OK);
    for (int i = 0; base[i]; i++) assert_int_equal(yk_config_set(&r->config, base[i]), YK_OK);
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
        double loss = number(&whole, i, "loss");
        assert_true(fabs(number(&parts, i, "loss") - loss) < 1e-6 * loss);
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
    yk_signals_block(); /* before there is a thread that would take one */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_have_a_line_a_step_with_every_field),
        cmocka_unit_test(learning_rate_follows_the_schedule_whatever_the_micro_batch),
        cmocka_unit_test(a_signal_ends_the_run_after_the_step_with_its_weights_saved),
        cmocka_unit_test(a_signal_does_not_wait_for_the_last_evaluation),
        cmocka_unit_test(a_signal_during_the_start_leaves_nothing),
        cmocka_unit_test(skipped_steps_end_the_run_and_are_all_in_the_metrics),
        cmocka_unit_test(a_run_that_skips_now_and_then_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
