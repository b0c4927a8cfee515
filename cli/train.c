/* cli/train.c - `yoke train`: a run from a configuration. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/run_config.h"
#include "engine/signals.h"
#include "engine/trainer.h"
#include "runtime/machine/machine.h"

static void print_end(const yk_config *config, const yk_train_summary *s)
{
    printf("trained   %" PRId64 " step%s, %" PRId64 " tokens in %.1f s: %.0f tokens/s\n", s->steps,
           s->steps == 1 ? "" : "s", s->tokens, s->train_s, s->tokens_per_s);
    printf("loss      %.4f on the training data", s->train_loss);
    if (s->has_val_loss) printf(", %.4f on the validation data", s->val_loss);
    printf("\n");
    if (s->steps_skipped > 0)
        printf("skipped   %" PRId64 " step%s, whose gradients were not finite\n", s->steps_skipped,
               s->steps_skipped == 1 ? "" : "s");
    printf("folder    %s\n", config->run.dir);
}

/* The key in the first line where two configurations differ. */
static yk_status say_difference(const char *mine, const char *first)
{
    while (*mine && *first) {
        size_t n = strcspn(mine, "\n"), m = strcspn(first, "\n");
        if (n != m || memcmp(mine, first, n) != 0)
            return yk_fail(
                YK_EINVAL, "configuration",
                "this rank has '%.*s' and rank 0 has '%.*s'; start every rank with the same",
                (int)n, mine, (int)m, first);
        mine += n + (mine[n] == '\n');
        first += m + (first[m] == '\n');
    }
    return YK_OK;
}

/* Configurations that differ between ranks would train different models: name the key. */
static yk_status compare(const yk_config *config, yk_world *world)
{
    char *text = NULL, *first = NULL;
    size_t n = 0;
    int64_t whole = 0;
    FILE *buffer = open_memstream(&text, &n);
    bool is_written = buffer && yk_config_write(config, buffer) == YK_OK;
    if (buffer && fclose(buffer) != 0) is_written = false;
    int64_t bytes = (int64_t)n + 1;
    yk_status status = yk_world_broadcast(world, &bytes, sizeof bytes, 0);
    if (status == YK_OK) first = calloc((size_t)bytes, 1);
    if (status == YK_OK) status = yk_world_min(world, is_written && first, &whole);
    if (status == YK_OK && !whole)
        status = yk_fail(YK_ENOMEM, "configuration", "some rank has no memory for its text");
    if (status == YK_OK && yk_world_rank(world) == 0) memcpy(first, text, n);
    if (status == YK_OK) status = yk_world_broadcast(world, first, bytes, 0);
    if (status == YK_OK) status = say_difference(text, first);
    free(text);
    free(first);
    return status;
}

static yk_status train(const yk_config *config, yk_world *world)
{
    yk_model_shape shape;
    yk_train_summary summary;
    if (yk_world_size(world) > 1) YK_TRY(yk_world_agree(world, compare(config, world)));
    YK_TRY(yk_world_agree(world, yk_cli_find_shape(config, &shape)));
    YK_TRY(yk_train(config, &shape, world, &summary));
    if (yk_world_rank(world) == 0) print_end(config, &summary);
    return YK_OK;
}

/* Ranks are started by `yoke launch`, whose options stand before `train`. */
static yk_status check_words(int argc, char **argv)
{
    static const char *const launchs[] = {"-n", "--ranks", "--hosts", "--hostfile"};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i - 1], "--set") == 0) continue; /* a value may look like anything */
        for (size_t j = 0; j < sizeof launchs / sizeof launchs[0]; j++) {
            size_t n = strlen(launchs[j]), digits = strspn(argv[i] + (j ? 0 : 2), "0123456789");
            if (strncmp(argv[i], launchs[j], n) != 0) continue;
            const char *rest = argv[i] + n;
            if (rest[0] && rest[0] != '=' && (j > 0 || digits == 0)) continue;
            return yk_fail(YK_EINVAL, "train",
                           "%s is launch's, which starts ranks: yoke launch -n 4 train CONFIG",
                           launchs[j]);
        }
    }
    return YK_OK;
}

yk_status yk_cli_parse_train(int argc, char **argv, const char **path_out, yk_cli_list *sets_out,
                             bool *done_out)
{
    int n;
    const yk_cli_option options[] = {
        {.name = "set",
         .type = YK_CLI_LIST,
         .out = sets_out,
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
        .example = "yoke train configs/demo.yaml --set run.dir=runs/new --set train.steps=500",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(check_words(argc, argv));
    return yk_cli_parse(&command, argc, argv, path_out, &n, done_out);
}

static yk_status read_words(int argc, char **argv, yk_config *config_out, bool *done_out)
{
    yk_cli_list sets = {.n_items = 0};
    const char *path;
    YK_TRY(yk_cli_parse_train(argc, argv, &path, &sets, done_out));
    return *done_out ? YK_OK : yk_cli_read_run_config(path, &sets, config_out);
}

/* Ranks that were asked for help alone do not wait for others, which would for them. */
static yk_status agree_on_end(yk_world *world, bool done)
{
    int64_t some, all;
    YK_TRY(yk_world_max(world, done, &some));
    YK_TRY(yk_world_min(world, done, &all));
    if (some == all) return YK_OK;
    yk_world_hold(world);
    return yk_world_agree(world, yk_fail(YK_EINVAL, "train",
                                         "some ranks are asked for help and others to train; "
                                         "start every rank with the same words"));
}

/* Read the configuration and train, as one rank of a world. */
static yk_status run(int argc, char **argv, yk_world *world)
{
    yk_config config;
    bool done;
    yk_world_hold(world);
    YK_TRY(yk_world_agree(world, read_words(argc, argv, &config, &done)));
    yk_status status = agree_on_end(world, done);
    if (done) return status;
    if (status == YK_OK) {
        yk_world_set_timeout(world, config.comm.timeout);
        yk_world_hold(world);
        status = train(&config, world);
    }
    yk_config_fini(&config);
    return status;
}

yk_status yk_cli_train(int argc, char **argv)
{
    yk_signals_block();
    yk_machine_order_gpus();
    yk_world *world;
    YK_TRY(yk_world_join(&world));
    yk_status status = run(argc, argv, world);
    bool together = status == YK_OK || status == YK_ESTOPPED || yk_status_exit_code(status) == 2;
    if (!together && yk_world_size(world) > 1)
        yk_world_abort(world, yk_status_exit_code(status)); /* the others may wait for this rank */
    yk_world_leave(world);
    return status;
}
