/* tests/gpu/test_training.c - two hundred steps on a GPU and on the processors, from one start.
 *
 * ctest: TIMEOUT 300
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "tests/engine/rig.h"
#include "tests/engine/stored.h"
#include "tests/runtime/device/tested_device.h"

#define STEPS 200

typedef struct outcome {
    double losses[STEPS];
    uint64_t hash; /* of all that the store keeps */
} outcome;

static outcome train(const char *device, const char *model, const char *precision)
{
    outcome o;
    yk_rig rig;
    const char *sets[] = {device, model, precision, "train.micro_batch=2", "train.steps=200", NULL};
    yk_rig_open(&rig, 0, sets);
    yk_rig_train(&rig, 0, STEPS, o.losses);
    o.hash = yk_rig_hash(&rig);
    yk_rig_close(&rig);
    return o;
}

/* The first 20 losses within `bound` of themselves, the last within 2 %, and it has learned. */
static void expect_together(const char *model, const char *precision, double bound)
{
    outcome cpu = train("device=cpu", model, precision);
    outcome gpu = train("device=cuda", model, precision);
    for (int i = 0; i < 20; i++) {
        double apart = fabs(gpu.losses[i] - cpu.losses[i]) / cpu.losses[i];
        if (!(apart <= bound))
            fail_msg("%s, %s, step %d: %.9g on the GPU, %.9g on the cpu", model, precision, i,
                     gpu.losses[i], cpu.losses[i]);
    }
    double last = fabs(gpu.losses[STEPS - 1] - cpu.losses[STEPS - 1]) / cpu.losses[STEPS - 1];
    assert_true(last <= 0.02);
    assert_true(gpu.losses[STEPS - 1] < 0.7 * gpu.losses[0]);
}

static void training_stays_together_in_fp32(void **state)
{
    (void)state;
    expect_together("model.preset=tiny-gpt2", "precision.compute=fp32", 1e-4);
    expect_together("model.preset=tiny-llama", "precision.compute=fp32", 1e-4);
}

static void training_stays_together_in_16_bits(void **state)
{
    (void)state;
    expect_together("model.preset=tiny-gpt2", "precision.compute=bf16", 0.01);
    expect_together("model.preset=tiny-qwen2", "precision.compute=bf16", 0.01);
    expect_together("model.preset=tiny-llama", "precision.compute=fp16", 0.01);
}

static void two_runs_are_equal_in_every_bit(void **state)
{
    (void)state;
    static const char *const precisions[] = {"precision.compute=fp32", "precision.compute=bf16",
                                             "precision.compute=fp16"};
    for (int i = 0; i < 3; i++) {
        outcome a = train("device=cuda", "model.preset=tiny-qwen2", precisions[i]);
        outcome b = train("device=cuda", "model.preset=tiny-qwen2", precisions[i]);
        assert_memory_equal(a.losses, b.losses, sizeof a.losses);
        assert_true(a.hash == b.hash);
    }
}

int main(void)
{
    bool lacks_gpu = !tested_on_cuda() && yk_device_count_cuda() == 0;
    if (lacks_gpu && tested_skip("there is no GPU")) return 77;
    if (stored_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_stays_together_in_fp32),
        cmocka_unit_test(training_stays_together_in_16_bits),
        cmocka_unit_test(two_runs_are_equal_in_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
