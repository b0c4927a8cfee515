/* runtime/device/finals.h - the blocks of a race's finals, and what they say.
 *
 * Model.   A few finalists run in turns, a block of runs each, and a block has one time. The first
 *          finalist is the one that is taken without a race.
 * Noise.   Blocks of one finalist differ though nothing did, by what the card's clock and the machine
 *          do meanwhile. Of n such times, no more than ten, their range over n estimates the standard
 *          error of their middle (Dean and Dixon 1951), so no bar has to be guessed.
 */
#ifndef YK_RUNTIME_DEVICE_FINALS_H
#define YK_RUNTIME_DEVICE_FINALS_H

#include <stdbool.h>

#define YK_FINALS_NEAR                                                                             \
    1.08f /* times the best of a burst: in the finals, as energies differ by that */
#define YK_FINALS_MAX    6
#define YK_FINALS_ROUNDS 7

typedef struct yk_finalist {
    int candidate; /* the caller's number of it */
    int n;         /* blocks that were timed */
    bool out;      /* it runs no more */
    float ms[YK_FINALS_ROUNDS];
} yk_finalist;

typedef struct yk_finals {
    int n;
    yk_finalist who[YK_FINALS_MAX];
} yk_finals;

/* The most that a candidate may have taken in a burst to be a finalist: little more than the best, and
 * the part `lead` less than the first. */
float yk_finals_bar(float first_ms, float best_ms, float lead);

/* Note a block's time, in ascending order. */
void yk_finals_add(yk_finalist *f, float ms);

/* The middle of its blocks; there is one at least. */
float yk_finals_middle(const yk_finalist *f);

/* Let go who was slower in each block than the leader in its slowest, and say how many go on. */
int yk_finals_thin(yk_finals *f);

/* The finalist that is fastest, if it is faster than the first by more than the noise of both; else
 * the first, which is 0. */
int yk_finals_verdict(const yk_finals *f);

#endif
