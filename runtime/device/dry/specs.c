/* runtime/device/dry/specs.c - the devices that are known by a short name.
 *
 * Rates are what well-written kernels reach, not what the data sheet says, because a plan that
 * promises the data sheet is wrong. Beside each card stand its data sheet's figures: dense, with
 * fp32 sums, and the boost clock. From them follow
 *
 *   products   0.734 of the 16-bit and 0.78 of the TF32 figure on sm_90, where power holds them back,
 *              0.88 on sm_80, 0.95 on GeForce cards, whose rate with fp32 sums is low enough to be kept;
 *              fp32 0.78. Of the inner loops: what tiles, rounds and epilogues cost is in
 *              cost_time.c
 *   attention  products 0.385 of the 16-bit figure on sm_90 and 0.7 elsewhere, since the kernels'
 *              instructions are those of sm_80; backward 0.46 of that; fp32 0.16 of the fp32 figure.
 *              The softmax: 12.5 instructions forward and 15 backward for a pair, on one of a
 *              multiprocessor's 128 lanes
 *              cuDNN's on sm_90: measured
 *   memory     0.81 to 0.90, what norms reach; PCIe 0.80 of the raw rate, both ways in use
 *   peers      the data sheet's NVLink, each way, between the cards of an HGX or DGX machine; GeForce
 *              cards reach each other by way of the host alone
 *
 * Shares were measured on an H200: products, attention at head sizes 64 and 128, norms, AdamW, copies.
 * memory_bytes is what CUDA reports as the card's total. Of it, CUDA's context and the libraries'
 * kernels take 560 to 590 MiB on an H200, and some is left for what comes to use by and by. What NCCL takes
 * is in comm/nccl_layout.c.
 */
#include <string.h>

#include "runtime/base/words.h"
#include "runtime/device/device.h"

#define GIB(x) ((int64_t)((x)*1073741824.0))
#define TERA   1e12
#define GIGA   1e9

/* fp32, and the one rate of bf16 and fp16. */
#define RATES(f32, half)                                                                           \
    {                                                                                              \
        [YK_F32] = (f32)*TERA, [YK_BF16] = (half)*TERA, [YK_F16] = (half)*TERA                     \
    }

/* Multiprocessors, and what they make of a pair of positions at so many GHz. */
#define MULTIPROCESSORS(n, ghz)                                                                    \
    .context_bytes = GIB(0.75), .n_multiprocessors = (n), .attention_backward = 0.46,              \
    .softmax_s = {12.5 / (128 * (n) * (ghz)*GIGA), 15 / (128 * (n) * (ghz)*GIGA)}

/* cuDNN's attention on sm_90, with sums in a fixed order and workspace for a whole batch. */
#define CUDNN_SM90                                                                                 \
    .cudnn = true, .cudnn_flops = {950 * TERA, 540 * TERA}, .cudnn_softmax_s = {0.48e-12, 1.48e-12}

typedef struct known_spec {
    const char *short_name;
    const char *calls_itself; /* how its name begins; NULL: not looked for */
    yk_device_spec spec;
} known_spec;

/* In order: a name that another begins with stands after it. */
static const known_spec known_specs[] = {
    /* 114 multiprocessors at 2.52 GHz; 73.5 fp32 and TF32, 147 bf16, 1008 GB/s, PCIe 4.0 x16.
     * NVIDIA, GeForce RTX 4090 D specifications; Ada GPU architecture whitepaper, appendix A. */
    {"4090d",
     "NVIDIA GeForce RTX 4090 D",
     {.name = "NVIDIA GeForce RTX 4090 D",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(23.64),
      MULTIPROCESSORS(114, 2.52),
      .matmul_flops = RATES(57, 140),
      .tf32_flops = 70 * TERA,
      .attention_flops = RATES(11.8, 103),
      .memory_rate = 907 * GIGA,
      .host_link_rate = 25 * GIGA,
      .launch_s = 3e-6}},
    /* 128 at 2.52 GHz; 82.6 fp32 and TF32, 165.2 bf16, 1008 GB/s, PCIe 4.0 x16. Ada GPU architecture
     * whitepaper, appendix A. */
    {"4090",
     "NVIDIA GeForce RTX 4090",
     {.name = "NVIDIA GeForce RTX 4090",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(23.64),
      MULTIPROCESSORS(128, 2.52),
      .matmul_flops = RATES(64, 157),
      .tf32_flops = 78 * TERA,
      .attention_flops = RATES(13.2, 116),
      .memory_rate = 907 * GIGA,
      .host_link_rate = 25 * GIGA,
      .launch_s = 3e-6}},
    /* 82 at 1.695 GHz; 35.6 fp32 and TF32, 71 bf16, 936 GB/s, PCIe 4.0 x16. GA102 whitepaper,
     * appendix A. */
    {"3090",
     "NVIDIA GeForce RTX 3090",
     {.name = "NVIDIA GeForce RTX 3090",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(23.69),
      MULTIPROCESSORS(82, 1.695),
      .matmul_flops = RATES(28, 67),
      .tf32_flops = 34 * TERA,
      .attention_flops = RATES(5.7, 50),
      .memory_rate = 842 * GIGA,
      .host_link_rate = 25 * GIGA,
      .launch_s = 4e-6}},
    /* 170 at 2.407 GHz; 104.8 fp32 and TF32, 209.5 bf16, 1792 GB/s, PCIe 5.0 x16. RTX Blackwell
     * GPU architecture whitepaper, appendix A. */
    {"5090",
     "NVIDIA GeForce RTX 5090",
     {.name = "NVIDIA GeForce RTX 5090",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(31.37),
      MULTIPROCESSORS(170, 2.407),
      .matmul_flops = RATES(82, 199),
      .tf32_flops = 100 * TERA,
      .attention_flops = RATES(16.8, 147),
      .memory_rate = 1613 * GIGA,
      .host_link_rate = 50 * GIGA,
      .launch_s = 3e-6}},
    /* 80 GB SXM: 108 at 1.41 GHz; 19.5 fp32, 156 TF32, 312 bf16, 2039 GB/s, PCIe 4.0 x16,
     * NVLink 600 GB/s, both ways together. A100 data sheet. */
    {"a100",
     "NVIDIA A100",
     {.name = "NVIDIA A100-SXM4-80GB",
      .kind = YK_DEVICE_CUDA,
      .memory_bytes = GIB(79.15),
      MULTIPROCESSORS(108, 1.41),
      .matmul_flops = RATES(15, 275),
      .tf32_flops = 137 * TERA,
      .attention_flops = RATES(3.1, 218),
      .memory_rate = 1750 * GIGA,
      .host_link_rate = 25 * GIGA,
      .peer_rate = 300 * GIGA,
      .launch_s = 4e-6}},
    /* 80 GB SXM: 132 at 1.755 GHz; 67 fp32, 495 TF32, 989 bf16, 3350 GB/s, PCIe 5.0 x16,
     * NVLink 900 GB/s, both ways together. H100 data sheet. */
    {"h100",
     "NVIDIA H100",
     {.name = "NVIDIA H100 80GB HBM3",
      .kind = YK_DEVICE_CUDA,
      CUDNN_SM90,
      .memory_bytes = GIB(79.1),
      MULTIPROCESSORS(132, 1.755),
      .matmul_flops = RATES(52, 726),
      .tf32_flops = 385 * TERA,
      .attention_flops = RATES(10.7, 380),
      .memory_rate = 2750 * GIGA,
      .host_link_rate = 49 * GIGA,
      .peer_rate = 450 * GIGA,
      .launch_s = 3e-6}},
    /* 132 at 1.755 GHz; 67 fp32, 495 TF32, 989 bf16, 4800 GB/s, PCIe 5.0 x16,
     * NVLink 900 GB/s, both ways together. H200 data sheet. */
    {"h200",
     "NVIDIA H200",
     {.name = "NVIDIA H200",
      .kind = YK_DEVICE_CUDA,
      CUDNN_SM90,
      .memory_bytes = GIB(139.8),
      MULTIPROCESSORS(132, 1.755),
      .matmul_flops = RATES(52, 726),
      .tf32_flops = 385 * TERA,
      .attention_flops = RATES(10.7, 380),
      .memory_rate = 3900 * GIGA,
      .host_link_rate = 49 * GIGA,
      .peer_rate = 450 * GIGA,
      .launch_s = 3e-6}},
    /* Two cores at 2.5 GHz with AVX-512, as cpu/ describes them. */
    {"cpu",
     NULL,
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
    const char *words[N_KNOWN];
    char names[256] = "";
    for (size_t i = 0; i < N_KNOWN; i++) {
        words[i] = known_specs[i].short_name;
        if (yk_word_distance(known_specs[i].short_name, name) == 0) {
            *spec_out = known_specs[i].spec;
            return YK_OK;
        }
        if (i > 0) strcat(names, ", ");
        strcat(names, known_specs[i].short_name);
    }
    int nearest = yk_word_guess(name, words, N_KNOWN);
    return yk_fail(YK_EINVAL, name,
                   "no such device is known%s%s; known are %s; for another card take the one most "
                   "like it, with memory.device_limit",
                   nearest < 0 ? "" : ", the nearest is ", nearest < 0 ? "" : words[nearest],
                   names);
}

bool yk_device_spec_recognize(const char *name, yk_device_spec *spec_out)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        const char *begin = known_specs[i].calls_itself;
        if (!begin || strncmp(name, begin, strlen(begin)) != 0) continue;
        *spec_out = known_specs[i].spec;
        return true;
    }
    return false;
}
