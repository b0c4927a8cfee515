/* tests/engine/test_plan_head.c - how many rows of logits a plan has at a time, where it may choose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/plan.h"

/* A planned training, its configuration and model. */
typedef struct planned {
    yk_config config;
    yk_model_shape shape;
    yk_plan plan;
} planned;

/* Plan on a described device with a limit, 0: none. */
static yk_status plan_on(const char *device, int64_t limit, int ranks, const char *const *sets,
                         planned *p)
{
    yk_device_spec spec;
    assert_int_equal(yk_config_init(&p->config), YK_OK);
    assert_int_equal(yk_config_set(&p->config, "precision.compute=bf16"), YK_OK);
    for (; *sets; sets++) assert_int_equal(yk_config_set(&p->config, *sets), YK_OK);
    p->config.memory.device_limit = limit;
    assert_int_equal(yk_model_shape_from_config(&p->config, &p->shape), YK_OK);
    assert_int_equal(yk_device_spec_find(device, &spec), YK_OK);
    spec.memory_bytes = INT64_MAX;
    yk_topology topology = yk_ranks_topology(&spec, ranks, ranks);
    yk_status status =
        yk_plan_make(&p->config, &p->shape, &spec, ranks > 1 ? &topology : NULL, 0, &p->plan);
    if (status != YK_OK) yk_config_fini(&p->config);
    return status;
}

static void planned_fini(planned *p)
{
    yk_plan_fini(&p->plan);
    yk_config_fini(&p->config);
}

static int64_t bytes_of(const yk_plan *plan, const char *name)
{
    for (int i = 0; i < plan->n_items; i++)
        if (strcmp(plan->items[i].name, name) == 0) return plan->items[i].bytes;
    return 0;
}

/* Twice as many logits would not be worth their memory, or be too many to count. */
static void with_room_a_chunk_is_large(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *micro_batch;
        int64_t chunk;
    } cases[] = {
        {"model.preset=gpt2-124m", "train.micro_batch=64", 16384},
        {"model.preset=gpt2-1.5b", "train.micro_batch=32", 8192},
        {"model.preset=qwen2.5-0.5b", "train.micro_batch=32", 8192},
        {"model.preset=qwen2.5-1.5b", "train.micro_batch=32", 8192},
        {"model.preset=qwen2.5-1.5b", "train.micro_batch=1", 1024},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *sets[] = {cases[i].preset,      cases[i].micro_batch,    "train.batch=64",
                              "train.seq_len=1024", "memory.recompute=none", NULL};
        planned p;
        assert_int_equal(plan_on("h200", 0, 1, sets, &p), YK_OK);
        assert_int_equal(p.plan.config.memory.head_chunk, cases[i].chunk);
        assert_non_null(strstr(p.plan.why, "bits follow memory.head_chunk"));
        planned_fini(&p);
    }
}

/* Else one could not be exchanged for the other without another result. */
static void with_room_it_is_the_same_however_the_step_is_done(void **state)
{
    (void)state;
    static const char *const ways[][3] = {
        {"memory.recompute=none", "memory.offload=[]", "parallel.zero=0"},
        {"memory.recompute=block", "memory.offload=[]", "parallel.zero=1"},
        {"memory.recompute=cheap", "memory.offload=[moments,inputs]", "parallel.zero=2"},
        {"memory.recompute=qkv", "memory.offload=[moments,grads,params]", "parallel.zero=3"},
    };
    static const char *const presets[] = {"model.preset=gpt2-124m", "model.preset=gpt2-355m",
                                          "model.preset=llama2-7b", "model.preset=qwen2.5-3b"};
    for (size_t m = 0; m < sizeof presets / sizeof presets[0]; m++) {
        int64_t first = 0;
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            const char *sets[] = {presets[m],
                                  "train.micro_batch=24",
                                  "train.batch=48",
                                  ways[i][0],
                                  ways[i][1],
                                  ways[i][2],
                                  NULL};
            planned p;
            assert_int_equal(plan_on("h200", 0, 2, sets, &p), YK_OK);
            if (i == 0) first = p.plan.config.memory.head_chunk;
            assert_int_equal(p.plan.config.memory.head_chunk, first);
            planned_fini(&p);
        }
    }
}

static void chunks_of_a_micro_batch_are_nearly_equal(void **state)
{
    (void)state;
    static const int micro[] = {9, 11, 13, 17, 23, 25, 31, 47};
    for (size_t i = 0; i < sizeof micro / sizeof micro[0]; i++) {
        char sequences[32], batch[32];
        snprintf(sequences, sizeof sequences, "train.micro_batch=%d", micro[i]);
        snprintf(batch, sizeof batch, "train.batch=%d", micro[i]);
        const char *sets[] = {"model.preset=gpt2-124m", sequences, batch, "train.seq_len=1000",
                              NULL};
        planned p;
        assert_int_equal(plan_on("h200", 0, 1, sets, &p), YK_OK);
        int64_t rows = micro[i] * 1000, chunk = p.plan.config.memory.head_chunk;
        int64_t n = (rows + chunk - 1) / chunk, last = rows - (n - 1) * chunk;
        assert_in_range(chunk, 1, 16384);
        assert_true(n == 1 || chunk > 4096);
        assert_true(chunk - last < 128 * n);
        planned_fini(&p);
    }
}

#define SMALL                                                                                      \
    "model.preset=tiny-llama", "model.layers=3", "model.vocab=4096", "train.seq_len=128",          \
        "train.batch=64", "train.micro_batch=64"

/* Plan a small model with a strength of recomputation and a chunk. */
static void plan_small(int64_t limit, int strength, int64_t chunk, planned *p)
{
    static const char *const policies[] = {"none", "cheap", "ffn", "qkv", "block"};
    char recompute[64], blocks[64], head[64];
    snprintf(recompute, sizeof recompute, "memory.recompute=%s", policies[(strength + 2) / 3]);
    snprintf(blocks, sizeof blocks, "memory.recompute_blocks=%d",
             strength ? (strength - 1) % 3 + 1 : 0);
    snprintf(head, sizeof head, "memory.head_chunk=%d", (int)chunk);
    const char *sets[] = {SMALL, recompute, blocks, head, NULL};
    assert_int_equal(plan_on("h200", limit, 1, sets, p), YK_OK);
}

/* Every chunk is tried with every strength of recomputation; none that fits may be faster. */
static void within_a_limit_it_is_weighed_against_recomputation(void **state)
{
    (void)state;
    static const char *const open[] = {SMALL, NULL};
    static const int64_t chunks[] = {8192, 4096, 2048, 1024};
    planned whole, chosen, other;
    int n_smaller = 0;
    plan_small(0, 0, 8192, &whole);
    int64_t fixed = yk_plan_device_bytes(&whole.plan) - whole.plan.sizes.activation;
    for (int part = 4; part <= 20; part++) {
        int64_t limit = fixed + whole.plan.sizes.activation * part / 20;
        int n_fits = 0;
        if (plan_on("h200", limit, 1, open, &chosen) != YK_OK) continue;
        assert_true(yk_plan_device_bytes(&chosen.plan) <= limit);
        for (int strength = 0; strength <= 12; strength++)
            for (int i = 0; i < 4; i++) {
                plan_small(0, strength, chunks[i], &other);
                if (yk_plan_device_bytes(&other.plan) <= limit) {
                    n_fits++;
                    assert_true(other.plan.step_s >= chosen.plan.step_s);
                }
                planned_fini(&other);
            }
        assert_true(n_fits > 0);
        if (chosen.plan.config.memory.head_chunk < 8192) n_smaller++;
        planned_fini(&chosen);
    }
    assert_in_range(n_smaller, 3, 16);
    planned_fini(&whole);
}

/* With everything else given, it is as large as fits. */
static void it_alone_may_be_open(void **state)
{
    (void)state;
    static const char *const given[] = {SMALL, "memory.recompute=cheap", NULL};
    planned all, half, chosen;
    plan_small(0, 3, 8192, &all);
    plan_small(0, 3, 4096, &half);
    int64_t limit = yk_plan_device_bytes(&all.plan);
    assert_true(yk_plan_device_bytes(&half.plan) < limit);
    assert_int_equal(plan_on("h200", limit, 1, given, &chosen), YK_OK);
    assert_int_equal(chosen.plan.config.memory.head_chunk, 8192);
    planned_fini(&chosen);
    assert_int_equal(plan_on("h200", limit - 1, 1, given, &chosen), YK_OK);
    assert_int_equal(chosen.plan.config.memory.head_chunk, 4096);
    assert_int_equal(chosen.plan.config.memory.recompute, YK_RECOMPUTE_CHEAP);
    assert_int_equal(yk_plan_device_bytes(&chosen.plan), yk_plan_device_bytes(&half.plan));
    planned_fini(&chosen);
    planned_fini(&half);
    planned_fini(&all);
}

/* What a run writes down says all, so that it can be made again where there is more room. */
static void what_was_chosen_is_kept_by_the_configuration(void **state)
{
    (void)state;
    static const char *const open[] = {SMALL, NULL};
    planned first, again;
    char *text, line[64];
    size_t bytes;
    plan_small(0, 0, 2048, &first);
    int64_t limit = yk_plan_device_bytes(&first.plan);
    planned_fini(&first);
    assert_int_equal(plan_on("h200", limit, 1, open, &first), YK_OK);
    snprintf(line, sizeof line, "head_chunk: %d\n", (int)first.plan.config.memory.head_chunk);
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_int_equal(yk_config_write(&first.plan.config, f), YK_OK);
    fclose(f);
    assert_non_null(strstr(text, line));
    free(text);
    snprintf(line, sizeof line, "memory.head_chunk=%d", (int)first.plan.config.memory.head_chunk);
    const char *kept[] = {SMALL, line, NULL};
    assert_int_equal(plan_on("h200", 0, 1, kept, &again), YK_OK);
    assert_int_equal(again.plan.config.memory.head_chunk, first.plan.config.memory.head_chunk);
    planned_fini(&again);
    assert_int_equal(plan_on("h200", 0, 1, open, &again), YK_OK);
    assert_true(again.plan.config.memory.head_chunk > first.plan.config.memory.head_chunk);
    planned_fini(&again);
    planned_fini(&first);
}

/* 256 rows of 50,304 logits in 16 bits: what 32 MiB hold. */
static void processors_keep_32_MiB(void **state)
{
    (void)state;
    const char *sets[] = {"model.preset=gpt2-124m", "train.batch=8",          "train.micro_batch=8",
                          "memory.recompute=none",  "memory.head_chunk=auto", NULL};
    planned p, q;
    assert_int_equal(plan_on("cpu", 0, 1, sets, &p), YK_OK);
    sets[4] = "memory.head_chunk=256";
    assert_int_equal(plan_on("cpu", 0, 1, sets, &q), YK_OK);
    assert_int_equal(p.plan.config.memory.head_chunk, 256);
    assert_string_equal(p.plan.why, "memory.head_chunk: 256: it follows from the model");
    assert_string_equal(q.plan.why, "");
    assert_true(p.plan.bytes == q.plan.bytes && p.plan.step_s == q.plan.step_s);
    planned_fini(&q);
    planned_fini(&p);
}

/* Nothing adds up there. */
static void evaluation_alone_takes_512_MiB(void **state)
{
    (void)state;
    static const char *const sets[] = {"model.preset=qwen2.5-0.5b", "train.batch=2",
                                       "train.micro_batch=2", NULL};
    planned p;
    yk_plan inference;
    assert_int_equal(plan_on("h200", 0, 1, sets, &p), YK_OK);
    assert_int_equal(yk_plan_make_inference(&p.config, &p.shape, &p.plan.spec, &inference), YK_OK);
    assert_in_range(bytes_of(&inference, "logits"), 400 << 20, 512 << 20);
    yk_plan_fini(&inference);
    planned_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_room_a_chunk_is_large),
        cmocka_unit_test(with_room_it_is_the_same_however_the_step_is_done),
        cmocka_unit_test(chunks_of_a_micro_batch_are_nearly_equal),
        cmocka_unit_test(within_a_limit_it_is_weighed_against_recomputation),
        cmocka_unit_test(it_alone_may_be_open),
        cmocka_unit_test(what_was_chosen_is_kept_by_the_configuration),
        cmocka_unit_test(processors_keep_32_MiB),
        cmocka_unit_test(evaluation_alone_takes_512_MiB),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
