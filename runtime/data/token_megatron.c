/* runtime/data/token_megatron.c - Megatron-LM's .bin with its .idx.
 *
 * The index: "MMIDIDX\0\0", u64 version 1, u8 type of the ids, u64 sequences, u64 entries of the
 * document index, then int32 sizes and int64 byte offsets of the sequences, and the document index:
 * int64 numbers of sequences, from 0 up to all of them. Sequences lie one after the other in the
 * .bin, so that it is read as one array of ids; the index is held against that.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"
#include "runtime/data/token_format.h"

#define MAGIC        "MMIDIDX\0"
#define MAGIC_BYTES  9
#define HEADER_BYTES (MAGIC_BYTES + 8 + 1 + 8 + 8)
#define TYPE_INT32   4
#define TYPE_UINT16  8

bool yk_token_format_is_megatron_index(const yk_file_map *map)
{
    return map->bytes >= MAGIC_BYTES && memcmp(map->data, MAGIC, MAGIC_BYTES) == 0;
}

/* An index while it is read. */
typedef struct index_view {
    const char *path;
    const uint8_t *sizes;     /* (n_sequences) int32 */
    const uint8_t *pointers;  /* (n_sequences) int64 */
    const uint8_t *documents; /* (n_entries) int64 */
    int64_t n_sequences, n_entries;
} index_view;

static int64_t load_i64(const uint8_t *at, int64_t i)
{
    int64_t v;
    memcpy(&v, at + 8 * i, 8);
    return v;
}

static int32_t load_i32(const uint8_t *at, int64_t i)
{
    int32_t v;
    memcpy(&v, at + 4 * i, 4);
    return v;
}

static yk_status read_type(yk_token_file *file, const char *path, uint8_t type)
{
    if (type != TYPE_INT32 && type != TYPE_UINT16) {
        return yk_fail(YK_EFORMAT, path, "has ids of type %u; %d (int32) and %d (uint16) are read",
                       type, TYPE_INT32, TYPE_UINT16);
    }
    file->width = type == TYPE_UINT16 ? 2 : 4;
    return YK_OK;
}

/* Find the three arrays of a mapped index. */
static yk_status view_index(yk_token_file *file, const char *path, const yk_file_map *map,
                            index_view *v)
{
    if (!yk_token_format_is_megatron_index(map)) {
        return yk_fail(YK_EFORMAT, path, "does not begin with Megatron's magic number MMIDIDX");
    }
    if (map->bytes < HEADER_BYTES) return yk_fail(YK_EFORMAT, path, "is truncated");
    const uint8_t *at = map->data + MAGIC_BYTES;
    if (load_i64(at, 0) != 1) {
        return yk_fail(YK_EFORMAT, path, "has version %lld; only 1 is known",
                       (long long)load_i64(at, 0));
    }
    YK_TRY(read_type(file, path, at[8]));
    v->path = path;
    v->n_sequences = load_i64(at + 9, 0);
    v->n_entries = load_i64(at + 17, 0);
    int64_t a, b, bytes = HEADER_BYTES;
    bool fits = v->n_sequences > 0 && v->n_entries >= 0 && yk_mul(v->n_sequences, 12, &a) &&
                yk_mul(v->n_entries, 8, &b) && yk_add(bytes, a, &bytes) && yk_add(bytes, b, &bytes);
    if (!fits || bytes != map->bytes) {
        return yk_fail(YK_EFORMAT, path,
                       "has %lld bytes, which is not what its %lld sequences and %lld documents "
                       "take; it is truncated or damaged",
                       (long long)map->bytes, (long long)v->n_sequences, (long long)v->n_entries);
    }
    v->sizes = map->data + HEADER_BYTES;
    v->pointers = v->sizes + 4 * v->n_sequences;
    v->documents = v->pointers + 8 * v->n_sequences;
    return YK_OK;
}

/* The sequences must follow each other without a gap and fill the file. */
static yk_status check_sequences(const yk_token_file *file, const index_view *v)
{
    int64_t at = 0;
    for (int64_t i = 0; i < v->n_sequences; i++) {
        int32_t size = load_i32(v->sizes, i);
        if (size < 0 || load_i64(v->pointers, i) != at) {
            return yk_fail(YK_EFORMAT, v->path,
                           "sequence %lld: size %d at byte %lld, where byte %lld was due",
                           (long long)i, size, (long long)load_i64(v->pointers, i), (long long)at);
        }
        at += (int64_t)size * file->width;
    }
    if (at != file->map.bytes) {
        return yk_fail(YK_EFORMAT, file->path, "has %lld bytes, but %s describes %lld; it is %s",
                       (long long)file->map.bytes, v->path, (long long)at,
                       at > file->map.bytes ? "truncated" : "damaged");
    }
    return YK_OK;
}

/* Note where documents begin; the last entry is the end of them all. */
static yk_status read_documents(yk_token_file *file, const index_view *v)
{
    file->documents = malloc((size_t)(v->n_entries + 1) * sizeof *file->documents);
    if (!file->documents) return yk_fail(YK_ENOMEM, v->path, "no memory for its documents");
    int64_t last = -1;
    for (int64_t i = 0; i < v->n_entries; i++) {
        int64_t sequence = load_i64(v->documents, i);
        if (sequence < 0 || sequence > v->n_sequences || sequence < last) {
            return yk_fail(YK_EFORMAT, v->path, "document %lld begins at sequence %lld of %lld",
                           (long long)i, (long long)sequence, (long long)v->n_sequences);
        }
        if (sequence > last && sequence < v->n_sequences) {
            file->documents[file->n_documents++] = load_i64(v->pointers, sequence) / file->width;
        }
        last = sequence;
    }
    return YK_OK;
}

yk_status yk_token_file_open_megatron(yk_token_file *file, const char *index_path)
{
    yk_file_map map;
    index_view v = {0};
    YK_TRY(yk_file_map_open(index_path, &map));
    yk_status status = view_index(file, index_path, &map, &v);
    if (status == YK_OK) status = check_sequences(file, &v);
    if (status == YK_OK) status = read_documents(file, &v);
    yk_file_map_close(&map);
    YK_TRY(status);
    file->ids = file->map.data;
    file->n_tokens = file->map.bytes / file->width;
    return YK_OK;
}
