/* tests/runtime/scratch.c - see scratch.h. */
#include "tests/runtime/scratch.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/storage/file.h"

void scratch_make(char dir[SCRATCH_PATH])
{
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, SCRATCH_PATH, "%s/yoke-test-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    YK_CHECK(mkdtemp(dir) != NULL);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void scratch_remove(const char *dir)
{
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int scratch_set_up(void **state)
{
    char *dir = malloc(SCRATCH_PATH);
    YK_CHECK(dir != NULL);
    scratch_make(dir);
    *state = dir;
    return 0;
}

int scratch_tear_down(void **state)
{
    scratch_remove(*state);
    free(*state);
    return 0;
}

const char *scratch_path(char path[SCRATCH_PATH], const char *dir, const char *name)
{
    YK_CHECK(snprintf(path, SCRATCH_PATH, "%s/%s", dir, name) < SCRATCH_PATH);
    return path;
}

const char *scratch_write(char path[SCRATCH_PATH], const char *dir, const char *name,
                          const void *data, int64_t bytes)
{
    FILE *f = fopen(scratch_path(path, dir, name), "wb");
    YK_CHECK(f != NULL);
    YK_CHECK(bytes == 0 || fwrite(data, 1, (size_t)bytes, f) == (size_t)bytes);
    YK_CHECK(fclose(f) == 0);
    return path;
}

void scratch_put(const char *root, const char *path, const char *text)
{
    char full[2 * SCRATCH_PATH];
    snprintf(full, sizeof full, "%s%s", root, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    YK_CHECK(yk_dir_create(full) == YK_OK);
    *slash = '/';
    YK_CHECK(yk_file_replace(full, text, (int64_t)strlen(text)) == YK_OK);
}

int scratch_count(const char *dir)
{
    DIR *d = opendir(dir);
    YK_CHECK(d != NULL);
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static int begin(FILE *stream, int fd)
{
    int saved = dup(fd), file = memfd_create("output", MFD_CLOEXEC);
    YK_CHECK(saved >= 0 && file >= 0);
    fflush(stream);
    dup2(file, fd);
    close(file);
    return saved;
}

static char *end(FILE *stream, int fd, int saved)
{
    fflush(stream);
    off_t n = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)n + 1);
    YK_CHECK(text && pread(fd, text, (size_t)n, 0) == n);
    dup2(saved, fd);
    close(saved);
    return text;
}

int scratch_stderr_begin(void)
{
    return begin(stderr, 2);
}

char *scratch_stderr_end(int saved)
{
    return end(stderr, 2, saved);
}

int scratch_stdout_begin(void)
{
    return begin(stdout, 1);
}

char *scratch_stdout_end(int saved)
{
    return end(stdout, 1, saved);
}

bool scratch_is_one_line(const char *text, const char *part)
{
    const char *end = strchr(text, '\n');
    bool one = strncmp(text, "yoke: ", 6) == 0 && end && !end[1] && strstr(text, part);
    if (!one) fprintf(stderr, "expected one line with '%s', got:\n%s\n", part, text);
    return one;
}
