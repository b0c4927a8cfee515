/* runtime/machine/share.h - dividing units of processors among ranks that want some of them; for
 * runtime/machine/ alone.
 */
#ifndef YK_RUNTIME_MACHINE_SHARE_H
#define YK_RUNTIME_MACHINE_SHARE_H

#include "runtime/machine/cpus.h"

/* Give each unit to one rank that wants it, or to none when nobody does, so that ranks come away with
 * numbers as equal as their wants admit; each rank's units are neighbours where that can be. The same
 * arguments give the same result everywhere.
 *
 * units   (n_units) sets that do not overlap; of a unit a rank gets what it wants of it
 * wants   (n)
 * shares  (n) out; empty for a rank for which nothing was left
 *
 * False when there is no memory for it.
 */
bool yk_share_units(const yk_cpus *units, int n_units, const yk_cpus *wants, int n,
                    yk_cpus *shares);

#endif
