/* tests/ranks/rig.h - what a program that runs as one of several ranks is made of.
 *
 * A rank whose expectation fails says where, and ends the run: the others would wait for it.
 */
#ifndef YK_TESTS_RANKS_RIG_H
#define YK_TESTS_RANKS_RIG_H

#include "comm/comm.h"
#include "comm/race.h"

typedef struct rank_rig {
    yk_world *world;
    int rank, size;
    yk_device *device;
    yk_stream *compute, *gather, *reduce;
    yk_race lengths; /* that groups take hostmem's chunks from: at first by its rule */
} rank_rig;

/* Join the world and open a cpu device of one thread, or what YK_RANK_DEVICE asks for. */
void rank_open(rank_rig *r);
void rank_close(rank_rig *r);

#define EXPECT(r, condition)                                                                       \
    do {                                                                                           \
        if (!(condition)) rank_fail((r)->world, __FILE__, __LINE__, #condition);                   \
    } while (0)

_Noreturn void rank_fail(yk_world *world, const char *file, int line, const char *condition);

/* What YK_RANK_BACKEND in the environment asks for: hostmem, nccl, else what is usual. */
yk_comm_choice rank_backend(void);
/* Likewise YK_RANK_GATHERS, for gathers and broadcasts. */
yk_comm_choice rank_gathers(void);

/* From here on chunks in gathers, and in sums, are so many times doubled. All ranks alike. */
void rank_double_chunks(rank_rig *r, int in_gathers, int in_sums);

/* A race of the device's library, which on a GPU is NCCL, against hostmem: in `kind`, and in gathers unless
 * all ranks get the sum, of `bytes` bytes in bf16; hostmem tries chunks of several lengths. */
yk_race rank_race(const rank_rig *r, yk_race_kind kind, int64_t bytes);
/* It was run, and all ranks saw the same. */
void rank_expect_race(rank_rig *r, const yk_race *race);

/* A group with memory of its own. */
typedef struct rank_group {
    yk_comm *comm;
    yk_arena *arena;
    yk_axis axis;
    yk_reduce_choice reduce;
    yk_dtype wire;
} rank_group;

rank_group rank_group_open(rank_rig *r, yk_axis axis, yk_reduce_choice reduce, yk_dtype wire,
                           int64_t max_count, double timeout_s);
/* Likewise, one of two that reduce what `whole` would. */
rank_group rank_group_open_part(rank_rig *r, yk_axis axis, const rank_group *whole,
                                int64_t max_count);
void rank_group_close(rank_group *g);

#endif
