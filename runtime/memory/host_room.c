/* runtime/memory/host_room.c - reading /proc/meminfo and the files of cgroups.
 *
 * A process is in one cgroup of a tree, whose limits all hold: those of the ones above too. Seen
 * from a container the path in /proc/self/cgroup may lie outside of what is mounted; then its own
 * root is what is left, and has the container's limit.
 */
#include "runtime/memory/host_room.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "runtime/storage/file.h"

#define PATH_BYTES 1024

/* What arenas leave alone. */
#define LEFT_PART  16
#define LEFT_LEAST ((int64_t)256 << 20)

/* One version's files. */
typedef struct cgroup_files {
    const char *mount, *limit, *usage, *droppable;
} cgroup_files;

static const cgroup_files version2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                      "inactive_file"};
static const cgroup_files version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "total_inactive_file"};

/* The file's text, to be freed, or NULL. */
static char *read_text(const char *root, const char *path)
{
    char full[PATH_BYTES];
    char *text = NULL;
    int64_t bytes;
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) return NULL;
    if (!yk_file_exists(full) || yk_file_read_all(full, &text, &bytes) != YK_OK) return NULL;
    return text;
}

/* The number behind `name` at a line's start; without a name, that the text begins with. */
static bool find_number(const char *text, const char *name, int64_t *number_out)
{
    size_t length = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, name, length) != 0) continue;
        const char *digits = line + length + strspn(line + length, ": \t");
        char *end;
        long long number = strtoll(digits, &end, 10);
        if (end == digits || number < 0) return false;
        *number_out = number;
        return true;
    }
    return false;
}

static bool read_number(const char *root, const char *path, const char *name, int64_t *number_out)
{
    char *text = read_text(root, path);
    bool found = text && find_number(text, name, number_out);
    free(text);
    return found;
}

static void consider(yk_host_room *room, int64_t bytes, const char *source)
{
    if (bytes >= room->bytes) return;
    room->bytes = yk_max(bytes, 0);
    snprintf(room->source, sizeof room->source, "%.*s", (int)sizeof room->source - 1, source);
}

static void consider_meminfo(yk_host_room *room, const char *root)
{
    int64_t kib;
    if (read_number(root, "/proc/meminfo", "MemAvailable:", &kib))
        consider(room, kib * 1024, "MemAvailable in /proc/meminfo");
}

/* What is left under the limit of one cgroup. */
static void consider_cgroup(yk_host_room *room, const char *root, const cgroup_files *f,
                            const char *group)
{
    char limit_path[PATH_BYTES], path[PATH_BYTES];
    int64_t limit, used, droppable = 0;
    snprintf(limit_path, sizeof limit_path, "%s%s/%s", f->mount, group, f->limit);
    if (!read_number(root, limit_path, "", &limit)) return; /* not there, or "max" */
    snprintf(path, sizeof path, "%s%s/%s", f->mount, group, f->usage);
    if (!read_number(root, path, "", &used)) return;
    snprintf(path, sizeof path, "%s%s/memory.stat", f->mount, group);
    (void)read_number(root, path, f->droppable, &droppable);
    consider(room, limit - yk_max(used - droppable, 0), limit_path);
}

/* The cgroup at `group` and those above it; "" is the root of the mount. */
static void consider_cgroups(yk_host_room *room, const char *root, const cgroup_files *f,
                             char *group)
{
    if (strcmp(group, "/") == 0) *group = '\0';
    for (;;) {
        consider_cgroup(room, root, f, group);
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup is number:controllers:path; version 2's has neither of the first. */
static void consider_line(yk_host_room *room, const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path || strlen(path) >= PATH_BYTES / 2) return;
    *path++ = '\0';
    if (controllers[1] == '\0')
        consider_cgroups(room, root, &version2, path);
    else if (strstr(controllers, "memory"))
        consider_cgroups(room, root, &version1, path);
}

yk_host_room yk_host_room_read(const char *root)
{
    yk_host_room room = {.bytes = INT64_MAX};
    char *rest, *text = read_text(root, "/proc/self/cgroup");
    consider_meminfo(&room, root);
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest))
        consider_line(&room, root, line);
    free(text);
    return room;
}

int64_t yk_host_room_for_arenas(const yk_host_room *room)
{
    int64_t left = yk_max(room->bytes / LEFT_PART, LEFT_LEAST);
    if (room->bytes == INT64_MAX) return INT64_MAX;
    return room->bytes - yk_min(left, room->bytes / 2);
}
