/* runtime/text/tokenizer.h - text to token ids and back.
 *
 * Model.    Two kinds: bytes, where ids 0..255 are the bytes of the text; and what a Hugging Face
 *           `tokenizer.json` describes, as far as it is byte-pair encoding: byte-level as in GPT-2,
 *           Llama 3 and Qwen2, or by characters with byte fallback as in Llama 2. Anything in the
 *           file that would change ids and is not known is an error, never ignored.
 * Text.     Need not be UTF-8 where the vocabulary has every byte. Decoding gives valid UTF-8.
 * Threads.  One at a time, since encoding keeps a cache. Decoders may share a tokenizer.
 */
#ifndef YK_RUNTIME_TEXT_TOKENIZER_H
#define YK_RUNTIME_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"
#include "runtime/text/text.h"

/* Token ids that grow. All zero is empty and owns nothing. */
typedef struct yk_tokens {
    int32_t *ids; /* (n) */
    int64_t n, capacity;
} yk_tokens;

/* Make room for `n` more ids.                                                            [local] */
yk_status yk_tokens_reserve(yk_tokens *tokens, int64_t n);

/* Append one id.                                                                         [local] */
yk_status yk_tokens_add(yk_tokens *tokens, int32_t id);

/* Release the ids and make it empty. */
void yk_tokens_fini(yk_tokens *tokens);

typedef struct yk_tokenizer yk_tokenizer;

/* Open a tokenizer; the caller owns it.                                                  [local]
 *
 * path  "" for bytes; else a tokenizer.json, or a directory that holds one
 *
 * YK_EINVAL        no such file
 * YK_EFORMAT       not JSON, or it contradicts itself
 * YK_EUNSUPPORTED  a kind of tokenizer, or a step in it, that is not offered; the message names it
 */
yk_status yk_tokenizer_open(const char *path, yk_tokenizer **tokenizer_out);

/* Release the tokenizer. NULL does nothing. */
void yk_tokenizer_close(yk_tokenizer *tokenizer);

/* True when ids are bytes. */
bool yk_tokenizer_is_bytes(const yk_tokenizer *tokenizer);

/* The largest id and 1. A model's vocabulary must be no smaller; it may be padded. */
int64_t yk_tokenizer_vocab(const yk_tokenizer *tokenizer);

/* Append the tokens of a text. Names of special tokens in the text become those tokens. Nothing is
 * put before or after it.                                                                [local]
 *
 * YK_EFORMAT  the vocabulary lacks a byte or character of the text
 */
yk_status yk_tokenizer_encode(yk_tokenizer *tokenizer, const char *text, int64_t bytes,
                              yk_tokens *tokens);

/* The tokens that the file wants before a text (Llama's beginning of text), borrowed until the
 * tokenizer is closed; their number. */
int64_t yk_tokenizer_prefix(const yk_tokenizer *tokenizer, const int32_t **ids_out);

/* The id whose text is `name` ("<|endoftext|>"), or -1. */
int32_t yk_tokenizer_find(const yk_tokenizer *tokenizer, const char *name);

/* True for tokens that are marks, not text: ends of texts, roles, padding. */
bool yk_tokenizer_is_special(const yk_tokenizer *tokenizer, int32_t id);

/* Turns tokens into text one at a time. A character may be spread over several tokens: what is
 * incomplete is held back. Plain data, to be set by yk_decoder_init(). */
typedef struct yk_decoder {
    const yk_tokenizer *tokenizer; /* borrowed */
    bool show_special;
    bool begun; /* some text came out already */
    int n_held;
    char held[4]; /* (n_held) the beginning of a character */
} yk_decoder;

/* Begin a text. Special tokens give their names when `show_special`, else nothing.       [local] */
void yk_decoder_init(yk_decoder *decoder, const yk_tokenizer *tokenizer, bool show_special);

/* Append what `id` adds to the text; an id without text, such as padding of the vocabulary, adds
 * nothing. Bytes that are no UTF-8 become U+FFFD.                                        [local] */
yk_status yk_decoder_push(yk_decoder *decoder, int32_t id, yk_text *text);

/* End the text: a character that stayed incomplete becomes U+FFFD.                       [local] */
yk_status yk_decoder_finish(yk_decoder *decoder, yk_text *text);

#endif
