/* engine/speed.c - see speed.h. */
#include "engine/speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/evaluate.h"
#include "engine/feed.h"
#include "runtime/base/arith.h"

/* ---- the data sheet ----------------------------------------------------------------------- */

typedef struct sheet {
    const char *name; /* a part of the name that the driver gives; the first that fits counts */
    double half;      /* TFLOP/s, dense, bf16 and fp16 with sums in fp32; of TF32 it is half */
} sheet;

static const sheet sheets[] = {
    {"H200", 989.4},     {"H100 PCIe", 756}, {"H100", 989.4},     {"B200", 2250},
    {"A100", 312},       {"L40S", 362},      {"RTX 5090", 209.5}, {"RTX 4090 D", 147.1},
    {"RTX 4090", 165.2}, {"RTX 3090", 71.2},
};

double yk_speed_sheet(const yk_device_spec *spec, yk_dtype dtype, bool tf32)
{
    double known = 0;
    for (size_t i = 0; i < sizeof sheets / sizeof sheets[0] && known == 0; i++)
        if (spec->kind == YK_DEVICE_CUDA && strstr(spec->name, sheets[i].name))
            known = sheets[i].half * 1e12;
    if (dtype == YK_F32 && !tf32) return spec->matmul_flops[YK_F32];
    if (known == 0) known = spec->matmul_flops[YK_BF16];
    return dtype == YK_F32 ? known / 2 : known;
}

/* ---- a product ---------------------------------------------------------------------------- */

#define SIDE_GPU  8192
#define SIDE_CPU  512
#define PATTERN_N (1 << 16)
#define CALLS     5 /* of one timing */
#define TIMINGS   4
#define CPU_S     0.25 /* at the least on processors, which others may have for a while */

struct yk_product {
    yk_device *device;
    yk_stream *stream;
    int64_t bytes; /* of all */
    char *memory;
    yk_linear_forward_args args;
};

/* What the product takes as workspace, as a dry device states it. */
static yk_status find_workspace(const yk_product *p, int64_t *bytes_out)
{
    yk_device *dry;
    yk_stream *stream;
    yk_device_spec spec = *yk_device_get_spec(p->device), known;
    YK_TRY(yk_device_spec_find(spec.kind == YK_DEVICE_CPU ? "cpu" : "4090d", &known));
    YK_TRY(yk_device_open_dry(&known, &dry));
    yk_status status = yk_stream_create(dry, YK_STREAM_COMPUTE, "dry", &stream);
    if (status == YK_OK) {
        yk_linear_forward_args a = p->args;
        void *any = (void *)(uintptr_t)256; /* nobody looks there */
        a.y = any, a.x = a.w = any;
        status = yk_linear_forward(stream, &a);
        *bytes_out = yk_round_up(yk_stream_workspace_high(stream), 256);
        yk_stream_destroy(stream);
    }
    yk_device_close(dry);
    return status;
}

/* Numbers of both signs and about one size: zeros would be multiplied faster, for want of power. */
static yk_status fill(const yk_product *p, char *matrix, int64_t bytes)
{
    yk_dtype dtype = p->args.dtype;
    float *numbers = malloc(PATTERN_N * sizeof *numbers);
    if (!numbers) return yk_fail(YK_ENOMEM, "speed", "no memory for random numbers");
    uint64_t s = 88172645463325252u;
    for (int i = 0; i < PATTERN_N; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        numbers[i] = (float)((double)(s >> 11) * 0x1p-53 - 0.5);
    }
    /* In fp32 at the end of the matrix, cast to its beginning, then doubled until it is full. */
    char *last = matrix + bytes - PATTERN_N * 4;
    int64_t filled = PATTERN_N * yk_dtype_bytes(dtype);
    yk_status status = yk_copy(p->stream, last, numbers, PATTERN_N * 4, YK_COPY_HOST_TO_DEVICE);
    if (status == YK_OK)
        status = yk_cast(p->stream, &(yk_cast_args){.dst = matrix,
                                                    .src = last,
                                                    .n = PATTERN_N,
                                                    .dst_dtype = dtype,
                                                    .src_dtype = YK_F32});
    for (; filled < bytes && status == YK_OK; filled *= 2)
        status = yk_copy(p->stream, matrix + filled, matrix, yk_min(filled, bytes - filled),
                         YK_COPY_DEVICE);
    if (status == YK_OK) status = yk_stream_synchronize(p->stream);
    free(numbers);
    return status;
}

static yk_status open_stream(yk_product *p, int64_t matrix)
{
    YK_TRY(yk_stream_create(p->device, YK_STREAM_COMPUTE, "product", &p->stream));
    yk_stream_set_workspace(p->stream, p->memory + 3 * matrix, p->bytes - 3 * matrix);
    p->args.y = p->memory;
    p->args.x = p->memory + matrix;
    p->args.w = p->memory + 2 * matrix;
    YK_TRY(fill(p, p->memory + matrix, matrix));
    return fill(p, p->memory + 2 * matrix, matrix);
}

yk_status yk_product_create(yk_device *device, yk_dtype dtype, yk_product **product_out)
{
    int64_t n = yk_device_get_kind(device) == YK_DEVICE_CPU ? SIDE_CPU : SIDE_GPU;
    int64_t matrix = n * n * yk_dtype_bytes(dtype), workspace = 0;
    void *memory = NULL;
    yk_product *p = calloc(1, sizeof *p);
    if (!p) return yk_fail(YK_ENOMEM, "product", "no memory for it");
    *p = (yk_product){.device = device, .args = {.m = n, .n = n, .k = n, .dtype = dtype}};
    yk_status status = find_workspace(p, &workspace);
    p->bytes = 3 * matrix + yk_max(workspace, 256);
    if (status == YK_OK) status = yk_device_alloc(device, YK_MEMORY_DEVICE, p->bytes, &memory);
    p->memory = memory;
    if (status == YK_OK) status = open_stream(p, matrix);
    if (status != YK_OK) {
        yk_product_destroy(p);
        return status;
    }
    *product_out = p;
    return YK_OK;
}

void yk_product_destroy(yk_product *p)
{
    if (!p) return;
    yk_stream_destroy(p->stream);
    yk_device_free(p->device, YK_MEMORY_DEVICE, p->bytes, p->memory);
    free(p);
}

yk_status yk_product_enqueue(yk_product *p, int n)
{
    for (int i = 0; i < n; i++) YK_TRY(yk_linear_forward(p->stream, &p->args));
    return YK_OK;
}

yk_status yk_product_mark(yk_product *p, yk_event *event)
{
    return yk_event_record(event, p->stream);
}

yk_status yk_product_wait(yk_product *p)
{
    return yk_stream_synchronize(p->stream);
}

double yk_product_flops(const yk_product *p)
{
    return yk_linear_forward_cost(&p->args).flops;
}

static yk_status time_calls(yk_product *p, double *seconds_out)
{
    double begin = yk_stream_now(p->stream);
    YK_TRY(yk_product_enqueue(p, CALLS));
    YK_TRY(yk_product_wait(p));
    *seconds_out = (yk_stream_now(p->stream) - begin) / CALLS;
    return YK_OK;
}

static yk_status measure(yk_product *p, double *rate_out)
{
    double best = INFINITY, seconds, end = yk_stream_now(p->stream);
    if (yk_device_get_kind(p->device) == YK_DEVICE_CPU) end += CPU_S;
    /* the first loads code and chooses an algorithm */
    for (int i = 0; i <= TIMINGS || yk_stream_now(p->stream) < end; i++) {
        YK_TRY(time_calls(p, &seconds));
        if (i > 0 && seconds < best) best = seconds;
    }
    *rate_out = yk_product_flops(p) / best;
    return YK_OK;
}

yk_status yk_speed_measure(yk_device *device, yk_dtype dtype, double *rate_out)
{
    yk_product *p;
    YK_TRY(yk_product_create(device, dtype, &p));
    yk_status status = measure(p, rate_out);
    yk_product_destroy(p);
    return status;
}

/* ---- the model ---------------------------------------------------------------------------- */

/* A forward pass on a dry engine. */
static yk_status count_forward(yk_engine *e, double *flops_out)
{
    yk_feed feed;
    double loss, before = yk_device_get_counts(e->device).flops;
    YK_TRY(yk_feed_init(&feed, e, NULL));
    yk_status status = yk_evaluate(e, &feed, 1, NULL, &loss, NULL);
    yk_feed_fini(&feed);
    *flops_out = yk_device_get_counts(e->device).flops - before;
    return status;
}

yk_status yk_speed_model_flops(const yk_config *config, const yk_model_shape *shape,
                               const yk_device_spec *spec, int64_t micro_batch, double *flops_out)
{
    yk_device *dry;
    yk_engine *e = NULL;
    double forward = 0;
    YK_TRY(yk_device_open_dry(spec, &dry));
    yk_engine_options o = {
        .device = dry, .config = config, .shape = shape, .micro_batch = micro_batch};
    yk_status status = yk_engine_create(&o, &e);
    if (status == YK_OK) status = count_forward(e, &forward);
    yk_engine_destroy(e);
    yk_device_close(dry);
    if (status == YK_OK) *flops_out = 3 * forward;
    return status;
}
