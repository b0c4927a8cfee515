/* launch/hosts.c - lists and files of hosts, and dealing ranks out to them. */
#include "launch/hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/number.h"
#include "runtime/base/words.h"
#include "runtime/storage/file.h"

/* ---- the list ----------------------------------------------------------------------------- */

void yk_hosts_fini(yk_hosts *hosts)
{
    free(hosts->items);
    *hosts = (yk_hosts){NULL, 0};
}

/* Names of this machine: itself with or without its domain, and the loopback's. */
static bool is_local(const char *name)
{
    char here[YK_HOST_NAME_BYTES] = "";
    if (strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0) return true;
    if (gethostname(here, sizeof here - 1) != 0) return false;
    if (strcmp(name, here) == 0) return true;
    size_t n = strcspn(here, "."), length = strcspn(name, ".");
    return n == length && strncmp(name, here, n) == 0 && (!here[n] || !name[n]);
}

/* A name is printed in a table and in the answer to a survey: nothing in it may steer a terminal. Bytes
 * that are not UTF-8 may, too. */
static bool is_printable(const char *name)
{
    for (size_t n = strlen(name); n > 0;) {
        uint32_t c;
        int length = yk_utf8_decode(name, n, &c);
        if (length == 0 || c <= 0x20 || (c >= 0x7f && c <= 0xa0)) return false;
        if (c >= 0x200b && c <= 0x202e && (c <= 0x200f || c >= 0x2028)) return false;
        if (c == 0xfeff) return false;
        name += length;
        n -= (size_t)length;
    }
    return true;
}

/* Add a host, or its slots to those it has. */
static yk_status add(yk_hosts *hosts, const char *name, size_t length, int slots)
{
    char shown[YK_SHOWN_MAX], copy[YK_HOST_NAME_BYTES];
    snprintf(copy, sizeof copy, "%.*s", (int)length, name);
    if (length == 0 || length >= sizeof copy || !is_printable(copy))
        return yk_fail(YK_EINVAL, "hosts", "%s is no name of a host; write name:slots,name:slots",
                       yk_word_show(copy, shown));
    for (int i = 0; i < hosts->n_items; i++) {
        yk_host *host = &hosts->items[i];
        if (strcmp(host->name, copy) != 0) continue;
        /* "a" and "a" are two slots; "a:2" and "a:2" are four */
        host->slots = (host->slots ? host->slots : 1) + (slots ? slots : 1);
        return YK_OK;
    }
    size_t n = (size_t)hosts->n_items + 1;
    yk_host *items = realloc(hosts->items, n * sizeof *items);
    if (!items) return yk_fail(YK_ENOMEM, "hosts", "no memory for %zu hosts", n);
    hosts->items = items;
    hosts->items[hosts->n_items] = (yk_host){.slots = slots, .is_local = is_local(copy)};
    memcpy(hosts->items[hosts->n_items++].name, copy, sizeof copy);
    return YK_OK;
}

/* What is wrong with `text` as a number of slots, or NULL. */
static const char *read_slots(const char *text, int *slots_out)
{
    int64_t slots;
    const char *why = yk_number_read_int(text, &slots);
    if (why) return why;
    if (slots < 1 || slots > YK_LAUNCH_MAX_RANKS) return "is out of range, 1 to 65536";
    *slots_out = (int)slots;
    return NULL;
}

/* "name" or "name:slots" */
static yk_status add_word(yk_hosts *hosts, const char *where, const char *word)
{
    char shown[YK_SHOWN_MAX];
    size_t length = strcspn(word, ":");
    int slots = 0;
    if (word[length]) {
        const char *why = read_slots(word + length + 1, &slots);
        if (why)
            return yk_fail(YK_EINVAL, where, "the number of slots in %s %s; write name:slots",
                           yk_word_show(word, shown), why);
    }
    return add(hosts, word, length, slots);
}

yk_status yk_hosts_read_list(const char *text, yk_hosts *hosts_out)
{
    yk_hosts hosts = {NULL, 0};
    char *copy = strdup(text), *rest = copy, *word;
    yk_status status = copy ? YK_OK : yk_fail(YK_ENOMEM, "hosts", "no memory for the list");
    while (status == YK_OK && (word = strsep(&rest, ","))) status = add_word(&hosts, "hosts", word);
    free(copy);
    if (status != YK_OK) {
        yk_hosts_fini(&hosts);
        return status;
    }
    *hosts_out = hosts;
    return YK_OK;
}

/* ---- files -------------------------------------------------------------------------------- */

/* Words of Open MPI's that say nothing about where ranks go. */
static bool is_ignored(const char *word)
{
    return strncmp(word, "max_slots=", 10) == 0 || strncmp(word, "max-slots=", 10) == 0;
}

static const char *slots_value(const char *word)
{
    static const char *const names[] = {"slots=", "cpu=", "count="};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(word, names[i], strlen(names[i])) == 0) return word + strlen(names[i]);
    return isdigit((unsigned char)word[0]) ? word : NULL;
}

/* What some editors write before the first line (a byte order mark). */
static char *skip_mark(char *text)
{
    return strncmp(text, "\xef\xbb\xbf", 3) == 0 ? text + 3 : text;
}

/* One line without its end. */
static yk_status read_line(yk_hosts *hosts, const char *where, char *line)
{
    char shown[YK_SHOWN_MAX], *rest;
    line[strcspn(line, "#")] = '\0';
    char *name = strtok_r(line, " \t\r", &rest), *word;
    int slots = 0;
    if (!name) return YK_OK;
    while ((word = strtok_r(NULL, " \t\r", &rest))) {
        if (is_ignored(word)) continue;
        const char *value = slots_value(word), *why = "is not understood";
        if (value) why = read_slots(value, &slots);
        if (why)
            return yk_fail(YK_EINVAL, where, "%s %s; a line is `name slots=N`, `name N` or `name`",
                           yk_word_show(word, shown), why);
    }
    return slots ? add(hosts, name, strcspn(name, ":"), slots) : add_word(hosts, where, name);
}

/* Of a file that names hosts. */
#define FILE_BYTES_MAX (1 << 20)

yk_status yk_hosts_read_file(const char *path, yk_hosts *hosts_out)
{
    yk_hosts hosts = {NULL, 0};
    char *text, *rest, *line;
    int64_t bytes;
    YK_TRY(yk_file_read_short(path, FILE_BYTES_MAX, &text, &bytes));
    yk_status status = YK_OK;
    if (memchr(text, '\0', (size_t)bytes) || !yk_utf8_is_valid(text, (size_t)bytes))
        status = yk_fail(YK_EINVAL, path, "is not text; name one host a line: `name slots=N`");
    rest = skip_mark(text);
    for (int number = 1; status == YK_OK && (line = strsep(&rest, "\n")); number++) {
        char where[512];
        snprintf(where, sizeof where, "%s:%d", path, number);
        status = read_line(&hosts, where, line);
    }
    free(text);
    if (status == YK_OK && hosts.n_items == 0)
        status = yk_fail(YK_EINVAL, path, "names no host; write one a line: `name slots=N`");
    if (status != YK_OK) {
        yk_hosts_fini(&hosts);
        return status;
    }
    *hosts_out = hosts;
    return YK_OK;
}

/* ---- Slurm -------------------------------------------------------------------------------- */

/* The number of tasks for node `index` of a text like "4(x2),3", or 0. */
static int tasks_of(const char *text, int index)
{
    while (text && *text) {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;
        if (end == text || tasks < 1 || tasks > YK_LAUNCH_MAX_RANKS) return 0;
        if (strncmp(end, "(x", 2) == 0) {
            times = strtol(end + 2, &end, 10);
            if (*end++ != ')' || times < 1) return 0;
        }
        if (index < times) return (int)tasks;
        index -= (int)times;
        text = *end == ',' ? end + 1 : end;
    }
    return 0;
}

/* Where the ranges of "n[1-3,7]x" are. */
typedef struct pattern {
    const char *head, *ranges, *tail;
    int head_length, ranges_length, tail_length;
} pattern;

/* Add a host for each number of the ranges; numbers keep their leading zeros. */
static bool add_ranges(yk_hosts *hosts, const pattern *p)
{
    const char *at = p->ranges, *end = p->ranges + p->ranges_length;
    while (at < end) {
        char *stop;
        long first = strtol(at, &stop, 10), last = first;
        int width = (int)(stop - at);
        if (width == 0) return false;
        if (*stop == '-') last = strtol(stop + 1, &stop, 10);
        if (last < first || last - first > YK_LAUNCH_MAX_RANKS) return false;
        for (long i = first; i <= last; i++) {
            char name[YK_HOST_NAME_BYTES];
            int n = snprintf(name, sizeof name, "%.*s%0*ld%.*s", p->head_length, p->head, width, i,
                             p->tail_length, p->tail);
            if (add(hosts, name, (size_t)n, 1) != YK_OK) return false;
        }
        if (stop < end && *stop != ',') return false;
        at = stop + 1;
    }
    return true;
}

/* One part of a node list: "name" or a pattern. */
static bool add_part(yk_hosts *hosts, const char *part, int length)
{
    const char *open = memchr(part, '[', (size_t)length), *end = part + length;
    if (!open) return add(hosts, part, (size_t)length, 1) == YK_OK;
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (!close || memchr(close, '[', (size_t)(end - close))) return false;
    const pattern p = {.head = part,
                       .head_length = (int)(open - part),
                       .ranges = open + 1,
                       .ranges_length = (int)(close - open - 1),
                       .tail = close + 1,
                       .tail_length = (int)(end - close - 1)};
    return add_ranges(hosts, &p);
}

/* Split "a,n[1-3,7],b" at the commas outside of brackets. */
static bool read_nodelist(const char *text, yk_hosts *hosts)
{
    while (*text) {
        int length = 0, depth = 0;
        for (; text[length] && (depth || text[length] != ','); length++)
            depth += (text[length] == '[') - (text[length] == ']');
        if (!add_part(hosts, text, length)) return false;
        text += length;
        if (*text == ',') text++;
    }
    return hosts->n_items > 0;
}

yk_status yk_hosts_read_environment(yk_hosts *hosts_out)
{
    yk_hosts hosts = {NULL, 0};
    char here[YK_HOST_NAME_BYTES] = "localhost";
    const char *list = getenv("SLURM_JOB_NODELIST");
    if (!list) {
        gethostname(here, sizeof here - 1);
        YK_TRY(add(&hosts, here, strlen(here), 0));
        *hosts_out = hosts;
        return YK_OK;
    }
    if (!read_nodelist(list, &hosts)) {
        yk_hosts_fini(&hosts);
        return yk_fail(YK_EINVAL, "SLURM_JOB_NODELIST",
                       "\"%s\" is not understood; name the hosts with --hosts a:4,b:4", list);
    }
    for (int i = 0; i < hosts.n_items; i++)
        hosts.items[i].slots = tasks_of(getenv("SLURM_TASKS_PER_NODE"), i);
    *hosts_out = hosts;
    return YK_OK;
}

/* ---- dealing out -------------------------------------------------------------------------- */

yk_status yk_hosts_place(yk_hosts *hosts, int n, int usual, int *n_ranks_out)
{
    int64_t total = 0;
    if (hosts->n_items == 1 && hosts->items[0].slots == 0 && n > 0) hosts->items[0].slots = n;
    for (int i = 0; i < hosts->n_items; i++) {
        if (hosts->items[i].slots == 0) hosts->items[i].slots = usual;
        total += hosts->items[i].slots;
    }
    if (n == 0 && total <= YK_LAUNCH_MAX_RANKS) n = (int)total;
    if (n == 0 || n > YK_LAUNCH_MAX_RANKS)
        return yk_fail(YK_EINVAL, "hosts", "they have %lld slots, and a run has %d ranks at most",
                       (long long)total, YK_LAUNCH_MAX_RANKS);
    int64_t before = 0;
    for (int i = 0; i < hosts->n_items; i++) {
        yk_host *host = &hosts->items[i];
        int64_t after = before + host->slots;
        if (n <= total)
            host->n_ranks = (int)((after < n ? after : n) - (before < n ? before : n));
        else
            host->n_ranks = (int)(after * n / total - before * n / total);
        before = after;
    }
    *n_ranks_out = n;
    return YK_OK;
}

bool yk_hosts_are_local(const yk_hosts *hosts)
{
    for (int i = 0; i < hosts->n_items; i++)
        if (hosts->items[i].n_ranks > 0 && !hosts->items[i].is_local) return false;
    return true;
}
