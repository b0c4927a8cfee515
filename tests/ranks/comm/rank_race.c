/* tests/ranks/comm/rank_race.c - two backends race between these ranks, and all see the same. Started by
 * test_hostmem.sh. */
#include <stdio.h>

#include "tests/ranks/rig.h"

int main(void)
{
    static const yk_race_kind kinds[] = {YK_RACE_SCATTER, YK_RACE_ALL_REDUCE};
    rank_rig r;
    rank_open(&r);
    for (int i = 0; i < 2; i++) {
        yk_race race = rank_race(&r, kinds[i], 1 << 20);
        EXPECT(&r, yk_comm_race(r.world, r.device, &race) == YK_OK);
        EXPECT(&r, race.n_rows == (kinds[i] == YK_RACE_ALL_REDUCE ? 1 : 2));
        rank_expect_race(&r, &race);
    }
    if (r.rank == 0) printf("passed on %d ranks\n", r.size);
    rank_close(&r);
    return 0;
}
