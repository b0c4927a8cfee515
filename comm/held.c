/* comm/held.c - a file in memory in the place of stderr. */
#include "comm/held.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Where the true stderr lies while it is held: a number that nobody else counts up to, and below the
 * usual limit of 1024. */
#define TRUE_STDERR 919

static const int crashes[YK_HELD_N_SIGNALS] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static void write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        text += n;
        bytes -= (size_t)n;
    }
}

/* Copy what `memory` holds from byte `from` on to `fd`. */
static void pour(int memory, size_t from, int fd)
{
    char text[1024];
    ssize_t n;
    while ((n = pread(memory, text, sizeof text, (off_t)from)) > 0) {
        write_all(fd, text, (size_t)n);
        from += (size_t)n;
    }
}

/* Nothing here but system calls: it runs in the middle of anything. */
static void on_crash(int signal_number)
{
    pour(STDERR_FILENO, 0, TRUE_STDERR);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void yk_held_begin(yk_held *held)
{
    if (held->active || fcntl(TRUE_STDERR, F_GETFD) >= 0) return;
    int memory = memfd_create("stderr", MFD_CLOEXEC);
    if (memory < 0) return;
    if (dup3(STDERR_FILENO, TRUE_STDERR, O_CLOEXEC) >= 0) {
        struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_NODEFER};
        for (int i = 0; i < YK_HELD_N_SIGNALS; i++)
            sigaction(crashes[i], &action, &held->before[i]);
        dup2(memory, STDERR_FILENO);
        held->active = true;
    }
    close(memory);
}

size_t yk_held_read(const yk_held *held, char *text_out, size_t capacity)
{
    size_t used = 0;
    while (held->active && used < capacity) {
        ssize_t n = pread(STDERR_FILENO, text_out + used, capacity - used, (off_t)used);
        if (n <= 0) break;
        used += (size_t)n;
    }
    return used;
}

void yk_held_end(yk_held *held, size_t from)
{
    if (!held->active) return;
    held->active = false;
    int memory = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    dup2(TRUE_STDERR, STDERR_FILENO);
    close(TRUE_STDERR);
    for (int i = 0; i < YK_HELD_N_SIGNALS; i++) sigaction(crashes[i], &held->before[i], NULL);
    if (memory < 0) return;
    if (from != YK_HELD_DROP) pour(memory, from, STDERR_FILENO);
    close(memory);
}
