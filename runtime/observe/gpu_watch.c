/* runtime/observe/gpu_watch.c - see gpu_watch.h. */
#include "runtime/observe/gpu_watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/side_thread.h"

struct yk_gpu_watch {
    yk_nvml *nvml;
    int index;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    bool stopping, any; /* an answer has come */
    yk_nvml_state last;
};

/* Wait for a second, or until the watch is stopped; true then. With the lock held. */
static bool rest(yk_gpu_watch *w)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    while (!w->stopping)
        if (pthread_cond_timedwait(&w->stopped, &w->lock, &until) == ETIMEDOUT) break;
    return w->stopping;
}

static void *watch(void *argument)
{
    yk_gpu_watch *w = argument;
    pthread_mutex_lock(&w->lock);
    do {
        yk_nvml_state state;
        pthread_mutex_unlock(&w->lock);
        bool ok = yk_nvml_sample(w->nvml, w->index, &state) == YK_OK;
        pthread_mutex_lock(&w->lock);
        w->any = w->any || ok;
        if (ok) w->last = state;
    } while (!rest(w));
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* The driver's number of a GPU, or -1. */
static int find(yk_nvml *nvml, const char *bus_id)
{
    for (int i = 0; i < yk_nvml_count(nvml); i++) {
        yk_nvml_gpu gpu;
        char id[32];
        if (yk_nvml_get(nvml, i, &gpu) != YK_OK) continue;
        snprintf(id, sizeof id, "%04x:%02x:%02x.0", gpu.domain, gpu.bus, gpu.device);
        if (strcmp(id, bus_id) == 0) return i;
    }
    return -1;
}

yk_status yk_gpu_watch_start(const char *bus_id, yk_gpu_watch **watch_out)
{
    yk_nvml *nvml;
    const char *why;
    *watch_out = NULL;
    if (yk_nvml_open(&nvml, &why) != YK_OK) return YK_OK;
    int index = find(nvml, bus_id);
    if (index < 0) {
        yk_nvml_close(nvml);
        return YK_OK;
    }
    yk_gpu_watch *w = calloc(1, sizeof *w);
    if (!w) {
        yk_nvml_close(nvml);
        return yk_fail(YK_ENOMEM, "GPU", "no memory to watch it");
    }
    *w = (yk_gpu_watch){.nvml = nvml, .index = index};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->stopped, NULL);
    int error = yk_side_thread_start(&w->thread, watch, w);
    if (error != 0) {
        yk_nvml_close(nvml);
        free(w);
        return yk_fail(YK_ENOMEM, "GPU", "no thread to watch it: %s", strerror(error));
    }
    *watch_out = w;
    return YK_OK;
}

void yk_gpu_watch_stop(yk_gpu_watch *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->stopped);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->stopped);
    pthread_mutex_destroy(&w->lock);
    yk_nvml_close(w->nvml);
    free(w);
}

bool yk_gpu_watch_read(yk_gpu_watch *w, yk_nvml_state *state_out)
{
    if (!w) return false;
    pthread_mutex_lock(&w->lock);
    bool any = w->any;
    if (any) *state_out = w->last;
    pthread_mutex_unlock(&w->lock);
    return any;
}
