/* tests/ranks/train/rank_links.c - ranks race, or remember what an earlier run measured, and say which; all
 * must see the same. Started by test_links.sh.
 *
 *   rank_links TUNE BYTES [KIND]
 *
 * Beside gathers they sum shards, or with `all-reduce` for KIND only sum for all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/carrier.h"
#include "engine/links.h"
#include "tests/ranks/rig.h"

/* Every bit of what was measured, in a line. */
static void print_times(const yk_race *race)
{
    for (int k = 0; k < race->n_rows; k++)
        printf("%a %a %d ", race->rows[k].seconds[0], race->rows[k].seconds[1],
               race->rows[k].doublings);
    printf("\n");
}

int main(int argc, char **argv)
{
    static yk_config config;
    rank_rig r;
    char set[32];
    if (argc != 3 && argc != 4) return 2;
    bool for_all = argc == 4 && strcmp(argv[3], "all-reduce") == 0;
    rank_open(&r);
    yk_config_init(&config);
    snprintf(set, sizeof set, "tune=%s", argv[1]);
    EXPECT(&r, yk_config_set(&config, set) == YK_OK);
    yk_race race = rank_race(&r, for_all ? YK_RACE_ALL_REDUCE : YK_RACE_SCATTER, atol(argv[2]));
    EXPECT(&r, yk_links_race(&config, r.world, r.device, &race) == YK_OK);
    rank_expect_race(&r, &race);
    if (r.rank == 0) {
        yk_carrier_print(&race, stdout);
        print_times(&race);
    }
    rank_close(&r);
    return 0;
}
