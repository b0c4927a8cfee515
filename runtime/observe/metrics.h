/* runtime/observe/metrics.h - metrics.jsonl: one JSON object a step, one line each.
 *
 * Lines are appended and each is written by one call, so that a reader sees whole lines and a run
 * that goes on continues the file. Losses have so many digits that equal text means equal bits. A
 * number that is not finite is written as null.
 */
#ifndef YK_RUNTIME_OBSERVE_METRICS_H
#define YK_RUNTIME_OBSERVE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"

/* A step as it is written. */
typedef struct yk_metrics_row {
    int64_t step;
    double loss; /* mean over the step's unmasked tokens, nats */
    bool has_val_loss;
    double val_loss; /* mean over the validation tokens, nats */
    double lr;
    double grad_norm;  /* before clipping */
    double loss_scale; /* for the next step */
    bool skipped;
    int64_t tokens;      /* tokens trained on since the start of the run, this step included */
    double tokens_per_s; /* of this step */
    double step_ms;
    double data_wait_ms;    /* of it, waiting for data */
    bool has_comm;          /* with several ranks, what follows */
    int64_t comm_bytes;     /* that this rank sent to others in the step */
    int64_t comm_flushed;   /* gradients that were not zero and became zero on the wire */
    double comm_ms;         /* its streams were busy with communication */
    double comm_exposed_ms; /* of the step, it waited for communication */
    int64_t device_bytes;   /* device memory that the run holds */
    double mfu;             /* part of the data sheet's rate that the model's own operations made */
    double mfu_product;     /* of a large product's, measured at start; 0: was not measured */
    double start_s;         /* from the process's begin to this step's end; 0 but in the first */
    bool has_gpu;           /* what follows, as the driver said last */
    double gpu_power_w, gpu_temperature_c, gpu_clock_mhz; /* NAN where it does not say */
    double pcie_rx_rate, pcie_tx_rate;                    /* bytes/s */
} yk_metrics_row;

typedef struct yk_metrics yk_metrics;

/* Open `path` for appending; made when it is not there. */
yk_status yk_metrics_open(const char *path, yk_metrics **metrics_out);
yk_status yk_metrics_write(yk_metrics *metrics, const yk_metrics_row *row);
void yk_metrics_close(yk_metrics *metrics);

#endif
