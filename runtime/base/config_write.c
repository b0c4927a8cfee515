/* runtime/base/config_write.c - a configuration as YAML.
 *
 * Strings are written in double quotes always, with everything escaped that YAML would change or
 * refuse; numbers in the shortest form that reads back the same. So a written file is complete and
 * exact, whatever it holds.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/base/config_keys.h"
#include "runtime/base/number.h"
#include "runtime/base/words.h"

#define INDENT 4

/* ---- values ------------------------------------------------------------------------------- */

/* Whether a character may stand in double quotes as it is: YAML 1.2's c-printable without its line
 * breaks, the byte order mark, quote and backslash. */
static bool stands_as_is(uint32_t c)
{
    if (c == '"' || c == '\\' || c == 0x2028 || c == 0x2029 || c == 0xfeff) return false;
    return (c >= 0x20 && c <= 0x7e) || (c >= 0xa0 && c <= 0xd7ff) || (c >= 0xe000 && c <= 0xfffd) ||
           c >= 0x10000;
}

static void write_string(const char *text, FILE *out)
{
    fputc('"', out);
    for (size_t n = strlen(text); n > 0;) {
        uint32_t c = 0;
        size_t length = (size_t)yk_utf8_decode(text, n, &c);
        YK_CHECK(length > 0); /* strings are checked when they are set */
        if (stands_as_is(c))
            fwrite(text, 1, length, out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", (char)c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c == '\t')
            fputs("\\t", out);
        else
            fprintf(out, "\\u%04" PRIx32, c); /* all others are below U+10000 */
        text += length;
        n -= length;
    }
    fputc('"', out);
}

static void write_list(const yk_string_list *list, FILE *out)
{
    fputc('[', out);
    for (int i = 0; i < list->n_items; i++) {
        if (i > 0) fputs(", ", out);
        write_string(list->items[i], out);
    }
    fputc(']', out);
}

static void write_set(const yk_choice *choices, int bits, FILE *out)
{
    const char *before = "[";
    if (bits == YK_AUTO) {
        fputs("auto", out);
        return;
    }
    if (bits == 0) fputs(before, out);
    for (; choices->name; choices++) {
        if (choices->value == YK_AUTO || !(bits & choices->value)) continue;
        fprintf(out, "%s%s", before, choices->name);
        before = ", ";
    }
    fputc(']', out);
}

static const char *choice_name(const yk_choice *choices, int value)
{
    for (; choices->name; choices++)
        if (choices->value == value) return choices->name;
    YK_CHECK(!"a value that is none of its key's choices");
    return NULL;
}

void yk_config_write_value(const yk_config *config, const yk_config_key *key, FILE *out)
{
    const void *member = (const char *)config + key->offset;
    char number[YK_NUMBER_MAX];
    int small = 0;
    switch (key->type) {
    case YK_KEY_INT:
        if (key->may_be_auto && *(const int64_t *)member == YK_AUTO)
            fputs("auto", out);
        else
            fprintf(out, "%" PRId64, *(const int64_t *)member);
        break;
    case YK_KEY_BYTES:
        yk_number_write_bytes(*(const int64_t *)member, number);
        fputs(number, out);
        break;
    case YK_KEY_REAL:
        yk_number_write_real(*(const double *)member, number);
        fputs(number, out);
        break;
    case YK_KEY_BOOL:
        fputs(*(const bool *)member ? "true" : "false", out);
        break;
    case YK_KEY_TERNARY:
        memcpy(&small, member, sizeof small);
        fputs(small == YK_AUTO ? "auto" : small ? "true" : "false", out);
        break;
    case YK_KEY_ENUM:
    case YK_KEY_DTYPE:
        memcpy(&small, member, sizeof small);
        fputs(choice_name(key->choices, small), out);
        break;
    case YK_KEY_SET:
        memcpy(&small, member, sizeof small);
        write_set(key->choices, small, out);
        break;
    case YK_KEY_STRING:
        write_string(*(char *const *)member, out);
        break;
    case YK_KEY_LIST:
        write_list((const yk_string_list *)member, out);
        break;
    }
}

/* ---- sections ----------------------------------------------------------------------------- */

/* The parts of a name that are also those of the one before need no line of their own: how many
 * bytes of `name` are sections that `before` lies in too. */
static size_t shared_sections(const char *name, const char *before)
{
    size_t shared = 0;
    for (size_t i = 0; name[i] && name[i] == before[i]; i++)
        if (name[i] == '.') shared = i + 1;
    return shared;
}

static int n_dots(const char *text, size_t n)
{
    int dots = 0;
    for (size_t i = 0; i < n; i++) dots += text[i] == '.';
    return dots;
}

/* A line for each section of `name` that was not opened before; returns the name's last part. */
static const char *write_sections(const char *name, const char *before, FILE *out)
{
    const char *part = name + shared_sections(name, before);
    for (const char *dot; (dot = strchr(part, '.')) != NULL; part = dot + 1)
        fprintf(out, "%*s%.*s:\n", INDENT * n_dots(name, (size_t)(part - name)), "",
                (int)(dot - part), part);
    fprintf(out, "%*s", INDENT * n_dots(name, (size_t)(part - name)), "");
    return part;
}

yk_status yk_config_write(const yk_config *config, FILE *out)
{
    const char *before = "";
    for (int i = 0; i < yk_config_n_keys; i++) {
        const yk_config_key *key = &yk_config_keys[i];
        fprintf(out, "%s: ", write_sections(key->name, before, out));
        yk_config_write_value(config, key, out);
        fputc('\n', out);
        before = key->name;
    }
    return yk_config_finish(out);
}
