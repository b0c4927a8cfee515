/* cli/generate.c - `yoke generate`: text from a model. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/precision.h"
#include "engine/inference.h"
#include "engine/write_text.h"

static yk_status generate(const yk_inference_options *model, const yk_write_options *text)
{
    yk_inference inference;
    yk_write_options shown = *text;
    shown.plain = isatty(STDOUT_FILENO) == 1; /* it would do what control characters say */
    YK_TRY(yk_sample_options_check(&text->sample));
    YK_TRY(yk_inference_open(model, &inference));
    yk_status status = yk_write_text(inference.engine, inference.tokenizer, &shown, stdout);
    yk_inference_close(&inference);
    return status;
}

/* How the next token is chosen. */
static void sampling_options(yk_sample_options *s, yk_cli_option rows_out[4])
{
    const yk_cli_option rows[4] = {
        {.name = "temperature",
         .type = YK_CLI_REAL,
         .out = &s->temperature,
         .value = "X",
         .text = "0 is always the most probable token (default 1)",
         .low = 0,
         .high = 100},
        {.name = "top-k",
         .type = YK_CLI_INT,
         .out = &s->top_k,
         .value = "N",
         .text = "choose among the N most probable tokens; 0: all (default)",
         .min = 0,
         .max = INT32_MAX},
        {.name = "top-p",
         .type = YK_CLI_REAL,
         .out = &s->top_p,
         .value = "P",
         .text = "choose among the fewest tokens whose probabilities reach P (default 1: all)",
         .low = 0,
         .high = 1},
        {.name = "seed",
         .type = YK_CLI_INT,
         .out = &s->seed,
         .value = "N",
         .text = "the same seed writes the same text (default 0)",
         .min = 0,
         .max = INT64_MAX},
    };
    memcpy(rows_out, rows, sizeof rows);
}

yk_status yk_cli_generate(int argc, char **argv)
{
    yk_inference_options model = {.tokenizer = "", .batch = 1};
    yk_write_options text = {.prompt = "", .max_tokens = 200, .sample = {1.0, 0, 1.0, 0}};
    const char *precision = "fp32";
    yk_cli_option rows[4];
    bool done;
    int n;
    sampling_options(&text.sample, rows);
    const yk_cli_option options[] = {
        {.name = "prompt",
         .type = YK_CLI_TEXT,
         .out = &text.prompt,
         .value = "TEXT",
         .text = "what to begin with",
         .may_be_empty = true},
        {.name = "max-tokens",
         .type = YK_CLI_INT,
         .out = &text.max_tokens,
         .value = "N",
         .text = "new tokens (default 200)",
         .min = 0,
         .max = INT32_MAX},
        rows[0],
        rows[1],
        rows[2],
        rows[3],
        {.name = "tokenizer",
         .type = YK_CLI_TEXT,
         .out = &model.tokenizer,
         .value = "FILE",
         .text = "tokenizer.json, where the directory has none"},
        yk_cli_option_precision(&precision),
    };
    const yk_cli_command command = {
        .name = "generate",
        .operands = "DIR",
        .min_operands = 1,
        .max_operands = 1,
        .text =
            "Print the prompt and what the model in DIR, a Hugging Face directory or the folder\n"
            "of a run, writes after it; on a terminal with `?` for control characters.",
        .example = "yoke generate runs/demo --prompt 'In the beginning' --temperature 0.8",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, &model.dir, &n, &done));
    if (done) return YK_OK;
    YK_TRY(yk_cli_find_dtype("--precision", precision, &model.dtype));
    return generate(&model, &text);
}
