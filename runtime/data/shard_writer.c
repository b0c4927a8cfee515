/* runtime/data/shard_writer.c - see shard_writer.h.
 *
 * The header states the number of tokens, so it is written last, over its own zeros.
 */
#include "runtime/data/shard_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "runtime/data/token_format.h"
#include "runtime/storage/file.h"

#define CHUNK 65536 /* ids that are converted at a time */

struct yk_shard_writer {
    char *dir, *prefix;
    int width; /* bytes of an id: 2 or 4 */
    int64_t shard_tokens;
    yk_file *file; /* the shard under way, or NULL */
    int64_t n;     /* tokens in it */
    int64_t n_shards;
    uint8_t bytes[CHUNK * 4]; /* scratch */
};

static yk_status out_of_memory(void)
{
    return yk_fail(YK_ENOMEM, "data", "no memory to write shards");
}

yk_status yk_shard_writer_open(const char *dir, const char *prefix, int64_t vocab,
                               int64_t shard_tokens, yk_shard_writer **writer_out)
{
    YK_CHECK(shard_tokens > 0 && shard_tokens <= YK_SHARD_TOKENS_MAX);
    yk_shard_writer *w = calloc(1, sizeof *w);
    if (!w) return out_of_memory();
    w->dir = strdup(dir);
    w->prefix = strdup(prefix);
    w->width = vocab <= 65536 ? 2 : 4;
    w->shard_tokens = shard_tokens;
    if (!w->dir || !w->prefix) {
        yk_shard_writer_abort(w);
        return out_of_memory();
    }
    *writer_out = w;
    return YK_OK;
}

static yk_status begin_shard(yk_shard_writer *w)
{
    static const uint8_t header[YK_LLMC_HEADER_BYTES];
    char name[64];
    snprintf(name, sizeof name, "%s_%06lld.bin", w->prefix, (long long)w->n_shards);
    char *path = yk_path_join(w->dir, name);
    if (!path) return out_of_memory();
    yk_status status = yk_file_open(path, YK_FILE_WRITE, &w->file);
    free(path);
    YK_TRY(status);
    w->n = 0;
    w->n_shards++;
    return yk_file_write(w->file, header, sizeof header);
}

static yk_status end_shard(yk_shard_writer *w)
{
    int32_t head[3] = {w->width == 2 ? YK_LLMC_MAGIC_U16 : YK_LLMC_MAGIC_U32,
                       w->width == 2 ? YK_LLMC_VERSION_U16 : YK_LLMC_VERSION_U32, (int32_t)w->n};
    YK_TRY(yk_file_write_at(w->file, head, sizeof head, 0));
    YK_TRY(yk_file_sync(w->file));
    yk_file *file = w->file;
    w->file = NULL;
    return yk_file_close(file);
}

static yk_status write_ids(yk_shard_writer *w, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) memcpy(w->bytes + i * w->width, &ids[i], (size_t)w->width);
    YK_TRY(yk_file_write(w->file, w->bytes, n * w->width));
    w->n += n;
    return YK_OK;
}

yk_status yk_shard_writer_add(yk_shard_writer *writer, const int32_t *ids, int64_t n)
{
    while (n > 0) {
        if (writer->file && writer->n == writer->shard_tokens) YK_TRY(end_shard(writer));
        if (!writer->file) YK_TRY(begin_shard(writer));
        int64_t here = yk_min(yk_min(n, CHUNK), writer->shard_tokens - writer->n);
        YK_TRY(write_ids(writer, ids, here));
        ids += here;
        n -= here;
    }
    return YK_OK;
}

yk_status yk_shard_writer_close(yk_shard_writer *writer, int64_t *n_shards_out)
{
    yk_status status = writer->file ? end_shard(writer) : YK_OK;
    if (status == YK_OK && n_shards_out) *n_shards_out = writer->n_shards;
    yk_shard_writer_abort(writer);
    return status;
}

void yk_shard_writer_abort(yk_shard_writer *writer)
{
    if (!writer) return;
    yk_file_abandon(writer->file);
    free(writer->dir);
    free(writer->prefix);
    free(writer);
}
