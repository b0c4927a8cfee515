/* runtime/base/config_print.c - the table of keys, for people and as the documentation page. */
#include <errno.h>
#include <string.h>

#include "runtime/base/config_keys.h"
#include "runtime/base/words.h"

#define LINE_WIDTH 88
#define INDENT     4

yk_status yk_config_finish(FILE *out)
{
    if (fflush(out) == 0 && !ferror(out)) return YK_OK;
    return yk_fail(YK_EIO, "configuration", "cannot be written: %s", strerror(errno));
}

static void write_wrapped(const char *text, int indent, FILE *out)
{
    int column = 0;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > 0 && column + 1 + length > LINE_WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%*s%.*s", column ? 1 : indent, "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static const char *initial_text(const yk_config_key *key)
{
    return key->initial[0] ? key->initial : "unset";
}

static void print_key(const yk_config_key *key, FILE *out)
{
    char type[64], range[256];
    yk_config_key_type_text(key, type, sizeof type);
    yk_config_key_range_text(key, range, sizeof range);
    fprintf(out, "%s  (%s%s%s%s%s; default %s)\n", key->name, type, key->unit ? ", " : "",
            key->unit ? key->unit : "", range[0] ? "; " : "", range, initial_text(key));
    write_wrapped(key->text, INDENT, out);
}

static void print_markdown_row(const yk_config_key *key, FILE *out)
{
    char type[64], range[256];
    yk_config_key_type_text(key, type, sizeof type);
    yk_config_key_range_text(key, range, sizeof range);
    fprintf(out, "| `%s` | %s | %s | %s | %s | %s |\n", key->name, type, key->unit ? key->unit : "",
            initial_text(key), range, key->text);
}

static void print_markdown_head(const char *section, int length, FILE *out)
{
    fprintf(out,
            "\n## %.*s\n\n| key | type | unit | default | range | meaning |\n"
            "| --- | --- | --- | --- | --- | --- |\n",
            length, section);
}

static void print_markdown_intro(FILE *out)
{
    fputs(
        "# Configuration\n\n"
        "<!-- Made by `yoke config --markdown` from the table of keys; a test compares them. "
        "-->\n\n"
        "One YAML file describes a run; every key of it is below. `yoke config KEY` shows one of "
        "them\n"
        "or a section, and `--set key=value` on the command line goes over the file.\n\n"
        "- A section is a mapping: `train.batch` is `batch:` below `train:`; the dotted name "
        "works\n"
        "  too. An unknown key and a key given twice are errors.\n"
        "- Numbers are decimal. An int may be written `1e6` as long as it is whole. Octal-looking\n"
        "  numbers (`010`), `0x10` and separators (`1_000`) are errors, and so are NaN and "
        "infinity.\n"
        "- bytes: a whole number, or one with B, KiB, MiB, GiB, TiB (powers of 1024) or kB, MB, "
        "GB,\n"
        "  TB (powers of 1000).\n"
        "- bool: `true` or `false`; `yes`, `no`, `on` and `off` are understood as well.\n"
        "- A list may be one string. What stands in quotes is a string and never a number or a "
        "bool.\n"
        "- `null`, anchors, aliases, tags and several documents are errors. An empty file is "
        "legal:\n"
        "  every key has its default.\n",
        out);
}

/* Whether `key` was asked for: everything, itself, or its section. */
static bool is_asked(const yk_config_key *key, const char *asked)
{
    if (!asked) return true;
    size_t n = strlen(asked);
    return strncmp(key->name, asked, n) == 0 && (key->name[n] == '\0' || key->name[n] == '.');
}

yk_status yk_config_print_keys(const char *asked, bool markdown, FILE *out)
{
    if (asked && yk_config_find_key(asked) < 0 && yk_config_find_section(asked) < 0) {
        char shown[YK_SHOWN_MAX], nearest[YK_CONFIG_KEY_NAME_MAX];
        yk_config_nearest(asked, nearest);
        return yk_fail(YK_EINVAL, "config", "there is no key %s; %s%s", yk_word_show(asked, shown),
                       nearest[0] ? "the nearest is " : "`yoke config` lists all", nearest);
    }
    if (markdown && !asked) print_markdown_intro(out);
    const char *before = NULL;
    for (int i = 0; i < yk_config_n_keys; i++) {
        const yk_config_key *key = &yk_config_keys[i];
        if (!is_asked(key, asked)) continue;
        int section = (int)strcspn(key->name, ".");
        bool opens = !before || strncmp(before, key->name, (size_t)section) != 0;
        if (markdown && opens) print_markdown_head(key->name, section, out);
        if (!markdown && opens && before) fputc('\n', out);
        if (markdown)
            print_markdown_row(key, out);
        else
            print_key(key, out);
        before = key->name;
    }
    return yk_config_finish(out);
}
