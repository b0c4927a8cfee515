/* cli/cli.h - the subcommands of the `yoke` program.
 *
 * A subcommand gets the arguments from its own name on (argv[0] is "train"), prints its result on
 * stdout and reports its failure; main() turns the status into the exit status. It answers YK_OK
 * after `--help`.
 */
#ifndef YK_CLI_CLI_H
#define YK_CLI_CLI_H

#include "cli/options.h"
#include "runtime/base/status.h"

yk_status yk_cli_train(int argc, char **argv);
yk_status yk_cli_plan(int argc, char **argv);
yk_status yk_cli_generate(int argc, char **argv);
yk_status yk_cli_eval(int argc, char **argv);
yk_status yk_cli_data(int argc, char **argv);
yk_status yk_cli_config(int argc, char **argv);
yk_status yk_cli_launch(int argc, char **argv);
yk_status yk_cli_bench(int argc, char **argv);

/* What `refuse` says of `word`, said once where mpirun or srun started several processes that all
 * find it so. Its status. */
yk_status yk_cli_refuse(yk_status (*refuse)(const char *word), const char *word);

/* Run a command that prints one JSON object. Where it fails without one, {"error": "..."} has what it said
 * on stderr. Its status. */
yk_status yk_cli_answer_json(yk_status (*run)(int argc, char **argv), int argc, char **argv);

/* For commands whose work ranks do not share: was this process started alone?
 *
 * YK_EINVAL  mpirun or srun started several; one of them says so
 */
yk_status yk_cli_check_one_process(const char *name);

/* Read the words of `yoke train`, for those who start it.
 *
 * path_out  the configuration file, borrowed from argv
 * sets_out  its --set assignments, added
 * done_out  true: help or the version was asked for and has been printed
 */
yk_status yk_cli_parse_train(int argc, char **argv, const char **path_out, yk_cli_list *sets_out,
                             bool *done_out);

#endif
