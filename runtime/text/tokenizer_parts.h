/* runtime/text/tokenizer_parts.h - what a tokenizer is made of, for tokenizer.c, which uses the
 * parts, and tokenizer_json.c, which builds them from a file.
 */
#ifndef YK_RUNTIME_TEXT_TOKENIZER_PARTS_H
#define YK_RUNTIME_TEXT_TOKENIZER_PARTS_H

#include "runtime/text/added.h"
#include "runtime/text/bpe.h"
#include "runtime/text/pieces.h"
#include "runtime/text/rewrite.h"
#include "runtime/text/split.h"
#include "runtime/text/tokenizer.h"

struct yk_tokenizer {
    bool is_bytes; /* nothing below is used */
    /* In the order in which a text meets them. */
    yk_added raw;          /* found in the text as it is */
    yk_rewrites normalize; /* applied to what lies between them */
    yk_added normalized;   /* found in the result */
    yk_rewrites prepare;   /* applied to what lies between those */
    yk_splitter *splitter; /* cuts the result into words */
    yk_bpe *bpe;           /* turns a word into tokens */
    yk_pieces vocab;       /* searched by bpe: id <-> bytes as merges see them */
    yk_pieces texts;       /* id -> bytes of the text it stands for */
    bool *special;         /* (texts.n) */
    bool drop_first_space; /* of a decoded text: it was put there by `prepare` or `normalize` */
    int32_t *prefix;       /* (n_prefix) tokens that the file wants before a text */
    int64_t n_prefix;
};

/* Build everything but is_bytes from a tokenizer.json. What was built before a failure is released
 * by yk_tokenizer_close().                                                               [local] */
yk_status yk_tokenizer_read_json(yk_tokenizer *tokenizer, const char *path);

#endif
