/* runtime/device/cuda/race.c - timing candidates against each other.
 *
 * A heat times each candidate once; those near the best run the finals, in turns, so that a clock that
 * moves with power and heat moves for all. A time is the least of a few batches, each long against what
 * a launch costs: whatever else the machine does only ever adds to it. A race is a burst all the same,
 * while in a step the card is at the limit of its power and a kernel that draws more lowers the clock
 * for all: so another than the first must be clearly faster.
 */
#include "runtime/device/cuda/race.h"

#include <string.h>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/kernels.h"

#define MAX_CANDIDATES 32
#define ROUNDS         5
#define BATCH_MS       1.0f
#define MAX_RUNS       16
#define HOPELESS       1.12f /* times the best of the heat: not in the finals */
#define BURST          0.96f /* another must be below so much of the first one's time */
#define NEVER          1e30f

typedef struct stopwatch {
    cudaEvent_t begin, end;
} stopwatch;

static yk_status open_stopwatch(stopwatch *w)
{
    YK_TRY(yk_cuda_check(cudaEventCreate(&w->begin), "tuner"));
    cudaError_t error = cudaEventCreate(&w->end);
    if (error != cudaSuccess) (void)cudaEventDestroy(w->begin);
    return yk_cuda_check(error, "tuner");
}

static void close_stopwatch(const stopwatch *w)
{
    (void)cudaEventDestroy(w->begin);
    (void)cudaEventDestroy(w->end);
}

/* Milliseconds of one of `runs` runs; NEVER for a candidate that cannot. */
static yk_status time_runs(const yk_race *race, const stopwatch *w, int candidate, int runs,
                           float *ms_out)
{
    float ms = 0;
    YK_TRY(yk_cuda_check(cudaEventRecord(w->begin, race->stream), "tuner"));
    for (int i = 0; i < runs; i++)
        if (!race->run(race->context, candidate)) {
            *ms_out = NEVER;
            return YK_OK;
        }
    YK_TRY(yk_cuda_check(cudaEventRecord(w->end, race->stream), "tuner"));
    YK_TRY(yk_cuda_check(cudaEventSynchronize(w->end), "tuner"));
    YK_TRY(yk_cuda_check(cudaEventElapsedTime(&ms, w->begin, w->end), "tuner"));
    *ms_out = ms / (float)runs;
    return YK_OK;
}

/* Each candidate's time, once; the first run loads its kernel and does not count. */
static yk_status run_heat(const yk_race *race, const stopwatch *w, int n, float *ms)
{
    for (int i = 0; i < n; i++) {
        YK_TRY(time_runs(race, w, i, 1, &ms[i]));
        if (ms[i] < NEVER) YK_TRY(time_runs(race, w, i, 1, &ms[i]));
    }
    return YK_OK;
}

/* The least times of those that are near the best, and of the first; NEVER for the others. */
static yk_status run_finals(const yk_race *race, const stopwatch *w, int n, float *ms)
{
    float best = NEVER, final[MAX_CANDIDATES];
    for (int i = 0; i < n; i++) best = ms[i] < best ? ms[i] : best;
    for (int i = 0; i < n; i++) final[i] = NEVER;
    int runs = best < BATCH_MS ? (int)(BATCH_MS / (best + BATCH_MS / MAX_RUNS)) + 1 : 1;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            float batch;
            if (ms[i] >= NEVER || (i > 0 && ms[i] > best * HOPELESS)) continue;
            YK_TRY(time_runs(race, w, i, runs, &batch));
            final[i] = batch < final[i] ? batch : final[i];
        }
    memcpy(ms, final, (size_t)n * sizeof *ms);
    return YK_OK;
}

static yk_status digest_of(const yk_race *race, int candidate, uint64_t *digest_out)
{
    uint64_t digest = 0;
    if (!race->run(race->context, candidate)) return YK_OK;
    YK_TRY(yk_cuda_check(yk_cuda_digest(race->digest, race->out, race->out_bytes, race->stream),
                         "tuner"));
    YK_TRY(yk_cuda_check(
        cudaMemcpyAsync(&digest, race->digest, sizeof digest, cudaMemcpyDeviceToHost, race->stream),
        "tuner"));
    YK_TRY(yk_cuda_check(cudaStreamSynchronize(race->stream), "tuner"));
    *digest_out = digest;
    return YK_OK;
}

static yk_status repeats_its_bits(const yk_race *race, int candidate, bool *same_out)
{
    uint64_t first = 0, second = 1;
    YK_TRY(digest_of(race, candidate, &first));
    YK_TRY(digest_of(race, candidate, &second));
    *same_out = first == second;
    return YK_OK;
}

static int fastest(const float *ms, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (ms[i] < NEVER && ms[i] < ms[best] && ms[i] < ms[0] * BURST) best = i;
    return best;
}

static yk_status judge(const yk_race *race, const stopwatch *w, int *winner_out)
{
    float ms[MAX_CANDIDATES];
    int n = race->n < MAX_CANDIDATES ? race->n : MAX_CANDIDATES, winner;
    YK_TRY(run_heat(race, w, n, ms));
    YK_TRY(run_finals(race, w, n, ms));
    bool same = false;
    while ((winner = fastest(ms, n)) != 0) {
        YK_TRY(repeats_its_bits(race, winner, &same));
        if (same) break;
        ms[winner] = NEVER;
    }
    *winner_out = winner;
    return YK_OK;
}

bool yk_race_is_captured(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) != cudaSuccess ||
           status != cudaStreamCaptureStatusNone;
}

yk_status yk_race_run(const yk_race *race, int *winner_out)
{
    stopwatch w;
    YK_TRY(open_stopwatch(&w));
    yk_status status = judge(race, &w, winner_out);
    close_stopwatch(&w);
    return status;
}
