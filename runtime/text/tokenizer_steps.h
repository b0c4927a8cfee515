/* runtime/text/tokenizer_steps.h - the steps around the model in a tokenizer.json.
 *
 * Each function reads one part of the file into the tokenizer. A step that is not known is
 * YK_EUNSUPPORTED, with its name: to leave it out would change ids in silence.
 */
#ifndef YK_RUNTIME_TEXT_TOKENIZER_STEPS_H
#define YK_RUNTIME_TEXT_TOKENIZER_STEPS_H

#include <jansson.h>

#include "runtime/text/tokenizer_parts.h"

/* "normalizer", perhaps null: into tokenizer->normalize. */
yk_status yk_tokenizer_read_normalizer(yk_tokenizer *tokenizer, const char *path,
                                       const json_t *step);

/* "pre_tokenizer", perhaps null: into tokenizer->prepare and ->splitter. by_byte_out: the merges
 * see bytes, written as GPT-2 writes them; else characters. */
yk_status yk_tokenizer_read_splits(yk_tokenizer *tokenizer, const char *path, const json_t *step,
                                   bool *by_byte_out);

/* "post_processor", perhaps null: into tokenizer->prefix. */
yk_status yk_tokenizer_read_prefix(yk_tokenizer *tokenizer, const char *path, const json_t *step);

/* What a decoder does to tokens of characters. */
typedef struct yk_decoder_rules {
    bool mark_is_space;    /* U+2581 stands for a space */
    bool bytes;            /* <0x0A> stands for a byte */
    bool drop_first_space; /* of the text */
} yk_decoder_rules;

/* "decoder", perhaps null, of a tokenizer by characters. */
yk_status yk_tokenizer_read_decoder(const char *path, const json_t *step,
                                    yk_decoder_rules *rules_out);

#endif
