/* cli/data.c - `yoke data`: look at token files and make them. */
#include "cli/data.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "runtime/base/version.h"
#include "runtime/base/words.h"

static void print_help(void)
{
    printf(
        "usage: yoke data inspect FILE... [OPTION]...\n"
        "       yoke data prepare FILE... --out DIR [OPTION]...\n\n"
        "inspect   what a file of tokens or text holds: format, tokens, ids, documents, windows\n"
        "prepare   text files into token shards, one part to train on and one to validate on\n\n"
        "`yoke data inspect --help` and `yoke data prepare --help` say more.\n");
}

yk_status yk_cli_data(int argc, char **argv)
{
    static const char *const names[] = {"inspect", "prepare"};
    char shown[YK_SHOWN_MAX];
    if (argc < 2) {
        return yk_fail(YK_EINVAL, "data",
                       "inspect or prepare is missing; write yoke data inspect FILE, or yoke data "
                       "prepare FILE --out DIR");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return YK_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("yoke %s\n", YK_VERSION);
        return YK_OK;
    }
    if (strcmp(argv[1], names[0]) == 0) return yk_cli_data_inspect(argc - 1, argv + 1);
    if (strcmp(argv[1], names[1]) == 0) return yk_cli_data_prepare(argc - 1, argv + 1);
    return yk_fail(YK_EINVAL, "data", "there is no command %s; the nearest is `yoke data %s`",
                   yk_word_show(argv[1], shown), names[yk_word_nearest(argv[1], names, 2)]);
}
