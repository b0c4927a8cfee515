/* tests/ranks/train/rank_offload.c - in every stage, what lies in host memory and what is rounded
 * by chance gives the bits of stage 0 without offload.
 *
 *   rank_offload DIR [few]
 *
 * `few` is an eighth of the cases, for groups that take long to be made: every training makes its own.
 */
#include <stdio.h>
#include <string.h>

#include "tests/ranks/train/part.h"

#define N_STEPS 2

static part_outcome train(yk_world *world, const char *dir, const char *const *sets,
                          const char *const *more)
{
    part p;
    part_open(&p, world, dir, sets, more);
    part_outcome o = part_train(&p, N_STEPS);
    part_expect_planned(&p);
    part_close(&p);
    return o;
}

static const char *const zeros[] = {"parallel.zero=0", "parallel.zero=1", "parallel.zero=2",
                                    "parallel.zero=3"};
static const char *const offloads[] = {
    "memory.offload=[]",
    "memory.offload=moments",
    "memory.offload=params",
    "memory.offload=grads",
    "memory.offload=[moments, grads, params, inputs]",
};

static bool is_of_few(int zero, int offload)
{
    return zero % 2 == 1 && (offload == 1 || offload == 4);
}

/* Train with each stage and offload, and compare with stage 0 that keeps all on the device. */
static void compare(yk_world *world, const char *dir, bool few, const char *const *sets)
{
    int n_nodes = yk_world_n_nodes(world), n_ranks = yk_world_size(world);
    const char *shard =
        n_nodes > 1 && n_nodes < n_ranks ? "parallel.shard=node" : "parallel.shard=world";
    part_outcome first = train(world, dir, sets, (const char *[]){zeros[0], offloads[0], NULL});
    part_expect_sound(world, &first);
    for (int zero = 0; zero < 4; zero++)
        for (int i = zero == 0; i < 5; i++) {
            if (few && !is_of_few(zero, i)) continue;
            part_about("%s %s %s %s %s", sets[0], sets[1], sets[2], zeros[zero], offloads[i]);
            part_outcome o =
                train(world, dir, sets, (const char *[]){zeros[zero], shard, offloads[i], NULL});
            part_expect_same(world, &o, &first);
        }
}

int main(int argc, char **argv)
{
    yk_world *world;
    char micro[40];
    if (argc < 2 || yk_world_join(&world) != YK_OK) return 2;
    bool few = argc > 2 && strcmp(argv[2], "few") == 0;
    part_write_data(world, argv[1]);
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    static const char *const times[] = {"comm.reduce_every=step", "comm.reduce_every=micro"};
    for (int i = 0; i < 2; i++) {
        if (!few || i == 0)
            compare(world, argv[1], few,
                    (const char *[]){times[i], "train.batch=72", micro, "model.layers=4", NULL});
        if (!few || i == 1)
            compare(world, argv[1], few,
                    (const char *[]){times[i], "train.batch=48", micro, "model.family=llama",
                                     "model.tied=false", "precision.compute=bf16",
                                     "precision.master=bf16", "precision.moments=bf16", NULL});
    }
    if (yk_world_rank(world) == 0)
        printf("passed on %d ranks, %d nodes\n", yk_world_size(world), yk_world_n_nodes(world));
    yk_world_leave(world);
    return 0;
}
