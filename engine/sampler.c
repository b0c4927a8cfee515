/* engine/sampler.c - see sampler.h. Probabilities are in double; nothing is kept between calls. */
#include "engine/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/base/arith.h"
#include "runtime/base/mix.h"

yk_status yk_sample_options_check(const yk_sample_options *o)
{
    if (!(o->temperature >= 0 && isfinite(o->temperature)))
        return yk_fail(YK_EINVAL, "temperature", "is %g; give 0 or more", o->temperature);
    if (o->top_k < 0)
        return yk_fail(YK_EINVAL, "top-k", "is %" PRId64 "; give 0 (all) or more", o->top_k);
    if (!(o->top_p >= 0 && o->top_p <= 1))
        return yk_fail(YK_EINVAL, "top-p", "is %g; give 0 to 1", o->top_p);
    return YK_OK;
}

/* Uniform in 0 <= u < 1, 53 bits. */
static double uniform(int64_t seed, uint64_t counter)
{
    uint64_t key = yk_mix((uint64_t)seed + YK_MIX_STEP);
    return (double)(yk_mix(key + counter * YK_MIX_STEP) >> 11) * 0x1p-53;
}

/* The most probable token, the first of equals. */
static yk_status find_greatest(const float *logits, int64_t vocab, int32_t *token_out)
{
    int32_t best = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return yk_fail(YK_EDIVERGED, "logits",
                           "that of token %" PRId64 " is %f; the weights are broken, or overflow "
                           "in this precision",
                           i, (double)logits[i]);
        if (logits[i] > logits[best]) best = (int32_t)i;
    }
    if (logits[best] == -INFINITY)
        return yk_fail(YK_EDIVERGED, "logits", "all are -infinity; the weights are broken");
    *token_out = best;
    return YK_OK;
}

/* A token and its probability, relative to that of the most probable. */
typedef struct candidate {
    double p;
    int32_t token;
    float logit;
} candidate;

/* Falling logit; of equals the lower token first. */
static int compare(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

/* How many of the candidates top_k and top_p keep; they are put in falling order. */
static int64_t cut(candidate *candidates, int64_t n, const yk_sample_options *o)
{
    bool by_count = o->top_k > 0 && o->top_k < n;
    if (!by_count && o->top_p >= 1) return n;
    qsort(candidates, (size_t)n, sizeof *candidates, compare);
    if (by_count) n = o->top_k;
    double total = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) total += candidates[i].p;
    int64_t kept = 0;
    do sum += candidates[kept++].p;
    while (kept < n && (sum < o->top_p * total || o->top_p >= 1));
    return kept;
}

/* The candidate on whose stretch of the total u falls. */
static int32_t draw(const candidate *candidates, int64_t n, double u)
{
    double total = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) total += candidates[i].p;
    int32_t last = candidates[0].token;
    for (int64_t i = 0; i < n; i++) {
        if (candidates[i].p == 0) continue;
        last = candidates[i].token;
        sum += candidates[i].p;
        if (u * total < sum) return last;
    }
    return last; /* u * total has been rounded up to the total */
}

yk_status yk_sample_token(const float *logits, int64_t vocab, const yk_sample_options *o,
                          uint64_t counter, int32_t *token_out)
{
    YK_CHECK(vocab > 0);
    int32_t best = 0;
    YK_TRY(find_greatest(logits, vocab, &best));
    if (o->temperature == 0 || o->top_p == 0 || o->top_k == 1) {
        *token_out = best;
        return YK_OK;
    }
    candidate *candidates = malloc((size_t)vocab * sizeof *candidates);
    if (!candidates)
        return yk_fail(YK_ENOMEM, "sampling", "no memory to sort %" PRId64 " tokens", vocab);
    for (int64_t i = 0; i < vocab; i++) {
        double below = ((double)logits[i] - (double)logits[best]) / o->temperature;
        candidates[i] = (candidate){exp(below), (int32_t)i, logits[i]};
    }
    int64_t n = cut(candidates, vocab, o);
    *token_out = draw(candidates, n, uniform(o->seed, counter));
    free(candidates);
    return YK_OK;
}
