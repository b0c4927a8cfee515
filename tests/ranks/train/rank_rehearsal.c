/* tests/ranks/train/rank_rehearsal.c - a rehearsed step leaves no trace; one rank with each kind of card
 * times in it what none knows, and all choose as it does.
 *
 *   rank_rehearsal DIR
 *
 * Choices are kept in DIR. On processors, which have nothing to choose, a tuner and a linear layer that asks it
 * stand in for those of a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rehearsal.h"
#include "engine/tuning.h"
#include "runtime/device/backend.h"
#include "runtime/device/tune.h"
#include "runtime/storage/hash.h"
#include "tests/ranks/train/part.h"

#define N_STEPS 2

static const char *const zeros[] = {"parallel.zero=0", "parallel.zero=1", "parallel.zero=2",
                                    "parallel.zero=3"};

/* ---- no trace ----------------------------------------------------------------------------- */

static part_outcome train(yk_world *world, const char *dir, const char *const *sets,
                          const char *const *more, bool rehearses)
{
    part p;
    part_open(&p, world, dir, sets, more);
    if (rehearses) REQUIRE(world, yk_rehearsal_run(p.engine) == YK_OK);
    part_outcome o = part_train(&p, N_STEPS);
    part_expect_planned(&p);
    part_close(&p);
    return o;
}

/* Every `each`-th combination. */
static void leaves_no_trace(yk_world *world, const char *dir, int each)
{
    static const char *const batches[][3] = {
        {"train.batch=24", "comm.reduce_every=auto", "precision.compute=fp32"},
        {"train.batch=72", "comm.reduce_every=step", "precision.compute=fp16"},
        {"train.batch=72", "comm.reduce_every=micro", "precision.compute=bf16"},
    };
    static const char *const places[][2] = {
        {"memory.offload=[]", "comm.backend=auto"},
        {"memory.offload=[params, grads, moments, inputs]", "comm.backend=auto"},
        {"memory.offload=[params, grads]", "comm.backend=hostmem"}, /* with a shelf */
    };
    char micro[40];
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    for (int i = 0; i < 36; i += each) {
        const char *const *b = batches[i % 3], *const *place = places[i / 3 % 3];
        const char *const sets[] = {b[0], b[1], b[2], micro, "model.layers=4", NULL};
        const char *const more[] = {zeros[i / 9],
                                    place[0],
                                    place[1],
                                    "precision.moments=bf16",
                                    i % 2 ? "model.family=llama" : "model.family=gpt2",
                                    NULL};
        part_about("no trace: %s %s %s %s %s %s", b[0], b[1], b[2], zeros[i / 9], place[0],
                   place[1]);
        part_outcome plain = train(world, dir, sets, more, false);
        part_outcome rehearsed = train(world, dir, sets, more, true);
        part_expect_sound(world, &plain);
        part_expect_same(world, &rehearsed, &plain);
    }
}

/* ---- a stand-in --------------------------------------------------------------------------- */

/* Ranks with even and with odd numbers have other kinds of cards. A layer of a shape that the tuner does not
 * know is timed where that is allowed, and found best in a way that tells the rank. */
#define N_KINDS 2

static struct {
    const yk_backend *real;
    int rank;
    int n_timed, n_first; /* how layers were run: timed here; not known */
    int n_told, n_wrong;  /* as the first rank of the kind chose, as another did */
} stand_in;

static yk_status layer_forward(yk_stream *s, const yk_linear_forward_args *a, void *ws)
{
    const int64_t key[] = {a->m, a->n, a->k};
    yk_tuner *t = s->device->tuner;
    int whose = -1;
    if (yk_tuner_find(t, key, sizeof key, &whose, sizeof whose)) {
        stand_in.n_told += whose == stand_in.rank % N_KINDS;
        stand_in.n_wrong += whose != stand_in.rank % N_KINDS;
    } else if (yk_tuner_races(t)) {
        yk_tuner_add(t, key, sizeof key, &stand_in.rank, sizeof stand_in.rank);
        stand_in.n_timed++;
    } else {
        stand_in.n_first++;
    }
    return stand_in.real->linear_forward(s, a, ws);
}

/* Give the device a tuner of the rank's kind, and that layer. */
static void stand(part *p, yk_backend *own, yk_tuner **tuner_out)
{
    char identity[32];
    snprintf(identity, sizeof identity, "stand-in %d", p->rank % N_KINDS);
    REQUIRE(p->world, yk_tuner_create(identity, tuner_out) == YK_OK);
    stand_in.real = p->device->backend;
    stand_in.rank = p->rank;
    stand_in.n_timed = stand_in.n_first = stand_in.n_told = stand_in.n_wrong = 0;
    *own = *stand_in.real;
    own->linear_forward = layer_forward;
    p->device->backend = own;
    p->device->tuner = *tuner_out;
}

static void sit(part *p, yk_tuner *tuner)
{
    p->device->backend = stand_in.real;
    p->device->tuner = NULL;
    yk_tuner_destroy(tuner);
}

/* A start and a step: whether the rank timed in it, and that all layers of the step are as the first rank of
 * the kind chose. */
static bool start_times(yk_world *world, const char *dir, const char *tune, const char *zero)
{
    part p;
    yk_backend own;
    yk_tuner *tuner;
    char micro[40];
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    part_open(&p, world, dir, (const char *[]){"train.batch=72", micro, tune, zero, NULL}, NULL);
    stand(&p, &own, &tuner);
    REQUIRE(world, yk_tuning_begin(p.engine->config, p.device) == YK_OK);
    REQUIRE(world, yk_tuning_settle(world, p.engine) == YK_OK);
    int n_timed = stand_in.n_timed;
    bool off = strcmp(tune, "tune=off") == 0;
    REQUIRE(world, !yk_tuner_races(tuner));
    stand_in.n_first = stand_in.n_told = 0;
    part_step(&p, 0);
    REQUIRE(world, off ? stand_in.n_first > 0 && stand_in.n_told == 0
                       : stand_in.n_first == 0 && stand_in.n_told > 0);
    REQUIRE(world, stand_in.n_timed == n_timed && stand_in.n_wrong == 0);
    sit(&p, tuner);
    part_close(&p);
    return n_timed > 0;
}

static void one_of_a_kind_times_and_all_of_it_choose_alike(yk_world *world, const char *dir)
{
    bool first = yk_world_rank(world) < N_KINDS;
    part_about("off");
    REQUIRE(world, !start_times(world, dir, "tune=off", zeros[1]));
    part_about("the first start");
    REQUIRE(world, start_times(world, dir, "tune=cached", zeros[1]) == first);
    part_about("the second start");
    REQUIRE(world, !start_times(world, dir, "tune=cached", zeros[1]));
    part_about("another stage, with the same shapes");
    REQUIRE(world, !start_times(world, dir, "tune=cached", zeros[3]));
    part_about("full");
    REQUIRE(world, start_times(world, dir, "tune=full", zeros[1]) == first);
}

/* What is known need not be met: a start sends nothing then. */
static void a_second_start_rehearses_nothing(yk_world *world, const char *dir)
{
    char micro[40];
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    for (int start = 0; start < 3; start++) {
        part p;
        yk_backend own;
        yk_tuner *tuner;
        const char *zero = zeros[start < 2 ? 1 : 2];
        part_about("start %d sends", start);
        part_open(&p, world, dir, (const char *[]){"train.batch=24", micro, zero, NULL}, NULL);
        stand(&p, &own, &tuner);
        int64_t before = yk_ranks_counts(&p.engine->ranks).n_collectives;
        REQUIRE(world, yk_tuning_settle(world, p.engine) == YK_OK);
        int64_t n = yk_ranks_counts(&p.engine->ranks).n_collectives - before;
        REQUIRE(world, start == 1 ? n == 0 : n > 0);
        sit(&p, tuner);
        part_close(&p);
    }
}

/* ---- a GPU -------------------------------------------------------------------------------- */

/* Choices that were timed here, and a hash of those that are known. */
static int64_t settle(part *p, uint64_t *known_out)
{
    char *text;
    int64_t bytes, all = 0, before = yk_device_tune_sum(p->device).n;
    REQUIRE(p->world, yk_tuning_settle(p->world, p->engine) == YK_OK);
    int64_t mine = yk_device_tune_sum(p->device).n - before;
    REQUIRE(p->world, mine == 0 || p->rank == 0);
    REQUIRE(p->world, yk_world_max(p->world, mine, &all) == YK_OK);
    REQUIRE(p->world, yk_device_tune_export(p->device, &text, &bytes) == YK_OK);
    *known_out = yk_hash64(text, bytes, 0);
    free(text);
    return all;
}

/* Ranks of one kind of card: every stage trains the same with what rank 0 has timed, and graphs are made
 * of that. */
static void gpus_choose_alike(yk_world *world, const char *dir)
{
    part_outcome first, o;
    char micro[40];
    uint64_t known;
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    for (int start = 0; start < 5; start++) {
        part p;
        const char *const sets[] = {"train.batch=72",         micro,
                                    "precision.compute=bf16", zeros[start % 4],
                                    "comm.reduce_every=step", NULL};
        part_about("on a GPU, start %d", start);
        part_open(&p, world, dir, sets, NULL);
        int64_t n = settle(&p, &known);
        if (yk_world_rank(world) == 0)
            printf("start %d: %lld kernels timed in %.2f s\n", start, (long long)n,
                   yk_device_tune_sum(p.device).seconds);
        REQUIRE(world, start == 0 ? n > 0 : start == 4 ? n == 0 : true);
        REQUIRE(world, part_same(world, known));
        o = part_train(&p, N_STEPS + 1);
        part_expect_sound(world, &o);
        if (start == 0) first = o;
        part_expect_same(world, &o, &first);
        part_close(&p);
    }
}

int main(int argc, char **argv)
{
    yk_world *world;
    char cache[512];
    const char *device = getenv("YK_RANK_DEVICE");
    if (argc != 2 || yk_world_join(&world) != YK_OK) return 2;
    snprintf(cache, sizeof cache, "%s/choices-%d", argv[1], yk_world_size(world));
    setenv("XDG_CACHE_HOME", cache, 1);
    part_write_data(world, argv[1]);
    bool on_gpu = device && strcmp(device, "cuda") == 0;
    if (on_gpu) {
        gpus_choose_alike(world, argv[1]);
    } else {
        one_of_a_kind_times_and_all_of_it_choose_alike(world, argv[1]);
        a_second_start_rehearses_nothing(world, argv[1]);
    }
    leaves_no_trace(world, argv[1], on_gpu ? 5 : 1);
    if (yk_world_rank(world) == 0)
        printf("passed on %d ranks, %d nodes\n", yk_world_size(world), yk_world_n_nodes(world));
    yk_world_leave(world);
    return 0;
}
