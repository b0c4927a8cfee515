/* runtime/storage/file_dir.c - names and directories: rename, remove, make, list; see file.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/storage/file.h"
#include "runtime/storage/file_error.h"

static bool stat_path(const char *path, struct stat *st)
{
    return yk_file_fault(YK_FILE_OP_STAT, path) == 0 && stat(path, st) == 0;
}

bool yk_file_exists(const char *path)
{
    struct stat st;
    return stat_path(path, &st);
}

bool yk_dir_exists(const char *path)
{
    struct stat st;
    return stat_path(path, &st) && S_ISDIR(st.st_mode);
}

bool yk_path_is_file(const char *path)
{
    struct stat st;
    return stat_path(path, &st) && !S_ISDIR(st.st_mode);
}

yk_status yk_file_rename(const char *from, const char *to)
{
    int err = yk_file_fault(YK_FILE_OP_RENAME, to);
    if (!err && rename(from, to) != 0) err = errno;
    return err ? yk_file_error("write", to, err) : YK_OK;
}

yk_status yk_file_remove(const char *path)
{
    int err = yk_file_fault(YK_FILE_OP_REMOVE, path);
    if (!err && remove(path) != 0) err = errno;
    return err ? yk_file_error("remove", path, err) : YK_OK;
}

static yk_status make_one(const char *path)
{
    struct stat st;
    int err = yk_file_fault(YK_FILE_OP_MKDIR, path);
    if (!err && mkdir(path, 0777) != 0) err = errno;
    if (err == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) err = 0;
    return err ? yk_file_error("make the directory", path, err) : YK_OK;
}

yk_status yk_dir_create(const char *path)
{
    char *part = strdup(path);
    if (!part) return yk_file_error("make the directory", path, ENOMEM);
    yk_status status = YK_OK;
    for (char *p = part + 1; *p && status == YK_OK; p++) {
        if (*p != '/') continue;
        *p = 0;
        if (p[-1] != '/' && p[-1] != 0 && !yk_dir_exists(part)) status = make_one(part);
        *p = '/';
    }
    if (status == YK_OK) status = make_one(part);
    free(part);
    return status;
}

yk_status yk_dir_sync(const char *path)
{
    int err = yk_file_fault(YK_FILE_OP_SYNC, path);
    int fd = -1;
    if (!err && (fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) err = errno;
    if (!err && fsync(fd) != 0) err = errno;
    if (err == EINVAL) err = 0; /* a file system that cannot sync directories */
    if (fd >= 0) close(fd);
    return err ? yk_file_error("write", path, err) : YK_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool list_add(yk_file_list *list, const char *name)
{
    char **items = realloc(list->items, (size_t)(list->n_items + 1) * sizeof *items);
    if (!items) return false;
    list->items = items;
    char *copy = strdup(name);
    if (!copy) return false;
    items[list->n_items++] = copy;
    return true;
}

/* Read all entries into `list`; 0 or an errno. */
static int read_entries(DIR *dir, yk_file_list *list)
{
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e) return errno;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (!list_add(list, e->d_name)) return ENOMEM;
    }
}

yk_status yk_dir_list(const char *path, yk_file_list *list_out)
{
    yk_file_list list = {0};
    int err = yk_file_fault(YK_FILE_OP_LIST, path);
    DIR *dir = err ? NULL : opendir(path);
    if (!dir && !err) err = errno;
    if (dir) {
        err = read_entries(dir, &list);
        closedir(dir);
    }
    if (err) {
        yk_file_list_fini(&list);
        return yk_file_error("list", path, err);
    }
    if (list.n_items > 1) {
        qsort(list.items, (size_t)list.n_items, sizeof *list.items, compare_names);
    }
    *list_out = list;
    return YK_OK;
}

yk_status yk_file_glob(const char *pattern, yk_file_list *list_out)
{
    yk_file_list list = {0};
    glob_t found = {0};
    int err = yk_file_fault(YK_FILE_OP_LIST, pattern);
    if (!err && (!strpbrk(pattern, "*?[") || yk_file_exists(pattern))) {
        if (!list_add(&list, pattern)) err = ENOMEM;
    } else if (!err) {
        int rc = glob(pattern, GLOB_NOSORT, NULL, &found);
        if (rc != 0 && rc != GLOB_NOMATCH) err = rc == GLOB_NOSPACE ? ENOMEM : EIO;
        for (size_t i = 0; !err && i < found.gl_pathc; i++) {
            if (!list_add(&list, found.gl_pathv[i])) err = ENOMEM;
        }
        globfree(&found);
    }
    if (err) {
        yk_file_list_fini(&list);
        return yk_file_error("list", pattern, err);
    }
    if (list.n_items > 1) {
        qsort(list.items, (size_t)list.n_items, sizeof *list.items, compare_names);
    }
    *list_out = list;
    return YK_OK;
}

void yk_file_list_fini(yk_file_list *list)
{
    for (int64_t i = 0; i < list->n_items; i++) free(list->items[i]);
    free(list->items);
    *list = (yk_file_list){0};
}

char *yk_path_join(const char *dir, const char *name)
{
    size_t d = strlen(dir), n = strlen(name);
    bool slash = d > 0 && dir[d - 1] != '/';
    char *path = malloc(d + slash + n + 1);
    if (!path) return NULL;
    memcpy(path, dir, d);
    if (slash) path[d] = '/';
    memcpy(path + d + slash, name, n + 1);
    return path;
}
