/* runtime/text/split.h - cutting a text into the words that byte-pair encoding sees.
 *
 * Stages in order, each a regular expression (PCRE2, Unicode properties): the matches and what lies
 * between them are the pieces, and the next stage cuts those. Bytes that are no UTF-8 are pieces of
 * their own.
 */
#ifndef YK_RUNTIME_TEXT_SPLIT_H
#define YK_RUNTIME_TEXT_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"

/* GPT-2's pattern, which a ByteLevel step without a Split before it uses. */
#define YK_SPLIT_GPT2                                                                              \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

typedef enum yk_split_keep {
    YK_SPLIT_KEEP_ALL,     /* matches and gaps */
    YK_SPLIT_KEEP_GAPS,    /* matches are dropped */
    YK_SPLIT_KEEP_MATCHES, /* gaps are dropped */
} yk_split_keep;

typedef struct yk_splitter yk_splitter;

/* Receives the pieces in order; anything but YK_OK ends the splitting and is returned. */
typedef yk_status yk_split_sink(void *context, const char *piece, int64_t n);

/* Create a splitter without a stage, which passes texts on whole; the caller owns it.    [local] */
yk_status yk_splitter_create(yk_splitter **splitter_out);

void yk_splitter_destroy(yk_splitter *splitter);

/* Append a stage. `literal`: the pattern is plain text.                                  [local]
 *
 * YK_EFORMAT  PCRE2 does not accept the pattern; the message says where
 */
yk_status yk_splitter_add(yk_splitter *splitter, const char *pattern, bool literal,
                          yk_split_keep keep);

/* Cut a text and hand each piece to `sink`.                                              [local]
 *
 * YK_EFORMAT  matching ran into a limit of PCRE2
 */
yk_status yk_splitter_run(yk_splitter *splitter, const char *text, int64_t n, yk_split_sink *sink,
                          void *context);

#endif
