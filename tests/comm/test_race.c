/* tests/comm/test_race.c - who wins a race: one backend for both kinds of collectives, or each where it is
 * faster by more than a race may err. And which of the rows a collective takes its chunks from.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/race.h"

static void expect_winners(double nccl_gather, double nccl_sum, double hostmem_gather,
                           double hostmem_sum, const char *gathers, const char *sums)
{
    yk_race r = {
        .backends = {YK_COMM_NCCL, YK_COMM_HOSTMEM},
        .n_backends = 2,
        .rows = {{.kind = YK_RACE_GATHER, .calls = 1, .seconds = {nccl_gather, hostmem_gather}},
                 {.kind = YK_RACE_SCATTER, .calls = 1, .seconds = {nccl_sum, hostmem_sum}}},
        .n_rows = 2};
    yk_race_judge(&r);
    assert_string_equal(yk_race_name(&r, r.gathers), gathers);
    assert_string_equal(yk_race_name(&r, r.sums), sums);
}

static void who_is_faster_at_both_wins_both(void **state)
{
    (void)state;
    expect_winners(1, 2, 3, 4, "nccl", "nccl");
    expect_winners(3, 4, 1, 2, "hostmem", "hostmem");
    expect_winners(1, 1, 1, 1, "nccl", "nccl");
}

static void each_wins_its_kind_where_that_is_worth_two(void **state)
{
    (void)state;
    expect_winners(1, 3, 2, 2, "nccl", "hostmem");
    expect_winners(2, 2, 1, 3, "hostmem", "nccl");
    expect_winners(1.00, 1.1, 1.1, 1.00, "nccl", "hostmem"); /* 2.00 against 2.10 */
}

static void a_gain_that_may_be_an_error_is_none(void **state)
{
    (void)state;
    expect_winners(1.00, 1.05, 1.03, 1.00, "hostmem", "hostmem"); /* 2.00 against 2.03 */
    expect_winners(1.00, 1.02, 1.05, 1.00, "nccl", "nccl");
}

/* Of each kind what is often and short against what is rare and long. */
static void what_counts_is_the_time_of_a_step(void **state)
{
    (void)state;
    yk_race r = {.backends = {YK_COMM_NCCL, YK_COMM_HOSTMEM},
                 .n_backends = 2,
                 .rows = {{.kind = YK_RACE_GATHER, .calls = 30, .seconds = {1, 2}},
                          {.kind = YK_RACE_GATHER, .calls = 1.5, .seconds = {20, 10}},
                          {.kind = YK_RACE_SCATTER, .calls = 30, .seconds = {1, 2}},
                          {.kind = YK_RACE_SCATTER, .calls = 1.5, .seconds = {60, 10}}},
                 .n_rows = 4};
    yk_race_judge(&r);
    assert_true(yk_race_gathers_s(&r, 0) == 60 && yk_race_gathers_s(&r, 1) == 75);
    assert_true(yk_race_sums_s(&r, 0) == 120 && yk_race_sums_s(&r, 1) == 75);
    assert_string_equal(yk_race_name(&r, r.gathers), "nccl");
    assert_string_equal(yk_race_name(&r, r.sums), "hostmem");
}

static void gathers_that_no_step_makes_want_no_backend_of_their_own(void **state)
{
    (void)state;
    yk_race r = {.backends = {YK_COMM_NCCL, YK_COMM_HOSTMEM},
                 .n_backends = 2,
                 .rows = {{.kind = YK_RACE_ALL_REDUCE, .calls = 2, .seconds = {2, 1}}},
                 .n_rows = 1};
    yk_race_judge(&r);
    assert_string_equal(yk_race_name(&r, r.sums), "hostmem");
    assert_int_equal(r.gathers, r.sums);
}

static void one_runs_alone(void **state)
{
    (void)state;
    yk_race r = {.backends = {YK_COMM_MPI},
                 .n_backends = 1,
                 .rows = {{.kind = YK_RACE_ALL_REDUCE, .calls = 1, .seconds = {1}}},
                 .n_rows = 1,
                 .sums = 1};
    yk_race_judge(&r);
    assert_int_equal(r.sums, 0);
    assert_int_equal(r.gathers, 0);
}

static void chunks_are_those_of_the_nearest_length_of_their_kind(void **state)
{
    (void)state;
    yk_race r = {
        .rows = {{.kind = YK_RACE_GATHER, .dtype = YK_BF16, .count = 500, .doublings = 1},
                 {.kind = YK_RACE_GATHER, .dtype = YK_F32, .count = 16000, .doublings = -2},
                 {.kind = YK_RACE_SCATTER, .dtype = YK_F32, .count = 250, .doublings = 2}},
        .n_rows = 3};
    assert_int_equal(yk_race_doublings(&r, true, 1000), 1);
    assert_int_equal(yk_race_doublings(&r, true, 7900), 1); /* 7.9 times as long; 1 / 8.1 */
    assert_int_equal(yk_race_doublings(&r, true, 8100), -2);
    assert_int_equal(yk_race_doublings(&r, true, (int64_t)1 << 40), -2);
    assert_int_equal(yk_race_doublings(&r, true, 1), 1);
    assert_int_equal(yk_race_doublings(&r, false, 64000), 2);
    r.rows[2].kind = YK_RACE_ALL_REDUCE;
    assert_int_equal(yk_race_doublings(&r, false, 64000), 2);
    r.n_rows = 2;
    assert_int_equal(yk_race_doublings(&r, false, 64000), 0); /* there is no sum */
    assert_int_equal(yk_race_doublings(NULL, true, 1000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_faster_at_both_wins_both),
        cmocka_unit_test(each_wins_its_kind_where_that_is_worth_two),
        cmocka_unit_test(a_gain_that_may_be_an_error_is_none),
        cmocka_unit_test(what_counts_is_the_time_of_a_step),
        cmocka_unit_test(gathers_that_no_step_makes_want_no_backend_of_their_own),
        cmocka_unit_test(one_runs_alone),
        cmocka_unit_test(chunks_are_those_of_the_nearest_length_of_their_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
