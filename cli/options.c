/* cli/options.c - options by table: one loop over the words, one function a kind of word. */
#include "cli/options.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/run_folder.h"
#include "runtime/base/config_keys.h"
#include "runtime/base/number.h"
#include "runtime/base/version.h"
#include "runtime/base/words.h"
#include "runtime/storage/file.h"

#define MAX_OPTIONS 64

/* Where the reading is. */
typedef struct words {
    const yk_cli_command *command;
    char **argv;
    int argc, at;          /* argv[at] is the word under way */
    const char **operands; /* (max_operands) */
    int n_operands;
    bool only_operands; /* after -- */
    bool done;
} words;

/* ---- help --------------------------------------------------------------------------------- */

static void print_option(const yk_cli_option *o)
{
    char left[64];
    int n = snprintf(left, sizeof left, "  --%s%s%s", o->name, o->value ? " " : "",
                     o->value ? o->value : "");
    if (o->letter) snprintf(left + n, sizeof left - (size_t)n, ", -%c", o->letter);
    printf("%-28s%s%s\n", left, strlen(left) > 27 ? "  " : "", o->text);
}

static void print_help(const yk_cli_command *c)
{
    const char *options = c->n_options ? " [OPTION]..." : "";
    printf("usage: yoke %s%s%s%s%s\n\n%s\n", c->name, c->operands_last ? options : "",
           c->operands[0] ? " " : "", c->operands, c->operands_last ? "" : options, c->text);
    if (c->example) printf("\nexample:\n  %s\n", c->example);
    printf("\noptions:\n");
    for (int i = 0; i < c->n_options; i++) print_option(&c->options[i]);
    printf("%-28sprint this\n", "  --help, -h");
    printf("%-28sprint the version\n", "  --version");
}

/* ---- options ------------------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static yk_status fail(const yk_cli_command *c,
                                                            const char *why, ...)
{
    char text[512];
    va_list args;
    va_start(args, why);
    vsnprintf(text, sizeof text, why, args);
    va_end(args);
    return yk_fail(YK_EINVAL, c->name, "%s", text);
}

static const yk_cli_option *find(const yk_cli_command *c, const char *name, size_t length)
{
    for (int i = 0; i < c->n_options; i++)
        if (strlen(c->options[i].name) == length && memcmp(c->options[i].name, name, length) == 0)
            return &c->options[i];
    return NULL;
}

static const char *find_also(const yk_cli_command *c, const char *name)
{
    for (int i = 0; i < c->n_options; i++)
        if (c->options[i].also && strcmp(c->options[i].also, name) == 0) return c->options[i].name;
    return NULL;
}

/* The option that was probably meant; NULL: nothing is near. */
static const char *guess(const yk_cli_command *c, const char *name)
{
    const char *names[MAX_OPTIONS + 2] = {"help", "version"};
    int n = 2;
    for (int i = 0; i < c->n_options && i < MAX_OPTIONS; i++) names[n++] = c->options[i].name;
    int i = yk_word_guess(name, names, n);
    return i < 0 ? NULL : names[i];
}

/* Is it one of the words that other programs use for a key? */
static bool is_also(const char *name, const char *also)
{
    while (also && *also) {
        char one[YK_CONFIG_KEY_NAME_MAX];
        size_t length = strcspn(also, " ");
        snprintf(one, sizeof one, "%.*s", (int)length, also);
        if (yk_word_distance(name, one) == 0) return true;
        also += length;
        also += strspn(also, " ");
    }
    return false;
}

/* The configuration's key of this name, section or not, where the command has --set; else NULL. */
static const char *find_key(const yk_cli_command *c, const char *name,
                            char key_out[YK_CONFIG_KEY_NAME_MAX])
{
    if (!find(c, "set", strlen("set")) || !yk_config_nearest(name, key_out)[0]) return NULL;
    const char *dot = strrchr(key_out, '.'), *last = dot ? dot + 1 : key_out;
    int index = yk_config_find_key(key_out);
    bool is_it = yk_word_distance(name, key_out) == 0 || yk_word_distance(name, last) == 0;
    return index >= 0 && (is_it || is_also(name, yk_config_keys[index].also)) ? key_out : NULL;
}

/* The value that stands with an unknown option, or after it, where it reads plainly. */
static const char *find_value(const words *w, const char *equals)
{
    const char *value = equals ? equals + 1 : w->at + 1 < w->argc ? w->argv[w->at + 1] : "";
    size_t plain =
        strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/");
    return plain > 0 && plain < 64 && !value[plain] && value[0] != '-' ? value : NULL;
}

/* An option that other programs have for a key. */
static yk_status fail_key(const words *w, const char *shown, const char *key, const char *value)
{
    bool is_folder = strcmp(key, "model.init") == 0;
    char *folder = is_folder && value ? yk_run_folder_around(value) : NULL;
    if (is_folder && value && !yk_dir_exists(value)) value = folder;
    if (!value) value = is_folder ? "FOLDER, of a run or a model" : "VALUE";
    yk_status status =
        fail(w->command, "there is no option %s; %s is a key of the configuration: --set %s=%s",
             shown, key, key, value);
    free(folder);
    return status;
}

static yk_status fail_unknown(const words *w, const char *word)
{
    const yk_cli_command *c = w->command;
    char shown[YK_SHOWN_MAX], name[YK_CONFIG_KEY_NAME_MAX], key[YK_CONFIG_KEY_NAME_MAX];
    const char *bare = word + strspn(word, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(bare, "="), bare);
    yk_word_show(word, shown);
    const char *meant = find_also(c, name);
    if (!meant && find_key(c, name, key))
        return fail_key(w, shown, key, find_value(w, strchr(bare, '=')));
    if (!meant) meant = guess(c, name);
    if (!meant)
        return fail(c, "there is no option %s (`yoke %s --help` lists all)", shown, c->name);
    return fail(c, "there is no option %s; the nearest is --%s (`yoke %s --help` lists all)", shown,
                meant, c->name);
}

static yk_status fail_range(const yk_cli_command *c, const yk_cli_option *o, const char *value,
                            const char *why)
{
    char shown[YK_SHOWN_MAX], low[YK_NUMBER_MAX], high[YK_NUMBER_MAX];
    if (o->type == YK_CLI_INT) {
        snprintf(low, sizeof low, "%" PRId64, o->min);
        snprintf(high, sizeof high, "%" PRId64, o->max);
    } else {
        yk_number_write_real(o->low, low);
        yk_number_write_real(o->high, high);
    }
    return fail(c, "--%s: %s %s; give a %snumber, %s to %s", o->name, yk_word_show(value, shown),
                why, o->type == YK_CLI_INT ? "whole " : "", low, high);
}

static yk_status set_int(const yk_cli_command *c, const yk_cli_option *o, const char *value)
{
    int64_t number = 0;
    const char *why = yk_number_read_int(value, &number);
    if (!why && (number < o->min || number > o->max)) why = "is out of range";
    if (why) return fail_range(c, o, value, why);
    *(int64_t *)o->out = number;
    return YK_OK;
}

static yk_status set_real(const yk_cli_command *c, const yk_cli_option *o, const char *value)
{
    double number = 0;
    const char *why = yk_number_read_real(value, &number);
    if (!why && (number < o->low || number > o->high)) why = "is out of range";
    if (why) return fail_range(c, o, value, why);
    *(double *)o->out = number;
    return YK_OK;
}

static yk_status add_to_list(const yk_cli_command *c, const yk_cli_option *o, const char *value)
{
    yk_cli_list *list = o->out;
    if (list->n_items == YK_CLI_LIST_MAX)
        return fail(c, "--%s: given more than %d times; write them into a file", o->name,
                    YK_CLI_LIST_MAX);
    list->items[list->n_items++] = value;
    return YK_OK;
}

static yk_status set(const yk_cli_command *c, const yk_cli_option *o, const char *value)
{
    bool is_text = o->type == YK_CLI_TEXT || o->type == YK_CLI_LIST;
    if (is_text && !value[0] && !o->may_be_empty)
        return fail(c, "--%s: its value is empty; give a %s, or leave the option out", o->name,
                    o->value);
    switch (o->type) {
    case YK_CLI_SWITCH:
        *(bool *)o->out = true;
        return YK_OK;
    case YK_CLI_TEXT:
        *(const char **)o->out = value;
        return YK_OK;
    case YK_CLI_LIST:
        return add_to_list(c, o, value);
    case YK_CLI_INT:
        return set_int(c, o, value);
    case YK_CLI_REAL:
        return set_real(c, o, value);
    }
    return YK_OK;
}

/* ---- words -------------------------------------------------------------------------------- */

/* An option whose value, if any came with the word, is `value`; else the next word is. */
static yk_status take_option(words *w, const yk_cli_option *o, const char *value)
{
    if (o->type == YK_CLI_SWITCH && value)
        return fail(w->command, "--%s takes no value; write it alone", o->name);
    if (o->type != YK_CLI_SWITCH && !value) {
        if (w->at + 1 == w->argc)
            return fail(w->command, "--%s: its value is missing; write --%s %s", o->name, o->name,
                        o->value);
        value = w->argv[++w->at];
    }
    return set(w->command, o, value);
}

static yk_status take_long(words *w, const char *word)
{
    const char *name = word + 2;
    size_t length = strcspn(name, "=");
    const yk_cli_option *o = find(w->command, name, length);
    if (o) return take_option(w, o, name[length] == '=' ? name + length + 1 : NULL);
    if (strcmp(name, "help") == 0) {
        print_help(w->command);
        w->done = true;
        return YK_OK;
    }
    if (strcmp(name, "version") == 0) {
        printf("yoke %s\n", YK_VERSION);
        w->done = true;
        return YK_OK;
    }
    return fail_unknown(w, word);
}

/* -n 4 or -n4 */
static yk_status take_short(words *w, const char *word)
{
    if (strcmp(word, "-h") == 0) return take_long(w, "--help");
    for (int i = 0; i < w->command->n_options; i++) {
        const yk_cli_option *o = &w->command->options[i];
        if (o->letter == word[1]) return take_option(w, o, word[2] ? word + 2 : NULL);
    }
    return fail_unknown(w, word);
}

/* A word behind the last operand; an assignment is --set's. */
static yk_status fail_surplus(const words *w, const char *word)
{
    char shown[YK_SHOWN_MAX], key[YK_CONFIG_KEY_NAME_MAX];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(word, "="), word);
    yk_word_show(word, shown);
    if (strchr(word, '=') && find(w->command, "set", strlen("set")) &&
        (!key[0] || yk_config_find_key(key) >= 0))
        return fail(w->command, "%s is one word too many; write --set KEY=VALUE, without spaces",
                    shown);
    return fail(w->command, "%s is one word too many; the usage is: yoke %s%s%s", shown,
                w->command->name, w->command->operands[0] ? " " : "", w->command->operands);
}

static yk_status take_operand(words *w, const char *word)
{
    if (w->n_operands == w->command->max_operands) return fail_surplus(w, word);
    bool is_first =
        w->n_operands == 0; /* what follows another command's name is for that one to read */
    if (!word[0] && (is_first || !w->command->operands_last))
        return fail(
            w->command,
            "\"\" is given for %s, as by a variable that is not set; the usage is: yoke %s %s",
            w->command->operands, w->command->name, w->command->operands);
    w->operands[w->n_operands++] = word;
    w->only_operands |= w->command->operands_last;
    return YK_OK;
}

static yk_status take(words *w)
{
    const char *word = w->argv[w->at];
    if (w->only_operands || word[0] != '-' || word[1] == '\0') return take_operand(w, word);
    if (strcmp(word, "--") == 0) {
        w->only_operands = true;
        return YK_OK;
    }
    return word[1] == '-' ? take_long(w, word) : take_short(w, word);
}

yk_status yk_cli_parse(const yk_cli_command *command, int argc, char **argv,
                       const char **operands_out, int *n_operands_out, bool *done_out)
{
    words w = {.command = command, .argv = argv, .argc = argc, .operands = operands_out};
    for (int i = 0; i < command->max_operands; i++) operands_out[i] = NULL;
    for (w.at = 1; w.at < argc && !w.done; w.at++) YK_TRY(take(&w));
    if (!w.done && w.n_operands < command->min_operands)
        return fail(command, "%s is missing; the usage is: yoke %s %s",
                    w.n_operands == 0 ? command->operands : "a word", command->name,
                    command->operands);
    *n_operands_out = w.n_operands;
    *done_out = w.done;
    return YK_OK;
}
