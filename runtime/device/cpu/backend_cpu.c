/* runtime/device/cpu/backend_cpu.c - this machine's processors as a device.
 *
 * The table of operations, memory, and the description. Streams and events are in stream_cpu.c.
 */
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/device/cpu/amx.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/gemm.h"

#define ALIGNMENT   256
#define HUGE_PAGE   (2 * 1024 * 1024)
#define MAX_THREADS 1024

typedef struct cpu_device {
    yk_device head;
    int n_threads;
    bool amx_allowed, amx; /* matrix units: may be used, are used */
    atomic_int failure;    /* a yk_status: streams wait for flags no more */
} cpu_device;

/* Memory of a size where the cost of looking up pages shows is put on huge ones, where the system
 * offers them. */
void *yk_cpu_allocate(int64_t bytes)
{
    bool huge = bytes >= 2 * (int64_t)HUGE_PAGE;
    void *p = NULL;
    if (posix_memalign(&p, huge ? HUGE_PAGE : ALIGNMENT, (size_t)bytes) != 0) return NULL;
    if (huge) madvise(p, (size_t)(bytes / HUGE_PAGE * HUGE_PAGE), MADV_HUGEPAGE);
    return p;
}

static yk_status cpu_alloc(yk_device *d, yk_memory_kind kind, int64_t bytes, void **memory_out)
{
    (void)d;
    (void)kind;
    void *p = yk_cpu_allocate(bytes);
    if (!p) return YK_ENOMEM;
    *memory_out = p;
    return YK_OK;
}

static void cpu_room(const yk_device *d, yk_memory_kind kind, char *text_out, size_t size)
{
    (void)d;
    (void)kind;
    long long left = (long long)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    snprintf(text_out, size, "%lld free on this machine", left);
}

static void cpu_free(yk_device *d, yk_memory_kind kind, int64_t bytes, void *memory)
{
    (void)d;
    (void)kind;
    (void)bytes;
    free(memory);
}

int yk_cpu_n_threads(const yk_device *d)
{
    return ((const cpu_device *)d->state)->n_threads;
}

yk_status yk_cpu_failure(const yk_device *d)
{
    return (yk_status)atomic_load(&((const cpu_device *)d->state)->failure);
}

void yk_cpu_fail(yk_device *d, yk_status status)
{
    int none = YK_OK;
    atomic_compare_exchange_strong(&((cpu_device *)d->state)->failure, &none, (int)status);
}

bool yk_cpu_uses_amx(const yk_device *d)
{
    return ((const cpu_device *)d->state)->amx;
}

static void cpu_set_amx(yk_device *d, bool on)
{
    cpu_device *cpu = d->state;
    cpu->amx = on && cpu->amx_allowed;
}

static void cpu_close(yk_device *d)
{
    free(d->state);
}

const yk_workspaces yk_cpu_workspaces = {
    .embed_backward = yk_cpu_embed_backward_bytes,
    .norm_backward = yk_cpu_norm_backward_bytes,
    .linear_forward = yk_cpu_linear_forward_bytes,
    .linear_backward_input = yk_cpu_linear_backward_input_bytes,
    .linear_backward_weight = yk_cpu_linear_backward_weight_bytes,
    .rope = yk_cpu_rope_bytes,
    .attention_forward = yk_cpu_attention_forward_bytes,
    .attention_backward = yk_cpu_attention_backward_bytes,
    .attention_cached = NULL,
    .loss_sum = NULL,
    .sum_squares = yk_cpu_sum_squares_bytes,
};

static const yk_backend backend = {
    .workspaces = &yk_cpu_workspaces,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .room = cpu_room,
    .free = cpu_free,
    .set_amx = cpu_set_amx,
    .stream_create = yk_cpu_stream_create,
    .stream_destroy = yk_cpu_stream_destroy,
    .stream_synchronize = yk_cpu_stream_synchronize,
    .stream_run = yk_cpu_stream_run,
    .stream_now = yk_cpu_stream_now,
    .event_create = yk_cpu_event_create,
    .event_destroy = yk_cpu_event_destroy,
    .event_record = yk_cpu_event_record,
    .event_wait = yk_cpu_event_wait,
    .event_synchronize = yk_cpu_event_synchronize,
    .stream_write_flag = yk_cpu_stream_write_flag,
    .stream_await_flag = yk_cpu_stream_await_flag,
    .fail = yk_cpu_fail,
    .mark = yk_cpu_mark,
    .embed_forward = yk_cpu_embed_forward,
    .embed_backward = yk_cpu_embed_backward,
    .norm_forward = yk_cpu_norm_forward,
    .norm_backward = yk_cpu_norm_backward,
    .linear_forward = yk_cpu_linear_forward,
    .linear_backward_input = yk_cpu_linear_backward_input,
    .linear_backward_weight = yk_cpu_linear_backward_weight,
    .rope = yk_cpu_rope,
    .attention_forward = yk_cpu_attention_forward,
    .attention_backward = yk_cpu_attention_backward,
    .attention_cached = yk_cpu_attention_cached,
    .swiglu_forward = yk_cpu_swiglu_forward,
    .swiglu_backward = yk_cpu_swiglu_backward,
    .cross_entropy = yk_cpu_cross_entropy,
    .loss_sum = yk_cpu_loss_sum,
    .step_begin = yk_cpu_step_begin,
    .sum_squares = yk_cpu_sum_squares,
    .step_finish = yk_cpu_step_finish,
    .adamw = yk_cpu_adamw,
    .draw_normal = yk_cpu_draw_normal,
    .cast = yk_cpu_cast,
    .copy = yk_cpu_stream_copy,
    .zero = yk_cpu_stream_zero,
    .greatest = yk_cpu_greatest,
    .pack = yk_cpu_pack,
    .sum_parts = yk_cpu_sum_parts,
    .sum_values = yk_cpu_sum_values,
};

/* The processor's name as Linux gives it, or "cpu". */
static void read_name(char *name, size_t size)
{
    snprintf(name, size, "cpu");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f) return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(name, size, "%.60s", colon + 2);
        break;
    }
    fclose(f);
}

/* Rates are those of the kernels here on a core of 2.5 GHz, for a plan's estimate of time: they are
 * not measured, so that a plan does not depend on what else the machine was doing. Matrix units gain
 * what was seen where they are. */
static void describe(yk_device_spec *spec, int n_threads, bool amx)
{
    static const double amx_gain[YK_N_FLOAT_DTYPES] = {[YK_F32] = 1.3, [YK_BF16] = 4, [YK_F16] = 2};
    read_name(spec->name, sizeof spec->name);
    spec->kind = YK_DEVICE_CPU;
    spec->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    double matmul = 2.5e9 * 4 * GEMM_LANES * 0.8 * n_threads;
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++) {
        spec->matmul_flops[t] = amx ? matmul * amx_gain[t] : matmul;
        spec->attention_flops[t] = matmul * 0.6;
    }
    spec->memory_rate = n_threads < 8 ? 10e9 * n_threads : 80e9;
    spec->host_link_rate = spec->memory_rate / 2;
    spec->launch_s = 3e-6;
}

yk_status yk_device_open_cpu(int threads, yk_device **device_out)
{
    if (threads < 0 || threads > MAX_THREADS)
        return yk_fail(YK_EINVAL, "cpu.threads",
                       "%d threads were asked for; use 1 to %d, or 0 for "
                       "every processor that this process may use",
                       threads, MAX_THREADS);
    cpu_device *d = calloc(1, sizeof *d);
    if (!d) return yk_fail(YK_ENOMEM, "cpu", "no memory for a device");
    d->n_threads = threads ? threads : (int)yk_min(omp_get_num_procs(), MAX_THREADS);
    d->head.backend = &backend;
    d->head.workspaces = &yk_cpu_workspaces;
    d->head.kind = YK_DEVICE_CPU;
    d->head.state = d;
    d->amx_allowed = yk_cpu_amx_allow();
    d->amx = d->amx_allowed;
    describe(&d->head.spec, d->n_threads, d->amx);
    *device_out = &d->head;
    return YK_OK;
}
