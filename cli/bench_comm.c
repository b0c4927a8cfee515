/* cli/bench_comm.c - `yoke bench comm`: the time of collectives between the ranks that were
 * started, how far from the limit of the links it is, and what matrix products lose meanwhile.
 *
 * A size is that of the whole buffer: what a gather makes and what a reduction takes. Algorithm
 * bandwidth is the size over the time; bus bandwidth is what a link must carry for it at the least,
 * so that it can be compared between collectives and numbers of ranks: (n-1)/n of it for a gather
 * or a scattered sum, twice that for an all-reduce, once for a broadcast.
 *
 * The limit is measured first: what a rank's copies to the host and from it reach each way, both at
 * once, on all ranks together. A share of it is told where it means something: of the bus
 * bandwidth, where every rank's link to the host carries that much each way. So not on processors,
 * which have no such link, not between nodes, not where GPUs reach each other without the host, and
 * not for a broadcast, whose bytes take a link one way alone.
 *
 * On GPUs hostmem's chunks have the length that wins a race for each row, as they have in a run; a
 * broadcast's that of a gather as long.
 */
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/bench_beside.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "comm/race.h"
#include "engine/bind.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/machine/machine.h"

#define SIZE_MIN     ((int64_t)64 << 10)
#define LINK_BYTES   ((int64_t)8 << 20) /* of a copy: as much as collectives have under way */
#define LINK_COPIES  48
#define LINK_TRIES   3
#define STAGING      ((int64_t)256 << 20)
#define STRETCH_S    0.05
#define CALLS_MAX    200
#define STRETCHES    3
#define TIMEOUT_S    60.0
#define RANKS_ON_GPU 16

#define PRODUCTS_MIN ((int64_t)1 << 20) /* bytes of the least buffer beside which products run */

typedef enum kind { GATHER, SCATTER, ALL_REDUCE, BROADCAST, N_KINDS } kind;

static const char *const kind_names[N_KINDS] = {"all-gather", "reduce-scatter", "all-reduce",
                                                "broadcast"};

typedef struct bench {
    yk_world *world;
    yk_device *device;
    yk_stream *gather, *reduce;
    yk_arena *staging;
    yk_comm *comm;
    yk_race race; /* of the row that is timed, over the group's backend */
    yk_dtype dtype;
    char *buffer; /* (buffer_bytes) device memory */
    int64_t buffer_bytes, min_bytes, max_bytes;
    bool json, shares_gpu, beside;
    int n_rows;
    double link_rate;    /* bytes/s each way, of the slowest rank; 0: there is no link */
    yk_beside *products; /* with `beside` */
} bench;

/* What was measured of a buffer. */
typedef struct row {
    kind kind;
    int64_t bytes, chunk_bytes; /* chunks: 0 where nothing is known of them */
    double seconds;
    bool has_loss;
    double loss; /* the share of their rate that products lose beside it */
} row;

static bool speaks(const bench *b)
{
    return yk_world_rank(b->world) == 0;
}

/* ---- the limit ---------------------------------------------------------------------------- */

/* Streams of their own: where ranks share a GPU, one that has copied last waits on the copy engine, which it
 * then keeps from the other ranks for a millisecond. */
typedef struct ways {
    yk_stream *down, *up;
    char *host; /* (2 * LINK_BYTES) */
} ways;

static yk_status copy_both_ways(const bench *b, const ways *w, int n)
{
    char *from = b->buffer, *to = b->buffer + LINK_BYTES;
    for (int i = 0; i < n; i++) {
        YK_TRY(yk_copy(w->down, w->host, from, LINK_BYTES, YK_COPY_DEVICE_TO_HOST));
        YK_TRY(yk_copy(w->up, to, w->host + LINK_BYTES, LINK_BYTES, YK_COPY_HOST_TO_DEVICE));
    }
    YK_TRY(yk_stream_synchronize(w->down));
    return yk_stream_synchronize(w->up);
}

/* The best of a few tries on the slowest rank, as the time of a copy each way. */
static yk_status time_copies(const bench *b, const ways *w, int64_t *ns_out)
{
    int64_t best = INT64_MAX, slowest;
    memset(w->host, 0, 2 * LINK_BYTES);
    YK_TRY(copy_both_ways(b, w, 1));
    for (int i = 0; i < LINK_TRIES; i++) {
        YK_TRY(yk_world_barrier(b->world));
        int64_t begin = yk_clock_ns();
        YK_TRY(copy_both_ways(b, w, LINK_COPIES));
        YK_TRY(yk_world_max(b->world, (yk_clock_ns() - begin) / LINK_COPIES, &slowest));
        best = yk_min(best, slowest);
    }
    *ns_out = best;
    return YK_OK;
}

static yk_status open_link(const bench *b, ways *w)
{
    void *host;
    YK_TRY(yk_stream_create(b->device, YK_STREAM_TRANSFER, "down", &w->down));
    YK_TRY(yk_stream_create(b->device, YK_STREAM_TRANSFER, "up", &w->up));
    YK_TRY(yk_device_alloc(b->device, YK_MEMORY_PINNED, 2 * LINK_BYTES, &host));
    w->host = host;
    return YK_OK;
}

static yk_status measure_link(bench *b)
{
    ways w = {NULL, NULL, NULL};
    int64_t ns = 0;
    if (yk_device_get_kind(b->device) == YK_DEVICE_CPU) return YK_OK;
    yk_status status = open_link(b, &w);
    if (status == YK_OK) status = time_copies(b, &w, &ns);
    yk_device_free(b->device, YK_MEMORY_PINNED, 2 * LINK_BYTES, w.host);
    yk_stream_destroy(w.down);
    yk_stream_destroy(w.up);
    if (status == YK_OK) b->link_rate = (double)LINK_BYTES / (1e-9 * (double)ns);
    return status;
}

/* ---- one row ------------------------------------------------------------------------------ */

static yk_status call(const bench *b, kind k, int64_t count)
{
    int64_t part = count * yk_dtype_bytes(b->dtype);
    char *own = b->buffer + yk_comm_index(b->comm) * part;
    switch (k) {
    case GATHER:
        return yk_comm_all_gather(b->comm, b->buffer, own, count, b->dtype, b->gather);
    case SCATTER:
        return yk_comm_reduce_scatter(b->comm, own, b->buffer, count, b->dtype, false, b->reduce);
    case ALL_REDUCE:
        return yk_comm_all_reduce(b->comm, b->buffer, count, b->dtype, b->reduce);
    default:
        return yk_comm_broadcast(b->comm, b->buffer, yk_comm_size(b->comm) * part, 0, b->gather);
    }
}

/* Seconds of `n` calls on the slowest rank. */
static yk_status time_calls(const bench *b, kind k, int64_t count, int n, double *seconds_out)
{
    int64_t slowest;
    YK_TRY(yk_world_barrier(b->world));
    int64_t begin = yk_clock_ns();
    for (int i = 0; i < n; i++) YK_TRY(call(b, k, count));
    YK_TRY(yk_stream_synchronize(b->gather));
    YK_TRY(yk_stream_synchronize(b->reduce));
    YK_TRY(yk_world_max(b->world, yk_clock_ns() - begin, &slowest));
    *seconds_out = 1e-9 * (double)slowest;
    return YK_OK;
}

/* The median of a few stretches, each long against a start. All ranks see the same seconds, so all
 * make the same number of calls. */
static yk_status time_row(const bench *b, kind k, int64_t count, double *seconds_out)
{
    double seconds[STRETCHES];
    YK_TRY(time_calls(b, k, count, 1, &seconds[0]));
    YK_TRY(time_calls(b, k, count, 1, &seconds[0]));
    int n = (int)yk_max(1, yk_min(CALLS_MAX, (int64_t)(STRETCH_S / seconds[0])));
    for (int i = 0; i < STRETCHES; i++) {
        YK_TRY(time_calls(b, k, count, n, &seconds[i]));
        seconds[i] /= n;
    }
    *seconds_out = yk_bench_median(seconds, STRETCHES);
    return YK_OK;
}

static bool is_gather(kind k)
{
    return k == GATHER || k == BROADCAST;
}

/* Give chunks the length that a run would; on processors that is the rule's. */
static yk_status race_lengths(bench *b, kind k, int64_t count)
{
    static const yk_race_kind kinds[N_KINDS] = {YK_RACE_GATHER, YK_RACE_SCATTER, YK_RACE_ALL_REDUCE,
                                                YK_RACE_GATHER};
    yk_race_track track = {b->world, b->comm, is_gather(k) ? b->gather : b->reduce, b->buffer};
    if (b->race.backends[0] != YK_COMM_HOSTMEM || !b->race.tries_lengths) return YK_OK;
    b->race.n_rows = 1;
    b->race.rows[0] = (yk_race_row){
        .kind = kinds[k], .dtype = b->dtype, .count = count * yk_comm_size(b->comm), .calls = 1};
    return yk_race_time(&track, &b->race, &b->race.rows[0], 0);
}

/* ---- products beside it ------------------------------------------------------------------- */

typedef struct collective {
    const bench *bench;
    kind kind;
    int64_t count;
} collective;

static yk_status issue_collective(const void *context)
{
    const collective *c = context;
    return call(c->bench, c->kind, c->count);
}

static yk_status wait_for_collectives(const void *context)
{
    const bench *b = ((const collective *)context)->bench;
    YK_TRY(yk_stream_synchronize(b->gather));
    return yk_stream_synchronize(b->reduce);
}

static yk_status measure_loss(const bench *b, int64_t count, row *r)
{
    collective c = {b, r->kind, count};
    yk_beside_work work = {issue_collective, wait_for_collectives, &c, r->seconds};
    r->has_loss = true;
    return yk_beside_measure(b->products, &work, &r->loss);
}

/* ---- rows --------------------------------------------------------------------------------- */

static double bus_factor(kind k, int n)
{
    if (k == BROADCAST) return 1;
    return (k == ALL_REDUCE ? 2.0 : 1.0) * (n - 1) / n;
}

/* Does every rank's link carry the bus bandwidth both ways? */
static bool has_share(const bench *b, kind k)
{
    bool by_host = strcmp(yk_comm_backend_name(b->comm), "hostmem") == 0 ||
                   !yk_device_reaches_peers(b->device);
    return b->link_rate > 0 && yk_world_n_nodes(b->world) == 1 && by_host && k != BROADCAST;
}

static void print_json_row(const bench *b, const row *r, double algorithm, double bus)
{
    printf("%s{\"backend\": \"%s\", \"collective\": \"%s\", \"bytes\": %lld, \"seconds\": %.6g, "
           "\"algorithm_rate\": %.6g, \"bus_rate\": %.6g",
           b->n_rows ? ", " : "", yk_comm_backend_name(b->comm), kind_names[r->kind],
           (long long)r->bytes, r->seconds, algorithm, bus);
    if (r->chunk_bytes > 0) printf(", \"chunk_bytes\": %lld", (long long)r->chunk_bytes);
    if (has_share(b, r->kind)) printf(", \"link_share\": %.4f", bus / b->link_rate);
    if (r->has_loss) printf(", \"product_loss\": %.4f", r->loss);
    printf("}");
}

static void print_share(bool has, double share)
{
    if (has)
        printf(" %8.1f%%", 100 * share);
    else
        printf(" %9s", "-");
}

static void print_chunk(int64_t bytes)
{
    if (bytes > 0)
        printf(" %9.3f", (double)bytes / 0x1p20);
    else
        printf(" %9s", "-");
}

static void print_row(bench *b, const row *r)
{
    double algorithm = (double)r->bytes / r->seconds,
           bus = algorithm * bus_factor(r->kind, yk_comm_size(b->comm));
    if (b->json) {
        print_json_row(b, r, algorithm, bus);
    } else {
        printf("%-12s %-15s %11.3f", yk_comm_backend_name(b->comm), kind_names[r->kind],
               (double)r->bytes / 0x1p20);
        print_chunk(r->chunk_bytes);
        printf(" %11.1f %9.2f %9.2f", r->seconds * 1e6, algorithm * 1e-9, bus * 1e-9);
        print_share(has_share(b, r->kind), has_share(b, r->kind) ? bus / b->link_rate : 0);
        if (b->beside) print_share(r->has_loss, r->loss);
        printf("\n");
    }
    b->n_rows++;
    fflush(stdout);
}

static yk_status bench_row(bench *b, kind k, int64_t count)
{
    int64_t part = count * yk_dtype_bytes(b->dtype), all = part * yk_comm_size(b->comm);
    row r = {.kind = k, .bytes = all};
    YK_TRY(race_lengths(b, k, count));
    r.chunk_bytes = yk_comm_chunk_bytes(b->comm, is_gather(k), k == BROADCAST ? all : part);
    YK_TRY(time_row(b, k, count, &r.seconds));
    if (b->beside && r.bytes >= PRODUCTS_MIN) YK_TRY(measure_loss(b, count, &r));
    if (speaks(b)) print_row(b, &r);
    return YK_OK;
}

static yk_status bench_rows(bench *b)
{
    int64_t element = yk_dtype_bytes(b->dtype), unit = 128 * element * yk_comm_size(b->comm);
    for (int k = 0; k < N_KINDS; k++)
        for (int64_t bytes = b->min_bytes; bytes <= b->max_bytes; bytes *= 4) {
            int64_t count = yk_round_up(bytes, unit) / element / yk_comm_size(b->comm);
            if (yk_round_up(bytes, unit) > b->max_bytes) count -= 128;
            YK_TRY(bench_row(b, (kind)k, count));
        }
    return YK_OK;
}

/* ---- backends ----------------------------------------------------------------------------- */

static yk_status bench_backend(bench *b, yk_comm_choice backend)
{
    int mark = yk_arena_mark(b->staging);
    bool gpu = yk_device_get_kind(b->device) == YK_DEVICE_CUDA;
    b->race = (yk_race){.backends = {backend}, .n_backends = 1, .tries_lengths = gpu};
    const yk_comm_options options = {.world = b->world,
                                     .device = b->device,
                                     .backend = backend,
                                     .axis = YK_AXIS_WORLD,
                                     .shares_gpu = b->shares_gpu,
                                     .reduce = YK_REDUCE_EXACT,
                                     .wire = b->dtype,
                                     .max_count = b->max_bytes / yk_dtype_bytes(b->dtype),
                                     .staging = b->staging,
                                     .race = &b->race,
                                     .timeout_s = TIMEOUT_S};
    yk_world_hold(b->world);
    YK_TRY(yk_world_agree(b->world, yk_comm_create(&options, &b->comm)));
    yk_status status = bench_rows(b);
    yk_comm_destroy(b->comm);
    yk_arena_pop(b->staging, mark);
    return status;
}

/* Host memory joins ranks of a node, and NCCL no two ranks on one GPU. */
static yk_status bench_backends(bench *b, yk_comm_choice only)
{
    bool gpu = yk_device_get_kind(b->device) == YK_DEVICE_CUDA;
    yk_comm_choice library = gpu ? YK_COMM_NCCL : YK_COMM_MPI;
    bool has_library = !gpu || (!b->shares_gpu && yk_comm_nccl_version() > 0),
         has_hostmem = yk_world_local_size(b->world) > 1;
    if (only != YK_COMM_AUTO) return bench_backend(b, only);
    if (has_library) YK_TRY(bench_backend(b, library));
    return has_hostmem ? bench_backend(b, YK_COMM_HOSTMEM) : YK_OK;
}

static void print_json_head(const bench *b)
{
    printf("{\"device\": \"%s\", \"dtype\": \"%s\", \"ranks\": %d, \"nodes\": %d, \"shares_gpu\": "
           "%s, ",
           yk_device_get_spec(b->device)->name, yk_dtype_name(b->dtype), yk_world_size(b->world),
           yk_world_n_nodes(b->world), b->shares_gpu ? "true" : "false");
    if (b->link_rate > 0) printf("\"link_rate\": %.6g, ", b->link_rate);
    if (b->beside) printf("\"product_rate\": %.6g, ", yk_beside_rate(b->products));
    printf("\"rows\": [");
}

static void print_head(const bench *b)
{
    if (b->json) {
        print_json_head(b);
        return;
    }
    int n_nodes = yk_world_n_nodes(b->world);
    printf("%s, %s; %d ranks on %d node%s%s", yk_device_get_spec(b->device)->name,
           yk_dtype_name(b->dtype), yk_world_size(b->world), n_nodes, n_nodes == 1 ? "" : "s",
           b->shares_gpu ? ", some on one GPU" : "");
    if (b->link_rate > 0)
        printf("; a rank's link to the host: %.1f GB/s each way, both at once",
               b->link_rate * 1e-9);
    if (b->beside) printf("; products alone: %.3g TFLOP/s", 1e-12 * yk_beside_rate(b->products));
    printf("\n%-12s %-15s %11s %9s %11s %9s %9s %9s", "backend", "collective", "MiB", "chunk MiB",
           "us", "alg GB/s", "bus GB/s", "of link");
    if (b->beside) printf(" %9s", "prod.lost");
    printf("\n");
}

/* ---- the command -------------------------------------------------------------------------- */

static yk_status open_bench(bench *b, bool gpu)
{
    int index = 0, n_cores;
    void *memory;
    YK_TRY(yk_bind_rank(b->world, gpu, RANKS_ON_GPU, &index, &n_cores));
    YK_TRY(gpu ? yk_device_open_cuda(index, &b->device) : yk_device_open_cpu(1, &b->device));
    b->shares_gpu = gpu && yk_world_local_size(b->world) > yk_device_count_cuda();
    if (b->max_bytes == 0) b->max_bytes = (int64_t)(gpu ? 1024 : 64) << 20;
    if (b->min_bytes > b->max_bytes)
        return yk_fail(YK_EINVAL, "--min", "%lld MiB is over --max; give a smaller one",
                       (long long)(b->min_bytes >> 20));
    b->buffer_bytes = yk_max(b->max_bytes, 2 * LINK_BYTES);
    YK_TRY(yk_stream_create(b->device, YK_STREAM_TRANSFER, "gather", &b->gather));
    YK_TRY(yk_stream_create(b->device, YK_STREAM_TRANSFER, "reduce", &b->reduce));
    YK_TRY(yk_arena_create(b->device, "staging", YK_MEMORY_DEVICE, STAGING, 0, &b->staging));
    YK_TRY(yk_device_alloc(b->device, YK_MEMORY_DEVICE, b->buffer_bytes, &memory));
    b->buffer = memory;
    YK_TRY(yk_zero(b->gather, b->buffer, b->buffer_bytes));
    return yk_stream_synchronize(b->gather);
}

static void close_bench(bench *b)
{
    if (!b->device) return;
    yk_beside_destroy(b->products);
    yk_device_free(b->device, YK_MEMORY_DEVICE, b->buffer_bytes, b->buffer);
    yk_arena_destroy(b->staging);
    yk_stream_destroy(b->gather);
    yk_stream_destroy(b->reduce);
    yk_device_close(b->device);
}

static yk_status run(bench *b, bool gpu, yk_comm_choice only)
{
    yk_world_hold(b->world);
    YK_TRY(yk_world_agree(b->world, open_bench(b, gpu)));
    YK_TRY(measure_link(b));
    if (b->beside) YK_TRY(yk_beside_create(b->world, b->device, b->dtype, &b->products));
    if (speaks(b)) print_head(b);
    yk_status status = bench_backends(b, only);
    if (speaks(b) && b->json) printf("]}\n");
    return status;
}

static yk_status find_backend(const char *name, yk_comm_choice *choice_out)
{
    static const char *const names[] = {"all", "mpi", "nccl", "hostmem"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0) {
            *choice_out = (yk_comm_choice)i;
            return YK_OK;
        }
    return yk_fail(YK_EINVAL, "--backend", "\"%s\" is none of all, mpi, nccl, hostmem", name);
}

static yk_status bench_world(bench *b, bool gpu, yk_comm_choice only)
{
    if (yk_world_size(b->world) == 1)
        return yk_fail(YK_EINVAL, "bench comm",
                       "there is one rank, and nobody to talk to; start several: mpirun -n 2 yoke "
                       "bench comm");
    yk_status status = run(b, gpu, only);
    if (status != YK_OK && yk_status_exit_code(status) != 2)
        yk_world_abort(b->world, yk_status_exit_code(status)); /* the others may wait */
    close_bench(b);
    return status;
}

static yk_status read_options(int argc, char **argv, bench *b, yk_comm_choice *only_out,
                              bool *gpu_out, bool *done_out)
{
    const char *device = "auto", *dtype = "bf16", *backend = "all";
    int64_t min_mib = 0, max_mib = 0;
    int n;
    const yk_cli_option options[] = {
        {.name = "backend",
         .type = YK_CLI_TEXT,
         .out = &backend,
         .value = "NAME",
         .text = "mpi, nccl, hostmem, or all that there are (all)"},
        {.name = "min",
         .type = YK_CLI_INT,
         .out = &min_mib,
         .value = "MIB",
         .text = "smallest buffer, in MiB (64 KiB); each next one is four times as large",
         .min = 1,
         .max = 1 << 20},
        {.name = "max",
         .type = YK_CLI_INT,
         .out = &max_mib,
         .value = "MIB",
         .text = "largest buffer, in MiB (1024 on GPUs, else 64)",
         .min = 1,
         .max = 1 << 20},
        yk_bench_option_dtype(&dtype, "fp32, bf16 or fp16, in memory and on the wire (bf16)"),
        yk_bench_option_device(&device),
        {.name = "beside",
         .type = YK_CLI_SWITCH,
         .out = &b->beside,
         .text = "run matrix products meanwhile, and print the share of their rate that is lost"},
        yk_bench_option_json(&b->json),
    };
    const yk_cli_command command = {
        .name = "bench comm",
        .operands = "",
        .text = "Time every collective between the ranks that mpirun started, from 64 KiB on, and "
                "print\nits share of what their links to the host can do, each way with both ways "
                "in use.",
        .example = "mpirun -n 2 yoke bench comm --max 256",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, NULL, &n, done_out));
    if (*done_out) return YK_OK;
    b->min_bytes = min_mib ? min_mib << 20 : SIZE_MIN;
    b->max_bytes = max_mib << 20;
    YK_TRY(yk_bench_find_dtype(dtype, &b->dtype));
    YK_TRY(find_backend(backend, only_out));
    return yk_bench_find_device(device, gpu_out);
}

yk_status yk_bench_comm(int argc, char **argv)
{
    bench b = {.n_rows = 0};
    yk_comm_choice only = YK_COMM_AUTO;
    bool done = false, gpu = false;
    yk_machine_order_gpus();
    YK_TRY(yk_world_join(&b.world));
    yk_world_hold(b.world);
    yk_status status = yk_world_agree(b.world, read_options(argc, argv, &b, &only, &gpu, &done));
    if (status == YK_OK && !done) status = bench_world(&b, gpu, only);
    yk_world_leave(b.world);
    return status;
}
