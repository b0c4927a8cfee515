/* tests/ranks/train/rank_stages.c - every stage trains the same: losses, weights, moments and gradients in
 * bits, at whatever wire, micro-batches and sharding.
 *
 *   rank_stages DIR [BACKEND [few]]
 *
 * With a BACKEND all stages train over it, and are compared with stage 0 over the usual one. `few` is a
 * third of the cases, with each stage and wire among them, for groups that take long to be made: every
 * training makes its own.
 */
#include <stdio.h>
#include <string.h>

#include "tests/ranks/train/part.h"

#define N_STEPS 3

/* Which trainings there are. */
typedef struct range {
    const char *dir;     /* of data */
    const char *backend; /* "comm.backend=hostmem"; NULL: the usual one */
    bool few;
} range;

static part_outcome train(yk_world *world, const char *dir, const char *const *sets,
                          const char *const *more)
{
    part p;
    part_open(&p, world, dir, sets, more);
    part_outcome o = part_train(&p, N_STEPS);
    part_close(&p);
    return o;
}

/* What all stages must agree on. */
static const char *const shapes[][2] = {
    {"train.batch=24", "comm.reduce_every=auto"}, /* one micro-batch a rank */
    {"train.batch=72", "comm.reduce_every=step"}, /* three */
    {"train.batch=72", "comm.reduce_every=micro"},
};
static const char *const wires[] = {"comm.wire=fp32", "comm.wire=bf16", "comm.wire=fp16"};
static const char *const types[] = {"precision.compute=fp32", "precision.compute=bf16",
                                    "precision.compute=fp16"};
static const char *const models[] = {"model.family=gpt2", "model.family=llama"};
static const char *const zeros[] = {"parallel.zero=0", "parallel.zero=1", "parallel.zero=2",
                                    "parallel.zero=3"};
static const char *const shards[] = {"parallel.shard=world", "parallel.shard=node"};

/* Train with each stage and way to share out, and compare with stage 0. */
static void compare_stages(yk_world *world, const range *of, const char *const *sets)
{
    const char *dir = of->dir, *backend = of->backend;
    int n_nodes = yk_world_n_nodes(world), n_ranks = yk_world_size(world);
    bool by_node = n_nodes > 1 && n_nodes < n_ranks;
    part_outcome first = train(world, dir, sets, (const char *[]){zeros[0], NULL});
    part_expect_sound(world, &first);
    for (int zero = backend ? 0 : 1; zero < 4; zero++)
        for (int shard = 0; shard < 1 + by_node; shard++) {
            part_about("%s %s %s %s %s %s %s", sets[0], sets[1], sets[2], sets[3], zeros[zero],
                       shards[shard], backend ? backend : "");
            part_outcome o = train(world, dir, sets,
                                   (const char *[]){zeros[zero], shards[shard], backend, NULL});
            part_expect_same(world, &o, &first);
        }
}

static void all_stages(yk_world *world, const range *of)
{
    char micro[40];
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    for (int shape = 0; shape < 3; shape++)
        for (int wire = 0; wire < 3; wire++) {
            if (of->few && wire != shape) continue;
            compare_stages(
                world, of,
                (const char *[]){shapes[shape][0], shapes[shape][1], micro, wires[wire], NULL});
        }
    for (int type = of->few ? 1 : 0; type < 3; type++) /* gradients and wire, too; an untied head */
        compare_stages(world, of,
                       (const char *[]){shapes[2 - type][0], shapes[2 - type][1], types[type],
                                        models[1], micro, "model.tied=false", "optim.clip=0.1",
                                        NULL});
}

/* Whatever blocks keep their parameters for the backward pass, and however many are fetched ahead. */
static void all_kept(yk_world *world, const range *of)
{
    const char *dir = of->dir, *backend = of->backend;
    bool has_shelf = backend && strstr(backend, "hostmem");
    static const char *const heads[] = {"model.tied=true", "model.tied=false"};
    static const char *const kept[] = {"memory.kept_blocks=0", "memory.kept_blocks=1",
                                       "memory.kept_blocks=9"};
    static const char *const places[][2] = {
        {"memory.offload=[]", "comm.shelf=off"},
        {"memory.offload=[]", "comm.shelf=on"},
        {"memory.offload=params", "comm.shelf=off"},
        {"memory.offload=[params, grads, moments]", "comm.shelf=on"},
    };
    char micro[40];
    if (!backend && yk_world_size(world) > 3) return; /* it only gathers another way */
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    for (int head = of->few ? 1 : 0; head < 2; head++) {
        const char *const sets[] = {shapes[2][0],     shapes[2][1], micro, models[1],
                                    "model.layers=5", heads[head],  NULL};
        part_outcome first = train(world, dir, sets, (const char *[]){zeros[0], NULL});
        for (int i = 0; i < 12; i++) {
            const char *const *place = places[i / 3];
            if (!has_shelf && i / 3 % 2) continue; /* there are no shelves */
            if (of->few && i % 3 == 0) continue;
            part_about("%s %s %s %s %s", heads[head], kept[i % 3], place[0], place[1],
                       backend ? backend : "");
            part_outcome o =
                train(world, dir, sets,
                      (const char *[]){zeros[3], shards[yk_world_n_nodes(world) > 1], kept[i % 3],
                                       place[0], place[1], backend, NULL});
            part_expect_same(world, &o, &first);
        }
    }
}

/* Units with fewer elements than there are ranks: with eight, a norm of four. */
static void small_units(yk_world *world, const range *of)
{
    char micro[40];
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    const char *const sets[] = {shapes[2][0],     shapes[2][1],      wires[0],      micro,
                                models[1],        "model.width=4",   "model.ffn=6", "model.heads=2",
                                "model.vocab=61", "model.tied=true", NULL};
    compare_stages(world, of, sets);
}

int main(int argc, char **argv)
{
    yk_world *world;
    char backend[40];
    if (argc < 2 || yk_world_join(&world) != YK_OK) return 2;
    range of = {.dir = argv[1], .few = argc > 3 && strcmp(argv[3], "few") == 0};
    part_write_data(world, argv[1]);
    if (argc > 2) snprintf(backend, sizeof backend, "comm.backend=%s", argv[2]);
    if (argc > 2) of.backend = backend;
    all_stages(world, &of);
    all_kept(world, &of);
    small_units(world, &of);
    if (yk_world_rank(world) == 0)
        printf("passed on %d ranks, %d nodes\n", yk_world_size(world), yk_world_n_nodes(world));
    yk_world_leave(world);
    return 0;
}
