/* cli/config.c - `yoke config`: every key of a configuration. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "runtime/base/config.h"

yk_status yk_cli_config(int argc, char **argv)
{
    bool markdown = false, done;
    const char *key;
    int n_keys;
    const yk_cli_option options[] = {
        {.name = "markdown",
         .type = YK_CLI_SWITCH,
         .out = &markdown,
         .text = "as Markdown: docs/configuration.md is this of all keys"},
    };
    const yk_cli_command command = {
        .name = "config",
        .operands = "[KEY]",
        .max_operands = 1,
        .text =
            "Print each key of a configuration with its type, unit, range, default and meaning:\n"
            "all of them, or KEY, or the section KEY.",
        .example = "yoke config train",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
    };
    YK_TRY(yk_cli_parse(&command, argc, argv, &key, &n_keys, &done));
    if (done) return YK_OK;
    return yk_config_print_keys(key, markdown, stdout);
}
