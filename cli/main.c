/* cli/main.c - the `yoke` program: finds the subcommand, and is the one place that ends the
 * process.
 *
 * The exit status is that of the subcommand's status (runtime/base/status.h): 0 done, 1 failed
 * while running, 2 wrong input, 75 stopped after saving.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "runtime/base/version.h"
#include "runtime/base/words.h"

typedef struct subcommand {
    const char *name;
    yk_status (*run)(int argc, char **argv);
    const char *operands;
    const char *text;
    const char *example; /* one of the lines that `yoke` alone prints; NULL: none */
    bool is_alone;       /* several ranks would each do all of it */
} subcommand;

static const subcommand subcommands[] = {
    {"train", yk_cli_train, "CONFIG [--set KEY=VALUE]...", "train a model",
     "yoke train configs/demo.yaml --set run.dir=runs/new", false},
    {"plan", yk_cli_plan, "CONFIG [--device NAME] [--fit]", "memory and time of a step",
     "yoke plan configs/demo.yaml --device 4090d", true},
    {"generate", yk_cli_generate, "DIR [--prompt TEXT]", "text from a model",
     "yoke generate runs/demo --prompt 'In the beginning'", true},
    {"eval", yk_cli_eval, "DIR [--data FILE]", "the loss of a model on a text",
     "yoke eval runs/demo --data my.txt", true},
    {"data", yk_cli_data, "inspect|prepare FILE...", "look at token files, and make them from text",
     NULL, true},
    {"launch", yk_cli_launch, "[OPTION]... train CONFIG",
     "start many ranks, on one host or several", NULL, false},
    {"bench", yk_cli_bench, "ops|step|comm [OPTION]...", "rates of this machine, and of its links",
     NULL, false},
    {"config", yk_cli_config, "[KEY]", "every key: type, unit, default, range, meaning",
     "yoke config train", true},
};
#define N_SUBCOMMANDS (int)(sizeof subcommands / sizeof subcommands[0])

static void print_examples(void)
{
    for (int i = 0; i < N_SUBCOMMANDS; i++) {
        const subcommand *s = &subcommands[i];
        if (s->example) printf("%-52s %s\n", s->example, s->text);
    }
}

static void print_help(void)
{
    printf("yoke %s - trains transformer language models\n\nusage: yoke COMMAND ...\n\n",
           YK_VERSION);
    for (int i = 0; i < N_SUBCOMMANDS; i++) {
        const subcommand *s = &subcommands[i];
        char left[64];
        snprintf(left, sizeof left, "%s %s", s->name, s->operands);
        printf("  %-40s %s\n", left, s->text);
    }
    printf(
        "\n`yoke COMMAND --help` says more of each. Exit status: 0 done, 1 failed while running,\n"
        "2 wrong input, 75 stopped on a signal after saving.\n");
}

static yk_status fail_unknown(const char *word)
{
    const char *names[N_SUBCOMMANDS];
    char shown[YK_SHOWN_MAX];
    for (int i = 0; i < N_SUBCOMMANDS; i++) names[i] = subcommands[i].name;
    int near = yk_word_guess(word, names, N_SUBCOMMANDS);
    if (near < 0)
        return yk_fail(YK_EINVAL, yk_word_show(word, shown),
                       "there is no such command; `yoke --help` lists all");
    return yk_fail(YK_EINVAL, yk_word_show(word, shown),
                   "there is no such command; the nearest is `yoke %s` (`yoke --help` lists all)",
                   names[near]);
}

/* The first word is a subcommand's name, the others its operands and options. */
static yk_status run_subcommand(int argc, char **argv)
{
    for (int i = 0; i < N_SUBCOMMANDS; i++) {
        const subcommand *s = &subcommands[i];
        if (strcmp(argv[0], s->name) != 0) continue;
        if (s->is_alone) YK_TRY(yk_cli_check_one_process(s->name));
        return s->run(argc, argv);
    }
    return yk_cli_refuse(fail_unknown, argv[0]);
}

static yk_status run(int argc, char **argv)
{
    if (argc < 2) {
        print_examples();
        return YK_OK;
    }
    bool help = strcmp(argv[1], "help") == 0;
    if (help && argc > 2) {
        char option[] = "--help", *of[] = {argv[2], option, NULL};
        return run_subcommand(2, of);
    }
    if (help || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return YK_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("yoke %s\n", YK_VERSION);
        return YK_OK;
    }
    return run_subcommand(argc - 1, argv + 1);
}

/* Why an earlier piece was not written is no longer known. */
static yk_status end_output(void)
{
    if (fflush(stdout) != 0)
        return yk_fail(YK_EIO, "standard output", "cannot be written: %s", strerror(errno));
    if (ferror(stdout))
        return yk_fail(YK_EIO, "standard output",
                       "a part of it could not be written; see whether its disk is full");
    return YK_OK;
}

int main(int argc, char **argv)
{
    yk_status status = run(argc, argv);
    if (status == YK_OK) status = end_output();
    return yk_status_exit_code(status);
}
