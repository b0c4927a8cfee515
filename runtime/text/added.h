/* runtime/text/added.h - tokens that are found in a text by name, before anything else: special
 * marks and words that were added to a vocabulary.
 *
 * The leftmost wins, of several at one place the longest.
 */
#ifndef YK_RUNTIME_TEXT_ADDED_H
#define YK_RUNTIME_TEXT_ADDED_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"

typedef struct yk_added_token {
    char *name; /* (n) owned */
    int64_t n;
    int32_t id;
    bool eat_left, eat_right; /* takes the white space before it, after it */
} yk_added_token;

/* All zero is empty. */
typedef struct yk_added {
    yk_added_token *tokens; /* (n) */
    int64_t n;
    int32_t first[257]; /* tokens first[c] .. first[c + 1] begin with byte c, the longest first */
} yk_added;

/* Add a token; `name`, `n` > 0 bytes, is copied. yk_added_seal() must follow the last.   [local] */
yk_status yk_added_add(yk_added *added, const char *name, int64_t n, int32_t id, bool eat_left,
                       bool eat_right);

/* Make ready for finding. */
void yk_added_seal(yk_added *added);

/* Find the first token in text[from .. n). False: none. Else it stands for text[begin .. end). */
bool yk_added_find(const yk_added *added, const char *text, int64_t n, int64_t from,
                   int32_t *id_out, int64_t *begin_out, int64_t *end_out);

/* Release everything. */
void yk_added_fini(yk_added *added);

#endif
