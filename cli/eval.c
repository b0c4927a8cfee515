/* cli/eval.c - `yoke eval`: the loss of a model on a text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "engine/evaluate.h"
#include "engine/inference.h"
#include "runtime/base/arith.h"

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

static yk_status evaluate_file(yk_inference *s, const yk_cli_list *files)
{
    yk_dataset *data;
    double loss = 0;
    int64_t n_tokens = 0;
    for (int i = 0; i < files->n_items; i++)
        YK_TRY(yk_string_list_append(&s->config.data.val, files->items[i]));
    YK_TRY(yk_dataset_open(&s->config, s->shape.vocab, &data));
    yk_status status = evaluate(s, data, &loss, &n_tokens);
    yk_dataset_close(data);
    if (status != YK_OK) return status;
    printf("loss %.6f  perplexity %.4f  tokens %" PRId64 "\n", loss, exp(loss), n_tokens);
    return YK_OK;
}

yk_status yk_cli_eval(int argc, char **argv)
{
    yk_inference_options model = {.tokenizer = "", .batch = EVAL_BATCH};
    yk_cli_list files = {.n_items = 0};
    bool done;
    int n;
    const yk_cli_option options[] = {
        {.name = "data",
         .type = YK_CLI_LIST,
         .out = &files,
         .value = "FILE",
         .text = "text or tokens to evaluate on; may be repeated"},
        {.name = "seq-len",
         .type = YK_CLI_INT,
         .out = &model.seq_len,
         .value = "T",
         .text = "positions of a window (default: the model's, at most 4096)",
         .min = 1,
         .max = INT32_MAX},
        {.name = "tokenizer",
         .type = YK_CLI_TEXT,
         .out = &model.tokenizer,
         .value = "FILE",
         .text = "tokenizer.json, where the directory has none"},
    };
    const yk_cli_command command = {
        .name = "eval",
        .operands = "DIR",
        .min_operands = 1,
        .max_operands = 1,
        .text = "Print the mean loss in nats and the perplexity of the model in DIR on a text, in\n"
                "windows that do not overlap.",
        .example = "yoke eval runs/demo --data my.txt",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, &model.dir, &n, &done));
    if (done) return YK_OK;
    if (files.n_items == 0)
        return yk_fail(YK_EINVAL, "eval", "there is nothing to evaluate on; give --data FILE");
    yk_inference inference;
    YK_TRY(yk_inference_open(&model, &inference));
    yk_status status = evaluate_file(&inference, &files);
    yk_inference_close(&inference);
    return status;
}
