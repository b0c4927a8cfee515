/* runtime/base/status.c - one failure, one line.
 *
 * A message is formed in a buffer on the stack and leaves in one write(2), so that lines of several
 * threads or ranks on one terminal never mix, and nothing is allocated on the way: a report about
 * memory that has run out must not need any. Every line is shorter than PIPE_BUF (4096 bytes), up
 * to which a write to a pipe is atomic; what is longer is cut and ends in "...".
 */
#include "runtime/base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/words.h"

#define LINE_BYTES 4096

/* A line in the making; `used` never counts the final NUL and leaves room for "...\n". */
typedef struct line {
    char text[LINE_BYTES];
    size_t used;
} line;

static void line_append(line *l, const char *format, va_list args)
{
    size_t room = sizeof l->text - l->used;
    int n = vsnprintf(l->text + l->used, room, format, args);
    if (n < 0) return;
    l->used += (size_t)n < room ? (size_t)n : room - 1;
}

__attribute__((format(printf, 2, 3))) static void line_print(line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    line_append(l, format, args);
    va_end(args);
}

/* Bytes from a path or a file's content must neither break the line in two nor tell a terminal what
 * to do: control characters become spaces, and what is no UTF-8 becomes '?'. */
static void line_flatten(line *l)
{
    for (size_t i = 0, length; i < l->used; i += length) {
        uint32_t c = '?';
        length = (size_t)yk_utf8_decode(l->text + i, l->used - i, &c);
        if (length == 0) l->text[i] = '?', length = 1;
        if (c < 0x20 || (c >= 0x7f && c < 0xa0)) memset(l->text + i, ' ', length);
    }
}

static void line_write(line *l)
{
    static const char cut[] = "...\n";
    line_flatten(l);
    if (l->used + 2 > sizeof l->text) {
        l->used = sizeof l->text - (sizeof cut - 1);
        memcpy(l->text + l->used, cut, sizeof cut - 1);
        l->used += sizeof cut - 1;
    } else {
        l->text[l->used++] = '\n';
    }
    const char *p = l->text;
    while (l->used > 0) {
        ssize_t n = write(STDERR_FILENO, p, l->used);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* nobody listens: there is no one left to tell */
        p += n;
        l->used -= (size_t)n;
    }
}

/* What there is to say about each status. */
static const struct {
    const char *text;
    int exit_code;
} facts[] = {
    [YK_OK] = {"done", 0},
    [YK_EINVAL] = {"wrong input", 2},
    [YK_EFORMAT] = {"wrong file content", 2},
    [YK_EUNSUPPORTED] = {"not supported", 2},
    [YK_ENOFIT] = {"does not fit in memory", 2},
    [YK_EIO] = {"input or output failed", 1},
    [YK_ENOMEM] = {"out of memory", 1},
    [YK_EDIVERGED] = {"training diverged", 1},
    [YK_EDEVICE] = {"device error", 1},
    [YK_EPEER] = {"another rank is gone", 1},
    [YK_ETIMEDOUT] = {"another rank did not arrive in time", 1},
    [YK_ESTOPPED] = {"stopped on a signal after saving", 75},
};

const char *yk_status_text(yk_status status)
{
    return facts[status].text;
}

int yk_status_exit_code(yk_status status)
{
    return facts[status].exit_code;
}

yk_status yk_fail(yk_status status, const char *what, const char *why, ...)
{
    int saved_errno = errno;
    line l = {.used = 0};
    va_list args;
    line_print(&l, "yoke: %s: ", what);
    va_start(args, why);
    line_append(&l, why, args);
    va_end(args);
    line_write(&l);
    errno = saved_errno;
    return status;
}

void yk_warn(const char *what, const char *why, ...)
{
    int saved_errno = errno;
    line l = {.used = 0};
    va_list args;
    line_print(&l, "yoke: warning: %s: ", what);
    va_start(args, why);
    line_append(&l, why, args);
    va_end(args);
    line_write(&l);
    errno = saved_errno;
}

void yk_check_failed(const char *file, int line_number, const char *condition)
{
    line l = {.used = 0};
    line_print(&l, "yoke: %s:%d: broken invariant: %s; this is a bug in yoke, please report it",
               file, line_number, condition);
    line_write(&l);
    abort();
}
