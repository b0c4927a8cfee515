/* runtime/base/words.c - edit distance, UTF-8, and text made fit for a message. */
#include "runtime/base/words.h"

#include <ctype.h>
#include <string.h>

#include "runtime/base/arith.h"

#define COMPARED 63

int yk_utf8_decode(const char *text, size_t n, uint32_t *code_point_out)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: none overlong */
    unsigned char lead = (unsigned char)text[0];
    int length = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (length == 0 || lead >= 0xf8 || (size_t)length > n) return 0;
    uint32_t c = length == 1 ? lead : lead & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        unsigned char next = (unsigned char)text[i];
        if ((next & 0xc0) != 0x80) return 0;
        c = c << 6 | (next & 0x3f);
    }
    if (c < smallest[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
    *code_point_out = c;
    return length;
}

bool yk_utf8_is_valid(const char *text, size_t n)
{
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t c;
        length = (size_t)yk_utf8_decode(text + at, n - at, &c);
        if (length == 0) return false;
    }
    return true;
}

const char *yk_word_show(const char *text, char shown_out[YK_SHOWN_MAX])
{
    static const char cut[] = "...\"";
    size_t used = 0, n = strlen(text);
    shown_out[used++] = '"';
    while (n > 0) {
        uint32_t c = 0;
        size_t length = (size_t)yk_utf8_decode(text, n, &c);
        if (used + 4 + sizeof cut > YK_SHOWN_MAX) {
            memcpy(shown_out + used, cut, sizeof cut);
            return shown_out;
        }
        if (length == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0)) {
            length = length ? length : 1;
            shown_out[used++] = '?';
        } else {
            memcpy(shown_out + used, text, length);
            used += length;
        }
        text += length;
        n -= length;
    }
    shown_out[used++] = '"';
    shown_out[used] = '\0';
    return shown_out;
}

static int fold(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

int yk_word_distance(const char *a, const char *b)
{
    int rows[3][COMPARED + 1]; /* rows i-2, i-1 and i of the table, by i % 3 */
    int n_a = (int)strnlen(a, COMPARED), n_b = (int)strnlen(b, COMPARED);
    for (int j = 0; j <= n_b; j++) rows[0][j] = j;
    for (int i = 1; i <= n_a; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= n_b; j++) {
            int x = fold(a[i - 1]), y = fold(b[j - 1]);
            int64_t best = yk_min(above[j - 1] + (x != y), yk_min(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == fold(b[j - 2]) && y == fold(a[i - 2]))
                best = yk_min(best, above2[j - 2] + 1);
            row[j] = (int)best;
        }
    }
    return rows[n_a % 3][n_b];
}

int yk_word_nearest(const char *word, const char *const *words, int n)
{
    int nearest = 0, least = yk_word_distance(word, words[0]);
    for (int i = 1; i < n; i++) {
        int distance = yk_word_distance(word, words[i]);
        if (distance >= least) continue;
        least = distance;
        nearest = i;
    }
    return nearest;
}

/* Is `word`, of two letters or more, how `whole` begins? */
static bool begins(const char *word, const char *whole)
{
    size_t i = 0;
    while (word[i] && whole[i] && fold(word[i]) == fold(whole[i])) i++;
    return i >= 2 && !word[i];
}

int yk_word_guess(const char *word, const char *const *words, int n)
{
    int nearest = yk_word_nearest(word, words, n);
    int distance = yk_word_distance(word, words[nearest]);
    for (int i = 0; i < n && distance > 1; i++)
        if (begins(word, words[i])) return i;
    int64_t longer = yk_max((int64_t)strlen(word), (int64_t)strlen(words[nearest]));
    return 2 * distance <= longer ? nearest : -1;
}
