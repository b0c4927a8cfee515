/* engine/generate.h - text from a model, one token after the other.
 *
 * The prompt is run through in pieces, then each new token alone; keys and values of what was seen
 * lie in a cache. When the cache is full its older half is dropped and the rest is run through
 * again, so that a text may be longer than the model's context.
 */
#ifndef YK_ENGINE_GENERATE_H
#define YK_ENGINE_GENERATE_H

#include "engine/engine.h"
#include "engine/sampler.h"

typedef struct yk_generate_options {
    const int32_t *prompt; /* (n_prompt) ids within the vocabulary; borrowed for the call */
    int64_t n_prompt;      /* >= 1 */
    int64_t max_tokens;    /* new tokens */
    int32_t stop_token;    /* ends the text; -1: none */
    yk_sample_options sample;
} yk_generate_options;

/* Takes each new token as it comes; another status than YK_OK ends the generation with it. */
typedef yk_status (*yk_token_sink)(void *context, int32_t token);

/* Is the prompt one that yk_generate() takes?                                            [local]
 *
 * YK_EINVAL  it is empty or holds an id outside the vocabulary
 */
yk_status yk_generate_check(const yk_engine *engine, const yk_generate_options *options);

/* Generate up to options->max_tokens tokens. Blocks.                                     [local]
 *
 * YK_EINVAL  as of yk_generate_check()
 */
yk_status yk_generate(yk_engine *engine, const yk_generate_options *options, yk_token_sink sink,
                      void *context);

/* On a dry engine: ask for everything that yk_generate() asks for. */
yk_status yk_generate_rehearse(yk_engine *engine);

#endif
