/* tests/ranks/train/rank_offload.c - in every stage, what lies in host memory and what is rounded
 * by chance gives the bits of stage 0 without offload.
 *
 *   rank_offload DIR
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/ranks/train/part.h"

#define N_STEPS 2

typedef struct outcome {
    double loss[N_STEPS];
    float norm[N_STEPS];
    uint64_t hash;
} outcome;

static outcome train(yk_world *world, const char *dir, const char *const *sets,
                     const char *const *more)
{
    part p;
    outcome o;
    memset(&o, 0, sizeof o);
    part_open(&p, world, dir, sets, more);
    for (int i = 0; i < N_STEPS; i++) {
        yk_step_result r = part_step(&p, i);
        o.loss[i] = r.loss;
        o.norm[i] = r.grad_norm;
    }
    o.hash = part_hash(&p, true);
    yk_arena_sizes high = yk_engine_high_water(p.engine);
    REQUIRE(world, high.persistent == p.plan.sizes.persistent);
    REQUIRE(world, high.activation == p.plan.sizes.activation);
    REQUIRE(world, high.pinned == p.plan.sizes.pinned);
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

/* Train with each stage and offload, and compare with stage 0 that keeps all on the device. */
static void compare(yk_world *world, const char *dir, const char *const *sets)
{
    int n_nodes = yk_world_n_nodes(world), n_ranks = yk_world_size(world);
    const char *shard =
        n_nodes > 1 && n_nodes < n_ranks ? "parallel.shard=node" : "parallel.shard=world";
    outcome first = train(world, dir, sets, (const char *[]){zeros[0], offloads[0], NULL});
    REQUIRE(world, part_same(world, first.hash));
    for (int i = 0; i < N_STEPS; i++) REQUIRE(world, isfinite(first.loss[i]));
    for (int zero = 0; zero < 4; zero++)
        for (int i = zero == 0; i < 5; i++) {
            part_about("%s %s %s %s %s", sets[0], sets[1], sets[2], zeros[zero], offloads[i]);
            outcome o =
                train(world, dir, sets, (const char *[]){zeros[zero], shard, offloads[i], NULL});
            REQUIRE(world, memcmp(o.loss, first.loss, sizeof o.loss) == 0);
            REQUIRE(world, memcmp(o.norm, first.norm, sizeof o.norm) == 0);
            REQUIRE(world, o.hash == first.hash);
        }
}

int main(int argc, char **argv)
{
    yk_world *world;
    char micro[40];
    if (argc != 2 || yk_world_join(&world) != YK_OK) return 2;
    part_write_data(world, argv[1]);
    snprintf(micro, sizeof micro, "train.micro_batch=%d", 24 / yk_world_size(world));
    static const char *const times[] = {"comm.reduce_every=step", "comm.reduce_every=micro"};
    for (int i = 0; i < 2; i++) {
        compare(world, argv[1],
                (const char *[]){times[i], "train.batch=72", micro, "model.layers=4", NULL});
        compare(world, argv[1],
                (const char *[]){times[i], "train.batch=48", micro, "model.family=llama",
                                 "model.tied=false", "precision.compute=bf16",
                                 "precision.master=bf16", "precision.moments=bf16", NULL});
    }
    if (yk_world_rank(world) == 0)
        printf("passed on %d ranks, %d nodes\n", yk_world_size(world), yk_world_n_nodes(world));
    yk_world_leave(world);
    return 0;
}
