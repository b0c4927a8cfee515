/* cli/bench_step.c - `yoke bench step`: training steps of a model on random tokens, timed.
 *
 * The engine, its plan and its step are those of `yoke train`; only the data, and what a run
 * writes, are left out. Steps follow each other as they do there: on a GPU the host enqueues the
 * next one before it reads the outcome of the last. A step's time is that from the end of the one
 * before to its own end on the compute stream, whenever the host may learn of it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/bench.h"
#include "cli/options.h"
#include "engine/bind.h"
#include "engine/carrier.h"
#include "engine/device_choice.h"
#include "engine/drawn_batch.h"
#include "engine/plan.h"
#include "engine/speed.h"
#include "engine/step.h"
#include "engine/tuning.h"
#include "runtime/base/clock.h"
#include "runtime/device/recorder.h"
#include "runtime/device/timer.h"
#include "runtime/device/tune.h"
#include "runtime/machine/machine.h"
#include "runtime/observe/trace.h"

#define MAX_STEPS 100000
#define MAX_SPANS 100000
#define MAX_SUMS  64

/* Steps whose enqueuing is timed, unless the plan says that they take longer than this: then the
 * host waits for room in the queue in any case. */
#define HOST_STEPS  5
#define HOST_STEP_S 1.0

/* A step's time is read when the outcome of the one after it is there, for its end is marked after
 * its own outcome; the host may have enqueued the one after that by then, and no more. */
#define N_TIMERS 3

/* The start of a run, phase by phase. */
enum { PHASE_DEVICE, PHASE_PLAN, PHASE_PRODUCT, PHASE_MEMORY, PHASE_WEIGHTS, PHASE_STEP, N_PHASES };

/* What is asked for. */
typedef struct request {
    const char *model, *precision, *device, *trace;
    int64_t micro_batch, seq_len, batch, steps, warmup;
    yk_cli_list sets;
} request;

typedef struct bench_step {
    const request *request;
    yk_world *world;
    int rank, n_ranks;
    yk_config config;
    yk_model_shape shape;
    yk_device *device;
    yk_race race; /* between what may carry collectives */
    yk_plan plan;
    yk_engine *engine;
    yk_feed feed;
    double product_rate;        /* measured */
    double model_flops;         /* of a step of one rank */
    double *step_s;             /* (steps) */
    yk_timer *timers[N_TIMERS]; /* which steps take in turns */
    double timed_s[N_TIMERS];   /* what was read from them last */
    double host_s[HOST_STEPS];
    double at_s[N_PHASES]; /* the process's age when each phase had ended */
    double loss_first, loss_last;
    yk_comm_counts sent_before, sent_after;   /* before and after the steps that are timed */
    double exposed_before_s, exposed_after_s; /* likewise: waited for other ranks */
} bench_step;

/* ---- preparing ---------------------------------------------------------------------------- */

static yk_status set_key(yk_config *config, const char *key, const char *value)
{
    char assignment[160];
    if (snprintf(assignment, sizeof assignment, "%s=%s", key, value) >= (int)sizeof assignment)
        return yk_fail(YK_EINVAL, key, "the value is too long");
    return yk_config_set(config, assignment);
}

static yk_status set_count(yk_config *config, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return set_key(config, key, text);
}

static yk_status configure(bench_step *b)
{
    const request *r = b->request;
    yk_config *c = &b->config;
    YK_TRY(set_key(c, "model.preset", r->model));
    YK_TRY(set_key(c, "precision.compute", r->precision));
    YK_TRY(set_key(c, "device", r->device));
    YK_TRY(set_count(c, "train.micro_batch", r->micro_batch));
    YK_TRY(set_count(c, "train.seq_len", r->seq_len));
    YK_TRY(set_count(c, "train.batch", r->batch > 0 ? r->batch : r->micro_batch * b->n_ranks));
    YK_TRY(set_count(c, "train.steps", r->steps + r->warmup));
    for (int i = 0; i < r->sets.n_items; i++) YK_TRY(yk_config_set(c, r->sets.items[i]));
    YK_TRY(yk_config_check(c));
    return yk_model_shape_from_config(c, &b->shape);
}

static yk_status find_place(bench_step *b)
{
    int gpu = 0, n_cores = 0;
    yk_device_spec spec;
    yk_host_room room;
    if (b->n_ranks > 1)
        YK_TRY(yk_bind_rank(b->world, yk_config_wants_gpu(&b->config),
                            b->config.launch.ranks_per_gpu, &gpu, &n_cores));
    YK_TRY(yk_device_open_chosen(&b->config, gpu, n_cores, &b->device));
    b->at_s[PHASE_DEVICE] = yk_clock_age_s();
    YK_TRY(yk_device_describe_part(&b->config, b->world, b->device, &spec, &room));
    yk_topology topology = yk_ranks_topology(&spec, b->n_ranks, yk_world_local_size(b->world));
    YK_TRY(yk_ranks_find_network(&b->config, b->n_ranks > 1 ? b->world : NULL, &topology));
    yk_config chosen = b->config;
    YK_TRY(yk_carrier_choose(&b->config, &b->shape, b->n_ranks > 1 ? b->world : NULL, b->device,
                             &chosen, &b->race));
    YK_TRY(yk_plan_make(&chosen, &b->shape, &spec, b->n_ranks > 1 ? &topology : NULL, 0, &b->plan));
    yk_device_set_attention_room(b->device, b->plan.spec.attention_bytes);
    YK_TRY(
        yk_speed_model_flops(&b->config, &b->shape, &spec, b->plan.micro_batch, &b->model_flops));
    b->model_flops *= (double)b->plan.n_micro;
    b->at_s[PHASE_PLAN] = yk_clock_age_s();
    YK_TRY(yk_speed_measure(b->device, b->config.precision.compute, &b->product_rate));
    b->at_s[PHASE_PRODUCT] = yk_clock_age_s();
    return YK_OK;
}

static yk_status create_engine(bench_step *b)
{
    yk_engine_options o = {.device = b->device,
                           .config = &b->plan.config,
                           .shape = &b->shape,
                           .train = true,
                           .sizes = &b->plan.sizes,
                           .micro_batch = b->plan.micro_batch,
                           .world = b->n_ranks > 1 ? b->world : NULL,
                           .race = &b->race};
    YK_TRY(yk_engine_create(&o, &b->engine));
    b->at_s[PHASE_MEMORY] = yk_clock_age_s();
    YK_TRY(yk_engine_init_weights(b->engine, b->config.train.seed));
    b->at_s[PHASE_WEIGHTS] = yk_clock_age_s();
    yk_drawn_batch_fill(b->engine, (uint64_t)b->rank, b->engine->staging[0]); /* the feed's */
    for (int i = 0; i < N_TIMERS; i++) YK_TRY(yk_timer_create(b->device, 2, &b->timers[i]));
    YK_TRY(yk_feed_init(&b->feed, b->engine, NULL));
    yk_feed_expect(&b->feed, INT64_MAX);
    return YK_OK;
}

/* ---- timing ------------------------------------------------------------------------------- */

/* What was sent and waited for so far, with no step under way, nor gathers that its update
 * began. */
static yk_status count_communication(bench_step *b, yk_comm_counts *sent_out, double *exposed_out)
{
    const yk_store_groups *g = &b->engine->ranks.groups;
    if (b->n_ranks > 1) YK_TRY(yk_stream_synchronize(g->reduce));
    if (b->n_ranks > 1) YK_TRY(yk_stream_synchronize(g->gather));
    YK_TRY(yk_stream_synchronize(b->engine->compute));
    *sent_out = yk_ranks_counts(&b->engine->ranks);
    *exposed_out = yk_store_waited_s(b->engine->store);
    return YK_OK;
}

static void read_time(bench_step *b, int64_t step)
{
    int turn = (int)(step % N_TIMERS);
    int64_t timed = step - b->request->warmup;
    double all_s = yk_timer_read(b->timers[turn]);
    if (timed >= 0) b->step_s[timed] = all_s - b->timed_s[turn];
    b->timed_s[turn] = all_s;
}

static yk_status finish_step(bench_step *b, int64_t step)
{
    yk_step_result result;
    YK_TRY(yk_step_wait(b->engine, step, &result));
    if (step == 0) {
        b->at_s[PHASE_STEP] = yk_clock_age_s();
        b->loss_first = result.loss;
    }
    b->loss_last = result.loss;
    return YK_OK;
}

static yk_status run_steps(bench_step *b, int64_t first, int64_t n)
{
    yk_stream *compute = b->engine->compute;
    int64_t ahead = yk_device_get_kind(b->device) == YK_DEVICE_CUDA ? 1 : 0, end = first + n;
    if (n > 0) YK_TRY(yk_timer_begin(b->timers[first % N_TIMERS], compute));
    for (int64_t step = first; step < end + ahead; step++) {
        if (step < end) {
            YK_TRY(yk_step_run(b->engine, &b->feed, step, (float)b->config.optim.lr));
            YK_TRY(yk_timer_end(b->timers[step % N_TIMERS], compute));
            if (step + 1 < end) YK_TRY(yk_timer_begin(b->timers[(step + 1) % N_TIMERS], compute));
        }
        int64_t done = step - ahead;
        if (done >= first && done < end) YK_TRY(finish_step(b, done));
        if (done > first) read_time(b, done - 1);
    }
    YK_TRY(yk_stream_synchronize(compute));
    if (n > 0) read_time(b, end - 1);
    return YK_OK;
}

/* Steps that are not timed, and steps that are. */
static yk_status time_steps(bench_step *b)
{
    const request *r = b->request;
    YK_TRY(run_steps(b, 0, r->warmup));
    YK_TRY(count_communication(b, &b->sent_before, &b->exposed_before_s));
    YK_TRY(run_steps(b, r->warmup, r->steps));
    return count_communication(b, &b->sent_after, &b->exposed_after_s);
}
/* What the host takes to enqueue a step on a device that has nothing to do: with work before it,
 * the time would be that of waiting for a place in the queue. */
static yk_status time_host(bench_step *b, int64_t first)
{
    for (int i = 0; i < HOST_STEPS && b->plan.step_s < HOST_STEP_S; i++) {
        yk_step_result result;
        YK_TRY(yk_stream_synchronize(b->engine->compute));
        double begin_s = yk_clock_s();
        YK_TRY(yk_step_run(b->engine, &b->feed, first + i, (float)b->config.optim.lr));
        b->host_s[i] = yk_clock_s() - begin_s;
        YK_TRY(yk_step_wait(b->engine, first + i, &result));
    }
    return YK_OK;
}

/* ---- a step, operation by operation ------------------------------------------------------- */

static void print_sums(const yk_recorder *recorder)
{
    yk_trace_sum sums[MAX_SUMS];
    int n = yk_trace_sum_up(recorder, sums, MAX_SUMS);
    double all_s = 0;
    for (int i = 0; i < n; i++) all_s += sums[i].seconds;
    fprintf(stderr, "%-26s %-10s %6s %10s %6s %9s %9s\n", "operation", "stream", "calls", "ms",
            "share", "GB/s", "TFLOP/s");
    for (int i = 0; i < n; i++) {
        const yk_trace_sum *s = &sums[i];
        double seconds = s->seconds > 0 ? s->seconds : 1e-9;
        fprintf(stderr, "%-26s %-10s %6d %10.3f %5.1f%% %9.0f %9.1f\n", s->name, s->stream, s->n,
                1e3 * s->seconds, 100 * s->seconds / (all_s > 0 ? all_s : 1),
                1e-9 * s->bytes / seconds, 1e-12 * s->flops / seconds);
    }
}

static yk_status write_trace(const bench_step *b, const yk_recorder *recorder)
{
    yk_trace *trace;
    YK_TRY(yk_trace_open(b->request->trace, &trace));
    yk_status status = yk_trace_add(trace, b->rank, "step", recorder);
    yk_status closed = yk_trace_close(trace);
    return status == YK_OK ? closed : status;
}

/* One more step, recorded. */
static yk_status trace_step(bench_step *b)
{
    yk_recorder *recorder;
    yk_step_result result;
    int64_t step = b->request->warmup + b->request->steps + HOST_STEPS;
    YK_TRY(yk_recorder_create(b->device, MAX_SPANS, &recorder));
    yk_recorder_start(recorder);
    yk_status status = yk_step_run(b->engine, &b->feed, step, (float)b->config.optim.lr);
    if (status == YK_OK) status = yk_step_wait(b->engine, step, &result);
    if (status == YK_OK) status = yk_recorder_stop(recorder);
    if (status == YK_OK && b->rank == 0) {
        print_sums(recorder);
        status = write_trace(b, recorder);
    }
    yk_recorder_destroy(recorder);
    return status;
}

/* ---- printing ----------------------------------------------------------------------------- */

/* What rank 0 sent in a step, how long that took its streams and how long the step waited for
 * it. */
static void print_communication(const bench_step *b)
{
    const yk_comm_counts *then = &b->sent_before, *now = &b->sent_after;
    double n = (double)b->request->steps;
    if (b->n_ranks == 1) return;
    printf("\"zero\": %" PRId64 ", \"backend\": \"%s\", \"comm_bytes\": %.0f, "
           "\"comm_ms\": %.5g, \"comm_exposed_ms\": %.5g, \"comm_flushed\": %.0f, ",
           b->plan.config.parallel.zero, yk_comm_backend_name(b->engine->ranks.groups.shard),
           (double)(now->bytes_sent - then->bytes_sent) / n, 1e3 * (now->busy_s - then->busy_s) / n,
           1e3 * (b->exposed_after_s - b->exposed_before_s) / n,
           (double)(now->n_flushed - then->n_flushed) / n);
}

static void print_bytes(const bench_step *b)
{
    yk_arena_sizes s = yk_engine_high_water(b->engine);
    printf("\"persistent_bytes\": %" PRId64 ", \"activation_bytes\": %" PRId64
           ", \"pinned_bytes\": %" PRId64 ", \"device_bytes\": %" PRId64
           ", \"used_bytes\": %" PRId64,
           s.persistent, s.activation, s.pinned, yk_plan_device_bytes(&b->plan),
           yk_device_used_bytes(b->device));
}

/* What each phase of the start took, in seconds. */
static void print_start(const bench_step *b)
{
    static const char *const names[N_PHASES] = {"device", "plan",    "product",
                                                "memory", "weights", "step"};
    printf("\"start\": {");
    for (int i = 0; i < N_PHASES; i++)
        printf("%s\"%s\": %.3g", i ? ", " : "", names[i],
               b->at_s[i] - (i > 0 ? b->at_s[i - 1] : 0));
    printf("}, ");
}

/* The kernels that were chosen by timing, the seconds that took, and the part of their time it
 * saves. */
static void print_tuning(const bench_step *b)
{
    const yk_tune_sum sum = yk_device_tune_sum(b->device);
    printf("\"tuned\": {\"kernels\": %d, \"s\": %.3g, \"gain\": %.4f}, ", sum.n, sum.seconds,
           sum.n > 0 ? 1 - sum.taken_ms / sum.first_ms : 0);
}

static void print_json(bench_step *b)
{
    const request *r = b->request;
    const yk_config *c = &b->config;
    const yk_device_spec *spec = yk_device_get_spec(b->device);
    double typical_s = yk_bench_median(b->step_s, r->steps),
           host_s = yk_bench_median(b->host_s, HOST_STEPS);
    double sheet = yk_speed_sheet(spec, c->precision.compute, c->precision.tf32);
    double rate = b->model_flops / typical_s;
    if (sheet == 0) sheet = b->plan.spec.matmul_flops[c->precision.compute];
    printf("{\"device\": \"%s\", \"model\": \"%s\", \"precision\": \"%s\", \"ranks\": %d, "
           "\"micro_batch\": %" PRId64 ", \"batch\": %" PRId64 ", \"seq_len\": %" PRId64
           ", \"steps\": %" PRId64 ", \"warmup\": %" PRId64 ", \"graphs\": %d, ",
           spec->name, c->model.preset, yk_dtype_name(c->precision.compute), b->n_ranks,
           b->plan.micro_batch, c->train.batch, c->train.seq_len, r->steps, r->warmup,
           yk_graphs_count(b->engine->graphs));
    printf("\"tokens_per_s\": %.7g, \"ms\": %.6g, \"ms_min\": %.6g, \"ms_max\": %.6g, "
           "\"planned_ms\": %.6g, \"host_ms\": %.5g, \"start_s\": %.4g, ",
           (double)b->plan.tokens / typical_s, 1e3 * typical_s, 1e3 * b->step_s[0],
           1e3 * b->step_s[r->steps - 1], 1e3 * b->plan.step_s, 1e3 * host_s, b->at_s[PHASE_STEP]);
    print_start(b);
    print_tuning(b);
    printf("\"model_flops\": %.9g, \"sheet_flops\": %.6g, \"product_flops\": %.6g, \"mfu\": %.4f, "
           "\"mfu_product\": %.4f, ",
           b->model_flops, sheet, b->product_rate, rate / sheet, rate / b->product_rate);
    print_communication(b);
    print_bytes(b);
    printf(", \"loss_first\": %.17g, \"loss_last\": %.17g}\n", b->loss_first, b->loss_last);
}

/* ---- the whole ---------------------------------------------------------------------------- */

static yk_status prepare(bench_step *b)
{
    size_t n = (size_t)b->request->steps;
    b->step_s = calloc(n, sizeof *b->step_s);
    if (!b->step_s) return yk_fail(YK_ENOMEM, "bench", "no memory for times");
    YK_TRY(yk_config_init(&b->config));
    YK_TRY(configure(b));
    YK_TRY(find_place(b));
    return create_engine(b);
}

static yk_status bench(bench_step *b)
{
    yk_world_hold(b->world);
    YK_TRY(yk_world_agree(b->world, prepare(b)));
    YK_TRY(yk_tuning_settle(b->n_ranks > 1 ? b->world : NULL, b->engine));
    YK_TRY(time_steps(b));
    YK_TRY(time_host(b, b->request->warmup + b->request->steps));
    if (b->request->trace[0]) YK_TRY(trace_step(b));
    if (b->rank == 0) print_json(b);
    return YK_OK;
}

static void close(bench_step *b)
{
    if (b->feed.engine) yk_feed_fini(&b->feed);
    for (int i = 0; i < N_TIMERS; i++) yk_timer_destroy(b->timers[i]);
    yk_engine_destroy(b->engine);
    yk_plan_fini(&b->plan);
    yk_device_close(b->device);
    yk_config_fini(&b->config);
    free(b->step_s);
}

static yk_status parse(int argc, char **argv, request *r, bool *done_out)
{
    const yk_cli_option options[] = {
        yk_bench_option_model(&r->model),
        yk_bench_option_micro_batch(&r->micro_batch, "sequences at a time (8)"),
        yk_bench_option_seq(&r->seq_len),
        {.name = "batch",
         .type = YK_CLI_INT,
         .out = &r->batch,
         .value = "N",
         .text = "sequences of a step over all ranks (one micro-batch a rank)",
         .min = 1,
         .max = 1000000},
        {.name = "steps",
         .type = YK_CLI_INT,
         .out = &r->steps,
         .value = "N",
         .text = "steps that are timed (20)",
         .min = 1,
         .max = MAX_STEPS},
        {.name = "warmup",
         .type = YK_CLI_INT,
         .out = &r->warmup,
         .value = "N",
         .text = "steps before them (4)",
         .min = 0,
         .max = MAX_STEPS},
        {.name = "precision",
         .type = YK_CLI_TEXT,
         .out = &r->precision,
         .value = "TYPE",
         .text = "fp32, bf16 or fp16 (bf16)",
         .also = "dtype"},
        yk_bench_option_device(&r->device),
        {.name = "set",
         .type = YK_CLI_LIST,
         .out = &r->sets,
         .value = "KEY=VALUE",
         .text = "set any key of a configuration; may be repeated"},
        {.name = "trace",
         .type = YK_CLI_TEXT,
         .out = &r->trace,
         .value = "FILE",
         .text = "record one more step: a table on stderr, a trace for Perfetto in FILE"},
    };
    const yk_cli_command command = {
        .name = "bench step",
        .operands = "",
        .text = "Time training steps of a model on random tokens, as `yoke train` runs them, and\n"
                "print one JSON object. Under mpirun, one rank a process.",
        .example = "yoke bench step --model gpt2-124m --micro-batch 64 --seq 1024",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    int n;
    return yk_cli_parse(&command, argc, argv, NULL, &n, done_out);
}

yk_status yk_bench_step(int argc, char **argv)
{
    bool done = false;
    request r = {.model = "gpt2-124m",
                 .precision = "bf16",
                 .device = "auto",
                 .trace = "",
                 .micro_batch = 8,
                 .seq_len = 1024,
                 .steps = 20,
                 .warmup = 4};
    bench_step b = {.request = &r};
    yk_machine_order_gpus();
    YK_TRY(yk_world_join(&b.world));
    b.rank = yk_world_rank(b.world);
    b.n_ranks = yk_world_size(b.world);
    yk_world_hold(b.world);
    yk_status status = yk_world_agree(b.world, parse(argc, argv, &r, &done));
    if (status == YK_OK && !done) status = bench(&b);
    if (status != YK_OK && b.n_ranks > 1 && yk_status_exit_code(status) != 2)
        yk_world_abort(b.world,
                       yk_status_exit_code(status)); /* the others may wait for this rank */
    close(&b);
    yk_world_leave(b.world);
    return status;
}
