/* launch/leftovers.h - what Open MPI leaves behind when mpirun itself is killed.
 *
 * Ranks of one machine exchange messages through files in /dev/shm that mpirun removes at the end.
 * Without mpirun the ranks end too, and the files would fill memory until the next boot.
 */
#ifndef YK_LAUNCH_LEFTOVERS_H
#define YK_LAUNCH_LEFTOVERS_H

#include <stdint.h>

/* Remove Open MPI's segments in `folder` that are this user's, were made at `since_s` (of CLOCK_REALTIME) or
 * later, and that no process has mapped; for those in use, wait for their ranks' end for as long as 5 s.
 * What cannot be read or removed stays.                                                  [local] */
void yk_leftovers_remove(const char *folder, int64_t since_s);

#endif
