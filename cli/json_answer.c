/* cli/json_answer.c - a command that answers with one JSON object, also where it fails.
 *
 * A failure is told on stderr by the frame that saw it, which knows nothing of JSON. So the command runs in
 * a process of its own, and what it says is kept until it has ended: then all of it goes where it was
 * meant to go, and where it failed without an object of its own, its last line becomes one.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

/* All that is written to a pipe, as a string that the caller frees; NULL: there is no memory. */
static char *take(int end)
{
    char *text = NULL;
    size_t room = 0;
    FILE *file = fdopen(end, "r");
    if (!file) return NULL;
    if (getdelim(&text, &room, '\0', file) < 0) { /* nothing */
        free(text);
        text = calloc(1, 1);
    }
    fclose(file);
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

/* In the process: run the command, and end. What it prints waits until nothing more comes on stderr, for
 * the parent reads one after the other. */
static void run_and_end(yk_status (*run)(int argc, char **argv), int argc, char **argv, int output)
{
    char *text = NULL;
    size_t bytes;
    stdout = open_memstream(&text, &bytes);
    yk_status status = stdout ? run(argc, argv) : YK_ENOMEM;
    if (!stdout || fclose(stdout) != 0)
        status = yk_fail(YK_ENOMEM, argv[0], "no memory for what it prints");
    close(STDERR_FILENO);
    if (text) dprintf(output, "%s", text);
    _exit(yk_status_exit_code(status));
}

/* The status that ends this process as the other did. */
static yk_status as_status(int status)
{
    if (WIFSIGNALED(status)) { /* it is ours to end by, too */
        fflush(stdout);
        raise(WTERMSIG(status));
    }
    if (status == 0) return YK_OK;
    return WIFEXITED(status) && WEXITSTATUS(status) == 2 ? YK_EINVAL : YK_EIO;
}

/* Pass on what the process says, and its end. */
static yk_status pass_on(const char *name, pid_t child, int output, int errors)
{
    char *err = take(errors), *out = take(output);
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) continue;
    if (ended < 0) return yk_fail(YK_EIO, name, "its process is lost: %s", strerror(errno));
    if (!err || !out) return yk_fail(YK_ENOMEM, name, "no memory for what it says");
    fputs(err, stderr);
    fputs(out, stdout);
    if (status != 0 && !out[0]) print_failure(err, status);
    free(out);
    free(err);
    return as_status(status);
}

yk_status yk_cli_answer_json(yk_status (*run)(int argc, char **argv), int argc, char **argv)
{
    int output[2], errors[2];
    if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0)
        return yk_fail(YK_EIO, argv[0], "no pipe for its answer: %s", strerror(errno));
    /* Who ignores it, as some supervisors do, is told of no child's end. */
    signal(SIGCHLD, SIG_DFL);
    pid_t parent = getpid(), child = fork();
    if (child < 0) return yk_fail(YK_EIO, argv[0], "no process for it: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(1);
        dup2(errors[1], STDERR_FILENO);
        close(errors[1]);
        run_and_end(run, argc, argv, output[1]);
    }
    close(output[1]);
    close(errors[1]);
    return pass_on(argv[0], child, output[0], errors[0]);
}
