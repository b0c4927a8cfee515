/* engine/drawn_batch.h - a micro-batch of no data, for steps that are timed or rehearsed.
 *
 * Its tokens are as frequent as words are, for what an operation costs may depend on how often the same
 * token stands in a batch.
 */
#ifndef YK_ENGINE_DRAWN_BATCH_H
#define YK_ENGINE_DRAWN_BATCH_H

#include "engine/engine.h"

/* Fill a micro-batch of `engine`, of one document in which every token counts.           [local]
 *
 * seed    another one for other tokens
 * fields  (n_fields,B,T) host memory
 */
void yk_drawn_batch_fill(const yk_engine *engine, uint64_t seed, int32_t *fields);

#endif
