/* engine/tuning.h - the choices of kernels that a run makes, and where they are kept. */
#ifndef YK_ENGINE_TUNING_H
#define YK_ENGINE_TUNING_H

#include "comm/world.h"
#include "runtime/base/config.h"
#include "runtime/device/device.h"

/* Where choices are kept: $XDG_CACHE_HOME/yoke, else ~/.cache/yoke; "" without either.   [local] */
void yk_tuning_folder(char *folder, size_t bytes);

/* Let the device know what earlier runs found, unless the configuration says otherwise. Without
 * a folder choices are for this process alone.                                           [local] */
yk_status yk_tuning_begin(const yk_config *config, yk_device *device);

/* Before training: a rank alone times what it does not know as it meets it; several choose as rank 0
 * does, from what it knows now.                                                      [collective]
 *
 * world  NULL for a rank alone
 */
yk_status yk_tuning_settle(const yk_config *config, yk_world *world, yk_device *device);

#endif
