/* cli/launch.c - `yoke launch`: start a run of many ranks. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/run_config.h"
#include "launch/hosts.h"
#include "launch/launch.h"
#include "models/hf.h"
#include "runtime/base/number.h"
#include "runtime/base/words.h"
#include "runtime/device/device.h"

/* launch's own options end at its first word: no limit on what follows. */
#define MAX_WORDS 1024

/* The answer to the question that a launch on another host asks (launch/placement.h):
 * `place gpu|cpu HOST RANKS`. */
static yk_status answer_place(const char **words, int n)
{
    int64_t host, n_ranks;
    if (n != 4 || yk_number_read_int(words[2], &host) || yk_number_read_int(words[3], &n_ranks) ||
        host < 0 || host > INT_MAX || n_ranks < 1 || n_ranks > YK_LAUNCH_MAX_RANKS)
        return yk_fail(YK_EINVAL, "launch place", "is asked by yoke launch on another host alone");
    return yk_launch_place((int)host, (int)n_ranks, strcmp(words[1], "gpu") == 0);
}

static bool is_on_gpus(const yk_config *config, const yk_launch_options *o)
{
    if (config->device != YK_DEVICE_CHOICE_AUTO) return config->device == YK_DEVICE_CHOICE_CUDA;
    if (yk_device_count_cuda() > 0) return true;
    if (o->slurm)
        yk_warn("launch", "there is no GPU here, so the script asks for none; with --set "
                          "device=cuda it asks for one a rank");
    return false;
}

/* True when the word is that option, alone or with its value. */
static bool is_option(const char *word, const yk_cli_option *o)
{
    size_t n = strlen(o->name);
    if (word[0] != '-') return false;
    if (word[1] != '-') return o->letter && word[1] == o->letter;
    return strncmp(word + 2, o->name, n) == 0 && (!word[n + 2] || word[n + 2] == '=');
}

#define RIGHT_ORDER "yoke launch -n 4 train CONFIG --set KEY=VALUE"

/* A launch is one process, but for the question that mpirun asks of hosts. Two lists of options in
 * one line are easily mixed up: --set stands after `train`, ours before. */
static yk_status check_words(const yk_cli_command *command, int argc, char **argv)
{
    static const yk_cli_option set = {.name = "set"};
    int i = 1;
    if (argc < 2 || strcmp(argv[1], "place") != 0) YK_TRY(yk_cli_check_one_process("launch"));
    for (; i < argc && strcmp(argv[i], "train") != 0; i++)
        if (is_option(argv[i], &set))
            return yk_fail(YK_EINVAL, "launch",
                           "--set is train's, and stands after it: " RIGHT_ORDER);
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i - 1], "--set") == 0) continue; /* a value may look like anything */
        for (int j = 0; j < command->n_options; j++)
            if (is_option(argv[i], &command->options[j]))
                return yk_fail(YK_EINVAL, "launch",
                               "%.*s is launch's, and launch's options stand before the "
                               "command: " RIGHT_ORDER,
                               (int)(argv[i][1] == '-' ? strcspn(argv[i], "=") : 2), argv[i]);
    }
    return YK_OK;
}

/* Launch `yoke train`, whose configuration is read here so that its faults are told once. */
static yk_status launch_train(yk_launch_options *o, int n, char **words)
{
    yk_cli_list sets = {.n_items = 0};
    const char *path;
    char program[PATH_MAX] = "";
    bool done;
    YK_TRY(yk_cli_parse_train(n, words + 1, &path, &sets, &done));
    if (done) return YK_OK;
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return yk_fail(YK_EIO, "launch", "/proc/self/exe does not tell where this program is");
    words[0] = program;
    o->words = words;
    o->n_words = n + 1;
    yk_config config;
    YK_TRY(yk_cli_read_run_config(path, &sets, &config));
    const char *slash = strrchr(config.run.dir, '/');
    o->config = &config;
    o->job_name = slash && slash[1] ? slash + 1 : config.run.dir;
    o->n_threads = (int)config.cpu.threads;
    o->timeout_s = config.comm.timeout;
    o->is_on_gpus = is_on_gpus(&config, o);
    o->ranks_per_gpu = (int)config.launch.ranks_per_gpu;
    char end_mark[PATH_MAX]; /* what makes engine/run_folder.c refuse a folder */
    int length = snprintf(end_mark, sizeof end_mark, "%s/model/" YK_HF_CONFIG_NAME, config.run.dir);
    if (length < (int)sizeof end_mark) o->end_mark = end_mark;
    yk_status status = yk_launch(o);
    yk_config_fini(&config);
    return status;
}

static yk_status launch(yk_launch_options *o, int n, const char **operands)
{
    char shown[YK_SHOWN_MAX], *words[MAX_WORDS + 2] = {NULL};
    if (strcmp(operands[0], "place") == 0) return answer_place(operands, n);
    if (strcmp(operands[0], "train") != 0)
        return yk_fail(YK_EINVAL, "launch",
                       "%s cannot be launched; write `yoke launch -n 4 train CONFIG`",
                       yk_word_show(operands[0], shown));
    if (o->submit && !o->slurm)
        return yk_fail(YK_EINVAL, "launch", "--submit goes with --slurm; add it");
    /* words[0] is for the program; the words of argv may be changed, as those of main() */
    for (int i = 0; i < n; i++) words[i + 1] = (char *)operands[i];
    return launch_train(o, n, words);
}

yk_status yk_cli_launch(int argc, char **argv)
{
    yk_launch_options o = {.n_ranks = 0};
    int64_t n_ranks = 0, restarts = 0;
    const char *operands[MAX_WORDS];
    int n;
    bool done;
    const yk_cli_option options[] = {
        {.name = "ranks",
         .letter = 'n',
         .type = YK_CLI_INT,
         .out = &n_ranks,
         .value = "N",
         .min = 1,
         .max = YK_LAUNCH_MAX_RANKS,
         .text = "ranks in all; without it one a slot of the hosts, one a GPU, or one"},
        {.name = "hosts",
         .type = YK_CLI_TEXT,
         .out = &o.hosts,
         .value = "a:4,b:4",
         .text = "hosts and how many ranks each of them takes"},
        {.name = "hostfile",
         .type = YK_CLI_TEXT,
         .out = &o.host_file,
         .value = "FILE",
         .text = "the same, one host a line: name slots=4"},
        {.name = "restarts",
         .type = YK_CLI_INT,
         .out = &restarts,
         .value = "K",
         .min = 0,
         .max = 1000,
         .text = "start a run that failed again, from its first step, K times at most"},
        {.name = "dry-run",
         .type = YK_CLI_SWITCH,
         .out = &o.dry_run,
         .text = "print the placement and the command, and start nothing"},
        {.name = "slurm",
         .type = YK_CLI_SWITCH,
         .out = &o.slurm,
         .text = "print a Slurm batch script instead"},
        {.name = "submit", .type = YK_CLI_SWITCH, .out = &o.submit, .text = "give it to sbatch"},
    };
    const yk_cli_command command = {
        .name = "launch",
        .operands = "train CONFIG [--set KEY=VALUE]...",
        .min_operands = 1,
        .max_operands = MAX_WORDS,
        .operands_last = true,
        .text = "Start many ranks of a run by mpirun, print where each of them is, and wait for\n"
                "them. What follows `train` is train's own.",
        .example =
            "yoke launch -n 4 train configs/demo.yaml --set run.dir=runs/new --set train.steps=500",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(check_words(&command, argc, argv));
    YK_TRY(yk_cli_parse(&command, argc, argv, operands, &n, &done));
    o.n_ranks = (int)n_ranks;
    o.restarts = (int)restarts;
    return done ? YK_OK : launch(&o, n, operands);
}
