/* runtime/base/config_find.c - keys by name, the nearest to a name that is none, and what a key may
 * hold, in words.
 *
 * Nearness counts edits in several ways and takes the least: of the dotted name, plus 1 for each
 * part left out in front (`batch`, `loss_scale.start`); of the last part, plus up to 3 for another
 * section (`optim.warmup`); of the name without its last part, plus 2 (`train.batch.size`); of the
 * last part against the words that other programs use for the key, plus 1 (`optim.learning_rate`).
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "runtime/base/config_keys.h"
#include "runtime/base/number.h"
#include "runtime/base/words.h"

#define FAR 1000000 /* farther than any word */

int yk_config_find_key(const char *name)
{
    for (int i = 0; i < yk_config_n_keys; i++)
        if (strcmp(yk_config_keys[i].name, name) == 0) return i;
    return -1;
}

int yk_config_find_section(const char *name)
{
    size_t length = strlen(name);
    if (length == 0) return -1;
    for (int i = 0; i < yk_config_n_keys; i++) {
        const char *key = yk_config_keys[i].name;
        if (strncmp(key, name, length) == 0 && key[length] == '.') return i;
    }
    return -1;
}

/* A dotted name cut at its last dot. */
typedef struct parts {
    char section[YK_CONFIG_KEY_NAME_MAX];
    const char *last;
} parts;

static parts cut(const char *name)
{
    parts p = {.last = name};
    const char *dot = strrchr(name, '.');
    if (!dot) return p;
    size_t length = (size_t)(dot - name);
    if (length >= sizeof p.section) length = sizeof p.section - 1;
    memcpy(p.section, name, length);
    p.section[length] = '\0';
    p.last = dot + 1;
    return p;
}

/* Only words that are nearly the same count: short ones are near to everything. */
static int distance_to_also(const char *word, const char *also)
{
    int least = FAR;
    while (also && *also) {
        char one[YK_CONFIG_KEY_NAME_MAX];
        size_t length = strcspn(also, " ");
        memcpy(one, also, length);
        one[length] = '\0';
        int distance = yk_word_distance(word, one);
        if (distance * 3 <= (int)length) least = (int)yk_min(least, distance);
        also += length;
        also += strspn(also, " ");
    }
    return least;
}

static int distance_to_key(const char *name, const parts *wanted, const yk_config_key *key)
{
    int64_t least = distance_to_also(wanted->last, key->also) + 1;
    int left_out = 0;
    for (const char *tail = key->name; tail; left_out++) {
        least = yk_min(least, yk_word_distance(name, tail) + left_out);
        tail = strchr(tail, '.');
        if (tail) tail++;
    }
    if (wanted->section[0]) {
        parts have = cut(key->name);
        int64_t elsewhere = yk_min(3, yk_word_distance(wanted->section, have.section));
        least = yk_min(least, yk_word_distance(wanted->last, have.last) + elsewhere);
        least = yk_min(least, yk_word_distance(wanted->section, key->name) + 2);
    }
    return (int)least;
}

/* Make a section that `key` lies in the nearest when it is nearer than what was found. */
static void consider_sections(const char *name, const char *key, int *least, char *nearest)
{
    for (const char *dot = strchr(key, '.'); dot; dot = strchr(dot + 1, '.')) {
        char section[YK_CONFIG_KEY_NAME_MAX];
        snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
        int distance = yk_word_distance(name, section);
        if (distance >= *least) continue;
        *least = distance;
        strcpy(nearest, section);
    }
}

const char *yk_config_nearest(const char *name, char nearest_out[YK_CONFIG_KEY_NAME_MAX])
{
    parts wanted = cut(name);
    int least = FAR;
    for (int i = 0; i < yk_config_n_keys; i++) {
        int distance = distance_to_key(name, &wanted, &yk_config_keys[i]);
        if (distance >= least) continue;
        least = distance;
        strcpy(nearest_out, yk_config_keys[i].name);
    }
    for (int i = 0; i < yk_config_n_keys; i++)
        consider_sections(name, yk_config_keys[i].name, &least, nearest_out);
    if (2 * least > (int)strlen(name)) nearest_out[0] = '\0';
    return nearest_out;
}

void yk_config_key_type_text(const yk_config_key *key, char *text_out, size_t size)
{
    static const char *const names[] = {
        [YK_KEY_INT] = "int",       [YK_KEY_REAL] = "real",
        [YK_KEY_BOOL] = "bool",     [YK_KEY_TERNARY] = "bool or auto",
        [YK_KEY_STRING] = "string", [YK_KEY_LIST] = "list of strings",
        [YK_KEY_ENUM] = "choice",   [YK_KEY_DTYPE] = "dtype",
        [YK_KEY_BYTES] = "bytes",   [YK_KEY_SET] = "choices",
    };
    snprintf(text_out, size, "%s%s", names[key->type], key->may_be_auto ? " or auto" : "");
}

static void choices_text(const yk_choice *choices, char *text_out, size_t size)
{
    size_t used = 0;
    for (const yk_choice *c = choices; c->name && used < size; c++)
        used += (size_t)snprintf(text_out + used, size - used, "%s%s", c == choices ? "" : ", ",
                                 c->name);
}

void yk_config_key_range_text(const yk_config_key *key, char *text_out, size_t size)
{
    char low[YK_NUMBER_MAX], high[YK_NUMBER_MAX];
    text_out[0] = '\0';
    switch (key->type) {
    case YK_KEY_INT:
        if (key->max == INT64_MAX)
            snprintf(text_out, size, "%" PRId64 " or more", key->min);
        else
            snprintf(text_out, size, "%" PRId64 " to %" PRId64, key->min, key->max);
        break;
    case YK_KEY_BYTES:
        yk_number_write_bytes(key->min, low);
        yk_number_write_bytes(key->max, high);
        snprintf(text_out, size, "%s to %s", low, high);
        break;
    case YK_KEY_REAL:
        yk_number_write_real(key->low, low);
        yk_number_write_real(key->high, high);
        snprintf(text_out, size, "%s to %s%s", low, key->below_high ? "below " : "", high);
        break;
    case YK_KEY_ENUM:
    case YK_KEY_DTYPE:
    case YK_KEY_SET:
        choices_text(key->choices, text_out, size);
        break;
    case YK_KEY_BOOL:
    case YK_KEY_TERNARY:
    case YK_KEY_STRING:
    case YK_KEY_LIST:
        break;
    }
}
