/* comm/heartbeats.h - what every rank says of itself, readable by all others without their help; included
 * by comm/ alone.
 *
 * Model.    A table of one row a rank lies in memory that a node's processes share: a file without a
 *           name, which is gone with its last process. Each rank writes its own row. Between nodes the
 *           watchdog's thread of each node's first rank sends its node's rows to the others, on a
 *           communicator of its own, one message a peer under way at a time, and writes what it gets
 *           into its node's table. So everybody reads one table. A rank that has said why the run
 *           ends tells those first ranks by itself: its own may be the one that is missing.
 * Cells.    Ranks that share memory are a cell: a node, or, where the system does not let processes
 *           share, each rank by itself.
 */
#ifndef YK_COMM_HEARTBEATS_H
#define YK_COMM_HEARTBEATS_H

#include <stdatomic.h>
#include <stdint.h>

#include "comm/world.h"

/* Steps whose computing time is kept. */
#define YK_BEAT_STEPS 32

typedef enum yk_beat_state {
    YK_BEAT_RUNS = 0,
    YK_BEAT_FAILED, /* it ends the run, and why has been said */
    YK_BEAT_GONE,   /* its process is no more; written by who saw it */
} yk_beat_state;

/* A row. Whole numbers alone, since rows travel as such. */
typedef struct yk_beat {
    _Atomic int64_t ticks;   /* counted by the watchdog's thread: the process is not stopped */
    _Atomic int64_t notes;   /* counted by the work: it goes on. All ranks take the same notes */
    _Atomic int64_t place;   /* where the work is: step, phase and unit, in one word */
    _Atomic int64_t settled; /* 1: the first step is over */
    _Atomic int64_t code;    /* of a rank that has failed: its exit status, where it is known */
    _Atomic int64_t state;   /* yk_beat_state */
    _Atomic int64_t pid;
    _Atomic int64_t computed[YK_BEAT_STEPS]; /* step << 32 | microseconds that it computed */
} yk_beat;

typedef struct yk_beats yk_beats;

/* Make the table and the channel.                                                   [collective]
 *
 * YK_ENOMEM  no memory, the same on all ranks
 */
yk_status yk_beats_create(yk_world *world, yk_beats **beats_out);
void yk_beats_destroy(yk_beats *beats);

/* The row of a rank. */
yk_beat *yk_beats_row(const yk_beats *beats, int rank);

/* The lowest rank of a rank's cell. */
int yk_beats_cell(const yk_beats *beats, int rank);

/* Is this rank the first in its cell to ask? */
bool yk_beats_claim(const yk_beats *beats);

/* Has one asked? */
bool yk_beats_are_claimed(const yk_beats *beats);

/* Let the other cells know that what is wrong with `rank` has been said: their rows of it become
 * YK_BEAT_FAILED. By the caller of yk_beats_exchange(), once.                            [local] */
void yk_beats_tell(yk_beats *beats, int rank);

/* Send and receive what there is to; the caller is one thread of each process.            [local]
 *
 * last  this is the last word: nothing is sent after it
 */
void yk_beats_exchange(yk_beats *beats, bool last);

/* After exchanges with `last`: has all arrived that will come? */
bool yk_beats_are_done(const yk_beats *beats);

#endif
