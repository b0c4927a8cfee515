/* launch/command.c - words of a command line, and how a shell would quote them. */
#include "launch/command.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Takes the word; NULL is one for which memory ran out. */
static void append(yk_command *command, yk_words *list, char *word)
{
    size_t n = (size_t)list->n_items + 2;
    char **items = word ? realloc(list->items, n * sizeof *items) : NULL;
    if (!items) {
        free(word);
        command->is_short = true;
        return;
    }
    items[list->n_items++] = word;
    items[list->n_items] = NULL;
    list->items = items;
}

void yk_command_add(yk_command *command, const char *format, ...)
{
    char *word = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&word, format, args) < 0) word = NULL;
    va_end(args);
    append(command, &command->words, word);
}

void yk_command_set(yk_command *command, const char *name, const char *value)
{
    char *setting = NULL;
    if (asprintf(&setting, "%s=%s", name, value) < 0) setting = NULL;
    append(command, &command->settings, setting);
}

yk_status yk_command_check(const yk_command *command)
{
    if (!command->is_short) return YK_OK;
    return yk_fail(YK_ENOMEM, "launch", "no memory for the command line");
}

static bool is_plain(const char *word)
{
    if (!word[0]) return false;
    for (const char *c = word; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_-+=:,./@%", *c)) return false;
    return true;
}

void yk_word_print_quoted(const char *word, FILE *out)
{
    if (is_plain(word)) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (const char *c = word; *c; c++) {
        if (*c == '\'')
            fputs("'\\''", out);
        else
            fputc(*c, out);
    }
    fputc('\'', out);
}

void yk_command_print(const yk_command *command, FILE *out)
{
    for (int i = 0; i < command->settings.n_items; i++) {
        const char *setting = command->settings.items[i];
        int n = (int)strcspn(setting, "=");
        fprintf(out, "%.*s=", n, setting);
        yk_word_print_quoted(setting + n + 1, out);
        fputc(' ', out);
    }
    for (int i = 0; i < command->words.n_items; i++) {
        if (i) fputc(' ', out);
        yk_word_print_quoted(command->words.items[i], out);
    }
    fputc('\n', out);
}

static void words_fini(yk_words *list)
{
    for (int i = 0; i < list->n_items; i++) free(list->items[i]);
    free(list->items);
}

void yk_command_fini(yk_command *command)
{
    words_fini(&command->words);
    words_fini(&command->settings);
    *command = (yk_command){.is_short = false};
}
