/* tests/runtime/device/test_finals.c - who wins a race, from the times of its blocks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/device/finals.h"

/* A finalist's blocks; the list ends with 0. */
static void add_blocks(yk_finals *f, const float *ms)
{
    yk_finalist *one = &f->who[f->n++];
    *one = (yk_finalist){.candidate = 10 + f->n};
    for (; *ms > 0; ms++) yk_finals_add(one, *ms);
}

#define ADD(f, ...) add_blocks(f, (const float[]){__VA_ARGS__, 0})

static void blocks_are_kept_in_order_of_their_times(void **state)
{
    (void)state;
    yk_finals f = {.n = 0};
    ADD(&f, 3, 1, 2);
    ADD(&f, 4, 1, 3, 2);
    assert_true(f.who[0].ms[0] == 1 && f.who[0].ms[1] == 2 && f.who[0].ms[2] == 3);
    assert_true(yk_finals_middle(&f.who[0]) == 2);
    assert_true(yk_finals_middle(&f.who[1]) == 2.5f);
}

static void another_is_taken_for_any_gain_beyond_the_noise(void **state)
{
    (void)state;
    yk_finals still = {.n = 0}, moving = {.n = 0};
    ADD(&still, 1.000f, 1.001f, 1.002f);
    ADD(&still, 0.997f, 0.998f, 0.999f); /* 0.3 % faster, noise 0.07 % each */
    assert_int_equal(yk_finals_verdict(&still), 1);
    ADD(&moving, 1.000f, 1.010f, 1.020f);
    ADD(&moving, 0.990f, 1.000f, 1.010f); /* 1 % faster, noise 0.67 % each */
    assert_int_equal(yk_finals_verdict(&moving), 0);
}

static void more_blocks_of_the_same_range_see_a_smaller_gain(void **state)
{
    (void)state;
    yk_finals three = {.n = 0}, five = {.n = 0};
    ADD(&three, 1.00f, 1.01f, 1.02f);
    ADD(&three, 0.99f, 1.00f, 1.01f);
    ADD(&five, 1.00f, 1.01f, 1.01f, 1.01f, 1.02f);
    ADD(&five, 0.99f, 1.00f, 1.00f, 1.00f, 1.01f);
    assert_int_equal(yk_finals_verdict(&three), 0);
    assert_int_equal(yk_finals_verdict(&five), 1);
}

static void the_fastest_of_the_others_is_taken(void **state)
{
    (void)state;
    yk_finals f = {.n = 0};
    ADD(&f, 1.00f, 1.00f, 1.01f);
    ADD(&f, 0.97f, 0.97f, 0.98f);
    ADD(&f, 0.95f, 0.95f, 0.96f);
    ADD(&f, 0.80f, 0.94f, 1.40f); /* faster in the middle, but who knows */
    assert_int_equal(yk_finals_verdict(&f), 2);
}

static void the_first_stands_where_it_is_alone_or_fastest(void **state)
{
    (void)state;
    yk_finals f = {.n = 0};
    ADD(&f, 1.0f, 1.0f, 1.0f);
    assert_int_equal(yk_finals_verdict(&f), 0);
    ADD(&f, 1.1f, 1.1f, 1.1f);
    assert_int_equal(yk_finals_verdict(&f), 0);
    ADD(&f, 1.0f, 1.0f, 1.0f);
    assert_int_equal(yk_finals_verdict(&f), 0);
}

static void who_is_near_the_best_is_a_finalist(void **state)
{
    (void)state;
    assert_true(yk_finals_bar(1.0f, 0.9f, 0) == 0.9f * YK_FINALS_NEAR);
    assert_true(yk_finals_bar(0.9f, 0.9f, 0) == 0.9f * YK_FINALS_NEAR);
}

static void who_must_lead_is_no_finalist_unless_it_does(void **state)
{
    (void)state;
    float all_alike = yk_finals_bar(1.0f, 0.95f, 0.07f),
          one_ahead = yk_finals_bar(1.0f, 0.9f, 0.07f);
    float far_ahead = yk_finals_bar(1.0f, 0.8f, 0.07f);
    assert_true(all_alike < 0.95f); /* nobody */
    assert_true(one_ahead > 0.92f && one_ahead < 0.94f);
    assert_true(far_ahead == 0.8f * YK_FINALS_NEAR);
    assert_true(yk_finals_bar(INFINITY, 0.8f, 0.07f) ==
                0.8f * YK_FINALS_NEAR); /* the first cannot */
}

static void who_never_reached_the_leader_runs_no_more(void **state)
{
    (void)state;
    yk_finals f = {.n = 0};
    ADD(&f, 1.10f, 1.11f, 1.12f);
    ADD(&f, 1.00f, 1.01f, 1.05f);
    ADD(&f, 1.05f, 1.06f, 1.09f); /* once as fast as the leader at its slowest */
    ADD(&f, 1.06f, 1.07f, 1.08f);
    assert_int_equal(yk_finals_thin(&f), 2);
    assert_true(f.who[0].out && !f.who[1].out && !f.who[2].out && f.who[3].out);
    assert_int_equal(yk_finals_thin(&f), 2);
    assert_int_equal(yk_finals_verdict(&f), 1); /* against the first, though it is out */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_kept_in_order_of_their_times),
        cmocka_unit_test(another_is_taken_for_any_gain_beyond_the_noise),
        cmocka_unit_test(more_blocks_of_the_same_range_see_a_smaller_gain),
        cmocka_unit_test(the_fastest_of_the_others_is_taken),
        cmocka_unit_test(the_first_stands_where_it_is_alone_or_fastest),
        cmocka_unit_test(who_is_near_the_best_is_a_finalist),
        cmocka_unit_test(who_must_lead_is_no_finalist_unless_it_does),
        cmocka_unit_test(who_never_reached_the_leader_runs_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
