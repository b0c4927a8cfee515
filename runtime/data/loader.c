/* runtime/data/loader.c - see loader.h.
 *
 * The ring, from its oldest buffer on: `n_taken` are with the caller, `n_ready` are filled, the
 * rest are free; the thread fills the first free one. All of that is under one mutex, which is not
 * held while a buffer is filled.
 */
#include "runtime/data/loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/side_thread.h"
#include "runtime/data/sampler.h"

struct yk_loader {
    yk_loader_options o;
    yk_sampler sampler;
    int64_t field;         /* int32 in one field of a buffer: B*T */
    int64_t n_fields;      /* 3 or 4 */
    int32_t *memory;       /* (n_buffers, n_fields, B, T) */
    yk_data_fault *faults; /* (n_buffers) what was wrong with its content */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* any of what follows */
    int first, n_taken, n_ready;
    int64_t next; /* the micro-batch of this rank that is filled next, counted from `position` */
    bool filling, stopping;
};

/* ---- filling ------------------------------------------------------------------------------ */

/* The sample of row b in micro-batch k of this rank. */
static int64_t sample_of(const yk_loader *l, int64_t k, int64_t b)
{
    const yk_loader_options *o = &l->o;
    int64_t a_rank = o->batch / o->world, per_step = a_rank / o->micro_batch;
    return o->position + k / per_step * o->batch + o->rank * a_rank +
           k % per_step * o->micro_batch + b;
}

/* The window of a sample; -1 beyond the end of val. */
static int64_t window_of(const yk_loader *l, int64_t sample)
{
    if (l->o.split == YK_SPLIT_TRAIN) return yk_sampler_at(&l->sampler, sample);
    return sample < l->sampler.n ? sample : -1;
}

/* Fill a buffer with micro-batch k; the first fault, if there is one. */
static yk_data_fault fill(const yk_loader *l, int32_t *buffer, int64_t k)
{
    int64_t seq_len = yk_dataset_seq_len(l->o.dataset);
    yk_data_fault fault = {0};
    for (int64_t b = 0; b < l->o.micro_batch; b++) {
        int32_t *at = buffer + b * seq_len;
        yk_row row = {.tokens = at,
                      .targets = at + l->field,
                      .positions = at + 2 * l->field,
                      .doc_start = l->n_fields > 3 ? at + 3 * l->field : NULL};
        int64_t window = window_of(l, sample_of(l, k, b));
        if (yk_dataset_fill(l->o.dataset, l->o.split, window, &row, &fault) != YK_OK) break;
    }
    return fault;
}

static int32_t *buffer_at(const yk_loader *l, int index)
{
    return l->memory + index * l->n_fields * l->field;
}

static void *run(void *context)
{
    yk_loader *l = context;
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        if (l->n_taken + l->n_ready == l->o.n_buffers) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        int index = (l->first + l->n_taken + l->n_ready) % l->o.n_buffers;
        int64_t k = l->next++;
        l->filling = true;
        pthread_mutex_unlock(&l->lock);
        yk_data_fault fault = fill(l, buffer_at(l, index), k);
        pthread_mutex_lock(&l->lock);
        l->faults[index] = fault;
        l->filling = false;
        l->n_ready++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the loader's life -------------------------------------------------------------------- */

static int64_t buffer_elements(const yk_loader_options *o)
{
    return yk_dataset_n_fields(o->dataset) * o->micro_batch * yk_dataset_seq_len(o->dataset);
}

int64_t yk_loader_bytes(const yk_loader_options *options)
{
    return options->n_buffers * buffer_elements(options) * (int64_t)sizeof(int32_t);
}

static yk_status check(const yk_loader_options *o)
{
    bool sane = o->batch > 0 && o->micro_batch > 0 && o->world > 0 && o->rank >= 0 &&
                o->rank < o->world && o->position >= 0 && o->n_buffers > 0;
    if (!sane || o->batch % (o->world * o->micro_batch) != 0) {
        return yk_fail(YK_EINVAL, "data",
                       "a batch of %lld is no multiple of %lld ranks times micro-batches of %lld",
                       (long long)o->batch, (long long)o->world, (long long)o->micro_batch);
    }
    if (yk_dataset_n_windows(o->dataset, o->split) > 0) return YK_OK;
    return yk_fail(YK_EINVAL, o->split == YK_SPLIT_TRAIN ? "data.train" : "data.val",
                   "there are no tokens");
}

static yk_status start(yk_loader *l)
{
    int err = yk_side_thread_start(&l->thread, run, l);
    if (err) return yk_fail(YK_EIO, "data", "no thread to read ahead: %s", strerror(err));
    return YK_OK;
}

yk_status yk_loader_create(const yk_loader_options *options, void *memory, yk_loader **loader_out)
{
    YK_TRY(check(options));
    yk_loader *l = calloc(1, sizeof *l);
    if (l) l->faults = calloc((size_t)options->n_buffers, sizeof *l->faults);
    if (!l || !l->faults) {
        free(l);
        return yk_fail(YK_ENOMEM, "data", "no memory to read ahead");
    }
    l->o = *options;
    l->sampler = (yk_sampler){.n = yk_dataset_n_windows(options->dataset, options->split),
                              .seed = options->seed};
    l->field = options->micro_batch * yk_dataset_seq_len(options->dataset);
    l->n_fields = yk_dataset_n_fields(options->dataset);
    l->memory = memory;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    yk_status status = start(l);
    if (status != YK_OK) {
        pthread_cond_destroy(&l->changed);
        pthread_mutex_destroy(&l->lock);
        free(l->faults);
        free(l);
        return status;
    }
    *loader_out = l;
    return YK_OK;
}

void yk_loader_destroy(yk_loader *loader)
{
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    pthread_join(loader->thread, NULL);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    free(loader->faults);
    free(loader);
}

yk_status yk_loader_next(yk_loader *loader, int32_t **buffer_out)
{
    pthread_mutex_lock(&loader->lock);
    YK_CHECK(loader->n_taken < loader->o.n_buffers);
    while (loader->n_ready == 0) pthread_cond_wait(&loader->changed, &loader->lock);
    int index = (loader->first + loader->n_taken) % loader->o.n_buffers;
    yk_data_fault fault = loader->faults[index];
    if (!fault.path) {
        loader->n_ready--;
        loader->n_taken++;
    }
    pthread_mutex_unlock(&loader->lock);
    if (fault.path) return yk_dataset_report(loader->o.dataset, &fault);
    *buffer_out = buffer_at(loader, index);
    return YK_OK;
}

void yk_loader_recycle(yk_loader *loader, int32_t *buffer)
{
    pthread_mutex_lock(&loader->lock);
    YK_CHECK(loader->n_taken > 0 && buffer == buffer_at(loader, loader->first));
    loader->first = (loader->first + 1) % loader->o.n_buffers;
    loader->n_taken--;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

void yk_loader_seek(yk_loader *loader, int64_t position)
{
    pthread_mutex_lock(&loader->lock);
    YK_CHECK(loader->n_taken == 0 && position >= 0);
    while (loader->filling) pthread_cond_wait(&loader->changed, &loader->lock);
    loader->o.position = position;
    loader->next = 0;
    loader->n_ready = 0;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}
