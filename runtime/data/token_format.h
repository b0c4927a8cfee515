/* runtime/data/token_format.h - the readers behind yk_token_file_open(), one a format.
 *
 * Each gets a file whose path and map are set and whose content is not empty, and fills in ids,
 * width, n_tokens and what else the format has.
 */
#ifndef YK_RUNTIME_DATA_TOKEN_FORMAT_H
#define YK_RUNTIME_DATA_TOKEN_FORMAT_H

#include "runtime/data/token_file.h"

#define YK_LLMC_HEADER_BYTES 1024
#define YK_LLMC_MAGIC_U16    20240520 /* version 1 */
#define YK_LLMC_MAGIC_U32    20240801 /* version 7 */
#define YK_LLMC_VERSION_U16  1
#define YK_LLMC_VERSION_U32  7

/* The magic number that the mapped content begins with; 0 when it is shorter. */
int32_t yk_token_format_magic(const yk_file_map *map);

/* True when the content begins as a Megatron index does. */
bool yk_token_format_is_megatron_index(const yk_file_map *map);

yk_status yk_token_file_open_llmc(yk_token_file *file);
yk_status yk_token_file_open_raw(yk_token_file *file, yk_token_dtype dtype);
yk_status yk_token_file_open_text(yk_token_file *file, const yk_token_file_options *options);

/* `index_path` is the .idx that describes the file's ids. */
yk_status yk_token_file_open_megatron(yk_token_file *file, const char *index_path);

#endif
