/* runtime/machine/process.c - reading /proc/PID. */
#include "runtime/machine/process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file of a process; NULL where it cannot be read. */
static FILE *open_file(pid_t pid, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%ld/%.80s", (long)pid, name);
    return fopen(path, "re");
}

/* Those that one thread has started. */
static int read_children(pid_t pid, const char *thread, pid_t *children_out, int capacity)
{
    char name[80];
    int n = 0, child;
    snprintf(name, sizeof name, "task/%.40s/children", thread);
    FILE *list = open_file(pid, name);
    if (!list) return 0;
    while (n < capacity && fscanf(list, "%d", &child) == 1) children_out[n++] = child;
    fclose(list);
    return n;
}

int yk_process_children(pid_t pid, pid_t *children_out, int capacity)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *threads = opendir(path);
    if (!threads) return 0;
    for (struct dirent *e; (e = readdir(threads));)
        if (e->d_name[0] != '.') n += read_children(pid, e->d_name, children_out + n, capacity - n);
    closedir(threads);
    return n;
}

/* The state and the parent follow the program's name, which is in parentheses and may hold some. */
static void read_stat(pid_t pid, char *state_out, int *parent_out)
{
    char line[512] = "";
    *state_out = '\0';
    *parent_out = 0;
    FILE *file = open_file(pid, "stat");
    if (!file) return;
    size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = '\0';
    const char *name_end = strrchr(line, ')');
    if (name_end && sscanf(name_end + 1, " %c %d", state_out, parent_out) < 2) *state_out = '\0';
}

char yk_process_state(pid_t pid)
{
    char state;
    int parent;
    read_stat(pid, &state, &parent);
    return state;
}

pid_t yk_process_parent(pid_t pid)
{
    char state;
    int parent;
    read_stat(pid, &state, &parent);
    return parent;
}

bool yk_process_variable(pid_t pid, const char *name, char *value_out, size_t capacity)
{
    char *entry = NULL;
    size_t room = 0, length = strlen(name);
    bool found = false;
    value_out[0] = '\0';
    FILE *file = open_file(pid, "environ");
    if (!file) return false;
    while (!found && getdelim(&entry, &room, '\0', file) > 0)
        found = strncmp(entry, name, length) == 0 && entry[length] == '=';
    if (found) snprintf(value_out, capacity, "%s", entry + length + 1);
    free(entry);
    fclose(file);
    return found;
}

void yk_process_program(pid_t pid, char path_out[YK_PROCESS_PATH])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/%ld/exe", (long)pid);
    ssize_t n = readlink(link, path_out, YK_PROCESS_PATH - 1);
    path_out[n > 0 ? n : 0] = '\0';
}

bool yk_process_runs_same(pid_t a, pid_t b)
{
    char of_a[YK_PROCESS_PATH], of_b[YK_PROCESS_PATH];
    yk_process_program(a, of_a);
    yk_process_program(b, of_b);
    return of_a[0] && strcmp(of_a, of_b) == 0;
}
