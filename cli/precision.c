/* cli/precision.c - the option, and the types by name. */
#include "cli/precision.h"

#include <string.h>

#include "runtime/base/words.h"

yk_cli_option yk_cli_option_precision(const char **name_out)
{
    return (yk_cli_option){.name = "precision",
                           .type = YK_CLI_TEXT,
                           .out = name_out,
                           .value = "TYPE",
                           .text = "compute in fp32, bf16 or fp16; 16 bits halve the memory (fp32)",
                           .also = "dtype"};
}

yk_status yk_cli_find_dtype(const char *option, const char *name, yk_dtype *dtype_out)
{
    char shown[YK_SHOWN_MAX];
    for (int t = 0; t < YK_N_FLOAT_DTYPES; t++)
        if (strcmp(name, yk_dtype_name((yk_dtype)t)) == 0) {
            *dtype_out = (yk_dtype)t;
            return YK_OK;
        }
    return yk_fail(YK_EINVAL, option, "%s is none of fp32, bf16, fp16", yk_word_show(name, shown));
}
