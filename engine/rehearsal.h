/* engine/rehearsal.h - a step without consequences, in which everything that a step meets is met.
 *
 * Several ranks must choose their kernels alike, so that one of them times what is not known and tells the
 * others before the first step. What there is to time follows from a step: its shapes, and where its
 * tensors lie. So all ranks run one, on tokens that are drawn, as far as the sums of its gradients: a
 * micro-batch whose gradients overwrite, and where a step has more of them, one whose gradients add. There is
 * no update; what it leaves is overwritten by the first step as by every later one.
 */
#ifndef YK_ENGINE_REHEARSAL_H
#define YK_ENGINE_REHEARSAL_H

#include "engine/engine.h"

/* Run it, after the weights are there and before the first step, and wait for it.   [collective] */
yk_status yk_rehearsal_run(yk_engine *engine);

/* A number for what it meets, which runs that meet the same have in common.              [local] */
uint64_t yk_rehearsal_work(const yk_engine *engine);

#endif
