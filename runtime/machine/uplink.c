/* runtime/machine/uplink.c - reading /sys/class/infiniband, /sys/class/net and /proc/net/route. */
#include "runtime/machine/uplink.h"

#include <dirent.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024

/* The beginning of a file, or "". */
static void read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "re");
    if (!file || !fgets(line, size, file)) line[0] = '\0';
    if (file) fclose(file);
}

/* ---- InfiniBand --------------------------------------------------------------------------- */

/* Ports of one rate, the highest that was seen. */
typedef struct ports {
    double gbit; /* of each */
    int n;
    char first[32]; /* the device of one of them, the first by name */
} ports;

static void count_port(ports *p, const char *device, const char *folder)
{
    char path[PATH_BYTES + 8], line[64];
    double gbit;
    snprintf(path, sizeof path, "%s/state", folder);
    read_line(path, line, sizeof line);
    if (strncmp(line, "4:", 2) != 0) return; /* ACTIVE */
    snprintf(path, sizeof path, "%s/rate", folder);
    read_line(path, line, sizeof line);
    if (sscanf(line, "%lf Gb/sec", &gbit) != 1 || !(gbit > 0) || gbit < p->gbit) return;
    bool is_first = gbit > p->gbit || strcmp(device, p->first) < 0;
    p->n = gbit > p->gbit ? 1 : p->n + 1;
    p->gbit = gbit;
    if (is_first) snprintf(p->first, sizeof p->first, "%.31s", device);
}

static void count_device(ports *p, const char *root, const char *device)
{
    char folder[PATH_BYTES / 2], path[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.300s/sys/class/infiniband/%.64s/ports", root, device);
    DIR *list = opendir(folder);
    if (!list) return;
    for (struct dirent *e; (e = readdir(list));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%.64s", folder, e->d_name);
        count_port(p, device, path);
    }
    closedir(list);
}

static bool is_forbidden(void)
{
    const char *text = getenv("NCCL_IB_DISABLE");
    return text && strcmp(text, "1") == 0;
}

static ports find_ports(const char *root)
{
    ports p = {.gbit = 0};
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.300s/sys/class/infiniband", root);
    DIR *list = is_forbidden() ? NULL : opendir(folder);
    if (!list) return p;
    for (struct dirent *e; (e = readdir(list));)
        if (e->d_name[0] != '.') count_device(&p, root, e->d_name);
    closedir(list);
    return p;
}

/* ---- interfaces --------------------------------------------------------------------------- */

/* The interface of the default route: its destination is 0. */
static bool find_default(const char *root, char name[IF_NAMESIZE])
{
    char path[PATH_BYTES], line[256], found[64];
    unsigned long destination;
    bool is_found = false;
    snprintf(path, sizeof path, "%.300s/proc/net/route", root);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    while (!is_found && fgets(line, sizeof line, file))
        is_found = sscanf(line, "%63s %lx", found, &destination) == 2 && destination == 0;
    fclose(file);
    if (is_found) snprintf(name, IF_NAMESIZE, "%.15s", found);
    return is_found;
}

/* Megabits/s; 0 where it tells none. */
static double read_speed(const char *root, const char *name)
{
    char path[PATH_BYTES], line[64];
    double mbit;
    snprintf(path, sizeof path, "%.300s/sys/class/net/%.15s/speed", root, name);
    read_line(path, line, sizeof line);
    return sscanf(line, "%lf", &mbit) == 1 && mbit > 0 ? mbit : 0;
}

/* The fastest interface that NCCL_SOCKET_IFNAME names, where it gives one name or, without "=", the
 * beginning of names: "eth", "=eth0". False where none tells a speed. */
static bool find_named(const char *root, char name[IF_NAMESIZE])
{
    const char *text = getenv("NCCL_SOCKET_IFNAME");
    if (!text || strchr("^", text[0]) || strchr(text, ',')) return false;
    const char *wanted = text + (text[0] == '=');
    size_t n = strlen(wanted) + (text[0] == '='); /* the end is compared, too */
    char folder[PATH_BYTES];
    double fastest = 0;
    snprintf(folder, sizeof folder, "%.300s/sys/class/net", root);
    DIR *list = opendir(folder);
    if (!list) return false;
    for (struct dirent *e; (e = readdir(list));) {
        if (e->d_name[0] == '.' || strncmp(e->d_name, wanted, n) != 0) continue;
        double mbit = read_speed(root, e->d_name);
        bool is_first = mbit == fastest && mbit > 0 && strcmp(e->d_name, name) < 0;
        if (mbit > fastest || is_first) snprintf(name, IF_NAMESIZE, "%.15s", e->d_name);
        fastest = mbit > fastest ? mbit : fastest;
    }
    closedir(list);
    return fastest > 0;
}

yk_uplink yk_uplink_read(const char *root, int n_ranks)
{
    yk_uplink u = {.gbit = 0};
    char name[IF_NAMESIZE];
    ports p = find_ports(root);
    if (p.n > 0) {
        int n = p.n < n_ranks || n_ranks < 1 ? p.n : n_ranks;
        u.gbit = n * p.gbit;
        if (n > 1)
            snprintf(u.name, sizeof u.name, "%s and %d more", p.first, n - 1);
        else
            snprintf(u.name, sizeof u.name, "%s", p.first);
        return u;
    }
    if (!find_named(root, name) && !find_default(root, name)) return u;
    u.gbit = read_speed(root, name) / 1e3;
    if (u.gbit > 0) snprintf(u.name, sizeof u.name, "%s", name);
    return u;
}
