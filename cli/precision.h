/* cli/precision.h - the type that a model computes in, where no configuration says. */
#ifndef YK_CLI_PRECISION_H
#define YK_CLI_PRECISION_H

#include "cli/options.h"
#include "runtime/base/dtype.h"

/* The row of the option; what is given goes to *name_out. */
yk_cli_option yk_cli_option_precision(const char **name_out);

/* The floating-point type of a name that was given to `option`, such as "--precision".
 *
 * YK_EINVAL  there is none
 */
yk_status yk_cli_find_dtype(const char *option, const char *name, yk_dtype *dtype_out);

#endif
