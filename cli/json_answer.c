/* cli/json_answer.c - a command that answers with one JSON object, also where it fails.
 *
 * A failure is told on stderr by the frame that saw it, which knows nothing of JSON. So the command runs in
 * a process of its own, and what it says is kept until it has ended: then all of it goes where it was
 * meant to go, and where it failed without an object of its own, its last line becomes one.
 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

/* What was written to a file without a name, as a string that the caller frees; NULL: there is no memory. */
static char *take(int file)
{
    off_t bytes = lseek(file, 0, SEEK_END);
    char *text = calloc(1, (size_t)(bytes > 0 ? bytes : 0) + 1);
    if (text && bytes > 0 && pread(file, text, (size_t)bytes, 0) != bytes) text[0] = 0;
    return text;
}

/* The last line that tells of a failure, without the program's name; it is ended there. */
static const char *find_failure(char *text)
{
    const char *found = NULL;
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n"), *next = end + (*end == '\n');
        bool is_ours = strncmp(line, "yoke: ", 6) == 0,
             warns = strncmp(line, "yoke: warning: ", 15) == 0;
        if (is_ours && !warns) *end = 0, found = line + 6;
        line = next;
    }
    return found;
}

static void print_failure(char *errors, int status)
{
    const char *failure = find_failure(errors);
    if (!failure)
        failure = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "it ended without a word";
    json_t *object = json_pack("{s:s}", "error", failure);
    char *text = object ? json_dumps(object, 0) : NULL;
    if (text) puts(text);
    free(text);
    json_decref(object);
}

/* Pass on what the process has said; its exit status. */
static int pass_on(int output, int errors, int status)
{
    char *out = take(output), *err = take(errors);
    if (err) fputs(err, stderr);
    if (out) fputs(out, stdout);
    if (status != 0 && out && !out[0] && err) print_failure(err, status);
    free(out);
    free(err);
    if (WIFSIGNALED(status)) { /* it is ours to end by, too */
        fflush(stdout);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}

/* The status that ends this process as the other did. */
static yk_status as_status(int exit_status)
{
    if (exit_status == 0) return YK_OK;
    return exit_status == 2 ? YK_EINVAL : YK_EIO;
}

yk_status yk_cli_answer_json(yk_status (*run)(int argc, char **argv), int argc, char **argv)
{
    int output = memfd_create("output", MFD_CLOEXEC), errors = memfd_create("errors", MFD_CLOEXEC);
    /* Who ignores it, as some supervisors do, is told of no child's end. */
    signal(SIGCHLD, SIG_DFL);
    pid_t parent = getpid(), child = output < 0 || errors < 0 ? -1 : fork();
    if (child < 0) return yk_fail(YK_EIO, argv[0], "no process for it: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(1);
        if (dup2(output, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0)
            return yk_fail(YK_EIO, argv[0], "no file for its answer: %s", strerror(errno));
        return run(argc, argv);
    }
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) continue;
    if (ended < 0) return yk_fail(YK_EIO, argv[0], "its process is lost: %s", strerror(errno));
    int exit_status = pass_on(output, errors, status);
    close(output);
    close(errors);
    return as_status(exit_status);
}
