/* runtime/text/rewrite.h - what a tokenizer changes in a text before it splits it.
 *
 * A list of steps in order: Unicode normal forms, replacements, prefixes. Empty text stays empty.
 */
#ifndef YK_RUNTIME_TEXT_REWRITE_H
#define YK_RUNTIME_TEXT_REWRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"
#include "runtime/text/text.h"

typedef enum yk_rewrite_kind {
    YK_REWRITE_NFC,
    YK_REWRITE_NFD,
    YK_REWRITE_NFKC,
    YK_REWRITE_NFKD,
    YK_REWRITE_PREPEND,       /* put `to` before the text */
    YK_REWRITE_PREPEND_NEW,   /* the same unless the text begins with it */
    YK_REWRITE_PREPEND_FIRST, /* as PREPEND_NEW, but only where the whole input begins */
    YK_REWRITE_REPLACE,       /* every `from` becomes `to` */
} yk_rewrite_kind;

typedef struct yk_rewrite {
    yk_rewrite_kind kind;
    char *from, *to; /* owned; NULL where the kind has no use for them */
} yk_rewrite;

/* All zero is empty and changes nothing. */
typedef struct yk_rewrites {
    yk_rewrite *steps; /* (n) */
    int64_t n;
    yk_text scratch[2];
} yk_rewrites;

/* Append a step; `from` and `to` are copied and may be NULL.                             [local] */
yk_status yk_rewrites_add(yk_rewrites *rewrites, yk_rewrite_kind kind, const char *from,
                          const char *to);

/* Apply all steps to `n` bytes of text.                                                  [local]
 *
 * first     the text is where the whole input begins
 * text_out  the result: `text` itself when nothing changes it, or memory of `rewrites` that is
 *           borrowed until its next use
 */
yk_status yk_rewrites_apply(yk_rewrites *rewrites, const char *text, int64_t n, bool first,
                            const char **text_out, int64_t *n_out);

/* Release everything. */
void yk_rewrites_fini(yk_rewrites *rewrites);

#endif
