/* runtime/device/tuner.h - the choices that are known: a table, its text and its file.
 *
 * A choice belongs to a key, some bytes that say what it depends on, and is some bytes itself. In text
 * it is a line of two hexadecimal words; the first line says for which card and libraries it holds.
 */
#ifndef YK_RUNTIME_DEVICE_TUNER_H
#define YK_RUNTIME_DEVICE_TUNER_H

#include "runtime/device/tune.h"

#define YK_TUNER_KEY_MAX    64
#define YK_TUNER_CHOICE_MAX 64

/* The first word of a key that is no product's, whose first word is a size. */
#define YK_TUNER_GELU_WAY      INT64_C(-2)
#define YK_TUNER_GRADIENT_WAY  INT64_C(-3)
#define YK_TUNER_ATTENTION_WAY INT64_C(-4)
#define YK_TUNER_WORK          INT64_C(-5) /* some work, of which all is timed */

typedef struct yk_tuner yk_tuner;

/* A tuner that knows nothing and is off.
 *
 * identity  one line without which choices do not hold; copied
 */
yk_status yk_tuner_create(const char *identity, yk_tuner **tuner_out);

/* NULL does nothing. */
void yk_tuner_destroy(yk_tuner *tuner);

yk_status yk_tuner_open(yk_tuner *tuner, yk_tune how, const char *folder);
yk_status yk_tuner_export(const yk_tuner *tuner, char **text_out, int64_t *bytes_out);
yk_status yk_tuner_import(yk_tuner *tuner, const char *text, int64_t bytes);

/* Grows when what is known is replaced: what was chosen before is to be chosen anew. */
int yk_tuner_edition(const yk_tuner *tuner);

/* Whether what is not known may be timed, and whether that may take its time. */
bool yk_tuner_races(const yk_tuner *tuner);
bool yk_tuner_is_thorough(const yk_tuner *tuner);

/* A race is over: it took `seconds` of the clock, those of races within it included, which have been
 * noted since the sum was `before`. The first choice takes first_ms, the one that was made taken_ms. */
void yk_tuner_note(yk_tuner *tuner, const yk_tune_sum *before, double seconds, double first_ms,
                   double taken_ms);
yk_tune_sum yk_tuner_sum(const yk_tuner *tuner);

/* The choice of `key`, if it is known: (choice_bytes) into choice_out. */
bool yk_tuner_find(const yk_tuner *tuner, const void *key, int key_bytes, void *choice_out,
                   int choice_bytes);

/* Know a choice, and write it where choices are timed and kept. Nothing happens where there is no
 * memory for it. */
void yk_tuner_add(yk_tuner *tuner, const void *key, int key_bytes, const void *choice,
                  int choice_bytes);

#endif
