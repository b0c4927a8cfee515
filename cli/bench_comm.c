/* cli/bench_comm.c - `yoke bench comm`: the time of collectives between the ranks that were started, and
 * how far from the limit of the links it is.
 *
 * A size is that of the whole buffer: what a gather makes and what a reduction takes. Algorithm bandwidth
 * is the size over the time; bus bandwidth is what a link must carry for it at the least, so that it can
 * be compared between collectives and numbers of ranks: (n-1)/n of it for a gather or a scattered sum,
 * twice that for an all-reduce, once for a broadcast. The limit is measured first: what a rank's copies
 * to the host and from it reach each way, both at once, on all ranks together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "engine/bind.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/machine/machine.h"

#define SIZE_MIN     ((int64_t)64 << 10)
#define LINK_BYTES   ((int64_t)64 << 20)
#define STAGING      ((int64_t)256 << 20)
#define STRETCH_S    0.05
#define CALLS_MAX    200
#define STRETCHES    3
#define TIMEOUT_S    60.0
#define RANKS_ON_GPU 16

typedef enum kind { GATHER, SCATTER, ALL_REDUCE, BROADCAST, N_KINDS } kind;

static const char *const kind_names[N_KINDS] = {"all-gather", "reduce-scatter", "all-reduce",
                                                "broadcast"};

typedef struct bench {
    yk_world *world;
    yk_device *device;
    yk_stream *gather, *reduce;
    yk_arena *staging;
    yk_comm *comm;
    yk_dtype dtype;
    char *buffer; /* (buffer_bytes) device memory */
    int64_t buffer_bytes, max_bytes;
    bool json, shares_gpu;
    int n_rows;
    double link_rate; /* bytes/s each way, of the slowest rank */
} bench;

static bool speaks(const bench *b)
{
    return yk_world_rank(b->world) == 0;
}

/* ---- the limit ---------------------------------------------------------------------------- */

static yk_status copy_both_ways(const bench *b, char *host, int n)
{
    char *down = b->buffer, *up = b->buffer + LINK_BYTES;
    for (int i = 0; i < n; i++) {
        YK_TRY(yk_copy(b->gather, host, down, LINK_BYTES, YK_COPY_DEVICE_TO_HOST));
        YK_TRY(yk_copy(b->reduce, up, host + LINK_BYTES, LINK_BYTES, YK_COPY_HOST_TO_DEVICE));
    }
    YK_TRY(yk_stream_synchronize(b->gather));
    return yk_stream_synchronize(b->reduce);
}

static yk_status time_copies(const bench *b, char *host, int64_t *ns_out)
{
    enum { N = 6 };
    memset(host, 0, 2 * LINK_BYTES);
    YK_TRY(copy_both_ways(b, host, 1));
    YK_TRY(yk_world_barrier(b->world));
    int64_t begin = yk_clock_ns();
    YK_TRY(copy_both_ways(b, host, N));
    *ns_out = (yk_clock_ns() - begin) / N;
    return YK_OK;
}

static yk_status measure_link(bench *b)
{
    void *host;
    int64_t mine = 0, slowest;
    YK_TRY(yk_device_alloc(b->device, YK_MEMORY_PINNED, 2 * LINK_BYTES, &host));
    yk_status status = time_copies(b, host, &mine);
    yk_device_free(b->device, YK_MEMORY_PINNED, 2 * LINK_BYTES, host);
    if (status == YK_OK) status = yk_world_max(b->world, mine, &slowest);
    if (status == YK_OK) b->link_rate = (double)LINK_BYTES / (1e-9 * (double)slowest);
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

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of a few stretches, each long against a start. All ranks see the same seconds, so all make
 * the same number of calls. */
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
    qsort(seconds, STRETCHES, sizeof *seconds, compare_doubles);
    *seconds_out = seconds[STRETCHES / 2];
    return YK_OK;
}

static double bus_factor(kind k, int n)
{
    if (k == BROADCAST) return 1;
    return (k == ALL_REDUCE ? 2.0 : 1.0) * (n - 1) / n;
}

static void print_row(bench *b, kind k, int64_t bytes, double seconds)
{
    double algorithm = (double)bytes / seconds,
           bus = algorithm * bus_factor(k, yk_comm_size(b->comm));
    const char *backend = yk_comm_backend_name(b->comm);
    if (b->json)
        printf("%s\n {\"backend\": \"%s\", \"collective\": \"%s\", \"bytes\": %lld, \"seconds\": "
               "%.6g, \"algorithm_rate\": %.6g, \"bus_rate\": %.6g, \"link_share\": %.4f}",
               b->n_rows ? "," : "", backend, kind_names[k], (long long)bytes, seconds, algorithm,
               bus, bus / b->link_rate);
    else
        printf("%-8s %-15s %11.3f %11.1f %9.2f %9.2f %6.0f%%\n", backend, kind_names[k],
               (double)bytes / 0x1p20, seconds * 1e6, algorithm * 1e-9, bus * 1e-9,
               100 * bus / b->link_rate);
    b->n_rows++;
    fflush(stdout);
}

static yk_status bench_rows(bench *b)
{
    int64_t element = yk_dtype_bytes(b->dtype), unit = 128 * element * yk_comm_size(b->comm);
    for (int k = 0; k < N_KINDS; k++)
        for (int64_t bytes = SIZE_MIN; bytes <= b->max_bytes; bytes *= 4) {
            int64_t count = yk_round_up(bytes, unit) / element / yk_comm_size(b->comm);
            double seconds;
            if (yk_round_up(bytes, unit) > b->max_bytes) count -= 128;
            YK_TRY(time_row(b, (kind)k, count, &seconds));
            if (speaks(b)) print_row(b, (kind)k, count * element * yk_comm_size(b->comm), seconds);
        }
    return YK_OK;
}

/* ---- backends ----------------------------------------------------------------------------- */

static yk_status bench_backend(bench *b, yk_comm_choice backend)
{
    int mark = yk_arena_mark(b->staging);
    YK_TRY(yk_comm_create(&(yk_comm_options){.world = b->world,
                                             .device = b->device,
                                             .backend = backend,
                                             .axis = YK_AXIS_WORLD,
                                             .reduce = YK_REDUCE_EXACT,
                                             .wire = b->dtype,
                                             .max_count = b->max_bytes / yk_dtype_bytes(b->dtype),
                                             .staging = b->staging,
                                             .timeout_s = TIMEOUT_S},
                          &b->comm));
    yk_status status = bench_rows(b);
    yk_comm_destroy(b->comm);
    yk_arena_pop(b->staging, mark);
    return status;
}

/* Host memory joins the ranks of a node alone, and NCCL no two ranks on one GPU. */
static yk_status bench_backends(bench *b, yk_comm_choice only)
{
    bool gpu = yk_device_get_kind(b->device) == YK_DEVICE_CUDA;
    yk_comm_choice library = gpu ? YK_COMM_NCCL : YK_COMM_MPI;
    bool has_library = !gpu || (!b->shares_gpu && yk_comm_has_nccl()),
         has_hostmem = yk_world_n_nodes(b->world) == 1;
    if (only != YK_COMM_AUTO) return bench_backend(b, only);
    if (has_library) YK_TRY(bench_backend(b, library));
    return has_hostmem ? bench_backend(b, YK_COMM_HOSTMEM) : YK_OK;
}

static void print_head(const bench *b)
{
    const char *name = yk_device_get_spec(b->device)->name, *dtype = yk_dtype_name(b->dtype);
    int n = yk_world_size(b->world), nodes = yk_world_n_nodes(b->world);
    if (b->json) {
        printf("{\"device\": \"%s\", \"dtype\": \"%s\", \"ranks\": %d, \"nodes\": %d, "
               "\"shares_gpu\": %s, \"link_rate\": %.6g, \"rows\": [",
               name, dtype, n, nodes, b->shares_gpu ? "true" : "false", b->link_rate);
        return;
    }
    printf("%s, %s; %d ranks on %d nodes%s; measured: %.1f GB/s each way, both at once\n", name,
           dtype, n, nodes, b->shares_gpu ? ", some on one GPU" : "", b->link_rate * 1e-9);
    printf("%-8s %-15s %11s %11s %9s %9s %7s\n", "backend", "collective", "MiB", "us", "alg GB/s",
           "bus GB/s", "limit");
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

static yk_status find_device(const char *name, bool *gpu_out)
{
    bool is_auto = strcmp(name, "auto") == 0;
    if (!is_auto && strcmp(name, "cpu") != 0 && strcmp(name, "cuda") != 0)
        return yk_fail(YK_EINVAL, "--device", "\"%s\" is none of auto, cpu, cuda", name);
    *gpu_out = is_auto ? yk_device_count_cuda() > 0 : name[1] == 'u';
    return YK_OK;
}

static yk_status bench_world(bench *b, bool gpu, yk_comm_choice only)
{
    YK_TRY(yk_world_join(&b->world));
    yk_status status = YK_OK;
    if (yk_world_size(b->world) == 1)
        status =
            yk_fail(YK_EINVAL, "bench comm",
                    "there is one rank, and nobody to talk to; start several: mpirun -n 2 yoke "
                    "bench comm");
    if (status == YK_OK) status = run(b, gpu, only);
    if (status != YK_OK && yk_world_size(b->world) > 1)
        yk_world_abort(b->world, yk_status_exit_code(status)); /* the others may wait */
    close_bench(b);
    yk_world_leave(b->world);
    return status;
}

yk_status yk_bench_comm(int argc, char **argv)
{
    const char *device = "auto", *dtype = "bf16", *backend = "all";
    int64_t max_mib = 0;
    bool done, gpu = false;
    int n;
    bench b = {.n_rows = 0};
    yk_comm_choice only = YK_COMM_AUTO;
    const yk_cli_option options[] = {
        {.name = "backend",
         .type = YK_CLI_TEXT,
         .out = &backend,
         .value = "NAME",
         .text = "mpi, nccl, hostmem, or all that there are (all)"},
        {.name = "max",
         .type = YK_CLI_INT,
         .out = &max_mib,
         .value = "MIB",
         .text = "largest buffer, in MiB (1024 on GPUs, else 64)",
         .min = 1,
         .max = 1 << 20},
        {.name = "dtype",
         .type = YK_CLI_TEXT,
         .out = &dtype,
         .value = "TYPE",
         .text = "fp32, bf16 or fp16, in memory and on the wire (bf16)"},
        {.name = "device",
         .type = YK_CLI_TEXT,
         .out = &device,
         .value = "DEVICE",
         .text = "auto, cpu or cuda (auto)"},
        {.name = "json", .type = YK_CLI_SWITCH, .out = &b.json, .text = "print one JSON object"},
    };
    const yk_cli_command command = {
        .name = "bench comm",
        .operands = "",
        .text = "Time every collective between the ranks that mpirun started, from 64 KiB on, and "
                "print\nits share of what their links to the host can do.",
        .example = "mpirun -n 2 yoke bench comm --max 256",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, NULL, &n, &done));
    if (done) return YK_OK;
    YK_TRY(yk_bench_find_dtype(dtype, &b.dtype));
    YK_TRY(find_backend(backend, &only));
    yk_machine_order_gpus();
    YK_TRY(find_device(device, &gpu));
    b.max_bytes = max_mib << 20;
    return bench_world(&b, gpu, only);
}
