/* engine/sampler.h - choosing the next token from logits.
 *
 * Model.    Logits are divided by the temperature and cut to the top_k largest; of those, in
 *           falling order, the fewest whose probabilities reach top_p are kept, one at the least.
 *           Among what is kept a token is drawn by its probability. Equal logits rank by token id.
 * Random.   The draw is a function of (seed, counter) alone: no state, so generation may stop and
 *           go on anywhere, and repeats itself.
 */
#ifndef YK_ENGINE_SAMPLER_H
#define YK_ENGINE_SAMPLER_H

#include <stdint.h>

#include "runtime/base/status.h"

typedef struct yk_sample_options {
    double temperature; /* 0: always the most probable */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 0: the most probable alone; 1: all */
    int64_t seed;
} yk_sample_options;

/* Are the options in range?                                                             [local]
 *
 * YK_EINVAL  temperature is negative or not finite, top_k negative, or top_p outside 0 .. 1
 */
yk_status yk_sample_options_check(const yk_sample_options *options);

/* Choose one of the tokens 0 .. vocab-1.                                                [local]
 *
 * logits   (vocab) fp32, host memory; what lies behind (padding of the vocabulary) is not looked at
 * options  checked
 * counter  which draw this is, such as the token's position
 *
 * YK_EDIVERGED  a logit is NaN or +infinity, or all are -infinity: the weights are broken, or
 *               overflow in this precision
 * YK_ENOMEM     no memory to sort the vocabulary
 */
yk_status yk_sample_token(const float *logits, int64_t vocab, const yk_sample_options *options,
                          uint64_t counter, int32_t *token_out);

#endif
