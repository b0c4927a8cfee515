/* runtime/device/cuda/race.c - timing candidates against each other.
 *
 * A heat times each candidate once, and a burst those near the best: a millisecond each, in turns, of
 * which the least counts, since whatever else the machine does only ever adds. But a burst is run at
 * the card's highest clock, while in a training step the card is at the limit of its power and what
 * counts of a kernel is its energy: whoever draws more lowers the clock. So those that are near the
 * best run finals, long blocks in turns on a card that is warm, forth and back so that what drifts
 * does so for all; a block's first third does not count. finals.h says who wins. Blocks of 200 ms, as
 * long as an H200's clock takes to settle, chose no better for whole steps (docs/performance.md).
 */
#include "runtime/device/cuda/race.h"

#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/kernels.h"
#include "runtime/device/finals.h"

#define MAX_CANDIDATES 32
#define BURSTS         3
#define BURST_MS       1.0f
#define MAX_BURST_RUNS 16
#define HOPELESS       1.12f /* times the best of the heat: not in the burst */
#define MAX_RUNS       256   /* of a block: a kernel of microseconds draws little power */
#define THIN_FROM      2     /* rounds */
#define NEVER          1e30f

/* How long it may take: some 0.1 s a choice where a run meets a shape for the first time, five times
 * that where one asks for it. Rounds are even, so that each finalist is as early as late. */
typedef struct effort {
    float warm_ms, block_ms;
    int rounds, n_finalists;
} effort;

static const effort brief = {.warm_ms = 20, .block_ms = 20, .rounds = 2, .n_finalists = 3};
static const effort thorough = {.warm_ms = 150, .block_ms = 60, .rounds = 4, .n_finalists = 5};

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

/* ---- the heat ----------------------------------------------------------------------------- */

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

/* ---- the burst ---------------------------------------------------------------------------- */

/* The least times of those that are near the best, and of the first; NEVER for the others. */
static yk_status run_burst(const yk_race *race, const stopwatch *w, int n, float *ms)
{
    float best = NEVER, least[MAX_CANDIDATES];
    for (int i = 0; i < n; i++) best = ms[i] < best ? ms[i] : best;
    for (int i = 0; i < n; i++) least[i] = NEVER;
    int runs = best < BURST_MS ? (int)(BURST_MS / (best + BURST_MS / MAX_BURST_RUNS)) + 1 : 1;
    for (int round = 0; round < BURSTS; round++)
        for (int i = 0; i < n; i++) {
            float batch;
            if (ms[i] >= NEVER || (i > 0 && ms[i] > best * HOPELESS)) continue;
            YK_TRY(time_runs(race, w, i, runs, &batch));
            least[i] = batch < least[i] ? batch : least[i];
        }
    memcpy(ms, least, (size_t)n * sizeof *ms);
    return YK_OK;
}

/* ---- bits --------------------------------------------------------------------------------- */

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

/* ---- the finals --------------------------------------------------------------------------- */

static int fastest(const float *ms, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (ms[i] < ms[best]) best = i;
    return best;
}

/* The first candidate, and as many of those near the best as effort allows, if they repeat their bits. */
static yk_status pick_finalists(const yk_race *race, const effort *e, int n, const float *burst,
                                yk_finals *finals)
{
    float ms[MAX_CANDIDATES];
    float limit = yk_finals_bar(burst[0], burst[fastest(burst, n)], race->lead);
    memcpy(ms, burst, (size_t)n * sizeof *ms);
    *finals = (yk_finals){.n = 1};
    ms[0] = NEVER;
    for (int i = fastest(ms, n); ms[i] < NEVER && ms[i] <= limit && finals->n < e->n_finalists;
         i = fastest(ms, n)) {
        bool same = false;
        YK_TRY(repeats_its_bits(race, i, &same));
        if (same) finals->who[finals->n++] = (yk_finalist){.candidate = i};
        ms[i] = NEVER;
    }
    return YK_OK;
}

/* `runs` runs, of which the first third only lets the clock settle. */
static yk_status run_block(const yk_race *race, const stopwatch *w, yk_finalist *f, int runs)
{
    float ms;
    int settling = runs / 3;
    for (int i = 0; i < settling; i++)
        if (!race->run(race->context, f->candidate)) break;
    YK_TRY(time_runs(race, w, f->candidate, runs - settling, &ms));
    yk_finals_add(f, ms);
    return YK_OK;
}

static int runs_of(float ms, float all_ms, int least)
{
    float runs = all_ms / ms + 1;
    return runs > MAX_RUNS ? MAX_RUNS : runs < (float)least ? least : (int)runs;
}

static yk_status run_finals(const yk_race *race, const effort *e, const stopwatch *w, float ms,
                            yk_finals *finals)
{
    int runs = runs_of(ms, e->block_ms, 3), going_on = finals->n;
    float warm;
    YK_TRY(time_runs(race, w, 0, runs_of(ms, e->warm_ms, 1), &warm));
    for (int round = 0; round < e->rounds && going_on > 1; round++) {
        for (int i = 0; i < finals->n; i++) {
            yk_finalist *f = &finals->who[round % 2 ? finals->n - 1 - i : i];
            if (!f->out) YK_TRY(run_block(race, w, f, runs));
        }
        if (round + 1 >= THIN_FROM) going_on = yk_finals_thin(finals);
    }
    return YK_OK;
}

/* ---- all together ------------------------------------------------------------------------- */

static yk_status judge(const yk_race *race, const stopwatch *w, int *winner_out)
{
    const effort *e = yk_tuner_is_thorough(race->tuner) ? &thorough : &brief;
    const yk_tune_sum before = yk_tuner_sum(race->tuner);
    double begin_s = yk_clock_s();
    float ms[MAX_CANDIDATES];
    yk_finals finals;
    int n = race->n < MAX_CANDIDATES ? race->n : MAX_CANDIDATES, winner = 0;
    YK_TRY(run_heat(race, w, n, ms));
    YK_TRY(run_burst(race, w, n, ms));
    YK_TRY(pick_finalists(race, e, n, ms, &finals));
    double first_ms = ms[0], taken_ms = ms[0];
    if (finals.n > 1) {
        YK_TRY(run_finals(race, e, w, ms[fastest(ms, n)], &finals));
        winner = yk_finals_verdict(&finals);
        first_ms = yk_finals_middle(&finals.who[0]);
        taken_ms = yk_finals_middle(&finals.who[winner]);
    }
    *winner_out = finals.who[winner].candidate;
    if (first_ms < NEVER)
        yk_tuner_note(race->tuner, &before, yk_clock_s() - begin_s, first_ms, taken_ms);
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
