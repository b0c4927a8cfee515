/* tests/engine/stored.h - a model whose parameters lie in a store, on the cpu, for tests of what
 * reads and writes them. Calls that fail end the program.
 */
#ifndef YK_TESTS_ENGINE_STORED_H
#define YK_TESTS_ENGINE_STORED_H

#include "models/model.h"
#include "optim/store/store.h"

typedef struct stored {
    yk_device *device;
    yk_stream *stream;
    void *workspace;
    yk_arena *memory, *activation;
    yk_model *model;
    yk_store *store;
} stored;

/* 0, or 77 when the device that YK_TEST_DEVICE names (cpu, cuda; cpu unless set) is not there; see
 * tests/runtime/device/tested_device.h. */
int stored_missing(void);

/* The model's weights hold NaN until they are written. */
void stored_open(stored *s, const yk_model_shape *shape, yk_dtype compute, bool train);
void stored_close(stored *s);

/* Put (n_params) arrays of weights into the store, rounded to fp32. */
void stored_set(stored *s, double *const *values);

/* A parameter's weight, gradient or moment, whole. The caller owns it. */
float *stored_get(stored *s, yk_store_state state, int param);

/* Device memory that holds a copy of `bytes` of host memory, until the model is closed. */
void *stored_push(stored *s, const void *values, int64_t bytes);

#endif
