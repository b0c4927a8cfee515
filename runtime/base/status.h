/* runtime/base/status.h - what a fallible function returns, and how a failure is told to people.
 *
 * Model.    A function that can fail returns yk_status; its results go through trailing `_out`
 *           pointers, which stay untouched on failure. The frame that detects a failure reports it,
 *           once, with yk_fail(); frames above pass the status on with YK_TRY().
 * Scope.    A status says what it kills: the call, the process or the group of ranks.
 * Threads.  Everything here may be called from any thread.
 */
#ifndef YK_RUNTIME_BASE_STATUS_H
#define YK_RUNTIME_BASE_STATUS_H

typedef enum yk_status {
    YK_OK = 0,       /* done */
    YK_EINVAL,       /* the user's input or an argument is wrong: kills the call; exit status 2 */
    YK_EFORMAT,      /* a file's content is not what it should be: kills the call; exit status 2 */
    YK_EUNSUPPORTED, /* valid, but not offered here: kills the call; exit status 2 */
    YK_ENOFIT,       /* the plan does not fit the memory there is: kills the call; exit status 2 */
    YK_EIO,          /* the system refused a read, a write or a rename: kills the call; exit 1 */
    YK_ENOMEM,       /* memory that was asked for could not be had: kills the call; exit 1 */
    YK_EDIVERGED,    /* training went astray (too many skipped steps): kills the run; exit 1 */
    YK_EDEVICE,      /* a device reported an error: kills the process; exit 1 */
    YK_EPEER,        /* another rank is gone: kills the group, sticky; exit 1 */
    YK_ETIMEDOUT,    /* another rank did not arrive in time: kills the group, sticky; exit 1 */
    YK_ESTOPPED,     /* a signal asked for the end and the run was saved; exit status 75 */
} yk_status;

/* A few words for `status`, such as "wrong input". Static storage.                      [local] */
const char *yk_status_text(yk_status status);

/* The exit status of a program that ends with `status`: 0, 1, 2 or 75.                  [local] */
int yk_status_exit_code(yk_status status);

/* Report a failure on stderr as `yoke: what: why; what to do` and return `status`.      [local]
 *
 * what  the thing that failed: a path, a configuration key, an operation
 * why   printf format: the cause with the values that matter, then, after "; ", what to do about it
 */
yk_status yk_fail(yk_status status, const char *what, const char *why, ...)
    __attribute__((format(printf, 3, 4)));

/* Report on stderr, as `yoke: warning: what: why`, something that goes on all the same. [local] */
void yk_warn(const char *what, const char *why, ...) __attribute__((format(printf, 2, 3)));

/* Report that an invariant of our own is broken, and abort.                             [local] */
void yk_check_failed(const char *file, int line, const char *condition) __attribute__((noreturn));

/* Pass a failure on to the caller. */
#define YK_TRY(call)                                                                               \
    do {                                                                                           \
        yk_status yk_try_status_ = (call);                                                         \
        if (yk_try_status_ != YK_OK) return yk_try_status_;                                        \
    } while (0)

/* Abort, in release builds too, when an invariant of our own is broken. Never for what came from a
 * file, a user, a device or a peer. */
#define YK_CHECK(condition)                                                                        \
    do {                                                                                           \
        if (!(condition)) yk_check_failed(__FILE__, __LINE__, #condition);                         \
    } while (0)

#endif
