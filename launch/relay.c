/* launch/relay.c - a thread that empties a pipe. */
#include "launch/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 500 /* between looks whether it is over: a child's child may still hold the pipe */

/* All of it; false: nobody reads any longer. */
static bool pass_on(const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(STDOUT_FILENO, bytes, n);
        if (written >= 0) {
            bytes += written;
            n -= (size_t)written;
        } else if (errno == EAGAIN) { /* who shares it has made it so */
            struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
            poll(&output, 1, -1);
        } else if (errno != EINTR) {
            if (errno == EPIPE) kill(getpid(), SIGPIPE);
            return false;
        }
    }
    return true;
}

static void *run(void *context)
{
    yk_relay *r = context;
    bool is_read = true;
    char bytes[4096];
    struct pollfd input = {.fd = r->from, .events = POLLIN};
    while (true) {
        bool over = atomic_load(&r->is_over);
        int ready = poll(&input, 1, LOOK_MS);
        if (ready == 0 && over) return NULL;
        if (ready <= 0) continue;
        ssize_t n = read(r->from, bytes, sizeof bytes);
        if (n == 0 || (n < 0 && errno != EINTR)) return NULL;
        if (n > 0 && is_read) is_read = pass_on(bytes, (size_t)n);
    }
}

/* A file is there whoever reads it. */
static bool may_end(const struct stat *s)
{
    return S_ISFIFO(s->st_mode) || S_ISSOCK(s->st_mode) || isatty(STDOUT_FILENO) == 1;
}

yk_status yk_relay_begin(yk_relay *relay)
{
    struct stat output, errors;
    int ends[2];
    *relay = (yk_relay){.output = -1, .errors = -1, .from = -1};
    if (fstat(STDOUT_FILENO, &output) != 0 || !may_end(&output)) return YK_OK;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return yk_fail(YK_EIO, "launch", "no pipe for what mpirun prints: %s", strerror(errno));
    relay->from = ends[0];
    int error = pthread_create(&relay->thread, NULL, run, relay);
    if (error != 0) {
        relay->from = -1;
        close(ends[0]);
        close(ends[1]);
        return yk_fail(YK_EIO, "launch", "no thread for what mpirun prints: %s", strerror(error));
    }
    relay->output = ends[1];
    if (fstat(STDERR_FILENO, &errors) == 0 && errors.st_dev == output.st_dev &&
        errors.st_ino == output.st_ino)
        relay->errors = ends[1];
    return YK_OK;
}

void yk_relay_hand_over(yk_relay *relay)
{
    if (relay->output >= 0) close(relay->output);
}

void yk_relay_end(yk_relay *relay, const sigset_t *heard)
{
    sigset_t pipe, mask = *heard;
    const struct timespec at_once = {0, 0};
    if (relay->from < 0) return;
    sigaddset(&mask, SIGPIPE);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    atomic_store(&relay->is_over, true);
    pthread_join(relay->thread, NULL);
    close(relay->from);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (sigtimedwait(&pipe, NULL, &at_once) > 0) continue;
}
