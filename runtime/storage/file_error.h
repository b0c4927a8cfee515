/* runtime/storage/file_error.h - one wording for what the system says no to.
 *
 * For the files of runtime/storage that make system calls.
 */
#ifndef YK_RUNTIME_STORAGE_FILE_ERROR_H
#define YK_RUNTIME_STORAGE_FILE_ERROR_H

#include "runtime/base/status.h"

/* Report that `verb` ("open", "write") on `path` failed with errno `err`; never YK_OK. A path that
 * is wrong and a disk that is full are YK_EINVAL, since the same call will fail again. */
yk_status yk_file_error(const char *verb, const char *path, int err);

#endif
