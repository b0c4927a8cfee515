/* launch/parent.c - fork, signals, waiting, restarts.
 *
 * No handlers: the signals of interest are blocked for as long as a child lives, and this process
 * sleeps in sigtimedwait() until one comes, SIGCHLD among them.
 */
#include "launch/parent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch/leftovers.h"
#include "launch/relay.h"
#include "launch/stopped.h"
#include "runtime/base/clock.h"
#include "runtime/machine/process.h"
#include "runtime/storage/file.h"

#define PAUSE_MAX_S 30
#define END_MS      2000 /* for a command to end after SIGTERM */
#define KILL_MS     8000 /* for mpirun to end after SIGTERM, with all ranks */
#define LOOK_MS     1000 /* between looks at ranks that may have been stopped */
#define MAX_LEFT    1024 /* children that are killed at a time */

/* nohup asks for it. A signal that is ignored and blocked would come all the same. */
static bool is_ignored(int signal)
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) &&
           action.sa_handler == SIG_IGN;
}

static sigset_t signals_of_interest(void)
{
    static const int list[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) sigaddset(&set, list[i]);
    if (!is_ignored(SIGHUP)) sigaddset(&set, SIGHUP);
    if (!is_ignored(SIGPIPE)) sigaddset(&set, SIGPIPE);
    return set;
}

/* ---- starting ----------------------------------------------------------------------------- */

/* What a child is started with. */
typedef struct start {
    const yk_command *command;
    int input, output, errors; /* descriptors; -1: this process' own */
    const sigset_t *mask;
    bool is_apart; /* in a group of its own, and ends with this process */
} start;

/* In the child: become the command, or write errno to `report`. */
static void become(const start *s, pid_t parent, int report)
{
    if (s->is_apart) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(1); /* it died before it could be watched */
    }
    if (dup2(s->input, STDIN_FILENO) < 0) goto fail;
    if (s->output >= 0 && dup2(s->output, STDOUT_FILENO) < 0) goto fail;
    if (s->errors >= 0 && dup2(s->errors, STDERR_FILENO) < 0) goto fail;
    for (int i = 0; i < s->command->settings.n_items; i++)
        if (putenv(s->command->settings.items[i]) != 0) goto fail;
    sigprocmask(SIG_SETMASK, s->mask, NULL);
    execvp(s->command->words.items[0], s->command->words.items);
fail:;
    int error = errno;
    if (write(report, &error, sizeof error) < 0) _exit(126);
    _exit(127);
}

static yk_status fail_start(const char *program, int error)
{
    if (error == ENOENT)
        return yk_fail(YK_EINVAL, program,
                       "there is no such program in PATH; install it (%s), or load its module",
                       strcmp(program, "mpirun") == 0 ? "apt-get install openmpi-bin"
                                                      : "apt-get install slurm-client");
    return yk_fail(YK_EIO, program, "cannot be started: %s", strerror(error));
}

static yk_status start_child(const start *s, pid_t *child_out)
{
    const char *program = s->command->words.items[0];
    int report[2], error = 0;
    pid_t parent = getpid();
    if (pipe2(report, O_CLOEXEC) != 0) return fail_start(program, errno);
    pid_t child = fork();
    if (child == 0) become(s, parent, report[1]);
    error = child < 0 ? errno : 0;
    close(report[1]);
    /* exec closes the pipe; a child that could not writes why */
    if (child > 0 && read(report[0], &error, sizeof error) > 0) waitpid(child, NULL, 0);
    close(report[0]);
    if (error) return fail_start(program, error);
    *child_out = child;
    return YK_OK;
}

/* ---- waiting ------------------------------------------------------------------------------ */

static bool has_ended(pid_t child, yk_ended *ended)
{
    int status;
    if (waitpid(child, &status, WNOHANG) != child) return false;
    ended->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended->was_killed = WIFSIGNALED(status);
    return true;
}

static int64_t now_ms(void)
{
    return yk_clock_ns() / 1000000;
}

/* Wait for a signal until then; 0 when none came. */
static int take_signal(int64_t until_ms)
{
    const sigset_t set = signals_of_interest();
    int64_t left = until_ms - now_ms();
    if (left < 0) left = 0;
    const struct timespec limit = {left / 1000, left % 1000 * 1000000};
    int signal = sigtimedwait(&set, NULL, &limit);
    return signal > 0 ? signal : 0;
}

/* mpirun, and what it was asked. */
typedef struct run {
    pid_t mpirun;
    int n_here;       /* ranks of this machine; 0: not known */
    bool has_started; /* all of these have been there */
    int n_asked;
    int64_t kill_ms; /* when it is killed; 0: not yet told to end */
} run;

static void look_for_start(run *r)
{
    if (!r->has_started && r->n_here > 0)
        r->has_started = yk_stopped_n_ranks(r->mpirun) >= r->n_here;
}

/* Some ranks are there, and not all have been. */
static bool is_starting(const run *r)
{
    return !r->has_started && r->n_here > 0 && yk_stopped_n_ranks(r->mpirun) > 0;
}

static void tell_to_end(run *r)
{
    kill(r->mpirun, SIGTERM);
    if (r->kill_ms == 0) r->kill_ms = now_ms() + KILL_MS;
}

static void pass_on(run *r, int signal)
{
    if (signal == SIGUSR1 || signal == SIGUSR2) {
        kill(r->mpirun, signal);
        return;
    }
    /* They come again by themselves: from a terminal's shell and the kernel, and with each line. */
    if ((signal == SIGHUP || signal == SIGPIPE) && r->n_asked > 0) return;
    if (r->n_asked++ > 0) {
        tell_to_end(r);
        return;
    }
    if (is_starting(r)) {
        yk_warn("launch", "asked to stop (%s) while ranks were started; they end now",
                strsignal(signal));
        tell_to_end(r);
        return;
    }
    yk_warn("launch",
            "asked to stop (%s); the ranks save and end after their step, a second signal "
            "ends them now",
            strsignal(signal));
    kill(r->mpirun, SIGUSR1);
}

static void force_end(run *r, yk_ended *ended)
{
    if (r->kill_ms == 0 || now_ms() < r->kill_ms || ended->was_forced) return;
    ended->was_forced = true;
    yk_stopped_end(r->mpirun);
    kill(r->mpirun, SIGKILL);
}

/* Wait for mpirun, whose ranks may not all stand still for longer than the limit. */
static void wait_for(run *r, double still_limit_s, yk_ended *ended)
{
    yk_stopped stopped = {.limit_s = still_limit_s};
    while (!has_ended(r->mpirun, ended)) {
        int signal = take_signal(now_ms() + LOOK_MS);
        look_for_start(r);
        if (signal > 0 && signal != SIGCHLD) pass_on(r, signal);
        force_end(r, ended);
        if (ended->was_still || !yk_stopped_look(&stopped, r->mpirun)) continue;
        ended->was_still = true;
        yk_stopped_end(r->mpirun);
    }
    ended->was_asked = r->n_asked > 0;
}

/* SIGKILL to the children of this process as it sees them now. */
static void kill_children(void)
{
    pid_t children[MAX_LEFT];
    int n = yk_process_children(getpid(), children, MAX_LEFT);
    for (int i = 0; i < n; i++) kill(children[i], SIGKILL);
}

/* End the child, which may do it in its own way for a while, and then what it leaves behind: that
 * has become this process' own, generation by generation. */
static void end_all(pid_t child, yk_ended *ended)
{
    int64_t until = now_ms() + END_MS;
    kill(-child, SIGTERM);
    while (!has_ended(child, ended) && now_ms() < until) take_signal(until);
    kill(-child, SIGKILL);
    for (until = now_ms() + END_MS; now_ms() < until;) {
        kill_children();
        pid_t gone = waitpid(-1, NULL, WNOHANG);
        if (gone < 0) return;
        if (gone == 0) take_signal(now_ms() + 10);
    }
}

static void wait_for_answer(pid_t child, int limit_s, yk_ended *ended)
{
    int64_t until = now_ms() + (int64_t)limit_s * 1000;
    while (!has_ended(child, ended)) {
        int signal = take_signal(until);
        ended->was_asked = signal > 0 && signal != SIGCHLD && signal != SIGUSR2;
        ended->is_late = !ended->was_asked && now_ms() >= until;
        if (!ended->was_asked && !ended->is_late) continue;
        end_all(child, ended);
        return;
    }
}

/* What was written to a file without a name, as a string. */
static yk_status take_output(int file, char **output_out)
{
    off_t bytes = lseek(file, 0, SEEK_END);
    char *text = calloc(1, (size_t)(bytes > 0 ? bytes : 0) + 1);
    if (!text) return yk_fail(YK_ENOMEM, "launch", "no memory for what mpirun printed");
    if (bytes > 0 && pread(file, text, (size_t)bytes, 0) != bytes) {
        free(text);
        return yk_fail(YK_EIO, "launch", "what mpirun printed cannot be read back");
    }
    *output_out = text;
    return YK_OK;
}

/* Run a command to its end; it prints where this process does. */
static yk_status run_command(const yk_command *command, double still_limit_s, int n_here,
                             yk_ended *ended_out)
{
    const sigset_t set = signals_of_interest();
    sigset_t before;
    yk_ended ended = {.exit_status = 0};
    pid_t child = 0;
    yk_relay relay;
    int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigprocmask(SIG_BLOCK, &set, &before);
    yk_status status = yk_relay_begin(&relay);
    const start s = {command, input, relay.output, relay.errors, &before, true};
    if (status == YK_OK) status = start_child(&s, &child);
    yk_relay_hand_over(&relay);
    run r = {.mpirun = child, .n_here = n_here};
    if (status == YK_OK) wait_for(&r, still_limit_s, &ended);
    yk_relay_end(&relay, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(input);
    if (status == YK_OK) *ended_out = ended;
    return status;
}

yk_status yk_parent_ask(const yk_command *command, int limit_s, char **output_out,
                        yk_ended *ended_out)
{
    const sigset_t set = signals_of_interest();
    sigset_t before;
    yk_ended ended = {.exit_status = 0};
    pid_t child;
    int output = memfd_create("output", MFD_CLOEXEC);
    if (output < 0)
        return yk_fail(YK_EIO, "launch", "no file for what mpirun prints: %s", strerror(errno));
    int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigprocmask(SIG_BLOCK, &set, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const start s = {command, input, output, -1, &before, true};
    yk_status status = start_child(&s, &child);
    if (status == YK_OK) {
        wait_for_answer(child, limit_s, &ended);
        status = take_output(output, output_out);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(output);
    close(input);
    if (status == YK_OK) *ended_out = ended;
    return status;
}

yk_status yk_parent_feed(const yk_command *command, const char *input, yk_ended *ended_out)
{
    sigset_t mask;
    pid_t child;
    int status;
    int file = memfd_create("input", MFD_CLOEXEC);
    if (file < 0 || write(file, input, strlen(input)) != (ssize_t)strlen(input) ||
        lseek(file, 0, SEEK_SET) != 0)
        return yk_fail(YK_EIO, command->words.items[0], "its input cannot be written: %s",
                       strerror(errno));
    sigprocmask(SIG_SETMASK, NULL, &mask);
    const start s = {command, file, -1, -1, &mask, false};
    yk_status result = start_child(&s, &child);
    close(file);
    YK_TRY(result);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    ended_out->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended_out->was_asked = false;
    return YK_OK;
}

/* ---- mpirun ------------------------------------------------------------------------------- */

static yk_status outcome(const yk_ended *ended)
{
    if (ended->was_still) return YK_EPEER;
    if (ended->was_forced)
        return yk_fail(YK_EPEER, "launch",
                       "mpirun had not ended %d s after it was told to, and was killed with the "
                       "ranks of this machine; look for some on other hosts",
                       KILL_MS / 1000);
    switch (ended->exit_status) {
    case 0:
        return YK_OK;
    case 2:
        return YK_EINVAL;
    case 75:
        return YK_ESTOPPED;
    }
    if (ended->exit_status == 128 + SIGKILL)
        return yk_fail(YK_EPEER, "launch",
                       "a rank or mpirun was killed (SIGKILL); if nobody did, memory ran out: look "
                       "into dmesg, and at the plan (yoke plan)");
    if (ended->exit_status > 128)
        return yk_fail(YK_EPEER, "launch", "a rank or mpirun ended by a signal (%s)%s",
                       strsignal(ended->exit_status - 128),
                       ended->was_asked ? "; it was asked to stop before it could save" : "");
    return YK_EPEER;
}

/* Sleep, unless a signal asks for the end; true when one did. */
static bool pause_is_cut(int seconds)
{
    sigset_t set = signals_of_interest(), before;
    const struct timespec limit = {seconds, 0};
    static const int others[] = {SIGUSR1, SIGUSR2, SIGCHLD};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) sigdelset(&set, others[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    bool cut = sigtimedwait(&set, NULL, &limit) > 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return cut;
}

/* Is it of use to start a run again that has just failed? Says why not. */
static bool may_go_on(const yk_ended *ended, const char *end_mark)
{
    if (!end_mark || !yk_file_exists(end_mark)) return true;
    yk_warn("launch",
            "the run failed (exit status %d) and is not started again: it has saved weights (%s), "
            "which the same command would not write over; go on from them with model.init and "
            "another run.dir",
            ended->exit_status, end_mark);
    return false;
}

yk_status yk_parent_run_mpirun(const yk_command *command, double still_limit_s, int n_here,
                               int restarts, const char *end_mark)
{
    yk_status failure = YK_OK; /* of the run before */
    int pause = 1;
    for (int i = 1;; i++) {
        yk_ended ended;
        int64_t begin_s = (int64_t)time(NULL);
        YK_TRY(run_command(command, still_limit_s, n_here, &ended));
        yk_status status = outcome(&ended);
        if (ended.was_killed) yk_leftovers_remove("/dev/shm", begin_s);
        if (status == YK_EINVAL && failure != YK_OK) return failure;
        if (status != YK_EPEER || ended.was_asked || i > restarts) return status;
        if (!may_go_on(&ended, end_mark)) return status;
        failure = status;
        yk_warn("launch",
                "the run failed (exit status %d) and is started again in %d s, from its first step "
                "(restart %d of at most %d)",
                ended.exit_status, pause, i, restarts);
        if (pause_is_cut(pause)) return status;
        pause = pause * 2 < PAUSE_MAX_S ? pause * 2 : PAUSE_MAX_S;
    }
}
