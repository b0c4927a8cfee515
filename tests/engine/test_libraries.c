/* tests/engine/test_libraries.c - what CUDA and libraries take of a GPU: estimated by a plan, measured by a run.
 * A device that says what it is told stands in for a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/libraries.h"
#include "engine/ranks.h"
#include "runtime/device/backend.h"
#include "tests/runtime/base/heard.h"

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

/* ---- planned ------------------------------------------------------------------------------ */

/* What a plan of a tiny model counts for NCCL on `ranks` ranks, beside what it counts for CUDA. */
static int64_t planned(const char *card, int ranks, int node_size, const char *const *sets)
{
    yk_config config;
    yk_model_shape shape;
    yk_device_spec spec;
    yk_plan plan;
    int64_t all = 0, nccl = 0;
    assert_int_equal(yk_config_init(&config), YK_OK);
    assert_int_equal(yk_config_set(&config, "model.preset=tiny-gpt2"), YK_OK);
    for (; *sets; sets++) assert_int_equal(yk_config_set(&config, *sets), YK_OK);
    config.train.seq_len = 64;
    config.train.batch = ranks;
    config.train.micro_batch = 1;
    assert_int_equal(yk_model_shape_from_config(&config, &shape), YK_OK);
    assert_int_equal(yk_device_spec_find(card, &spec), YK_OK);
    yk_topology topology = yk_ranks_topology(&spec, ranks, node_size);
    assert_int_equal(yk_plan_make(&config, &shape, &spec, &topology, 0, &plan), YK_OK);
    for (int i = 0; i < plan.n_items; i++) {
        if (strcmp(plan.items[i].arena, "libraries") != 0) continue;
        all += plan.items[i].bytes;
        if (strcmp(plan.items[i].name, "NCCL") == 0) nccl = plan.items[i].bytes;
    }
    assert_int_equal(all, plan.library_bytes);
    assert_int_equal(all - nccl, spec.context_bytes);
    yk_plan_fini(&plan);
    yk_config_fini(&config);
    return nccl;
}

static void nccl_counts_where_it_carries_something(void **state)
{
    (void)state;
    static const char *const usual[] = {NULL};
    static const char *const hostmem[] = {"comm.backend=hostmem", NULL};
    static const char *const split[] = {"comm.backend=nccl", "comm.gathers=hostmem", NULL};
    static const char *const node[] = {"parallel.shard=node", "parallel.zero=2", NULL};
    /* As measured with two ranks, by way of the host and over NVLink. */
    int64_t code = 436 * MIB, host = 60 * MIB, peers = 1360 * MIB;
    assert_int_equal(planned("h200", 1, 1, usual), 0);
    assert_int_equal(planned("h200", 2, 2, hostmem), 0);
    assert_int_equal(planned("4090d", 2, 2, usual), code + host);
    assert_int_equal(planned("h200", 2, 2, usual), code + peers);
    assert_int_equal(planned("h200", 2, 2, split), code + peers);
    assert_int_equal(planned("h200", 4, 2, hostmem), code + host);          /* between nodes */
    assert_int_equal(planned("h200", 4, 2, node), code + 2 * peers + host); /* three groups */
}

/* ---- measured ----------------------------------------------------------------------------- */

typedef struct stand_in {
    yk_backend backend;
    yk_device device;
} stand_in;

static int64_t held_bytes; /* what the device says */

static int64_t say_held(const yk_device *d)
{
    (void)d;
    return held_bytes;
}

static int64_t say_used(const yk_device *d)
{
    (void)d;
    return held_bytes;
}

static void say_room(const yk_device *d, yk_memory_kind kind, char *text_out, size_t size)
{
    (void)d;
    (void)kind;
    snprintf(text_out, size, "so many free");
}

static void stand(stand_in *s)
{
    *s = (stand_in){.backend = {.held_bytes = say_held, .used_bytes = say_used, .room = say_room}};
    s->device.backend = &s->backend;
    s->device.spec.memory_bytes = 24 * GIB;
}

#define PLANNED (768 * MIB)

static yk_plan some_plan(yk_plan_item items[8])
{
    memset(items, 0, 8 * sizeof *items);
    return (yk_plan){.sizes = {.persistent = 12 * GIB, .activation = 11 * GIB},
                     .library_bytes = PLANNED,
                     .items = items,
                     .limit = 24 * GIB};
}

static void a_plan_stands_while_libraries_hold_what_was_planned(void **state)
{
    (void)state;
    stand_in s;
    yk_plan_item items[8];
    yk_plan plan = some_plan(items);
    stand(&s);
    held_bytes = 23 * GIB + PLANNED - YK_LIBRARIES_LATER;
    assert_int_equal(yk_libraries_count(NULL, &s.device, &plan), YK_OK);
    assert_int_equal(plan.library_bytes, PLANNED);
    assert_int_equal(plan.held_bytes, PLANNED - YK_LIBRARIES_LATER);
    held_bytes += MIB; /* more than was planned, and it fits */
    assert_int_equal(yk_libraries_count(NULL, &s.device, &plan), YK_OK);
    assert_int_equal(plan.library_bytes, PLANNED + MIB);
    assert_string_equal(items[0].arena, "libraries");
    held_bytes = 0; /* it is not known */
    assert_int_equal(yk_libraries_count(NULL, &s.device, &plan), YK_OK);
    assert_int_equal(plan.library_bytes, PLANNED + MIB);
    assert_int_equal(plan.held_bytes, 0);
}

static void libraries_that_pass_the_limit_end_the_start(void **state)
{
    (void)state;
    stand_in s;
    heard h;
    char said[1024];
    yk_plan_item items[8];
    yk_plan plan = some_plan(items);
    stand(&s);
    held_bytes = 24 * GIB - YK_LIBRARIES_LATER + 1;
    heard_begin(&h);
    yk_status status = yk_libraries_count(NULL, &s.device, &plan);
    snprintf(said, sizeof said, "%s", heard_take(&h));
    heard_end(&h);
    assert_int_equal(status, YK_ENOFIT);
    assert_non_null(strstr(said,
                           "libraries hold 832 MiB and load up to 192 more, 256 more than was "
                           "planned"));
    assert_non_null(strstr(said, "of the 24.00 that may be used; raise memory.device_limit"));
}

static void room_is_asked_for_before_anything_is_allocated(void **state)
{
    (void)state;
    stand_in s;
    heard h;
    yk_plan_item items[8];
    yk_plan plan = some_plan(items);
    stand(&s);
    held_bytes = 500 * MIB; /* the rest of what is planned is still to come */
    s.device.spec.memory_bytes = 23 * GIB + PLANNED;
    assert_int_equal(yk_libraries_check_room(&s.device, &plan), YK_OK);
    s.device.spec.memory_bytes--;
    heard_begin(&h);
    yk_status status = yk_libraries_check_room(&s.device, &plan);
    bool said = strstr(heard_take(&h), "the run's memory: ") != NULL;
    heard_end(&h);
    assert_int_equal(status, YK_ENOMEM);
    assert_true(said);
}

static void more_than_room_was_left_for_is_a_warning(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        stand_in s;
        heard h;
        yk_plan_item items[8];
        yk_plan plan = some_plan(items);
        stand(&s);
        held_bytes = 23 * GIB + PLANNED + more * MIB;
        heard_begin(&h);
        yk_libraries_review(&s.device, &plan);
        bool warned =
            strstr(heard_take(&h), "libraries hold 769 MiB after the first step, and room "
                                   "was left for 768") != NULL;
        heard_end(&h);
        assert_int_equal(warned, more);
        assert_int_equal(plan.library_bytes, PLANNED + more * MIB);
    }
}

static void what_is_missing_counts_what_is_still_to_come(void **state)
{
    (void)state;
    yk_plan_item items[8];
    const yk_plan plan = some_plan(items);
    int64_t missing;
    assert_int_equal(yk_libraries_missing(NULL, &plan, 0, GIB, &missing), YK_OK);
    assert_int_equal(missing, 0);
    assert_int_equal(yk_libraries_missing(NULL, &plan, 500 * MIB, 268 * MIB, &missing), YK_OK);
    assert_int_equal(missing, 0);
    assert_int_equal(yk_libraries_missing(NULL, &plan, 500 * MIB, 269 * MIB, &missing), YK_OK);
    assert_int_equal(missing, MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nccl_counts_where_it_carries_something),
        cmocka_unit_test(a_plan_stands_while_libraries_hold_what_was_planned),
        cmocka_unit_test(libraries_that_pass_the_limit_end_the_start),
        cmocka_unit_test(room_is_asked_for_before_anything_is_allocated),
        cmocka_unit_test(more_than_room_was_left_for_is_a_warning),
        cmocka_unit_test(what_is_missing_counts_what_is_still_to_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
