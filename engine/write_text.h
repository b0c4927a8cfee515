/* engine/write_text.h - a model writes: text in, text out. */
#ifndef YK_ENGINE_WRITE_TEXT_H
#define YK_ENGINE_WRITE_TEXT_H

#include <stdio.h>

#include "engine/evaluate.h"
#include "engine/generate.h"
#include "runtime/text/tokenizer.h"

typedef struct yk_write_options {
    const char *prompt; /* UTF-8; "" begins with the tokenizer's own beginning, or a line's end */
    int64_t max_tokens;
    yk_sample_options sample;
    const yk_evaluate_watch *watch; /* asked at each new token; NULL: nobody is */
    bool plain;                     /* control characters but line ends and tabs become '?' */
} yk_write_options;

/* Print the prompt and what the model makes of it, piece by piece, and end the line.    [local]
 *
 * out  NULL: nothing is printed
 *
 * YK_EINVAL  the prompt has tokens outside the model's vocabulary
 */
yk_status yk_write_text(yk_engine *engine, yk_tokenizer *tokenizer, const yk_write_options *options,
                        FILE *out);

/* Can the model begin with config->sample.prompt, if samples are asked for?              [local]
 *
 * YK_EINVAL  the prompt has tokens outside the model's vocabulary
 */
yk_status yk_write_sample_check(const yk_engine *engine, const yk_config *config);

/* The sample that config->sample asks for. Every rank makes it; those with `out` NULL say nothing.
 * What `watch` answers other than YK_OK ends it, and is its status. */
yk_status yk_write_sample(yk_engine *engine, const yk_config *config,
                          const yk_evaluate_watch *watch, FILE *out);

#endif
