/* runtime/storage/lfs.h - files that stand for others, as a clone without Git LFS has them. */
#ifndef YK_RUNTIME_STORAGE_LFS_H
#define YK_RUNTIME_STORAGE_LFS_H

#include <stdint.h>

#include "runtime/base/status.h"

/* Is it the file itself that was read?                                                  [local]
 *
 * YK_EFORMAT  it is a few lines that say where the file would be
 */
yk_status yk_lfs_check(const char *path, const void *content, int64_t bytes);

#endif
