/* runtime/data/space.h - the files of a list as one row of tokens.
 *
 * Positions count through all files in order. What lies in one stretch (data.h) may be read across
 * the ends of files.
 */
#ifndef YK_RUNTIME_DATA_SPACE_H
#define YK_RUNTIME_DATA_SPACE_H

#include "runtime/data/data.h"
#include "runtime/data/token_file.h"

/* Plain data; owned through yk_space_close(). */
typedef struct yk_space {
    yk_token_file *files; /* (n_files) */
    int64_t *starts;      /* (n_files + 1) position of each file's first token; then n_tokens */
    int64_t n_files;
    int64_t n_tokens;
} yk_space;

/* Open the files that paths and patterns name, in the order of the list, those of a pattern sorted.
 *                                                                                        [local]
 * key  the configuration's key, for messages
 */
yk_status yk_space_open(const char *key, const yk_string_list *paths,
                        const yk_token_file_options *options, yk_space *space_out);

/* Give each file its loss mask, in order.                                                [local]
 *
 * YK_EINVAL  there are more or fewer masks than files
 */
yk_status yk_space_set_masks(yk_space *space, const yk_string_list *paths);

/* Copy the n tokens from `position` on.                                                  [local]
 *
 * YK_EFORMAT  an id is not below `vocab`; *fault_out says which
 */
yk_status yk_space_read(const yk_space *space, int64_t position, int64_t n, int64_t vocab,
                        int32_t *ids_out, yk_data_fault *fault_out);

/* Compare ids with `vocab`, file by file, until `*bytes_left` bytes of them have been read; what is
 * read is taken off it. Files whose ids cannot be too large by their width are not read. [local]
 *
 * YK_EFORMAT  an id is not below `vocab`; *fault_out says which
 */
yk_status yk_space_check(const yk_space *space, int64_t vocab, int64_t *bytes_left,
                         yk_data_fault *fault_out);

/* Set targets[i] to -1 where the loss mask of token position + i is 0. */
void yk_space_mask(const yk_space *space, int64_t position, int64_t n, int32_t *targets);

/* The first position >= `position` where a document begins by what files say: the beginning of a
 * file, an entry of a Megatron index. n_tokens: none. */
int64_t yk_space_next_document(const yk_space *space, int64_t position);

/* The end of the stretch that begins with file `first`: the number of the file after its last. */
int64_t yk_space_stretch_end(const yk_space *space, int64_t first);

/* Release what the space owns and clear it. */
void yk_space_close(yk_space *space);

#endif
