/* runtime/storage/file.c - open, read, map and write; see file.h.
 *
 * Rule: a system call on a path appears in this file and file_dir.c only, right after the question
 * to yk_file_fault() whether it should fail.
 */
#include "runtime/storage/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/storage/file_error.h"

struct yk_file {
    int fd;
    char *path;   /* what is open */
    char *target; /* what yk_file_replace_commit() renames it to; NULL for a plain file */
};

/* One write or read moves at most this much: Linux stops at 2 GiB. */
#define CALL_BYTES (INT64_C(1) << 30)

__attribute__((weak)) int yk_file_fault(yk_file_op op, const char *path)
{
    (void)op;
    (void)path;
    return 0;
}

static void file_free(yk_file *file)
{
    free(file->path);
    free(file->target);
    free(file);
}

yk_status yk_file_open(const char *path, yk_file_mode mode, yk_file **file_out)
{
    static const int flags[] = {
        [YK_FILE_READ] = O_RDONLY,
        [YK_FILE_WRITE] = O_RDWR | O_CREAT | O_TRUNC,
        [YK_FILE_APPEND] = O_RDWR | O_CREAT | O_APPEND,
    };
    yk_file *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return yk_file_error("open", path, ENOMEM);
    }
    int err = yk_file_fault(YK_FILE_OP_OPEN, path);
    if (!err && (file->fd = open(path, flags[mode] | O_CLOEXEC, 0666)) < 0) err = errno;
    if (err) {
        file_free(file);
        return yk_file_error("open", path, err);
    }
    *file_out = file;
    return YK_OK;
}

yk_status yk_file_close(yk_file *file)
{
    if (!file) return YK_OK;
    int err = yk_file_fault(YK_FILE_OP_CLOSE, file->path);
    if (close(file->fd) != 0 && !err) err = errno;
    yk_status status = err ? yk_file_error("close", file->path, err) : YK_OK;
    file_free(file);
    return status;
}

void yk_file_abandon(yk_file *file)
{
    if (!file) return;
    close(file->fd);
    file_free(file);
}

const char *yk_file_path(const yk_file *file)
{
    return file->path;
}

yk_status yk_file_size(const yk_file *file, int64_t *bytes_out)
{
    struct stat st;
    int err = yk_file_fault(YK_FILE_OP_STAT, file->path);
    if (!err && fstat(file->fd, &st) != 0) err = errno;
    if (!err && S_ISDIR(st.st_mode)) err = EISDIR;
    if (err) return yk_file_error("read", file->path, err);
    *bytes_out = (int64_t)st.st_size;
    return YK_OK;
}

yk_status yk_file_read_at(yk_file *file, void *data, int64_t bytes, int64_t offset)
{
    char *p = data;
    for (int64_t done = 0; done < bytes;) {
        int64_t want = bytes - done < CALL_BYTES ? bytes - done : CALL_BYTES;
        int err = yk_file_fault(YK_FILE_OP_READ, file->path);
        ssize_t n = err ? -1 : pread(file->fd, p + done, (size_t)want, (off_t)(offset + done));
        if (n < 0 && !err) err = errno;
        if (err == EINTR) continue;
        if (err) return yk_file_error("read", file->path, err);
        if (n == 0) {
            return yk_fail(YK_EFORMAT, file->path, "ends at byte %lld, but %lld are needed",
                           (long long)(offset + done), (long long)(offset + bytes));
        }
        done += n;
    }
    return YK_OK;
}

/* Write at `offset`, or at the file's own position when it is negative. */
static yk_status write_all(yk_file *file, const char *p, int64_t bytes, int64_t offset)
{
    for (int64_t done = 0; done < bytes;) {
        size_t want = (size_t)(bytes - done < CALL_BYTES ? bytes - done : CALL_BYTES);
        int err = yk_file_fault(YK_FILE_OP_WRITE, file->path);
        ssize_t n = -1;
        if (!err) {
            n = offset < 0 ? write(file->fd, p + done, want)
                           : pwrite(file->fd, p + done, want, (off_t)(offset + done));
            if (n < 0) err = errno;
        }
        if (err == EINTR) continue;
        if (err) return yk_file_error("write", file->target ? file->target : file->path, err);
        done += n;
    }
    return YK_OK;
}

yk_status yk_file_write(yk_file *file, const void *data, int64_t bytes)
{
    return write_all(file, data, bytes, -1);
}

yk_status yk_file_write_at(yk_file *file, const void *data, int64_t bytes, int64_t offset)
{
    return write_all(file, data, bytes, offset);
}

yk_status yk_file_sync(yk_file *file)
{
    int err = yk_file_fault(YK_FILE_OP_SYNC, file->path);
    if (!err && fsync(file->fd) != 0) err = errno;
    if (err == EINVAL) err = 0; /* a pipe or a terminal: nothing to sync */
    return err ? yk_file_error("write", file->target ? file->target : file->path, err) : YK_OK;
}

static yk_status fail_long(const yk_file *file, int64_t most)
{
    return yk_fail(YK_EINVAL, file->path, "is longer than %lld bytes; is it another file?",
                   (long long)most);
}

/* Read from the file's own position to its end, wherever that is: a pipe has no size. `room` > 0 is
 * a guess of how much that may be. One byte is left free behind the content. */
static yk_status read_to_end(yk_file *file, int64_t room, int64_t most, char **data, int64_t *n)
{
    int64_t capacity = 0;
    for (*n = 0;;) {
        if (*n > most) return fail_long(file, most);
        if (*n == capacity) {
            capacity = capacity ? capacity + capacity / 2 : room;
            char *grown = realloc(*data, (size_t)capacity + 1);
            if (!grown) return yk_file_error("read", file->path, ENOMEM);
            *data = grown;
        }
        int err = yk_file_fault(YK_FILE_OP_READ, file->path);
        size_t want = (size_t)(capacity - *n < CALL_BYTES ? capacity - *n : CALL_BYTES);
        ssize_t got = err ? -1 : read(file->fd, *data + *n, want);
        if (got < 0 && !err) err = errno;
        if (err == EINTR) continue;
        if (err) return yk_file_error("read", file->path, err);
        if (got == 0) return YK_OK;
        *n += got;
    }
}

yk_status yk_file_read_all(const char *path, char **data_out, int64_t *bytes_out)
{
    return yk_file_read_short(path, INT64_C(1) << 30, data_out, bytes_out);
}

yk_status yk_file_read_short(const char *path, int64_t most, char **data_out, int64_t *bytes_out)
{
    yk_file *file;
    int64_t bytes = 0;
    char *data = NULL;
    YK_TRY(yk_file_open(path, YK_FILE_READ, &file));
    yk_status status = yk_file_size(file, &bytes);
    if (status == YK_OK && bytes > most) status = fail_long(file, most);
    /* Room for one byte more than there are, so that the end is met without growing. */
    if (status == YK_OK)
        status = read_to_end(file, bytes < 64 ? 64 : bytes + 1, most, &data, &bytes);
    yk_file_abandon(file); /* read only: nothing can be lost */
    if (status != YK_OK) {
        free(data);
        return status;
    }
    data[bytes] = 0;
    *data_out = data;
    *bytes_out = bytes;
    return YK_OK;
}

/* What a mapping needs: a file of the disk, not a pipe or a terminal. */
static yk_status check_mappable(const yk_file *file)
{
    struct stat st;
    if (fstat(file->fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        return yk_fail(YK_EINVAL, file->path, "is no regular file; write it to a file first");
    }
    return YK_OK;
}

yk_status yk_file_map_open(const char *path, yk_file_map *map_out)
{
    yk_file *file;
    int64_t bytes = 0;
    YK_TRY(yk_file_open(path, YK_FILE_READ, &file));
    yk_status status = yk_file_size(file, &bytes);
    void *data = NULL;
    if (status == YK_OK) status = check_mappable(file);
    if (status == YK_OK && bytes > 0) {
        int err = yk_file_fault(YK_FILE_OP_MAP, path);
        if (!err) {
            data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, file->fd, 0);
            if (data == MAP_FAILED) err = errno;
        }
        if (err) status = yk_file_error("map", path, err);
    }
    yk_file_abandon(file); /* read only: nothing can be lost */
    if (status == YK_OK) *map_out = (yk_file_map){.data = data, .bytes = bytes};
    return status;
}

void yk_file_map_close(yk_file_map *map)
{
    if (map->data) munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    *map = (yk_file_map){0};
}

yk_status yk_file_replace_begin(const char *path, yk_file **file_out)
{
    static const char suffix[] = ".partial";
    size_t n = strlen(path);
    char *target = strdup(path), *partial = malloc(n + sizeof suffix);
    yk_status status;
    yk_file *file = NULL;
    if (!target || !partial) {
        status = yk_file_error("write", path, ENOMEM);
    } else {
        memcpy(partial, path, n);
        memcpy(partial + n, suffix, sizeof suffix);
        status = yk_file_open(partial, YK_FILE_WRITE, &file);
    }
    free(partial);
    if (status != YK_OK) {
        free(target);
        return status;
    }
    file->target = target;
    *file_out = file;
    return YK_OK;
}

/* The directory that holds `path`, in memory that the caller frees. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

yk_status yk_file_replace_commit(yk_file *file)
{
    yk_status status = yk_file_sync(file);
    if (status != YK_OK) {
        yk_file_replace_abort(file);
        return status;
    }
    char *path = file->path, *target = file->target, *dir = parent_of(target);
    file->path = strdup(target); /* close reports, and releases, the name people know */
    file->target = NULL;
    if (!dir || !file->path) {
        status = yk_file_error("write", target, ENOMEM);
        yk_file_abandon(file);
    } else {
        status = yk_file_close(file);
    }
    if (status == YK_OK) status = yk_file_rename(path, target);
    if (status != YK_OK) {
        unlink(path);
    } else {
        status = yk_dir_sync(dir);
    }
    free(dir);
    free(path);
    free(target);
    return status;
}

void yk_file_replace_abort(yk_file *file)
{
    if (!file) return;
    unlink(file->path); /* best effort, while another failure is told */
    yk_file_abandon(file);
}

yk_status yk_file_replace(const char *path, const void *data, int64_t bytes)
{
    yk_file *file;
    YK_TRY(yk_file_replace_begin(path, &file));
    yk_status status = yk_file_write(file, data, bytes);
    if (status != YK_OK) {
        yk_file_replace_abort(file);
        return status;
    }
    return yk_file_replace_commit(file);
}
