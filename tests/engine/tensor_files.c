/* tests/engine/tensor_files.c - see tensor_files.h. */
#include "tests/engine/tensor_files.h"

#include <stdlib.h>
#include <string.h>

static void must(yk_status status)
{
    if (status != YK_OK) abort();
}

static tensor_file *append(tensor_files *f, const char *name, yk_dtype dtype, int64_t count)
{
    f->items = realloc(f->items, (size_t)(f->n + 1) * sizeof *f->items);
    YK_CHECK(f->items);
    tensor_file *t = &f->items[f->n++];
    *t = (tensor_file){.info.dtype = yk_st_dtype_of(dtype)};
    strcpy(t->name, name);
    t->data = malloc((size_t)(count * yk_dtype_bytes(dtype)));
    YK_CHECK(t->data);
    return t;
}

tensor_files tensor_files_of(const yk_model *model, double *const *values, yk_dtype dtype)
{
    tensor_files f = {0};
    yk_hf_tensor *tensors;
    int n;
    must(yk_hf_tensors_create(model, &tensors, &n));
    for (int i = 0; i < n; i++) {
        const yk_hf_tensor *h = &tensors[i];
        int64_t cols = yk_hf_cols(h);
        tensor_file *t = append(&f, h->name, dtype, h->shape[0] * h->shape[1]);
        t->info.n_dims = h->n_dims;
        memcpy(t->info.shape, h->shape, sizeof h->shape);
        for (int64_t k = 0; k < h->shape[0] * h->shape[1]; k++) {
            int64_t a = k / h->shape[1], b = k % h->shape[1];
            int64_t r = h->transposed ? b : a, c = h->transposed ? a : b;
            yk_store_f32(t->data, k, dtype, (float)values[h->param][(h->row + r) * cols + c]);
        }
    }
    free(tensors);
    return f;
}

tensor_file *tensor_files_find(const tensor_files *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->items[i].name, name) == 0) return &f->items[i];
    abort();
}

void tensor_files_drop(tensor_files *f, const char *name)
{
    tensor_file *t = tensor_files_find(f, name);
    free(t->data);
    *t = f->items[--f->n];
}

void tensor_files_add(tensor_files *f, const char *name, yk_dtype dtype, const double *values,
                      int64_t n)
{
    tensor_file *t = append(f, name, dtype, n);
    t->info.n_dims = 1;
    t->info.shape[0] = n;
    for (int64_t i = 0; i < n; i++) yk_store_f32(t->data, i, dtype, (float)values[i]);
}

void tensor_files_write(const tensor_files *f, const char *dir, int64_t max_shard_bytes)
{
    yk_safetensors_writer *writer;
    yk_st_info *infos = calloc((size_t)f->n, sizeof *infos);
    YK_CHECK(infos);
    for (int i = 0; i < f->n; i++) {
        infos[i] = f->items[i].info;
        infos[i].name = f->items[i].name;
    }
    must(yk_safetensors_writer_open(dir, infos, f->n, max_shard_bytes, &writer));
    for (int i = 0; i < f->n; i++) {
        int64_t bytes = yk_st_dtype_bytes(infos[i].dtype);
        for (int d = 0; d < infos[i].n_dims; d++) bytes *= infos[i].shape[d];
        must(yk_safetensors_write(writer, i, 0, f->items[i].data, bytes));
    }
    must(yk_safetensors_writer_commit(writer));
    free(infos);
}

void tensor_files_release(tensor_files *f)
{
    for (int i = 0; i < f->n; i++) free(f->items[i].data);
    free(f->items);
}
