/* runtime/storage/file.h - the one place where the program touches files.
 *
 * Model.    Paths are plain strings; sizes and offsets are int64_t, so that files over 4 GiB need no
 *           care. What must never be half there is written through yk_file_replace_begin(): a
 *           temporary file beside the target takes its place only when it is whole and on the disk.
 * Faults.   Each system call asks yk_file_fault() first. That function is weak and answers 0; a test
 *           defines its own, and can make any call fail with any errno.
 * Threads.  A yk_file serves one thread at a time, but yk_file_read_at() and yk_file_write_at() may
 *           run in several at once.
 * Failure.  Reported with the path and the system's words.
 *           YK_EINVAL  the path is at fault, and trying again will not help: there is no such file,
 *                      it may not be read or written, the disk is full
 *           YK_ENOMEM  no memory for the content
 *           YK_EIO     the system refused for another reason
 */
#ifndef YK_RUNTIME_STORAGE_FILE_H
#define YK_RUNTIME_STORAGE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"

/* The kinds of system call that a fault can be given to. */
typedef enum yk_file_op {
    YK_FILE_OP_OPEN,   /* open, for reading or writing */
    YK_FILE_OP_STAT,   /* ask for a size or whether it is there */
    YK_FILE_OP_READ,   /* read at an offset */
    YK_FILE_OP_MAP,    /* map into memory */
    YK_FILE_OP_WRITE,  /* write, at the end or at an offset */
    YK_FILE_OP_SYNC,   /* bring a file or a directory to the disk */
    YK_FILE_OP_CLOSE,  /* close what was written */
    YK_FILE_OP_RENAME, /* put a file or directory in another's place */
    YK_FILE_OP_REMOVE, /* remove a file or an empty directory */
    YK_FILE_OP_MKDIR,  /* make one directory */
    YK_FILE_OP_LIST,   /* read a directory, expand a pattern */
} yk_file_op;

/* Asked before every system call; an errno that is not 0 makes it fail. Weak: a test's wins. */
int yk_file_fault(yk_file_op op, const char *path);

typedef struct yk_file yk_file;

typedef enum yk_file_mode {
    YK_FILE_READ,   /* must be there */
    YK_FILE_WRITE,  /* made new, or emptied */
    YK_FILE_APPEND, /* made when it is not there; yk_file_write() adds to its end */
} yk_file_mode;

/* Open a file; the caller owns it.                                                       [local] */
yk_status yk_file_open(const char *path, yk_file_mode mode, yk_file **file_out);

/* Close a file and release it, whether or not closing succeeds. NULL does nothing.       [local] */
yk_status yk_file_close(yk_file *file);

/* Close a file and release it without a word, while another failure is told. NULL does nothing. */
void yk_file_abandon(yk_file *file);

/* The path that the file was opened by; borrowed until it is closed. */
const char *yk_file_path(const yk_file *file);

/* Bytes in the file now.                                                                 [local] */
yk_status yk_file_size(const yk_file *file, int64_t *bytes_out);

/* Read exactly `bytes` at `offset`.                                                      [local]
 *
 * YK_EFORMAT  the file ends before
 */
yk_status yk_file_read_at(yk_file *file, void *data, int64_t bytes, int64_t offset);

/* Write all of `data` at the file's own position, which advances.                        [local] */
yk_status yk_file_write(yk_file *file, const void *data, int64_t bytes);

/* Write all of `data` at `offset`; the file grows as needed. Not for YK_FILE_APPEND.     [local] */
yk_status yk_file_write_at(yk_file *file, const void *data, int64_t bytes, int64_t offset);

/* Return when what was written is on the disk.                                           [local] */
yk_status yk_file_sync(yk_file *file);

/* Read a whole file of at most `most` bytes: one that has no end, as a device may be, is no surprise.
 * The content is owned by the caller (free()) and followed by a 0 byte that is not counted.   [local]
 *
 * YK_EINVAL  it is longer
 */
yk_status yk_file_read_short(const char *path, int64_t most, char **data_out, int64_t *bytes_out);

/* Likewise of 1 GiB, which no text has that is read whole. */
yk_status yk_file_read_all(const char *path, char **data_out, int64_t *bytes_out);

/* A file's content in memory, read-only. An empty file has data NULL. */
typedef struct yk_file_map {
    const uint8_t *data; /* (bytes) */
    int64_t bytes;
} yk_file_map;

/* Map a whole file; pages are read when they are touched. Undone by yk_file_map_close(). [local] */
yk_status yk_file_map_open(const char *path, yk_file_map *map_out);

/* Give the mapping back and clear it. One that is cleared already does nothing. */
void yk_file_map_close(yk_file_map *map);

/* Begin to write what will replace `path`; the caller owns the file and ends it with
 * yk_file_replace_commit() or yk_file_replace_abort(). Until then `path` stays as it is.  [local] */
yk_status yk_file_replace_begin(const char *path, yk_file **file_out);

/* Sync, close, rename over the path, sync the directory; takes the file.                 [local]
 *
 * On failure what was there before is still there and the temporary file is gone, except that a
 * failed sync of the directory leaves the new file in place.
 */
yk_status yk_file_replace_commit(yk_file *file);

/* Close and remove the temporary file; takes the file. NULL does nothing. */
void yk_file_replace_abort(yk_file *file);

/* Replace `path` by `bytes` of data, or leave it as it is.                               [local] */
yk_status yk_file_replace(const char *path, const void *data, int64_t bytes);

/* True when `path` names something that is there. */
bool yk_file_exists(const char *path);

/* True when `path` names a directory. */
bool yk_dir_exists(const char *path);

/* True when `path` names something that is there and is no directory. */
bool yk_path_is_file(const char *path);

/* Rename a file or directory. A file or an empty directory in its place is replaced.     [local] */
yk_status yk_file_rename(const char *from, const char *to);

/* Remove a file or an empty directory.                                                   [local] */
yk_status yk_file_remove(const char *path);

/* Make a directory and its parents; one that is there already is fine.                   [local] */
yk_status yk_dir_create(const char *path);

/* Bring a directory's entries to the disk.                                               [local] */
yk_status yk_dir_sync(const char *path);

/* A list of names or paths; owns itself and its items. */
typedef struct yk_file_list {
    char **items; /* (n_items), sorted by bytes */
    int64_t n_items;
} yk_file_list;

/* The names in a directory, without "." and "..".                                        [local] */
yk_status yk_dir_list(const char *path, yk_file_list *list_out);

/* The paths that match a shell pattern; perhaps none. A pattern without *, ? or [ and one that is
 * itself a file's name give that path.                                                   [local] */
yk_status yk_file_glob(const char *pattern, yk_file_list *list_out);

/* Release the list and clear it. */
void yk_file_list_fini(yk_file_list *list);

/* "dir/name" in memory that the caller owns (free()); NULL when there is none. */
char *yk_path_join(const char *dir, const char *name);

#endif
