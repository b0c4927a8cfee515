/* runtime/base/param.h - one entry of a model's parameter table.
 *
 * The table is what a model shows of its weights to everything that does not know models: the
 * parameter store lays units out by it, the optimiser reads whether to decay, files are named by
 * it. An index into the table is the identity of a parameter all over the program.
 */
#ifndef YK_RUNTIME_BASE_PARAM_H
#define YK_RUNTIME_BASE_PARAM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/dtype.h"

#define YK_PARAM_NAME_MAX 64

typedef struct yk_param {
    char name[YK_PARAM_NAME_MAX]; /* unique, such as "block.3.qkv.weight" */
    int64_t shape[2];             /* rows, columns; a vector has shape[1] == 1 */
    int n_dims;                   /* 1 or 2 */
    int unit;                     /* the unit that owns it: 0 .. n_units - 1 */
    int shared_unit;              /* one more unit that uses it (tied head), or -1 */
    bool decay;                   /* weight decay applies: matrices, not norms and biases */
} yk_param;

/* Where a model reads a parameter, as the parameter store hands it out for a unit. Views are
 * indexed by parameter; those of other units are not to be looked at. */
typedef struct yk_param_view {
    const void *data; /* shape of the parameter, device memory */
    yk_dtype dtype;
} yk_param_view;

/* Where a model writes a parameter's gradient. */
typedef struct yk_grad_view {
    void *data; /* shape of the parameter, device memory */
    yk_dtype dtype;
    bool accumulate; /* add to what is there: an earlier use or micro-batch has written it */
} yk_grad_view;

static inline int64_t yk_param_count(const yk_param *p)
{
    return p->shape[0] * p->shape[1];
}

#endif
