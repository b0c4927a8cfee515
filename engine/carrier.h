/* engine/carrier.h - what carries the collectives of a run whose configuration leaves it open. */
#ifndef YK_ENGINE_CARRIER_H
#define YK_ENGINE_CARRIER_H

#include <stdio.h>

#include "comm/race.h"
#include "models/model.h"
#include "runtime/base/config.h"

/* Choose for comm.backend: auto. On processors, with one rank to a node, and where GPUs reach each other
 * without the host, nothing is measured and auto stays: what it means is known. Ranks that share a GPU
 * get hostmem, and so do GPUs without NCCL; where hostmem it is, that or by the configuration, only the
 * lengths of its chunks race, unless `tune` is off or gathers go by nccl. What is left are GPUs of a node that meet in the host's
 * memory: there nccl and hostmem race with what a step of this configuration does: the kinds of collectives of its
 * stage, with buffers as long as a block of `shape` and as an end of the model. Who wins is by the time
 * that a step spends.                                                               [collective]
 *
 * chosen    a copy of `config`, whose comm.backend and comm.gathers become what auto is
 * race_out  what was measured; n_backends 0: nothing
 *
 * YK_EINVAL  nccl is to serve ranks that share a GPU
 * YK_ENOMEM  there is too little memory to measure with
 */
yk_status yk_carrier_choose(const yk_config *config, const yk_model_shape *shape, yk_world *world,
                            yk_device *device, yk_config *chosen, yk_race *race_out);

/* The same for GPUs that are described and not here: by the clock of a plan. `topology` may be NULL.
 *                                                                                        [local] */
yk_status yk_carrier_plan(const yk_config *config, const yk_model_shape *shape,
                          const yk_device_spec *spec, const yk_topology *topology,
                          yk_config *chosen);

/* What a step of one micro-batch does that is to be measured: the collectives of the configuration's stage
 * for blocks, and for the ends of the model, where a tied head is no more than a norm. An open stage
 * counts as one that shares states out.                                                  [local] */
yk_race yk_carrier_race(const yk_config *config, const yk_model_shape *shape, int ranks);

/* Say what was chosen, and in a line a collective what was measured. */
void yk_carrier_print(const yk_race *race, FILE *out);

#endif
