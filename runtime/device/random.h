/* runtime/device/random.h - the random bits that stochastic rounding draws, as every device makes them.
 *
 * Philox4x32 with 7 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): a
 * function from a counter and a key to 128 bits, without state. So an element's bits follow from
 * (key, step, index in the tensor) and from nothing else: not from ranks, threads, shards or where
 * memory lies.
 *
 *     counter   (index / 2) low, high, step low, high        key   low, high
 *     element with even index: words 0 and 1; with odd index: words 2 and 3
 *     upper half of its first word: for the master weight; lower half: for the first moment;
 *     upper half of its second word: for the second moment
 *
 * Sixteen bits r round x to bf16: they are added to the bits of x and the upper half is kept, so that
 * x goes to the neighbour away from zero with a chance of exactly its distance from the other one.
 * Zero, infinity and what bf16 holds already stay; a NaN stays a NaN.
 */
#ifndef YK_RUNTIME_DEVICE_RANDOM_H
#define YK_RUNTIME_DEVICE_RANDOM_H

#define YK_PHILOX_ROUNDS      7
#define YK_PHILOX_MULTIPLIER0 0xD2511F53u
#define YK_PHILOX_MULTIPLIER1 0xCD9E8D57u
#define YK_PHILOX_STEP0       0x9E3779B9u
#define YK_PHILOX_STEP1       0xBB67AE85u

#endif
