/* engine/tuning.h - the choices of kernels that a run makes, and where they are kept. */
#ifndef YK_ENGINE_TUNING_H
#define YK_ENGINE_TUNING_H

#include "engine/engine.h"

/* Where choices are kept: $XDG_CACHE_HOME/yoke, else ~/.cache/yoke; "" without either.   [local] */
void yk_tuning_folder(char *folder, size_t bytes);

/* What choices hold for, the card, its driver and libraries, in a line; "" where there is nothing to
 * choose.                                                                                [local] */
yk_status yk_tuning_card(const yk_device *device, char *card, size_t bytes);

/* Let the device know what earlier runs found, unless the configuration says otherwise. Without
 * a folder choices are for this process alone.                                           [local] */
yk_status yk_tuning_begin(const yk_config *config, yk_device *device);

/* Before the first step, as engine->config says: a rank alone times what it does not know as it meets it.
 * Of several the first with each kind of card does, in a step that all rehearse (rehearsal.h) where one of
 * those does not know all that there is to know; the others learn it from them, and after that nobody
 * times. Ranks with one kind of card so choose alike.                               [collective]
 *
 * world  NULL for a rank alone
 */
yk_status yk_tuning_settle(yk_world *world, yk_engine *engine);

#endif
