/* runtime/data/loader.h - micro-batches, made ready by a thread before they are asked for.
 *
 * Model.    A thread fills buffers in memory that the caller lends, in a ring: filled, taken by
 *           yk_loader_next(), given back by yk_loader_recycle(). A buffer is one block of int32:
 *           tokens (B,T), targets (B,T), positions (B,T) and, with data.doc_mask, doc_start (B,T), so
 *           that one copy brings it to a device.
 * Order.    Sample i of a part is window yk_sampler_at(i) in train, window i in val. Step s takes
 *           samples s*batch .. s*batch + batch-1; of those rank r takes batch/world in a row, and
 *           each micro-batch B in a row. So which samples make a step depends on `batch` alone.
 *           Val is walked once; rows beyond its last window have no target.
 * Threads.  One caller at a time; the loader's own thread takes no signals.
 * Failure.  An id outside of the vocabulary is reported by the yk_loader_next() that meets it, not
 *           when it is read ahead. After that only destroying is useful.
 */
#ifndef YK_RUNTIME_DATA_LOADER_H
#define YK_RUNTIME_DATA_LOADER_H

#include "runtime/data/data.h"

typedef struct yk_loader yk_loader;

typedef struct yk_loader_options {
    const yk_dataset *dataset; /* borrowed until the loader is destroyed */
    yk_split split;
    int64_t batch;       /* samples of a step over all ranks; a multiple of world * micro_batch */
    int64_t micro_batch; /* B */
    int64_t rank, world;
    int64_t seed;     /* of the order in train */
    int64_t position; /* samples of the part that were taken before */
    int n_buffers;    /* >= 1; with 2 or more the next is filled while one is held */
} yk_loader_options;

/* Bytes of memory that a loader of these options needs.                                  [local] */
int64_t yk_loader_bytes(const yk_loader_options *options);

/* Create a loader and begin to fill; the caller owns it.                                 [local]
 *
 * memory  yk_loader_bytes() of host memory, aligned to 4 bytes; borrowed until the loader is
 *         destroyed
 *
 * YK_EINVAL  the part has no window; batch is no multiple of world * micro_batch
 * YK_EIO     no thread could be started
 */
yk_status yk_loader_create(const yk_loader_options *options, void *memory, yk_loader **loader_out);

/* Stop the thread and release the loader, whatever is still held. NULL does nothing. */
void yk_loader_destroy(yk_loader *loader);

/* Wait for the next micro-batch and take its buffer, which is borrowed until it is given back. At
 * most n_buffers may be held at a time.                                                  [local]
 *
 * YK_EFORMAT  a token id is outside of the vocabulary: file, position and id are reported
 */
yk_status yk_loader_next(yk_loader *loader, int32_t **buffer_out);

/* Give back the buffer that was taken first of those held.                               [local] */
void yk_loader_recycle(yk_loader *loader, int32_t *buffer);

/* Go on from another position, as if created with it. No buffer may be held.             [local] */
void yk_loader_seek(yk_loader *loader, int64_t position);

#endif
