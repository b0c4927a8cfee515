/* cli/bench.h - timing operations: memory with random content, and medians.
 *
 * Model.    A yk_bench has one large piece of device memory, from which a case takes its tensors. It
 *           takes several sets of them where they are small, and runs through the sets in turn, so
 *           that what is timed comes from memory and not from the cache. A row is the median of
 *           several stretches, each long against the time of a launch.
 */
#ifndef YK_CLI_BENCH_H
#define YK_CLI_BENCH_H

#include "cli/options.h"
#include "models/model.h"
#include "runtime/device/ops.h"

#define YK_BENCH_MAX_ROWS 80
#define YK_BENCH_MAX_SETS 8

typedef struct yk_bench_row {
    char name[32];
    char size[48];    /* the operation's sizes, for people */
    double seconds;   /* median of one call */
    double low, high; /* the fastest and slowest stretch, of one call */
    yk_cost cost;
    bool no_limit; /* something holds it up that is not measured here */
} yk_bench_row;

typedef struct yk_bench {
    yk_device *device, *dry;
    yk_stream *stream, *dry_stream;
    yk_model_shape shape;
    int64_t batch, seq_len;
    yk_dtype dtype;
    int64_t stretch_ms;
    const char *only; /* time the operations whose name has one of these in it, with commas between
                       * them; "": all */
    bool lists;       /* operations add a row with their name, and nothing is run */

    uint8_t *memory; /* device memory; [0, used) is taken by the case under way */
    int64_t memory_bytes, used;
    int64_t workspace_bytes;          /* at the end of memory */
    void *pattern[YK_N_FLOAT_DTYPES]; /* random numbers of each type, copied into tensors */
    int64_t pattern_bytes;
    yk_step_values *values;          /* device memory: a step in good order */
    double memory_rate, matmul_rate; /* measured first */
    yk_device_spec planned;          /* the device as plans know it */
    yk_bench_row rows[YK_BENCH_MAX_ROWS];
    int n_rows;
} yk_bench;

/* Open `b->device`'s streams and memory. b holds device, shape, batch, seq_len, dtype, stretch_ms.
 *
 * YK_ENOMEM  the memory is not there
 */
yk_status yk_bench_open(yk_bench *b);
void yk_bench_close(yk_bench *b);

/* Before b is opened: does b->only name operations of a step of b->shape?
 *
 * YK_EINVAL  one of its words is in no name: the names are told
 */
yk_status yk_bench_check_only(const yk_bench *b);

/* How many sets of `bytes` to take so that a round through them does not fit a cache. */
int yk_bench_sets(const yk_bench *b, int64_t bytes);

/* Take (n) numbers of type t: standard normal times a fortieth, or undefined. NULL when memory is used
 * up, which yk_bench_run() reports. */
void *yk_bench_random(yk_bench *b, yk_dtype t, int64_t n);
void *yk_bench_space(yk_bench *b, yk_dtype t, int64_t n);

/* Take (n) integers: i modulo `below`, or random ones under it. */
int32_t *yk_bench_positions(yk_bench *b, int64_t n, int64_t below);
int32_t *yk_bench_indices(yk_bench *b, int64_t n, int64_t below);

typedef yk_status (*yk_bench_fn)(yk_stream *stream, const void *args);

/* The operation yk_<op> as a yk_bench_fn, run_<op>. */
#define YK_BENCH_RUNNER(op)                                                                        \
    static yk_status run_##op(yk_stream *s, const void *a)                                         \
    {                                                                                              \
        return yk_##op(s, a);                                                                      \
    }

/* Time `fn` on `args`, n_sets structs of args_bytes; add a row, unless b->only leaves it out; give back
 * what the case took.
 *
 * YK_ENOMEM  the case did not fit
 */
yk_status yk_bench_run(yk_bench *b, const char *name, const char *size, yk_bench_fn fn,
                       const void *args, int64_t args_bytes, int n_sets, yk_cost cost);

/* Sort (n) values and return the middle one, or the mean of the two in the middle. */
double yk_bench_median(double *values, int64_t n);

/* Rows of the tables of options, whose values go to `out`; `text` is borrowed. */
yk_cli_option yk_bench_option_model(const char **out);
yk_cli_option yk_bench_option_micro_batch(int64_t *out, const char *text);
yk_cli_option yk_bench_option_seq(int64_t *out);
yk_cli_option yk_bench_option_dtype(const char **out, const char *text);
yk_cli_option yk_bench_option_device(const char **out);
yk_cli_option yk_bench_option_json(bool *out);

/* A floating-point type, and whether a device is a GPU, by the name given to --dtype and --device.
 *
 * YK_EINVAL  there is no such type, no such device
 */
yk_status yk_bench_find_dtype(const char *name, yk_dtype *dtype_out);
yk_status yk_bench_find_device(const char *name, bool *gpu_out);

/* Every operation of a training step of b->shape, and of generation. */
yk_status yk_bench_ops(yk_bench *b);

/* Of them, those of the update, in bench_update.c. */
yk_status yk_bench_update(yk_bench *b);

/* What a sum over ranks does to its bytes, in bench_wire.c. */
yk_status yk_bench_wire(yk_bench *b);

/* `yoke bench step`; argv[0] is "step". */
yk_status yk_bench_step(int argc, char **argv);

/* `yoke bench comm`; argv[0] is "comm". */
yk_status yk_bench_comm(int argc, char **argv);

#endif
