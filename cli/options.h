/* cli/options.h - one subcommand's options and operands, read by a table.
 *
 * Model.    The table says each option's name, type and place; what is not given keeps the value
 *           that the caller put there. `--name value` and `--name=value` are the same; options and
 *           operands may stand in any order; after `--` everything is an operand. An option given
 *           twice counts the last time, but for lists, which collect.
 * Help.     `--help` prints what the table says; `--version` works everywhere.
 */
#ifndef YK_CLI_OPTIONS_H
#define YK_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"

typedef enum yk_cli_type {
    YK_CLI_SWITCH, /* bool: takes no value */
    YK_CLI_TEXT,   /* const char *, borrowed from argv */
    YK_CLI_LIST,   /* yk_cli_list */
    YK_CLI_INT,    /* int64_t, min .. max */
    YK_CLI_REAL,   /* double, low .. high */
} yk_cli_type;

#define YK_CLI_LIST_MAX 256

/* The values of an option that may be repeated; borrowed from argv. */
typedef struct yk_cli_list {
    const char *items[YK_CLI_LIST_MAX];
    int n_items;
} yk_cli_list;

typedef struct yk_cli_option {
    const char *name; /* without dashes */
    char letter;      /* `-n` beside `--ranks`; 0: none */
    yk_cli_type type;
    void *out;
    const char *value; /* what help calls the value, such as "N"; NULL for a switch */
    const char *text;  /* what it does; a line */
    int64_t min, max;  /* INT */
    double low, high;  /* REAL */
    bool may_be_empty; /* TEXT: '' means something else than not giving the option */
    const char *also;  /* what other commands call it; NULL: nothing else */
} yk_cli_option;

typedef struct yk_cli_command {
    const char *name;     /* as typed, such as "data inspect" */
    const char *operands; /* as help shows them, such as "CONFIG" or "[KEY]"; "" : none */
    int min_operands, max_operands;
    bool operands_last;  /* the first operand ends the options: it and all after it are operands */
    const char *text;    /* what it does; one or a few lines */
    const char *example; /* a whole command line, or NULL */
    const yk_cli_option *options;
    int n_options;
} yk_cli_command;

/* Read argv[1] .. argv[argc - 1] by the table.                                           [local]
 *
 * operands_out    (max_operands) those given, borrowed from argv; the rest are NULL
 * n_operands_out  how many were given
 * done_out        true: help or the version was asked for and has been printed; return YK_OK
 *
 * YK_EINVAL  an unknown option (the nearest is named), a value that is missing, empty, wrong or out
 *            of range, too few or too many operands
 */
yk_status yk_cli_parse(const yk_cli_command *command, int argc, char **argv,
                       const char **operands_out, int *n_operands_out, bool *done_out);

#endif
