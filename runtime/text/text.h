/* runtime/text/text.h - bytes that grow, and UTF-8 one character at a time.
 *
 * Text from a file or a model may be no UTF-8. Nothing here refuses it: a byte that is no part of a
 * character is told apart, and whoever reads decides.
 */
#ifndef YK_RUNTIME_TEXT_TEXT_H
#define YK_RUNTIME_TEXT_TEXT_H

#include <stdint.h>

#include "runtime/base/status.h"

/* Bytes that grow. All zero is empty and owns nothing. */
typedef struct yk_text {
    char *data; /* (n), not ended by a 0 */
    int64_t n, capacity;
} yk_text;

/* Append bytes.                                                                          [local]
 *
 * YK_ENOMEM  there is no memory for them
 */
yk_status yk_text_add(yk_text *text, const void *bytes, int64_t n);

/* Release the bytes and make it empty. */
void yk_text_fini(yk_text *text);

typedef enum yk_utf8_kind {
    YK_UTF8_CHARACTER,  /* a whole character */
    YK_UTF8_INVALID,    /* bytes that no character begins with */
    YK_UTF8_INCOMPLETE, /* the beginning of a character, then the text ends */
} yk_utf8_kind;

/* What `text` begins with, and over how many bytes: of a character all, of what is invalid the
 * longest part that one U+FFFD stands for (Unicode 15, section 3.9, "maximal subpart"). n > 0. */
yk_utf8_kind yk_utf8_next(const char *text, int64_t n, int *length_out);

/* Bytes of the longest beginning of `text` that is valid UTF-8. */
int64_t yk_utf8_valid(const char *text, int64_t n);

/* Append `n` bytes, each invalid part of them as one U+FFFD.                             [local] */
yk_status yk_text_add_valid(yk_text *text, const char *bytes, int64_t n);

#endif
