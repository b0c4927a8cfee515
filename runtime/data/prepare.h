/* runtime/data/prepare.h - text files into a directory of token shards.
 *
 * The directory appears whole or not at all: it is made under another name and renamed at the end.
 */
#ifndef YK_RUNTIME_DATA_PREPARE_H
#define YK_RUNTIME_DATA_PREPARE_H

#include <stdint.h>

#include "runtime/base/config.h"
#include "runtime/base/status.h"

/* Tokens of a shard where nobody says: 200 MB of 16-bit ids, as llm.c's scripts make them. */
#define YK_PREPARE_SHARD_TOKENS 100000000

typedef struct yk_prepare_options {
    yk_string_list inputs; /* text files: paths and globs; borrowed */
    const char *out;       /* the directory to make; it may be there if it is empty */
    const char *tokenizer; /* a tokenizer.json; "" : bytes */
    double val_fraction;   /* of the tokens, from the end: val_000000.bin and on; 0: none */
    int64_t shard_tokens;
    int64_t doc_token; /* put after each input file; -1: none */
} yk_prepare_options;

typedef struct yk_prepare_result {
    int64_t vocab; /* of the tokenizer */
    int64_t train_tokens, val_tokens;
    int64_t train_shards, val_shards;
} yk_prepare_result;

/* Tokenize the inputs in order and write them as train_000000.bin and on. What a tokenizer makes of
 * all inputs is in memory, 4 bytes an id; bytes are read from the files as they are written. [local]
 *
 * YK_EINVAL   no such input; the directory is not empty; a fraction that leaves one part empty; the
 *             disk is full
 * YK_EFORMAT  an input is empty or no text
 */
yk_status yk_prepare(const yk_prepare_options *options, yk_prepare_result *result_out);

#endif
