/* runtime/machine/cpus.c - sets of processors as bits. */
#include "runtime/machine/cpus.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_WORDS (YK_CPUS_MAX / 64)

void yk_cpus_add(yk_cpus *set, int cpu)
{
    if (cpu < 0 || cpu >= YK_CPUS_MAX) return;
    set->words[cpu / 64] |= UINT64_C(1) << (cpu % 64);
}

bool yk_cpus_has(const yk_cpus *set, int cpu)
{
    if (cpu < 0 || cpu >= YK_CPUS_MAX) return false;
    return set->words[cpu / 64] >> (cpu % 64) & 1;
}

int yk_cpus_count(const yk_cpus *set)
{
    int n = 0;
    for (int i = 0; i < N_WORDS; i++) n += __builtin_popcountll(set->words[i]);
    return n;
}

bool yk_cpus_is_empty(const yk_cpus *set)
{
    return yk_cpus_count(set) == 0;
}

bool yk_cpus_is_equal(const yk_cpus *a, const yk_cpus *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool yk_cpus_holds(const yk_cpus *set, const yk_cpus *part)
{
    for (int i = 0; i < N_WORDS; i++)
        if (part->words[i] & ~set->words[i]) return false;
    return true;
}

yk_cpus yk_cpus_and(const yk_cpus *a, const yk_cpus *b)
{
    yk_cpus both;
    for (int i = 0; i < N_WORDS; i++) both.words[i] = a->words[i] & b->words[i];
    return both;
}

yk_cpus yk_cpus_or(const yk_cpus *a, const yk_cpus *b)
{
    yk_cpus either;
    for (int i = 0; i < N_WORDS; i++) either.words[i] = a->words[i] | b->words[i];
    return either;
}

yk_cpus yk_cpus_without(const yk_cpus *a, const yk_cpus *b)
{
    yk_cpus rest;
    for (int i = 0; i < N_WORDS; i++) rest.words[i] = a->words[i] & ~b->words[i];
    return rest;
}

/* A number below YK_CPUS_MAX at *text, which moves behind it; or -1. */
static int read_number(const char **text)
{
    if (!isdigit((unsigned char)**text)) return -1;
    char *end;
    long number = strtol(*text, &end, 10);
    *text = end;
    return number < YK_CPUS_MAX ? (int)number : -1;
}

bool yk_cpus_read(const char *text, yk_cpus *set_out)
{
    yk_cpus set = {{0}};
    while (*text) {
        int first = read_number(&text), last = first;
        if (*text == '-') {
            text++;
            last = read_number(&text);
        }
        if (first < 0 || last < first) return false;
        for (int cpu = first; cpu <= last; cpu++) yk_cpus_add(&set, cpu);
        if (*text == ',' && text[1])
            text++;
        else if (*text)
            return false;
    }
    *set_out = set;
    return true;
}

const char *yk_cpus_write(const yk_cpus *set, char text_out[YK_CPUS_TEXT])
{
    size_t used = 0;
    text_out[0] = '\0';
    for (int cpu = 0; cpu < YK_CPUS_MAX; cpu++) {
        if (!yk_cpus_has(set, cpu)) continue;
        char part[32];
        int first = cpu;
        while (yk_cpus_has(set, cpu + 1)) cpu++;
        int n = snprintf(part, sizeof part, cpu > first ? "%s%d-%d" : "%s%d", used ? "," : "",
                         first, cpu);
        if (used + (size_t)n + sizeof ",..." > YK_CPUS_TEXT) {
            memcpy(text_out + used, ",...", sizeof ",...");
            break;
        }
        memcpy(text_out + used, part, (size_t)n + 1);
        used += (size_t)n;
    }
    return text_out;
}
