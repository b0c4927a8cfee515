/* tests/ranks/comm/reference.h - what collectives must give, computed by one process alone.
 *
 * Every rank's input is a function of (case, rank, element), so each rank can make everybody's. The sum
 * is written out element by element with the conversions of runtime/base/dtype.h, and shares nothing
 * with comm/.
 */
#ifndef YK_TESTS_RANKS_COMM_REFERENCE_H
#define YK_TESTS_RANKS_COMM_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/dtype.h"

typedef enum ref_values {
    REF_NORMAL,  /* around 1 */
    REF_TINY,    /* as small as the type goes */
    REF_WIDE,    /* all magnitudes: some are lost on the wire */
    REF_HUGE,    /* as great as the type goes: sums may be too great for it */
    REF_SPECIAL, /* with infinities and NaNs in between */
    REF_ZEROS,   /* of both signs */
    REF_N_VALUES,
} ref_values;

/* One reduction over L ranks on each of K nodes. */
typedef struct ref_case {
    uint64_t seed;
    ref_values values;
    yk_dtype dtype, wire; /* what travels, no wider than dtype */
    int n_local, n_nodes;
    int64_t n;        /* elements of the buffer: ranks * count */
    const int *ranks; /* (n_local * n_nodes) in the world, by index */
} ref_case;

/* Element i of a rank's buffer, as it is when stored. */
float ref_input(const ref_case *c, int rank, int64_t i);

/* Write a rank's elements begin .. begin+n-1 to `x`. */
void ref_fill(const ref_case *c, int rank, int64_t begin, int64_t n, void *x);

/* The exponent of the scale: 0 unless the wire is fp16. */
int ref_exponent(const ref_case *c);

/* Element i of the exact sum, in fp32: not yet as stored. */
float ref_sum(const ref_case *c, int64_t i, int exponent);

/* How many elements of a rank's buffer are lost on the wire. */
int64_t ref_n_flushed(const ref_case *c, int rank, int exponent);

/* True when a and b are stored as the same bits; all NaNs are the same. */
bool ref_same(yk_dtype dtype, const void *buffer, int64_t i, float expected);

/* A random number made of three others. */
uint64_t ref_random(uint64_t seed, uint64_t a, uint64_t b);

#endif
