/* runtime/data/token_file.h - one file of tokens, in any of the formats that are read.
 *
 * Model.    A file is an array of ids of 1, 2 or 4 bytes each. Files are mapped and read as they
 *           are; only text that goes through a tokenizer is turned into ids in memory, at open.
 * Checks.   What a file says of its own size is compared with its size at open. Ids are compared
 *           with the vocabulary whenever they are read.
 * Threads.  An open file may be shared.
 */
#ifndef YK_RUNTIME_DATA_TOKEN_FILE_H
#define YK_RUNTIME_DATA_TOKEN_FILE_H

#include <stdint.h>

#include "runtime/base/config.h"
#include "runtime/base/status.h"
#include "runtime/storage/file.h"
#include "runtime/text/tokenizer.h"

/* How to read a file. */
typedef struct yk_token_file_options {
    yk_data_format format;
    yk_token_dtype dtype;    /* of raw files */
    yk_tokenizer *tokenizer; /* of text; borrowed for the call. NULL: bytes */
    int64_t vocab;           /* ids are 0 .. vocab-1 */
} yk_token_file_options;

/* Plain data; owned through yk_token_file_close(). */
typedef struct yk_token_file {
    char *path;            /* of the ids */
    yk_data_format format; /* never YK_DATA_AUTO */
    const void *ids;       /* (n_tokens) of `width` bytes, unsigned, little-endian */
    int width;             /* 1, 2 or 4 */
    int64_t n_tokens;      /* > 0 */
    int64_t *documents; /* (n_documents) first token of each, ascending; megatron only, else NULL */
    int64_t n_documents;
    const uint8_t *loss_mask; /* (n_tokens) 0: the token is no target; NULL: all are */
    yk_file_map map, mask_map;
    int32_t *encoded; /* what a tokenizer made, or NULL */
} yk_token_file;

/* Open a file of tokens.                                                                 [local]
 *
 * path  for megatron the .bin, the .idx, or their common beginning
 *
 * YK_EINVAL   no such file; two-byte ids while the vocabulary has more than 65536
 * YK_EFORMAT  an empty file; a wrong magic number or version; a size that is not what the header
 *             says; an index that does not fit its ids; text whose tokens are outside of the
 *             vocabulary
 */
yk_status yk_token_file_open(const char *path, const yk_token_file_options *options,
                             yk_token_file *file_out);

/* Read the file's loss mask: one byte a token.                                           [local]
 *
 * YK_EFORMAT  it has more or fewer bytes than the file has tokens
 */
yk_status yk_token_file_set_mask(yk_token_file *file, const char *path);

/* Copy ids begin .. begin+n-1 into `ids_out` (n).                                        [local]
 *
 * returns  the first position whose id is not below `vocab` (<= 2^31), or -1: all are
 */
int64_t yk_token_file_read(const yk_token_file *file, int64_t begin, int64_t n, int64_t vocab,
                           int32_t *ids_out);

/* The id at a position, as it is in the file. */
int64_t yk_token_file_id(const yk_token_file *file, int64_t position);

/* Release what the file owns and clear it. */
void yk_token_file_close(yk_token_file *file);

#endif
