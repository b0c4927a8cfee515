/* runtime/machine/cpus.h - a set of processors, by the numbers that the system gives them.
 *
 * A plain value without pointers, so that ranks can send it to each other. A "processor" is what
 * the system schedules on: a hardware thread; a core has one or several.
 */
#ifndef YK_RUNTIME_MACHINE_CPUS_H
#define YK_RUNTIME_MACHINE_CPUS_H

#include <stdbool.h>
#include <stdint.h>

/* Processors with higher numbers are not seen. */
#define YK_CPUS_MAX 4096

typedef struct yk_cpus {
    uint64_t words[YK_CPUS_MAX / 64];
} yk_cpus;

/* A buffer of this size holds whatever yk_cpus_write() writes. */
#define YK_CPUS_TEXT 128

/* Add a processor; a number out of range is not added. */
void yk_cpus_add(yk_cpus *set, int cpu);

bool yk_cpus_has(const yk_cpus *set, int cpu);
int yk_cpus_count(const yk_cpus *set);
bool yk_cpus_is_empty(const yk_cpus *set);
bool yk_cpus_is_equal(const yk_cpus *a, const yk_cpus *b);

/* True when `set` holds every processor of `part`. */
bool yk_cpus_holds(const yk_cpus *set, const yk_cpus *part);

/* The processors that are in both, in either, in `a` and not in `b`. */
yk_cpus yk_cpus_and(const yk_cpus *a, const yk_cpus *b);
yk_cpus yk_cpus_or(const yk_cpus *a, const yk_cpus *b);
yk_cpus yk_cpus_without(const yk_cpus *a, const yk_cpus *b);

/* Read a list as Linux writes it: "0-3,8,10-11"; "" is the empty set. False, and *set_out
 * untouched, when it is none or a number is out of range. */
bool yk_cpus_read(const char *text, yk_cpus *set_out);

/* Write such a list; one that is too long is cut and ends in "...". Returns `text_out`. */
const char *yk_cpus_write(const yk_cpus *set, char text_out[YK_CPUS_TEXT]);

#endif
