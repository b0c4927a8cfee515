/* tests/engine/rig.h - a small run set up by hand, for tests of the engine. */
#ifndef YK_TESTS_ENGINE_RIG_H
#define YK_TESTS_ENGINE_RIG_H

#include "engine/plan.h"
#include "engine/step.h"
#include "tests/runtime/scratch.h"

/* A planned engine on the cpu with random weights, fed from a text in a temporary file. */
typedef struct yk_rig {
    yk_config config;
    yk_model_shape shape;
    yk_dataset *data;
    yk_device *device;
    yk_plan plan;
    yk_engine *engine;
    yk_loader *loader;
    yk_feed feed;
    char dir[SCRATCH_PATH], path[SCRATCH_PATH]; /* of the text */
} yk_rig;

/* Set a rig up: "key=value" assignments, ended by NULL, over a tiny configuration. */
void yk_rig_open(yk_rig *rig, int64_t red_zone, const char *const *sets);
void yk_rig_close(yk_rig *rig);

/* Run steps first .. first + n - 1 at optim.lr; losses_out (n) may be NULL. */
void yk_rig_train(yk_rig *rig, int64_t first, int64_t n, double *losses_out);

/* The weights, moments and gradients of all parameters, hashed. */
uint64_t yk_rig_hash(yk_rig *rig);

#endif
