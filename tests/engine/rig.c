/* tests/engine/rig.c - setting up and running a small engine; every failure is a failed test. */
#include "tests/engine/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/device_choice.h"
#include "engine/trainer.h"
#include "runtime/storage/hash.h"

/* A text that a model can learn something from: words of a small random vocabulary. */
static void write_text(yk_rig *rig)
{
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    uint64_t s = 88172645463325252u;
    for (int i = 0; i < 6000; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        uint64_t word = s % 60;
        for (uint64_t j = 0; j < 2 + word % 5; j++)
            fputc((int)('a' + (word * 7 + j * j * 3) % 26), f);
        fputc(' ', f);
    }
    fclose(f);
    scratch_make(rig->dir);
    scratch_write(rig->path, rig->dir, "text.txt", text, (int64_t)bytes);
    free(text);
}

static void configure(yk_rig *rig, const char *const *sets)
{
    static const char *const base[] = {
        "model.preset=tiny-gpt2", "train.seq_len=32", "train.batch=4", "train.micro_batch=4",
        "train.steps=20",         "optim.lr=1e-3",    "device=cpu",    "cpu.threads=2",
    };
    char assignment[SCRATCH_PATH + 16];
    assert_int_equal(yk_config_init(&rig->config), YK_OK);
    for (size_t i = 0; i < sizeof base / sizeof base[0]; i++)
        assert_int_equal(yk_config_set(&rig->config, base[i]), YK_OK);
    snprintf(assignment, sizeof assignment, "data.train=%s", rig->path);
    assert_int_equal(yk_config_set(&rig->config, assignment), YK_OK);
    for (; *sets; sets++) assert_int_equal(yk_config_set(&rig->config, *sets), YK_OK);
    assert_int_equal(yk_config_check(&rig->config), YK_OK);
}

static void feed(yk_rig *rig)
{
    yk_loader_options o = {
        .dataset = rig->data,
        .split = YK_SPLIT_TRAIN,
        .batch = rig->config.train.batch,
        .micro_batch = rig->plan.micro_batch,
        .world = 1,
        .seed = rig->config.train.seed,
        .n_buffers = YK_LOADER_BUFFERS,
    };
    assert_int_equal(yk_loader_create(&o, rig->engine->staging[0], &rig->loader), YK_OK);
    assert_int_equal(yk_feed_init(&rig->feed, rig->engine, rig->loader), YK_OK);
}

void yk_rig_open(yk_rig *rig, int64_t red_zone, const char *const *sets)
{
    yk_device_spec spec;
    memset(rig, 0, sizeof *rig);
    write_text(rig);
    configure(rig, sets);
    assert_int_equal(yk_model_shape_from_config(&rig->config, &rig->shape), YK_OK);
    assert_int_equal(yk_dataset_open(&rig->config, rig->shape.vocab, &rig->data), YK_OK);
    assert_int_equal(yk_device_open_chosen(&rig->config, 0, 0, &rig->device), YK_OK);
    assert_int_equal(yk_device_describe_chosen(&rig->config, &spec), YK_OK);
    assert_int_equal(yk_plan_make(&rig->config, &rig->shape, &spec, NULL, red_zone, &rig->plan),
                     YK_OK);
    yk_device_set_attention_room(rig->device, rig->plan.spec.attention_bytes);
    yk_engine_options o = {
        .device = rig->device,
        .config = &rig->plan.config,
        .shape = &rig->shape,
        .train = true,
        .sizes = &rig->plan.sizes,
        .micro_batch = rig->plan.micro_batch,
        .red_zone = red_zone,
    };
    assert_int_equal(yk_engine_create(&o, &rig->engine), YK_OK);
    assert_int_equal(yk_engine_init_weights(rig->engine, rig->config.train.seed), YK_OK);
    feed(rig);
}

void yk_rig_close(yk_rig *rig)
{
    yk_feed_fini(&rig->feed);
    yk_loader_destroy(rig->loader);
    yk_engine_destroy(rig->engine);
    yk_plan_fini(&rig->plan);
    yk_device_close(rig->device);
    yk_dataset_close(rig->data);
    yk_config_fini(&rig->config);
    scratch_remove(rig->dir);
}

void yk_rig_train(yk_rig *rig, int64_t first, int64_t n, double *losses_out)
{
    for (int64_t i = 0; i < n; i++) {
        yk_step_result result;
        float lr = (float)rig->config.optim.lr;
        assert_int_equal(yk_step_run(rig->engine, &rig->feed, first + i, lr), YK_OK);
        assert_int_equal(yk_step_wait(rig->engine, first + i, &result), YK_OK);
        if (losses_out) losses_out[i] = result.loss;
    }
}

uint64_t yk_rig_hash(yk_rig *rig)
{
    uint64_t hash = 0;
    for (int p = 0; p < yk_model_n_params(rig->engine->model); p++) {
        int64_t n = yk_param_count(&yk_model_params(rig->engine->model)[p]);
        float *values = malloc((size_t)n * sizeof *values);
        assert_non_null(values);
        for (int state = YK_STORE_WEIGHT; state <= YK_STORE_GRAD; state++) {
            assert_int_equal(yk_store_read(rig->engine->store, (yk_store_state)state, p, 0, n,
                                           values, rig->engine->compute),
                             YK_OK);
            hash = yk_hash64(values, n * (int64_t)sizeof *values, hash);
        }
        free(values);
    }
    return hash;
}
