/* cli/data.h - the two commands under `yoke data`. */
#ifndef YK_CLI_DATA_H
#define YK_CLI_DATA_H

#include "runtime/base/status.h"

/* argv[0] is "inspect" or "prepare"; otherwise as in cli.h. */
yk_status yk_cli_data_inspect(int argc, char **argv);
yk_status yk_cli_data_prepare(int argc, char **argv);

#endif
