/* runtime/storage/lfs.c - see lfs.h. */
#include "runtime/storage/lfs.h"

#include <string.h>

yk_status yk_lfs_check(const char *path, const void *content, int64_t bytes)
{
    static const char begin[] = "version https://git-lfs.github.com/";
    if (bytes < (int64_t)sizeof begin - 1 || memcmp(content, begin, sizeof begin - 1) != 0)
        return YK_OK;
    return yk_fail(
        YK_EFORMAT, path,
        "is a pointer of Git LFS and not the file; run git lfs pull in the clone that it "
        "is from, or download the file");
}
