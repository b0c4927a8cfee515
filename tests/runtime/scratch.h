/* tests/runtime/scratch.h - a folder for a test's files, and what a call says on stderr or stdout. */
#ifndef YK_TESTS_RUNTIME_SCRATCH_H
#define YK_TESTS_RUNTIME_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

#define SCRATCH_PATH 512

/* A new folder under $TMPDIR or /tmp; the path is written to `dir`. */
void scratch_make(char dir[SCRATCH_PATH]);

/* Remove a folder with everything in it. */
void scratch_remove(const char *dir);

/* For cmocka: *state is the path of a new folder, until it is removed after the test. */
int scratch_set_up(void **state);
int scratch_tear_down(void **state);

/* "dir/name" in `path`, which is returned. */
const char *scratch_path(char path[SCRATCH_PATH], const char *dir, const char *name);

/* Write a file and give its path in `path`, which is returned. */
const char *scratch_write(char path[SCRATCH_PATH], const char *dir, const char *name,
                          const void *data, int64_t bytes);

/* Write a text file at `path`, which begins with a slash, below `root`, and the folders that it lies in. */
void scratch_put(const char *root, const char *path, const char *text);

/* How many entries a folder has. */
int scratch_count(const char *dir);

/* From begin to end, stderr goes into a buffer: end gives what came, and puts stderr back. The text
 * is the caller's (free()). */
int scratch_stderr_begin(void);
char *scratch_stderr_end(int saved);

/* Likewise what goes to stdout. */
int scratch_stdout_begin(void);
char *scratch_stdout_end(int saved);

/* True when `text` is one line that begins with "yoke: " and holds `part`. */
bool scratch_is_one_line(const char *text, const char *part);

#endif
