/* engine/forward.h - a pass through all units without a way back. */
#ifndef YK_ENGINE_FORWARD_H
#define YK_ENGINE_FORWARD_H

#include "engine/engine.h"

/* Run the pass that has begun, an evaluation's or a generation's, through every unit.   [stream] */
yk_status yk_forward_all(yk_engine *engine);

#endif
