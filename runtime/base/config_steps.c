/* runtime/base/config_steps.c - lists of steps: numbers and ranges. */
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/config.h"

/* Read a number at `text`; returns what follows it, or NULL when there is none. */
static const char *read_number(const char *text, int64_t *out)
{
    int64_t n = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && n < INT64_MAX / 20; at++) n = 10 * n + (*at - '0');
    *out = n;
    return at == text ? NULL : at;
}

/* "7" or "10-12" or several of them with commas between; returns what follows, or NULL. */
static const char *read_range(const char *text, int64_t *first_out, int64_t *last_out)
{
    while (*text == ' ') text++;
    const char *at = read_number(text, first_out);
    *last_out = *first_out;
    if (at && *at == '-') at = read_number(at + 1, last_out);
    if (!at || *first_out > *last_out) return NULL;
    while (*at == ' ') at++;
    if (*at == ',') return at[1] ? at + 1 : NULL;
    return *at ? NULL : at;
}

yk_status yk_config_check_steps(const char *key, const yk_string_list *steps)
{
    int64_t first, last;
    for (int i = 0; i < steps->n_items; i++) {
        const char *at = steps->items[i];
        do at = read_range(at, &first, &last);
        while (at && *at);
        if (!at)
            return yk_fail(YK_EINVAL, key,
                           "\"%s\" is no step and no range of steps; give such as 20 or 30-32",
                           steps->items[i]);
    }
    return YK_OK;
}

bool yk_config_has_step(const yk_string_list *steps, int64_t step)
{
    int64_t first, last;
    for (int i = 0; i < steps->n_items; i++) {
        for (const char *at = steps->items[i]; at && *at;) {
            at = read_range(at, &first, &last);
            if (at && first <= step && step <= last) return true;
        }
    }
    return false;
}
