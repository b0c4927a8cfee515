/* runtime/text/added.c - see added.h. */
#include "runtime/text/added.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "runtime/text/text.h"

yk_status yk_added_add(yk_added *added, const char *name, int64_t n, int32_t id, bool eat_left,
                       bool eat_right)
{
    yk_added_token *tokens = realloc(added->tokens, (size_t)(added->n + 1) * sizeof *tokens);
    if (tokens) added->tokens = tokens;
    char *copy = tokens ? strndup(name, (size_t)n) : NULL;
    if (!copy) return yk_fail(YK_ENOMEM, "tokenizer", "no memory for its added tokens");
    tokens[added->n++] = (yk_added_token){
        .name = copy, .n = n, .id = id, .eat_left = eat_left, .eat_right = eat_right};
    return YK_OK;
}

static int compare(const void *a, const void *b)
{
    const yk_added_token *x = a, *y = b;
    uint8_t c = (uint8_t)x->name[0], d = (uint8_t)y->name[0];
    if (c != d) return c < d ? -1 : 1;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void yk_added_seal(yk_added *added)
{
    if (added->n > 1) qsort(added->tokens, (size_t)added->n, sizeof *added->tokens, compare);
    int32_t i = 0;
    for (int c = 0; c < 256; c++) {
        added->first[c] = i;
        while (i < added->n && (uint8_t)added->tokens[i].name[0] == c) i++;
    }
    added->first[256] = i;
}

/* True when text[0 .. n) begins with a white-space character, which has `length` bytes. */
static bool is_space(const char *text, int64_t n, int *length_out)
{
    if (yk_utf8_next(text, n, length_out) != YK_UTF8_CHARACTER) return false;
    utf8proc_int32_t c;
    utf8proc_iterate((const utf8proc_uint8_t *)text, *length_out, &c);
    if ((c >= 9 && c <= 13) || c == 0x85) return true;
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

/* Where the white space that ends at text[at] begins, not before text[from]. */
static int64_t space_before(const char *text, int64_t from, int64_t at)
{
    while (at > from) {
        int64_t c = at - 1;
        int length;
        while (c > from && ((uint8_t)text[c] & 0xc0) == 0x80) c--;
        if (!is_space(text + c, at - c, &length) || length != at - c) break;
        at = c;
    }
    return at;
}

static int64_t space_after(const char *text, int64_t n, int64_t at)
{
    int length;
    while (at < n && is_space(text + at, n - at, &length)) at += length;
    return at;
}

bool yk_added_find(const yk_added *added, const char *text, int64_t n, int64_t from,
                   int32_t *id_out, int64_t *begin_out, int64_t *end_out)
{
    if (added->n == 0) return false;
    for (int64_t i = from; i < n; i++) {
        int c = (uint8_t)text[i];
        for (int32_t k = added->first[c]; k < added->first[c + 1]; k++) {
            const yk_added_token *t = &added->tokens[k];
            if (t->n > n - i || memcmp(text + i, t->name, (size_t)t->n) != 0) continue;
            *id_out = t->id;
            *begin_out = t->eat_left ? space_before(text, from, i) : i;
            *end_out = t->eat_right ? space_after(text, n, i + t->n) : i + t->n;
            return true;
        }
    }
    return false;
}

void yk_added_fini(yk_added *added)
{
    for (int64_t i = 0; i < added->n; i++) free(added->tokens[i].name);
    free(added->tokens);
    *added = (yk_added){0};
}
