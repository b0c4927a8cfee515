/* runtime/observe/metrics.c - rows of numbers as lines of JSON. */
#include "runtime/observe/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/storage/file.h"

/* Longer than any row: every field at its widest. */
#define ROW_MAX 2048

struct yk_metrics {
    yk_file *file;
};

/* A row under way. */
typedef struct line {
    char text[ROW_MAX];
    int length;
} line;

static void add(line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    l->length += vsnprintf(l->text + l->length, (size_t)(ROW_MAX - l->length), format, arguments);
    va_end(arguments);
    YK_CHECK(l->length < ROW_MAX);
}

static void add_number(line *l, const char *name, double value, int digits)
{
    if (isfinite(value))
        add(l, ", \"%s\": %.*g", name, digits, value);
    else
        add(l, ", \"%s\": null", name);
}

static void add_gpu(line *l, const yk_metrics_row *row)
{
    add_number(l, "gpu_power_w", row->gpu_power_w, 5);
    add_number(l, "gpu_temperature_c", row->gpu_temperature_c, 4);
    add_number(l, "gpu_clock_mhz", row->gpu_clock_mhz, 5);
    add_number(l, "pcie_rx_rate", row->pcie_rx_rate, 5);
    add_number(l, "pcie_tx_rate", row->pcie_tx_rate, 5);
}

yk_status yk_metrics_open(const char *path, yk_metrics **metrics_out)
{
    yk_metrics *m = calloc(1, sizeof *m);
    if (!m) return yk_fail(YK_ENOMEM, path, "no memory");
    yk_status status = yk_file_open(path, YK_FILE_APPEND, &m->file);
    if (status != YK_OK) {
        free(m);
        return status;
    }
    *metrics_out = m;
    return YK_OK;
}

yk_status yk_metrics_write(yk_metrics *m, const yk_metrics_row *row)
{
    line l = {.length = 0};
    add(&l, "{\"step\": %" PRId64, row->step);
    add_number(&l, "loss", row->loss, 17);
    if (row->has_val_loss) add_number(&l, "val_loss", row->val_loss, 17);
    add_number(&l, "lr", row->lr, 9);
    add_number(&l, "grad_norm", row->grad_norm, 9);
    add_number(&l, "loss_scale", row->loss_scale, 9);
    add(&l, ", \"skipped\": %s", row->skipped ? "true" : "false");
    add(&l, ", \"tokens\": %" PRId64, row->tokens);
    add_number(&l, "tokens_per_s", row->tokens_per_s, 7);
    add_number(&l, "step_ms", row->step_ms, 7);
    add_number(&l, "data_wait_ms", row->data_wait_ms, 5);
    if (row->has_comm) {
        add(&l, ", \"comm_bytes\": %" PRId64 ", \"comm_flushed\": %" PRId64, row->comm_bytes,
            row->comm_flushed);
        add_number(&l, "comm_ms", row->comm_ms, 5);
        add_number(&l, "comm_exposed_ms", row->comm_exposed_ms, 5);
    }
    add(&l, ", \"device_bytes\": %" PRId64, row->device_bytes);
    if (row->mfu > 0) add_number(&l, "mfu", row->mfu, 5);
    if (row->mfu_product > 0) add_number(&l, "mfu_product", row->mfu_product, 5);
    if (row->start_s > 0) add_number(&l, "start_s", row->start_s, 5);
    if (row->has_gpu) add_gpu(&l, row);
    add(&l, "}\n");
    return yk_file_write(m->file, l.text, l.length);
}

void yk_metrics_close(yk_metrics *m)
{
    if (!m) return;
    (void)yk_file_close(m->file); /* a failure was reported; what was written stays */
    free(m);
}
