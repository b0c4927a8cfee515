/* tests/runtime/device/round_rates.c - see round_rates.h. */
#include "tests/runtime/device/round_rates.h"

const yk_device_spec round_rates = {.name = "round",
                                    .kind = YK_DEVICE_CUDA,
                                    .memory_bytes = 1 << 20,
                                    .matmul_flops = {1e9, 2e9, 4e9},
                                    .attention_flops = {5e8, 1e9, 2e9},
                                    .memory_rate = 1e6,
                                    .host_link_rate = 1e5,
                                    .launch_s = 1e-3};
