/* cli/train.c - `yoke train`: a run from a configuration. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/run_config.h"
#include "engine/trainer.h"

static void print_end(const yk_config *config, const yk_train_summary *s)
{
    printf("trained   %" PRId64 " steps, %" PRId64 " tokens in %.1f s: %.0f tokens/s\n", s->steps,
           s->tokens, s->train_s, s->tokens_per_s);
    printf("loss      %.4f on the training data", s->train_loss);
    if (s->has_val_loss) printf(", %.4f on the validation data", s->val_loss);
    printf("\n");
    if (s->steps_skipped > 0)
        printf("skipped   %" PRId64 " steps, whose gradients were not finite\n", s->steps_skipped);
    printf("folder    %s\n", config->run.dir);
}

static yk_status train(const yk_config *config)
{
    yk_model_shape shape;
    yk_train_summary summary;
    YK_TRY(yk_cli_find_shape(config, &shape));
    YK_TRY(yk_train(config, &shape, &summary));
    print_end(config, &summary);
    return YK_OK;
}

yk_status yk_cli_train(int argc, char **argv)
{
    yk_cli_list sets = {.n_items = 0};
    const char *path;
    bool done;
    int n;
    const yk_cli_option options[] = {
        {.name = "set",
         .type = YK_CLI_LIST,
         .out = &sets,
         .value = "KEY=VALUE",
         .text = "set a key over the file's; may be repeated"},
    };
    const yk_cli_command command = {
        .name = "train",
        .operands = "CONFIG",
        .min_operands = 1,
        .max_operands = 1,
        .text =
            "Train as the YAML file CONFIG says. The run's folder gets config.yaml, metrics.jsonl\n"
            "and model/, a Hugging Face directory.",
        .example = "yoke train configs/demo.yaml --set train.steps=500",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, &path, &n, &done));
    if (done) return YK_OK;
    yk_trainer_block_signals();
    yk_config config;
    YK_TRY(yk_cli_read_config(path, &sets, &config));
    yk_status status = train(&config);
    yk_config_fini(&config);
    return status;
}
