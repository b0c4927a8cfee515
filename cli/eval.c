/* cli/eval.c - `yoke eval`: the loss of a model on a text, or on what a run validates on. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/precision.h"
#include "cli/run_config.h"
#include "engine/evaluate.h"
#include "engine/inference.h"
#include "engine/run_folder.h"
#include "runtime/base/arith.h"
#include "runtime/storage/file.h"

/* Sequences evaluated at a time. */
#define EVAL_BATCH 8

/* Evaluate every window of the opened data. */
static yk_status evaluate(yk_inference *s, const yk_dataset *data, double *loss_out,
                          int64_t *n_tokens_out)
{
    yk_loader_options o = {
        .dataset = data,
        .split = YK_SPLIT_VAL,
        .batch = EVAL_BATCH,
        .micro_batch = EVAL_BATCH,
        .world = 1,
        .n_buffers = YK_LOADER_BUFFERS,
    };
    yk_loader *loader;
    yk_feed feed;
    YK_TRY(yk_loader_create(&o, s->engine->staging[YK_SPLIT_VAL], &loader));
    yk_status status = yk_feed_init(&feed, s->engine, loader);
    if (status == YK_OK) {
        int64_t batches = yk_div_up(yk_dataset_n_windows(data, YK_SPLIT_VAL), EVAL_BATCH);
        status = yk_evaluate(s->engine, &feed, batches, NULL, loss_out, n_tokens_out);
        yk_feed_fini(&feed);
    }
    yk_loader_destroy(loader);
    return status;
}

/* Evaluate on the validation data of a configuration. */
static yk_status evaluate_data(yk_inference *s, const yk_config *config)
{
    yk_dataset *data;
    double loss = 0;
    int64_t n_tokens = 0;
    YK_TRY(yk_dataset_open(config, s->shape.vocab, &data));
    yk_status status = evaluate(s, data, &loss, &n_tokens);
    yk_dataset_close(data);
    if (status != YK_OK) return status;
    printf("loss %.6f  perplexity %.4f  tokens %" PRId64 "\n", loss, exp(loss), n_tokens);
    return YK_OK;
}

static yk_status evaluate_files(const yk_inference_options *model, const yk_cli_list *files)
{
    yk_inference inference;
    YK_TRY(yk_inference_open(model, &inference));
    yk_status status = YK_OK;
    for (int i = 0; i < files->n_items && status == YK_OK; i++)
        status = yk_string_list_append(&inference.config.data.val, files->items[i]);
    if (status == YK_OK) status = evaluate_data(&inference, &inference.config);
    yk_inference_close(&inference);
    return status;
}

/* On what the run of this configuration validates on, in its windows unless others were asked
 * for. */
static yk_status evaluate_as_configured(yk_inference_options model, yk_config *config)
{
    yk_inference inference;
    if (config->data.val.n_items == 0 && config->data.val_fraction == 0)
        return yk_fail(YK_EINVAL, model.dir, "this run has no validation data; give --data FILE");
    if (model.seq_len == 0) model.seq_len = config->train.seq_len;
    if (!model.tokenizer[0]) model.tokenizer = config->data.tokenizer;
    model.doc_mask = config->data.doc_mask;
    config->train.seq_len = model.seq_len;
    YK_TRY(yk_inference_open(&model, &inference));
    yk_status status = evaluate_data(&inference, config);
    yk_inference_close(&inference);
    return status;
}

static yk_status evaluate_run(const yk_inference_options *model)
{
    const yk_cli_list no_sets = {.n_items = 0};
    yk_config config;
    char *model_dir;
    YK_TRY(yk_run_folder_find_model(model->dir, &model_dir));
    free(model_dir);
    char *path = yk_path_join(model->dir, "config.yaml");
    if (!path) return yk_fail(YK_ENOMEM, model->dir, "no memory for a path");
    yk_status status = YK_OK;
    if (!yk_file_exists(path))
        status = yk_fail(YK_EINVAL, model->dir,
                         "there is nothing to evaluate on, since this is no folder of a run; give "
                         "--data FILE");
    if (status == YK_OK) status = yk_cli_read_config(path, &no_sets, &config);
    free(path);
    YK_TRY(status);
    status = evaluate_as_configured(*model, &config);
    yk_config_fini(&config);
    return status;
}

yk_status yk_cli_eval(int argc, char **argv)
{
    yk_inference_options model = {.tokenizer = "", .batch = EVAL_BATCH};
    yk_cli_list files = {.n_items = 0};
    const char *precision = "fp32";
    bool done;
    int n;
    const yk_cli_option options[] = {
        {.name = "data",
         .type = YK_CLI_LIST,
         .out = &files,
         .value = "FILE",
         .text = "text or tokens to evaluate on; may be repeated (default: the run's own)"},
        {.name = "seq-len",
         .type = YK_CLI_INT,
         .out = &model.seq_len,
         .value = "T",
         .text = "positions of a window (default: the run's, or the model's, at most 4096)",
         .min = 1,
         .max = INT32_MAX},
        {.name = "tokenizer",
         .type = YK_CLI_TEXT,
         .out = &model.tokenizer,
         .value = "FILE",
         .text = "tokenizer.json, where the directory has none"},
        yk_cli_option_precision(&precision),
    };
    const yk_cli_command command = {
        .name = "eval",
        .operands = "DIR",
        .min_operands = 1,
        .max_operands = 1,
        .text = "Print the mean loss in nats and the perplexity of the model in DIR on a text, in\n"
                "windows that do not overlap. Without --data, DIR is the folder of a run, and the\n"
                "text is what the run validates on, as its config.yaml says.",
        .example = "yoke eval runs/demo --data my.txt",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, &model.dir, &n, &done));
    if (done) return YK_OK;
    YK_TRY(yk_cli_find_dtype("--precision", precision, &model.dtype));
    return files.n_items > 0 ? evaluate_files(&model, &files) : evaluate_run(&model);
}
