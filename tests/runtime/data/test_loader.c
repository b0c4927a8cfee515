/* tests/runtime/data/test_loader.c - which samples come when, and what the thread does meanwhile. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/data/loader.h"
#include "runtime/data/sampler.h"
#include "tests/runtime/data/shards.h"

#define T     4
#define N     103 /* windows of training data */
#define VOCAB (N * T + 1)

/* Training data counts 0, 1, 2, .. so that a row's first token is T times its window; validation
 * data is a file of its own. */
typedef struct place {
    char dir[SCRATCH_PATH];
    yk_dataset *dataset;
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    char train[SCRATCH_PATH], val[SCRATCH_PATH];
    int64_t ids[VOCAB];
    yk_config c;
    scratch_make(p->dir);
    for (int64_t i = 0; i < VOCAB; i++) ids[i] = i;
    shard_config(&c, shard_write_llmc(train, p->dir, "t.bin", ids, VOCAB, 2), T);
    shard_set(&c, "data.val", shard_write_llmc(val, p->dir, "v.bin", ids, 11 * T, 2));
    *state = p;
    yk_status status = yk_dataset_open(&c, VOCAB, &p->dataset);
    yk_config_fini(&c);
    return status;
}

static int tear_down(void **state)
{
    place *p = *state;
    yk_dataset_close(p->dataset);
    scratch_remove(p->dir);
    free(p);
    return 0;
}

/* A loader with the memory it was lent. */
typedef struct lent {
    yk_loader *loader;
    void *memory;
} lent;

static lent begin(const yk_loader_options *o)
{
    lent l = {.memory = malloc((size_t)yk_loader_bytes(o))};
    assert_int_equal(yk_loader_create(o, l.memory, &l.loader), YK_OK);
    return l;
}

static void end(lent *l)
{
    yk_loader_destroy(l->loader);
    free(l->memory);
}

static yk_loader_options options(const yk_dataset *d, yk_split split, int64_t batch, int64_t micro)
{
    return (yk_loader_options){.dataset = d,
                               .split = split,
                               .batch = batch,
                               .micro_batch = micro,
                               .world = 1,
                               .seed = 7,
                               .n_buffers = 3};
}

/* Take the next micro-batch and note its windows in order. */
static void take(yk_loader *l, int64_t micro, int64_t *windows)
{
    int32_t *buffer;
    assert_int_equal(yk_loader_next(l, &buffer), YK_OK);
    for (int64_t b = 0; b < micro; b++) {
        const int32_t *tokens = buffer + b * T, *targets = tokens + micro * T;
        windows[b] = targets[0] < 0 ? -1 : tokens[0] / T;
        for (int i = 0; i < T && targets[i] >= 0; i++) {
            assert_int_equal(tokens[i], tokens[0] + i);
            assert_int_equal(targets[i], tokens[0] + i + 1);
            assert_int_equal(buffer[2 * micro * T + b * T + i], i);
        }
    }
    yk_loader_recycle(l, buffer);
}

static void samples_of_a_step_do_not_depend_on_ranks_or_micro_batches(void **state)
{
    place *p = *state;
    static const struct {
        int64_t world, micro;
    } cuts[] = {{1, 24}, {1, 1}, {1, 6}, {2, 12}, {2, 3}, {3, 8}, {4, 2}, {24, 1}};
    yk_sampler order = {.n = N, .seed = 7};
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        yk_loader_options o = options(p->dataset, YK_SPLIT_TRAIN, 24, cuts[k].micro);
        o.world = cuts[k].world;
        int64_t a_rank = 24 / o.world, windows[24];
        for (o.rank = 0; o.rank < o.world; o.rank++) {
            lent l = begin(&o);
            for (int64_t step = 0; step < 10; step++) { /* more than two epochs */
                for (int64_t m = 0; m < a_rank; m += o.micro_batch) {
                    take(l.loader, o.micro_batch, windows + m);
                }
                for (int64_t i = 0; i < a_rank; i++) {
                    int64_t sample = step * 24 + o.rank * a_rank + i;
                    assert_int_equal(windows[i], yk_sampler_at(&order, sample));
                }
            }
            end(&l);
        }
    }
}

static void a_run_goes_on_where_it_stopped(void **state)
{
    place *p = *state;
    yk_loader_options o = options(p->dataset, YK_SPLIT_TRAIN, 8, 4);
    int64_t through[40][4], after[4];
    lent l = begin(&o);
    for (int i = 0; i < 40; i++) take(l.loader, 4, through[i]);
    end(&l);
    o.position = 8 * 15;
    l = begin(&o);
    for (int i = 30; i < 40; i++) {
        take(l.loader, 4, after);
        assert_memory_equal(after, through[i], sizeof after);
    }
    yk_loader_seek(l.loader, 8 * 3);
    for (int i = 6; i < 40; i++) {
        take(l.loader, 4, after);
        assert_memory_equal(after, through[i], sizeof after);
    }
    end(&l);
}

static void an_epoch_has_every_window_once(void **state)
{
    place *p = *state;
    yk_loader_options o = options(p->dataset, YK_SPLIT_TRAIN, 1, 1);
    int count[N] = {0};
    int64_t window;
    lent l = begin(&o);
    for (int i = 0; i < N; i++) {
        take(l.loader, 1, &window);
        count[window]++;
    }
    end(&l);
    for (int i = 0; i < N; i++) assert_int_equal(count[i], 1);
}

static void validation_is_walked_in_order_and_ends_in_padding(void **state)
{
    place *p = *state;
    yk_loader_options o = options(p->dataset, YK_SPLIT_VAL, 6, 3);
    o.world = 2;
    for (o.rank = 0; o.rank < 2; o.rank++) {
        lent l = begin(&o);
        for (int step = 0; step < 3; step++) {
            int64_t windows[3];
            take(l.loader, 3, windows);
            for (int64_t b = 0; b < 3; b++) {
                int64_t i = step * 6 + o.rank * 3 + b;
                assert_int_equal(windows[b], i < 11 ? i : -1);
            }
        }
        yk_loader_seek(l.loader, 0); /* the next evaluation */
        int64_t windows[3];
        take(l.loader, 3, windows);
        assert_int_equal(windows[0], o.rank * 3);
        end(&l);
    }
}

static void a_held_buffer_is_not_filled_again(void **state)
{
    place *p = *state;
    for (int n = 1; n <= 4; n++) {
        yk_loader_options o = options(p->dataset, YK_SPLIT_VAL, 1, 1);
        o.n_buffers = n;
        lent l = begin(&o);
        int32_t *held[4];
        for (int i = 0; i < n; i++) assert_int_equal(yk_loader_next(l.loader, &held[i]), YK_OK);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        for (int i = 0; i < n; i++) assert_int_equal(held[i][0], i * T);
        yk_loader_recycle(l.loader, held[0]);
        assert_int_equal(yk_loader_next(l.loader, &held[0]), YK_OK);
        assert_int_equal(held[0][0], n * T);
        end(&l); /* with all of them held */
    }
}

static void a_wrong_id_is_told_when_it_is_met_not_when_it_is_read_ahead(void **state)
{
    place *p = *state;
    char path[SCRATCH_PATH];
    int64_t ids[5 * T] = {0};
    ids[3 * T + 1] = 60000; /* in window 3 */
    yk_config c;
    yk_dataset *d;
    shard_config(&c, "", T);
    shard_set(&c, "data.val", shard_write_llmc(path, p->dir, "w.bin", ids, 5 * T, 2));
    assert_int_equal(yk_dataset_open(&c, 50257, &d), YK_OK);
    yk_loader_options o = options(d, YK_SPLIT_VAL, 1, 1);
    o.n_buffers = 5;
    lent l = begin(&o);
    int32_t *buffer = NULL;
    int saved = scratch_stderr_begin();
    yk_status first = YK_OK;
    for (int i = 0; i < 3; i++) {
        if (yk_loader_next(l.loader, &buffer) != YK_OK) first = YK_EINVAL;
        yk_loader_recycle(l.loader, buffer);
    }
    char *said = scratch_stderr_end(saved);
    assert_int_equal(first, YK_OK);
    assert_string_equal(said, "");
    free(said);
    for (int twice = 0; twice < 2; twice++) {
        saved = scratch_stderr_begin();
        yk_status status = yk_loader_next(l.loader, &buffer);
        said = scratch_stderr_end(saved);
        assert_int_equal(status, YK_EFORMAT);
        assert_true(scratch_is_one_line(said, "w.bin: token 13 is id 60000"));
        free(said);
    }
    end(&l);
    yk_dataset_close(d);
    yk_config_fini(&c);
}

static void wrong_options_are_refused(void **state)
{
    place *p = *state;
    yk_loader *l;
    yk_loader_options wrong[3];
    for (int i = 0; i < 3; i++) wrong[i] = options(p->dataset, YK_SPLIT_TRAIN, 8, 2);
    wrong[0].micro_batch = 3;
    wrong[1].world = 3;
    wrong[2].n_buffers = 0;
    for (int i = 0; i < 3; i++) {
        int saved = scratch_stderr_begin();
        yk_status status = yk_loader_create(&wrong[i], NULL, &l);
        char *said = scratch_stderr_end(saved);
        assert_int_equal(status, YK_EINVAL);
        assert_true(scratch_is_one_line(said, "a batch of 8 is no multiple of"));
        free(said);
    }
    yk_loader_destroy(NULL);
}

static void its_thread_takes_no_signals(void **state)
{
    place *p = *state;
    yk_loader_options o = options(p->dataset, YK_SPLIT_TRAIN, 1, 1);
    sigset_t usr, before, pending;
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    lent l = begin(&o); /* SIGUSR1 is not blocked here, and would end the process in the thread */
    pthread_sigmask(SIG_BLOCK, &usr, &before);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    int64_t window;
    take(l.loader, 1, &window);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1));
    int got;
    sigwait(&usr, &got);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    end(&l);
}

static void it_can_be_destroyed_at_any_time(void **state)
{
    place *p = *state;
    for (int i = 0; i < 200; i++) {
        yk_loader_options o = options(p->dataset, YK_SPLIT_TRAIN, 64, 64);
        lent l = begin(&o);
        for (int k = 0; k < i % 4; k++) {
            int64_t windows[64];
            take(l.loader, 64, windows);
        }
        if (i % 3 == 0) yk_loader_seek(l.loader, i);
        end(&l);
    }
}

static void the_first_batch_of_four_megabytes_comes_at_once(void **state)
{
    place *p = *state;
    char path[SCRATCH_PATH], *text = malloc(4 << 20);
    yk_config c;
    yk_dataset *d;
    int32_t *buffer;
    memset(text, 'x', 4 << 20);
    shard_config(&c, scratch_write(path, p->dir, "t.txt", text, 4 << 20), 256);
    clock_t begin_at = clock(); /* of the processor: others may keep it busy */
    assert_int_equal(yk_dataset_open(&c, 256, &d), YK_OK);
    yk_loader_options o = options(d, YK_SPLIT_TRAIN, 32, 32);
    lent l = begin(&o);
    assert_int_equal(yk_loader_next(l.loader, &buffer), YK_OK);
    assert_true(clock() - begin_at < CLOCKS_PER_SEC / 20);
    end(&l);
    yk_dataset_close(d);
    yk_config_fini(&c);
    free(text);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(samples_of_a_step_do_not_depend_on_ranks_or_micro_batches),
        CASE(a_run_goes_on_where_it_stopped),
        CASE(an_epoch_has_every_window_once),
        CASE(validation_is_walked_in_order_and_ends_in_padding),
        CASE(a_held_buffer_is_not_filled_again),
        CASE(a_wrong_id_is_told_when_it_is_met_not_when_it_is_read_ahead),
        CASE(wrong_options_are_refused),
        CASE(its_thread_takes_no_signals),
        CASE(it_can_be_destroyed_at_any_time),
        CASE(the_first_batch_of_four_megabytes_comes_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
