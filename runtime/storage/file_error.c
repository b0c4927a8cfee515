/* runtime/storage/file_error.c - see file_error.h. */
#include "runtime/storage/file_error.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* What to do about an errno that people can do something about, and its status. */
static const struct {
    int err;
    yk_status status;
    const char *advice;
} known[] = {
    {ENOENT, YK_EINVAL, "check the path"},
    {ENOTDIR, YK_EINVAL, "check the path"},
    {EISDIR, YK_EINVAL, "name a file"},
    {EEXIST, YK_EINVAL, "name another"},
    {ENOTEMPTY, YK_EINVAL, "remove it or name another"},
    {EACCES, YK_EINVAL, "check who may use it"},
    {EPERM, YK_EINVAL, "check who may use it"},
    {EROFS, YK_EINVAL, "name a place that can be written"},
    {ENAMETOOLONG, YK_EINVAL, "shorten the path"},
    {ELOOP, YK_EINVAL, "check its symbolic links"},
    {ENOSPC, YK_EINVAL, "free some space there, or name another place"},
    {EDQUOT, YK_EINVAL, "free some space there, or name another place"},
    {EFBIG, YK_EINVAL, "name a place without that limit"},
    {EMFILE, YK_EIO, "raise the limit of open files (ulimit -n)"},
    {ENOMEM, YK_ENOMEM, "close other programs, or use a smaller file"},
};

yk_status yk_file_error(const char *verb, const char *path, int err)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].err != err) continue;
        return yk_fail(known[i].status, path, "cannot %s: %s; %s%s", verb, strerror(err),
                       known[i].advice,
                       err == ENOENT && path[0] != '/' ? ", from the folder you are in" : "");
    }
    return yk_fail(YK_EIO, path, "cannot %s: %s", verb, strerror(err));
}
