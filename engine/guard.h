/* engine/guard.h - whose gradient is not finite, and where it was first.
 *
 * A sum over ranks does not say which of them brought the bad part. So a step is made in which every rank
 * looks at its own gradients before they are summed, unit by unit as the backward pass makes them.
 */
#ifndef YK_ENGINE_GUARD_H
#define YK_ENGINE_GUARD_H

#include "engine/engine.h"

typedef struct yk_bad_gradient {
    int unit, param; /* -1: none is seen yet */
    int rank;
} yk_bad_gradient;

/* Look at this rank's gradients of a unit, unless one was found before. The step calls it where
 * engine->bad is set, before the gradients are summed. It waits for the device.         [local] */
yk_status yk_guard_look(yk_engine *engine, int unit, const yk_grad_view *grads);

/* Of what the ranks have found, the first in the backward pass, and of equal ones the lowest rank's.
 * world  NULL: this rank alone                                                     [collective] */
yk_status yk_guard_agree(yk_world *world, yk_bad_gradient *bad);

#endif
