/* comm/race.h - which backend is faster between these ranks. */
#ifndef YK_COMM_RACE_H
#define YK_COMM_RACE_H

#include "comm/comm.h"

#define YK_RACE_MAX 2

/* What was measured; the same on all ranks. */
typedef struct yk_race {
    yk_comm_choice backends[YK_RACE_MAX];
    int n_backends;
    int64_t bytes;                                       /* of the whole buffer */
    double gather_s[YK_RACE_MAX], reduce_s[YK_RACE_MAX]; /* of one call */
    int gathers, sums;                                   /* which wins each */
    bool remembered;                                     /* it was measured by an earlier run */
} yk_race;

/* The name of backend i, as comm.backend has it. */
const char *yk_race_name(const yk_race *race, int i);

/* Find the winners: one for both, unless two are faster together by more than a race may err. */
void yk_race_judge(yk_race *race);

/* Time an all-gather and a reduce-scatter of `bytes` bytes of `wire` over each backend, on all ranks, with
 * memory that is given back. A tenth of a second or so each, and what a group takes to be made.
 *                                                                                   [collective]
 * backends  (n_backends) at most YK_RACE_MAX
 *
 * YK_ENOMEM  there is not so much memory
 */
yk_status yk_comm_race(yk_world *world, yk_device *device, const yk_comm_choice *backends,
                       int n_backends, yk_dtype wire, int64_t bytes, yk_race *race_out);

#endif
