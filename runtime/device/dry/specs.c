/* runtime/device/dry/specs.c - the devices that are known by a short name.
 *
 * Rates are what well-written kernels reach, not what the data sheet says, because a plan that
 * promises the data sheet is wrong. The h200 row was measured: matrix products 650-770 TFLOP/s,
 * moving with power, memory 4.3 TB/s, PCIe 55 GB/s one way and 49 GB/s with both in use, fused
 * attention forward and backward 245-530 TFLOP/s by shape. The other cards have the data sheet's
 * dense figures with fp32 accumulation, given beside each, times the shares reached in practice:
 *
 *   products   0.70 on sm_90 (power), 0.85 on sm_80, 0.92 on GeForce cards, whose 16-bit rate with
 *              fp32 accumulation is low enough to be kept
 *   fp32       0.75, without TF32
 *   attention  0.54 of the products' rate on sm_90, 0.65 elsewhere
 *   memory     0.90; PCIe 0.80 of the raw rate, both ways in use
 *
 * memory_bytes is what CUDA reports as the card's total less 0.5 GiB for its own context.
 */
#include <string.h>

#include "runtime/device/device.h"

#define GIB(x) ((int64_t)((x)*1073741824.0))
#define TERA   1e12
#define GIGA   1e9

/* fp32, and the one rate of bf16 and fp16. */
#define RATES(f32, half)                                                                           \
    {                                                                                              \
        [YK_F32] = (f32)*TERA, [YK_BF16] = (half)*TERA, [YK_F16] = (half)*TERA                     \
    }

typedef struct known_spec {
    const char *short_name;
    yk_device_spec spec;
} known_spec;

static const known_spec known_specs[] = {
    /* Data sheet: 14,592 cores at 2.52 GHz; 73.5 fp32, 147 bf16, 1008 GB/s, PCIe 4.0 x16. */
    {"4090d",
     {.name = "NVIDIA GeForce RTX 4090 D",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(23.14),
      .matmul_flops = RATES(55, 135),
      .attention_flops = RATES(36, 88),
      .memory_rate = 907 * GIGA,
      .host_link_rate = 25 * GIGA,
      .launch_s = 3e-6}},
    /* Data sheet: 82.6 fp32, 165.2 bf16, 1008 GB/s, PCIe 4.0 x16. */
    {"4090",
     {.name = "NVIDIA GeForce RTX 4090",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(23.14),
      .matmul_flops = RATES(62, 152),
      .attention_flops = RATES(40, 99),
      .memory_rate = 907 * GIGA,
      .host_link_rate = 25 * GIGA,
      .launch_s = 3e-6}},
    /* Data sheet: 35.6 fp32, 71 bf16, 936 GB/s, PCIe 4.0 x16. */
    {"3090",
     {.name = "NVIDIA GeForce RTX 3090",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(23.19),
      .matmul_flops = RATES(27, 65),
      .attention_flops = RATES(17, 42),
      .memory_rate = 842 * GIGA,
      .host_link_rate = 25 * GIGA,
      .launch_s = 4e-6}},
    /* Data sheet: 104.8 fp32, 209.5 bf16, 1792 GB/s, PCIe 5.0 x16. */
    {"5090",
     {.name = "NVIDIA GeForce RTX 5090",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(30.87),
      .matmul_flops = RATES(79, 193),
      .attention_flops = RATES(51, 125),
      .memory_rate = 1613 * GIGA,
      .host_link_rate = 50 * GIGA,
      .launch_s = 3e-6}},
    /* Data sheet, 80 GB SXM: 19.5 fp32, 312 bf16, 2039 GB/s, PCIe 4.0 x16. */
    {"a100",
     {.name = "NVIDIA A100-SXM4-80GB",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(78.65),
      .matmul_flops = RATES(15, 265),
      .attention_flops = RATES(10, 172),
      .memory_rate = 1835 * GIGA,
      .host_link_rate = 25 * GIGA,
      .launch_s = 4e-6}},
    /* Data sheet, 80 GB SXM: 67 fp32, 989 bf16, 3350 GB/s, PCIe 5.0 x16. */
    {"h100",
     {.name = "NVIDIA H100 80GB HBM3",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(78.6),
      .matmul_flops = RATES(50, 690),
      .attention_flops = RATES(33, 370),
      .memory_rate = 3015 * GIGA,
      .host_link_rate = 49 * GIGA,
      .launch_s = 3e-6}},
    /* Measured, but for fp32: data sheet 67 fp32, 989 bf16, 4800 GB/s, PCIe 5.0 x16. */
    {"h200",
     {.name = "NVIDIA H200",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(139.3),
      .matmul_flops = RATES(50, 700),
      .attention_flops = RATES(33, 380),
      .memory_rate = 4300 * GIGA,
      .host_link_rate = 49 * GIGA,
      .launch_s = 3e-6}},
    /* Two cores at 2.5 GHz with AVX-512, as cpu/ describes them. */
    {"cpu",
     {.name = "two CPU cores",
      .kind = YK_DEVICE_CPU,
      .memory_bytes = GIB(8),
      .matmul_flops = RATES(0.256, 0.256),
      .attention_flops = RATES(0.154, 0.154),
      .memory_rate = 20 * GIGA,
      .host_link_rate = 10 * GIGA,
      .launch_s = 3e-6}},
};

#define N_KNOWN (sizeof known_specs / sizeof known_specs[0])

yk_status yk_device_spec_find(const char *name, yk_device_spec *spec_out)
{
    char names[256] = "";
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (strcmp(known_specs[i].short_name, name) == 0) {
            *spec_out = known_specs[i].spec;
            return YK_OK;
        }
        if (i > 0) strcat(names, ", ");
        strcat(names, known_specs[i].short_name);
    }
    return yk_fail(YK_EINVAL, name, "no such device is known; known are %s", names);
}
