/* runtime/storage/safetensors_write.c - announce tensors, write pieces, commit; see safetensors.h.
 *
 * Within a file tensors lie by falling dtype, then by name: the order of Hugging Face's own writer,
 * which keeps every tensor aligned to its elements, and makes our files equal to theirs in bytes.
 */
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/storage/file.h"
#include "runtime/storage/json.h"
#include "runtime/storage/safetensors_layout.h"

#define NAME_BYTES 64

typedef struct out_tensor {
    yk_st_info info; /* name owned */
    int64_t shard;
    int64_t offset; /* in the file */
    int64_t bytes;
    _Atomic int64_t written;
} out_tensor;

typedef struct out_shard {
    yk_file *file; /* NULL once it is committed */
    char name[NAME_BYTES];
} out_shard;

struct yk_safetensors_writer {
    char *dir;
    out_tensor *tensors; /* (n_tensors) as announced */
    int64_t n_tensors;
    out_shard *shards; /* (n_shards) */
    int64_t n_shards;
    int64_t total_bytes;
};

static yk_status out_of_memory(const char *dir)
{
    return yk_fail(YK_ENOMEM, dir, "no memory to write tensors");
}

/* ---- layout ------------------------------------------------------------------------------- */

static yk_status copy_tensors(yk_safetensors_writer *w, const yk_st_info *tensors)
{
    for (int64_t i = 0; i < w->n_tensors; i++) {
        out_tensor *t = &w->tensors[i];
        int64_t count;
        t->info = tensors[i];
        if (!(t->info.name = strdup(tensors[i].name))) return out_of_memory(w->dir);
        if (!t->info.name[0] || strcmp(t->info.name, "__metadata__") == 0) {
            return yk_fail(YK_EINVAL, w->dir, "'%s' cannot be the name of a tensor", t->info.name);
        }
        if (!yk_st_info_size(&t->info, &count, &t->bytes) ||
            !yk_add(w->total_bytes, t->bytes, &w->total_bytes)) {
            return yk_fail(YK_EINVAL, w->dir, "tensor %s: its shape is negative or too large",
                           t->info.name);
        }
    }
    return YK_OK;
}

/* Deal tensors to shards in the order given, so that none holds more than `max_bytes`. */
static void deal(yk_safetensors_writer *w, int64_t max_bytes)
{
    int64_t in_shard = 0;
    w->n_shards = 1;
    for (int64_t i = 0; i < w->n_tensors; i++) {
        out_tensor *t = &w->tensors[i];
        if (max_bytes > 0 && in_shard > 0 && t->bytes > max_bytes - in_shard) {
            w->n_shards++;
            in_shard = 0;
        }
        t->shard = w->n_shards - 1;
        in_shard += t->bytes;
    }
}

/* By shard; in it by falling dtype, then name. */
static int compare_places(const void *a, const void *b)
{
    const out_tensor *x = *(out_tensor *const *)a, *y = *(out_tensor *const *)b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->info.dtype != y->info.dtype) return x->info.dtype > y->info.dtype ? -1 : 1;
    return strcmp(x->info.name, y->info.name);
}

static int compare_names(const void *a, const void *b)
{
    const out_tensor *x = *(out_tensor *const *)a, *y = *(out_tensor *const *)b;
    return strcmp(x->info.name, y->info.name);
}

static yk_status check_names(const yk_safetensors_writer *w, out_tensor **order)
{
    if (w->n_tensors > 1) qsort(order, (size_t)w->n_tensors, sizeof *order, compare_names);
    for (int64_t i = 1; i < w->n_tensors; i++) {
        if (strcmp(order[i]->info.name, order[i - 1]->info.name) != 0) continue;
        return yk_fail(YK_EINVAL, w->dir, "tensor %s is announced twice", order[i]->info.name);
    }
    return YK_OK;
}

/* ---- header ------------------------------------------------------------------------------- */

/* Describe tensor `t`, whose data begins at `begin`, in the header. */
static bool header_add(json_t *header, const out_tensor *t, int64_t begin)
{
    json_t *shape = json_array();
    for (int d = 0; d < t->info.n_dims; d++) {
        json_array_append_new(shape, json_integer(t->info.shape[d]));
    }
    json_t *entry =
        json_pack("{s:s, s:o, s:[I,I]}", "dtype", yk_st_dtype_name(t->info.dtype), "shape", shape,
                  "data_offsets", (json_int_t)begin, (json_int_t)(begin + t->bytes));
    return entry && json_object_set_new(header, t->info.name, entry) == 0;
}

/* The header of the shard whose tensors are order[0 .. n), as text padded with spaces to a multiple
 * of 8 and owned by the caller; places the tensors in the file. NULL: no memory. */
static char *make_header(out_tensor **order, int64_t n, int64_t *bytes_out)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    bool fine = header != NULL;
    int64_t begin = 0;
    for (int64_t i = 0; i < n && fine; i++) {
        fine = header_add(header, order[i], begin);
        order[i]->offset = begin;
        begin += order[i]->bytes;
    }
    char *text = fine ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text) return NULL;
    int64_t used = (int64_t)strlen(text), padded = yk_round_up(used, 8);
    char *grown = realloc(text, (size_t)padded + 1);
    if (!grown) {
        free(text);
        return NULL;
    }
    memset(grown + used, ' ', (size_t)(padded - used));
    for (int64_t i = 0; i < n; i++) order[i]->offset += YK_ST_PREFIX_BYTES + padded;
    *bytes_out = padded;
    return grown;
}

/* Begin the file of a shard: name, length of the header, header. */
static yk_status begin_shard(yk_safetensors_writer *w, int64_t index, const char *header,
                             int64_t bytes)
{
    out_shard *s = &w->shards[index];
    if (bytes > YK_ST_HEADER_MAX) {
        return yk_fail(YK_EINVAL, w->dir,
                       "names and shapes need a header of %lld bytes, the format "
                       "allows %d",
                       (long long)bytes, YK_ST_HEADER_MAX);
    }
    if (w->n_shards == 1) {
        snprintf(s->name, sizeof s->name, YK_ST_SINGLE_NAME);
    } else {
        snprintf(s->name, sizeof s->name, "model-%05lld-of-%05lld.safetensors",
                 (long long)index + 1, (long long)w->n_shards);
    }
    char *path = yk_path_join(w->dir, s->name);
    if (!path) return out_of_memory(w->dir);
    yk_status status = yk_file_replace_begin(path, &s->file);
    free(path);
    YK_TRY(status);
    uint8_t prefix[YK_ST_PREFIX_BYTES];
    for (int i = 0; i < YK_ST_PREFIX_BYTES; i++) prefix[i] = (uint8_t)((uint64_t)bytes >> 8 * i);
    YK_TRY(yk_file_write(s->file, prefix, sizeof prefix));
    return yk_file_write(s->file, header, bytes);
}

static yk_status begin_shards(yk_safetensors_writer *w, out_tensor **order)
{
    if (w->n_tensors > 1) qsort(order, (size_t)w->n_tensors, sizeof *order, compare_places);
    if (!(w->shards = calloc((size_t)w->n_shards, sizeof *w->shards))) return out_of_memory(w->dir);
    int64_t first = 0;
    for (int64_t s = 0; s < w->n_shards; s++) {
        int64_t n = 0, bytes;
        while (first + n < w->n_tensors && order[first + n]->shard == s) n++;
        char *header = make_header(order + first, n, &bytes);
        if (!header) return out_of_memory(w->dir);
        yk_status status = begin_shard(w, s, header, bytes);
        free(header);
        YK_TRY(status);
        first += n;
    }
    return YK_OK;
}

/* ---- the writer's life -------------------------------------------------------------------- */

static void writer_free(yk_safetensors_writer *w)
{
    for (int64_t i = 0; w->tensors && i < w->n_tensors; i++) {
        free((void *)(uintptr_t)w->tensors[i].info.name);
    }
    free(w->tensors);
    free(w->shards);
    free(w->dir);
    free(w);
}

static yk_status prepare(yk_safetensors_writer *w, const yk_st_info *tensors, int64_t max_bytes)
{
    YK_TRY(copy_tensors(w, tensors));
    out_tensor **order = malloc((size_t)(w->n_tensors + 1) * sizeof *order);
    if (!order) return out_of_memory(w->dir);
    for (int64_t i = 0; i < w->n_tensors; i++) order[i] = &w->tensors[i];
    yk_status status = check_names(w, order);
    if (status == YK_OK) {
        deal(w, max_bytes);
        status = begin_shards(w, order);
    }
    free(order);
    return status;
}

yk_status yk_safetensors_writer_open(const char *dir, const yk_st_info *tensors, int64_t n,
                                     int64_t max_shard_bytes, yk_safetensors_writer **writer_out)
{
    yk_safetensors_writer *w = calloc(1, sizeof *w);
    if (!w) return out_of_memory(dir);
    w->dir = strdup(dir);
    w->tensors = calloc((size_t)n + 1, sizeof *w->tensors);
    w->n_tensors = n;
    yk_status status =
        w->dir && w->tensors ? prepare(w, tensors, max_shard_bytes) : out_of_memory(dir);
    if (status != YK_OK) {
        yk_safetensors_writer_abort(w);
        return status;
    }
    *writer_out = w;
    return YK_OK;
}

yk_status yk_safetensors_write(yk_safetensors_writer *writer, int64_t index, int64_t offset,
                               const void *data, int64_t bytes)
{
    YK_CHECK(index >= 0 && index < writer->n_tensors);
    out_tensor *t = &writer->tensors[index];
    YK_CHECK(offset >= 0 && bytes >= 0 && offset <= t->bytes - bytes);
    YK_TRY(yk_file_write_at(writer->shards[t->shard].file, data, bytes, t->offset + offset));
    t->written += bytes;
    return YK_OK;
}

void yk_safetensors_writer_abort(yk_safetensors_writer *writer)
{
    if (!writer) return;
    for (int64_t s = 0; writer->shards && s < writer->n_shards; s++) {
        yk_file_replace_abort(writer->shards[s].file);
    }
    writer_free(writer);
}

/* ---- commit ------------------------------------------------------------------------------- */

static yk_status write_index(const yk_safetensors_writer *w)
{
    json_t *map = json_object();
    for (int64_t i = 0; i < w->n_tensors; i++) {
        const out_tensor *t = &w->tensors[i];
        json_object_set_new(map, t->info.name, json_string(w->shards[t->shard].name));
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                              (json_int_t)w->total_bytes, "weight_map", map);
    char *path = yk_path_join(w->dir, YK_ST_INDEX_NAME);
    yk_status status =
        index && path ? yk_json_replace(path, index, JSON_SORT_KEYS) : out_of_memory(w->dir);
    free(path);
    json_decref(index);
    return status;
}

static bool is_ours(const yk_safetensors_writer *w, const char *name)
{
    if (strcmp(name, YK_ST_INDEX_NAME) == 0) return w->n_shards > 1;
    for (int64_t s = 0; s < w->n_shards; s++) {
        if (strcmp(w->shards[s].name, name) == 0) return true;
    }
    return false;
}

/* Remove the files of an earlier sharding: a reader would prefer them, or mix them in. */
static yk_status remove_replaced(const yk_safetensors_writer *w)
{
    yk_file_list names;
    YK_TRY(yk_dir_list(w->dir, &names));
    yk_status status = YK_OK;
    for (int64_t i = 0; i < names.n_items && status == YK_OK; i++) {
        const char *name = names.items[i];
        if (strcmp(name, YK_ST_SINGLE_NAME) != 0 && strcmp(name, YK_ST_INDEX_NAME) != 0 &&
            fnmatch("model-[0-9]*-of-[0-9]*.safetensors", name, 0) != 0) {
            continue;
        }
        if (is_ours(w, name)) continue;
        char *path = yk_path_join(w->dir, name);
        status = path ? yk_file_remove(path) : out_of_memory(w->dir);
        free(path);
    }
    yk_file_list_fini(&names);
    return status;
}

static yk_status commit(yk_safetensors_writer *w)
{
    for (int64_t i = 0; i < w->n_tensors; i++) {
        const out_tensor *t = &w->tensors[i];
        if (t->written != t->bytes) {
            return yk_fail(YK_EINVAL, w->dir, "tensor %s: %lld of its %lld bytes were written",
                           t->info.name, (long long)t->written, (long long)t->bytes);
        }
    }
    for (int64_t s = 0; s < w->n_shards; s++) YK_TRY(yk_file_sync(w->shards[s].file));
    for (int64_t s = 0; s < w->n_shards; s++) {
        yk_file *file = w->shards[s].file;
        w->shards[s].file = NULL;
        YK_TRY(yk_file_replace_commit(file));
    }
    if (w->n_shards > 1) YK_TRY(write_index(w));
    return remove_replaced(w);
}

yk_status yk_safetensors_writer_commit(yk_safetensors_writer *writer)
{
    yk_status status = commit(writer);
    yk_safetensors_writer_abort(writer); /* what is committed has no file left to remove */
    return status;
}
