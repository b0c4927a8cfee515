/* launch/leftovers.c - segments that nobody has mapped.
 *
 * A sweep lists the segments and then reads each process' map once for all of them. What a sweep
 * had no time to find out counts as in use.
 */
#include "launch/leftovers.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"

#define LIMIT_S 5.0
#define TURN_NS 100000000L
#define YOUNG_S 2 /* one that was just made may be about to be mapped */

typedef struct segment {
    char path[600];
    bool is_used;
} segment;

typedef struct sweep {
    double until_s;
    segment *segments;
    int n_segments;
} sweep;

/* Is it one of those to look at? */
static bool read_segment(const char *folder, const char *name, int64_t since_s, segment *out)
{
    struct stat s;
    int n = snprintf(out->path, sizeof out->path, "%s/%s", folder, name);
    if (n >= (int)sizeof out->path || strncmp(name, "vader_segment.", 14) != 0) return false;
    if (lstat(out->path, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid()) return false;
    if (s.st_mtim.tv_sec < since_s) return false;
    out->is_used = time(NULL) - s.st_mtim.tv_sec < YOUNG_S;
    return true;
}

static void list(sweep *s, const char *folder, int64_t since_s)
{
    DIR *files = opendir(folder);
    if (!files) return;
    for (struct dirent *e; (e = readdir(files));) {
        segment found;
        if (!read_segment(folder, e->d_name, since_s, &found)) continue;
        segment *grown = realloc(s->segments, ((size_t)s->n_segments + 1) * sizeof *grown);
        if (!grown) break;
        s->segments = grown;
        s->segments[s->n_segments++] = found;
    }
    closedir(files);
}

static void mark_line(sweep *s, const char *line)
{
    if (!strstr(line, "vader_segment.")) return;
    for (int i = 0; i < s->n_segments; i++)
        if (strstr(line, s->segments[i].path)) s->segments[i].is_used = true;
}

static void mark_process(sweep *s, const char *pid)
{
    char name[280], line[4096];
    snprintf(name, sizeof name, "/proc/%s/maps", pid);
    FILE *maps = fopen(name, "r");
    if (!maps) return;
    while (fgets(line, sizeof line, maps)) mark_line(s, line);
    fclose(maps);
}

/* False where it cannot be told of all processes. */
static bool mark_used(sweep *s)
{
    DIR *processes = opendir("/proc");
    if (!processes) return false;
    bool in_time = true;
    for (struct dirent *e; in_time && (e = readdir(processes));) {
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9') mark_process(s, e->d_name);
        in_time = yk_clock_s() < s->until_s;
    }
    closedir(processes);
    return in_time;
}

/* True when some are in use. */
static bool sweep_once(const char *folder, int64_t since_s, double until_s)
{
    sweep s = {.until_s = until_s};
    bool some_left = false;
    list(&s, folder, since_s);
    bool is_told = s.n_segments > 0 && mark_used(&s);
    for (int i = 0; i < s.n_segments; i++) {
        if (is_told && !s.segments[i].is_used) unlink(s.segments[i].path);
        if (!is_told || s.segments[i].is_used) some_left = true;
    }
    free(s.segments);
    return some_left;
}

void yk_leftovers_remove(const char *folder, int64_t since_s)
{
    const struct timespec turn = {0, TURN_NS};
    double until_s = yk_clock_s() + LIMIT_S;
    while (sweep_once(folder, since_s, until_s) && yk_clock_s() < until_s) nanosleep(&turn, NULL);
}
