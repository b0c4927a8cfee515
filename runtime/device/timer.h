/* runtime/device/timer.h - how long stretches of a compute stream take, added up without the host
 * waiting for them.
 *
 * On a GPU a stretch lies between two events with a time, and counts when the stream has passed it;
 * elsewhere it counts at once. A stretch in which nothing is enqueued but a wait for another stream is
 * how long this stream was held back.
 */
#ifndef YK_RUNTIME_DEVICE_TIMER_H
#define YK_RUNTIME_DEVICE_TIMER_H

#include "runtime/device/device.h"

typedef struct yk_timer yk_timer;

/* Make a timer with room for `n_places` stretches that have not been passed.             [local]
 *
 * YK_ENOMEM  no memory for them
 */
yk_status yk_timer_create(yk_device *device, int n_places, yk_timer **timer_out);

/* Release it; the device must be open still. NULL does nothing. */
void yk_timer_destroy(yk_timer *timer);

/* A stretch begins, ends. Where there is no room for it, it is left out. Stretches do not overlap.
 *                                                                                       [stream] */
yk_status yk_timer_begin(yk_timer *timer, yk_stream *stream);
yk_status yk_timer_end(yk_timer *timer, yk_stream *stream);

/* Seconds of all stretches that have been passed. */
double yk_timer_read(yk_timer *timer);

#endif
