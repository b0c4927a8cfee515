/* cli/bench_time.c - device memory with random content, and the timing of one operation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "engine/plan.h"
#include "runtime/base/arith.h"
#include "runtime/base/mix.h"
#include "runtime/base/words.h"

#define PATTERN_NUMBERS (INT64_C(1) << 20)
#define CACHE_BYTES     (INT64_C(256) << 20) /* more than any device keeps */
#define WORKSPACE_BYTES (INT64_C(4) << 30)
#define CPU_WORKSPACE   (INT64_C(1) << 30)
#define STRETCHES       11

/* ---- memory ------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    return yk_mix(*state += YK_MIX_STEP);
}

static float next_normal(uint64_t *state)
{
    double u = ((double)(next_random(state) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(next_random(state) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v) / 40);
}

static yk_status upload(yk_bench *b, void *to, const void *from, int64_t bytes)
{
    YK_TRY(yk_copy(b->stream, to, from, bytes, YK_COPY_HOST_TO_DEVICE));
    return yk_stream_synchronize(b->stream);
}

static yk_status make_patterns(yk_bench *b)
{
    float *numbers = malloc((size_t)PATTERN_NUMBERS * sizeof *numbers);
    if (!numbers) return yk_fail(YK_ENOMEM, "bench", "no memory for random numbers");
    uint64_t state = 1;
    for (int64_t i = 0; i < PATTERN_NUMBERS; i++) numbers[i] = next_normal(&state);
    yk_status status = upload(b, b->pattern[YK_F32], numbers, PATTERN_NUMBERS * 4);
    free(numbers);
    for (int t = YK_BF16; t <= YK_F16 && status == YK_OK; t++)
        status = yk_cast(b->stream, &(yk_cast_args){.dst = b->pattern[t],
                                                    .src = b->pattern[YK_F32],
                                                    .n = PATTERN_NUMBERS,
                                                    .dst_dtype = (yk_dtype)t,
                                                    .src_dtype = YK_F32});
    return status;
}

static void *take(yk_bench *b, int64_t bytes)
{
    int64_t begin = b->used, limit = b->memory_bytes - b->workspace_bytes;
    b->used += yk_round_up(bytes, 256);
    return b->used <= limit ? b->memory + begin : NULL;
}

void *yk_bench_space(yk_bench *b, yk_dtype t, int64_t n)
{
    return take(b, n * yk_dtype_bytes(t));
}

void *yk_bench_random(yk_bench *b, yk_dtype t, int64_t n)
{
    int64_t bytes = n * yk_dtype_bytes(t), step = PATTERN_NUMBERS * yk_dtype_bytes(t);
    uint8_t *to = take(b, bytes);
    for (int64_t at = 0; to && at < bytes; at += step)
        if (yk_copy(b->stream, to + at, b->pattern[t], yk_min(step, bytes - at), YK_COPY_DEVICE) !=
            YK_OK)
            return NULL;
    return to;
}

static int32_t *integers(yk_bench *b, int64_t n, int64_t below, bool random)
{
    int32_t *to = take(b, n * 4), *values = to ? malloc((size_t)n * sizeof *values) : NULL;
    if (!values) return NULL;
    uint64_t state = 2;
    for (int64_t i = 0; i < n; i++)
        values[i] =
            (int32_t)(random ? next_random(&state) % (uint64_t)below : (uint64_t)(i % below));
    yk_status status = upload(b, to, values, n * 4);
    free(values);
    return status == YK_OK ? to : NULL;
}

int32_t *yk_bench_positions(yk_bench *b, int64_t n, int64_t below)
{
    return integers(b, n, below, false);
}

int32_t *yk_bench_indices(yk_bench *b, int64_t n, int64_t below)
{
    return integers(b, n, below, true);
}

int yk_bench_sets(const yk_bench *b, int64_t bytes)
{
    int64_t fitting = (b->memory_bytes - b->workspace_bytes) / yk_max(bytes, 1);
    int64_t wanted = yk_div_up(CACHE_BYTES, yk_max(bytes, 1));
    return (int)yk_max(1, yk_min(yk_min(wanted, fitting), YK_BENCH_MAX_SETS));
}

/* ---- opening ------------------------------------------------------------------------------ */

static yk_status make_values(yk_bench *b)
{
    yk_step_values values = {.lr = 1e-4f,
                             .grad_scale = 1,
                             .correction1 = 0.5f,
                             .correction2 = 0.5f,
                             .loss_scale = 1,
                             .adam_steps = 10};
    return upload(b, b->values, &values, sizeof values);
}

yk_status yk_bench_open(yk_bench *b)
{
    const yk_device_spec *spec = yk_device_get_spec(b->device);
    b->pattern_bytes = PATTERN_NUMBERS * 4;
    b->workspace_bytes = yk_min(spec->kind == YK_DEVICE_CPU ? CPU_WORKSPACE : WORKSPACE_BYTES,
                                spec->memory_bytes / 16);
    yk_device_set_attention_room(b->device, yk_plan_attention_room(spec->memory_bytes));
    b->memory_bytes = yk_min(spec->memory_bytes * 3 / 4, INT64_C(24) << 30) / 256 * 256;
    if (spec->kind == YK_DEVICE_CPU) b->memory_bytes = yk_min(b->memory_bytes, INT64_C(4) << 30);
    YK_TRY(yk_stream_create(b->device, YK_STREAM_COMPUTE, "bench", &b->stream));
    YK_TRY(yk_device_open_dry(spec, &b->dry));
    YK_TRY(yk_stream_create(b->dry, YK_STREAM_COMPUTE, "dry", &b->dry_stream));
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++)
        YK_TRY(yk_device_alloc(b->device, YK_MEMORY_DEVICE, b->pattern_bytes, &b->pattern[t]));
    void *values, *memory;
    YK_TRY(yk_device_alloc(b->device, YK_MEMORY_DEVICE, sizeof *b->values, &values));
    b->values = values;
    YK_TRY(yk_device_alloc(b->device, YK_MEMORY_DEVICE, b->memory_bytes, &memory));
    b->memory = memory;
    yk_stream_set_workspace(b->stream, b->memory + b->memory_bytes - b->workspace_bytes,
                            b->workspace_bytes);
    YK_TRY(make_patterns(b));
    return make_values(b);
}

void yk_bench_close(yk_bench *b)
{
    yk_stream_destroy(b->stream);
    yk_stream_destroy(b->dry_stream);
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++)
        yk_device_free(b->device, YK_MEMORY_DEVICE, b->pattern_bytes, b->pattern[t]);
    yk_device_free(b->device, YK_MEMORY_DEVICE, sizeof *b->values, b->values);
    yk_device_free(b->device, YK_MEMORY_DEVICE, b->memory_bytes, b->memory);
    yk_device_close(b->dry);
}

/* ---- timing ------------------------------------------------------------------------------- */

typedef struct timed {
    yk_bench_fn fn;
    const unsigned char *args;
    int64_t args_bytes;
    int n_sets;
} timed;

/* Seconds of one call, over n of them. */
static yk_status stretch(yk_bench *b, const timed *t, int64_t n, double *seconds_out)
{
    double begin = yk_stream_now(b->stream);
    for (int64_t i = 0; i < n; i++)
        YK_TRY(t->fn(b->stream, t->args + i % t->n_sets * t->args_bytes));
    YK_TRY(yk_stream_synchronize(b->stream));
    *seconds_out = (yk_stream_now(b->stream) - begin) / (double)n;
    return YK_OK;
}

/* Has `name` one of the words of `only` in it, or has `only` none? */
static bool is_wanted(const char *name, const char *only)
{
    for (;; only++) {
        size_t length = strcspn(only, ",");
        if (memmem(name, strlen(name), only, length)) return true;
        only += length;
        if (!*only) return false;
    }
}

static yk_status time_calls(yk_bench *b, const timed *t, yk_bench_row *row)
{
    double seconds[STRETCHES], once;
    YK_TRY(stretch(b, t, t->n_sets, &once)); /* choices and code are loaded here */
    YK_TRY(stretch(b, t, t->n_sets, &once));
    int64_t n = (int64_t)((double)b->stretch_ms * 1e-3 / (once > 1e-7 ? once : 1e-7));
    n = yk_max(1, yk_min(n, 2000));
    for (int i = 0; i < STRETCHES; i++) YK_TRY(stretch(b, t, n, &seconds[i]));
    row->seconds = yk_bench_median(seconds, STRETCHES);
    row->low = seconds[0];
    row->high = seconds[STRETCHES - 1];
    return YK_OK;
}

yk_status yk_bench_run(yk_bench *b, const char *name, const char *size, yk_bench_fn fn,
                       const void *args, int64_t args_bytes, int n_sets, yk_cost cost)
{
    timed t = {.fn = fn, .args = args, .args_bytes = args_bytes, .n_sets = n_sets};
    bool fits = b->used <= b->memory_bytes - b->workspace_bytes;
    b->used = 0;
    YK_CHECK(b->n_rows < YK_BENCH_MAX_ROWS);
    if (b->lists) {
        snprintf(b->rows[b->n_rows++].name, sizeof b->rows->name, "%s", name);
        return YK_OK;
    }
    if (b->matmul_rate > 0 && !is_wanted(name, b->only)) return YK_OK;
    if (!fits)
        return yk_fail(YK_ENOMEM, name, "its tensors do not fit; take a smaller --micro-batch");
    YK_TRY(fn(b->dry_stream, args));
    if (yk_stream_workspace_high(b->dry_stream) > b->workspace_bytes)
        return yk_fail(YK_ENOMEM, name, "its workspace does not fit; take a smaller --micro-batch");
    yk_bench_row *row = &b->rows[b->n_rows];
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->size, sizeof row->size, "%s", size);
    row->cost = cost;
    YK_TRY(time_calls(b, &t, row));
    b->n_rows++;
    return YK_OK;
}

/* ---- names ----------------------------------------------------------------------------- */

static yk_status fail_name(const yk_bench *names, const char *word)
{
    char all[1400] = "", shown[YK_SHOWN_MAX];
    size_t length = 0;
    for (int i = 0; i < names->n_rows && length < sizeof all; i++)
        length += (size_t)snprintf(all + length, sizeof all - length, "%s%s", i ? ", " : "",
                                   names->rows[i].name);
    return yk_fail(YK_EINVAL, "--only", "%s is in the name of no operation; there are: %s",
                   yk_word_show(word, shown), all);
}

yk_status yk_bench_check_only(const yk_bench *b)
{
    yk_bench names = {.device = b->device,
                      .shape = b->shape,
                      .batch = b->batch,
                      .seq_len = b->seq_len,
                      .dtype = b->dtype,
                      .lists = true};
    char words[256], *rest = words, *word;
    if (!b->only[0]) return YK_OK;
    if (snprintf(words, sizeof words, "%s", b->only) >= (int)sizeof words)
        return yk_fail(YK_EINVAL, "--only", "it is longer than %zu bytes", sizeof words - 1);
    YK_TRY(yk_bench_ops(&names));
    while ((word = strsep(&rest, ","))) {
        bool found = false;
        for (int i = 0; i < names.n_rows; i++) found |= strstr(names.rows[i].name, word) != NULL;
        if (!word[0]) return yk_fail(YK_EINVAL, "--only", "a word between its commas is missing");
        if (!found) return fail_name(&names, word);
    }
    return YK_OK;
}
