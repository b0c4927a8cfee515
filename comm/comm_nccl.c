/* comm/comm_nccl.c - collectives from GPU to GPU, carried by NCCL: making and releasing a group, and
 * what surrounds each collective. How it works is in nccl_group.h.
 */
#include <errno.h>
#include <time.h>

#include "comm/nccl_group.h"
#include "comm/world_mpi.h"
#include "runtime/base/clock.h"
#include "runtime/device/cuda/native.h"

double yk_nccl_deadline(const yk_comm *c)
{
    if (c->o.timeout_s > 0 || !c->o.world) return c->o.timeout_s;
    return c->o.world->timeout_s;
}

static yk_status check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return YK_OK;
    return yk_fail(YK_EDEVICE, what, "%s", cudaGetErrorString(error));
}

/* ---- what streams have passed ------------------------------------------------------------- */

void yk_nccl_collect(nccl_group *g)
{
    yk_comm *c = g->comm;
    for (; g->n_passed < g->n_begun; g->n_passed++) {
        const nccl_passing *p = &g->ring[g->n_passed % NCCL_PASSING_MAX];
        float ms = 0;
        if (cudaEventQuery(p->end) != cudaSuccess) break;
        if (cudaEventElapsedTime(&ms, p->begin, p->end) == cudaSuccess)
            atomic_fetch_add(&c->busy_ns, (int64_t)((double)ms * 1e6));
        atomic_fetch_add(&c->bytes_sent, p->bytes);
        atomic_fetch_add(&c->n_collectives, 1);
        g->still_s = 0;
    }
    (void)cudaGetLastError(); /* "not ready" is no error */
    atomic_store(&c->n_flushed, *(volatile int64_t *)g->n_flushed);
}

static int64_t nccl_flushed(const yk_comm *c)
{
    nccl_group *g = yk_nccl_group_of(c);
    pthread_mutex_lock(&g->lock);
    (void)cudaSetDevice(g->device);
    yk_nccl_collect(g);
    pthread_mutex_unlock(&g->lock);
    return atomic_load(&c->n_flushed);
}

/* A place in the ring; waits for the oldest collective where there is none. */
static yk_status take_place(nccl_group *g, nccl_passing **passing_out)
{
    const nccl_passing *oldest = &g->ring[g->n_passed % NCCL_PASSING_MAX];
    if (g->n_begun - g->n_passed == NCCL_PASSING_MAX) {
        YK_TRY(check(cudaEventSynchronize(oldest->end), "collective"));
        pthread_mutex_lock(&g->lock);
        yk_nccl_collect(g);
        pthread_mutex_unlock(&g->lock);
    }
    *passing_out = &g->ring[g->n_begun % NCCL_PASSING_MAX];
    return YK_OK;
}

yk_status yk_nccl_begin(yk_comm *c, nccl_lane_name name, int64_t bytes, yk_stream *stream,
                        cudaStream_t *stream_out)
{
    nccl_group *g = yk_nccl_group_of(c);
    nccl_lane *lane = &g->lanes[name];
    nccl_passing *p;
    cudaStream_t s;
    YK_TRY(yk_cuda_native(stream, &s));
    YK_TRY(take_place(g, &p));
    if (lane->last && lane->last != s)
        YK_TRY(check(cudaStreamWaitEvent(s, lane->done, 0), "collective"));
    p->bytes = bytes;
    YK_TRY(check(cudaEventRecord(p->begin, s), "collective"));
    lane->last = s;
    if (stream_out) *stream_out = s;
    return YK_OK;
}

yk_status yk_nccl_end(yk_comm *c, nccl_lane_name name, yk_stream *stream)
{
    nccl_group *g = yk_nccl_group_of(c);
    nccl_passing *p = &g->ring[g->n_begun % NCCL_PASSING_MAX];
    cudaStream_t s;
    YK_TRY(yk_cuda_native(stream, &s));
    YK_TRY(check(cudaEventRecord(p->end, s), "collective"));
    YK_TRY(check(cudaEventRecord(g->lanes[name].done, s), "collective"));
    pthread_mutex_lock(&g->lock);
    g->n_begun++;
    pthread_mutex_unlock(&g->lock);
    return YK_OK;
}

/* ---- NCCL's answers ----------------------------------------------------------------------- */

static void abort_lanes(nccl_group *g)
{
    for (int i = 0; i < NCCL_N_LANES; i++) {
        if (g->lanes[i].comm) (void)g->nccl.comm_abort(g->lanes[i].comm);
        g->lanes[i].comm = NULL;
    }
}

void yk_nccl_give_up(yk_comm *c, yk_status status)
{
    nccl_group *g = yk_nccl_group_of(c);
    int none = YK_OK;
    atomic_compare_exchange_strong(&c->failed, &none, (int)status);
    if (c->o.world) c->o.world->failed = status;
    yk_device_fail(c->o.device, status);
    abort_lanes(g);
}

/* What NCCL says of a lane after `result`. */
static ncclResult_t look(const nccl_group *g, const nccl_lane *lane, ncclResult_t result)
{
    ncclResult_t state = result;
    if (result == ncclInProgress && lane->comm) {
        ncclResult_t asked = g->nccl.comm_async_error(lane->comm, &state);
        if (asked != ncclSuccess) state = asked;
    }
    return state;
}

static yk_status fail_call(const yk_comm *c, const nccl_lane *lane, ncclResult_t result,
                           const char *what)
{
    const nccl_group *g = yk_nccl_group_of(c);
    bool device = result == ncclUnhandledCudaError;
    return yk_fail(device ? YK_EDEVICE : YK_EPEER, what, "NCCL reports: %s; %s",
                   g->nccl.error_string(result), lane->comm ? g->nccl.last_error(lane->comm) : "");
}

yk_status yk_nccl_finish(yk_comm *c, nccl_lane_name name, ncclResult_t result, const char *what)
{
    nccl_group *g = yk_nccl_group_of(c);
    nccl_lane *lane = &g->lanes[name];
    double begin_s = yk_clock_s(), timeout_s = yk_nccl_deadline(c);
    const struct timespec pause = {.tv_nsec = 50000};
    yk_status status = YK_OK;
    while ((result = look(g, lane, result)) == ncclInProgress && !atomic_load(&c->failed)) {
        if (timeout_s > 0 && yk_clock_s() - begin_s > timeout_s) break;
        pthread_mutex_unlock(&g->lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&g->lock);
    }
    if (atomic_load(&c->failed))
        status = (yk_status)atomic_load(&c->failed);
    else if (result == ncclInProgress)
        status =
            yk_fail(YK_ETIMEDOUT, what,
                    "another rank did not arrive within %.3g s; it has died, hangs or is slow; "
                    "give a slow one more time with comm.timeout",
                    timeout_s);
    else if (result != ncclSuccess)
        status = fail_call(c, lane, result, what);
    if (status != YK_OK && !atomic_load(&c->failed)) yk_nccl_give_up(c, status);
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* ---- making and releasing a group --------------------------------------------------------- */

static yk_status create_events(nccl_group *g)
{
    for (int i = 0; i < NCCL_N_LANES; i++)
        YK_TRY(check(cudaEventCreateWithFlags(&g->lanes[i].done, cudaEventDisableTiming), "group"));
    for (int i = 0; i < NCCL_PASSING_MAX; i++) {
        YK_TRY(check(cudaEventCreate(&g->ring[i].begin), "group"));
        YK_TRY(check(cudaEventCreate(&g->ring[i].end), "group"));
    }
    return YK_OK;
}

static void destroy_events(nccl_group *g)
{
    for (int i = 0; i < NCCL_N_LANES; i++)
        if (g->lanes[i].done) (void)cudaEventDestroy(g->lanes[i].done);
    for (int i = 0; i < NCCL_PASSING_MAX; i++) {
        if (g->ring[i].begin) (void)cudaEventDestroy(g->ring[i].begin);
        if (g->ring[i].end) (void)cudaEventDestroy(g->ring[i].end);
    }
}

/* Point into the staging memory. */
static void lay_out(yk_comm *c, nccl_group *g)
{
    nccl_layout l = yk_comm_nccl_lay_out(c);
    c->greatest = (float *)(void *)(c->staging + l.greatest);
    g->meeting = (float *)(void *)(c->staging + l.meeting);
    g->values = (yk_step_values *)(void *)(c->staging + l.values);
    g->exact = (yk_exact){.comm = c,
                          .carrier = &yk_nccl_carrier,
                          .n_flushed = (int64_t *)(void *)(c->staging + l.n_flushed)};
}

/* What this rank has for itself. */
static yk_status create_own(yk_comm *c, nccl_group *g)
{
    nccl_layout l = yk_comm_nccl_lay_out(c);
    cudaStream_t sums;
    void *pinned;
    YK_TRY(yk_nccl_library_load(&g->nccl));
    YK_TRY(yk_exact_init(&g->exact));
    YK_TRY(yk_cuda_native(g->exact.sums, &sums));
    YK_TRY(check(cudaGetDevice(&g->device), "group"));
    YK_TRY(yk_device_alloc(c->o.device, YK_MEMORY_PINNED, sizeof(int64_t), &pinned));
    g->n_flushed = pinned;
    *g->n_flushed = 0;
    YK_TRY(create_events(g));
    YK_TRY(yk_zero(g->exact.sums, c->staging + l.greatest, l.bytes - l.greatest));
    return yk_stream_synchronize(g->exact.sums);
}

/* Leave in order; a group that failed has given its communicators up. */
static void leave_lanes(yk_comm *c, nccl_group *g)
{
    for (int i = 0; i < NCCL_N_LANES; i++) {
        pthread_mutex_lock(&g->lock);
        ncclComm_t comm = g->lanes[i].comm;
        if (!comm) {
            pthread_mutex_unlock(&g->lock);
            continue;
        }
        ncclResult_t result = g->nccl.comm_finalize(comm);
        if (yk_nccl_finish(c, (nccl_lane_name)i, result, "leaving a group") != YK_OK) continue;
        (void)g->nccl.comm_destroy(comm);
        g->lanes[i].comm = NULL;
    }
}

static void nccl_destroy(yk_comm *c)
{
    nccl_group *g = yk_nccl_group_of(c);
    (void)cudaSetDevice(g->device);
    yk_nccl_guard_stop(g);
    leave_lanes(c, g);
    yk_exact_fini(&g->exact);
    destroy_events(g);
    yk_device_free(c->o.device, YK_MEMORY_PINNED, sizeof(int64_t), g->n_flushed);
    pthread_mutex_destroy(&g->lock);
}

static yk_status nccl_create(yk_comm *c)
{
    nccl_group *g = yk_nccl_group_of(c);
    g->comm = c;
    g->wake = -1;
    pthread_mutex_init(&g->lock, NULL);
    lay_out(c, g);
    yk_status status = yk_nccl_join(c, create_own(c, g));
    if (status == YK_OK) status = yk_nccl_guard_start(c);
    if (status == YK_OK) return YK_OK;
    pthread_mutex_lock(&g->lock);
    abort_lanes(g);
    pthread_mutex_unlock(&g->lock);
    return status;
}

const yk_comm_backend yk_comm_nccl = {
    .name = "nccl",
    .state_bytes = sizeof(nccl_group),
    .create = nccl_create,
    .destroy = nccl_destroy,
    .all_gather = yk_nccl_all_gather,
    .reduce = yk_nccl_reduce,
    .greatest = yk_nccl_greatest,
    .all_reduce_values = yk_nccl_all_reduce_values,
    .broadcast = yk_nccl_broadcast,
    .barrier = yk_nccl_barrier,
    .flushed = nccl_flushed,
};
