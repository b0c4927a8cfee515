/* cli/cli.h - the subcommands of the `yoke` program.
 *
 * A subcommand gets the arguments from its own name on (argv[0] is "train"), prints its result on
 * stdout and reports its failure; main() turns the status into the exit status. It answers YK_OK
 * after `--help`.
 */
#ifndef YK_CLI_CLI_H
#define YK_CLI_CLI_H

#include "runtime/base/status.h"

yk_status yk_cli_train(int argc, char **argv);
yk_status yk_cli_plan(int argc, char **argv);
yk_status yk_cli_generate(int argc, char **argv);
yk_status yk_cli_eval(int argc, char **argv);
yk_status yk_cli_data(int argc, char **argv);
yk_status yk_cli_config(int argc, char **argv);

#endif
