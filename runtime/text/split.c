/* runtime/text/split.c - see split.h.
 *
 * Text is checked to be UTF-8 once, by us: PCRE2 would check the rest of the text again at every
 * match, which is quadratic.
 */
#include "runtime/text/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/text.h"

#define JIT_STACK_START (32 * 1024)
#define JIT_STACK_MAX   (64 * 1024 * 1024)

typedef struct stage {
    pcre2_code *code;
    pcre2_match_data *match;
    yk_split_keep keep;
} stage;

struct yk_splitter {
    stage *stages; /* (n) */
    int64_t n;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* One run: where pieces go. */
typedef struct run {
    const yk_splitter *splitter;
    yk_split_sink *sink;
    void *context;
} run;

static yk_status out_of_memory(void)
{
    return yk_fail(YK_ENOMEM, "tokenizer", "no memory to split text");
}

yk_status yk_splitter_create(yk_splitter **splitter_out)
{
    yk_splitter *s = calloc(1, sizeof *s);
    if (!s) return out_of_memory();
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    if (!s->context || !s->stack) {
        yk_splitter_destroy(s);
        return out_of_memory();
    }
    pcre2_jit_stack_assign(s->context, NULL, s->stack);
    pcre2_set_match_limit(s->context, UINT32_MAX);
    *splitter_out = s;
    return YK_OK;
}

void yk_splitter_destroy(yk_splitter *splitter)
{
    if (!splitter) return;
    for (int64_t i = 0; i < splitter->n; i++) {
        pcre2_code_free(splitter->stages[i].code);
        pcre2_match_data_free(splitter->stages[i].match);
    }
    free(splitter->stages);
    pcre2_match_context_free(splitter->context);
    pcre2_jit_stack_free(splitter->stack);
    free(splitter);
}

static void error_text(int code, char text[256])
{
    if (pcre2_get_error_message(code, (PCRE2_UCHAR *)text, 256) < 0) strcpy(text, "unknown error");
}

yk_status yk_splitter_add(yk_splitter *splitter, const char *pattern, bool literal,
                          yk_split_keep keep)
{
    stage *stages = realloc(splitter->stages, (size_t)(splitter->n + 1) * sizeof *stages);
    if (!stages) return out_of_memory();
    splitter->stages = stages;
    int error;
    PCRE2_SIZE at;
    uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &at, NULL);
    if (!code) {
        char text[256];
        error_text(error, text);
        return yk_fail(YK_EFORMAT, "tokenizer", "pattern '%s': %s at character %zu", pattern, text,
                       (size_t)at);
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where it is not offered, matching is slower */
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!match) {
        pcre2_code_free(code);
        return out_of_memory();
    }
    stages[splitter->n++] = (stage){.code = code, .match = match, .keep = keep};
    return YK_OK;
}

/* Find the next match that is not empty in text[from .. n). False: there is none. */
static yk_status next_match(const yk_splitter *s, const stage *g, const char *text, int64_t n,
                            int64_t from, bool *found_out, int64_t *begin_out, int64_t *end_out)
{
    int rc = pcre2_match(g->code, (PCRE2_SPTR)text, (PCRE2_SIZE)n, (PCRE2_SIZE)from,
                         PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, g->match, s->context);
    *found_out = rc >= 0;
    if (rc == PCRE2_ERROR_NOMATCH) return YK_OK;
    if (rc < 0) {
        char why[256];
        error_text(rc, why);
        return yk_fail(YK_EFORMAT, "tokenizer", "cannot split the text: %s", why);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(g->match);
    *begin_out = (int64_t)v[0];
    *end_out = (int64_t)v[1];
    return YK_OK;
}

/* Cut valid UTF-8 by stage `k` and those after it. */
static yk_status cut(const run *r, int64_t k, const char *text, int64_t n)
{
    if (n == 0) return YK_OK;
    if (k == r->splitter->n) return r->sink(r->context, text, n);
    const stage *g = &r->splitter->stages[k];
    for (int64_t at = 0; at < n;) {
        bool found;
        int64_t begin = n, end = n;
        YK_TRY(next_match(r->splitter, g, text, n, at, &found, &begin, &end));
        if (begin < at || end < begin) begin = end = n; /* \K in a lookbehind: not a piece */
        if (g->keep != YK_SPLIT_KEEP_MATCHES) YK_TRY(cut(r, k + 1, text + at, begin - at));
        if (g->keep != YK_SPLIT_KEEP_GAPS) YK_TRY(cut(r, k + 1, text + begin, end - begin));
        at = end;
    }
    return YK_OK;
}

yk_status yk_splitter_run(yk_splitter *splitter, const char *text, int64_t n, yk_split_sink *sink,
                          void *context)
{
    run r = {.splitter = splitter, .sink = sink, .context = context};
    for (int64_t i = 0; i < n;) {
        int64_t valid = yk_utf8_valid(text + i, n - i);
        YK_TRY(cut(&r, 0, text + i, valid));
        i += valid;
        if (i == n) break;
        int length;
        yk_utf8_next(text + i, n - i, &length);
        YK_TRY(sink(context, text + i, length));
        i += length;
    }
    return YK_OK;
}
