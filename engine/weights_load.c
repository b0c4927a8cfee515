/* engine/weights_load.c - weights from a Hugging Face directory into the store; see weights.h.
 *
 * First every tensor of the model is found and checked, then the store is filled a few rows at a
 * time from the mapped files: at any moment one chunk is in memory of our own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/weights.h"
#include "runtime/base/arith.h"
#include "runtime/storage/safetensors.h"

/* Values converted and written at a time; a row that is longer is a chunk of its own. */
#define CHUNK (1 << 20)

typedef struct load {
    yk_store *store;
    const yk_model *model;
    const char *dir;
    yk_stream *stream;
    yk_safetensors *files;
    yk_hf_tensor *tensors; /* (n) what the model needs; the embedding is the first */
    int n;
    const yk_st_tensor **found; /* (n) where each lies */
    float *chunk;               /* (chunk_size) */
    int64_t chunk_size;
} load;

/* ---- finding and checking ----------------------------------------------------------------- */

/* The name of a tensor in these files: as transformers writes it, or as in files without a head. */
static const char *name_here(const load *l, const char *name)
{
    const char *shorter = yk_hf_short_name(l->model, name);
    bool is_short = !yk_safetensors_find(l->files, name) && yk_safetensors_find(l->files, shorter);
    return is_short ? shorter : name;
}

static yk_status find_tensors(load *l)
{
    for (int i = 0; i < l->n; i++) {
        const yk_hf_tensor *t = &l->tensors[i];
        const char *name = name_here(l, t->name);
        if (strcmp(name, YK_HF_HEAD_NAME) == 0 && !yk_safetensors_find(l->files, name))
            return yk_fail(YK_EFORMAT, l->dir,
                           "tensor %s is missing, and the head is not tied to the embedding; add "
                           "the tensor, or set tie_word_embeddings in config.json",
                           name);
        YK_TRY(yk_safetensors_require(l->files, name, t->n_dims, t->shape, &l->found[i]));
        l->chunk_size = yk_max(l->chunk_size, yk_hf_cols(t));
    }
    l->chunk = malloc((size_t)l->chunk_size * sizeof *l->chunk);
    return l->chunk ? YK_OK : yk_fail(YK_ENOMEM, l->dir, "no memory to convert weights");
}

static bool is_head(const yk_st_tensor *tensor)
{
    return strcmp(tensor->info.name, YK_HF_HEAD_NAME) == 0;
}

/* Of the model, or known not to matter; a second head is warned of by itself. */
static bool is_expected(const load *l, const yk_st_tensor *tensor)
{
    for (int i = 0; i < l->n; i++)
        if (l->found[i] == tensor) return true;
    return is_head(tensor) || yk_hf_is_derived(tensor->info.name);
}

/* Name the tensors that nobody asked for in one line, as far as it reaches. */
static void warn_of_others(const load *l)
{
    char names[256] = "";
    size_t used = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < yk_safetensors_count(l->files); i++) {
        const yk_st_tensor *t = yk_safetensors_at(l->files, i);
        if (is_expected(l, t)) continue;
        n++;
        if (used + strlen(t->info.name) + sizeof ", ..." > sizeof names) continue;
        used += (size_t)sprintf(names + used, "%s%s", used ? ", " : "", t->info.name);
    }
    if (n > 0)
        yk_warn(l->dir, "holds %" PRId64 " tensors that are not of this model and are left out: %s",
                n, names);
}

/* ---- values ------------------------------------------------------------------------------- */

/* Values begin, begin + stride, ... of a tensor, n of them. They are copied first, since tensors
 * in a file need not be aligned to their elements. */
static void take(float *values_out, const yk_st_tensor *from, int64_t begin, int64_t n,
                 int64_t stride)
{
    const char *data = from->data;
    yk_dtype dtype = YK_F32;
    (void)yk_st_dtype_own(from->info.dtype, &dtype); /* it was checked */
    if (dtype == YK_F32) {
        for (int64_t i = 0; i < n; i++) memcpy(&values_out[i], data + (begin + i * stride) * 4, 4);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, data + (begin + i * stride) * 2, 2);
        values_out[i] = dtype == YK_BF16 ? yk_bf16_to_f32(half) : yk_f16_to_f32(half);
    }
}

/* Our rows r .. r+n-1 of a tensor. */
static void take_rows(float *values_out, const yk_hf_tensor *t, const yk_st_tensor *from, int64_t r,
                      int64_t n)
{
    int64_t rows = yk_hf_rows(t), cols = yk_hf_cols(t);
    if (!t->transposed) {
        take(values_out, from, r * cols, n * cols, 1);
        return;
    }
    for (int64_t i = 0; i < n; i++) take(values_out + i * cols, from, r + i, cols, rows);
}

/* A tied model's files may hold the head a second time. It should be the embedding. */
static void warn_of_other_head(const load *l)
{
    const yk_st_tensor *head = yk_safetensors_find(l->files, YK_HF_HEAD_NAME);
    const yk_st_tensor *embed = l->found[0];
    yk_dtype dtype;
    if (!head || !yk_model_get_shape(l->model)->tied) return;
    bool same =
        head->count == embed->count && yk_st_dtype_own(head->info.dtype, &dtype) && dtype != YK_I32;
    int64_t half = l->chunk_size / 2;
    for (int64_t i = 0; same && i < head->count; i += half) {
        int64_t n = yk_min(half, head->count - i);
        take(l->chunk, head, i, n, 1);
        take(l->chunk + half, embed, i, n, 1);
        same = memcmp(l->chunk, l->chunk + half, (size_t)n * 4) == 0;
    }
    if (!same)
        yk_warn(l->dir, "%s differs from %s, which config.json ties it to; the latter is used",
                YK_HF_HEAD_NAME, embed->info.name);
}

/* ---- filling the store -------------------------------------------------------------------- */

static yk_status fill_tensor(load *l, const yk_hf_tensor *t, const yk_st_tensor *from)
{
    int64_t rows = yk_hf_rows(t), cols = yk_hf_cols(t), step = l->chunk_size / cols;
    for (int64_t r = 0; r < rows; r += step) {
        int64_t n = yk_min(step, rows - r);
        take_rows(l->chunk, t, from, r, n);
        YK_TRY(yk_store_write(l->store, YK_STORE_WEIGHT, t->param, (t->row + r) * cols, n * cols,
                              l->chunk, l->stream));
    }
    return YK_OK;
}

/* Zero the rows of a parameter that no tensor fills: the padding of the vocabulary. */
static yk_status fill_padding(load *l, int param)
{
    const yk_param *p = &yk_model_params(l->model)[param];
    int64_t cols = p->shape[1], step = l->chunk_size / cols, begin = 0;
    for (int i = 0; i < l->n; i++)
        if (l->tensors[i].param == param)
            begin = yk_max(begin, l->tensors[i].row + yk_hf_rows(&l->tensors[i]));
    memset(l->chunk, 0, (size_t)l->chunk_size * sizeof *l->chunk);
    for (int64_t r = begin; r < p->shape[0]; r += step)
        YK_TRY(yk_store_write(l->store, YK_STORE_WEIGHT, param, r * cols,
                              yk_min(step, p->shape[0] - r) * cols, l->chunk, l->stream));
    return YK_OK;
}

static yk_status load_all(load *l)
{
    YK_TRY(yk_safetensors_open(l->dir, &l->files));
    YK_TRY(yk_hf_tensors_create(l->model, &l->tensors, &l->n));
    l->found = calloc((size_t)l->n, sizeof *l->found);
    if (!l->found)
        return yk_fail(YK_ENOMEM, l->dir, "no memory for the places of %d tensors", l->n);
    YK_TRY(find_tensors(l));
    warn_of_others(l);
    warn_of_other_head(l);
    for (int i = 0; i < l->n; i++) YK_TRY(fill_tensor(l, &l->tensors[i], l->found[i]));
    for (int i = 0; i < yk_model_n_params(l->model); i++) YK_TRY(fill_padding(l, i));
    return YK_OK;
}

yk_status yk_weights_load(yk_store *store, const yk_model *model, const char *dir,
                          yk_stream *stream)
{
    load l = {.store = store, .model = model, .dir = dir, .stream = stream, .chunk_size = CHUNK};
    yk_status status = load_all(&l);
    free(l.chunk);
    free(l.found);
    free(l.tensors);
    yk_safetensors_close(l.files);
    return status;
}
