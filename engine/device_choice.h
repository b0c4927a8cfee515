/* engine/device_choice.h - the device that a configuration asks for. */
#ifndef YK_ENGINE_DEVICE_CHOICE_H
#define YK_ENGINE_DEVICE_CHOICE_H

#include "comm/world.h"
#include "runtime/base/config.h"
#include "runtime/device/device.h"
#include "runtime/memory/host_room.h"

/* Does a configuration ask for a GPU, or for one where there is one? */
bool yk_config_wants_gpu(const yk_config *config);

/* Open the device that a configuration asks for.
 *
 * gpu      the one to open, where it is a GPU
 * n_cores  a thread for each computes where cpu.threads is 0; 0: all that this process may use
 */
yk_status yk_device_open_chosen(const yk_config *config, int gpu, int n_cores,
                                yk_device **device_out);

/* The description of a known device, with the kernels that a configuration asks for there.
 *
 * YK_EINVAL  no such device is known
 */
yk_status yk_device_find_chosen(const yk_config *config, const char *name,
                                yk_device_spec *spec_out);

/* What is known of an open device, with the rates of a known one of its kind where none were
 * measured. Of processors' memory it is what can be had now, less a part for the system. */
yk_status yk_device_describe(const yk_device *device, yk_device_spec *spec_out);

/* Leave of a described machine the part that one of its ranks has: they share the GPUs as
 * launch.ranks_per_gpu says, and processors' memory and the host's evenly. */
void yk_device_spec_share(const yk_config *config, int64_t ranks_here, yk_device_spec *spec);

/* What is known of an open device, of this rank's part: of its memory and of the host's, as the ranks
 * there share them, and of unlike ranks the least, so that all choose the same.      [collective]
 *
 * world     NULL: this process alone
 * room_out  what the ranks of this host have together
 */
yk_status yk_device_describe_part(const yk_config *config, yk_world *world, const yk_device *device,
                                  yk_device_spec *spec_out, yk_host_room *room_out);

/* The same of the device that a configuration asks for, which is opened and closed again. */
yk_status yk_device_describe_chosen(const yk_config *config, yk_device_spec *spec_out);

#endif
