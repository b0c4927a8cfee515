/* comm/race.h - which backend is faster between these ranks. */
#ifndef YK_COMM_RACE_H
#define YK_COMM_RACE_H

#include "comm/comm.h"

#define YK_RACE_MAX  2
#define YK_RACE_ROWS 4

typedef enum yk_race_kind {
    YK_RACE_GATHER,     /* all-gather */
    YK_RACE_SCATTER,    /* reduce-scatter */
    YK_RACE_ALL_REDUCE, /* all-reduce */
    YK_RACE_N_KINDS,
} yk_race_kind;

/* A collective that a step makes. */
typedef struct yk_race_row {
    yk_race_kind kind;
    yk_dtype dtype;
    int64_t count;               /* elements of the whole buffer */
    double calls;                /* of a step; a buffer that is longer than `count` is several */
    double seconds[YK_RACE_MAX]; /* of one call; the same on all ranks, like all that follows */
    int doublings;               /* of the length that hostmem's rule gives its chunks; or halvings,
                                  * below 0 */
} yk_race_row;

/* What is to be measured, in groups as a run makes them; what was; and who wins. */
typedef struct yk_race {
    yk_comm_choice backends[YK_RACE_MAX];
    int n_backends;
    yk_axis axis;
    bool shares_gpu;    /* as a group's options have it */
    bool tries_lengths; /* of hostmem's chunks; else they have those of its rule */
    yk_reduce_choice reduce;
    yk_dtype wire;
    yk_race_row rows[YK_RACE_ROWS];
    int n_rows;
    int gathers, sums; /* which of the backends wins each */
    bool remembered;   /* it was measured by an earlier run */
} yk_race;

/* The name of backend i, as comm.backend has it. */
const char *yk_race_name(const yk_race *race, int i);

/* "all-gather" */
const char *yk_race_kind_name(yk_race_kind kind);

/* The longest buffer, in elements that are summed, and in bytes. */
int64_t yk_race_max_count(const yk_race *race);
int64_t yk_race_max_bytes(const yk_race *race);

/* What all gathers of a step take with backend i, or all sums. */
double yk_race_gathers_s(const yk_race *race, int i);
double yk_race_sums_s(const yk_race *race, int i);

/* Doublings of hostmem's chunks in a gather, or a sum, of `bytes` for all ranks together: those of the row
 * whose length is nearest. Without a race none. */
int yk_race_doublings(const yk_race *race, bool gathers, int64_t bytes);

/* Find the winners by what a step spends: one for both, unless two are faster together by more than a
 * race may err. */
void yk_race_judge(yk_race *race);

/* Time each row over each backend, on all ranks, with memory that is given back, and judge. Some calls each,
 * for hostmem with each length of chunks, and what a group takes to be made.        [collective]
 *
 * race  backends, groups and rows are given, with counts that are multiples of 128 times the ranks; the rest
 *       is set, on success
 *
 * YK_ENOMEM  there is not so much memory
 */
yk_status yk_comm_race(yk_world *world, yk_device *device, yk_race *race);

/* What a row is timed with. */
typedef struct yk_race_track {
    yk_world *world;
    yk_comm *comm; /* a group that was made with the row's race */
    yk_stream *stream;
    void *buffer; /* (row's count) of its dtype, device memory; its content is lost */
} yk_race_track;

/* Time one row of a race in a group of its backend number `backend`, for hostmem with each length of chunks
 * that is tried; the best of them is left in the row, and with it in the group.       [collective] */
yk_status yk_race_time(const yk_race_track *track, yk_race *race, yk_race_row *row, int backend);

#endif
