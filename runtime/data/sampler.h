/* runtime/data/sampler.h - which window comes when: a permutation that is computed, not stored.
 *
 * Model.    An epoch is every window once, in an order that depends on the seed and the epoch. The
 *           position of a run in its data is one integer, the number of windows taken since its
 *           beginning; position p is in epoch p / n. So the order knows nothing of ranks, batches or
 *           a restart, and no list of indices is kept.
 */
#ifndef YK_RUNTIME_DATA_SAMPLER_H
#define YK_RUNTIME_DATA_SAMPLER_H

#include <stdint.h>

typedef struct yk_sampler {
    int64_t n; /* windows, > 0 */
    int64_t seed;
} yk_sampler;

/* The window, 0 .. n-1, at position >= 0.                                                [local]
 *
 * Over the n positions of an epoch every window comes once: a Feistel network is a bijection
 * whatever its round function (Luby and Rackoff 1988), and what falls outside of 0 .. n-1 is
 * encrypted again until it falls inside (Black and Rogaway 2002, "cycle walking").
 */
int64_t yk_sampler_at(const yk_sampler *sampler, int64_t position);

#endif
