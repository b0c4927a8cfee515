/* engine/inference.c - opening a model for evaluation and generation.
 *
 * The engine is the trainer's, without gradients and optimiser state; its memory is planned in the
 * same way.
 */
#include "engine/inference.h"
#include "engine/device_choice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan.h"
#include "engine/run_folder.h"
#include "engine/trainer.h"
#include "engine/weights.h"
#include "models/hf.h"
#include "runtime/base/arith.h"
#include "runtime/storage/file.h"

/* Positions that are enough for a short look at a model with a long context. */
#define CONTEXT_DEFAULT 4096

/* The tokenizer that was given, or the directory's own, or bytes; the data will be read through
 * it. */
static yk_status open_tokenizer(yk_inference *s, const char *model_dir, const char *given)
{
    char *path = given[0] ? strdup(given) : yk_path_join(model_dir, "tokenizer.json");
    if (!path) return yk_fail(YK_ENOMEM, model_dir, "no memory for a path");
    if (!given[0] && !yk_file_exists(path)) path[0] = 0;
    free(s->config.data.tokenizer);
    s->config.data.tokenizer = path;
    return yk_tokenizer_open(path, &s->tokenizer);
}

static yk_status set_length(yk_inference *s, const yk_inference_options *o)
{
    int64_t most = s->shape.max_seq_len;
    if (o->seq_len > most)
        return yk_fail(YK_EINVAL, "--seq-len",
                       "%" PRId64 " is more than the model's %" PRId64
                       " positions; give that or less",
                       o->seq_len, most);
    s->config.train.seq_len = o->seq_len > 0 ? o->seq_len : yk_min(most, CONTEXT_DEFAULT);
    s->config.train.batch = s->config.train.micro_batch = o->batch;
    s->config.precision.compute = o->dtype;
    s->config.cpu.threads = o->threads;
    s->config.data.doc_mask = o->doc_mask;
    return YK_OK;
}

static yk_status create_engine(yk_inference *s, const yk_inference_options *o)
{
    yk_device_spec spec;
    yk_plan plan;
    YK_TRY(yk_device_describe_chosen(&s->config, &spec));
    YK_TRY(yk_plan_make_inference(&s->config, &s->shape, &spec, &plan));
    yk_status status = yk_device_open_chosen(&s->config, 0, 0, &s->device);
    if (status == YK_OK)
        status = yk_engine_create(&(yk_engine_options){.device = s->device,
                                                       .config = &s->config,
                                                       .shape = &s->shape,
                                                       .sizes = &plan.sizes,
                                                       .micro_batch = o->batch},
                                  &s->engine);
    yk_plan_fini(&plan);
    return status;
}

static yk_status open_model(yk_inference *s, const yk_inference_options *o)
{
    char *dir;
    YK_TRY(yk_run_folder_find_model(o->dir, &dir));
    yk_status status = yk_hf_config_read(dir, &s->shape);
    if (status == YK_OK) status = set_length(s, o);
    if (status == YK_OK) status = open_tokenizer(s, dir, o->tokenizer);
    if (status == YK_OK) status = create_engine(s, o);
    if (status == YK_OK)
        status = yk_weights_load(s->engine->store, s->engine->model, dir, s->engine->compute);
    free(dir);
    return status;
}

yk_status yk_inference_open(const yk_inference_options *options, yk_inference *s)
{
    *s = (yk_inference){0};
    YK_TRY(yk_config_init(&s->config));
    yk_status status = open_model(s, options);
    if (status != YK_OK) yk_inference_close(s);
    return status;
}

void yk_inference_close(yk_inference *s)
{
    yk_tokenizer_close(s->tokenizer);
    yk_engine_destroy(s->engine);
    yk_device_close(s->device);
    yk_config_fini(&s->config);
    *s = (yk_inference){0};
}
