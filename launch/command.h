/* launch/command.h - a command line in the making: its words, and what it finds in its
 * environment. */
#ifndef YK_LAUNCH_COMMAND_H
#define YK_LAUNCH_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "runtime/base/status.h"

/* A list of words that ends with NULL, as execvp() wants it; owns them. */
typedef struct yk_words {
    char **items;
    int n_items;
} yk_words;

/* {0} is an empty one. Adding never fails at once: yk_command_check() tells. */
typedef struct yk_command {
    yk_words words;
    yk_words settings; /* "NAME=VALUE" */
    bool is_short;     /* memory ran out */
} yk_command;

/* Add a word, by printf's rules. */
void yk_command_add(yk_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Set a variable in the command's environment. */
void yk_command_set(yk_command *command, const char *name, const char *value);

/* YK_ENOMEM  there was no memory for a word */
yk_status yk_command_check(const yk_command *command);

/* Print the command as one line that a shell understands, its variables in front. */
void yk_command_print(const yk_command *command, FILE *out);

/* Print a word so that a shell reads it as one. */
void yk_word_print_quoted(const char *word, FILE *out);

/* Release the words and clear the command. */
void yk_command_fini(yk_command *command);

#endif
