/* runtime/device/dry/device_dry.c - the device that executes nothing and counts.
 *
 * Time.     Each stream has a clock. An operation starts when its stream is free and the host has
 *           issued it, and takes yk_cost_seconds() + launch_s. The host's clock
 *           moves when it waits: for a stream, for an event, and in every call on a compute stream
 *           where the described device is a CPU, since those return when the work is done. Of a GPU,
 *           collectives take a share of the computation beside them, and copies and collectives that go
 *           over the link to the host take turns, one way and the other; else streams do not slow
 *           each other down.
 * Memory.   Addresses lie in a range that no process can map, so that a stray access faults at
 *           once, and none is given twice. There is no limit: a plan measures what is asked for,
 *           and whoever plans compares it with what the device has.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "runtime/base/mix.h"
#include "runtime/device/backend.h"

/* Beyond the user's half of the address space on x86-64 and arm64, with 4 or 5 levels of pages. */
#define FIRST_ADDRESS ((uintptr_t)1 << 55)
#define ALIGNMENT     256

/* The share of its rate that a computation loses to a collective beside it, whose sums are kernels. Measured on
 * two H200: of a step of 1.5B, 10 ms beside 82 ms of collectives. Copies, at 50 GB/s each way, took nothing. */
#define COLLECTIVE_TAX 0.117

/* When collectives were under way of late: what is computed meanwhile is issued soon after. */
#define N_BUSY 64
typedef struct busy_span {
    double begin_s, end_s;
} busy_span;

/* Products whose time is known: a step asks for the same few again and again. */
#define N_KNOWN 64
typedef struct known_time {
    yk_cost cost; /* kind MATMUL; m 0: none yet */
    double seconds;
} known_time;

/* When the link to the host is taken one way: spans apart from each other, in order. What is short slips in
 * between. */
#define SHORT_BYTES 1e6
#define N_TAKEN     64
typedef struct dry_link {
    busy_span spans[N_TAKEN + 1];
    int n;
} dry_link;

typedef struct dry_device {
    dry_link links[2]; /* to the device, to the host */
    known_time known[N_KNOWN];
    busy_span busy[N_BUSY];
    int next_busy;
    double busy_until_s; /* when the last of them ends */
    yk_device_counts counts;
    uintptr_t next_address; /* where the next allocation lies */
    double host_s;          /* the host's clock: nothing that it issues now starts earlier */
    double fp32_flops;      /* of products that are not rounded to TF32 */
} dry_device;

/* Operations taken together: what a graph costs. */
typedef struct dry_graph {
    double work_s, flops, bytes;
    int64_t n_ops;
} dry_graph;

typedef struct dry_stream {
    double now_s;     /* when everything enqueued so far is done */
    dry_graph *graph; /* under way: gets the operations; or NULL */
} dry_stream;

typedef struct dry_event {
    double at_s; /* when the stream passes its last record; 0 before one */
} dry_event;

static const yk_backend dry_backend;

/* ---- the device --------------------------------------------------------------------------- */

static yk_status check_spec(const yk_device_spec *spec)
{
    bool ok = (spec->kind == YK_DEVICE_CPU || spec->kind == YK_DEVICE_CUDA) &&
              spec->memory_rate > 0 && spec->host_link_rate > 0 && spec->launch_s >= 0;
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++)
        ok = ok && spec->matmul_flops[t] > 0 && spec->attention_flops[t] > 0;
    if (ok) return YK_OK;
    return yk_fail(YK_EINVAL, "device description",
                   "\"%s\" lacks a kind or a rate; every rate is a positive number", spec->name);
}

static const yk_workspaces *workspaces_of(const yk_device_spec *spec)
{
    if (spec->kind == YK_DEVICE_CPU) return &yk_cpu_workspaces;
    return spec->cudnn ? &yk_cuda_cudnn_workspaces : &yk_cuda_workspaces;
}

yk_status yk_device_open_dry(const yk_device_spec *spec, yk_device **device_out)
{
    YK_TRY(check_spec(spec));
    yk_device *d = calloc(1, sizeof *d);
    dry_device *state = calloc(1, sizeof *state);
    if (!d || !state) {
        free(d);
        free(state);
        return yk_fail(YK_ENOMEM, "device dry", "no memory for its counters");
    }
    state->next_address = FIRST_ADDRESS;
    state->fp32_flops = spec->matmul_flops[YK_F32];
    *d = (yk_device){
        .backend = &dry_backend,
        .workspaces = workspaces_of(spec),
        .spec = *spec,
        .kind = YK_DEVICE_DRY,
        .state = state,
    };
    *device_out = d;
    return YK_OK;
}

yk_device_counts yk_device_get_counts(const yk_device *device)
{
    if (device->kind != YK_DEVICE_DRY) return (yk_device_counts){0};
    return ((const dry_device *)device->state)->counts;
}

static void dry_set_tf32(yk_device *d, bool on)
{
    dry_device *state = d->state;
    memset(state->known, 0, sizeof state->known);
    double tf32_flops = d->spec.tf32_flops;
    d->spec.matmul_flops[YK_F32] = on && tf32_flops > 0 ? tf32_flops : state->fp32_flops;
}

static yk_status dry_set_attention(yk_device *d, yk_attention_provider provider, bool deterministic)
{
    (void)deterministic;
    d->spec.cudnn = d->spec.kind == YK_DEVICE_CUDA && provider != YK_ATTENTION_OWN;
    d->workspaces = workspaces_of(&d->spec);
    return YK_OK;
}

static void dry_close(yk_device *d)
{
    free(d->state);
    free(d);
}

/* ---- memory ------------------------------------------------------------------------------- */

static int64_t *allocated(dry_device *state, yk_memory_kind kind)
{
    return kind == YK_MEMORY_DEVICE ? &state->counts.device_bytes : &state->counts.pinned_bytes;
}

static yk_status dry_alloc(yk_device *d, yk_memory_kind kind, int64_t bytes, void **memory_out)
{
    dry_device *state = d->state;
    *memory_out = (void *)state->next_address;
    /* One unit more than it takes, so that the end of one is never the start of another. */
    state->next_address += (uintptr_t)yk_round_up(bytes, ALIGNMENT) + ALIGNMENT;
    *allocated(state, kind) += bytes;
    return YK_OK;
}

static void dry_free(yk_device *d, yk_memory_kind kind, int64_t bytes, void *memory)
{
    (void)memory;
    *allocated(d->state, kind) -= bytes;
}

/* ---- streams and events ------------------------------------------------------------------- */

static yk_status dry_stream_create(yk_stream *s)
{
    dry_stream *state = calloc(1, sizeof *state);
    if (!state) return yk_fail(YK_ENOMEM, s->name, "no memory for a stream's clock");
    s->state = state;
    return YK_OK;
}

static void dry_stream_destroy(yk_stream *s)
{
    free(((dry_stream *)s->state)->graph);
    free(s->state);
}

static void host_waits_until(yk_device *d, double at_s)
{
    dry_device *state = d->state;
    if (state->host_s < at_s) state->host_s = at_s;
}

static yk_status dry_stream_synchronize(yk_stream *s)
{
    const dry_stream *state = s->state;
    host_waits_until(s->device, state->now_s);
    return YK_OK;
}

static double dry_stream_now(const yk_stream *s)
{
    return ((const dry_stream *)s->state)->now_s;
}

static yk_status dry_event_create(yk_event *e)
{
    dry_event *state = calloc(1, sizeof *state);
    if (!state) return yk_fail(YK_ENOMEM, "event", "no memory for an event's time");
    e->state = state;
    return YK_OK;
}

static void dry_event_destroy(yk_event *e)
{
    free(e->state);
}

static yk_status dry_event_record(yk_event *e, yk_stream *s)
{
    dry_event *state = e->state;
    state->at_s = dry_stream_now(s);
    return YK_OK;
}

/* True when calls on the stream return only when the work is done. */
static bool blocks(const yk_stream *s)
{
    return s->kind == YK_STREAM_COMPUTE && s->device->spec.kind == YK_DEVICE_CPU;
}

static yk_status dry_event_wait(yk_event *e, yk_stream *s)
{
    const dry_event *state = e->state;
    dry_stream *stream = s->state;
    if (stream->now_s < state->at_s) stream->now_s = state->at_s;
    if (blocks(s)) host_waits_until(s->device, state->at_s);
    return YK_OK;
}

static yk_status dry_event_synchronize(yk_event *e)
{
    const dry_event *state = e->state;
    host_waits_until(e->device, state->at_s);
    return YK_OK;
}

/* What is issued now starts when its stream is free and the host has come to it. */
static yk_status dry_mark(yk_stream *s, yk_mark *m)
{
    const dry_device *device = s->device->state;
    double now_s = dry_stream_now(s);
    m->at_s = now_s < device->host_s ? device->host_s : now_s;
    return YK_OK;
}

/* ---- operations --------------------------------------------------------------------------- */

/* From when the stream can begin: a collective of `work_s` seconds. */
static void note_collective(yk_stream *s, double work_s)
{
    dry_device *device = s->device->state;
    double now_s = dry_stream_now(s), begin_s = now_s < device->host_s ? device->host_s : now_s;
    if (s->kind == YK_STREAM_COMPUTE || s->device->spec.kind != YK_DEVICE_CUDA) return;
    device->busy[device->next_busy] = (busy_span){begin_s, begin_s + work_s};
    device->next_busy = (device->next_busy + 1) % N_BUSY;
    if (device->busy_until_s < begin_s + work_s) device->busy_until_s = begin_s + work_s;
}

/* What collectives add to a computation from `begin_s` on. */
static double held_up(const dry_device *device, double begin_s, double work_s)
{
    double sum = 0;
    if (begin_s >= device->busy_until_s) return 0;
    for (int i = 0; i < N_BUSY; i++) {
        const busy_span *b = &device->busy[i];
        double from = b->begin_s > begin_s ? b->begin_s : begin_s;
        double to = b->end_s < begin_s + work_s ? b->end_s : begin_s + work_s;
        if (to > from) sum += COLLECTIVE_TAX * (to - from);
    }
    return sum;
}

/* Let a transfer of `work_s` seconds go over the link while nothing else does, from `begin_s` on; returns
 * when it is through. */
static double cross(dry_link *l, double begin_s, double work_s)
{
    busy_span *s = l->spans, mine = {begin_s, begin_s + work_s};
    int first = l->n, last;
    while (first > 0 && s[first - 1].end_s > begin_s) first--;
    for (last = first; last < l->n && s[last].begin_s < mine.end_s; last++) {
        mine.end_s += s[last].end_s - fmax(s[last].begin_s, begin_s);
        mine.begin_s = fmin(mine.begin_s, s[last].begin_s);
    }
    memmove(&s[first + 1], &s[last], (size_t)(l->n - last) * sizeof *s);
    s[first] = mine;
    l->n += 1 - (last - first);
    if (l->n <= N_TAKEN) return mine.end_s;
    memmove(s, &s[1], (size_t)N_TAKEN * sizeof *s); /* the oldest is past */
    l->n = N_TAKEN;
    return mine.end_s;
}

/* How long it takes a stream, from when it can begin, to move `bytes` one way. */
static double cross_seconds(yk_stream *s, int way, double bytes)
{
    dry_device *device = s->device->state;
    double work_s = bytes / s->device->spec.host_link_rate;
    if (s->device->spec.kind != YK_DEVICE_CUDA || bytes < SHORT_BYTES) return work_s;
    double begin_s = fmax(dry_stream_now(s), device->host_s);
    return cross(&device->links[way], begin_s, work_s) - begin_s;
}

/* Put what takes `work_s` seconds on the stream's clock and count it. */
static void spend(yk_stream *s, double work_s, double flops, double bytes, int64_t n_ops)
{
    dry_device *device = s->device->state;
    dry_stream *stream = s->state;
    if (stream->now_s < device->host_s) stream->now_s = device->host_s;
    if (s->kind == YK_STREAM_COMPUTE) work_s += held_up(device, stream->now_s, work_s);
    stream->now_s += work_s;
    if (blocks(s)) device->host_s = stream->now_s;
    device->counts.n_ops += n_ops;
    device->counts.flops += flops;
    device->counts.bytes += bytes;
}

/* An operation; launch_s is what one costs in a graph, too. */
static yk_status charge_time(yk_stream *s, double work_s, double flops, double bytes)
{
    dry_graph *graph = ((dry_stream *)s->state)->graph;
    double all_s = work_s + s->device->spec.launch_s;
    if (!graph) {
        spend(s, all_s, flops, bytes, 1);
        return YK_OK;
    }
    graph->work_s += all_s;
    graph->flops += flops;
    graph->bytes += bytes;
    graph->n_ops++;
    return YK_OK;
}

static yk_status dry_capture_begin(yk_stream *s)
{
    dry_stream *stream = s->state;
    stream->graph = calloc(1, sizeof *stream->graph);
    return stream->graph ? YK_OK : yk_fail(YK_ENOMEM, "graph", "no memory for its counters");
}

static yk_status dry_capture_end(yk_stream *s, void **graph_out)
{
    dry_stream *stream = s->state;
    *graph_out = stream->graph;
    stream->graph = NULL;
    return YK_OK;
}

static yk_status dry_graph_launch(yk_stream *s, void *graph)
{
    const dry_graph *g = graph;
    spend(s, g->work_s, g->flops, g->bytes, g->n_ops);
    return YK_OK;
}

static void dry_graph_destroy(yk_device *d, void *graph)
{
    (void)d;
    free(graph);
}

static yk_status dry_stream_charge(yk_stream *s, double seconds, double bytes,
                                   const double link_bytes[2])
{
    for (int way = 0; way < 2; way++)
        if (link_bytes[way] > 0) seconds = fmax(seconds, cross_seconds(s, way, link_bytes[way]));
    if (bytes > 0) note_collective(s, seconds);
    return charge_time(s, seconds, 0, bytes);
}

static yk_status dry_stream_run(yk_stream *s, yk_stream_fn fn, const void *context, int64_t bytes)
{
    (void)s, (void)fn, (void)context, (void)bytes;
    return YK_OK;
}

static yk_status dry_stream_write_flag(yk_stream *s, uint32_t *flag, uint32_t value)
{
    (void)s, (void)flag, (void)value;
    return YK_OK;
}

static yk_status dry_stream_await_flag(yk_stream *s, const uint32_t *flag, uint32_t value)
{
    (void)s, (void)flag, (void)value;
    return YK_OK;
}

static bool is_same_product(const yk_cost *a, const yk_cost *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->dtype == b->dtype &&
           a->flops == b->flops && a->bytes == b->bytes && a->tail == b->tail &&
           a->again == b->again;
}

static double product_seconds(yk_device *d, const yk_cost *cost)
{
    dry_device *state = d->state;
    uint64_t mixed = ((uint64_t)cost->m * 31 + (uint64_t)cost->n) * 31 + (uint64_t)cost->k;
    known_time *known = &state->known[yk_mix(mixed) % N_KNOWN];
    if (cost->m > 0 && is_same_product(&known->cost, cost)) return known->seconds;
    *known = (known_time){*cost, yk_cost_seconds(cost, &d->spec)};
    return known->seconds;
}

static yk_status charge(yk_stream *s, yk_cost cost)
{
    double seconds = cost.kind == YK_COST_MATMUL ? product_seconds(s->device, &cost)
                                                 : yk_cost_seconds(&cost, &s->device->spec);
    return charge_time(s, seconds, cost.flops, cost.bytes);
}

static yk_status charge_memory(yk_stream *s, double bytes)
{
    return charge_time(s, bytes / s->device->spec.memory_rate, 0, bytes);
}

#define CHARGED(op)                                                                                \
    static yk_status dry_##op(yk_stream *s, const yk_##op##_args *a)                               \
    {                                                                                              \
        return charge(s, yk_##op##_cost(a));                                                       \
    }
#define CHARGED_WITH_WORKSPACE(op)                                                                 \
    static yk_status dry_##op(yk_stream *s, const yk_##op##_args *a, void *ws)                     \
    {                                                                                              \
        (void)ws;                                                                                  \
        return charge(s, yk_##op##_cost(a));                                                       \
    }

CHARGED(embed_forward)
CHARGED_WITH_WORKSPACE(embed_backward)
CHARGED(norm_forward)
CHARGED_WITH_WORKSPACE(norm_backward)
CHARGED_WITH_WORKSPACE(linear_forward)
CHARGED_WITH_WORKSPACE(linear_backward_input)
CHARGED_WITH_WORKSPACE(linear_backward_weight)
CHARGED_WITH_WORKSPACE(rope)
CHARGED_WITH_WORKSPACE(attention_forward)
CHARGED_WITH_WORKSPACE(attention_backward)
CHARGED_WITH_WORKSPACE(attention_cached)
CHARGED(swiglu_forward)
CHARGED(swiglu_backward)
CHARGED(cross_entropy)
CHARGED_WITH_WORKSPACE(loss_sum)
CHARGED_WITH_WORKSPACE(sum_squares)
CHARGED(adamw)
CHARGED(draw_normal)
CHARGED(cast)
CHARGED(greatest)
CHARGED(pack)
CHARGED(sum_parts)
CHARGED(sum_values)

static yk_status dry_step_begin(yk_stream *s, const yk_step_begin_args *a)
{
    (void)a;
    return charge_memory(s, sizeof(yk_step_values));
}

static yk_status dry_step_finish(yk_stream *s, const yk_step_finish_args *a)
{
    (void)a;
    return charge_memory(s, 2 * sizeof(yk_step_values));
}

/* Through the link to the host the device's memory is touched once, within the device twice. */
static yk_status dry_copy(yk_stream *s, void *dst, const void *src, int64_t bytes,
                          yk_copy_kind kind)
{
    (void)dst;
    (void)src;
    if (kind == YK_COPY_DEVICE) return charge_memory(s, 2 * (double)bytes);
    int way = kind == YK_COPY_DEVICE_TO_HOST;
    return charge_time(s, cross_seconds(s, way, (double)bytes), 0, (double)bytes);
}

static yk_status dry_zero(yk_stream *s, void *dst, int64_t bytes)
{
    (void)dst;
    return charge_memory(s, (double)bytes);
}

static const yk_backend dry_backend = {
    .close = dry_close,
    .set_tf32 = dry_set_tf32,
    .set_attention = dry_set_attention,
    .alloc = dry_alloc,
    .free = dry_free,
    .stream_create = dry_stream_create,
    .stream_destroy = dry_stream_destroy,
    .stream_synchronize = dry_stream_synchronize,
    .stream_run = dry_stream_run,
    .stream_charge = dry_stream_charge,
    .stream_now = dry_stream_now,
    .event_create = dry_event_create,
    .event_destroy = dry_event_destroy,
    .event_record = dry_event_record,
    .event_wait = dry_event_wait,
    .event_synchronize = dry_event_synchronize,
    .stream_write_flag = dry_stream_write_flag,
    .stream_await_flag = dry_stream_await_flag,
    .capture_begin = dry_capture_begin,
    .capture_end = dry_capture_end,
    .graph_launch = dry_graph_launch,
    .graph_destroy = dry_graph_destroy,
    .mark = dry_mark,
    .embed_forward = dry_embed_forward,
    .embed_backward = dry_embed_backward,
    .norm_forward = dry_norm_forward,
    .norm_backward = dry_norm_backward,
    .linear_forward = dry_linear_forward,
    .linear_backward_input = dry_linear_backward_input,
    .linear_backward_weight = dry_linear_backward_weight,
    .rope = dry_rope,
    .attention_forward = dry_attention_forward,
    .attention_backward = dry_attention_backward,
    .attention_cached = dry_attention_cached,
    .swiglu_forward = dry_swiglu_forward,
    .swiglu_backward = dry_swiglu_backward,
    .cross_entropy = dry_cross_entropy,
    .loss_sum = dry_loss_sum,
    .step_begin = dry_step_begin,
    .sum_squares = dry_sum_squares,
    .step_finish = dry_step_finish,
    .adamw = dry_adamw,
    .draw_normal = dry_draw_normal,
    .cast = dry_cast,
    .copy = dry_copy,
    .zero = dry_zero,
    .greatest = dry_greatest,
    .pack = dry_pack,
    .sum_parts = dry_sum_parts,
    .sum_values = dry_sum_values,
};
