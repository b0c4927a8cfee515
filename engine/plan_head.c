/* engine/plan_head.c - the rows of logits to have at a time, where memory.head_chunk is auto.
 *
 * A chunk reads the head's matrix and adds to the whole of its gradient again, so the larger it is, the
 * faster, by less and less. All chunks of a micro-batch are alike, since a short last one would leave
 * much of a GPU idle. Without a limit on memory what is chosen depends on the model, the micro-batch and the
 * GPU's rates alone, not on how the rest of a step is done.
 */
#include <inttypes.h>

#include "engine/plan_parts.h"
#include "runtime/base/arith.h"

/* Rows of the largest and of the smallest chunk, and by what they are rounded: a product's tile. */
#define ROWS_MOST  16384
#define ROWS_LEAST 1024
#define ROWS_UNIT  128

/* Logits of a chunk: 32 bits count them. */
#define LOGITS_MOST ((int64_t)1 << 31)

/* More rows than these must gain such a share of the least that a step can take: by then hardly anything
 * is left to gain, and the memory is better left alone. */
#define ROWS_LARGE 8192
#define LARGE_GAIN 0.002

/* Chunks of a micro-batch that a plan goes through one by one. What needs more spends its time on reading
 * the head's matrix; but as many rows as `auto` takes at the least are let through, however many micro-batches
 * have. */
#define CHUNKS_MOST 4096
#define ROWS_AUTO   256

bool yk_plan_head_is_cut_up(const yk_config *config)
{
    int64_t chunk = config->memory.head_chunk;
    int64_t rows = yk_max(config->train.micro_batch, 1) * config->train.seq_len;
    return chunk != YK_AUTO && chunk < ROWS_AUTO && yk_div_up(rows, chunk) > CHUNKS_MOST;
}

yk_status yk_plan_check_head(const yk_config *config)
{
    if (!yk_plan_head_is_cut_up(config)) return YK_OK;
    int64_t chunk = config->memory.head_chunk;
    int64_t rows = yk_max(config->train.micro_batch, 1) * config->train.seq_len;
    return yk_fail(YK_EINVAL, "memory.head_chunk",
                   "%" PRId64 " cuts a micro-batch of %" PRId64 " tokens into %" PRId64
                   " chunks, each of which reads the head's whole matrix; set it to %" PRId64
                   " or more, or to auto",
                   chunk, rows, yk_div_up(rows, chunk),
                   yk_min(yk_div_up(rows, CHUNKS_MOST), ROWS_AUTO));
}

int yk_plan_head_chunks(const yk_plan_target *target, const yk_config *config,
                        int64_t chunks_out[YK_PLAN_HEAD_CHUNKS])
{
    int64_t rows = config->train.micro_batch * config->train.seq_len;
    int n = 0;
    for (int64_t most = ROWS_MOST; most >= ROWS_LEAST; most /= 2) {
        int64_t even = yk_div_up(rows, yk_div_up(rows, most));
        int64_t chunk = yk_min(yk_round_up(even, ROWS_UNIT), rows);
        if (chunk * target->shape->vocab_rows > LOGITS_MOST && most > ROWS_LEAST) continue;
        if (n > 0 && chunks_out[n - 1] == chunk) continue;
        chunks_out[n++] = chunk;
    }
    return n;
}

/* A step's products alone, at the full rate. */
static double least_step_s(const yk_plan_target *target, const yk_config *c)
{
    bool tf32 = c->precision.compute == YK_F32 && c->precision.tf32 && target->spec->tf32_flops > 0;
    double rate =
        tf32 ? target->spec->tf32_flops : target->spec->matmul_flops[c->precision.compute];
    double tokens =
        (double)(c->train.batch * c->train.seq_len) / (double)yk_plan_target_ranks(target);
    return 6 * (double)yk_model_shape_count(target->shape) * tokens / rate;
}

double yk_plan_head_price(const yk_plan_target *target, const yk_config *config)
{
    bool large = config->memory.head_chunk > ROWS_LARGE;
    return large ? LARGE_GAIN * least_step_s(target, config) : 0;
}

bool yk_plan_head_is_open(const yk_plan_target *target, const yk_config *config)
{
    return config->memory.head_chunk == YK_AUTO && target->spec->kind == YK_DEVICE_CUDA;
}

void yk_plan_take_least_head(const yk_plan_target *target, yk_config *config)
{
    int64_t chunks[YK_PLAN_HEAD_CHUNKS];
    if (!yk_plan_head_is_open(target, config)) return;
    config->memory.head_chunk = chunks[yk_plan_head_chunks(target, config, chunks) - 1];
}

void yk_plan_take_most_head(const yk_plan_target *target, yk_config *config)
{
    int64_t chunks[YK_PLAN_HEAD_CHUNKS];
    if (!yk_plan_head_is_open(target, config)) return;
    yk_plan_head_chunks(target, config, chunks);
    config->memory.head_chunk = chunks[0];
}
