/* runtime/base/config_yaml.c - from YAML to the configuration, event by event.
 *
 * libyaml takes the text apart; this file walks its events along the table of keys. Nothing is
 * built in between: a section that is not in the table ends the reading, so the nesting of a file
 * is never deeper than that of the table. Of YAML only what a configuration needs is let through:
 * mappings, scalars, lists of scalars; no anchors, aliases, tags or second document.
 */
#include <inttypes.h>
#include <string.h>
#include <yaml.h>

#include "runtime/base/config_keys.h"
#include "runtime/base/words.h"

typedef struct reader {
    yaml_parser_t parser;
    yk_config *config;
    yk_config_place place; /* line: of the event under way; stays 0 for a single value */
    bool is_file;
    const char *text; /* (n) */
    size_t n;
    /* The line on which key i was given; [i][d]: the section of d parts that begins with it. */
    int64_t given[YK_CONFIG_KEYS_MAX][YK_CONFIG_DEPTH_MAX + 1];
} reader;

static yk_status read_mapping(reader *r, const char *prefix, int depth);

static void set_line(reader *r, int64_t line)
{
    if (r->is_file) r->place.line = line;
}

/* ---- events ------------------------------------------------------------------------------- */

/* Whether line `line`, from 0, is indented with a tab. */
static bool is_tab_indented(const reader *r, size_t line)
{
    const char *at = r->text, *end = r->text + r->n;
    for (; line > 0 && at < end; at++) line -= *at == '\n';
    while (at < end && *at == ' ') at++;
    return at < end && *at == '\t';
}

/* libyaml's reader (encoding) knows an offset, its scanner and parser a mark. */
static yk_status fail_yaml(reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return yk_fail(YK_ENOMEM, r->place.name, "no memory is left to read it");
    if (p->error == YAML_READER_ERROR) {
        int64_t line = 1;
        for (size_t i = 0; i < p->problem_offset && i < r->n; i++) line += r->text[i] == '\n';
        set_line(r, line);
        return yk_config_fail(&r->place, NULL, "%s (byte %zu); save it as plain UTF-8 text",
                              p->problem, p->problem_offset);
    }
    const char *context = p->context ? p->context : "";
    const char *advice = "look at the indentation, colons, brackets and quotes there";
    char begun[128] = "";
    if (context[0] && p->context_mark.line != p->problem_mark.line)
        snprintf(begun, sizeof begun, ", %s that begins on line %zu", context,
                 p->context_mark.line + 1);
    if (is_tab_indented(r, p->problem_mark.line))
        advice = "indent with spaces, not tabs";
    else if (strstr(context, "alias") || strstr(context, "anchor"))
        advice = "put a value that begins with * or & in quotes";
    set_line(r, (int64_t)p->problem_mark.line + 1);
    return yk_config_fail(&r->place, NULL, "not YAML: column %zu: %s%s; %s",
                          p->problem_mark.column + 1, p->problem, begun, advice);
}

/* The next event into *event_out, which the caller deletes. What no configuration needs fails. */
static yk_status next(reader *r, yaml_event_t *event_out)
{
    yaml_event_t e;
    if (!yaml_parser_parse(&r->parser, &e)) return fail_yaml(r);
    set_line(r, (int64_t)e.start_mark.line + 1);
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (e.type == YAML_SCALAR_EVENT) {
        anchor = e.data.scalar.anchor;
        tag = e.data.scalar.tag;
    } else if (e.type == YAML_SEQUENCE_START_EVENT) {
        anchor = e.data.sequence_start.anchor;
        tag = e.data.sequence_start.tag;
    } else if (e.type == YAML_MAPPING_START_EVENT) {
        anchor = e.data.mapping_start.anchor;
        tag = e.data.mapping_start.tag;
    }
    const char *why = NULL;
    if (e.type == YAML_ALIAS_EVENT)
        why = "an alias (*) is not understood here; write the value out, in quotes if it begins so";
    else if (anchor)
        why = "an anchor (&) is not understood here; remove it, or put the value in quotes";
    else if (tag)
        why = "a tag (!) is not understood here; remove it, or put the value in quotes";
    else if (e.type == YAML_SCALAR_EVENT &&
             strlen((const char *)e.data.scalar.value) != e.data.scalar.length)
        why = "a NUL character is in the text; remove it";
    if (why) {
        yaml_event_delete(&e);
        return yk_config_fail(&r->place, NULL, "%s", why);
    }
    *event_out = e;
    return YK_OK;
}

static const char *scalar_text(const yaml_event_t *e)
{
    return (const char *)e->data.scalar.value;
}

static bool is_plain(const yaml_event_t *e)
{
    return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static bool is_empty(const yaml_event_t *e)
{
    return e->type == YAML_SCALAR_EVENT && is_plain(e) && e->data.scalar.length == 0;
}

/* ---- values ------------------------------------------------------------------------------- */

/* The rest of a list whose start has been passed. */
static yk_status read_items(reader *r, const yk_config_key *key, yk_string_list *list)
{
    for (;;) {
        yaml_event_t e;
        YK_TRY(next(r, &e));
        yaml_event_type_t type = e.type;
        yk_status status = YK_OK;
        if (type == YAML_SCALAR_EVENT && is_empty(&e))
            status = yk_config_fail(&r->place, key->name, "an item is empty; remove it");
        else if (type == YAML_SCALAR_EVENT)
            status = yk_string_list_append(list, scalar_text(&e));
        else if (type != YAML_SEQUENCE_END_EVENT)
            status = yk_config_fail_wanted(&r->place, key, "an item is not a string");
        yaml_event_delete(&e);
        if (status != YK_OK || type == YAML_SEQUENCE_END_EVENT) return status;
    }
}

static yk_status read_list(reader *r, const yk_config_key *key)
{
    yk_config_place start = r->place;
    yk_string_list list = {NULL, 0};
    if (key->type != YK_KEY_LIST && key->type != YK_KEY_SET)
        return yk_config_fail_wanted(&start, key, "a list is given");
    yk_status status = read_items(r, key, &list);
    if (status == YK_OK) return yk_config_assign_list(r->config, key, &start, &list);
    yk_string_list_fini(&list);
    return status;
}

static yk_status read_key_value(reader *r, const yk_config_key *key)
{
    yaml_event_t e;
    yk_status status;
    YK_TRY(next(r, &e));
    if (e.type == YAML_SCALAR_EVENT)
        status = yk_config_assign_scalar(r->config, key, &r->place, scalar_text(&e), !is_plain(&e));
    else if (e.type == YAML_SEQUENCE_START_EVENT)
        status = read_list(r, key);
    else
        status = yk_config_fail_wanted(&r->place, key, "a mapping is given");
    yaml_event_delete(&e);
    return status;
}

static yk_status fail_section(reader *r, const char *name, const char *found)
{
    return yk_config_fail(
        &r->place, name,
        "%s, but this is a section; put its keys below it, indented, the first is %s", found,
        yk_config_keys[yk_config_find_section(name)].name);
}

static yk_status read_section(reader *r, const char *name, int depth)
{
    yaml_event_t e;
    yk_status status;
    YK_TRY(next(r, &e));
    if (e.type == YAML_MAPPING_START_EVENT)
        status = read_mapping(r, name, depth);
    else if (is_empty(&e)) /* every key of it is commented out */
        status = YK_OK;
    else
        status = fail_section(r, name,
                              e.type == YAML_SCALAR_EVENT ? "a value is given" : "a list is given");
    yaml_event_delete(&e);
    return status;
}

/* ---- mappings ----------------------------------------------------------------------------- */

static yk_status note_given(reader *r, const char *name, int64_t *line)
{
    if (*line != 0)
        return yk_config_fail(&r->place, name, "given twice, first on line %" PRId64 "; keep one",
                              *line);
    *line = r->place.line;
    return YK_OK;
}

static yk_status fail_unknown(reader *r, const char *name)
{
    char shown[YK_SHOWN_MAX], nearest[YK_CONFIG_KEY_NAME_MAX];
    yk_word_show(name, shown);
    if (strstr(name, "drop"))
        return yk_config_fail(&r->place, NULL,
                              "unknown key %s; there is no dropout here, remove the line", shown);
    yk_config_nearest(name, nearest);
    return yk_config_fail(&r->place, NULL, "unknown key %s%s%s (`yoke config` lists all)", shown,
                          nearest[0] ? "; the nearest is " : "", nearest);
}

/* The dotted name of `key` inside `prefix`, cut when it is longer than any name can be. */
static void join(const char *prefix, const char *key, char name_out[2 * YK_CONFIG_KEY_NAME_MAX])
{
    snprintf(name_out, 2 * YK_CONFIG_KEY_NAME_MAX, "%s%s%s", prefix, prefix[0] ? "." : "", key);
}

/* A key and its value. `depth` parts of the name are in `prefix`. */
static yk_status read_pair(reader *r, const char *prefix, int depth, const char *key)
{
    char name[2 * YK_CONFIG_KEY_NAME_MAX];
    join(prefix, key, name);
    int i = yk_config_find_key(name);
    if (i >= 0) {
        YK_TRY(note_given(r, name, &r->given[i][0]));
        return read_key_value(r, &yk_config_keys[i]);
    }
    i = yk_config_find_section(name);
    if (i < 0) return fail_unknown(r, name);
    for (const char *c = key; *c; c++) depth += *c == '.';
    YK_CHECK(depth < YK_CONFIG_DEPTH_MAX);
    YK_TRY(note_given(r, name, &r->given[i][depth + 1]));
    return read_section(r, name, depth + 1);
}

/* The rest of a mapping whose start has been passed; every name in it begins with `prefix`. */
static yk_status read_mapping(reader *r, const char *prefix, int depth)
{
    for (;;) {
        yaml_event_t e;
        YK_TRY(next(r, &e));
        yaml_event_type_t type = e.type;
        yk_status status = YK_OK;
        if (type == YAML_SCALAR_EVENT && e.data.scalar.length > 0)
            status = read_pair(r, prefix, depth, scalar_text(&e));
        else if (type != YAML_MAPPING_END_EVENT)
            status = yk_config_fail(&r->place, prefix[0] ? prefix : NULL,
                                    "a key here is not a name; write it as `key: value`");
        yaml_event_delete(&e);
        if (status != YK_OK || type == YAML_MAPPING_END_EVENT) return status;
    }
}

/* ---- documents ---------------------------------------------------------------------------- */

static yk_status read_root(reader *r)
{
    yaml_event_t e;
    yk_status status = YK_OK;
    YK_TRY(next(r, &e));
    if (e.type == YAML_MAPPING_START_EVENT)
        status = read_mapping(r, "", 0);
    else if (!is_empty(&e))
        status = yk_config_fail(&r->place, NULL,
                                "a %s is given, not keys with values; write `key: value` lines",
                                e.type == YAML_SCALAR_EVENT ? "single value" : "list");
    yaml_event_delete(&e);
    return status;
}

/* Pass one event, whose type is returned. */
static yk_status skip(reader *r, yaml_event_type_t *type_out)
{
    yaml_event_t e;
    YK_TRY(next(r, &e));
    *type_out = e.type;
    yaml_event_delete(&e);
    return YK_OK;
}

/* A stream of at most one document, whose root is a value of `key` or, without one, the keys. */
static yk_status read_stream(reader *r, const yk_config_key *key)
{
    yaml_event_type_t type;
    YK_TRY(skip(r, &type)); /* stream start */
    YK_TRY(skip(r, &type)); /* document start, or stream end when there is nothing */
    if (type == YAML_STREAM_END_EVENT) return YK_OK;
    YK_TRY(key ? read_key_value(r, key) : read_root(r));
    YK_TRY(skip(r, &type)); /* document end */
    YK_TRY(skip(r, &type)); /* stream end, or another document */
    if (type == YAML_STREAM_END_EVENT) return YK_OK;
    return yk_config_fail(&r->place, NULL, "a second document begins (---); keep one in a file");
}

static yk_status read_text(reader *r, const yk_config_key *key)
{
    YK_CHECK(yk_config_n_keys <= YK_CONFIG_KEYS_MAX);
    if (!yaml_parser_initialize(&r->parser))
        return yk_fail(YK_ENOMEM, r->place.name, "no memory is left to read it");
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, r->n);
    yk_status status = read_stream(r, key);
    yaml_parser_delete(&r->parser);
    return status;
}

yk_status yk_config_read(yk_config *config, const char *name, const char *text, size_t n)
{
    reader r = {.config = config, .place = {name, 0}, .is_file = true, .text = text, .n = n};
    if (n > YK_CONFIG_TEXT_MAX)
        return yk_config_fail(&r.place, NULL,
                              "%zu bytes are too many for a configuration; is it another file?", n);
    return read_text(&r, NULL);
}

yk_status yk_config_read_value(yk_config *config, const yk_config_key *key,
                               const yk_config_place *place, const char *text)
{
    reader r = {.config = config, .place = *place, .text = text, .n = strlen(text)};
    return read_text(&r, key);
}
