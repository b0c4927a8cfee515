/* tests/runtime/base/heard.h - what was said on stderr while listening.
 *
 * stderr goes into a file without a name until heard_end(), also what is said by write(2). Between
 * heard_begin() and heard_end() a failing assertion is not seen, only counted.
 */
#ifndef YK_TESTS_RUNTIME_BASE_HEARD_H
#define YK_TESTS_RUNTIME_BASE_HEARD_H

#include <stddef.h>

typedef struct heard {
    int file, saved_stderr;
    char text[8192]; /* what heard_take() found last */
} heard;

void heard_begin(heard *h);

/* What was said since the last call, NUL-terminated; forgotten after that. */
const char *heard_take(heard *h);

void heard_end(heard *h);

/* How many lines `text` has, and whether the last of them is whole. */
int heard_lines(const char *text);

#endif
