/* tests/ranks/comm/rank_race.c - two backends race between these ranks, and all see the same. Started by
 * test_hostmem.sh. */
#include <stdio.h>
#include <string.h>

#include "comm/race.h"
#include "tests/ranks/rig.h"

int main(void)
{
    yk_comm_choice racers[RANK_RACERS];
    rank_rig r;
    yk_race race, all[8];
    memset(&race, 0, sizeof race);
    rank_open(&r);
    rank_racers(&r, racers);
    EXPECT(&r, r.size <= 8);
    EXPECT(&r,
           yk_comm_race(r.world, r.device, racers, RANK_RACERS, YK_BF16, 1 << 20, &race) == YK_OK);
    EXPECT(&r, race.n_backends == RANK_RACERS && race.bytes >= 1 << 20);
    double total[RANK_RACERS];
    for (int i = 0; i < RANK_RACERS; i++) {
        EXPECT(&r, race.backends[i] == racers[i] && race.gather_s[i] > 0 && race.reduce_s[i] > 0);
        total[i] = race.gather_s[i] + race.reduce_s[i];
    }
    int one = total[1] < total[0];
    double apart = race.gather_s[race.gathers] + race.reduce_s[race.sums];
    EXPECT(&r, race.gathers == race.sums ? race.sums == one : apart < total[one]);
    EXPECT(&r, yk_world_gather(r.world, &race, sizeof race, all) == YK_OK);
    for (int i = 0; i < r.size; i++) {
        EXPECT(&r, all[i].sums == race.sums && all[i].gathers == race.gathers);
        EXPECT(&r, memcmp(all[i].gather_s, race.gather_s, sizeof race.gather_s) == 0);
        EXPECT(&r, memcmp(all[i].reduce_s, race.reduce_s, sizeof race.reduce_s) == 0);
    }
    if (r.rank == 0) printf("passed on %d ranks\n", r.size);
    rank_close(&r);
    return 0;
}
