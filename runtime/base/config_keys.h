/* runtime/base/config_keys.h - the table of keys, for the files that make config.h work.
 *
 * config_keys.c holds the table, config_find.c finds keys in it and describes them; config_value.c
 * turns text into values, config_yaml.c reads files, config_write.c writes them, config_print.c
 * prints the table; config.c and config_check.c do the rest. No other file needs this header.
 */
#ifndef YK_RUNTIME_BASE_CONFIG_KEYS_H
#define YK_RUNTIME_BASE_CONFIG_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/config.h"

typedef enum yk_key_type {
    YK_KEY_INT,     /* int64_t */
    YK_KEY_REAL,    /* double */
    YK_KEY_BOOL,    /* bool */
    YK_KEY_TERNARY, /* int: 0, 1 or YK_AUTO */
    YK_KEY_STRING,  /* char *, owned */
    YK_KEY_LIST,    /* yk_string_list */
    YK_KEY_ENUM,    /* an enum, or an int where YK_AUTO is a choice */
    YK_KEY_DTYPE,   /* the same, of yk_dtype */
    YK_KEY_BYTES,   /* int64_t */
    YK_KEY_SET,     /* int: the values of any of its choices, which are bits */
} yk_key_type;

typedef struct yk_choice {
    const char *name; /* NULL ends the list */
    int value;
} yk_choice;

typedef struct yk_config_key {
    const char *name; /* dotted: the member's path in yk_config */
    yk_key_type type;
    size_t offset, size;      /* of the member */
    const char *unit;         /* NULL: none */
    const char *initial;      /* the default as it would stand in a file; "" : unset */
    int64_t min, max;         /* INT, BYTES: both are legal; max INT64_MAX: no end */
    double low, high;         /* REAL: both are legal */
    bool below_high;          /* REAL: high itself is not legal */
    bool may_be_auto;         /* INT: YK_AUTO is legal, beside the range */
    const yk_choice *choices; /* ENUM, DTYPE, SET */
    const char *also;         /* other programs' words for it, to suggest it by; NULL: none */
    const char *text;         /* what it means: sentences */
} yk_config_key;

/* The table; keys of a section stand together. */
extern const yk_config_key yk_config_keys[];
extern const int yk_config_n_keys;

/* Upper bounds of the table, for what is kept for each key or level of sections. */
#define YK_CONFIG_KEYS_MAX     96
#define YK_CONFIG_DEPTH_MAX    3
#define YK_CONFIG_KEY_NAME_MAX 64

/* The index of the key called `name`, or -1. */
int yk_config_find_key(const char *name);

/* The index of the first key of the section called `name`, or -1 when there is no such section. */
int yk_config_find_section(const char *name);

/* The name of the key or section that someone who wrote `name` most likely meant, or "" when
 * half of what was written would have to be edited; returns `nearest_out`. */
const char *yk_config_nearest(const char *name, char nearest_out[YK_CONFIG_KEY_NAME_MAX]);

/* Write what the type is called, such as "int or auto". */
void yk_config_key_type_text(const yk_config_key *key, char *text_out, size_t size);

/* Write the legal values, such as "1 to 1000000"; "" where the type says it all. */
void yk_config_key_range_text(const yk_config_key *key, char *text_out, size_t size);

/* Where a value was read, for messages. */
typedef struct yk_config_place {
    const char *name; /* a path, or "--set key=value" */
    int64_t line;     /* from 1; 0: not a file */
} yk_config_place;

/* Report wrong input at `place` about `key` (NULL: about the place itself); returns YK_EINVAL. */
yk_status yk_config_fail(const yk_config_place *place, const char *key, const char *why, ...)
    __attribute__((format(printf, 3, 4)));

/* Report that `found` ("a list") stands where a value of `key` is wanted, and what is wanted. */
yk_status yk_config_fail_wanted(const yk_config_place *place, const yk_config_key *key,
                                const char *found);

/* Set `key` from a scalar. `quoted` says that it was written so, and hence is a string. On failure
 * the old value stays. */
yk_status yk_config_assign_scalar(yk_config *config, const yk_config_key *key,
                                  const yk_config_place *place, const char *text, bool quoted);

/* Set `key` from a list, whose content it takes, also on failure. On failure the old value stays.
 */
yk_status yk_config_assign_list(yk_config *config, const yk_config_key *key,
                                const yk_config_place *place, yk_string_list *list);

/* Set `key` from the text of a YAML scalar or list, as yk_config_set() does for quotes and [. */
yk_status yk_config_read_value(yk_config *config, const yk_config_key *key,
                               const yk_config_place *place, const char *text);

/* Write the value of `key` as it would stand in a file. */
void yk_config_write_value(const yk_config *config, const yk_config_key *key, FILE *out);

/* Flush; YK_EIO when anything written so far did not arrive. */
yk_status yk_config_finish(FILE *out);

#endif
