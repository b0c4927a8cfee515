/* engine/replicas.h - do ranks that keep the same weights keep the same bits? */
#ifndef YK_ENGINE_REPLICAS_H
#define YK_ENGINE_REPLICAS_H

#include "engine/engine.h"

/* Compare what ranks keep of the weights after step `step`. In stage 3 that is each rank's shard, which
 * others keep too where nodes are replicas of each other; else all of them.          [collective]
 *
 * YK_EDIVERGED  they differ: the ranks that differ from most are named by rank 0, and the first unit
 */
yk_status yk_replicas_check(yk_engine *engine, yk_world *world, int64_t step);

#endif
