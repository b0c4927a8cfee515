/* cli/run_config.h - the configuration of a run, from a file and `--set`. */
#ifndef YK_CLI_RUN_CONFIG_H
#define YK_CLI_RUN_CONFIG_H

#include "cli/options.h"
#include "models/model.h"
#include "runtime/base/config.h"

/* Defaults, then the file, then each assignment of `sets`; checked. A run.dir that is unset becomes
 * runs/<name of the file without its ending>, a data.tokenizer that is unset that of model.init. The caller ends it with yk_config_fini().
 *
 * YK_EINVAL  the file cannot be read, or what it says is wrong
 */
yk_status yk_cli_read_config(const char *path, const yk_cli_list *sets, yk_config *config_out);

/* Likewise for a run that is to train, which needs data, too. */
yk_status yk_cli_read_run_config(const char *path, const yk_cli_list *sets, yk_config *config_out);

/* The model that a configuration describes: model.init's directory, or preset and keys.
 *
 * YK_EINVAL  both a directory and a preset or shape keys are given, or they do not make a model
 */
yk_status yk_cli_find_shape(const yk_config *config, yk_model_shape *shape_out);

#endif
