/* tests/runtime/data/shards.h - files of tokens in every format, for tests. */
#ifndef YK_TESTS_RUNTIME_DATA_SHARDS_H
#define YK_TESTS_RUNTIME_DATA_SHARDS_H

#include <stdint.h>

#include "runtime/base/config.h"
#include "tests/runtime/scratch.h"

/* Each writes ids (n) as dir/name and gives the path, which is returned. */

const char *shard_write_raw(char path[SCRATCH_PATH], const char *dir, const char *name,
                            const int64_t *ids, int64_t n, int width);

/* width 2: version 1; 4: version 7. */
const char *shard_write_llmc(char path[SCRATCH_PATH], const char *dir, const char *name,
                             const int64_t *ids, int64_t n, int width);

/* name.bin and name.idx; documents of the sizes given (n_sizes), one sequence each. The path is that
 * of the .bin. */
const char *shard_write_megatron(char path[SCRATCH_PATH], const char *dir, const char *name,
                                 const int64_t *ids, int width, const int32_t *sizes,
                                 int64_t n_sizes);

/* A configuration with defaults and `data.train` a path; the caller calls yk_config_fini(). */
void shard_config(yk_config *config, const char *train, int64_t seq_len);

/* Set a key; anything else aborts. */
void shard_set(yk_config *config, const char *key, const char *value);

#endif
