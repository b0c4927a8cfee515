/* runtime/text/bpe.h - byte-pair encoding of one word.
 *
 * Model.    A word starts as symbols, one a byte or one a character; then, again and again, the pair
 *           of neighbours whose merge has the lowest rank becomes one symbol, the leftmost first
 *           (Sennrich et al. 2016, algorithm 1).
 * Cost.     Pairs wait in a heap, so a word of n symbols costs n log n, also when it is a whole
 *           file. Words seen before come from a cache.
 * Threads.  One at a time: the cache and the scratch belong to the call.
 */
#ifndef YK_RUNTIME_TEXT_BPE_H
#define YK_RUNTIME_TEXT_BPE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/text/pieces.h"
#include "runtime/text/tokenizer.h"

typedef struct yk_bpe yk_bpe;

/* How a word becomes its first symbols. */
typedef struct yk_bpe_rules {
    bool by_byte;         /* one symbol a byte; else one a character */
    bool whole_first;     /* a word that is in the vocabulary is one token, whatever the merges */
    bool byte_fallback;   /* a character that is not in the vocabulary becomes its bytes */
    int32_t byte_id[256]; /* the id of each byte, or -1: of by_byte and byte_fallback */
    int32_t unknown;      /* the id of a character that has none, or -1: an error */
    bool fuse_unknown;    /* several unknown in a row are one */
} yk_bpe_rules;

/* Create an encoder; the caller owns it.                                                 [local]
 *
 * pieces  the vocabulary; borrowed until the encoder is destroyed
 */
yk_status yk_bpe_create(const yk_pieces *pieces, const yk_bpe_rules *rules, yk_bpe **bpe_out);

void yk_bpe_destroy(yk_bpe *bpe);

/* Add the merge of symbols `left` and `right`, of ids 0 or more, into `merged`. The first added has
 * the lowest rank; one that is added again takes the later rank.                         [local] */
yk_status yk_bpe_add_merge(yk_bpe *bpe, int32_t left, int32_t right, int32_t merged);

/* Append the tokens of one word.                                                         [local]
 *
 * YK_EFORMAT  a byte or character has no id
 */
yk_status yk_bpe_encode(yk_bpe *bpe, const char *word, int64_t n, yk_tokens *tokens);

#endif
