/* runtime/data/token_file.c - find a file's format, open it, read ids; see token_file.h. */
#include "runtime/data/token_file.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "runtime/data/token_format.h"

#define PROBE_BYTES 4096 /* how far auto looks for a byte that text does not have */

static yk_status out_of_memory(const char *path)
{
    return yk_fail(YK_ENOMEM, path, "no memory to open it");
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* `path` without the last `n` bytes, and `suffix`, in memory that the caller frees; NULL: none. */
static char *swap_suffix(const char *path, size_t n, const char *suffix)
{
    size_t keep = strlen(path) - n;
    char *out = malloc(keep + strlen(suffix) + 1);
    if (!out) return NULL;
    memcpy(out, path, keep);
    strcpy(out + keep, suffix);
    return out;
}

/* True when Megatron's two files are beside each other under this beginning. */
static bool is_megatron_prefix(const char *path)
{
    char *bin = swap_suffix(path, 0, ".bin"), *idx = swap_suffix(path, 0, ".idx");
    bool both = bin && idx && yk_file_exists(bin) && yk_file_exists(idx);
    free(bin);
    free(idx);
    return both;
}

/* The .idx beside a .bin, if it is there: owned by the caller, else NULL. */
static char *index_beside(const char *path)
{
    if (!ends_with(path, ".bin")) return NULL;
    char *idx = swap_suffix(path, 4, ".idx");
    if (idx && yk_file_exists(idx)) return idx;
    free(idx);
    return NULL;
}

/* ---- format ------------------------------------------------------------------------------- */

static yk_status unknown_binary(const yk_token_file *file)
{
    return yk_fail(
        YK_EFORMAT, file->path,
        "begins with magic number %d, which is neither llm.c's (%d, %d) nor Megatron's; "
        "for token ids without a header set data.format to raw (yoke data: --format raw)",
        yk_token_format_magic(&file->map), YK_LLMC_MAGIC_U16, YK_LLMC_MAGIC_U32);
}

/* What format a file is in, by its first bytes, then by its name. */
static yk_status detect(const yk_token_file *file, yk_data_format *format_out)
{
    int32_t magic = yk_token_format_magic(&file->map);
    if (magic == YK_LLMC_MAGIC_U16 || magic == YK_LLMC_MAGIC_U32) {
        *format_out = YK_DATA_LLMC;
        return YK_OK;
    }
    char *index = index_beside(file->path);
    bool is_megatron = index || yk_token_format_is_megatron_index(&file->map);
    free(index);
    if (is_megatron) {
        *format_out = YK_DATA_MEGATRON;
        return YK_OK;
    }
    if (ends_with(file->path, ".bin")) return unknown_binary(file);
    if (memchr(file->map.data, 0, (size_t)yk_min(file->map.bytes, PROBE_BYTES))) {
        return yk_fail(YK_EFORMAT, file->path,
                       "is neither text in UTF-8 nor a known format of tokens; say what it is by "
                       "data.format (yoke data: --format)");
    }
    *format_out = YK_DATA_TEXT;
    return YK_OK;
}

/* ---- opening ------------------------------------------------------------------------------ */

/* Set the path and map the content. */
static yk_status map_path(yk_token_file *file, char *path)
{
    if (!path) return out_of_memory("data");
    free(file->path);
    file->path = path;
    yk_file_map_close(&file->map);
    YK_TRY(yk_file_map_open(path, &file->map));
    if (file->map.bytes == 0)
        return yk_fail(YK_EFORMAT, path, "it is empty; give a file that has tokens or text");
    return YK_OK;
}

/* Megatron has two files: whichever was named, map the ids and read the index. */
static yk_status open_megatron(yk_token_file *file)
{
    const char *path = file->path;
    size_t suffix = ends_with(path, ".bin") || ends_with(path, ".idx") ? 4 : 0;
    char *index = swap_suffix(path, suffix, ".idx");
    if (!index) return out_of_memory(path);
    yk_status status = YK_OK;
    if (!ends_with(path, ".bin")) status = map_path(file, swap_suffix(path, suffix, ".bin"));
    if (status == YK_OK) status = yk_token_file_open_megatron(file, index);
    free(index);
    return status;
}

static yk_status check_vocab(const yk_token_file *file, int64_t vocab)
{
    if (file->width != 2 || vocab <= 65536) return YK_OK;
    return yk_fail(
        YK_EINVAL, file->path,
        "its ids have 16 bits and cannot name a vocabulary of %lld; use data made by the "
        "model's own tokenizer, in 32 bits",
        (long long)vocab);
}

static yk_status open_content(yk_token_file *file, const yk_token_file_options *o)
{
    file->format = o->format;
    if (file->format == YK_DATA_AUTO) YK_TRY(detect(file, &file->format));
    switch (file->format) {
    case YK_DATA_LLMC:
        YK_TRY(yk_token_file_open_llmc(file));
        break;
    case YK_DATA_RAW:
        YK_TRY(yk_token_file_open_raw(file, o->dtype));
        break;
    case YK_DATA_MEGATRON:
        YK_TRY(open_megatron(file));
        break;
    case YK_DATA_AUTO:
    case YK_DATA_TEXT:
        YK_TRY(yk_token_file_open_text(file, o));
        break;
    }
    return check_vocab(file, o->vocab);
}

static yk_status open_file(const char *path, const yk_token_file_options *o, yk_token_file *file)
{
    bool may_be_prefix = o->format == YK_DATA_AUTO || o->format == YK_DATA_MEGATRON;
    if (may_be_prefix && !yk_file_exists(path) && is_megatron_prefix(path)) {
        file->format = YK_DATA_MEGATRON;
        YK_TRY(map_path(file, swap_suffix(path, 0, ".bin")));
        YK_TRY(open_megatron(file));
        return check_vocab(file, o->vocab);
    }
    YK_TRY(map_path(file, strdup(path)));
    return open_content(file, o);
}

yk_status yk_token_file_open(const char *path, const yk_token_file_options *options,
                             yk_token_file *file_out)
{
    yk_token_file file = {0};
    yk_status status = open_file(path, options, &file);
    if (status != YK_OK) {
        yk_token_file_close(&file);
        return status;
    }
    *file_out = file;
    return YK_OK;
}

yk_status yk_token_file_set_mask(yk_token_file *file, const char *path)
{
    yk_file_map map;
    YK_TRY(yk_file_map_open(path, &map));
    if (map.bytes != file->n_tokens) {
        yk_status status = yk_fail(YK_EFORMAT, path,
                                   "has %lld bytes, but %s has %lld tokens; one byte a token is "
                                   "needed",
                                   (long long)map.bytes, file->path, (long long)file->n_tokens);
        yk_file_map_close(&map);
        return status;
    }
    yk_file_map_close(&file->mask_map);
    file->mask_map = map;
    file->loss_mask = map.data;
    return YK_OK;
}

void yk_token_file_close(yk_token_file *file)
{
    free(file->path);
    free(file->documents);
    free(file->encoded);
    yk_file_map_close(&file->map);
    yk_file_map_close(&file->mask_map);
    *file = (yk_token_file){0};
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Each copies n ids from `from` on and returns the largest. */

static uint32_t copy_u8(const uint8_t *from, int64_t n, int32_t *to)
{
    uint32_t top = 0;
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[i];
        top = from[i] > top ? from[i] : top;
    }
    return top;
}

static uint32_t copy_u16(const uint8_t *from, int64_t n, int32_t *to)
{
    uint32_t top = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t id;
        memcpy(&id, from + 2 * i, 2); /* a header or an index may leave ids at odd addresses */
        to[i] = id;
        top = id > top ? id : top;
    }
    return top;
}

static uint32_t copy_u32(const uint8_t *from, int64_t n, int32_t *to)
{
    uint32_t top = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t id;
        memcpy(&id, from + 4 * i, 4);
        to[i] = (int32_t)id;
        top = id > top ? id : top;
    }
    return top;
}

int64_t yk_token_file_id(const yk_token_file *file, int64_t position)
{
    const uint8_t *at = (const uint8_t *)file->ids + position * file->width;
    uint32_t id = 0;
    memcpy(&id, at, (size_t)file->width); /* little-endian */
    return id;
}

int64_t yk_token_file_read(const yk_token_file *file, int64_t begin, int64_t n, int64_t vocab,
                           int32_t *ids_out)
{
    const uint8_t *from = (const uint8_t *)file->ids + begin * file->width;
    uint32_t top = file->width == 1   ? copy_u8(from, n, ids_out)
                   : file->width == 2 ? copy_u16(from, n, ids_out)
                                      : copy_u32(from, n, ids_out);
    if (n == 0 || top < vocab) return -1;
    int64_t position = begin;
    while (yk_token_file_id(file, position) < vocab) position++;
    return position;
}
