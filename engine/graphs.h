/* engine/graphs.h - each unit's forward and backward as one launch, and the update as one.
 *
 * Model.    A unit is run directly the first time, captured the second, and replayed from then on:
 *           the pass goes through its motions, which leave its memory as ever, and the graph does
 *           the work. A graph belongs to what its operations point at: the unit and direction, the
 *           batch's slot, the unit's parameters and gradients, whether these accumulate, and the top
 *           of the activation arena. For another of any of them there is another graph; beyond a
 *           few for one unit it is run directly. What changes from step to step lies in
 *           yk_step_values, which operations read by pointer.
 * Bits.     A graph holds the same kernels with the same arguments, so results are the same.
 * Off.      Where the device has no graphs, where cuda.graphs says so, in an evaluation, and while
 *           a step is recorded, units are run directly.
 * Threads.  As the engine.
 */
#ifndef YK_ENGINE_GRAPHS_H
#define YK_ENGINE_GRAPHS_H

#include "models/model.h"
#include "runtime/base/config.h"

typedef struct yk_graphs yk_graphs;

typedef struct yk_graphs_options {
    const yk_model *model; /* all borrowed until the graphs are destroyed */
    yk_pass *pass;
    yk_stream *stream; /* that the pass runs on */
    yk_arena *activation;
    yk_graphs_choice choice;
} yk_graphs_options;

/* YK_ENOMEM  no memory for the tables */
yk_status yk_graphs_create(const yk_graphs_options *options, yk_graphs **graphs_out);

/* Release the graphs, when their launches have been passed. NULL does nothing. */
void yk_graphs_destroy(yk_graphs *graphs);

/* yk_pass_forward() and yk_pass_backward() of a training pass on `batch`. */
yk_status yk_graphs_forward(yk_graphs *graphs, const yk_batch *batch, int unit,
                            const yk_param_view *p);
yk_status yk_graphs_backward(yk_graphs *graphs, const yk_batch *batch, int unit,
                             const yk_param_view *p, const yk_grad_view *g);

/* What follows the last backward pass: fn(context), whose operations are the same in each step and go
 * to the pass's stream alone, so nothing of other ranks and nothing that lies in host memory. */
typedef yk_status (*yk_graphs_fn)(void *context);
yk_status yk_graphs_finish(yk_graphs *graphs, yk_graphs_fn fn, void *context);

/* Graphs that have been made. */
int yk_graphs_count(const yk_graphs *graphs);

#endif
