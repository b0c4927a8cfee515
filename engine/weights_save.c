/* engine/weights_save.c - weights from the store into a Hugging Face directory; see weights.h.
 *
 * All files are written and brought to the disk beside those they replace, so that a full disk is
 * found out while everything is as it was; then they take their names.
 *
 * Memory.   A chunk of a few MiB, except that a matrix which the file has turned is turned whole:
 *           the largest of GPT-2 1.5B has 10 million values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/weights.h"
#include "runtime/base/arith.h"
#include "runtime/storage/file.h"
#include "runtime/storage/safetensors.h"

/* Values read and converted at a time; a row that is longer is a chunk of its own. */
#define CHUNK (1 << 20)

#define SHARD_BYTES    INT64_C(5000000000)
#define TOKENIZER_NAME "tokenizer.json"

typedef struct save {
    yk_store *store;
    const yk_model *model;
    const char *dir;
    const yk_weights_save_options *o;
    yk_stream *stream;
    yk_hf_tensor *tensors; /* (n) what goes into the files */
    int n;
    float *chunk; /* (chunk_size) values as read */
    void *out;    /* (out_size) of the files' type */
    int64_t chunk_size, out_size;
    int64_t n_overflows; /* finite values beyond what fp16 holds */
    yk_file *config, *tokenizer;
    yk_safetensors_writer *writer;
} save;

/* ---- values ------------------------------------------------------------------------------- */

static void put(save *s, int64_t i, float value)
{
    yk_store_f32(s->out, i, s->o->dtype, value);
    if (s->o->dtype == YK_F16 && isfinite(value) && isinf(yk_load_f32(s->out, i, YK_F16)))
        s->n_overflows++;
}

/* Read our rows r .. r+n-1 of a tensor into the chunk. */
static yk_status read_rows(save *s, const yk_hf_tensor *t, int64_t r, int64_t n)
{
    int64_t cols = yk_hf_cols(t);
    return yk_store_read(s->store, YK_STORE_WEIGHT, t->param, (t->row + r) * cols, n * cols,
                         s->chunk, s->stream);
}

/* Take part in reading what other ranks keep; nothing is written. */
static yk_status only_read(save *s)
{
    for (int i = 0; i < s->n; i++) {
        const yk_hf_tensor *t = &s->tensors[i];
        int64_t rows = yk_hf_rows(t), step = s->chunk_size / yk_hf_cols(t);
        for (int64_t r = 0; r < rows; r += step) YK_TRY(read_rows(s, t, r, yk_min(step, rows - r)));
    }
    return YK_OK;
}

static yk_status write_straight(save *s, int index)
{
    const yk_hf_tensor *t = &s->tensors[index];
    int64_t rows = yk_hf_rows(t), cols = yk_hf_cols(t), step = s->chunk_size / cols;
    int64_t element = yk_dtype_bytes(s->o->dtype);
    for (int64_t r = 0; r < rows; r += step) {
        int64_t n = yk_min(step, rows - r);
        YK_TRY(read_rows(s, t, r, n));
        for (int64_t i = 0; i < n * cols; i++) put(s, i, s->chunk[i]);
        YK_TRY(
            yk_safetensors_write(s->writer, index, r * cols * element, s->out, n * cols * element));
    }
    return YK_OK;
}

static yk_status write_turned(save *s, int index)
{
    const yk_hf_tensor *t = &s->tensors[index];
    int64_t rows = yk_hf_rows(t), cols = yk_hf_cols(t), step = s->chunk_size / cols;
    for (int64_t r = 0; r < rows; r += step) {
        int64_t n = yk_min(step, rows - r);
        YK_TRY(read_rows(s, t, r, n));
        for (int64_t c = 0; c < cols; c++)
            for (int64_t i = 0; i < n; i++) put(s, c * rows + r + i, s->chunk[i * cols + c]);
    }
    return yk_safetensors_write(s->writer, index, 0, s->out,
                                rows * cols * yk_dtype_bytes(s->o->dtype));
}

/* ---- files -------------------------------------------------------------------------------- */

static yk_status take_memory(save *s)
{
    YK_TRY(yk_hf_tensors_create(s->model, &s->tensors, &s->n));
    for (int i = 0; i < s->n; i++) {
        const yk_hf_tensor *t = &s->tensors[i];
        s->chunk_size = yk_max(s->chunk_size, yk_hf_cols(t));
        if (t->transposed) s->out_size = yk_max(s->out_size, t->shape[0] * t->shape[1]);
    }
    s->out_size = yk_max(s->out_size, s->chunk_size);
    s->chunk = malloc((size_t)s->chunk_size * sizeof *s->chunk);
    s->out = malloc((size_t)(s->out_size * yk_dtype_bytes(s->o->dtype)));
    return s->chunk && s->out ? YK_OK : yk_fail(YK_ENOMEM, s->dir, "no memory to convert weights");
}

static yk_status open_writer(save *s)
{
    yk_st_info *infos = calloc((size_t)s->n, sizeof *infos);
    if (!infos) return yk_fail(YK_ENOMEM, s->dir, "no memory for the names of %d tensors", s->n);
    for (int i = 0; i < s->n; i++) {
        const yk_hf_tensor *t = &s->tensors[i];
        infos[i] = (yk_st_info){.name = t->name,
                                .dtype = yk_st_dtype_of(s->o->dtype),
                                .n_dims = t->n_dims,
                                .shape = {t->shape[0], t->shape[1]}};
    }
    int64_t shard_bytes = s->o->max_shard_bytes ? s->o->max_shard_bytes : SHARD_BYTES;
    yk_status status = yk_safetensors_writer_open(s->dir, infos, s->n, shard_bytes, &s->writer);
    free(infos);
    return status;
}

/* Write what will replace `name` in the directory and bring it to the disk. */
static yk_status prepare_file(save *s, const char *name, const char *text, int64_t bytes,
                              yk_file **file_out)
{
    char *path = yk_path_join(s->dir, name);
    if (!path) return yk_fail(YK_ENOMEM, s->dir, "no memory for a path");
    yk_status status = yk_file_replace_begin(path, file_out);
    free(path);
    YK_TRY(status);
    YK_TRY(yk_file_write(*file_out, text, bytes));
    return yk_file_sync(*file_out);
}

static yk_status prepare_config(save *s)
{
    char *text;
    YK_TRY(yk_hf_config_text(yk_model_get_shape(s->model), s->o->dtype, &text));
    yk_status status = prepare_file(s, YK_HF_CONFIG_NAME, text, (int64_t)strlen(text), &s->config);
    free(text);
    return status;
}

/* The tokenizer's text, by the name of the file or of the directory that holds it. */
static yk_status read_tokenizer(const char *path, char **text_out, int64_t *bytes_out)
{
    if (!yk_dir_exists(path)) return yk_file_read_all(path, text_out, bytes_out);
    char *inside = yk_path_join(path, TOKENIZER_NAME);
    if (!inside) return yk_fail(YK_ENOMEM, path, "no memory for a path");
    yk_status status = yk_file_read_all(inside, text_out, bytes_out);
    free(inside);
    return status;
}

static yk_status prepare_tokenizer(save *s)
{
    char *text;
    int64_t bytes;
    if (!s->o->tokenizer) return YK_OK;
    YK_TRY(read_tokenizer(s->o->tokenizer, &text, &bytes));
    yk_status status = prepare_file(s, TOKENIZER_NAME, text, bytes, &s->tokenizer);
    free(text);
    return status;
}

static yk_status prepare(save *s)
{
    YK_TRY(take_memory(s));
    if (s->o->only_read) return only_read(s);
    YK_TRY(prepare_config(s));
    YK_TRY(prepare_tokenizer(s));
    YK_TRY(open_writer(s));
    for (int i = 0; i < s->n; i++)
        YK_TRY(s->tensors[i].transposed ? write_turned(s, i) : write_straight(s, i));
    return YK_OK;
}

static yk_status commit_file(yk_file **file)
{
    yk_file *taken = *file;
    *file = NULL;
    return taken ? yk_file_replace_commit(taken) : YK_OK;
}

static yk_status commit(save *s)
{
    yk_safetensors_writer *writer = s->writer;
    s->writer = NULL;
    YK_TRY(yk_safetensors_writer_commit(writer));
    YK_TRY(commit_file(&s->config));
    return commit_file(&s->tokenizer);
}

/* Take back a directory that was made for files which did not come. */
static void remove_empty(const char *dir)
{
    yk_file_list names;
    if (yk_dir_list(dir, &names) != YK_OK) return;
    if (names.n_items == 0) yk_file_remove(dir);
    yk_file_list_fini(&names);
}

yk_status yk_weights_save(yk_store *store, const yk_model *model, const char *dir,
                          const yk_weights_save_options *options, yk_stream *stream)
{
    save s = {.store = store, .model = model, .dir = dir, .o = options, .stream = stream};
    s.chunk_size = CHUNK;
    bool was_there = yk_dir_exists(dir);
    if (!options->only_read) YK_TRY(yk_dir_create(dir));
    yk_status status = prepare(&s);
    if (status == YK_OK && !options->only_read) status = commit(&s);
    yk_safetensors_writer_abort(s.writer);
    yk_file_replace_abort(s.config);
    yk_file_replace_abort(s.tokenizer);
    free(s.tensors);
    free(s.chunk);
    free(s.out);
    if (status != YK_OK && !was_there) remove_empty(dir);
    if (s.n_overflows > 0)
        yk_warn(dir, "%lld weights are beyond what fp16 holds and were written as infinity",
                (long long)s.n_overflows);
    return status;
}
