/* runtime/base/number.h - numbers as people write them in configurations and on command lines.
 *
 * Model.    A text is a number wholly or not at all: no blanks around it, nothing after it, nothing
 *           that another program would read differently (octal, hexadecimal, separators). Whole
 *           numbers and sizes are computed exactly, never through a double.
 * Failure.  A read answers NULL, or says what is wrong with the text as the end of a sentence
 *           that begins with it: "is not a whole number". Static storage; *out is untouched then.
 * Locale.   The program stays in the C locale: the decimal point is a point.
 */
#ifndef YK_RUNTIME_BASE_NUMBER_H
#define YK_RUNTIME_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* A buffer of this size holds whatever a yk_number_write_...() writes. */
#define YK_NUMBER_MAX 32

/* A whole number: decimal digits, with a sign, a point or an exponent if one likes ("32", "-1",
 * "1e6", "1.5e3"), as long as the value is whole. */
const char *yk_number_read_int(const char *text, int64_t *out);

/* A finite real number: "3e-4", ".5", "2". Rounded to the nearest double. */
const char *yk_number_read_real(const char *text, double *out);

/* A size in bytes: a number alone, or followed by B, KiB, MiB, GiB, TiB (powers of 1024) or kB, MB,
 * GB, TB (powers of 1000), with or without one space between: "24GiB", "1.5 GB". Whole bytes. */
const char *yk_number_read_bytes(const char *text, int64_t *out);

/* A short text that yk_number_read_real() reads back as the same finite double. */
void yk_number_write_real(double value, char text_out[YK_NUMBER_MAX]);

/* The text that yk_number_read_bytes() reads back as `bytes` >= 0, in the largest unit that divides
 * it: 25769803776 is "24GiB". */
void yk_number_write_bytes(int64_t bytes, char text_out[YK_NUMBER_MAX]);

/* What is measured or planned, without an exponent: four digits, or all whole ones: "0.125",
 * "110236". `value` >= 0. */
void yk_number_write_plain(double value, char text_out[YK_NUMBER_MAX]);

/* A time with its unit, seconds from 10 on: "594.4 ms", "21.37 s". */
void yk_number_write_time(double seconds, char text_out[YK_NUMBER_MAX]);

#endif
