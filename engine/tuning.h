/* engine/tuning.h - the choices of kernels that a run makes, and where they are kept. */
#ifndef YK_ENGINE_TUNING_H
#define YK_ENGINE_TUNING_H

#include "comm/world.h"
#include "runtime/base/config.h"
#include "runtime/device/device.h"

/* Let the device choose as the configuration says. Choices are kept in $XDG_CACHE_HOME/yoke, else in
 * ~/.cache/yoke; without either, for this process alone.                                 [local] */
yk_status yk_tuning_begin(const yk_config *config, yk_device *device);

/* Let all ranks choose as rank 0 does, from what it knows now.                      [collective] */
yk_status yk_tuning_share(yk_world *world, yk_device *device);

#endif
