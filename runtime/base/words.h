/* runtime/base/words.h - words that people typed: are they text, which known word is nearest, and
 * how they are shown in a message.
 */
#ifndef YK_RUNTIME_BASE_WORDS_H
#define YK_RUNTIME_BASE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A buffer of this size holds whatever yk_word_show() writes. */
#define YK_SHOWN_MAX 72

/* `text` in double quotes, fit for one line of a message: characters that do not print become '?',
 * and what is long is cut between characters and ends in "...". Returns `shown_out`. */
const char *yk_word_show(const char *text, char shown_out[YK_SHOWN_MAX]);

/* How many single edits lead from `a` to `b`: a character inserted, removed, replaced, or two
 * neighbours swapped (Damerau 1964; a swapped pair is not edited again). Case and '-' against '_'
 * do not count. Of each word the first 63 characters are compared. */
int yk_word_distance(const char *a, const char *b);

/* The index of the word nearest to `word` among n >= 1; the first of equals. */
int yk_word_nearest(const char *word, const char *const *words, int n);

/* The index of the word that was probably meant: one that `word` begins, or else the nearest, unless
 * half of the longer one's letters would have to be edited. -1: none of the n >= 1. */
int yk_word_guess(const char *word, const char *const *words, int n);

/* The length in bytes of the UTF-8 character at `text`, which has n >= 1 bytes, and its code point;
 * 0, and the code point untouched, when it is malformed, overlong, a surrogate or beyond U+10FFFF.
 */
int yk_utf8_decode(const char *text, size_t n, uint32_t *code_point_out);

/* True when all n bytes are UTF-8. */
bool yk_utf8_is_valid(const char *text, size_t n);

#endif
