/* runtime/storage/hash.h - checksums of bytes: xxHash's XXH3.
 *
 * The same bytes give the same hash on every machine, so hashes may be written to files. They find
 * damage and tell contents apart; they are no defence against someone who means harm.
 */
#ifndef YK_RUNTIME_STORAGE_HASH_H
#define YK_RUNTIME_STORAGE_HASH_H

#include <stdint.h>

typedef struct yk_hash128 {
    uint64_t low, high;
} yk_hash128;

/* "high low" as 32 hexadecimal digits and the 0 that ends them. */
#define YK_HASH128_TEXT_BYTES 33

/* 64 bits of hash; another seed gives another hash.                                      [local] */
uint64_t yk_hash64(const void *data, int64_t bytes, uint64_t seed);

/* 128 bits of hash, for checksums in files.                                              [local] */
yk_hash128 yk_hash128_of(const void *data, int64_t bytes);

/* The hash as 32 lower-case hexadecimal digits, as `xxh128sum` prints it. */
void yk_hash128_text(yk_hash128 hash, char text_out[YK_HASH128_TEXT_BYTES]);

#endif
