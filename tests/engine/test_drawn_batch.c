/* tests/engine/test_drawn_batch.c - the micro-batch that is timed where there is no data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/drawn_batch.h"
#include "tests/engine/rig.h"

static int32_t *draw(const yk_rig *rig, uint64_t seed)
{
    int32_t *fields = malloc((size_t)yk_engine_batch_bytes(rig->engine));
    assert_non_null(fields);
    memset(fields, 0xff, (size_t)yk_engine_batch_bytes(rig->engine));
    yk_drawn_batch_fill(rig->engine, seed, fields);
    return fields;
}

static void every_field_is_filled_with_what_a_batch_may_hold(void **state)
{
    (void)state;
    const char *sets[] = {"train.micro_batch=2", "data.doc_mask=true", "data.doc_token=10", NULL};
    yk_rig rig;
    yk_rig_open(&rig, 0, sets);
    assert_int_equal(rig.engine->n_fields, 4);
    int64_t t = rig.engine->seq_len, rows = 2 * t;
    int32_t *fields = draw(&rig, 0);
    for (int64_t i = 0; i < rows; i++) {
        assert_in_range(fields[i], 0, rig.shape.vocab - 1);
        assert_int_equal(fields[rows + i], fields[(i + 1) % rows]);
        assert_int_equal(fields[2 * rows + i], i % t);
        assert_int_equal(fields[3 * rows + i], 0);
    }
    free(fields);
    yk_rig_close(&rig);
}

static void a_seed_draws_its_own_tokens_each_time_the_same(void **state)
{
    (void)state;
    const char *sets[] = {"train.micro_batch=2", NULL};
    yk_rig rig;
    yk_rig_open(&rig, 0, sets);
    size_t bytes = (size_t)yk_engine_batch_bytes(rig.engine);
    int32_t *one = draw(&rig, 1), *again = draw(&rig, 1), *other = draw(&rig, 2);
    assert_memory_equal(one, again, bytes);
    assert_memory_not_equal(one, other, bytes);
    free(one);
    free(again);
    free(other);
    yk_rig_close(&rig);
}

/* By one over the rank, the first tenth of a vocabulary has more than half of all tokens. */
static void few_tokens_are_most_of_them(void **state)
{
    (void)state;
    const char *sets[] = {"train.micro_batch=8", "train.batch=8", NULL};
    yk_rig rig;
    yk_rig_open(&rig, 0, sets);
    int64_t rows = 8 * rig.engine->seq_len, few = 0;
    int32_t *fields = draw(&rig, 0);
    for (int64_t i = 0; i < rows; i++) few += fields[i] < rig.shape.vocab / 10;
    assert_true(2 * few > rows);
    free(fields);
    yk_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_filled_with_what_a_batch_may_hold),
        cmocka_unit_test(a_seed_draws_its_own_tokens_each_time_the_same),
        cmocka_unit_test(few_tokens_are_most_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
