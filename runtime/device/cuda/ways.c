/* runtime/device/cuda/ways.c - see ways.h. */
#include "runtime/device/cuda/ways.h"

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/race.h"

static yk_status race(const yk_cuda_ways *w, int *winner_out)
{
    return yk_race_run(&(yk_race){.stream = yk_cuda_stream_of(w->s),
                                  .tuner = w->s->device->tuner,
                                  .n = w->n,
                                  .run = w->run,
                                  .context = w->context,
                                  .out = w->out,
                                  .out_bytes = w->out_bytes,
                                  .digest = w->digest},
                       winner_out);
}

yk_status yk_cuda_ways_choose(const yk_cuda_ways *w, int *way_out)
{
    yk_tuner *tuner = w->s->device->tuner;
    unsigned char way = 0;
    int winner = 0;
    *way_out = 0;
    if (!yk_tuner_find(tuner, w->key, sizeof w->key, &way, sizeof way)) {
        if (!w->may_race || !yk_tuner_races(tuner) || yk_race_is_captured(yk_cuda_stream_of(w->s)))
            return YK_OK;
        YK_TRY(race(w, &winner));
        way = (unsigned char)winner;
        yk_tuner_add(tuner, w->key, sizeof w->key, &way, sizeof way);
    }
    *way_out = way < w->n ? way : 0;
    return YK_OK;
}
