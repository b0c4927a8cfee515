/* tests/engine/test_heads.c - models in bf16 with heads of 64 and of 128, each for two steps: as a large
 * card runs them, and as one does whose blocks have 99 KiB of shared memory.
 *
 * Small and few, so that compute-sanitizer gets through every kernel of a step (tests/gpu/run.sh). The
 * first has rows of logits that fill a smaller card's shared memory, the second rows that do not fit.
 * A processor, which has no such blocks, runs each model once, so that they stay ones that can be run.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/rig.h"
#include "tests/runtime/device/op_case.h"
#include "tests/runtime/device/tested_device.h"

#define STEPS 2

typedef struct outcome {
    double losses[STEPS];
    uint64_t hash; /* of all that the store keeps */
} outcome;

static const char *device_setting(void)
{
    return tested_on_cuda() ? "device=cuda" : "device=cpu";
}

/* sets: "key=value", ended by NULL; shared_bytes: of a block, 0: as many as the card has */
static outcome train(const char *const *sets, int64_t shared_bytes)
{
    outcome o;
    yk_rig rig;
    yk_rig_open(&rig, 0, sets);
    assert_int_equal(yk_device_limit_shared(rig.device, shared_bytes), YK_OK);
    yk_rig_train(&rig, 0, STEPS, o.losses);
    o.hash = yk_rig_hash(&rig);
    yk_rig_close(&rig);
    return o;
}

static void expect_alike(const char *const *sets)
{
    outcome own = train(sets, 0);
    for (int i = 0; i < STEPS; i++) assert_true(isfinite(own.losses[i]));
    if (!tested_on_cuda()) return;
    outcome smaller = train(sets, 99 * 1024), again = train(sets, 99 * 1024);
    assert_true(smaller.hash == again.hash);
    for (int i = 0; i < STEPS; i++) {
        double apart = fabs(smaller.losses[i] - own.losses[i]) / own.losses[i];
        if (!(apart <= 0.01))
            fail_msg("step %d: %.9g, and %.9g with smaller blocks", i, own.losses[i],
                     smaller.losses[i]);
    }
}

/* Several tiles of queries and of keys, the last of them not full. */
#define COMMON                                                                                     \
    device_setting(), "attention.provider=own", "precision.compute=bf16", "tune=off",              \
        "cuda.graphs=off", "train.seq_len=200", "train.batch=1", "train.micro_batch=1",            \
        "train.steps=2", "model.layers=1"

static void heads_of_64_train_alike_with_smaller_blocks(void **state)
{
    (void)state;
    const char *sets[] = {COMMON,
                          "model.preset=tiny-gpt2",
                          "model.max_seq_len=256",
                          "model.width=128",
                          "model.heads=2",
                          "model.vocab=50304",
                          NULL};
    expect_alike(sets);
}

static void grouped_heads_of_128_train_alike_with_smaller_blocks(void **state)
{
    (void)state;
    const char *sets[] = {COMMON,
                          "model.preset=tiny-qwen2",
                          "model.max_seq_len=256",
                          "model.width=256",
                          "model.heads=2",
                          "model.kv_heads=1",
                          "model.ffn=256",
                          "model.vocab=70000",
                          "data.doc_mask=true",
                          "data.doc_token=32",
                          NULL};
    expect_alike(sets);
}

/* Rows so long that a warp takes them by parts, or, with smaller blocks, fewer warps at a time do. */
static void long_norm(op_case *c)
{
    enum { R = 40, C = 3584 };
    op_case_begin(c, YK_BF16, "norm_forward rms R=%d C=%d", R, C);
    op_buffer *x = op_input(c, YK_BF16, R * C, 1), *weight = op_input(c, YK_BF16, C, 1);
    op_buffer *y = op_output(c, YK_BF16, R * C), *rstd = op_output(c, YK_F32, R);
    OP_RUN(c, yk_norm_forward,
           &((yk_norm_forward_args){.y = y->data,
                                    .rstd = rstd->data,
                                    .x = x->data,
                                    .weight = weight->data,
                                    .rows = R,
                                    .cols = C,
                                    .eps = 1e-5f,
                                    .kind = YK_NORM_RMS,
                                    .dtype = YK_BF16}));
}

static void long_norm_of_smaller_blocks(op_case *c)
{
    assert_int_equal(yk_device_limit_shared(c->device, 99 * 1024), YK_OK);
    long_norm(c);
}

static void a_norm_of_long_rows_has_the_same_bits_again(void **state)
{
    (void)state;
    op_expect_same_bits_again(long_norm);
    op_expect_same_bits_again(long_norm_of_smaller_blocks);
}

int main(void)
{
    if (tested_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_64_train_alike_with_smaller_blocks),
        cmocka_unit_test(grouped_heads_of_128_train_alike_with_smaller_blocks),
        cmocka_unit_test(a_norm_of_long_rows_has_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
