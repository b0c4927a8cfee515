/* runtime/text/rewrite.c - see rewrite.h.
 *
 * A step reads from one of two scratch texts, or from the input, and writes the other.
 */
#include "runtime/text/rewrite.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static yk_status out_of_memory(void)
{
    return yk_fail(YK_ENOMEM, "tokenizer", "no memory to rewrite a text");
}

yk_status yk_rewrites_add(yk_rewrites *rewrites, yk_rewrite_kind kind, const char *from,
                          const char *to)
{
    yk_rewrite *steps = realloc(rewrites->steps, (size_t)(rewrites->n + 1) * sizeof *steps);
    if (!steps) return out_of_memory();
    rewrites->steps = steps;
    yk_rewrite *s = &steps[rewrites->n++];
    *s = (yk_rewrite){.kind = kind};
    if (from && !(s->from = strdup(from))) return out_of_memory();
    if (to && !(s->to = strdup(to))) return out_of_memory();
    return YK_OK;
}

static bool is_ascii(const char *text, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if ((uint8_t)text[i] >= 0x80) return false;
    }
    return true;
}

/* Append the normal form of valid UTF-8. */
static yk_status normalize_run(utf8proc_option_t options, const char *text, int64_t n, yk_text *out)
{
    utf8proc_uint8_t *form = NULL;
    utf8proc_ssize_t m =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &form, options);
    if (m < 0) {
        return yk_fail(m == UTF8PROC_ERROR_NOMEM ? YK_ENOMEM : YK_EFORMAT, "tokenizer",
                       "cannot normalize the text: %s", utf8proc_errmsg(m));
    }
    yk_status status = yk_text_add(out, form, m);
    free(form);
    return status;
}

/* Append the normal form; bytes that are no UTF-8 stay as they are. */
static yk_status normalize(utf8proc_option_t options, const char *text, int64_t n, yk_text *out)
{
    for (int64_t i = 0; i < n;) {
        int64_t valid = yk_utf8_valid(text + i, n - i);
        if (valid > 0) YK_TRY(normalize_run(options, text + i, valid, out));
        i += valid;
        if (i == n) break;
        int length;
        yk_utf8_next(text + i, n - i, &length);
        YK_TRY(yk_text_add(out, text + i, length));
        i += length;
    }
    return YK_OK;
}

static yk_status replace(const yk_rewrite *s, const char *text, int64_t n, yk_text *out)
{
    size_t from = strlen(s->from), to = strlen(s->to);
    const char *at = text, *end = text + n, *hit;
    while ((hit = memmem(at, (size_t)(end - at), s->from, from))) {
        YK_TRY(yk_text_add(out, at, hit - at));
        YK_TRY(yk_text_add(out, s->to, (int64_t)to));
        at = hit + from;
    }
    return yk_text_add(out, at, end - at);
}

/* True when the step would leave the text as it is. */
static bool changes_nothing(const yk_rewrite *s, const char *text, int64_t n, bool first)
{
    if (n == 0) return true;
    switch (s->kind) {
    case YK_REWRITE_PREPEND:
        return false;
    case YK_REWRITE_REPLACE:
        return !memmem(text, (size_t)n, s->from, strlen(s->from));
    case YK_REWRITE_PREPEND_FIRST:
        if (!first) return true;
        __attribute__((fallthrough));
    case YK_REWRITE_PREPEND_NEW: {
        size_t to = strlen(s->to);
        return (size_t)n >= to && memcmp(text, s->to, to) == 0;
    }
    default:
        return is_ascii(text, n);
    }
}

static yk_status apply(const yk_rewrite *s, const char *text, int64_t n, yk_text *out)
{
    switch (s->kind) {
    case YK_REWRITE_NFC:
        return normalize(UTF8PROC_STABLE | UTF8PROC_COMPOSE, text, n, out);
    case YK_REWRITE_NFD:
        return normalize(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, text, n, out);
    case YK_REWRITE_NFKC:
        return normalize(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, text, n, out);
    case YK_REWRITE_NFKD:
        return normalize(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, text, n, out);
    case YK_REWRITE_REPLACE:
        return replace(s, text, n, out);
    case YK_REWRITE_PREPEND:
    case YK_REWRITE_PREPEND_NEW:
    case YK_REWRITE_PREPEND_FIRST:
        break;
    }
    YK_TRY(yk_text_add(out, s->to, (int64_t)strlen(s->to)));
    return yk_text_add(out, text, n);
}

yk_status yk_rewrites_apply(yk_rewrites *rewrites, const char *text, int64_t n, bool first,
                            const char **text_out, int64_t *n_out)
{
    int turn = 0;
    for (int64_t i = 0; i < rewrites->n; i++) {
        if (changes_nothing(&rewrites->steps[i], text, n, first)) continue;
        yk_text *out = &rewrites->scratch[turn];
        out->n = 0;
        YK_TRY(apply(&rewrites->steps[i], text, n, out));
        text = out->data;
        n = out->n;
        turn = !turn;
    }
    *text_out = text;
    *n_out = n;
    return YK_OK;
}

void yk_rewrites_fini(yk_rewrites *rewrites)
{
    for (int64_t i = 0; i < rewrites->n; i++) {
        free(rewrites->steps[i].from);
        free(rewrites->steps[i].to);
    }
    free(rewrites->steps);
    yk_text_fini(&rewrites->scratch[0]);
    yk_text_fini(&rewrites->scratch[1]);
    *rewrites = (yk_rewrites){0};
}
