/* tests/runtime/device/op_case.h - run one operation on a device and hold it against the oracle.
 *
 * Model.    A case owns buffers in device memory, each between two guard zones. Outputs are filled
 *           with NaN before the operation, its workspace too; afterwards guards must be whole,
 *           inputs unchanged, and outputs within the oracle's bound. The workspace has exactly the
 *           size that a dry device counts for the same arguments, so the plan's promise is tested
 *           by every case.
 * Device.   YK_TEST_DEVICE=cpu|cuda; cpu unless set. A program whose device is not there exits with
 *           77, which ctest shows as skipped.
 * Random.   From a seed that is printed; YK_TEST_SEED sets it.
 *
 *     op_case_begin(c, dtype, "swiglu_forward R=%d F=%d", ...);
 *     op_buffer *gate_up = op_input(c, dtype, 2 * n, 1.0), *y = op_output(c, dtype, n);
 *     yk_swiglu_forward_args a = {.y = y->data, .gate_up = gate_up->data, ...};
 *     OP_RUN(c, yk_swiglu_forward, &a);
 *     oracle_out want = op_out(c, n);
 *     oracle_swiglu_forward(&c->arith, want, gate_up->value, rows, cols);
 *     op_expect(c, y, "y", want);
 */
#ifndef YK_TESTS_RUNTIME_DEVICE_OP_CASE_H
#define YK_TESTS_RUNTIME_DEVICE_OP_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/device/ops.h"
#include "tests/oracle/oracle.h"

#define OP_MAX_BUFFERS 24

static const yk_dtype op_dtypes[YK_N_FLOAT_DTYPES] = {YK_F32, YK_BF16, YK_F16};

typedef enum op_role {
    OP_INPUT,  /* must be unchanged afterwards */
    OP_OUTPUT, /* filled with NaN before */
    OP_INOUT,  /* holds values before, is changed */
} op_role;

typedef struct op_buffer {
    op_role role;
    yk_dtype dtype;
    int64_t n, bytes;
    void *data;    /* (n) dtype, on the device */
    void *memory;  /* the allocation: a guard zone, data, a guard zone */
    uint8_t *host; /* the allocation's image as it was before, then as it is after the operation */
    double *value; /* (n) before the operation */
    double *got;   /* (n) after it */
} op_buffer;

typedef struct op_case {
    yk_device *device, *dry;
    yk_stream *stream, *dry_stream;
    oracle_arith arith; /* of the dtype that op_case_begin() was told */
    char label[160];
    op_buffer buffers[OP_MAX_BUFFERS];
    int n_buffers;
    double *outs[2 * OP_MAX_BUFFERS]; /* results of the oracle */
    int n_outs;
    uint8_t *lent, *lent_image; /* the workspace's allocation; pinned: what is in it before */
    int64_t lent_bytes;         /* of the workspace; both are kept while they are as large */
    uint64_t random, seed;
    uint64_t digest;    /* of every output's bytes so far */
    bool tf32;          /* products of fp32 numbers are in TF32 */
    bool bits_only;     /* the oracle has judged these cases: it need not again */
    double worst;       /* the largest error so far as a fraction of its bound */
    char worst_at[200]; /* and where */
} op_case;

/* 0, or 77 when the device that YK_TEST_DEVICE names is not there (tested_device.h). */
int op_device_missing(void);

/* cmocka set-up and tear-down: *state is an op_case with a fresh seed. */
int op_case_setup(void **state);
int op_case_teardown(void **state);

#define OP_TEST(test) cmocka_unit_test_setup_teardown(test, op_case_setup, op_case_teardown)

/* Open by hand: `threads` for a cpu, and a seed. */
void op_case_open(op_case *c, int threads, uint64_t seed);
void op_case_close(op_case *c);

/* Start a case on numbers of type `t`; releases the buffers of the one before. */
void op_case_begin(op_case *c, yk_dtype t, const char *label, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- random numbers ----------------------------------------------------------------------- */

uint64_t op_random(op_case *c);
int64_t op_random_below(op_case *c, int64_t n);
double op_random_normal(op_case *c);

/* ---- buffers ------------------------------------------------------------------------------ */

/* Standard normal times `scale`, rounded to t. */
op_buffer *op_input(op_case *c, yk_dtype t, int64_t n, double scale);
op_buffer *op_inout(op_case *c, yk_dtype t, int64_t n, double scale);

/* (n) of the given values, which must be numbers of type t, NaN or inf. */
op_buffer *op_given(op_case *c, op_role role, yk_dtype t, int64_t n, const double *values);

/* Integers 0 <= i < below. */
op_buffer *op_indices(op_case *c, int64_t n, int64_t below);
op_buffer *op_integers(op_case *c, int64_t n, const int32_t *values);
const int32_t *op_ints(const op_buffer *b);

/* The bytes of `b` as they were before the operation, then as they are after it. */
const uint8_t *op_bytes(const op_buffer *b);

op_buffer *op_output(op_case *c, yk_dtype t, int64_t n);

/* A gradient: an output, or an inout where it accumulates. */
op_buffer *op_gradient(op_case *c, yk_dtype t, int64_t n, bool accumulate);

/* What a gradient accumulates onto: its values, or NULL. */
static inline const double *op_before(const op_buffer *b, bool accumulate)
{
    return accumulate ? b->value : NULL;
}

/* The one yk_step_values of a case. */
op_buffer *op_step_values(op_case *c, const yk_step_values *values);
yk_step_values op_step_values_got(const op_buffer *b);

/* ---- running and comparing ---------------------------------------------------------------- */

/* Lend exactly the workspace that the dry stream has counted, filled with NaN. */
void op_lend_workspace(op_case *c);

/* Read everything back; check guards, inputs and workspace. */
void op_collect(op_case *c);

#define OP_RUN(c, op, args)                                                                        \
    do {                                                                                           \
        assert_int_equal(op((c)->dry_stream, args), YK_OK);                                        \
        op_lend_workspace(c);                                                                      \
        assert_int_equal(op((c)->stream, args), YK_OK);                                            \
        op_collect(c);                                                                             \
    } while (0)

/* Room for n results of the oracle, until the next case. */
oracle_out op_out(op_case *c, int64_t n);

/* Every number of `b` is within the oracle's bound and the rounding of storing it; where the bound
 * is 0 it is the oracle's number rounded once, to the bit. */
void op_expect(op_case *c, const op_buffer *b, const char *name, oracle_out want);

/* Every byte of `a` and `b` is the same. */
void op_expect_equal(op_case *c, const op_buffer *a, const op_buffer *b, const char *name);

/* Every byte of `b` is what it was before the operation. */
void op_expect_unchanged(op_case *c, const op_buffer *b, const char *name);

/* Run `family` with products on the device's matrix units, where it has a choice, and without. */
void op_on_each_unit(op_case *c, void (*family)(op_case *c));

/* Let the GPU's blocks have no more shared memory than those of any card from sm_86 on have, the RTX
 * 4090's among them, so that what runs is what runs there. On other devices the test is skipped. */
void op_be_smaller_card(op_case *c);

/* Let the GPU's products of fp32 numbers be in TF32. On other devices the test is skipped. */
void op_use_tf32(op_case *c);

/* Run `family` with bits_only on cpu devices of 1 to 4 threads with one seed, or twice on another
 * device: every output must have the same bits. */
void op_expect_same_bits_again(void (*family)(op_case *c));

#endif
