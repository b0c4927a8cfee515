/* tests/ranks/train/rank_links.c - ranks race, or remember what an earlier run measured, and say which; all
 * must see the same. Started by test_links.sh.
 *
 *   rank_links TUNE BYTES
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/carrier.h"
#include "engine/links.h"
#include "tests/ranks/rig.h"

int main(int argc, char **argv)
{
    yk_comm_choice racers[RANK_RACERS];
    static yk_config config;
    rank_rig r;
    yk_race race, all[8];
    char set[32], text[256];
    if (argc != 3) return 2;
    memset(&race, 0, sizeof race);
    rank_open(&r);
    rank_racers(&r, racers);
    yk_config_init(&config);
    snprintf(set, sizeof set, "tune=%s", argv[1]);
    EXPECT(&r, r.size <= 8 && yk_config_set(&config, set) == YK_OK);
    EXPECT(&r, yk_links_race(&config, r.world, r.device, racers, RANK_RACERS, YK_BF16,
                             atol(argv[2]), &race) == YK_OK);
    for (int i = 0; i < RANK_RACERS; i++)
        EXPECT(&r, race.backends[i] == racers[i] && race.gather_s[i] > 0 && race.reduce_s[i] > 0);
    EXPECT(&r, yk_world_gather(r.world, &race, sizeof race, all) == YK_OK);
    for (int i = 0; i < r.size; i++) {
        EXPECT(&r, all[i].sums == race.sums && all[i].gathers == race.gathers &&
                       all[i].remembered == race.remembered);
        EXPECT(&r, memcmp(all[i].gather_s, race.gather_s, sizeof race.gather_s) == 0);
        EXPECT(&r, memcmp(all[i].reduce_s, race.reduce_s, sizeof race.reduce_s) == 0);
    }
    yk_carrier_write(&race, text, sizeof text);
    if (r.rank == 0)
        printf("%s\n%a %a %a %a\n", text, race.gather_s[0], race.gather_s[1], race.reduce_s[0],
               race.reduce_s[1]);
    rank_close(&r);
    return 0;
}
