/* runtime/data/shard_writer.h - token ids into llm.c shards.
 *
 * Model.    Ids are added in any amounts; a shard that is full is ended and the next begun. Files are
 *           named <prefix>_000000.bin and on. Ids take 16 bits where the vocabulary allows, else 32.
 * Failure.  What was written so far stays; whoever owns the directory removes it.
 */
#ifndef YK_RUNTIME_DATA_SHARD_WRITER_H
#define YK_RUNTIME_DATA_SHARD_WRITER_H

#include <stdint.h>

#include "runtime/base/status.h"

/* The most tokens that a shard's header can state. */
#define YK_SHARD_TOKENS_MAX INT32_MAX

typedef struct yk_shard_writer yk_shard_writer;

/* Begin; the caller owns the writer. No file is made before the first id.                [local]
 *
 * shard_tokens  1 .. YK_SHARD_TOKENS_MAX
 */
yk_status yk_shard_writer_open(const char *dir, const char *prefix, int64_t vocab,
                               int64_t shard_tokens, yk_shard_writer **writer_out);

/* Append ids (n), each below the vocabulary.                                             [local] */
yk_status yk_shard_writer_add(yk_shard_writer *writer, const int32_t *ids, int64_t n);

/* End the last shard and bring it to the disk; takes the writer.                         [local]
 *
 * n_shards_out  files written; may be NULL
 */
yk_status yk_shard_writer_close(yk_shard_writer *writer, int64_t *n_shards_out);

/* Release the writer and leave its last shard unfinished. NULL does nothing. */
void yk_shard_writer_abort(yk_shard_writer *writer);

#endif
