/* tests/ranks/train/part.c - making data, an engine, steps; all by the calls that the trainer makes. */
#include "tests/ranks/train/part.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device_choice.h"
#include "engine/ranks.h"
#include "runtime/storage/hash.h"

#define N_TOKENS 4000
#define N_VOCAB  61

static char about[256]; /* said beside a failure */

void part_about(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(about, sizeof about, format, arguments);
    va_end(arguments);
}

void part_fail(yk_world *world, const char *file, int line, const char *condition)
{
    fprintf(stderr, "FAILED on rank %d of %d: %s:%d: %s (%s)\n", world ? yk_world_rank(world) : 0,
            world ? yk_world_size(world) : 1, file, line, condition, about);
    yk_world_abort(world, 1);
}

/* ---- data --------------------------------------------------------------------------------- */

/* A language in which the next token mostly follows from the last. */
static int next_token(int token, uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return (int)(*state % 4 ? ((uint64_t)token * 7 + 3) % N_VOCAB : *state / 4 % N_VOCAB);
}

static void write_file(yk_world *world, const char *dir, const char *name, const void *data,
                       size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    REQUIRE(world, f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
}

void part_write_data(yk_world *world, const char *dir)
{
    static uint16_t tokens[N_TOKENS];
    static uint8_t mask[N_TOKENS];
    uint64_t state = 88172645463325252u;
    int token = 0;
    for (int i = 0; i < N_TOKENS; i++) {
        token = next_token(token, &state);
        tokens[i] = (uint16_t)token;
        mask[i] = i / 8 % 3 != 1 && state / 256 % 8 >= (unsigned)(i / 8 % 7);
    }
    if (yk_world_rank(world) == 0) {
        write_file(world, dir, "tokens.bin", tokens, sizeof tokens);
        write_file(world, dir, "mask.bin", mask, sizeof mask);
    }
    REQUIRE(world, yk_world_barrier(world) == YK_OK);
}

/* ---- setting up --------------------------------------------------------------------------- */

static void set(part *p, const char *assignment)
{
    REQUIRE(p->world, yk_config_set(&p->config, assignment) == YK_OK);
}

static void set_path(part *p, const char *key, const char *dir, const char *name)
{
    char assignment[600];
    snprintf(assignment, sizeof assignment, "%s=%s/%s", key, dir, name);
    set(p, assignment);
}

/* YK_RANK_DEVICE=cuda: train there, on a model whose sizes kernels like, several ranks on one GPU. */
static bool is_on_gpu(void)
{
    const char *name = getenv("YK_RANK_DEVICE");
    return name && strcmp(name, "cuda") == 0;
}

static void configure(part *p, const char *dir, const char *const *sets, const char *const *more)
{
    static const char *const base[] = {
        "model.family=gpt2", "model.layers=2",       "model.width=20",  "model.heads=2",
        "model.ffn=36",      "model.vocab=61",       "data.format=raw", "data.val_fraction=0",
        "train.seq_len=8",   "optim.lr=1e-3",        "comm.timeout=30", "device=cpu",
        "cpu.threads=1",     "memory.head_chunk=13",
    };
    REQUIRE(p->world, yk_config_init(&p->config) == YK_OK);
    static const char *const gpu[] = {"device=cuda", "launch.ranks_per_gpu=16", "model.width=64",
                                      "model.ffn=96"};
    for (size_t i = 0; i < sizeof base / sizeof base[0]; i++) set(p, base[i]);
    for (size_t i = 0; is_on_gpu() && i < sizeof gpu / sizeof gpu[0]; i++) set(p, gpu[i]);
    set_path(p, "data.train", dir, "tokens.bin");
    for (; *sets; sets++) {
        if (strcmp(*sets, "data.loss_mask") == 0)
            set_path(p, *sets, dir, "mask.bin");
        else
            set(p, *sets);
    }
    for (; more && *more; more++) set(p, *more);
    REQUIRE(p->world, yk_config_check(&p->config) == YK_OK);
}

/* Ranks on processors share their memory, and the host's. What can be had changes by the moment. */
static void check_share(part *p)
{
    yk_device_spec whole, mine;
    yk_host_room room;
    if (!p->world || is_on_gpu()) return;
    int64_t here = yk_world_local_size(p->world);
    REQUIRE(p->world, yk_device_describe(p->device, &whole) == YK_OK);
    REQUIRE(p->world,
            yk_device_describe_part(&p->config, p->world, p->device, &mine, &room) == YK_OK);
    REQUIRE(p->world, mine.memory_bytes > whole.memory_bytes / here / 2);
    REQUIRE(p->world, mine.memory_bytes < whole.memory_bytes / here / 2 * 3);
    REQUIRE(p->world, mine.host_bytes <= room.bytes / here);
}

static void plan(part *p)
{
    yk_device_spec spec;
    if (is_on_gpu())
        REQUIRE(p->world, yk_device_describe(p->device, &spec) == YK_OK);
    else
        REQUIRE(p->world, yk_device_spec_find("cpu", &spec) == YK_OK);
    check_share(p);
    yk_topology topology = {.ranks = 1, .node_size = 1};
    if (p->world) topology = yk_ranks_topology(&spec, p->size, yk_world_local_size(p->world));
    REQUIRE(p->world, yk_plan_make(&p->config, &p->shape, &spec, p->world ? &topology : NULL, 0,
                                   &p->plan) == YK_OK);
}

static void feed(part *p)
{
    yk_loader_options o = {
        .dataset = p->data,
        .split = YK_SPLIT_TRAIN,
        .batch = p->config.train.batch,
        .micro_batch = p->plan.micro_batch,
        .rank = p->rank,
        .world = p->size,
        .seed = p->config.train.seed,
        .n_buffers = YK_LOADER_BUFFERS,
    };
    REQUIRE(p->world, yk_loader_create(&o, p->engine->staging[0], &p->loader) == YK_OK);
    REQUIRE(p->world, yk_feed_init(&p->feed, p->engine, p->loader) == YK_OK);
}

void part_open(part *p, yk_world *world, const char *dir, const char *const *sets,
               const char *const *more)
{
    *p = (part){.world = world, .size = 1};
    if (world) {
        p->rank = yk_world_rank(world);
        p->size = yk_world_size(world);
    }
    configure(p, dir, sets, more);
    REQUIRE(world, yk_model_shape_from_config(&p->config, &p->shape) == YK_OK);
    REQUIRE(world, yk_dataset_open(&p->config, p->shape.vocab, &p->data) == YK_OK);
    int n_gpus = is_on_gpu() ? yk_device_count_cuda() : 0;
    int gpu = n_gpus > 0 ? p->rank % n_gpus : 0;
    REQUIRE(world, yk_device_open_chosen(&p->config, gpu, 0, &p->device) == YK_OK);
    plan(p);
    yk_engine_options o = {
        .device = p->device,
        .config = &p->plan.config,
        .shape = &p->shape,
        .train = true,
        .sizes = &p->plan.sizes,
        .micro_batch = p->plan.micro_batch,
        .world = p->size > 1 ? world : NULL,
    };
    REQUIRE(world, yk_engine_create(&o, &p->engine) == YK_OK);
    REQUIRE(world, yk_engine_init_weights(p->engine, p->config.train.seed) == YK_OK);
    feed(p);
}

void part_close(part *p)
{
    yk_feed_fini(&p->feed);
    yk_loader_destroy(p->loader);
    yk_engine_destroy(p->engine);
    yk_plan_fini(&p->plan);
    yk_device_close(p->device);
    yk_dataset_close(p->data);
    yk_config_fini(&p->config);
}

/* ---- running ------------------------------------------------------------------------------ */

yk_step_result part_step(part *p, int64_t step)
{
    yk_step_result result;
    float lr = (float)p->config.optim.lr;
    REQUIRE(p->world, yk_step_run(p->engine, &p->feed, step, lr) == YK_OK);
    REQUIRE(p->world, yk_step_wait(p->engine, step, &result) == YK_OK);
    return result;
}

part_outcome part_train(part *p, int n_steps)
{
    part_outcome o;
    memset(&o, 0, sizeof o);
    REQUIRE(p->world, n_steps <= PART_STEPS);
    for (int i = 0; i < n_steps; i++) {
        yk_step_result r = part_step(p, i);
        o.loss[i] = r.loss;
        o.norm[i] = r.grad_norm;
    }
    o.hash = part_hash(p, true);
    return o;
}

void part_expect_planned(const part *p)
{
    yk_arena_sizes high = yk_engine_high_water(p->engine);
    REQUIRE(p->world, high.persistent == p->plan.sizes.persistent);
    REQUIRE(p->world, high.activation == p->plan.sizes.activation);
    REQUIRE(p->world, high.pinned == p->plan.sizes.pinned);
}

void part_expect_same(yk_world *world, const part_outcome *one, const part_outcome *other)
{
    REQUIRE(world, memcmp(one->loss, other->loss, sizeof one->loss) == 0);
    REQUIRE(world, memcmp(one->norm, other->norm, sizeof one->norm) == 0);
    REQUIRE(world, one->hash == other->hash);
}

void part_expect_sound(yk_world *world, const part_outcome *o)
{
    REQUIRE(world, part_same(world, o->hash));
    for (int i = 0; i < PART_STEPS; i++) REQUIRE(world, isfinite(o->loss[i]));
}

float *part_read(part *p, yk_store_state state, int param, int64_t *count_out)
{
    int64_t n = yk_param_count(&yk_model_params(p->engine->model)[param]);
    float *values = malloc((size_t)n * sizeof *values);
    REQUIRE(p->world, values);
    REQUIRE(p->world, yk_store_read(p->engine->store, state, param, 0, n, values,
                                    p->engine->compute) == YK_OK);
    *count_out = n;
    return values;
}

uint64_t part_hash(part *p, bool with_gradients)
{
    static const yk_store_state states[] = {YK_STORE_WEIGHT, YK_STORE_MOMENT1, YK_STORE_MOMENT2,
                                            YK_STORE_GRAD};
    uint64_t hash = 0;
    for (int i = 0; i < yk_model_n_params(p->engine->model); i++)
        for (int s = 0; s < (with_gradients ? 4 : 3); s++) {
            int64_t n;
            float *values = part_read(p, states[s], i, &n);
            hash = yk_hash64(values, n * (int64_t)sizeof *values, hash);
            free(values);
        }
    return hash;
}

bool part_same(yk_world *world, uint64_t value)
{
    int64_t least, most;
    REQUIRE(world, yk_world_min(world, (int64_t)value, &least) == YK_OK);
    REQUIRE(world, yk_world_max(world, (int64_t)value, &most) == YK_OK);
    return least == most;
}
