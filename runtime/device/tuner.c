/* runtime/device/tuner.c - the table of choices, in memory, as text and on disk. */
#include "runtime/device/tuner.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/storage/file.h"

#define HEADER      "yoke choices 2: "
#define MAX_KNOWN   4096 /* a run has some twenty; the file of a machine grows by those of each */
#define LINE_BYTES  (2 * (YK_TUNER_KEY_MAX + YK_TUNER_CHOICE_MAX) + 3)
#define IDENTITY    160
#define PATH_BYTES  1024
#define BYTES_LIMIT (MAX_KNOWN * LINE_BYTES + IDENTITY + 64)

typedef struct known {
    unsigned char key[YK_TUNER_KEY_MAX], choice[YK_TUNER_CHOICE_MAX];
    int key_bytes, choice_bytes;
} known;

struct yk_tuner {
    char identity[IDENTITY];
    char folder[PATH_BYTES]; /* "" : nowhere */
    bool races, thorough;
    int edition;
    yk_tune_sum sum;
    int n_known, n_room;
    known *known; /* (n_room) owned */
};

yk_status yk_tuner_create(const char *identity, yk_tuner **tuner_out)
{
    yk_tuner *t = calloc(1, sizeof *t);
    if (!t) return yk_fail(YK_ENOMEM, "tuner", "no memory for it");
    snprintf(t->identity, sizeof t->identity, "%s", identity);
    *tuner_out = t;
    return YK_OK;
}

int yk_tuner_edition(const yk_tuner *t)
{
    return t->edition;
}

bool yk_tuner_races(const yk_tuner *t)
{
    return t->races;
}

bool yk_tuner_is_thorough(const yk_tuner *t)
{
    return t->thorough;
}

/* ---- what racing came to ------------------------------------------------------------------ */

void yk_tuner_note(yk_tuner *t, const yk_tune_sum *before, double seconds, double first_ms,
                   double taken_ms)
{
    t->sum.n++;
    t->sum.seconds = before->seconds + seconds;
    t->sum.first_ms += first_ms;
    t->sum.taken_ms += taken_ms;
}

yk_tune_sum yk_tuner_sum(const yk_tuner *t)
{
    return t->sum;
}

/* ---- the table ---------------------------------------------------------------------------- */

static const known *find(const yk_tuner *t, const void *key, int key_bytes)
{
    for (int i = 0; i < t->n_known; i++)
        if (t->known[i].key_bytes == key_bytes &&
            memcmp(t->known[i].key, key, (size_t)key_bytes) == 0)
            return &t->known[i];
    return NULL;
}

bool yk_tuner_find(const yk_tuner *t, const void *key, int key_bytes, void *choice_out,
                   int choice_bytes)
{
    const known *k = find(t, key, key_bytes);
    if (!k || k->choice_bytes != choice_bytes) return false;
    memcpy(choice_out, k->choice, (size_t)choice_bytes);
    return true;
}

static bool make_room(yk_tuner *t)
{
    if (t->n_known < t->n_room) return true;
    int n_room = t->n_room ? 2 * t->n_room : 32;
    known *more = n_room <= MAX_KNOWN ? realloc(t->known, (size_t)n_room * sizeof *more) : NULL;
    if (!more) return false;
    t->known = more;
    t->n_room = n_room;
    return true;
}

/* False where there was nothing to do, or no memory to do it. */
static bool remember(yk_tuner *t, const void *key, int key_bytes, const void *choice,
                     int choice_bytes)
{
    YK_CHECK(key_bytes <= YK_TUNER_KEY_MAX && choice_bytes <= YK_TUNER_CHOICE_MAX);
    if (find(t, key, key_bytes) || !make_room(t)) return false;
    known *k = &t->known[t->n_known++];
    memset(k, 0, sizeof *k);
    memcpy(k->key, key, (size_t)key_bytes);
    memcpy(k->choice, choice, (size_t)choice_bytes);
    k->key_bytes = key_bytes;
    k->choice_bytes = choice_bytes;
    return true;
}

/* ---- text --------------------------------------------------------------------------------- */

static char *put_hex(char *to, const unsigned char *bytes, int n)
{
    for (int i = 0; i < n; i++) to += sprintf(to, "%02x", bytes[i]);
    return to;
}

yk_status yk_tuner_export(const yk_tuner *t, char **text_out, int64_t *bytes_out)
{
    char *text = malloc((size_t)t->n_known * LINE_BYTES + IDENTITY + 64), *to = text;
    if (!text) return yk_fail(YK_ENOMEM, "tuner", "no memory for its choices");
    to += sprintf(to, HEADER "%s\n", t->identity);
    for (int i = 0; i < t->n_known; i++) {
        to = put_hex(to, t->known[i].key, t->known[i].key_bytes);
        *to++ = ' ';
        to = put_hex(to, t->known[i].choice, t->known[i].choice_bytes);
        *to++ = '\n';
    }
    *text_out = text;
    *bytes_out = to - text;
    return YK_OK;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The bytes of a hexadecimal word at *at, before `end`; *at goes behind it. -1: not one. */
static int take_hex(const char **at, const char *end, unsigned char *bytes, int max)
{
    int n = 0;
    while (*at + 1 < end && digit((*at)[0]) >= 0 && digit((*at)[1]) >= 0) {
        if (n == max) return -1;
        bytes[n++] = (unsigned char)(digit((*at)[0]) * 16 + digit((*at)[1]));
        *at += 2;
    }
    return n > 0 ? n : -1;
}

static bool take_char(const char **at, const char *end, char c)
{
    if (*at == end || **at != c) return false;
    ++*at;
    return true;
}

/* Add the choices of a text; false where it is not one. `ours` says whether they hold here. */
static bool take_text(yk_tuner *t, const char *text, int64_t bytes, bool *ours)
{
    const char *at = text, *end = text + bytes;
    size_t header = strlen(HEADER), identity = strlen(t->identity);
    const char *line_end = bytes > 0 ? memchr(text, '\n', (size_t)bytes) : NULL;
    if (!line_end || (size_t)(line_end - text) < header || memcmp(text, HEADER, header) != 0)
        return false;
    *ours = (size_t)(line_end - text) == header + identity &&
            memcmp(text + header, t->identity, identity) == 0;
    at = line_end + 1;
    while (at < end) {
        unsigned char key[YK_TUNER_KEY_MAX], choice[YK_TUNER_CHOICE_MAX];
        int n_key = take_hex(&at, end, key, sizeof key);
        if (n_key < 0 || !take_char(&at, end, ' ')) return false;
        int n_choice = take_hex(&at, end, choice, sizeof choice);
        if (n_choice < 0 || !take_char(&at, end, '\n')) return false;
        if (*ours) (void)remember(t, key, n_key, choice, n_choice);
    }
    return true;
}

yk_status yk_tuner_import(yk_tuner *t, const char *text, int64_t bytes)
{
    bool ours = false;
    t->n_known = 0;
    t->edition++;
    t->races = false;
    if (!take_text(t, text, bytes, &ours)) {
        t->n_known = 0;
        return yk_fail(YK_EFORMAT, "tuner",
                       "rank 0's choices are damaged; this is a mistake in "
                       "the program");
    }
    if (!ours)
        yk_warn("tune", "rank 0's GPU or libraries are others than here; this rank takes the "
                        "library's first choices");
    return YK_OK;
}

/* ---- disk --------------------------------------------------------------------------------- */

/* The file of this identity: its letters and digits. */
static void path_of(const yk_tuner *t, char *path, size_t path_bytes)
{
    char name[IDENTITY];
    size_t n = 0;
    for (const char *c = t->identity; *c; c++) {
        bool plain = isalnum((unsigned char)*c) || *c == '.';
        if (plain)
            name[n++] = *c;
        else if (n > 0 && name[n - 1] != '-')
            name[n++] = '-';
    }
    name[n] = '\0';
    snprintf(path, path_bytes, "%.*s/%s.choices", PATH_BYTES - IDENTITY - 16, t->folder, name);
}

/* Add what the file knows. One that is damaged is written anew. */
static void load(yk_tuner *t)
{
    char path[PATH_BYTES], *text;
    int64_t bytes;
    bool ours;
    path_of(t, path, sizeof path);
    if (!yk_file_exists(path) || yk_file_read_all(path, &text, &bytes) != YK_OK) return;
    if (bytes > BYTES_LIMIT || !take_text(t, text, bytes, &ours))
        yk_warn(path, "it is damaged and will be made again");
    free(text);
}

/* What is known and what the file knows besides, which this tuner goes on not to know: a full race
 * times all of its own. */
static bool join_file(const yk_tuner *t, yk_tuner *both)
{
    *both = *t;
    both->known = malloc((size_t)t->n_room * sizeof *both->known);
    if (!both->known) return false;
    memcpy(both->known, t->known, (size_t)t->n_known * sizeof *both->known);
    load(both);
    return true;
}

/* What another run has written meanwhile is kept, but for the keys that are ours. */
static void save(const yk_tuner *t)
{
    char path[PATH_BYTES], *text = NULL;
    int64_t bytes;
    yk_tuner both;
    if (!join_file(t, &both)) return;
    path_of(t, path, sizeof path);
    if (yk_tuner_export(&both, &text, &bytes) == YK_OK && yk_dir_create(t->folder) == YK_OK)
        (void)yk_file_replace(path, text, bytes);
    free(text);
    free(both.known);
}

yk_status yk_tuner_open(yk_tuner *t, yk_tune how, const char *folder)
{
    t->n_known = 0;
    t->edition++;
    t->races = how >= YK_TUNE_CACHED;
    t->thorough = how == YK_TUNE_FULL;
    t->folder[0] = '\0';
    if (how == YK_TUNE_OFF || !folder[0]) return YK_OK;
    if (strlen(folder) > PATH_BYTES - IDENTITY - 16) {
        yk_warn("tune", "the cache folder's path is too long; choices are not kept");
        return YK_OK;
    }
    snprintf(t->folder, sizeof t->folder, "%s", folder);
    if (how != YK_TUNE_FULL) load(t);
    return YK_OK;
}

/* On disk at once: a run that is killed goes on with the same choices. */
void yk_tuner_add(yk_tuner *t, const void *key, int key_bytes, const void *choice, int choice_bytes)
{
    if (remember(t, key, key_bytes, choice, choice_bytes) && t->races && t->folder[0]) save(t);
}

void yk_tuner_destroy(yk_tuner *t)
{
    if (!t) return;
    free(t->known);
    free(t);
}
