/* runtime/device/cuda/mark_cuda.c - places in time on a GPU's streams, and names for NVIDIA's
 * profilers.
 *
 * A mark is an event with a time, made by its first use and kept, so that a later recording makes
 * none. NVTX is header-only and does nothing while no profiler listens; where its header is not
 * found, names are left out.
 */
#include "runtime/device/cuda/cuda_device.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX 1
#else
#define HAVE_NVTX 0
#endif

yk_status yk_cuda_mark(yk_stream *s, yk_mark *m)
{
    cudaEvent_t event = m->event;
    YK_TRY(yk_cuda_enter(s->device));
    if (!event) {
        YK_TRY(yk_cuda_check(cudaEventCreate(&event), "trace"));
        m->event = event;
    }
    return yk_cuda_check(cudaEventRecord(event, yk_cuda_stream_of(s)), "trace");
}

yk_status yk_cuda_mark_read(yk_device *d, const yk_mark *from, const yk_mark *to, double *s_out)
{
    float ms = 0;
    YK_TRY(yk_cuda_enter(d));
    YK_TRY(yk_cuda_check(cudaEventElapsedTime(&ms, from->event, to->event), "trace"));
    *s_out = 1e-3 * (double)ms;
    return YK_OK;
}

bool yk_cuda_mark_passed(yk_device *d, const yk_mark *m)
{
    (void)cudaSetDevice(((const yk_cuda_state *)d->state)->index);
    if (cudaEventQuery(m->event) == cudaSuccess) return true;
    (void)cudaGetLastError(); /* "not ready" is no error */
    return false;
}

void yk_cuda_mark_destroy(yk_device *d, yk_mark *m)
{
    if (!m->event) return;
    (void)cudaSetDevice(((const yk_cuda_state *)d->state)->index);
    (void)cudaEventDestroy(m->event);
    m->event = NULL;
}

/* Parts follow each other: the range of the last one ends where the next begins. */
void yk_cuda_set_part(yk_device *d, const char *part)
{
#if HAVE_NVTX
    yk_cuda_state *state = d->state;
    if (state->in_part) (void)nvtxRangePop();
    state->in_part = part[0] != '\0';
    if (state->in_part) (void)nvtxRangePushA(part);
#else
    (void)d, (void)part;
#endif
}
