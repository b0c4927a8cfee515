/* tests/ranks/train/part.h - a rank's part of a small training, set up without a trainer.
 *
 * A failure is said with its place and ends the run. The data are made by the program, so that a script
 * gives it no more than a folder.
 */
#ifndef YK_TESTS_RANKS_TRAIN_PART_H
#define YK_TESTS_RANKS_TRAIN_PART_H

#include "engine/plan.h"
#include "engine/step.h"

typedef struct part {
    yk_world *world; /* NULL: this rank trains alone */
    int rank, size;
    yk_config config;
    yk_model_shape shape;
    yk_dataset *data;
    yk_device *device;
    yk_plan plan;
    yk_engine *engine;
    yk_loader *loader;
    yk_feed feed;
} part;

/* Write the data into `dir`: tokens.bin, and mask.bin, which leaves whole windows and single tokens out of
 * the loss. Done by rank 0; the others wait for it. */
void part_write_data(yk_world *world, const char *dir);

/* Set up with "key=value" assignments, each list ended by NULL, over a tiny configuration; `more` may be
 * NULL. Without a world, what one rank does alone. */
void part_open(part *p, yk_world *world, const char *dir, const char *const *sets,
               const char *const *more);
void part_close(part *p);

/* One step at optim.lr. */
yk_step_result part_step(part *p, int64_t step);

/* Weights and moments of all parameters, hashed; the gradients too when asked. */
uint64_t part_hash(part *p, bool with_gradients);

#define PART_STEPS 3 /* of one outcome, at most */

/* What some steps gave; hash is part_hash()'s with the gradients. */
typedef struct part_outcome {
    double loss[PART_STEPS];
    float norm[PART_STEPS];
    uint64_t hash;
} part_outcome;

part_outcome part_train(part *p, int n_steps);

/* The arenas stood as high as the plan said. */
void part_expect_planned(const part *p);

/* All bits of one are those of the other. */
void part_expect_same(yk_world *world, const part_outcome *one, const part_outcome *other);

/* Losses are finite, and all ranks have the same outcome. */
void part_expect_sound(yk_world *world, const part_outcome *o);

/* A parameter's state (count), to be freed. */
float *part_read(part *p, yk_store_state state, int param, int64_t *count_out);

/* Is the value the same on all ranks? */
bool part_same(yk_world *world, uint64_t value);

#define REQUIRE(world, condition)                                                                  \
    do {                                                                                           \
        if (!(condition)) part_fail(world, __FILE__, __LINE__, #condition);                        \
    } while (0)

/* What is under test now, said beside a failure; printf format. */
void part_about(const char *format, ...) __attribute__((format(printf, 1, 2)));

_Noreturn void part_fail(yk_world *world, const char *file, int line, const char *condition);

#endif
