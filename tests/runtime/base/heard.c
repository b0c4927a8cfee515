/* tests/runtime/base/heard.c - listening on stderr. */
#include "tests/runtime/base/heard.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void must(int ok)
{
    if (!ok) abort();
}

void heard_begin(heard *h)
{
    h->saved_stderr = dup(STDERR_FILENO);
    h->file = memfd_create("heard", MFD_CLOEXEC);
    must(h->saved_stderr >= 0 && h->file >= 0);
    must(dup2(h->file, STDERR_FILENO) >= 0);
}

const char *heard_take(heard *h)
{
    ssize_t n = pread(h->file, h->text, sizeof h->text - 1, 0);
    must(n >= 0);
    h->text[n] = '\0';
    must(ftruncate(h->file, 0) == 0 && lseek(STDERR_FILENO, 0, SEEK_SET) == 0);
    return h->text;
}

void heard_end(heard *h)
{
    must(dup2(h->saved_stderr, STDERR_FILENO) >= 0);
    close(h->saved_stderr);
    close(h->file);
}

int heard_lines(const char *text)
{
    int lines = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n' || c[1] == '\0';
    return lines;
}
