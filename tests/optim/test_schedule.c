/* tests/optim/test_schedule.c - the learning rate at the edges of every schedule. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/schedule.h"

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-12) fail_msg("%.17g is not %.17g", a, b);
}

static double rate(yk_schedule_kind kind, int64_t steps, int64_t warmup, double decay, double final,
                   int64_t step)
{
    yk_schedule s = {kind, 2.0, steps, warmup, decay, final};
    return yk_schedule_rate(&s, step);
}

static void warm_up_rises_to_the_peak_and_falls_to_final(void **state)
{
    (void)state;
    for (int kind = YK_SCHEDULE_COSINE; kind <= YK_SCHEDULE_LINEAR; kind++) {
        yk_schedule_kind k = (yk_schedule_kind)kind;
        assert_near(rate(k, 100, 10, 0, 0.1, 0), 0.2);
        assert_near(rate(k, 100, 10, 0, 0.1, 9), 2.0);
        assert_near(rate(k, 100, 10, 0, 0.1, 10), 2.0);
        assert_near(rate(k, 100, 10, 0, 0.1, 99), 0.2);
        for (int64_t i = 11; i < 100; i++)
            assert_true(rate(k, 100, 10, 0, 0.1, i) < rate(k, 100, 10, 0, 0.1, i - 1));
    }
    assert_near(rate(YK_SCHEDULE_LINEAR, 101, 0, 0, 0.0, 50), 1.0);
    assert_near(rate(YK_SCHEDULE_COSINE, 101, 0, 0, 0.0, 50), 1.0);
    assert_near(rate(YK_SCHEDULE_COSINE, 101, 0, 0, 0.0, 25), 1.0 + cos(acos(-1.0) / 4));
}

static void every_kind_is_defined_at_its_edges(void **state)
{
    (void)state;
    for (int kind = 0; kind <= YK_SCHEDULE_WSD; kind++) {
        yk_schedule_kind k = (yk_schedule_kind)kind;
        assert_near(rate(k, 50, 0, 0.2, 0.5, 0), 2.0);   /* no warm-up */
        assert_near(rate(k, 50, 50, 0.2, 0.5, 49), 2.0); /* nothing but warm-up */
        assert_near(rate(k, 50, 50, 0.2, 0.5, 24), 1.0);
        double one = k == YK_SCHEDULE_WSD ? 1.0 : 2.0;
        assert_near(rate(k, 1, 0, 1.0, 0.5, 0), one); /* one step, all decay */
        assert_near(rate(k, 1, 0, 0.0, 0.5, 0), 2.0); /* one step */
        assert_near(rate(k, 1, 1, 1.0, 0.5, 0), 2.0); /* one step of warm-up */
    }
}

static void wsd_holds_the_peak_and_decays_over_its_part(void **state)
{
    (void)state;
    assert_near(rate(YK_SCHEDULE_WSD, 100, 10, 0.2, 0.0, 79), 2.0);
    assert_near(rate(YK_SCHEDULE_WSD, 100, 10, 0.2, 0.0, 80), 1.9);
    assert_near(rate(YK_SCHEDULE_WSD, 100, 10, 0.2, 0.0, 99), 0.0);
    assert_near(rate(YK_SCHEDULE_WSD, 100, 10, 0.0, 0.0, 99), 2.0); /* decay 0 */
    assert_near(rate(YK_SCHEDULE_WSD, 100, 40, 1.0, 0.0, 39), 2.0); /* decay after warm-up only */
    assert_near(rate(YK_SCHEDULE_WSD, 100, 40, 1.0, 0.0, 99), 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_rises_to_the_peak_and_falls_to_final),
        cmocka_unit_test(every_kind_is_defined_at_its_edges),
        cmocka_unit_test(wsd_holds_the_peak_and_decays_over_its_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
