/* engine/links.h - which backend is faster between these ranks: measured once, and kept.
 *
 * What was measured lies where choices of kernels do (tuning.h), a file for each set of ranks, GPUs,
 * driver, NCCL, settings of NCCL in the environment, and collectives with their sizes: what can change it. One that is damaged,
 * or says something else than its name, is a warning, and measured again.
 */
#ifndef YK_ENGINE_LINKS_H
#define YK_ENGINE_LINKS_H

#include "comm/race.h"
#include "runtime/base/config.h"

/* Race as yk_comm_race() does, unless an earlier run has, and keep what it says, as config.tune has it
 * for kernels: off does neither, full races whatever is kept. The same on all ranks: rank 0 reads and
 * writes.                                                                           [collective]
 *
 * YK_ENOMEM  there is too little memory to measure with
 */
yk_status yk_links_race(const yk_config *config, yk_world *world, yk_device *device, yk_race *race);

#endif
