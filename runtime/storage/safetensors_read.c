/* runtime/storage/safetensors_read.c - open, check and find tensors; see safetensors.h.
 *
 * Rule: a file is not believed. Sizes that it states are formed with checked arithmetic, compared
 * with the file's own size, and the tensors of a file must tile its data exactly.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/storage/file.h"
#include "runtime/storage/json.h"
#include "runtime/storage/lfs.h"
#include "runtime/storage/safetensors_layout.h"

typedef struct st_shard {
    char *path;
    yk_file_map map;
    json_t *header;  /* owns the tensors' names */
    int64_t data_at; /* where the data begins in the file */
} st_shard;

struct yk_safetensors {
    char *path;        /* as it was opened, for messages */
    st_shard **shards; /* (n_shards) */
    int64_t n_shards;
    yk_st_tensor *tensors; /* (n_tensors) by name */
    int64_t n_tensors;
};

static yk_status out_of_memory(const char *path)
{
    return yk_fail(YK_ENOMEM, path, "no memory to open it");
}

/* ---- one file ----------------------------------------------------------------------------- */

/* Find the header in the mapped file and parse it. */
static yk_status read_header(st_shard *s)
{
    YK_TRY(yk_lfs_check(s->path, s->map.data, s->map.bytes));
    if (s->map.bytes < YK_ST_PREFIX_BYTES) {
        return yk_fail(
            YK_EFORMAT, s->path,
            "%lld bytes are too few for a safetensors file; it is truncated, fetch it again",
            (long long)s->map.bytes);
    }
    uint64_t length = 0;
    for (int i = 0; i < YK_ST_PREFIX_BYTES; i++) length |= (uint64_t)s->map.data[i] << 8 * i;
    if (length > YK_ST_HEADER_MAX) {
        return yk_fail(YK_EFORMAT, s->path,
                       "states a header of %llu bytes, the format allows %d; it is damaged or no "
                       "safetensors file",
                       (unsigned long long)length, YK_ST_HEADER_MAX);
    }
    s->data_at = YK_ST_PREFIX_BYTES + (int64_t)length;
    if (s->data_at > s->map.bytes) {
        return yk_fail(
            YK_EFORMAT, s->path,
            "states a header of %llu bytes, but has %lld bytes in all; it is truncated, fetch it "
            "again",
            (unsigned long long)length, (long long)s->map.bytes);
    }
    return yk_json_parse(s->path, (const char *)s->map.data + YK_ST_PREFIX_BYTES, (int64_t)length,
                         &s->header);
}

static yk_status bad_tensor(const st_shard *s, const char *name, const char *why)
{
    return yk_fail(YK_EFORMAT, s->path, "tensor %s: %s", name, why);
}

/* Read dtype and shape of header entry `entry` into `info`. */
static yk_status read_info(const st_shard *s, const char *name, json_t *entry, yk_st_info *info)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    json_t *shape = json_object_get(entry, "shape");
    if (!dtype) return bad_tensor(s, name, "it has no dtype");
    if (!yk_st_dtype_find(dtype, &info->dtype)) {
        return yk_fail(YK_EFORMAT, s->path, "tensor %s: dtype %s is not known", name, dtype);
    }
    if (!json_is_array(shape)) return bad_tensor(s, name, "it has no shape");
    if (json_array_size(shape) > YK_ST_MAX_DIMS) {
        return yk_fail(YK_EFORMAT, s->path, "tensor %s: %zu dimensions, at most %d are read", name,
                       json_array_size(shape), YK_ST_MAX_DIMS);
    }
    info->name = name;
    info->n_dims = (int)json_array_size(shape);
    for (int d = 0; d < info->n_dims; d++) {
        json_t *side = json_array_get(shape, (size_t)d);
        if (!json_is_integer(side)) return bad_tensor(s, name, "its shape is not made of integers");
        info->shape[d] = json_integer_value(side);
    }
    return YK_OK;
}

/* Read one header entry; the data must lie in the file and have the size of its shape. */
static yk_status read_tensor(const st_shard *s, const char *name, json_t *entry, yk_st_tensor *t)
{
    json_t *offsets = json_object_get(entry, "data_offsets");
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    YK_TRY(read_info(s, name, entry, &t->info));
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end)) {
        return bad_tensor(s, name, "data_offsets are not two integers");
    }
    int64_t b = json_integer_value(begin), e = json_integer_value(end);
    int64_t data_bytes = s->map.bytes - s->data_at;
    if (b < 0 || b > e || e > data_bytes) {
        return yk_fail(
            YK_EFORMAT, s->path,
            "tensor %s: bytes %lld to %lld lie outside of the file's %lld bytes of data; it is "
            "truncated or damaged, fetch it again",
            name, (long long)b, (long long)e, (long long)data_bytes);
    }
    if (!yk_st_info_size(&t->info, &t->count, &t->bytes) || t->bytes != e - b) {
        return yk_fail(YK_EFORMAT, s->path,
                       "tensor %s: its shape and dtype do not give the %lld bytes it has", name,
                       (long long)(e - b));
    }
    t->data = s->map.data + s->data_at + b;
    t->file = s->path;
    return YK_OK;
}

static int compare_places(const void *a, const void *b)
{
    const yk_st_tensor *x = a, *y = b;
    const uint8_t *p = x->data, *q = y->data;
    if (p != q) return p < q ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors must lie one after the other, from the first byte of data to the last. */
static yk_status check_tiling(const st_shard *s, yk_st_tensor *t, int64_t n)
{
    if (n > 1) qsort(t, (size_t)n, sizeof *t, compare_places);
    const uint8_t *data = s->map.data + s->data_at, *at = data;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *begin = t[i].data;
        if (begin < at) {
            return yk_fail(YK_EFORMAT, s->path, "tensor %s overlaps tensor %s", t[i].info.name,
                           t[i - 1].info.name);
        }
        if (begin > at) {
            return yk_fail(YK_EFORMAT, s->path, "%lld bytes before tensor %s belong to no tensor",
                           (long long)(begin - at), t[i].info.name);
        }
        at = begin + t[i].bytes;
    }
    int64_t rest = s->map.bytes - s->data_at - (at - data);
    if (rest > 0) {
        return yk_fail(YK_EFORMAT, s->path, "%lld bytes after the last tensor belong to no tensor",
                       (long long)rest);
    }
    return YK_OK;
}

/* Append the tensors of an open shard to the reader's. */
static yk_status read_tensors(yk_safetensors *r, const st_shard *s)
{
    size_t room = (size_t)r->n_tensors + json_object_size(s->header);
    yk_st_tensor *grown = realloc(r->tensors, (room ? room : 1) * sizeof *grown);
    if (!grown) return out_of_memory(s->path);
    r->tensors = grown;
    int64_t first = r->n_tensors;
    const char *name;
    json_t *entry;
    json_object_foreach(s->header, name, entry)
    {
        if (!json_is_object(entry)) return bad_tensor(s, name, "it is described by no object");
        if (strcmp(name, "__metadata__") == 0) continue;
        YK_TRY(read_tensor(s, name, entry, &r->tensors[r->n_tensors]));
        r->n_tensors++;
    }
    return check_tiling(s, r->tensors + first, r->n_tensors - first);
}

static void shard_free(st_shard *s)
{
    if (!s) return;
    yk_file_map_close(&s->map);
    json_decref(s->header);
    free(s->path);
    free(s);
}

/* Open one file and add it with its tensors; takes `path`. */
static yk_status add_shard(yk_safetensors *r, char *path)
{
    st_shard **shards = realloc(r->shards, (size_t)(r->n_shards + 1) * sizeof *shards);
    if (shards) r->shards = shards;
    st_shard *s = shards && path ? calloc(1, sizeof *s) : NULL;
    if (!s) {
        free(path);
        return out_of_memory(r->path);
    }
    s->path = path;
    r->shards[r->n_shards++] = s;
    YK_TRY(yk_file_map_open(path, &s->map));
    YK_TRY(read_header(s));
    return read_tensors(r, s);
}

/* ---- several files ------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b)
{
    const yk_st_tensor *x = a, *y = b;
    return strcmp(x->info.name, y->info.name);
}

/* Order by name, for the search; of two shards none may repeat the other's tensor. */
static yk_status sort_tensors(yk_safetensors *r)
{
    if (r->n_tensors > 1) {
        qsort(r->tensors, (size_t)r->n_tensors, sizeof *r->tensors, compare_names);
    }
    for (int64_t i = 1; i < r->n_tensors; i++) {
        const yk_st_tensor *a = &r->tensors[i - 1], *b = &r->tensors[i];
        if (strcmp(a->info.name, b->info.name) == 0) {
            return yk_fail(YK_EFORMAT, b->file, "tensor %s is also in %s", b->info.name, a->file);
        }
    }
    return YK_OK;
}

static bool has_shard(const yk_safetensors *r, const char *path)
{
    for (int64_t i = 0; i < r->n_shards; i++) {
        if (strcmp(r->shards[i]->path, path) == 0) return true;
    }
    return false;
}

/* The path of shard `name` beside the index; NULL if the name leaves the directory. */
static char *shard_path(const char *index_path, const char *name)
{
    if (!name[0] || name[0] == '.' || strchr(name, '/')) return NULL;
    const char *slash = strrchr(index_path, '/');
    char *dir = slash ? strndup(index_path, (size_t)(slash - index_path + 1)) : strdup("");
    char *path = dir ? yk_path_join(dir, name) : NULL;
    free(dir);
    return path;
}

/* Every tensor of the map must be in the file that the map gives. */
static yk_status check_map(const yk_safetensors *r, const char *index_path, json_t *map)
{
    const char *name;
    json_t *file;
    json_object_foreach(map, name, file)
    {
        const yk_st_tensor *t = yk_safetensors_find(r, name);
        const char *base = t ? strrchr(t->file, '/') : NULL;
        base = base ? base + 1 : t ? t->file : "";
        if (strcmp(base, json_string_value(file)) != 0) {
            return yk_fail(YK_EFORMAT, index_path, "places tensor %s in %s, which does not hold it",
                           name, json_string_value(file));
        }
    }
    return YK_OK;
}

/* Open the shards that the index object names. */
static yk_status open_mapped(yk_safetensors *r, const char *index_path, json_t *index)
{
    json_t *map = json_object_get(index, "weight_map"), *file;
    const char *name;
    if (!json_is_object(map)) return yk_fail(YK_EFORMAT, index_path, "has no weight_map");
    json_object_foreach(map, name, file)
    {
        const char *base = json_string_value(file);
        char *path = base ? shard_path(index_path, base) : NULL;
        if (!path) {
            return yk_fail(YK_EFORMAT, index_path,
                           "tensor %s: its file is not a name in the same "
                           "directory",
                           name);
        }
        if (has_shard(r, path)) {
            free(path);
        } else {
            YK_TRY(add_shard(r, path));
        }
    }
    YK_TRY(sort_tensors(r));
    return check_map(r, index_path, map);
}

static yk_status open_index(yk_safetensors *r, const char *path)
{
    json_t *index;
    YK_TRY(yk_json_read(path, &index));
    yk_status status = open_mapped(r, path, index);
    json_decref(index);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Open a file or an index; takes `path`. */
static yk_status open_file(yk_safetensors *r, char *path)
{
    if (!path) return out_of_memory(r->path);
    if (ends_with(path, ".json")) {
        yk_status status = open_index(r, path);
        free(path);
        return status;
    }
    YK_TRY(add_shard(r, path));
    return sort_tensors(r);
}

static yk_status open_dir(yk_safetensors *r, const char *dir)
{
    static const char *const names[] = {YK_ST_SINGLE_NAME, YK_ST_INDEX_NAME};
    for (int i = 0; i < 2; i++) {
        char *path = yk_path_join(dir, names[i]);
        if (!path || yk_file_exists(path)) return open_file(r, path);
        free(path);
    }
    return yk_fail(YK_EINVAL, dir,
                   "holds neither " YK_ST_SINGLE_NAME " nor " YK_ST_INDEX_NAME
                   "; save the weights as safetensors");
}

yk_status yk_safetensors_open(const char *path, yk_safetensors **reader_out)
{
    yk_safetensors *r = calloc(1, sizeof *r);
    if (!r || !(r->path = strdup(path))) {
        free(r);
        return out_of_memory(path);
    }
    yk_status status = yk_dir_exists(path) ? open_dir(r, path) : open_file(r, strdup(path));
    if (status != YK_OK) {
        yk_safetensors_close(r);
        return status;
    }
    *reader_out = r;
    return YK_OK;
}

void yk_safetensors_close(yk_safetensors *reader)
{
    if (!reader) return;
    for (int64_t i = 0; i < reader->n_shards; i++) shard_free(reader->shards[i]);
    free(reader->shards);
    free(reader->tensors);
    free(reader->path);
    free(reader);
}

/* ---- finding ------------------------------------------------------------------------------ */

int64_t yk_safetensors_count(const yk_safetensors *reader)
{
    return reader->n_tensors;
}

const yk_st_tensor *yk_safetensors_at(const yk_safetensors *reader, int64_t index)
{
    return &reader->tensors[index];
}

const yk_st_tensor *yk_safetensors_find(const yk_safetensors *reader, const char *name)
{
    yk_st_tensor key = {.info.name = name};
    if (reader->n_tensors == 0) return NULL;
    return bsearch(&key, reader->tensors, (size_t)reader->n_tensors, sizeof key, compare_names);
}

/* "[2, 3]" */
static void shape_text(char *text, size_t room, int n_dims, const int64_t *shape)
{
    size_t at = (size_t)snprintf(text, room, "[");
    for (int d = 0; d < n_dims && at < room; d++) {
        at += (size_t)snprintf(text + at, room - at, "%s%lld", d ? ", " : "", (long long)shape[d]);
    }
    if (at < room) snprintf(text + at, room - at, "]");
}

yk_status yk_safetensors_require(const yk_safetensors *reader, const char *name, int n_dims,
                                 const int64_t *shape, const yk_st_tensor **tensor_out)
{
    const yk_st_tensor *t = yk_safetensors_find(reader, name);
    yk_dtype own;
    if (!t) return yk_fail(YK_EFORMAT, reader->path, "tensor %s is missing", name);
    if (!yk_st_dtype_own(t->info.dtype, &own) || own == YK_I32) {
        return yk_fail(YK_EFORMAT, t->file, "tensor %s: dtype is %s; F32, BF16 or F16 is needed",
                       name, yk_st_dtype_name(t->info.dtype));
    }
    if (t->info.n_dims != n_dims ||
        memcmp(t->info.shape, shape, (size_t)n_dims * sizeof *shape) != 0) {
        char is[128], needed[128];
        shape_text(is, sizeof is, t->info.n_dims, t->info.shape);
        shape_text(needed, sizeof needed, n_dims, shape);
        return yk_fail(YK_EFORMAT, t->file, "tensor %s: shape is %s; %s is needed", name, is,
                       needed);
    }
    *tensor_out = t;
    return YK_OK;
}
