/* tests/engine/test_feed.c - every micro-batch once and in order, fetched ahead or not, and no more is
 * read than will be asked for.
 *
 * On the cpu a stream for data is given to the engine, which has none of its own there, so that the
 * order is tested on every machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/rig.h"

#define N 9

/* The fields of a batch on the cpu, whose memory the host reads. */
static void keep(const yk_rig *rig, const yk_batch *batch, int32_t *to)
{
    memcpy(to, batch->tokens, (size_t)yk_engine_batch_bytes(rig->engine));
}

static void take(yk_rig *rig, yk_feed *feed, int32_t *to)
{
    yk_batch batch;
    assert_int_equal(yk_feed_next(feed, &batch), YK_OK);
    keep(rig, &batch, to);
}

enum { FIELDS = 3 * 2 * 32 };

static void open_rig(yk_rig *rig, bool ahead)
{
    const char *sets[] = {"train.micro_batch=2", NULL};
    yk_rig_open(rig, 0, sets);
    assert_int_equal(yk_engine_batch_bytes(rig->engine), FIELDS * 4);
    if (!ahead) return;
    yk_device *device = rig->device;
    assert_int_equal(yk_stream_create(device, YK_STREAM_TRANSFER, "data", &rig->engine->data),
                     YK_OK);
    yk_feed_expect(&rig->feed, N);
}

static void looking_ahead_changes_no_batch(void **state)
{
    (void)state;
    static int32_t plain[N][FIELDS], ahead[N + 2][FIELDS];
    yk_rig rig;
    open_rig(&rig, false);
    for (int i = 0; i < N; i++) take(&rig, &rig.feed, plain[i]);
    yk_rig_close(&rig);
    open_rig(&rig, true);
    for (int i = 0; i < N; i++) take(&rig, &rig.feed, ahead[i]);
    assert_false(rig.feed.is_ahead); /* what nobody asks for is not read */
    for (int i = N; i < N + 2; i++) take(&rig, &rig.feed, ahead[i]); /* it goes on all the same */
    yk_rig_close(&rig);
    for (int i = 0; i < N; i++) assert_memory_equal(plain[i], ahead[i], sizeof plain[i]);
    for (int i = 0; i + 1 < N; i++)
        assert_true(memcmp(ahead[i], ahead[i + 1], sizeof ahead[i]) != 0);
    assert_true(memcmp(ahead[N - 1], ahead[N], sizeof ahead[N]) != 0);
}

static void another_feed_leaves_what_was_fetched_ahead(void **state)
{
    (void)state;
    static int32_t plain[N][FIELDS], mixed[FIELDS], between[FIELDS];
    yk_rig rig;
    open_rig(&rig, false);
    for (int i = 0; i < N; i++) take(&rig, &rig.feed, plain[i]);
    yk_rig_close(&rig);
    open_rig(&rig, true);
    yk_feed other; /* as an evaluation's: copies what lies in the staging memory */
    assert_int_equal(yk_feed_init(&other, rig.engine, NULL), YK_OK);
    for (int i = 0; i < N; i++) {
        take(&rig, &rig.feed, mixed);
        assert_memory_equal(plain[i], mixed, sizeof mixed);
        for (int j = 0; j < i % 3; j++) take(&rig, &other, between);
    }
    yk_feed_fini(&other);
    yk_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looking_ahead_changes_no_batch),
        cmocka_unit_test(another_feed_leaves_what_was_fetched_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
