/* launch/leftovers.c - segments that nobody has mapped. */
#include "launch/leftovers.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TURNS   50
#define TURN_NS 100000000L

/* Does a process have the file mapped? */
static bool process_maps(const char *pid, const char *path)
{
    char name[280], line[4096];
    snprintf(name, sizeof name, "/proc/%s/maps", pid);
    FILE *maps = fopen(name, "r");
    if (!maps) return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, maps)) found = strstr(line, path) != NULL;
    fclose(maps);
    return found;
}

static bool is_mapped(const char *path)
{
    DIR *processes = opendir("/proc");
    if (!processes) return true; /* who knows */
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(processes));)
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9') found = process_maps(e->d_name, path);
    closedir(processes);
    return found;
}

/* One that was just made may be about to be mapped. */
static bool is_leftover(const char *path, int64_t since_s, bool *waits_out)
{
    struct stat s;
    if (lstat(path, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid()) return false;
    if (s.st_mtim.tv_sec < since_s) return false;
    *waits_out = time(NULL) - s.st_mtim.tv_sec < 2 || is_mapped(path);
    return !*waits_out;
}

/* True when some are in use. */
static bool sweep(const char *folder, int64_t since_s)
{
    bool some_wait = false;
    DIR *files = opendir(folder);
    if (!files) return false;
    for (struct dirent *e; (e = readdir(files));) {
        char path[600];
        bool waits = false;
        if (strncmp(e->d_name, "vader_segment.", 14) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (is_leftover(path, since_s, &waits)) unlink(path);
        if (waits) some_wait = true;
    }
    closedir(files);
    return some_wait;
}

void yk_leftovers_remove(const char *folder, int64_t since_s)
{
    const struct timespec turn = {0, TURN_NS};
    for (int i = 0; i < TURNS && sweep(folder, since_s); i++) nanosleep(&turn, NULL);
}
