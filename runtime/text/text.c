/* runtime/text/text.c - see text.h. */
#include "runtime/text/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

yk_status yk_text_add(yk_text *text, const void *bytes, int64_t n)
{
    if (n > text->capacity - text->n) {
        int64_t capacity = text->capacity < 64 ? 64 : text->capacity;
        while (capacity - text->n < n) capacity += capacity / 2;
        char *data = realloc(text->data, (size_t)capacity);
        if (!data) {
            return yk_fail(YK_ENOMEM, "text", "no memory for %lld bytes", (long long)capacity);
        }
        text->data = data;
        text->capacity = capacity;
    }
    if (n > 0) memcpy(text->data + text->n, bytes, (size_t)n);
    text->n += n;
    return YK_OK;
}

void yk_text_fini(yk_text *text)
{
    free(text->data);
    *text = (yk_text){0};
}

/* Unicode 15, table 3-7: the range of the second byte after first byte `c`; length 0 if no
 * character begins with it. */
static int utf8_shape(uint8_t c, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4) return 0;
    if (c < 0xe0) return 2;
    if (c == 0xe0) *low = 0xa0;  /* not an overlong form */
    if (c == 0xed) *high = 0x9f; /* not a surrogate */
    if (c < 0xf0) return 3;
    if (c == 0xf0) *low = 0x90;
    if (c == 0xf4) *high = 0x8f; /* not over U+10FFFF */
    return 4;
}

yk_utf8_kind yk_utf8_next(const char *text, int64_t n, int *length_out)
{
    const uint8_t *p = (const uint8_t *)text;
    uint8_t low, high;
    int length = utf8_shape(p[0], &low, &high), i = 1;
    for (; i < length && i < n; i++) {
        if (p[i] < low || p[i] > high) break;
        low = 0x80;
        high = 0xbf;
    }
    *length_out = i;
    if (i == length) return YK_UTF8_CHARACTER;
    return length > 0 && i == n ? YK_UTF8_INCOMPLETE : YK_UTF8_INVALID;
}

int64_t yk_utf8_valid(const char *text, int64_t n)
{
    int64_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, text + i, 8), !(eight & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        int length;
        if (yk_utf8_next(text + i, n - i, &length) != YK_UTF8_CHARACTER) break;
        i += length;
    }
    return i;
}

yk_status yk_text_add_valid(yk_text *text, const char *bytes, int64_t n)
{
    for (int64_t i = 0; i < n;) {
        int64_t valid = yk_utf8_valid(bytes + i, n - i);
        YK_TRY(yk_text_add(text, bytes + i, valid));
        i += valid;
        if (i == n) break;
        int length;
        yk_utf8_next(bytes + i, n - i, &length);
        YK_TRY(yk_text_add(text, "\xef\xbf\xbd", 3));
        i += length;
    }
    return YK_OK;
}
