/* runtime/data/token_llmc.c - shards with llm.c's header, and ids without one.
 *
 * llm.c: 256 int32, of which [0] is a magic number, [1] a version, [2] the number of tokens; then
 * the ids, uint16 or uint32 by the magic number. nanoGPT: the ids alone.
 */
#include <string.h>

#include "runtime/data/token_format.h"

#define MAGIC_EVALUATION 20240522 /* llm.c's multiple-choice sets: not a stream of tokens */

int32_t yk_token_format_magic(const yk_file_map *map)
{
    int32_t magic = 0;
    if (map->bytes >= 4) memcpy(&magic, map->data, 4);
    return magic;
}

static yk_status check_magic(const yk_token_file *file, const int32_t head[3])
{
    if (head[0] == MAGIC_EVALUATION) {
        return yk_fail(YK_EFORMAT, file->path,
                       "is an evaluation set of llm.c (magic number %d), not tokens to train on",
                       MAGIC_EVALUATION);
    }
    if (head[0] != YK_LLMC_MAGIC_U16 && head[0] != YK_LLMC_MAGIC_U32) {
        return yk_fail(YK_EFORMAT, file->path, "begins with magic number %d; llm.c's are %d and %d",
                       head[0], YK_LLMC_MAGIC_U16, YK_LLMC_MAGIC_U32);
    }
    int32_t version = head[0] == YK_LLMC_MAGIC_U16 ? YK_LLMC_VERSION_U16 : YK_LLMC_VERSION_U32;
    if (head[1] != version) {
        return yk_fail(YK_EFORMAT, file->path,
                       "has version %d of magic number %d; only %d is known", head[1], head[0],
                       version);
    }
    return YK_OK;
}

yk_status yk_token_file_open_llmc(yk_token_file *file)
{
    int32_t head[3] = {0};
    if (file->map.bytes < YK_LLMC_HEADER_BYTES) {
        return yk_fail(YK_EFORMAT, file->path, "has %lld bytes, fewer than llm.c's header of %d",
                       (long long)file->map.bytes, YK_LLMC_HEADER_BYTES);
    }
    memcpy(head, file->map.data, sizeof head);
    YK_TRY(check_magic(file, head));
    file->width = head[0] == YK_LLMC_MAGIC_U16 ? 2 : 4;
    file->n_tokens = head[2];
    int64_t stated = YK_LLMC_HEADER_BYTES + file->n_tokens * file->width;
    if (head[2] <= 0) {
        return yk_fail(YK_EFORMAT, file->path, "its header states %d tokens", head[2]);
    }
    if (stated != file->map.bytes) {
        return yk_fail(YK_EFORMAT, file->path,
                       "its header states %d tokens, that is %lld bytes, but it has %lld; it is %s",
                       head[2], (long long)stated, (long long)file->map.bytes,
                       stated > file->map.bytes ? "truncated" : "damaged");
    }
    file->ids = file->map.data + YK_LLMC_HEADER_BYTES;
    return YK_OK;
}

yk_status yk_token_file_open_raw(yk_token_file *file, yk_token_dtype dtype)
{
    file->width = dtype == YK_TOKEN_U16 ? 2 : 4;
    if (file->map.bytes % file->width != 0) {
        return yk_fail(YK_EFORMAT, file->path,
                       "has %lld bytes, which is no multiple of the %d of an id; check data.dtype",
                       (long long)file->map.bytes, file->width);
    }
    file->n_tokens = file->map.bytes / file->width;
    file->ids = file->map.data;
    return YK_OK;
}
