/* runtime/base/config_check.c - what no single key can know: that keys go together. */
#include <inttypes.h>

#include "runtime/base/arith.h"
#include "runtime/base/config.h"

static yk_status check_model(const yk_config *c)
{
    if (!c->model.preset[0] && !c->model.init[0] && !c->model.family[0])
        return yk_fail(YK_EINVAL, "model",
                       "no model is given; set model.preset (such as gpt2-124m), model.init (a "
                       "Hugging Face directory) or model.family and its sizes");
    if (c->model.max_seq_len != 0 && c->train.seq_len > c->model.max_seq_len)
        return yk_fail(YK_EINVAL, "train.seq_len",
                       "%" PRId64 " is longer than model.max_seq_len, %" PRId64
                       "; lower it or raise that",
                       c->train.seq_len, c->model.max_seq_len);
    return YK_OK;
}

/* Of a configuration that names data; a plan needs none. */
static yk_status check_validation(const yk_config *c)
{
    if (c->data.train.n_items > 0 && c->eval.every > 0 && c->data.val.n_items == 0 &&
        c->data.val_fraction == 0)
        return yk_fail(YK_EINVAL, "eval.every",
                       "there is no validation data to evaluate on; set data.val, or "
                       "data.val_fraction above 0");
    return YK_OK;
}

yk_status yk_config_check_data(const yk_config *config)
{
    if (config->data.train.n_items > 0) return YK_OK;
    return yk_fail(YK_EINVAL, "data.train", "no data is given; set data.train to a file");
}

/* The multiple of micro_batch that is nearest to batch; the larger of two. */
static yk_status check_batch(const yk_config *c)
{
    int64_t batch = c->train.batch, micro = c->train.micro_batch;
    if (micro == YK_AUTO || batch % micro == 0) return YK_OK;
    int64_t nearest = yk_max(micro, (batch + micro / 2) / micro * micro);
    return yk_fail(YK_EINVAL, "train.batch",
                   "%" PRId64 " is not a multiple of train.micro_batch, %" PRId64
                   "; the nearest that is: %" PRId64,
                   batch, micro, nearest);
}

yk_status yk_config_check_ranks(const yk_config *config, int64_t n_ranks, int64_t micro_batch)
{
    int64_t batch = config->train.batch, unit = n_ranks * micro_batch;
    if (batch % unit == 0) return YK_OK;
    int64_t below = batch / unit * unit, above = below + unit;
    bool down = below > 0 && batch - below <= above - batch;
    return yk_fail(YK_EINVAL, "train.batch",
                   "%" PRId64 " sequences do not divide over %" PRId64
                   " ranks in micro-batches of %" PRId64
                   "; the nearest batch that does is %" PRId64,
                   batch, n_ranks, micro_batch, down ? below : above);
}

static yk_status check_schedule(const yk_config *c)
{
    if (c->schedule.warmup > c->train.steps)
        return yk_fail(YK_EINVAL, "schedule.warmup",
                       "%" PRId64 " steps are more than train.steps, %" PRId64
                       "; lower schedule.warmup, or raise train.steps",
                       c->schedule.warmup, c->train.steps);
    return YK_OK;
}

static yk_status check_loss_scale(const yk_config *c)
{
    double start = c->precision.loss_scale.start;
    double floor = c->precision.loss_scale.floor, ceiling = c->precision.loss_scale.ceiling;
    if (floor <= start && start <= ceiling) return YK_OK;
    return yk_fail(YK_EINVAL, "precision.loss_scale",
                   "start, %g, is not between floor, %g, and ceiling, %g; change one of them",
                   start, floor, ceiling);
}

/* Where the model reads the master weights themselves there is no other copy of them. */
static yk_status check_states(const yk_config *c)
{
    bool own = c->precision.compute != c->precision.master;
    if (c->precision.master == YK_BF16 && c->precision.compute == YK_F32)
        return yk_fail(YK_EINVAL, "precision.master",
                       "bf16 under weights that the model reads in fp32 saves nothing; set "
                       "precision.compute: bf16, or leave it fp32");
    if (own || c->memory.offload == YK_OFFLOAD_AUTO) return YK_OK;
    if (!(c->memory.offload & YK_OFFLOAD_MASTER)) return YK_OK;
    return yk_fail(YK_EINVAL, "memory.offload",
                   "master: with precision.compute and precision.master both %s the master weights "
                   "are what the model reads; write params for it",
                   yk_dtype_name(c->precision.master));
}

yk_status yk_config_check(const yk_config *config)
{
    YK_TRY(check_model(config));
    YK_TRY(check_validation(config));
    YK_TRY(check_batch(config));
    YK_TRY(check_schedule(config));
    YK_TRY(check_states(config));
    YK_TRY(check_loss_scale(config));
    return yk_config_check_steps("trace.steps", &config->trace.steps);
}
