/* tests/gpu/test_race.c - which of several kernels wins a race on a GPU.
 *
 * A candidate's work is a number of times that it fills some memory, so that one is twice as long as
 * another whatever the card does meanwhile.
 *
 * ctest: TIMEOUT 120
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "runtime/device/cuda/race.h"
#include "tests/runtime/device/op_case.h"
#include "tests/runtime/device/tested_device.h"

#define BYTES        (INT64_C(32) << 20)
#define N_CANDIDATES 4

typedef struct field {
    yk_device *device;
    cudaStream_t stream;
    yk_tuner *tuner;
    void *out, *digest;
    int work[N_CANDIDATES]; /* of each; 0: it cannot run */
    int unsteady;           /* the candidate whose bits change, or -1 */
    int n_runs;
} field;

static bool run(void *context, int candidate)
{
    field *f = context;
    int value = candidate == f->unsteady ? f->n_runs & 255 : 1;
    f->n_runs++;
    for (int i = 0; i < f->work[candidate]; i++)
        if (cudaMemsetAsync(f->out, value, BYTES, f->stream) != cudaSuccess) return false;
    return f->work[candidate] > 0;
}

static int set_up(void **state)
{
    static field f;
    memset(&f, 0, sizeof f);
    f.unsteady = -1;
    assert_int_equal(tested_device_open(1, &f.device), YK_OK);
    assert_int_equal(cudaStreamCreate(&f.stream), cudaSuccess);
    assert_int_equal(cudaMalloc(&f.out, BYTES), cudaSuccess);
    assert_int_equal(cudaMalloc(&f.digest, 8), cudaSuccess);
    assert_int_equal(yk_tuner_create("here", &f.tuner), YK_OK);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    field *f = *state;
    yk_tuner_destroy(f->tuner);
    (void)cudaFree(f->digest);
    (void)cudaFree(f->out);
    (void)cudaStreamDestroy(f->stream);
    yk_device_close(f->device);
    return 0;
}

/* The winner of a race between candidates of these works, brief and then thorough. */
static void expect_winner(field *f, const int *work, int n, int want)
{
    memcpy(f->work, work, (size_t)n * sizeof *work);
    for (int how = YK_TUNE_CACHED; how <= YK_TUNE_FULL; how++) {
        int winner = -1;
        assert_int_equal(yk_tuner_open(f->tuner, (yk_tune)how, ""), YK_OK);
        assert_int_equal(yk_race_run(&(yk_race){.stream = f->stream,
                                                .tuner = f->tuner,
                                                .n = n,
                                                .run = run,
                                                .context = f,
                                                .out = f->out,
                                                .out_bytes = BYTES,
                                                .digest = f->digest},
                                     &winner),
                         YK_OK);
        assert_int_equal(winner, want);
    }
}

#define EXPECT_WINNER(f, want, ...)                                                                \
    expect_winner(f, (const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int), want)

static void the_fastest_wins(void **state)
{
    EXPECT_WINNER(*state, 0, 4);
    EXPECT_WINNER(*state, 0, 4, 8, 6);
    EXPECT_WINNER(*state, 2, 16, 12, 8);
    EXPECT_WINNER(*state, 1, 16, 8, 12);
}

static void who_does_not_repeat_its_bits_is_left_out(void **state)
{
    field *f = *state;
    f->unsteady = 1;
    EXPECT_WINNER(f, 0, 16, 8);
    EXPECT_WINNER(f, 2, 16, 8, 8);
}

static void who_cannot_run_is_left_out(void **state)
{
    EXPECT_WINNER(*state, 2, 16, 0, 8);
    EXPECT_WINNER(*state, 1, 0, 8);
    EXPECT_WINNER(*state, 2, 0, 0, 8, 16);
    EXPECT_WINNER(*state, 0, 0, 0);
}

static void a_race_says_what_it_took_and_gained(void **state)
{
    field *f = *state;
    EXPECT_WINNER(f, 1, 16, 8);
    yk_tune_sum sum = yk_tuner_sum(f->tuner);
    assert_int_equal(sum.n, 2);
    assert_true(sum.seconds > 0);
    assert_true(sum.taken_ms > 0 && sum.taken_ms < 0.75 * sum.first_ms);
}

int main(void)
{
    if (!tested_on_cuda() && tested_skip("YK_TEST_DEVICE is not cuda")) return 77;
    if (op_device_missing()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_fastest_wins, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_does_not_repeat_its_bits_is_left_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_cannot_run_is_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_race_says_what_it_took_and_gained, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
