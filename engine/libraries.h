/* engine/libraries.h - what CUDA and libraries hold of a GPU, measured while a run starts.
 *
 * Model.    A plan counts an estimate. A run measures what its process holds three times: when the
 *           device is open with cuBLASLt and cuDNN, before it allocates anything; when the groups of
 *           ranks are open too, before the first step; and after that. Where it is more than was
 *           counted, more is counted, and whether that fits is asked again. Choices that a plan made
 *           stay as long as they fit, so that they do not depend on what a driver took today.
 * Later.    Kernels are loaded at their first use, and graphs take some. Before the first step room is
 *           left for that.
 */
#ifndef YK_ENGINE_LIBRARIES_H
#define YK_ENGINE_LIBRARIES_H

#include "engine/plan.h"

/* On an H200 libraries took 100 MiB at most after they were open. */
#define YK_LIBRARIES_LATER ((int64_t)192 << 20)

/* What libraries hold, beside `allocated` bytes of the process's own; 0: not known.      [local] */
int64_t yk_libraries_held(const yk_device *device, int64_t allocated);

/* Bytes that a plan must count for libraries beside those it does, when so much is held and `later` bytes
 * are still to come; of the ranks the most. None where it is not known.             [collective] */
yk_status yk_libraries_missing(yk_world *world, const yk_plan *plan, int64_t held, int64_t later,
                               int64_t *missing_out);

/* Before anything is allocated: is what the plan will allocate, and what libraries will take, free on the
 * GPU?                                                                                   [local]
 *
 * YK_ENOMEM  it is not; the message says who has it
 */
yk_status yk_libraries_check_room(yk_device *device, const yk_plan *plan);

/* With the plan's memory allocated and all libraries open: count what they hold as measured. [collective]
 *
 * YK_ENOFIT  with that, it is more than may be used
 */
yk_status yk_libraries_count(yk_world *world, const yk_device *device, yk_plan *plan);

/* After the first step: the same, as a warning where more was loaded than room was left for. [local] */
void yk_libraries_review(const yk_device *device, yk_plan *plan);

#endif
