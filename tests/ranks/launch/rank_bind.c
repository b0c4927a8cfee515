/* tests/ranks/launch/rank_bind.c - binds itself as a rank of a training does, and says with how
 * many threads it would compute.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine/bind.h"
#include "engine/device_choice.h"

/* Threads of a device, from the rate that it says it has. */
static int count_threads(const yk_device *device)
{
    yk_device *one;
    if (yk_device_open_cpu(1, &one) != YK_OK) exit(1);
    double rate = yk_device_get_spec(one)->matmul_flops[YK_F32];
    yk_device_close(one);
    return (int)(yk_device_get_spec(device)->matmul_flops[YK_F32] / rate + 0.5);
}

int main(void)
{
    yk_world *world;
    yk_device *device;
    yk_config config;
    int gpu, n_cores;
    if (yk_world_join(&world) != YK_OK || yk_config_init(&config) != YK_OK) return 1;
    config.device = YK_DEVICE_CHOICE_CPU;
    if (yk_bind_rank(world, false, 1, &gpu, &n_cores) != YK_OK) return 1;
    if (yk_device_open_chosen(&config, gpu, n_cores, &device) != YK_OK) return 1;
    printf("rank %d computes with %d\n", yk_world_rank(world), count_threads(device));
    yk_device_close(device);
    yk_config_fini(&config);
    yk_world_leave(world);
    return 0;
}
