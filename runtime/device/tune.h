/* runtime/device/tune.h - which of several kernels a GPU's products take.
 *
 * Model.    A library offers several algorithms for a product. At the first use of a shape those that
 *           look best are timed on the tensors at hand, as long as it takes for the card's power to
 *           count as it does in a step, and the winner is kept: in the device, and on disk for the next
 *           run, under the name of the card, the driver and the library. Each candidate must repeat its
 *           own bits, so a choice changes them between runs that choose differently, never within one.
 * Ranks.    Those of a run must choose alike: before the first step one exports what it knows, those with
 *           the same kind of card import it, and nobody times after that.
 * Work.     Some work, such as a step of a model, is known by a number. It is told when all shapes of it
 *           have been met, so that a run which finds that it is known need not meet them to time them.
 * Elsewhere than on a GPU there is nothing to choose, and everything here succeeds and does nothing.
 */
#ifndef YK_RUNTIME_DEVICE_TUNE_H
#define YK_RUNTIME_DEVICE_TUNE_H

#include "runtime/device/device.h"

typedef enum yk_tune {
    YK_TUNE_OFF,    /* the library's first choice */
    YK_TUNE_KNOWN,  /* what is on disk, else the library's first choice */
    YK_TUNE_CACHED, /* what is on disk, else what is timed now and written there */
    YK_TUNE_FULL,   /* what is timed now and for longer, whatever is on disk, and written there */
} yk_tune;

/* What timing came to since the device was opened. */
typedef struct yk_tune_sum {
    int n;          /* choices made */
    double seconds; /* that they took */
    double first_ms,
        taken_ms; /* of all, one run each: by the library's first choice, and as chosen */
} yk_tune_sum;

/* Choose from now on as `how` says, products that have run too.                          [local]
 *
 * folder  where choices are kept, "" for nowhere; copied. It is made when it is not there. A file
 *         that cannot be read or written is a warning.
 */
yk_status yk_device_tune(yk_device *device, yk_tune how, const char *folder);

yk_tune_sum yk_device_tune_sum(const yk_device *device); /* [local] */

/* Is all of `work` known, or is there nothing to choose? Say that it is.                 [local] */
bool yk_device_tune_knows(const yk_device *device, uint64_t work);
void yk_device_tune_learned(yk_device *device, uint64_t work);

/* What is known, as text for other ranks, the first line of which names the card, its driver and
 * libraries; nothing where there is nothing to choose. The caller frees it.              [local] */
yk_status yk_device_tune_export(const yk_device *device, char **text_out, int64_t *bytes_out);

/* Know this instead, and time nothing. Choices of another card are left out, with a warning. [local]
 *
 * YK_EFORMAT  it is not what yk_device_tune_export() made
 */
yk_status yk_device_tune_import(yk_device *device, const char *text, int64_t bytes);

#endif
