/* cli/data_prepare.c - `yoke data prepare`: text into token shards. */
#include <stdio.h>

#include "cli/data.h"
#include "cli/options.h"
#include "runtime/data/prepare.h"
#include "runtime/data/shard_writer.h"

/* What was made, and the lines of a configuration that use it. */
static void print_result(const yk_prepare_options *o, const yk_prepare_result *r)
{
    printf("%lld tokens to train on in %lld file%s", (long long)r->train_tokens,
           (long long)r->train_shards, r->train_shards == 1 ? "" : "s");
    if (r->val_tokens > 0) {
        printf(", %lld to validate on in %lld", (long long)r->val_tokens, (long long)r->val_shards);
    }
    printf("\n\ndata:\n  train: %s/train_*.bin\n", o->out);
    if (r->val_tokens > 0) printf("  val: %s/val_*.bin\n", o->out);
    if (r->val_tokens == 0) printf("  val_fraction: 0\n");
    if (o->tokenizer[0]) printf("  tokenizer: %s\n", o->tokenizer);
    if (o->doc_token >= 0) printf("  doc_token: %lld\n", (long long)o->doc_token);
    printf("model:\n  vocab: %lld\n", (long long)r->vocab);
}

static yk_status prepare(yk_prepare_options *o, const char *const *inputs, int n_inputs)
{
    yk_prepare_result result;
    yk_status status = YK_OK;
    if (!o->out[0])
        return yk_fail(YK_EINVAL, "data prepare", "--out is missing; name the directory to make");
    for (int i = 0; i < n_inputs && status == YK_OK; i++) {
        status = yk_string_list_append(&o->inputs, inputs[i]);
    }
    if (status == YK_OK) status = yk_prepare(o, &result);
    yk_string_list_fini(&o->inputs);
    YK_TRY(status);
    print_result(o, &result);
    return YK_OK;
}

yk_status yk_cli_data_prepare(int argc, char **argv)
{
    yk_prepare_options o = {.out = "",
                            .tokenizer = "",
                            .val_fraction = 0.05,
                            .shard_tokens = YK_PREPARE_SHARD_TOKENS,
                            .doc_token = -1};
    const char *inputs[YK_CLI_LIST_MAX];
    int n;
    bool done;
    const yk_cli_option options[] = {
        {.name = "out",
         .type = YK_CLI_TEXT,
         .out = &o.out,
         .value = "DIR",
         .text = "the directory to make"},
        {.name = "tokenizer",
         .type = YK_CLI_TEXT,
         .out = &o.tokenizer,
         .value = "FILE",
         .text = "a tokenizer.json; without it each byte is a token"},
        {.name = "val-fraction",
         .type = YK_CLI_REAL,
         .out = &o.val_fraction,
         .value = "F",
         .text = "part of the tokens, at the end, to validate on (0.05)",
         .low = 0,
         .high = 1},
        {.name = "shard-tokens",
         .type = YK_CLI_INT,
         .out = &o.shard_tokens,
         .value = "N",
         .text = "tokens of a file (100000000)",
         .min = 1,
         .max = YK_SHARD_TOKENS_MAX},
        {.name = "doc-token",
         .type = YK_CLI_INT,
         .out = &o.doc_token,
         .value = "ID",
         .text = "put this token after each input file",
         .min = 0,
         .max = INT32_MAX},
    };
    const yk_cli_command command = {
        .name = "data prepare",
        .operands = "FILE...",
        .min_operands = 1,
        .max_operands = YK_CLI_LIST_MAX,
        .text = "Tokenize text files, in the order given, into shards with llm.c's header:\n"
                "DIR/train_000000.bin and on, DIR/val_000000.bin and on. The lines of a\n"
                "configuration that use them are printed. DIR appears whole or not at all.",
        .example = "yoke data prepare corpus/*.txt --out data/corpus --tokenizer tokenizer.json",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, inputs, &n, &done));
    return done ? YK_OK : prepare(&o, inputs, n);
}
