/* runtime/data/space.c - see space.h. */
#include "runtime/data/space.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/arith.h"

#define CHECK_CHUNK 4096 /* ids compared at a time */

static yk_status out_of_memory(const char *key)
{
    return yk_fail(YK_ENOMEM, key, "no memory for its list of files");
}

static yk_status add_file(yk_space *space, const char *key, const char *path,
                          const yk_token_file_options *options)
{
    size_t n = (size_t)space->n_files + 1;
    yk_token_file *files = realloc(space->files, n * sizeof *files);
    if (files) space->files = files;
    int64_t *starts = realloc(space->starts, (n + 1) * sizeof *starts);
    if (starts) space->starts = starts;
    if (!files || !starts) return out_of_memory(key);
    YK_TRY(yk_token_file_open(path, options, &files[n - 1]));
    space->n_files++;
    starts[n - 1] = space->n_tokens;
    space->n_tokens += files[n - 1].n_tokens;
    starts[n] = space->n_tokens;
    return YK_OK;
}

/* Open every file of one pattern. */
static yk_status add_pattern(yk_space *space, const char *key, const char *pattern,
                             const yk_token_file_options *options)
{
    yk_file_list paths;
    YK_TRY(yk_file_glob(pattern, &paths));
    yk_status status = YK_OK;
    if (paths.n_items == 0) {
        status =
            yk_fail(YK_EINVAL, pattern, "no file matches this pattern of %s; check the path", key);
    }
    for (int64_t i = 0; i < paths.n_items && status == YK_OK; i++) {
        status = add_file(space, key, paths.items[i], options);
    }
    yk_file_list_fini(&paths);
    return status;
}

yk_status yk_space_open(const char *key, const yk_string_list *paths,
                        const yk_token_file_options *options, yk_space *space_out)
{
    yk_space space = {0};
    yk_status status = YK_OK;
    for (int i = 0; i < paths->n_items && status == YK_OK; i++) {
        status = add_pattern(&space, key, paths->items[i], options);
    }
    if (status != YK_OK) {
        yk_space_close(&space);
        return status;
    }
    *space_out = space;
    return YK_OK;
}

yk_status yk_space_set_masks(yk_space *space, const yk_string_list *paths)
{
    int64_t n = 0;
    for (int i = 0; i < paths->n_items; i++) {
        yk_file_list found;
        YK_TRY(yk_file_glob(paths->items[i], &found));
        yk_status status = YK_OK;
        for (int64_t k = 0; k < found.n_items && status == YK_OK; k++, n++) {
            if (n < space->n_files) {
                status = yk_token_file_set_mask(&space->files[n], found.items[k]);
            }
        }
        yk_file_list_fini(&found);
        YK_TRY(status);
    }
    if (n == space->n_files) return YK_OK;
    return yk_fail(YK_EINVAL, "data.loss_mask",
                   "%lld masks for the %lld files of data.train; give "
                   "one for each",
                   (long long)n, (long long)space->n_files);
}

void yk_space_close(yk_space *space)
{
    for (int64_t i = 0; i < space->n_files; i++) yk_token_file_close(&space->files[i]);
    free(space->files);
    free(space->starts);
    *space = (yk_space){0};
}

/* The file that `position` < n_tokens lies in. */
static int64_t file_at(const yk_space *space, int64_t position)
{
    int64_t low = 0, high = space->n_files - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (space->starts[middle] <= position) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static yk_status fault_at(const yk_token_file *file, int64_t position, yk_data_fault *fault_out)
{
    *fault_out = (yk_data_fault){
        .path = file->path, .position = position, .id = yk_token_file_id(file, position)};
    return YK_EFORMAT;
}

yk_status yk_space_read(const yk_space *space, int64_t position, int64_t n, int64_t vocab,
                        int32_t *ids_out, yk_data_fault *fault_out)
{
    for (int64_t f = n > 0 ? file_at(space, position) : 0; n > 0; f++) {
        const yk_token_file *file = &space->files[f];
        int64_t at = position - space->starts[f], here = yk_min(n, file->n_tokens - at);
        int64_t bad = yk_token_file_read(file, at, here, vocab, ids_out);
        if (bad >= 0) return fault_at(file, bad, fault_out);
        ids_out += here;
        position += here;
        n -= here;
    }
    return YK_OK;
}

yk_status yk_space_check(const yk_space *space, int64_t vocab, int64_t *bytes_left,
                         yk_data_fault *fault_out)
{
    int32_t ids[CHECK_CHUNK];
    for (int64_t f = 0; f < space->n_files; f++) {
        const yk_token_file *file = &space->files[f];
        if (vocab >> 8 * file->width > 0) continue;
        for (int64_t at = 0; *bytes_left > 0 && at < file->n_tokens; at += CHECK_CHUNK) {
            int64_t n = yk_min(CHECK_CHUNK, file->n_tokens - at);
            int64_t bad = yk_token_file_read(file, at, n, vocab, ids);
            if (bad >= 0) return fault_at(file, bad, fault_out);
            *bytes_left -= n * file->width;
        }
    }
    return YK_OK;
}

void yk_space_mask(const yk_space *space, int64_t position, int64_t n, int32_t *targets)
{
    for (int64_t f = n > 0 ? file_at(space, position) : 0; n > 0; f++) {
        const yk_token_file *file = &space->files[f];
        int64_t at = position - space->starts[f], here = yk_min(n, file->n_tokens - at);
        for (int64_t i = 0; file->loss_mask && i < here; i++) {
            if (!file->loss_mask[at + i]) targets[i] = -1;
        }
        targets += here;
        position += here;
        n -= here;
    }
}

/* The first document of a file that begins at or after its token `at`; n_tokens: none. */
static int64_t next_in_file(const yk_token_file *file, int64_t at)
{
    int64_t low = 0, high = file->n_documents;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (file->documents[middle] < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < file->n_documents ? file->documents[low] : file->n_tokens;
}

int64_t yk_space_next_document(const yk_space *space, int64_t position)
{
    if (position >= space->n_tokens) return space->n_tokens;
    int64_t f = file_at(space, position);
    if (space->starts[f] == position) return position;
    return space->starts[f] + next_in_file(&space->files[f], position - space->starts[f]);
}

int64_t yk_space_stretch_end(const yk_space *space, int64_t first)
{
    int64_t end = first + 1;
    if (space->files[first].format != YK_DATA_TEXT) return end;
    while (end < space->n_files && space->files[end].format == YK_DATA_TEXT) end++;
    return end;
}
