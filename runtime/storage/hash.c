/* runtime/storage/hash.c - see hash.h. */
#include "runtime/storage/hash.h"

#include <stdio.h>
#include <xxhash.h>

uint64_t yk_hash64(const void *data, int64_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, (size_t)bytes, seed);
}

yk_hash128 yk_hash128_of(const void *data, int64_t bytes)
{
    XXH128_hash_t h = XXH3_128bits(data, (size_t)bytes);
    return (yk_hash128){.low = h.low64, .high = h.high64};
}

void yk_hash128_text(yk_hash128 hash, char text_out[YK_HASH128_TEXT_BYTES])
{
    snprintf(text_out, YK_HASH128_TEXT_BYTES, "%016llx%016llx", (unsigned long long)hash.high,
             (unsigned long long)hash.low);
}
