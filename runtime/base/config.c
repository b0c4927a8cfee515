/* runtime/base/config.c - a configuration's life: defaults, one key set, the end.
 *
 * Defaults are texts of the table, read by the same code as a user's.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/config_keys.h"
#include "runtime/base/words.h"

yk_status yk_config_init(yk_config *config_out)
{
    static const yk_config_place place = {"defaults", 0};
    yk_config config = {0};
    for (int i = 0; i < yk_config_n_keys; i++) {
        const yk_config_key *key = &yk_config_keys[i];
        bool quoted = key->initial[0] == '\0'; /* an unset string or list */
        yk_status status = yk_config_assign_scalar(&config, key, &place, key->initial, quoted);
        if (status == YK_OK) continue;
        yk_config_fini(&config);
        return status;
    }
    *config_out = config;
    return YK_OK;
}

void yk_config_fini(yk_config *config)
{
    for (int i = 0; i < yk_config_n_keys; i++) {
        const yk_config_key *key = &yk_config_keys[i];
        void *member = (char *)config + key->offset;
        if (key->type == YK_KEY_STRING) {
            free(*(char **)member);
            *(char **)member = NULL;
        } else if (key->type == YK_KEY_LIST) {
            yk_string_list_fini(member);
        }
    }
}

/* Set `key` from what stands after the = of an assignment. */
static yk_status set_value(yk_config *config, const yk_config_key *key,
                           const yk_config_place *place, const char *value)
{
    bool holds_text = key->type == YK_KEY_STRING || key->type == YK_KEY_LIST ||
                      key->type == YK_KEY_SET; /* which "" empties */
    if (value[0] == '[' || value[0] == '"' || value[0] == '\'')
        return yk_config_read_value(config, key, place, value);
    return yk_config_assign_scalar(config, key, place, value, holds_text && value[0] == '\0');
}

yk_status yk_config_set(yk_config *config, const char *assignment)
{
    char nearest[YK_CONFIG_KEY_NAME_MAX], shown[YK_SHOWN_MAX], name[YK_SHOWN_MAX + 8],
        key[2 * YK_CONFIG_KEY_NAME_MAX];
    yk_word_show(assignment, shown);
    snprintf(name, sizeof name, "--set %s", shown);
    yk_config_place place = {name, 0};

    const char *equals = strchr(assignment, '=');
    if (!equals) return yk_config_fail(&place, NULL, "there is no =; write --set key=value");
    size_t length = (size_t)(equals - assignment);
    if (length >= sizeof key) length = sizeof key - 1; /* too long to be a key: found nowhere */
    memcpy(key, assignment, length);
    key[length] = '\0';

    int i = yk_config_find_key(key);
    if (i >= 0) return set_value(config, &yk_config_keys[i], &place, equals + 1);
    i = yk_config_find_section(key);
    if (i >= 0)
        return yk_config_fail(&place, NULL, "%s is a section; name a key of it, such as %s", key,
                              yk_config_keys[i].name);
    yk_config_nearest(key, nearest);
    return yk_config_fail(&place, NULL, "there is no such key%s%s (`yoke config` lists all)",
                          nearest[0] ? "; the nearest is " : "", nearest);
}
