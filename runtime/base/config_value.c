/* runtime/base/config_value.c - the value of one key: from text, to text.
 *
 * A value is read wholly before the member is touched, so a wrong one changes nothing. What stands
 * in quotes is a string; a number or a truth value in quotes is refused, because another YAML
 * reader would hand it on as text.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/config_keys.h"
#include "runtime/base/number.h"
#include "runtime/base/words.h"

/* ---- messages ----------------------------------------------------------------------------- */

yk_status yk_config_fail(const yk_config_place *place, const char *key, const char *why, ...)
{
    char what[1024], text[1024];
    if (place->line > 0)
        snprintf(what, sizeof what, "%s:%" PRId64, place->name, place->line);
    else
        snprintf(what, sizeof what, "%s", place->name);
    va_list args;
    va_start(args, why);
    vsnprintf(text, sizeof text, why, args);
    va_end(args);
    return yk_fail(YK_EINVAL, what, "%s%s%s", key ? key : "", key ? ": " : "", text);
}

yk_status yk_config_fail_wanted(const yk_config_place *place, const yk_config_key *key,
                                const char *found)
{
    static const char *const wanted[] = {
        [YK_KEY_INT] = "a whole number",
        [YK_KEY_REAL] = "a number",
        [YK_KEY_BOOL] = "true or false",
        [YK_KEY_TERNARY] = "true, false or auto",
        [YK_KEY_STRING] = "a string",
        [YK_KEY_LIST] = "a string or a list of strings, [a, b]",
        [YK_KEY_ENUM] = "one of ",
        [YK_KEY_DTYPE] = "one of ",
        [YK_KEY_BYTES] = "a size such as 24GiB or 512MiB",
        [YK_KEY_SET] = "some of ",
    };
    char range[256];
    yk_config_key_range_text(key, range, sizeof range);
    bool listed = key->type == YK_KEY_ENUM || key->type == YK_KEY_DTYPE || key->type == YK_KEY_SET;
    bool ranged = key->type == YK_KEY_INT || key->type == YK_KEY_REAL || key->type == YK_KEY_BYTES;
    return yk_config_fail(place, key->name, "%s; give %s%s%s%s", found, wanted[key->type],
                          ranged ? ", " : "", ranged || listed ? range : "",
                          key->may_be_auto ? ", or auto" : "");
}

static yk_status fail_value(const yk_config_place *place, const yk_config_key *key,
                            const char *text, const char *why)
{
    char shown[YK_SHOWN_MAX], found[YK_SHOWN_MAX + 128];
    snprintf(found, sizeof found, "%s %s", yk_word_show(text, shown), why);
    return yk_config_fail_wanted(place, key, found);
}

static yk_status fail_memory(const yk_config_key *key)
{
    return yk_fail(YK_ENOMEM, key->name, "no memory is left for its value");
}

/* ---- from text ---------------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0) return true;
    return false;
}

/* 1, 0, or -1 when it is neither: YAML 1.2's and 1.1's spellings, but for y and n. */
static int read_truth(const char *text)
{
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes",
                                      "YES",  "on",   "On",   "ON",  NULL};
    static const char *const no[] = {"false", "False", "FALSE", "no",  "No",
                                     "NO",    "off",   "Off",   "OFF", NULL};
    return is_one_of(text, yes) ? 1 : is_one_of(text, no) ? 0 : -1;
}

static bool is_null(const char *text)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    return is_one_of(text, nulls);
}

static yk_status fail_null(const yk_config_place *place, const yk_config_key *key, const char *text)
{
    char found[256];
    snprintf(found, sizeof found, "%s%s", text[0] ? text : "the value",
             text[0] ? " is no value" : " is missing");
    if (key->type == YK_KEY_STRING || key->type == YK_KEY_LIST || key->type == YK_KEY_SET)
        return yk_config_fail(place, key->name,
                              "%s; give a string, in quotes if this is it, or remove the key",
                              found);
    return yk_config_fail_wanted(place, key, found);
}

static yk_status assign_int(int64_t *member, const yk_config_key *key, const yk_config_place *place,
                            const char *text)
{
    int64_t value = 0;
    if (key->may_be_auto && strcmp(text, "auto") == 0) {
        *member = YK_AUTO;
        return YK_OK;
    }
    const char *why = key->type == YK_KEY_BYTES ? yk_number_read_bytes(text, &value)
                                                : yk_number_read_int(text, &value);
    if (why) return fail_value(place, key, text, why);
    if (value < key->min || value > key->max)
        return fail_value(place, key, text, "is out of range");
    *member = value;
    return YK_OK;
}

static yk_status assign_real(double *member, const yk_config_key *key, const yk_config_place *place,
                             const char *text)
{
    double value = 0;
    const char *why = yk_number_read_real(text, &value);
    if (why) return fail_value(place, key, text, why);
    bool over = key->below_high ? value >= key->high : value > key->high;
    if (value < key->low || over) return fail_value(place, key, text, "is out of range");
    *member = value;
    return YK_OK;
}

static yk_status assign_choice(void *member, const yk_config_key *key, const yk_config_place *place,
                               const char *text)
{
    const char *names[16];
    int n = 0;
    for (const yk_choice *c = key->choices; c->name; c++) {
        if (strcmp(c->name, text) == 0) {
            memcpy(member, &c->value, sizeof c->value);
            return YK_OK;
        }
        names[n++] = c->name;
    }
    char why[64];
    const char *meant = yk_word_distance(text, "gpu") == 0 ? "cuda" : text;
    snprintf(why, sizeof why, "is not a choice, the nearest is %s",
             names[yk_word_nearest(meant, names, n)]);
    return fail_value(place, key, text, why);
}

/* The bits of all items; none at all is the empty set. */
static yk_status assign_set(yk_config *config, const yk_config_key *key,
                            const yk_config_place *place, const yk_string_list *list)
{
    int bits = 0;
    for (int i = 0; i < list->n_items; i++) {
        int bit = 0;
        YK_TRY(assign_choice(&bit, key, place, list->items[i]));
        bits |= bit;
    }
    memcpy((char *)config + key->offset, &bits, sizeof bits);
    return YK_OK;
}

static yk_status assign_truth(void *member, const yk_config_key *key, const yk_config_place *place,
                              const char *text)
{
    int truth = read_truth(text);
    if (key->type == YK_KEY_TERNARY) {
        if (strcmp(text, "auto") == 0)
            truth = YK_AUTO;
        else if (truth < 0)
            return fail_value(place, key, text, "is not a truth value");
        memcpy(member, &truth, sizeof truth);
        return YK_OK;
    }
    if (truth < 0) return fail_value(place, key, text, "is not a truth value");
    *(bool *)member = truth == 1;
    return YK_OK;
}

static yk_status assign_string(char **member, const yk_config_key *key,
                               const yk_config_place *place, const char *text)
{
    if (!yk_utf8_is_valid(text, strlen(text))) return fail_value(place, key, text, "is not UTF-8");
    char *copy = strdup(text);
    if (!copy) return fail_memory(key);
    free(*member);
    *member = copy;
    return YK_OK;
}

/* A list of one, or the empty one from "". */
static yk_status assign_list_of_one(yk_config *config, const yk_config_key *key,
                                    const yk_config_place *place, const char *text)
{
    yk_string_list list = {NULL, 0};
    if (text[0]) YK_TRY(yk_string_list_append(&list, text));
    return yk_config_assign_list(config, key, place, &list);
}

yk_status yk_config_assign_scalar(yk_config *config, const yk_config_key *key,
                                  const yk_config_place *place, const char *text, bool quoted)
{
    void *member = (char *)config + key->offset;
    if (!quoted && is_null(text)) return fail_null(place, key, text);
    bool any_text = key->type == YK_KEY_STRING || key->type == YK_KEY_LIST ||
                    key->type == YK_KEY_ENUM || key->type == YK_KEY_DTYPE ||
                    key->type == YK_KEY_BYTES || key->type == YK_KEY_SET ||
                    strcmp(text, "auto") == 0;
    if (quoted && !any_text)
        return fail_value(place, key, text, "is a string, because of its quotes");
    switch (key->type) {
    case YK_KEY_INT:
    case YK_KEY_BYTES:
        return assign_int(member, key, place, text);
    case YK_KEY_REAL:
        return assign_real(member, key, place, text);
    case YK_KEY_BOOL:
    case YK_KEY_TERNARY:
        return assign_truth(member, key, place, text);
    case YK_KEY_ENUM:
    case YK_KEY_DTYPE:
        return assign_choice(member, key, place, text);
    case YK_KEY_STRING:
        return assign_string(member, key, place, text);
    case YK_KEY_LIST:
    case YK_KEY_SET:
        return assign_list_of_one(config, key, place, text);
    }
    return YK_OK;
}

yk_status yk_config_assign_list(yk_config *config, const yk_config_key *key,
                                const yk_config_place *place, yk_string_list *list)
{
    yk_status status = YK_OK;
    if (key->type == YK_KEY_SET) {
        status = assign_set(config, key, place, list);
        yk_string_list_fini(list);
        return status;
    }
    if (key->type != YK_KEY_LIST) status = yk_config_fail_wanted(place, key, "a list is too much");
    for (int i = 0; i < list->n_items && status == YK_OK; i++) {
        if (list->items[i][0] == '\0')
            status = yk_config_fail(place, key->name, "an item is empty; remove it");
        else if (!yk_utf8_is_valid(list->items[i], strlen(list->items[i])))
            status = fail_value(place, key, list->items[i], "is not UTF-8");
    }
    if (status != YK_OK) {
        yk_string_list_fini(list);
        return status;
    }
    yk_string_list *member = (yk_string_list *)(void *)((char *)config + key->offset);
    yk_string_list_fini(member);
    *member = *list;
    *list = (yk_string_list){NULL, 0};
    return YK_OK;
}

yk_status yk_string_list_append(yk_string_list *list, const char *text)
{
    char *copy = strdup(text);
    char **items = copy ? realloc(list->items, ((size_t)list->n_items + 1) * sizeof *items) : NULL;
    if (!items) {
        free(copy);
        return yk_fail(YK_ENOMEM, "configuration", "no memory is left for a list");
    }
    items[list->n_items++] = copy;
    list->items = items;
    return YK_OK;
}

void yk_string_list_fini(yk_string_list *list)
{
    for (int i = 0; i < list->n_items; i++) free(list->items[i]);
    free(list->items);
    *list = (yk_string_list){NULL, 0};
}
