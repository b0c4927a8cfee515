/* tests/engine/stored.c - see stored.h. */
#include "tests/engine/stored.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/device/tested_device.h"

#define MEMORY_BYTES    (INT64_C(64) << 20)
#define WORKSPACE_BYTES (INT64_C(64) << 20)
#define RED_ZONE        256

static void must(yk_status status)
{
    if (status != YK_OK) abort();
}

int stored_missing(void)
{
    return tested_device_missing() ? 77 : 0;
}

static float *grab(int64_t n)
{
    float *values = malloc((size_t)n * sizeof *values);
    YK_CHECK(values);
    return values;
}

static int64_t count_of(const stored *s, int param)
{
    return yk_param_count(&yk_model_params(s->model)[param]);
}

static void write_weight(stored *s, int param, const float *values)
{
    must(
        yk_store_write(s->store, YK_STORE_WEIGHT, param, 0, count_of(s, param), values, s->stream));
}

static void spoil(stored *s)
{
    for (int k = 0; k < yk_model_n_params(s->model); k++) {
        float *values = grab(count_of(s, k));
        for (int64_t i = 0; i < count_of(s, k); i++) values[i] = NAN;
        write_weight(s, k, values);
        free(values);
    }
}

void stored_open(stored *s, const yk_model_shape *shape, yk_dtype compute, bool train)
{
    *s = (stored){0};
    must(tested_device_open(0, &s->device));
    must(yk_stream_create(s->device, YK_STREAM_COMPUTE, "test", &s->stream));
    must(yk_device_alloc(s->device, YK_MEMORY_DEVICE, WORKSPACE_BYTES, &s->workspace));
    yk_stream_set_workspace(s->stream, s->workspace, WORKSPACE_BYTES);
    must(
        yk_arena_create(s->device, "memory", YK_MEMORY_DEVICE, MEMORY_BYTES, RED_ZONE, &s->memory));
    must(yk_arena_create(s->device, "activation", YK_MEMORY_DEVICE, MEMORY_BYTES, RED_ZONE,
                         &s->activation));
    must(yk_model_create(shape, &s->model));
    yk_store_options options = {.params = yk_model_params(s->model),
                                .n_params = yk_model_n_params(s->model),
                                .n_units = yk_model_n_units(s->model),
                                .compute = compute,
                                .grads = compute,
                                .train = train};
    must(yk_store_create(&options, s->memory, s->stream, &s->store));
    spoil(s);
}

void stored_close(stored *s)
{
    yk_store_destroy(s->store);
    yk_model_destroy(s->model);
    yk_arena_destroy(s->activation);
    yk_arena_destroy(s->memory);
    yk_stream_destroy(s->stream);
    yk_device_free(s->device, YK_MEMORY_DEVICE, WORKSPACE_BYTES, s->workspace);
    yk_device_close(s->device);
}

void stored_set(stored *s, double *const *values)
{
    for (int k = 0; k < yk_model_n_params(s->model); k++) {
        float *rounded = grab(count_of(s, k));
        for (int64_t i = 0; i < count_of(s, k); i++) rounded[i] = (float)values[k][i];
        write_weight(s, k, rounded);
        free(rounded);
    }
}

float *stored_get(stored *s, yk_store_state state, int param)
{
    float *values = grab(count_of(s, param));
    must(yk_store_read(s->store, state, param, 0, count_of(s, param), values, s->stream));
    return values;
}

void *stored_push(stored *s, const void *values, int64_t bytes)
{
    void *piece;
    must(yk_arena_push(s->memory, "test", bytes, &piece));
    must(yk_copy(s->stream, piece, values, bytes, YK_COPY_HOST_TO_DEVICE));
    must(yk_stream_synchronize(s->stream));
    return piece;
}
